//! The rotation of the key of secrets is killed at many moments. No secret is lost, and a later rotation
//! completes.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use catena_auth::KeyPair;
use catena_tests::TIMEOUT;
use catena_tests::process::Process;
use catena_tests::site::{delegation, id_of};
use serde_json::{Value as Json, json};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::{binary, caller};

/// Users with secrets. Those of one user are encrypted again in one commit.
const USERS: u8 = 24;

/// Secrets of each user.
const SECRETS: usize = 3;

/// How often a rotation is killed, at moments that are spread over its duration.
const KILLS: u32 = 12;

fn rotation(data: &Path) -> Child {
    Command::new(binary())
        .args(["secrets", "rotate", "--data"])
        .arg(data)
        .current_dir(data.parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Rotates the key completely. Returns the time that it took.
async fn rotate(data: &Path) -> Duration {
    let begun = Instant::now();
    let ended = tokio::time::timeout(TIMEOUT, rotation(data).wait_with_output()).await;
    let ended = ended.unwrap().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!data.join("secrets.next").exists(), "the old key is gone");
    begun.elapsed()
}

/// What was encrypted before the rotations.
struct Planted {
    /// A job of the first user whose message waits, with content that is encrypted.
    chat: String,
    /// The number of jobs that wait for a worker, with an encrypted input.
    queued: usize,
}

async fn plant(venue: &Process) -> Planted {
    for seed in 1..=USERS {
        let client = caller(venue, seed).await;
        for secret in 0..SECRETS {
            let path = format!("/api/v1/secrets/KEY_{secret}");
            let value = json!({"value": format!("value {secret} of {seed}")});
            client.ask(client.request("PUT", &path).json(&value)).await.expect(200);
        }
    }
    let client = caller(venue, 1).await;
    let definition = json!({"name": "Mail", "operation": {"adapter": "worker", "queue": "mail",
        "input": {"type": "object", "properties": {"key": {"type": "string", "writeOnly": true}}}}});
    let named = client.request("PUT", "/api/v1/operations/mail").json(&definition);
    client.ask(named).await.expect(200);
    let queued = usize::from(USERS);
    for number in 0..queued {
        client.invoke("o/mail", json!({"key": format!("input {number}"), "n": number})).await;
    }
    let chat = client.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    client.control(&chat, "pause").await.expect(200);
    let message = json!({"content": "hello", "credentials": {"token": "of the message"}});
    client.send(&chat, &message).await.expect(202);
    // A message to a job that does not read messages waits as long as the job.
    let never = id_of(&client.invoke("test:never", json!({})).await);
    for number in 0..8 {
        let message = json!({"content": number, "credentials": {"token": "waits"}});
        client.send(&never, &message).await.expect(202);
    }
    Planted { chat, queued }
}

/// Reads every secret of every user.
async fn check_secrets(venue: &Process) {
    for seed in 1..=USERS {
        let client = caller(venue, seed).await;
        let key = KeyPair::from_seed(&[seed; 32]);
        let did = key.did();
        let att = format!(r#"[{{"with":"{did}/s","can":"secret/extract"}}]"#);
        let att = catena_value::json::read(att.as_bytes()).unwrap();
        let proof = delegation(&key, &did, &[("att", att)]);
        for secret in 0..SECRETS {
            let input = json!({"name": format!("KEY_{secret}")});
            let body = json!({"operation": "secret:extract", "input": input, "ucans": [proof]});
            let shown = client.post("/api/v1/run", &body).await.expect(200).json();
            assert_eq!(shown["value"], format!("value {secret} of {seed}"));
        }
    }
}

/// Reads the inputs of the jobs that wait for a worker, and the message that waits for the chat.
async fn check_jobs(venue: &Process, planted: &Planted) {
    let client = caller(venue, 1).await;
    let body = json!({"worker": "w", "queues": ["mail"], "max": planted.queued, "waitMs": 1_000});
    let mut claimed: Vec<Json> = Vec::new();
    while claimed.len() < planted.queued {
        let reply = client.post("/worker/v1/claim", &body).await.expect(200).json();
        let jobs = reply["jobs"].as_array().unwrap();
        assert!(!jobs.is_empty(), "{} of {} jobs", claimed.len(), planted.queued);
        claimed.extend(jobs.iter().map(|job| job["input"].clone()));
    }
    for input in claimed {
        assert_eq!(input["key"], format!("input {}", input["n"]), "{input}");
    }
    client.control(&planted.chat, "resume").await.expect(200);
    let answered = |job: &Json| job["output"].to_string().contains("hello");
    client.until_that(&planted.chat, answered).await;
}

#[tokio::test]
async fn a_rotation_that_is_killed_at_any_moment_loses_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let venue = Process::start(&binary(), &data, &[]).await;
    let planted = plant(&venue).await;
    venue.kill().await;
    let first = std::fs::read(data.join("secrets.key")).unwrap();
    let duration = rotate(&data).await;
    assert_ne!(std::fs::read(data.join("secrets.key")).unwrap(), first);
    let mut unfinished = 0;
    for kill in 1..=KILLS {
        let mut child = rotation(&data);
        tokio::time::sleep(duration * kill / KILLS).await;
        child.kill().await.unwrap();
        unfinished += u32::from(data.join("secrets.next").exists());
        // Sometimes a venue finishes what was begun, at other times the next rotation does.
        if kill % 4 == 0 {
            let venue = Process::start(&binary(), &data, &[]).await;
            check_secrets(&venue).await;
            venue.kill().await;
        }
    }
    assert!(unfinished > 0, "no rotation was interrupted");
    println!("a rotation took {duration:?}; {unfinished} of {KILLS} were interrupted in between");
    rotate(&data).await;
    let venue = Process::start(&binary(), &data, &[]).await;
    check_secrets(&venue).await;
    check_jobs(&venue, &planted).await;
    venue.kill().await;
}

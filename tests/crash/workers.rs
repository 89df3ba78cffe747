//! Workers and venues are killed while workers hold jobs.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use catena_tests::TIMEOUT;
use catena_tests::process::Process;
use catena_tests::site::{Client, id_of};
use serde_json::{Value as Json, json};
use tokio::process::Command;

use super::binary;

/// The lease of workers in these tests, in seconds.
const LEASE: u64 = 2;

/// A venue whose workers have a short lease.
async fn start(folder: &Path) -> Process {
    let settings = format!("[limits]\nworker_lease = \"{LEASE}s\"\n");
    std::fs::write(folder.join("catena.toml"), settings).unwrap();
    Process::start(&binary(), &folder.join("data"), &[]).await
}

async fn define(client: &Client) {
    let body = r#"{"name":"Mail","operation":{"adapter":"worker","queue":"mail"}}"#;
    let request = client.request("PUT", "/api/v1/operations/mail").body(body.as_bytes());
    client.ask(request).await.expect(200);
}

/// Claims jobs until there are so many.
async fn claim(client: &Client, worker: &str, count: usize) -> Vec<Json> {
    let mut jobs = Vec::new();
    let claiming = async {
        while jobs.len() < count {
            let body = json!({"worker": worker, "queues": ["mail"], "max": count - jobs.len(), "waitMs": 500});
            let claimed = client.post("/worker/v1/claim", &body).await.expect(200).json();
            jobs.extend(claimed["jobs"].as_array().unwrap().iter().cloned());
        }
    };
    tokio::time::timeout(TIMEOUT, claiming).await.expect("jobs were expected");
    jobs
}

async fn end(client: &Client, job: &Json, output: Json) -> catena_tests::http::Reply {
    let path = format!("/worker/v1/jobs/{}/end", job["id"].as_str().unwrap());
    client.post(&path, &json!({"fence": job["fence"], "output": output})).await
}

#[tokio::test]
async fn the_job_of_a_killed_worker_is_claimed_again_and_its_late_result_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let venue = start(folder.path()).await;
    let client = Client::anonymous(venue.address);
    define(&client).await;
    // The program ends by itself when its worker is gone.
    let program = "while kill -0 $PPID; do sleep 0.05; done";
    let mut worker = Command::new(binary())
        .args(["work", "mail", "--", "sh", "-c", program])
        .env("CATENA_VENUE", format!("http://{}", venue.address))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let id = id_of(&client.invoke("o/mail", json!(1)).await);
    client.until(&id, "STARTED").await;
    worker.kill().await.unwrap();
    let killed = tokio::time::Instant::now();
    let again = claim(&client, "other", 1).await.remove(0);
    let took = killed.elapsed();
    println!("claimed again after {took:?}; the lease is {LEASE} s");
    // A second more than the lease, and what a busy machine may take.
    assert!(took < Duration::from_secs(LEASE + 10), "{took:?}");
    assert_eq!(
        (&again["id"], &again["attempt"], &again["fence"]),
        (&json!(id), &json!(2), &json!(2))
    );
    let late = json!({"id": id, "fence": 1});
    let refused = end(&client, &late, json!("late")).await.expect(409).json();
    assert_eq!(refused["code"], "fenced");
    end(&client, &again, json!("in time")).await.expect(200);
    assert_eq!(client.job(&id).await["output"], "in time");
    client.history(&id).await.verify();
    venue.kill().await;
}

#[tokio::test]
async fn a_venue_that_is_killed_with_100_leased_jobs_loses_no_attempt() {
    const JOBS: usize = 100;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let venue = Process::start(&binary(), &data, &[]).await;
    let client = Client::anonymous(venue.address);
    define(&client).await;
    for number in 0..JOBS {
        client.invoke("o/mail", json!(number)).await;
    }
    let held = claim(&client, "w1", JOBS).await;
    venue.kill().await;
    let venue = Process::start(&binary(), &data, &[]).await;
    let client = Client::anonymous(venue.address);
    for job in &held {
        end(&client, job, job["input"].clone()).await.expect(200);
    }
    for job in &held {
        let id = job["id"].as_str().unwrap();
        let ended = client.job(id).await;
        assert_eq!((&ended["status"], &ended["output"]), (&json!("COMPLETE"), &job["input"]));
        let chain = client.history(id).await;
        chain.verify();
        assert_eq!((chain.len(), chain.endings()), (3, 1), "the kill is not in the chain");
    }
    venue.kill().await;
}

#[tokio::test]
async fn what_was_being_sent_when_the_venue_was_killed_is_sent_again() {
    let target = catena_tests::target::Target::start().await;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let options = ["--allow-host".to_owned(), target.address.to_string()];
    let venue = Process::start(&binary(), &data, &options).await;
    let client = Client::anonymous(venue.address);
    let operation = json!({"adapter": "worker", "url": target.url("/hold/mail")});
    let body = json!({"name": "Mail", "operation": operation}).to_string();
    let request = client.request("PUT", "/api/v1/operations/mail").body(body.as_bytes());
    client.ask(request).await.expect(200);
    let id = id_of(&client.invoke("o/mail", json!(1)).await);
    target.arrived("/hold/mail").await;
    venue.kill().await;
    target.open();
    let venue = Process::start(&binary(), &data, &options).await;
    let client = Client::anonymous(venue.address);
    let ended = client.until(&id, "COMPLETE").await;
    assert_eq!((&ended["output"], &ended["attempt"]), (&json!("ok"), &json!(2)));
    assert_eq!(target.count("/hold/mail"), 2);
    client.history(&id).await.verify();
    venue.kill().await;
}

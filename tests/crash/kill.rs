//! The venue is killed with SIGKILL under load, at random moments, and loses nothing acknowledged.
//!
//! `CATENA_CRASH_ROUNDS`, `CATENA_CRASH_SEED` and `CATENA_CRASH_CLIENTS` set the length, the seed and
//! the load of the run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "agents.rs"]
mod agents;
#[path = "authority.rs"]
mod authority;
#[path = "executors.rs"]
mod executors;
#[path = "rotation.rs"]
mod rotation;
#[path = "workers.rs"]
mod workers;

use std::path::PathBuf;

use catena_auth::KeyPair;
use catena_tests::crash::{Plan, run};
use catena_tests::process::Process;
use catena_tests::site::{Client, token};
use serde_json::json;

/// A client of a venue with an identity of its own.
async fn caller(venue: &Process, seed: u8) -> Client {
    let anonymous = Client::anonymous(venue.address);
    let document = anonymous.get("/.well-known/did.json").await.json();
    let key = KeyPair::from_seed(&[seed; 32]);
    let token = token(&key, &[("aud", document["id"].as_str().unwrap().into())]);
    Client::with_token(venue.address, &token)
}

fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_catena").into()
}

#[expect(clippy::disallowed_methods, reason = "the environment may set the length of this test")]
fn set(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_happens_twice() {
    let plan = Plan {
        binary: binary(),
        rounds: set("CATENA_CRASH_ROUNDS", 5),
        clients: set("CATENA_CRASH_CLIENTS", 6),
        seed: set("CATENA_CRASH_SEED", 20_261_116),
    };
    println!("{plan:?}");
    let summary = run(&plan).await;
    println!("{summary:#?}");
    assert!(summary.jobs as u64 > plan.rounds * plan.clients, "there was no load: {summary:?}");
    assert!(summary.kills >= plan.rounds);
}

#[tokio::test]
async fn a_venue_that_gets_sigterm_ends_within_five_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let venue = Process::start(&binary(), &data, &[]).await;
    let client = Client::anonymous(venue.address);
    let running = client.invoked("test:never", json!({}), "STARTED").await;
    let done = client.invoked("test:echo", json!({"a": 1}), "COMPLETE").await;
    let mut events = client.follow(&running).await;
    events.next().await.unwrap();
    let begun = tokio::time::Instant::now();
    let (status, rest) = tokio::join!(venue.terminate(), events.rest());
    assert!(status.success(), "{status}");
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    assert!(rest.is_empty(), "the stream ends without an ending of the job: {rest:?}");
    let venue = Process::start(&binary(), &data, &[]).await;
    let client = Client::anonymous(venue.address);
    assert_eq!(client.job(&done).await["output"], json!({"a": 1}));
    let job = client.until(&running, "STARTED").await;
    let chain = client.history(&running).await;
    assert_eq!(chain.last()["note"]["kind"], "recovered", "{job}");
    chain.verify();
    venue.kill().await;
}

/// The number of jobs with this operation.
async fn count(client: &Client, op: &str) -> u64 {
    let path = format!("/api/v1/jobs?op={op}&limit=0");
    client.get(&path).await.expect(200).json()["total"].as_u64().unwrap()
}

#[tokio::test]
async fn every_scheduled_run_is_created_once_however_often_the_venue_is_killed() {
    const SCHEDULES: u64 = 24;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let venue = Process::start(&binary(), &data, &[]).await;
    let client = Client::anonymous(venue.address);
    // They are due in the moments at which the venue is killed and started again.
    for number in 0..SCHEDULES {
        let input = json!({"operation": "test:random", "input": {"length": 1},
            "after": 200 + 100 * number});
        let body = json!({"operation": "scheduler:schedule", "input": input});
        client.post("/api/v1/run", &body).await.expect(200);
    }
    let mut venue = Some(venue);
    for kill in 0..5 {
        tokio::time::sleep(std::time::Duration::from_millis(150 + 70 * kill)).await;
        venue.take().unwrap().kill().await;
        venue = Some(Process::start(&binary(), &data, &[]).await);
    }
    let venue = venue.unwrap();
    let client = Client::anonymous(venue.address);
    let list = json!({"operation": "scheduler:list", "input": {}});
    let done = async {
        loop {
            let listed = client.post("/api/v1/run", &list).await.expect(200).json();
            if listed["events"].as_array().unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    // A mark of a process that was killed ends after ten seconds.
    tokio::time::timeout(2 * catena_tests::TIMEOUT, done).await.unwrap();
    assert_eq!(count(&client, "test:random").await, SCHEDULES);
    venue.kill().await;
}

#[tokio::test]
async fn an_action_on_many_jobs_continues_after_a_kill_and_does_nothing_twice() {
    const JOBS: u64 = 500;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let venue = Process::start(&binary(), &data, &[]).await;
    let client = Client::anonymous(venue.address);
    for _ in 0..JOBS {
        client.invoke("test:echo", json!({})).await;
    }
    let input = json!({"filter": {"op": "test:echo"}, "action": "rerun", "expected": JOBS});
    let action = client.invoke("jobs:control", input).await["id"].as_str().unwrap().to_owned();
    while count(&client, "test:echo").await < JOBS + 50 {
        tokio::task::yield_now().await;
    }
    venue.kill().await;
    let venue = Process::start(&binary(), &data, &[]).await;
    let client = Client::anonymous(venue.address);
    let ended = client.ended(&action).await;
    assert_eq!(ended["status"], "COMPLETE", "{ended}");
    assert_eq!(ended["output"]["changed"], JOBS, "{ended}");
    assert_eq!(count(&client, "test:echo").await, 2 * JOBS, "each was rerun once");
    client.history(&action).await.verify();
    venue.kill().await;
}

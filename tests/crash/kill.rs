//! The venue is killed with SIGKILL under load, at random moments, and loses nothing acknowledged.
//!
//! `CATENA_CRASH_ROUNDS`, `CATENA_CRASH_SEED` and `CATENA_CRASH_CLIENTS` set the length, the seed and
//! the load of the run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::path::PathBuf;

use catena_tests::crash::{Plan, run};
use catena_tests::process::Process;
use catena_tests::site::Client;
use serde_json::json;

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

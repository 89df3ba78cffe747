//! Two venues in processes of their own, of which one runs steps of the other's orchestrations. They
//! are killed with SIGKILL in turn, and what was begun is done, once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::net::SocketAddr;
use std::path::PathBuf;

use catena_tests::process::Process;
use catena_tests::site::{Client, id_of};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_catena").into()
}

/// A venue that keeps its address and its data from life to life.
struct Home {
    folder: TempDir,
    process: Option<Process>,
    address: SocketAddr,
    more: Vec<String>,
}

impl Home {
    async fn open(more: &[String]) -> Home {
        let (folder, more) = (tempfile::tempdir().unwrap(), more.to_vec());
        let process = Process::start(&binary(), &folder.path().join("data"), &more).await;
        Home { folder, address: process.address, process: Some(process), more }
    }

    async fn kill(&mut self) {
        self.process.take().unwrap().kill().await;
    }

    async fn revive(&mut self) {
        let data = self.folder.path().join("data");
        self.process = Some(Process::start_at(self.address, &binary(), &data, &self.more).await);
    }

    async fn kill_and_revive(&mut self) {
        self.kill().await;
        self.revive().await;
    }

    fn client(&self) -> Client {
        Client::anonymous(self.address)
    }
}

/// The venue whose orchestrations they are, and the one that runs their steps.
async fn homes() -> (Home, Home) {
    let there = Home::open(&[]).await;
    let venue = format!("http://{}", there.address);
    (Home::open(&["--allow-venue".to_owned(), venue]).await, there)
}

/// Begins an orchestration of one step over there and one here that needs it.
async fn begin(here: &Home, there: &Home, op: &str, input: Json, after: Json) -> String {
    let client = here.client();
    let steps = json!([
        {"op": op, "venue": format!("http://{}", there.address), "input": ["const", input]},
        {"op": "test:delay", "input": after},
    ]);
    let metadata = json!({"operation": {"adapter": "orchestrator", "steps": steps, "result": [1]}});
    let operation = client.post("/api/v1/assets", &metadata).await.expect(201).json();
    id_of(&client.invoke(operation.as_str().unwrap(), json!({})).await)
}

fn then(delay: u64) -> Json {
    json!({"delay": ["const", delay], "input": [0]})
}

#[tokio::test]
async fn both_are_killed_in_turn_and_the_step_runs_once() {
    let (mut here, mut there) = homes().await;
    let input = json!({"delay": 1_500, "input": "far"});
    let id = begin(&here, &there, "test:delay", input, then(1)).await;
    // At once, before anybody can know whether the beginning was heard.
    here.kill_and_revive().await;
    let job = here.client().until_that(&id, |job| job["steps"][0]["id"].is_string()).await;
    there.kill_and_revive().await;
    here.kill().await;
    there.kill_and_revive().await;
    here.revive().await;
    let done = here.client().ended(&id).await;
    assert_eq!((&done["status"], &done["output"]), (&"COMPLETE".into(), &"far".into()), "{done}");
    assert_eq!(done["steps"][0]["id"], job["steps"][0]["id"], "the same job all the time");
    assert_eq!(done["steps"][0]["output"], "far");
    assert_eq!(there.client().job_count().await, 1, "it was begun once");
    let far = there.client().history(done["steps"][0]["id"].as_str().unwrap()).await;
    far.verify();
    assert_eq!(done["steps"][0]["head"], far.id(far.len() - 1));
    here.client().history(&id).await.verify();
}

#[tokio::test]
async fn a_venue_that_is_gone_for_good_is_not_missed_after_its_step_has_ended() {
    let (mut here, mut there) = homes().await;
    let input = json!({"delay": 10, "input": {"far": true}});
    let id = begin(&here, &there, "test:delay", input, then(1_500)).await;
    here.client().until_that(&id, |job| job["steps"][0]["status"] == "COMPLETE").await;
    there.kill().await;
    here.kill_and_revive().await;
    let done = here.client().ended(&id).await;
    assert_eq!((&done["status"], &done["output"]["far"]), (&"COMPLETE".into(), &true.into()));
    assert_eq!(done["steps"][0]["output"]["far"], true);
}

#[tokio::test]
async fn a_message_is_taken_once_whoever_is_killed() {
    let (mut here, mut there) = homes().await;
    let id = begin(&here, &there, "test:chat", json!({}), then(1)).await;
    here.client().until(&id, "INPUT_REQUIRED").await;
    let hello = json!({"content": "hello", "messageId": "m-1"});
    here.client().send(&id, &hello).await.expect(202);
    // Accepted here; perhaps on its way, perhaps there.
    here.kill_and_revive().await;
    let heard =
        |job: &Json| job["status"] == "INPUT_REQUIRED" && !job["steps"][0]["output"].is_null();
    let job = here.client().until_that(&id, heard).await;
    assert!(job["steps"][0]["output"].to_string().contains("hello"), "{job}");
    // One that comes while the other venue is down waits for it.
    there.kill().await;
    let done = json!({"content": "done", "messageId": "m-2"});
    here.client().send(&id, &done).await.expect(202);
    here.kill_and_revive().await;
    there.revive().await;
    let job = here.client().ended(&id).await;
    assert_eq!(job["status"], "COMPLETE", "{job}");
    for (client, job) in
        [(here.client(), id.as_str()), (there.client(), job["steps"][0]["id"].as_str().unwrap())]
    {
        let chain = client.history(job).await;
        chain.verify();
        assert_eq!(chain.triggers(), ["m-1", "m-2"]);
    }
}

#[tokio::test]
async fn what_was_cancelled_here_is_cancelled_there_though_nobody_could_say_so_at_first() {
    let (mut here, mut there) = homes().await;
    let id = begin(&here, &there, "test:never", json!({}), then(1)).await;
    let job = here.client().until_that(&id, |job| job["steps"][0]["id"].is_string()).await;
    let far = job["steps"][0]["id"].as_str().unwrap();
    there.kill().await;
    here.client().control(&id, "cancel").await.expect(200);
    here.kill().await;
    there.revive().await;
    assert_eq!(there.client().until(far, "STARTED").await["status"], "STARTED");
    here.revive().await;
    there.client().until(far, "CANCELLED").await;
    let told = here.client().until_that(&id, |job| job["steps"][0]["status"] == "CANCELLED").await;
    assert!(told["steps"][0]["asOf"].is_i64(), "{told}");
}

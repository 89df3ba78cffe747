//! Two venues in separate processes, one of which runs steps of the other's orchestrations. They are
//! killed with SIGKILL in turn, and every step is executed exactly once.
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

/// A venue that keeps its address and its data across restarts.
struct RestartableVenue {
    folder: TempDir,
    process: Option<Process>,
    address: SocketAddr,
    more: Vec<String>,
}

impl RestartableVenue {
    async fn open(more: &[String]) -> RestartableVenue {
        let folder = tempfile::tempdir().unwrap();
        let more = more.to_vec();
        let process = Process::start(&binary(), &folder.path().join("data"), &more).await;
        RestartableVenue { folder, address: process.address, process: Some(process), more }
    }

    async fn kill(&mut self) {
        self.process.take().unwrap().kill().await;
    }

    async fn restart(&mut self) {
        let data = self.folder.path().join("data");
        self.process = Some(Process::start_at(self.address, &binary(), &data, &self.more).await);
    }

    async fn kill_and_restart(&mut self) {
        self.kill().await;
        self.restart().await;
    }

    fn client(&self) -> Client {
        Client::anonymous(self.address)
    }
}

/// The local venue, which owns the orchestrations, and the remote one, which runs their steps.
async fn venues() -> (RestartableVenue, RestartableVenue) {
    let remote = RestartableVenue::open(&[]).await;
    let venue = format!("http://{}", remote.address);
    (RestartableVenue::open(&["--allow-venue".to_owned(), venue]).await, remote)
}

/// Starts an orchestration of one remote step and one local step that depends on it.
async fn begin(
    local: &RestartableVenue,
    remote: &RestartableVenue,
    op: &str,
    input: Json,
    after: Json,
) -> String {
    let client = local.client();
    let steps = json!([
        {"op": op, "venue": format!("http://{}", remote.address), "input": ["const", input]},
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
    let (mut local, mut remote) = venues().await;
    let input = json!({"delay": 1_500, "input": "far"});
    let id = begin(&local, &remote, "test:delay", input, then(1)).await;
    // Immediately, before the local venue can know whether the start was received.
    local.kill_and_restart().await;
    let job = local.client().until_that(&id, |job| job["steps"][0]["id"].is_string()).await;
    remote.kill_and_restart().await;
    local.kill().await;
    remote.kill_and_restart().await;
    local.restart().await;
    let done = local.client().ended(&id).await;
    assert_eq!((&done["status"], &done["output"]), (&"COMPLETE".into(), &"far".into()), "{done}");
    assert_eq!(done["steps"][0]["id"], job["steps"][0]["id"], "the same job all the time");
    assert_eq!(done["steps"][0]["output"], "far");
    assert_eq!(remote.client().job_count().await, 1, "it was started once");
    let far = remote.client().history(done["steps"][0]["id"].as_str().unwrap()).await;
    far.verify();
    assert_eq!(done["steps"][0]["head"], far.id(far.len() - 1));
    local.client().history(&id).await.verify();
}

#[tokio::test]
async fn a_venue_that_is_gone_for_good_is_not_missed_after_its_step_has_ended() {
    let (mut local, mut remote) = venues().await;
    let input = json!({"delay": 10, "input": {"far": true}});
    let id = begin(&local, &remote, "test:delay", input, then(1_500)).await;
    local.client().until_that(&id, |job| job["steps"][0]["status"] == "COMPLETE").await;
    remote.kill().await;
    local.kill_and_restart().await;
    let done = local.client().ended(&id).await;
    assert_eq!((&done["status"], &done["output"]["far"]), (&"COMPLETE".into(), &true.into()));
    assert_eq!(done["steps"][0]["output"]["far"], true);
}

#[tokio::test]
async fn a_message_is_delivered_once_whichever_venue_is_killed() {
    let (mut local, mut remote) = venues().await;
    let id = begin(&local, &remote, "test:chat", json!({}), then(1)).await;
    local.client().until(&id, "INPUT_REQUIRED").await;
    let hello = json!({"content": "hello", "messageId": "m-1"});
    local.client().send(&id, &hello).await.expect(202);
    // Accepted by the local venue; whether the remote one has it is unknown.
    local.kill_and_restart().await;
    let heard =
        |job: &Json| job["status"] == "INPUT_REQUIRED" && !job["steps"][0]["output"].is_null();
    let job = local.client().until_that(&id, heard).await;
    assert!(job["steps"][0]["output"].to_string().contains("hello"), "{job}");
    // A message that is sent while the remote venue is down waits for it.
    remote.kill().await;
    let done = json!({"content": "done", "messageId": "m-2"});
    local.client().send(&id, &done).await.expect(202);
    local.kill_and_restart().await;
    remote.restart().await;
    let job = local.client().ended(&id).await;
    assert_eq!(job["status"], "COMPLETE", "{job}");
    for (client, job) in
        [(local.client(), id.as_str()), (remote.client(), job["steps"][0]["id"].as_str().unwrap())]
    {
        let chain = client.history(job).await;
        chain.verify();
        assert_eq!(chain.triggers(), ["m-1", "m-2"]);
    }
}

#[tokio::test]
async fn a_cancel_reaches_the_remote_job_even_if_its_venue_was_down_at_first() {
    let (mut local, mut remote) = venues().await;
    let id = begin(&local, &remote, "test:never", json!({}), then(1)).await;
    let job = local.client().until_that(&id, |job| job["steps"][0]["id"].is_string()).await;
    let far = job["steps"][0]["id"].as_str().unwrap();
    remote.kill().await;
    local.client().control(&id, "cancel").await.expect(200);
    local.kill().await;
    remote.restart().await;
    assert_eq!(remote.client().until(far, "STARTED").await["status"], "STARTED");
    local.restart().await;
    remote.client().until(far, "CANCELLED").await;
    let cancelled =
        local.client().until_that(&id, |job| job["steps"][0]["status"] == "CANCELLED").await;
    assert!(cancelled["steps"][0]["asOf"].is_i64(), "{cancelled}");
}

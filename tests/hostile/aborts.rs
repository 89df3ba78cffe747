//! Work that aborts the process is found and paused, and nobody else's work fails because of it.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use catena_tests::TIMEOUT;
use catena_tests::http::{Connection, Reply};
use catena_tests::process::{FREE, Process};
use catena_tests::site::{Client, id_of};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::{Victim, limited_binary};

/// Starts of the venue after which it must have found the job.
const STARTS: usize = 4;

/// Sends a request. `None` if the venue does not answer.
async fn try_ask(client: &Client, method: &str, path: &str, body: Option<&Json>) -> Option<Reply> {
    let mut request = client.request(method, path).header("connection", "close");
    if let Some(body) = body {
        request = request.json(body);
    }
    let asking = async { Connection::open(client.address).await?.ask(&request).await };
    tokio::time::timeout(TIMEOUT, asking).await.unwrap().ok()
}

impl Victim {
    /// Waits until the venue has ended, or until the job is paused.
    async fn until_paused_or_ended(&mut self, job: Option<&str>) -> Option<Json> {
        let polling = async {
            loop {
                if !self.process.as_mut().unwrap().is_running() {
                    return None;
                }
                if let Some(job) = job {
                    let path = format!("/api/v1/jobs/{job}");
                    let reply = try_ask(&self.attacker, "GET", &path, None).await;
                    let job = reply.filter(|reply| reply.status() == 200).map(|reply| reply.json());
                    if let Some(job) = job.filter(|job| job["status"] == "PAUSED") {
                        return Some(job);
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, polling).await.unwrap()
    }

    /// Starts the venue again. Returns false if it ends before it accepts requests.
    async fn try_start_again(&mut self) -> bool {
        let binary = limited_binary(self.folder.path(), "");
        let data = self.folder.path().join("data");
        let Ok(process) = Process::try_start(FREE, &binary, &data, &[]).await else { return false };
        self.attacker.address = process.address;
        self.other.address = process.address;
        self.process = Some(process);
        true
    }
}

/// An operation that aborts the process, or `None` if this binary has none because it is optimised.
async fn aborting(victim: &Victim, operation: &str) -> Option<String> {
    let listed = victim.attacker.get(&format!("/api/v1/operations/{operation}")).await;
    (listed.status() == 200).then(|| operation.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_aborts_the_process_is_paused_and_others_go_on() {
    for operation in ["abort:now", "abort:overflow", "abort:kill"] {
        let mut victim = Victim::start().await;
        let Some(operation) = aborting(&victim, operation).await else { return };
        let delay = json!({"delay": 600_000});
        let bystander = id_of(&victim.attacker.invoke("test:delay", delay).await);
        let body = json!({"operation": operation, "input": {}});
        try_ask(&victim.attacker, "POST", "/api/v1/invoke", Some(&body)).await;
        assert_eq!(victim.until_paused_or_ended(None).await, None);

        let mut starts = 0;
        let paused = loop {
            starts += 1;
            assert!(starts <= STARTS, "{operation}: the venue did not find the job");
            if !victim.try_start_again().await {
                continue;
            }
            // It is the second of the two jobs.
            let path = "/api/v1/jobs?limit=2";
            let Some(listed) = try_ask(&victim.attacker, "GET", path, None).await else {
                assert_eq!(victim.until_paused_or_ended(None).await, None);
                continue;
            };
            let job = listed.json()["items"][1].as_str().map(str::to_owned);
            if let Some(job) = victim.until_paused_or_ended(job.as_deref()).await {
                break job;
            }
        };
        let message = paused["message"].as_str().unwrap_or_default();
        assert_eq!(paused["op"], operation.as_str());
        assert!(message.contains("aborted 3 times"), "{paused}");
        assert_eq!(victim.attacker.job(&bystander).await["status"], "STARTED");
        victim.echo().await;

        // It stays paused, and a resume is the decision of a person: the job runs again, and one more abort
        // pauses it again.
        victim.restart().await;
        let job = id_of(&paused);
        assert_eq!(victim.attacker.job(&job).await["status"], "PAUSED");
        let path = format!("/api/v1/jobs/{job}/resume");
        try_ask(&victim.attacker, "PUT", &path, None).await;
        assert_eq!(victim.until_paused_or_ended(None).await, None);
        assert!(victim.try_start_again().await);
        assert!(victim.until_paused_or_ended(Some(&job)).await.is_some());
        victim.attacker.control(&job, "cancel").await.expect(200);
        assert_eq!(victim.attacker.job(&bystander).await["status"], "STARTED");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_runs_alone_and_others_are_answered_meanwhile() {
    let mut victim = Victim::start().await;
    let step = json!({"op": "test:echo", "input": ["const", 1]});
    let definition = json!({"name": "w", "type": "orchestration",
        "operation": {"adapter": "orchestrator", "steps": [step], "result": ["const", 1]}});
    let workflow = victim.attacker.post("/api/v1/assets", &definition).await.expect(201).json();
    let workflow = workflow.as_str().unwrap().to_owned();
    let suspect = id_of(&victim.attacker.invoke("test:never", json!({})).await);
    let bystander = id_of(&victim.attacker.invoke("test:never", json!({})).await);
    victim.process.take().unwrap().kill().await;
    // As if two processes had died with it before.
    let file = victim.folder.path().join("data/suspects");
    std::fs::write(file, format!("{suspect} 2\n")).unwrap();
    assert!(victim.try_start_again().await);
    let phase = async |job: &str| {
        let reply = victim.attacker.get(&format!("/canvas/v1/jobs/{job}")).await;
        reply.expect(200).json()["status"].clone()
    };
    let started = async {
        while phase(&suspect).await != "processing" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, started).await.unwrap();
    // Nothing else starts: what was running, a new task, a new workflow.
    let task = id_of(&victim.attacker.invoke("test:delay", json!({"delay": 1})).await);
    let workflow = id_of(&victim.attacker.invoke(&workflow, json!({})).await);
    for _ in 0..5 {
        victim.under("a suspect that runs alone", victim.attacker.get("/livez")).await.expect(200);
    }
    assert_eq!(phase(&bystander).await, "pending");
    assert_eq!(victim.attacker.job(&task).await["status"], "PENDING");
    assert_eq!(victim.attacker.job(&workflow).await["status"], "PENDING");
    victim.attacker.control(&bystander, "pause").await.expect(200);
    victim.attacker.control(&bystander, "cancel").await.expect(200);
    // It has run for long enough.
    victim.attacker.until(&task, "COMPLETE").await;
    victim.attacker.until(&workflow, "COMPLETE").await;
    assert_eq!(victim.attacker.job(&suspect).await["status"], "STARTED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_from_outside_makes_nobody_a_suspect() {
    let mut victim = Victim::start().await;
    let busy = json!({"totalItems": 1_000_000, "itemMs": 1});
    let job = id_of(&victim.attacker.invoke("test:progress", busy).await);
    victim.process.take().unwrap().kill().await;
    assert!(victim.try_start_again().await);
    let task = id_of(&victim.attacker.invoke("test:delay", json!({"delay": 1})).await);
    victim.attacker.until(&task, "COMPLETE").await;
    assert_eq!(victim.attacker.job(&job).await["status"], "STARTED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fatal_signal_ends_the_process_and_makes_nobody_a_suspect() {
    let mut victim = Victim::start().await;
    let never = id_of(&victim.attacker.invoke("test:never", json!({})).await);
    for signal in [Signal::ABORT, Signal::SEGV, Signal::BUS] {
        let status = victim.process.take().unwrap().end_by(signal).await;
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
        assert!(victim.try_start_again().await);
        victim.echo().await;
    }
    // Three aborts that it did not cause do not count as interruptions.
    assert_eq!(victim.attacker.job(&never).await["status"], "STARTED");
}

//! Runs as jobs: what their control, their restart and their order do to an agent.

use catena_tests::site::{Site, id_of};
use serde_json::json;

use super::{deliver, ended, endless_run, ran, record, slow, status, tally};

/// "Set status to RUNNING, write the agent record." Messages that arrive during a run stay for the next.
#[tokio::test]
async fn messages_during_a_run_stay_in_the_inbox() {
    let site = Site::start().await;
    slow(&site, "a").await;
    deliver(&site, "a", json!({"delay": 2_000})).await;
    let run = id_of(&site.invoke("agent:run", json!({"agentId": "a"})).await);
    site.until(&run, "STARTED").await;
    deliver(&site, "a", json!("later")).await;
    let job = site.ended(&run).await;
    assert_eq!(job["status"], "COMPLETE", "{job}");
    assert_eq!(job["output"]["result"], json!({"seen": [{"delay": 2_000}]}));
    let record = record(&site, "a").await;
    assert_eq!(record["inbox"].as_array().unwrap().len(), 1);
    assert_eq!(record["inbox"][0]["content"], "later");
    site.history(&run).await.verify();
}

/// A run that is cancelled, times out or is deleted releases the agent and keeps everything.
#[tokio::test]
async fn the_end_of_a_run_releases_the_agent() {
    let site = Site::start().await;
    for (id, action) in [("a", "cancel"), ("b", "delete")] {
        slow(&site, id).await;
        let run = endless_run(&site, id).await;
        let before = record(&site, id).await;
        site.control(&run, action).await.expect(200);
        let after = record(&site, id).await;
        assert_eq!(after["status"], "SUSPENDED", "{action}");
        for name in ["state", "inbox", "timeline"] {
            assert_eq!(after[name], before[name], "{action} {name}");
        }
        ran(&site, "agent:resume", json!({"agentId": id})).await;
    }
    slow(&site, "c").await;
    deliver(&site, "c", json!({"delay": 3_600_000})).await;
    let body = json!({"operation": "agent:run", "input": {"agentId": "c"}, "timeoutMs": 200});
    let run = id_of(&site.post("/api/v1/invoke", &body).await.expect(201).json());
    assert_eq!(site.ended(&run).await["status"], "TIMEOUT");
    let after = record(&site, "c").await;
    assert_eq!(after["status"], "SUSPENDED");
    assert_eq!(after["inbox"].as_array().unwrap().len(), 1);
}

/// A run that is requested while another is in progress waits its turn, and holds no slot meanwhile.
#[tokio::test]
async fn runs_wait_for_their_turn() {
    let site = Site::with(|flags| flags.running = Some("2".to_owned())).await;
    slow(&site, "a").await;
    let run = endless_run(&site, "a").await;
    let mut waiting = Vec::new();
    for n in 0..5 {
        let input = json!({"agentId": "a", "input": n});
        waiting.push(id_of(&site.invoke("agent:request", input).await));
    }
    let info = site.get("/api/v1/agents/a").await.expect(200).json();
    assert_eq!(info["run"], run.as_str());
    // Nothing but the run and its transition occupies a slot.
    assert_eq!(ended(&site, "test:delay", json!({"delay": 1})).await["status"], "COMPLETE");
    for id in &waiting {
        assert_eq!(site.job(id).await["status"], "PENDING");
    }
    // One that waits can be cancelled; the others keep their order.
    site.control(&waiting[1], "cancel").await.expect(200);
    ran(&site, "agent:update", json!({"agentId": "a", "config": {"operation": "test:tally"}}))
        .await;
    site.control(&run, "cancel").await.expect(200);
    for id in [0, 2, 3, 4].map(|at: usize| &waiting[at]) {
        let job = site.ended(id).await;
        assert_eq!(job["status"], "FAILED", "the agent is suspended: {job}");
        assert_eq!(job["errorCode"], "agent_suspended");
    }
    assert_eq!(record(&site, "a").await["inbox"].as_array().unwrap().len(), 1);
}

/// Each request has a turn and a result of its own, in the order of arrival.
#[tokio::test]
async fn requests_are_answered_in_order() {
    let site = Site::start().await;
    slow(&site, "a").await;
    let first = json!({"agentId": "a", "input": {"delay": 2_000}});
    let first = id_of(&site.invoke("agent:request", first).await);
    site.until(&first, "STARTED").await;
    let mut more = Vec::new();
    for n in 0..3 {
        let input = json!({"agentId": "a", "input": n});
        let id = id_of(&site.invoke("agent:request", input).await);
        more.push(id);
    }
    for (n, id) in more.iter().enumerate() {
        let job = site.ended(id).await;
        assert_eq!(job["status"], "COMPLETE", "{job}");
        assert_eq!(job["output"]["output"], json!({"seen": [n]}));
        assert_eq!(job["output"]["id"], job["id"]);
    }
    let record = record(&site, "a").await;
    assert_eq!(record["state"], json!({"n": 4}));
    assert_eq!(record["timeline"].as_array().unwrap().len(), 4);
}

/// "Any non-terminal → TERMINATED: Explicit termination": the run and everyone who waits are answered.
#[tokio::test]
async fn terminating_a_running_agent_answers_all_callers() {
    let site = Site::start().await;
    slow(&site, "a").await;
    let run = endless_run(&site, "a").await;
    let waiting = id_of(&site.invoke("agent:run", json!({"agentId": "a"})).await);
    let deleted = ran(&site, "agent:delete", json!({"agentId": "a"})).await;
    assert_eq!(deleted["status"], "TERMINATED");
    for id in [&run, &waiting] {
        let job = site.job(id).await;
        assert_eq!(job["status"], "CANCELLED", "in the same commit: {job}");
        assert!(job["error"].as_str().unwrap().contains("was terminated"), "{job}");
    }
    let transition = site.history(&run).await;
    let note = (0..transition.len()).find_map(|at| {
        transition.record(at)["note"]["started"][0]["job"].as_str().map(str::to_owned)
    });
    assert_eq!(site.job(&note.unwrap()).await["status"], "CANCELLED");
    let job = ended(&site, "agent:run", json!({"agentId": "a"})).await;
    let expected = (&json!("FAILED"), &json!("agent_terminated"));
    assert_eq!((&job["status"], &job["errorCode"]), expected);
    let removed = ran(&site, "agent:delete", json!({"agentId": "a", "remove": true})).await;
    assert_eq!(removed["removed"], true);
    site.get("/api/v1/agents/a").await.expect_error(404, "agent_not_found");
}

/// Suspending a running agent cancels its run in the same commit.
#[tokio::test]
async fn suspending_a_running_agent_cancels_its_run() {
    let site = Site::start().await;
    slow(&site, "a").await;
    let run = endless_run(&site, "a").await;
    let suspended = ran(&site, "agent:suspend", json!({"agentId": "a"})).await;
    assert_eq!(suspended["status"], "SUSPENDED");
    assert_eq!(site.job(&run).await["status"], "CANCELLED");
    assert_eq!(record(&site, "a").await["inbox"].as_array().unwrap().len(), 1);
}

/// A run that is paused keeps the agent; resumed, it ends as it would have.
#[tokio::test]
async fn a_paused_run_continues() {
    let site = Site::start().await;
    slow(&site, "a").await;
    deliver(&site, "a", json!({"delay": 2_000})).await;
    let run = id_of(&site.invoke("agent:run", json!({"agentId": "a"})).await);
    site.until(&run, "STARTED").await;
    site.control(&run, "pause").await.expect(200);
    assert_eq!(status(&site, "a").await, "RUNNING");
    site.control(&run, "resume").await.expect(200);
    assert_eq!(site.ended(&run).await["status"], "COMPLETE");
    assert_eq!(record(&site, "a").await["state"], json!({"n": 1}));
}

/// "Recovery — handling agents left in RUNNING status after a venue restart": the run continues.
#[tokio::test]
async fn a_run_survives_a_restart() {
    let site = Site::with(|flags| flags.grace = Some("0s".to_owned())).await;
    slow(&site, "a").await;
    deliver(&site, "a", json!({"delay": 3_000})).await;
    let run = id_of(&site.invoke("agent:run", json!({"agentId": "a"})).await);
    site.until(&run, "STARTED").await;
    let waiting = id_of(&site.invoke("agent:request", json!({"agentId": "a", "input": 1})).await);
    let site = site.restarted().await;
    let job = site.ended(&run).await;
    assert_eq!(job["status"], "COMPLETE", "{job}");
    let job = site.ended(&waiting).await;
    assert_eq!(job["status"], "COMPLETE", "{job}");
    let record = record(&site, "a").await;
    assert_eq!(record["status"], "SLEEPING");
    assert_eq!(record["state"], json!({"n": 2}));
    assert_eq!(record["timeline"].as_array().unwrap().len(), 2);
    site.history(&run).await.verify();
}

/// Runs can be steps of an orchestration, which passes their results on.
#[tokio::test]
async fn a_step_can_be_a_request() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let definition = json!({"name": "Ask", "operation": {
        "adapter": "orchestrator",
        "steps": [
            {"op": "agent:request", "input": {"agentId": ["const", "a"], "input": ["const", 1], "wait": ["const", true]}},
            {"op": "agent:request", "input": {"agentId": ["const", "a"], "input": [0, "output", "seen", 0]}},
        ],
        "result": [1, "output"],
    }});
    let asset = site.post("/api/v1/assets", &definition).await.expect(201).json();
    let output = ran(&site, asset.as_str().unwrap(), json!({})).await;
    assert_eq!(output, json!({"seen": [1]}));
    assert_eq!(record(&site, "a").await["state"], json!({"n": 2}));
}

//! What COG-11 says about records, transitions of the status, transition functions and workspaces as a whole.

use std::collections::BTreeSet;

use catena_tests::site::{Client, Site};
use serde_json::{Value as Json, json};

use super::{deliver, ended, endless_run, ran, record, slow, status, tally};

/// "Every operation atomically replaces the agent record with a new timestamp." "`ts`: Timestamp of the last
/// write." "timestamps are monotonic and state only advances".
#[tokio::test]
async fn every_operation_writes_a_record_with_a_later_time() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let mut last = record(&site, "a").await["ts"].as_i64().unwrap();
    for (operation, more) in [
        ("agent:message", json!({"message": 1})),
        ("agent:message", json!({"message": 2})),
        ("agent:run", json!({})),
        ("agent:update", json!({"config": {"note": "x"}})),
        ("agent:suspend", json!({})),
        ("agent:resume", json!({})),
        ("agent:delete", json!({})),
    ] {
        let mut input = more;
        input["agentId"] = json!("a");
        ran(&site, operation, input).await;
        let ts = record(&site, "a").await["ts"].as_i64().unwrap();
        assert!(ts > last, "{operation}: {ts} after {last}");
        last = ts;
    }
}

/// Does something to an agent, as far as it is allowed.
async fn act(site: &Client, id: &str, action: &str) {
    let input = json!({"agentId": id});
    match action {
        "succeed" | "fail" | "run with an empty inbox" => {
            if action != "run with an empty inbox" {
                let message = json!({"agentId": id, "message": {"fail": action == "fail"}});
                ended(site, "agent:message", message).await;
            }
            // A run of an agent that runs already waits for its turn, which is not awaited here.
            let is_busy = status(site, id).await == "RUNNING";
            let run = site.invoke("agent:run", input).await;
            if !is_busy {
                site.ended(run["id"].as_str().unwrap()).await;
            }
        }
        "clear the error" => drop(ended(site, "agent:resume", input).await),
        "suspend" => drop(ended(site, "agent:suspend", input).await),
        "terminate" => drop(ended(site, "agent:delete", input).await),
        "create" => drop(ended(site, "agent:create", input).await),
        _ => {
            let message = json!({"agentId": id, "message": "hello"});
            ended(site, "agent:message", message).await;
        }
    }
}

/// "Status Transitions": each of the table, and no other. "(none) → SLEEPING: Agent created", "SLEEPING →
/// RUNNING: Run loop triggered with non-empty inbox", "RUNNING → SLEEPING: Transition function succeeds",
/// "RUNNING → SUSPENDED: Transition function fails", "SUSPENDED → SLEEPING: Error cleared (manual recovery)", "Any
/// non-terminal → TERMINATED: Explicit termination". An owner can suspend an agent, too.
#[tokio::test]
async fn an_agent_makes_these_transitions_and_no_others() {
    let site = Site::start().await;
    let actions = [
        "create",
        "message",
        "succeed",
        "fail",
        "run with an empty inbox",
        "clear the error",
        "suspend",
        "terminate",
    ];
    let mut seen = BTreeSet::new();
    for from in ["SLEEPING", "RUNNING", "SUSPENDED", "TERMINATED"] {
        for (number, action) in actions.into_iter().enumerate() {
            let id = format!("{from}-{number}");
            if from == "RUNNING" {
                slow(&site, &id).await;
                endless_run(&site, &id).await;
            } else {
                tally(&site, &id).await;
                let before = match from {
                    "SUSPENDED" => "fail",
                    "TERMINATED" => "terminate",
                    _ => "create",
                };
                act(&site, &id, before).await;
            }
            assert_eq!(status(&site, &id).await, from);
            act(&site, &id, action).await;
            let to = status(&site, &id).await.as_str().unwrap().to_owned();
            if to != from {
                seen.insert(format!("{from} {to} by {action}"));
            }
        }
    }
    // A turn passes through RUNNING, so success and failure of a sleeping agent are two transitions each.
    let allowed = [
        "RUNNING SUSPENDED by suspend",
        "RUNNING TERMINATED by terminate",
        "SLEEPING SUSPENDED by fail",
        "SLEEPING SUSPENDED by suspend",
        "SLEEPING TERMINATED by terminate",
        "SUSPENDED SLEEPING by clear the error",
        "SUSPENDED TERMINATED by terminate",
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), allowed);
}

/// "`state`: User-defined state. Opaque to the framework." "`state`: Null on first run." "The transition function
/// does not manage timestamps, status, timeline, or inbox".
#[tokio::test]
async fn a_state_is_whatever_the_transition_returns() {
    let site = Site::start().await;
    let definition = |state: Json| {
        json!({"name": "Constant", "type": "orchestration", "operation": {
            "adapter": "orchestrator",
            "steps": [{"op": "test:echo", "input": {"got": ["input"]}}],
            "result": {"state": ["const", state], "result": [0, "got"]}}})
    };
    let strange = [json!("text"), json!(17), json!([1, {"status": "RUNNING"}]), json!({"ts": 1})];
    for (number, state) in strange.into_iter().enumerate() {
        let id = format!("a{number}");
        let asset =
            site.post("/api/v1/assets", &definition(state.clone())).await.expect(201).json();
        let config = json!({"operation": asset});
        ran(&site, "agent:create", json!({"agentId": id, "config": config})).await;
        deliver(&site, &id, json!({"malformed": [null, {}]})).await;
        let output = ran(&site, "agent:run", json!({"agentId": id})).await;
        let got = output["result"].as_object().unwrap();
        let names: BTreeSet<&str> = got.keys().map(String::as_str).collect();
        assert_eq!(names, BTreeSet::from(["agent-id", "messages", "state"]), "{output}");
        assert_eq!((&got["agent-id"], &got["state"]), (&json!(id), &json!(null)));
        let record = record(&site, &id).await;
        assert_eq!((&record["state"], &record["status"]), (&state, &json!("SLEEPING")));
    }
}

/// "any level can be a local operation, a remote venue operation via federation, or a test mock".
#[tokio::test]
async fn a_transition_runs_on_another_venue() {
    let other = Site::start().await;
    let host = other.address.to_string();
    let site = Site::with(|flags| flags.allow_hosts = Some(host.clone())).await;
    let venue = format!("http://{host}");
    let definition = json!({"name": "Remote", "type": "orchestration", "operation": {
        "adapter": "orchestrator",
        "steps": [{"op": "test:tally", "venue": venue, "input": ["input"]}],
        "result": {"state": [0, "state"], "result": [0, "result"]}}});
    let asset = site.post("/api/v1/assets", &definition).await.expect(201).json();
    ran(&site, "agent:create", json!({"agentId": "a", "config": {"operation": asset}})).await;
    deliver(&site, "a", json!("hello")).await;
    let output = ran(&site, "agent:run", json!({"agentId": "a"})).await;
    assert_eq!(output["result"], json!({"seen": ["hello"]}), "{output}");
    assert_eq!(record(&site, "a").await["state"], json!({"n": 1}));
    assert_eq!(other.job_count().await, 1, "the other venue did the work");
}

/// "Apply timeouts to individual transition function invocations": "the agent is suspended, the inbox is
/// preserved, and the error is recorded. No timeline entry is written."
#[tokio::test]
async fn a_turn_that_takes_too_long_suspends_the_agent() {
    let site = Site::with(|flags| flags.execution = Some("300ms".to_owned())).await;
    slow(&site, "a").await;
    deliver(&site, "a", json!({"delay": 60_000})).await;
    let run = ended(&site, "agent:run", json!({"agentId": "a"})).await;
    assert!(["TIMEOUT", "FAILED"].contains(&run["status"].as_str().unwrap()), "{run}");
    let record = record(&site, "a").await;
    assert_eq!(record["status"], "SUSPENDED");
    assert!(record["error"].is_string(), "{record}");
    assert_eq!(record["inbox"].as_array().unwrap().len(), 1);
    assert_eq!(record["timeline"], json!([]));
}

/// "All namespaces are readable via covia:read, covia:list, and covia:slice. The /w/ and /o/ namespaces are writable
/// via covia:write, covia:delete, and covia:append." "Creates intermediate maps." "Creates vector if absent." "Paths
/// support mixed map/vector navigation — e.g. w/records/1/name".
#[tokio::test]
async fn a_workspace_is_written_read_and_described() {
    let site = Site::start().await;
    for (number, name) in ["ann", "ben", "cem"].into_iter().enumerate() {
        let value = json!({"name": name, "n": number});
        ran(&site, "covia:append", json!({"path": "w/deep/records", "value": value})).await;
    }
    let read =
        async |path: &str| ran(&site, "covia:read", json!({"path": path})).await["value"].clone();
    assert_eq!(read("w/deep/records/1/name").await, "ben");
    ran(&site, "covia:write", json!({"path": "w/deep/records/1/name", "value": "bea"})).await;
    assert_eq!(read("w/deep/records/1").await, json!({"name": "bea", "n": 1}));
    let slice = json!({"path": "w/deep/records", "offset": 1, "limit": 1});
    let slice = ran(&site, "covia:slice", slice).await;
    assert_eq!(slice["values"].as_array().map(Vec::len), Some(1), "{slice}");
    let list = ran(&site, "covia:list", json!({"path": "w/deep"})).await;
    assert_eq!((&list["count"], &list["keys"]), (&json!(1), &json!(["records"])), "{list}");
    ran(&site, "covia:delete", json!({"path": "w/deep/records"})).await;
    assert_eq!(read("w/deep/records").await, json!(null));
}

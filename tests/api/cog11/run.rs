//! The run loop, the timeline, and the contract of transition functions.

use catena_tests::log::Log;
use catena_tests::site::Site;
use serde_json::json;

use super::{deliver, ended, ran, record, status, tally};

/// "Update state from the returned value. Append a timeline entry (transition operation, starting state,
/// messages processed, returned result, start/end timestamps). Clear the inbox. Set status to SLEEPING."
#[tokio::test]
async fn a_run_updates_state_timeline_and_inbox() {
    let site = Site::start().await;
    tally(&site, "a").await;
    deliver(&site, "a", json!("one")).await;
    deliver(&site, "a", json!("two")).await;
    let inbox = record(&site, "a").await["inbox"].clone();
    let output = ran(&site, "agent:run", json!({"agentId": "a"})).await;
    assert_eq!(output["status"], "SLEEPING", "{output}");
    assert_eq!(output["result"], json!({"seen": ["one", "two"]}));
    let after = record(&site, "a").await;
    assert_eq!(after["status"], "SLEEPING");
    assert_eq!(after["state"], json!({"n": 2}));
    assert_eq!(after["inbox"], json!([]));
    let timeline = after["timeline"].as_array().unwrap();
    assert_eq!(timeline.len(), 1);
    let entry = &timeline[0];
    let mut names: Vec<_> = entry.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["end", "messages", "op", "result", "start", "state"]);
    assert_eq!(entry["op"], "test:tally");
    assert_eq!(entry["state"], json!(null), "Null on first run");
    assert_eq!(entry["messages"], inbox, "the messages as they were in the inbox");
    assert_eq!(entry["result"], json!({"seen": ["one", "two"]}));
    assert!(entry["start"].as_i64().unwrap() <= entry["end"].as_i64().unwrap());
    deliver(&site, "a", json!("three")).await;
    ran(&site, "agent:run", json!({"agentId": "a"})).await;
    let after = record(&site, "a").await;
    assert_eq!(after["state"], json!({"n": 3}));
    assert_eq!(after["timeline"][1]["state"], json!({"n": 2}), "the starting state");
    assert_eq!(after["timeline"][0], timeline[0], "append-only");
}

/// "If the inbox is empty, no-op."
#[tokio::test]
async fn a_run_without_messages_writes_nothing() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let before = record(&site, "a").await;
    let job = ended(&site, "agent:run", json!({"agentId": "a"})).await;
    assert_eq!(job["status"], "COMPLETE", "{job}");
    assert_eq!(record(&site, "a").await, before);
}

/// "Leave state and inbox unchanged. Set status to SUSPENDED, set error." "Timeline entries are only
/// written on success. On error, no timeline entry is created." "the same messages are available for
/// retry after the error is resolved and the agent is resumed."
#[tokio::test]
async fn a_failed_turn_suspends_the_agent_and_keeps_everything() {
    let site = Site::start().await;
    let config = json!({"operation": "test:tally"});
    let input = json!({"agentId": "a", "config": config, "state": {"n": 4}});
    ran(&site, "agent:create", input).await;
    deliver(&site, "a", json!({"fail": true})).await;
    let before = record(&site, "a").await;
    let job = ended(&site, "agent:run", json!({"agentId": "a"})).await;
    let expected = (&json!("FAILED"), &json!("transition_failed"));
    assert_eq!((&job["status"], &job["errorCode"]), expected, "{job}");
    let after = record(&site, "a").await;
    assert_eq!(after["status"], "SUSPENDED");
    assert!(after["error"].as_str().unwrap().contains("a message says that the turn fails"));
    for name in ["state", "inbox", "timeline", "config"] {
        assert_eq!(after[name], before[name], "{name}");
    }
    let job = ended(&site, "agent:run", json!({"agentId": "a"})).await;
    let expected = (&json!("FAILED"), &json!("agent_suspended"));
    assert_eq!((&job["status"], &job["errorCode"]), expected);
    let resumed = ran(&site, "agent:resume", json!({"agentId": "a"})).await;
    assert_eq!(resumed["status"], "SLEEPING");
    assert_eq!(record(&site, "a").await["error"], json!(null), "the error is cleared");
    let input = json!({"agentId": "a", "operation": "test:slowtally"});
    let job = ended(&site, "agent:run", input).await;
    assert_eq!(job["status"], "FAILED", "the same messages are tried again: {job}");
    assert_eq!(record(&site, "a").await["inbox"], before["inbox"]);
}

/// "The level 2 operation is specified by the caller when triggering the run loop."
#[tokio::test]
async fn the_caller_of_a_run_may_name_the_transition() {
    let site = Site::start().await;
    ran(&site, "agent:create", json!({"agentId": "a"})).await;
    deliver(&site, "a", json!(1)).await;
    let job = ended(&site, "agent:run", json!({"agentId": "a"})).await;
    assert_eq!((&job["status"], &job["errorCode"]), (&json!("FAILED"), &json!("no_transition")));
    assert_eq!(status(&site, "a").await, "SLEEPING", "the agent did not run");
    ran(&site, "agent:run", json!({"agentId": "a", "operation": "v/test/ops/tally"})).await;
    assert_eq!(record(&site, "a").await["timeline"][0]["op"], "v/test/ops/tally");
}

/// "The transition function is a standard Grid Operation": also an orchestration. Input `agent-id`,
/// `state`, `messages`; output `state`, `result`.
#[tokio::test]
async fn a_transition_can_be_an_orchestration() {
    let site = Site::start().await;
    let definition = json!({"name": "Transition", "operation": {
        "adapter": "orchestrator",
        "steps": [{"op": "test:echo", "input": {"id": ["input", "agent-id"]}}],
        "result": {"state": ["input", "messages"], "result": [0, "id"]},
    }});
    let asset = site.post("/api/v1/assets", &definition).await.expect(201).json();
    ran(&site, "agent:create", json!({"agentId": "a", "config": {"operation": asset}})).await;
    deliver(&site, "a", json!(7)).await;
    let output = ran(&site, "agent:run", json!({"agentId": "a"})).await;
    assert_eq!(output["result"], "a");
    assert_eq!(record(&site, "a").await["state"][0]["content"], 7);
}

/// "If it throws an unhandled exception, the framework treats this as a severe failure". So does a
/// transition that returns anything but `{state, result}`, or that does not exist.
#[tokio::test]
async fn a_transition_that_breaks_the_contract_fails_the_turn() {
    let site = Site::start().await;
    for (id, operation) in [("a", "test:echo"), ("b", "test:random"), ("c", "test:absent")] {
        ran(&site, "agent:create", json!({"agentId": id})).await;
        deliver(&site, id, json!(1)).await;
        let job = ended(&site, "agent:run", json!({"agentId": id, "operation": operation})).await;
        assert_eq!(job["status"], "FAILED", "{job}");
        assert_eq!(job["errorCode"], "transition_failed", "{job}");
        assert_eq!(status(&site, id).await, "SUSPENDED", "{operation}");
        assert_eq!(record(&site, id).await["timeline"], json!([]));
    }
}

/// A transition that returns no `state` leaves it unchanged.
#[tokio::test]
async fn a_turn_without_state_keeps_it() {
    let site = Site::start().await;
    let definition = json!({"name": "Keep", "operation": {
        "adapter": "orchestrator",
        "steps": [{"op": "test:echo", "input": ["const", {"result": 1}]}],
        "result": [0],
    }});
    let asset = site.post("/api/v1/assets", &definition).await.expect(201).json();
    let input = json!({"agentId": "a", "config": {"operation": asset}, "state": {"n": 9}});
    ran(&site, "agent:create", input).await;
    deliver(&site, "a", json!(7)).await;
    ran(&site, "agent:run", json!({"agentId": "a"})).await;
    assert_eq!(record(&site, "a").await["state"], json!({"n": 9}));
}

/// "Timeline size — to bound the storage cost of long-running agents": at the limit the agent is
/// suspended, and nothing is dropped.
#[tokio::test]
async fn a_full_timeline_suspends_the_agent() {
    let site = Site::start().await;
    let config = json!({"operation": "test:tally", "limits": {"timeline": 1}});
    ran(&site, "agent:create", json!({"agentId": "a", "config": config})).await;
    deliver(&site, "a", json!(1)).await;
    ran(&site, "agent:run", json!({"agentId": "a"})).await;
    deliver(&site, "a", json!(2)).await;
    let job = ended(&site, "agent:run", json!({"agentId": "a"})).await;
    assert_eq!((&job["status"], &job["errorCode"]), (&json!("FAILED"), &json!("timeline_full")));
    let record = record(&site, "a").await;
    assert_eq!(record["status"], "SUSPENDED");
    assert_eq!(record["timeline"].as_array().unwrap().len(), 1);
    assert_eq!(record["inbox"].as_array().unwrap().len(), 1);
}

/// "Track consecutive failures and escalate (e.g. terminate after N failures)"
#[tokio::test]
async fn consecutive_failures_are_counted() {
    let site = Site::start().await;
    let config = json!({"operation": "test:tally", "maxFailures": 2});
    ran(&site, "agent:create", json!({"agentId": "a", "config": config})).await;
    deliver(&site, "a", json!({"fail": true})).await;
    ended(&site, "agent:run", json!({"agentId": "a"})).await;
    ran(&site, "agent:resume", json!({"agentId": "a"})).await;
    ended(&site, "agent:run", json!({"agentId": "a"})).await;
    let job = ended(&site, "agent:resume", json!({"agentId": "a"})).await;
    assert_eq!(job["errorCode"], "too_many_failures", "{job}");
    assert_eq!(status(&site, "a").await, "SUSPENDED");
    ran(&site, "agent:resume", json!({"agentId": "a", "force": true})).await;
    assert_eq!(status(&site, "a").await, "SLEEPING");

    let config = json!({"operation": "test:tally", "maxFailures": 1, "onFailures": "terminate"});
    ran(&site, "agent:create", json!({"agentId": "b", "config": config})).await;
    deliver(&site, "b", json!({"fail": true})).await;
    ended(&site, "agent:run", json!({"agentId": "b"})).await;
    assert_eq!(status(&site, "b").await, "TERMINATED");
}

/// "Log transition function errors for operator review": the agent, how many turns have failed, and why, without
/// what the agent was told. "Track consecutive failures": a turn that succeeds resets the count.
#[tokio::test]
async fn failed_turns_are_logged_and_counted_until_one_succeeds() {
    let site = Site::start().await;
    let log = Log::start();
    tally(&site, "logged").await;
    let failed = async |failures: u64| {
        deliver(&site, "logged", json!({"fail": true, "text": "pr1vate"})).await;
        ended(&site, "agent:run", json!({"agentId": "logged"})).await;
        let info = site.get("/api/v1/agents/logged").await.expect(200).json();
        assert_eq!(info["failures"], failures, "{info}");
        ran(&site, "agent:resume", json!({"agentId": "logged"})).await;
    };
    failed(1).await;
    failed(2).await;
    let text = log.text();
    let lines: Vec<&str> =
        text.lines().filter(|line| line.contains("of an agent failed")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    for (line, attempt) in lines.iter().zip(["failures=1", "failures=2"]) {
        for part in ["agent=\"logged\"", attempt, "cause=\"transition_failed\""] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains("pr1vate"), "{line}");
    }
    // The messages that fail are replaced by others.
    let fine = json!({"name": "Accept", "operation": {"adapter": "orchestrator",
        "steps": [{"op": "test:echo", "input": ["const", {"result": "fine"}]}], "result": [0]}});
    let asset = site.post("/api/v1/assets", &fine).await.expect(201).json();
    ran(&site, "agent:run", json!({"agentId": "logged", "operation": asset})).await;
    let info = site.get("/api/v1/agents/logged").await.expect(200).json();
    assert_eq!(info["failures"].as_u64().unwrap_or(0), 0, "{info}");
    deliver(&site, "logged", json!({"fail": true})).await;
    ended(&site, "agent:run", json!({"agentId": "logged"})).await;
    let info = site.get("/api/v1/agents/logged").await.expect(200).json();
    assert_eq!(info["failures"], 1, "{info}");
}

/// "The sizes of message, state and result are checked before the agent leaves RUNNING": what is too large is a
/// failure of the turn, and everything is kept.
#[tokio::test]
async fn a_state_that_is_too_large_fails() {
    let site = Site::start().await;
    // Each message is small enough; the state that contains all of them is not.
    let collect = json!({"name": "Collect", "operation": {"adapter": "orchestrator",
        "steps": [{"op": "test:echo", "input": ["input", "messages"]}],
        "result": {"state": [0], "result": ["const", 1]}}});
    let asset = site.post("/api/v1/assets", &collect).await.expect(201).json();
    let config = json!({"operation": asset});
    ran(&site, "agent:create", json!({"agentId": "a", "config": config})).await;
    for _ in 0..9 {
        deliver(&site, "a", json!("x".repeat(960_000))).await;
    }
    let job = ended(&site, "agent:run", json!({"agentId": "a"})).await;
    assert_eq!(job["status"], "FAILED", "{}", job["error"]);
    let after = ran(&site, "agent:info", json!({"agentId": "a"})).await;
    assert_eq!(after["status"], "SUSPENDED", "{after}");
    let read = ran(&site, "agent:query", json!({"agentId": "a", "path": "timeline"})).await;
    assert_eq!(read["value"], json!([]));
    let read = ran(&site, "agent:query", json!({"agentId": "a", "path": "state"})).await;
    assert_eq!(read["value"], json!(null));
    // One that is given is refused before anything is written.
    let input = json!({"agentId": "b", "state": "x".repeat(8 * 1_048_576 + 1)});
    let body = json!({"operation": "agent:create", "input": input});
    let reply = site.post("/api/v1/invoke", &body).await;
    let text = reply.text().to_owned();
    assert!(text.contains("state_too_large") || reply.status() == 413, "{}", &text[..200]);
    site.get("/api/v1/agents/b").await.expect_error(404, "agent_not_found");
}

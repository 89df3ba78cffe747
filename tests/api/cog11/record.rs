//! The record, its creation, and the delivery of messages.

use catena_tests::site::Site;
use serde_json::json;

use super::{FIELDS, deliver, ended, ran, record, status, tally};

/// "An agent's value is a plain map with the following fields": ts, status, config, state, inbox,
/// timeline, caps, error. "Creates the initial agent record with status SLEEPING, empty inbox, empty
/// timeline, and optional initial state."
#[tokio::test]
async fn a_new_agent_sleeps_and_has_exactly_these_fields() {
    let site = Site::start().await;
    let input = json!({"agentId": "a", "config": {"operation": "test:tally"}, "state": {"n": 5}});
    let created = ran(&site, "agent:create", input).await;
    assert_eq!((&created["status"], &created["created"]), (&json!("SLEEPING"), &json!(true)));
    let record = record(&site, "a").await;
    let mut names: Vec<_> = record.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, FIELDS);
    assert!(record["ts"].as_i64().unwrap() > 1_600_000_000_000);
    assert_eq!(record["status"], "SLEEPING");
    assert_eq!(record["state"], json!({"n": 5}));
    assert_eq!((&record["inbox"], &record["timeline"]), (&json!([]), &json!([])));
    assert_eq!((&record["caps"], &record["error"]), (&json!(null), &json!(null)));
}

/// "Idempotent: If the agent record already exists, create is a no-op."
#[tokio::test]
async fn creating_an_agent_twice_changes_nothing() {
    let site = Site::start().await;
    tally(&site, "a").await;
    deliver(&site, "a", json!(1)).await;
    let before = record(&site, "a").await;
    let again = json!({"agentId": "a", "config": {"operation": "other"}, "state": 1});
    let created = ran(&site, "agent:create", again).await;
    assert_eq!((&created["created"], &created["status"]), (&json!(false), &json!("SLEEPING")));
    assert_eq!(record(&site, "a").await, before, "not even the time changes");
}

/// "The initial state allows the creator to seed transition-function-specific configuration […].
/// Framework config is kept separate from transition function concerns."
#[tokio::test]
async fn a_state_is_seeded_from_the_configuration() {
    let site = Site::start().await;
    let config = json!({"operation": "test:tally", "model": "m", "systemPrompt": "be brief"});
    ran(&site, "agent:create", json!({"agentId": "a", "config": config})).await;
    let state = json!({"config": {"model": "m", "systemPrompt": "be brief"}});
    assert_eq!(record(&site, "a").await["state"], state);
    let layers = json!([{"operation": "test:tally"}, {"operation": "test:slowtally"}]);
    ran(&site, "agent:create", json!({"agentId": "b", "config": layers})).await;
    let record = record(&site, "b").await;
    assert_eq!(record["config"], json!({"operation": "test:slowtally"}));
    assert_eq!(record["state"], json!(null), "nothing is left to seed");
}

/// "appends the message to the inbox, and writes the updated record. The agent is not automatically
/// woken — the message sits in the inbox until the next run."
#[tokio::test]
async fn a_message_waits_in_the_inbox() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let before = record(&site, "a").await["ts"].as_i64().unwrap();
    let sent = deliver(&site, "a", json!({"text": "hello"})).await;
    assert_eq!((&sent["agentId"], &sent["delivered"]), (&json!("a"), &json!(true)));
    deliver(&site, "a", json!("second")).await;
    let record = record(&site, "a").await;
    assert_eq!(record["status"], "SLEEPING");
    assert!(record["ts"].as_i64().unwrap() >= before + 2, "each write advances the time");
    let inbox = record["inbox"].as_array().unwrap();
    assert_eq!(inbox.len(), 2);
    let mut names: Vec<_> = inbox[0].as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content", "from", "id", "ts"]);
    assert_eq!(inbox[0]["content"], json!({"text": "hello"}));
    assert_eq!(inbox[1]["content"], "second");
    assert!(inbox[0]["from"].as_str().unwrap().starts_with("did:"));
}

/// "Messages MUST be rejected if the agent does not exist or if the agent status is TERMINATED."
#[tokio::test]
async fn messages_to_absent_and_terminated_agents_are_rejected() {
    let site = Site::start().await;
    let message = json!({"agentId": "a", "message": 1});
    let job = ended(&site, "agent:message", message.clone()).await;
    assert_eq!(
        (&job["status"], &job["errorCode"]),
        (&json!("REJECTED"), &json!("agent_not_found"))
    );
    tally(&site, "a").await;
    let deleted = ran(&site, "agent:delete", json!({"agentId": "a"})).await;
    assert_eq!(deleted["status"], "TERMINATED");
    let job = ended(&site, "agent:message", message).await;
    let expected = (&json!("REJECTED"), &json!("agent_terminated"));
    assert_eq!((&job["status"], &job["errorCode"]), expected);
    for operation in ["agent:request", "agent:chat"] {
        let input = json!({"agentId": "a", "input": 1, "message": 1});
        let job = ended(&site, operation, input).await;
        assert_eq!((&job["status"], &job["errorCode"]), expected, "{operation}");
    }
    assert_eq!(record(&site, "a").await["inbox"], json!([]));
}

/// "Messages to a SUSPENDED agent are accepted": its "inbox is preserved for retry".
#[tokio::test]
async fn messages_to_a_suspended_agent_are_accepted() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let suspended = ran(&site, "agent:suspend", json!({"agentId": "a"})).await;
    assert_eq!(suspended["status"], "SUSPENDED");
    deliver(&site, "a", json!(1)).await;
    assert_eq!(record(&site, "a").await["inbox"].as_array().unwrap().len(), 1);
    let resumed = ran(&site, "agent:resume", json!({"agentId": "a"})).await;
    assert_eq!(resumed["status"], "SLEEPING");
}

/// "Never store plaintext credentials in the agent record"
#[tokio::test]
async fn credentials_never_enter_the_record() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let message = json!({"text": "hi", "credentials": {"token": "s3cret"}});
    deliver(&site, "a", message.clone()).await;
    ran(&site, "agent:request", json!({"agentId": "a", "input": message})).await;
    let record = record(&site, "a").await.to_string();
    assert!(!record.contains("s3cret"), "{record}");
    assert!(record.contains(r#""credentials":{"redacted":true}"#), "{record}");
}

/// "Agent count per user", "Inbox size": "Venues SHOULD impose limits".
#[tokio::test]
async fn an_inbox_is_bounded() {
    let site = Site::start().await;
    let config = json!({"operation": "test:tally", "limits": {"inbox": 2}});
    ran(&site, "agent:create", json!({"agentId": "a", "config": config})).await;
    deliver(&site, "a", json!(1)).await;
    deliver(&site, "a", json!(2)).await;
    let job = ended(&site, "agent:message", json!({"agentId": "a", "message": 3})).await;
    assert_eq!((&job["status"], &job["errorCode"]), (&json!("FAILED"), &json!("inbox_full")));
    let large = json!({"agentId": "b", "message": "x".repeat(1_000_001)});
    tally(&site, "b").await;
    let job = ended(&site, "agent:message", large).await;
    assert_eq!(job["errorCode"], "message_too_large");
    assert_eq!(record(&site, "b").await["inbox"], json!([]));
}

/// "Other namespaces (/g/, /s/, /j/) are framework-managed and reject direct writes."
#[tokio::test]
async fn a_record_can_be_read_in_parts_and_not_written() {
    let site = Site::start().await;
    tally(&site, "a").await;
    deliver(&site, "a", json!({"text": "hello"})).await;
    let read = ran(&site, "covia:read", json!({"path": "g/a/inbox/0/content/text"})).await;
    assert_eq!(read["value"], "hello");
    let job = ended(&site, "covia:write", json!({"path": "g/a/status", "value": "RUNNING"})).await;
    assert_eq!((&job["status"], &job["errorCode"]), (&json!("FAILED"), &json!("not_writable")));
    assert_eq!(status(&site, "a").await, "SLEEPING");
    let part = ran(&site, "agent:query", json!({"agentId": "a", "path": "inbox"})).await;
    assert_eq!(part["value"].as_array().unwrap().len(), 1);
}

/// An ID has 1 to 128 characters from `A-Z a-z 0-9 . _ -`.
#[tokio::test]
async fn an_id_is_a_plain_name() {
    let site = Site::start().await;
    for id in ["", "a/b", "a b", "é", "..%2f", &"x".repeat(129)] {
        let job = ended(&site, "agent:create", json!({"agentId": id})).await;
        assert_eq!(job["status"], "REJECTED", "{id}");
    }
    let id = format!("A.z_9-{}", "x".repeat(122));
    ran(&site, "agent:create", json!({"agentId": id})).await;
    assert_eq!(status(&site, &id).await, "SLEEPING");
}

/// The operator sets the limits of agents; an agent can only lower its own.
#[tokio::test]
async fn the_operator_sets_the_limits_of_agents() {
    let site = Site::with(|flags| {
        flags.agents_per_user = Some("2".to_owned());
        flags.agents_inbox = Some("3".to_owned());
        flags.agents_timeline = Some("1".to_owned());
        flags.agents_failures = Some("1".to_owned());
        flags.agents_deliveries = Some("off".to_owned());
    })
    .await;
    tally(&site, "a").await;
    let lower = json!({"operation": "test:tally", "limits": {"inbox": 1, "timeline": 99}});
    ran(&site, "agent:create", json!({"agentId": "b", "config": lower})).await;
    let third = ended(&site, "agent:create", json!({"agentId": "c"})).await;
    assert_eq!(third["errorCode"], "too_many_agents", "{third}");
    for (agent, most) in [("a", 3), ("b", 1)] {
        for number in 0..=most {
            let input = json!({"agentId": agent, "message": number});
            let job = ended(&site, "agent:message", input).await;
            let is_full = number == most;
            assert_eq!(job["errorCode"] == "inbox_full", is_full, "{agent} {number}: {job}");
        }
    }
    ran(&site, "agent:run", json!({"agentId": "b"})).await;
    deliver(&site, "b", json!("again")).await;
    let full = ended(&site, "agent:run", json!({"agentId": "b"})).await;
    assert_eq!(full["errorCode"], "timeline_full", "{full}");
    ran(&site, "agent:delete", json!({"agentId": "b", "remove": true})).await;
    tally(&site, "d").await;
    deliver(&site, "d", json!({"fail": true})).await;
    ended(&site, "agent:run", json!({"agentId": "d"})).await;
    let resumed = ended(&site, "agent:resume", json!({"agentId": "d"})).await;
    assert_eq!(resumed["errorCode"], "too_many_failures", "{resumed}");
}

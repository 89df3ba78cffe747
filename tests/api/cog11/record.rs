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
    // Wherever they are, and whoever delivers them.
    let deep = json!({"deep": [{"credentials": "s3cret", "more": {"credentials": ["s3cret"]}}]});
    let input = json!({"agentId": "a", "message": deep.clone()});
    assert!(!ran(&site, "agent:chat", input).await.to_string().contains("s3cret"));
    deliver(&site, "a", deep).await;
    let record = record(&site, "a").await;
    assert_eq!(record["inbox"].as_array().unwrap().len(), 1, "{record}");
    assert_eq!(record["timeline"].as_array().unwrap().len(), 2, "{record}");
    let gone = json!({"redacted": true});
    let deep = json!({"deep": [{"credentials": gone, "more": {"credentials": gone}}]});
    assert_eq!(record["inbox"][0]["content"], deep);
    assert_eq!(record["timeline"][1]["messages"][0]["content"], deep);
    assert!(!record.to_string().contains("s3cret"), "{record}");
    assert!(record.to_string().contains(r#""credentials":{"redacted":true}"#), "{record}");
}

/// "The agent's configuration does not contain API keys": whoever puts one there learns where it belongs.
#[tokio::test]
async fn credentials_in_a_configuration_or_a_state_are_refused() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let before = record(&site, "a").await;
    for (part, value) in [
        ("config", json!({"operation": "test:tally", "credentials": {"token": "s3cret"}})),
        ("config", json!({"llm": [{"apiKey": "s3cret"}]})),
        ("state", json!({"config": {"api_key": "s3cret"}})),
    ] {
        for (operation, agent) in [("agent:create", "b"), ("agent:update", "a")] {
            let mut input = json!({"agentId": agent});
            input[part] = value.clone();
            let job = ended(&site, operation, input).await;
            assert_eq!(job["errorCode"], "invalid_input", "{operation}: {job}");
            let error = job["error"].as_str().unwrap();
            assert!(error.contains(part) && error.contains("secret:set"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
    assert_eq!(record(&site, "a").await, before);
    site.get("/api/v1/agents/b").await.expect_error(404, "agent_not_found");
    // What names none is accepted.
    let config = json!({"operation": "test:tally", "credentials": null, "tokenBudget": 5});
    ran(&site, "agent:create", json!({"agentId": "b", "config": config})).await;
}

/// "Redact sensitive fields in timeline entries where possible": those that the transition marks.
#[tokio::test]
async fn what_a_transition_marks_as_secret_never_enters_the_record() {
    let site = Site::start().await;
    let content =
        json!({"properties": {"login": {"properties": {"password": {"writeOnly": true}}}}});
    let items = json!({"properties": {"content": content}});
    let metadata = json!({"name": "Tally with a password", "operation": {"adapter": "test:tally",
        "input": {"type": "object", "properties": {"messages": {"type": "array", "items": items}}}}});
    let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
    let message = json!({"login": {"user": "u", "password": "s3cret"}, "text": "hi"});
    let public = json!({"login": {"user": "u", "password": {"redacted": true}}, "text": "hi"});
    let config = json!({"operation": asset});
    ran(&site, "agent:create", json!({"agentId": "a", "config": config})).await;
    deliver(&site, "a", message.clone()).await;
    assert_eq!(record(&site, "a").await["inbox"][0]["content"], public);
    for operation in ["agent:request", "agent:chat"] {
        let input = json!({"agentId": "a", "input": message, "message": message});
        ran(&site, operation, input).await;
    }
    let after = record(&site, "a").await;
    assert_eq!(after["timeline"].as_array().unwrap().len(), 2, "{after}");
    assert!(!after.to_string().contains("s3cret"), "{after}");
    // An agent whose transition is changed, and a copy.
    tally(&site, "b").await;
    ran(&site, "agent:update", json!({"agentId": "b", "config": config})).await;
    ran(&site, "agent:fork", json!({"sourceId": "b", "agentId": "c"})).await;
    for agent in ["b", "c"] {
        deliver(&site, agent, message.clone()).await;
        assert_eq!(record(&site, agent).await["inbox"][0]["content"], public, "{agent}");
    }
    // A transition that only the run names: the timeline has what its record has.
    tally(&site, "d").await;
    deliver(&site, "d", message).await;
    ran(&site, "agent:run", json!({"agentId": "d", "operation": asset})).await;
    let after = record(&site, "d").await;
    assert_eq!(after["timeline"][0]["messages"][0]["content"], public, "{after}");
    assert_eq!(after["inbox"], json!([]));
}

/// An own definition of `agent:message` or `agent:request` may mark parts of a message as secret.
#[tokio::test]
async fn what_an_own_definition_marks_as_secret_never_enters_the_record() {
    let site = Site::start().await;
    tally(&site, "a").await;
    let schema = json!({"properties": {"password": {"type": "string", "writeOnly": true}}});
    for (adapter, member) in [("agent:message", "message"), ("agent:request", "input")] {
        let metadata = json!({"name": "Send", "operation": {"adapter": adapter,
            "input": {"type": "object", "properties": {member: schema}}}});
        let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
        let mut input = json!({"agentId": "a"});
        input[member] = json!({"password": "s3cret", "text": "hi"});
        let job = ended(&site, asset.as_str().unwrap(), input).await;
        assert_eq!(job["status"], "COMPLETE", "{job}");
        assert!(!job.to_string().contains("s3cret"), "{job}");
    }
    let after = record(&site, "a").await;
    let messages = &after["timeline"][0]["messages"];
    for at in 0..2 {
        let public = json!({"password": {"redacted": true}, "text": "hi"});
        assert_eq!(messages[at]["content"], public, "{after}");
    }
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
    // The bytes of the messages that wait are bounded as well, until a turn has processed them.
    let config = json!({"operation": "test:tally", "limits": {"inboxBytes": 1_000}});
    ran(&site, "agent:create", json!({"agentId": "c", "config": config})).await;
    deliver(&site, "c", json!("x".repeat(600))).await;
    let input = json!({"agentId": "c", "message": "x".repeat(600)});
    let job = ended(&site, "agent:message", input.clone()).await;
    assert_eq!((&job["status"], &job["errorCode"]), (&json!("FAILED"), &json!("inbox_full")));
    ran(&site, "agent:run", json!({"agentId": "c"})).await;
    ran(&site, "agent:message", input).await;
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
        flags.agents_idle = Some("1h".to_owned());
    })
    .await;
    // An agent to which nothing happens is terminated; its configuration may only lower the time.
    for (limits, hours) in
        [(json!({}), 1.0), (json!({"idleMs": 7_200_000}), 1.0), (json!({"idleMs": 1_800_000}), 0.5)]
    {
        let config = json!({"operation": "test:tally", "limits": limits});
        ran(&site, "agent:create", json!({"agentId": "idle", "config": config})).await;
        let created = record(&site, "idle").await["ts"].as_i64().unwrap();
        let listed = ran(&site, "scheduler:list", json!({})).await;
        let event = &listed["events"][0];
        assert_eq!(event["operation"], "agent:delete", "{listed}");
        let after = event["nextTime"].as_i64().or(event["time"].as_i64()).unwrap() - created;
        assert!((after as f64 / 3_600_000.0 - hours).abs() < 0.1, "{after} ms: {listed}");
        ran(&site, "agent:delete", json!({"agentId": "idle", "remove": true})).await;
    }
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

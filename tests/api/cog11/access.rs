//! Agents belong to their owner: nobody else can tell that they exist.

use catena_tests::site::Site;
use serde_json::json;

use super::{deliver, ended, ran, record, status, tally};

#[tokio::test]
async fn users_with_the_same_agent_names_never_meet() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let bob = site.caller(2).await;
    tally(&alice, "helper").await;
    tally(&bob, "helper").await;
    deliver(&alice, "helper", json!("from alice")).await;
    let output = ran(&bob, "agent:run", json!({"agentId": "helper"})).await;
    assert_eq!(output["messages"], 0, "bob's agent has no messages");
    ran(&alice, "agent:run", json!({"agentId": "helper"})).await;
    assert_eq!(record(&bob, "helper").await["timeline"], json!([]));
    ran(&bob, "agent:delete", json!({"agentId": "helper"})).await;
    assert_eq!(status(&alice, "helper").await, "SLEEPING");
}

#[tokio::test]
async fn another_users_agent_does_not_exist() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let bob = site.caller(2).await;
    tally(&alice, "helper").await;
    let before = record(&alice, "helper").await;
    for (operation, more) in [
        ("agent:message", json!({"message": 1})),
        ("agent:run", json!({})),
        ("agent:trigger", json!({})),
        ("agent:request", json!({"input": 1})),
        ("agent:chat", json!({"message": 1})),
        ("agent:update", json!({"state": 1})),
        ("agent:suspend", json!({})),
        ("agent:resume", json!({})),
        ("agent:delete", json!({})),
        ("agent:fork", json!({"sourceId": "helper", "agentId": "copy"})),
        ("agent:cancel-task", json!({"taskId": "0x0123456789abcdef0123456789abcdef"})),
        ("agent:rename-session", json!({"sessionId": "s", "title": "t"})),
        ("agent:info", json!({})),
        ("agent:query", json!({})),
        ("agent:sessions", json!({})),
        ("agent:attach", json!({})),
        ("agent:wake", json!({})),
        ("agent:ask", json!({"question": "?"})),
        ("agent:context", json!({})),
        ("agent:session-read", json!({})),
        ("agent:compact-session", json!({"sessionId": "s", "summary": "t"})),
        ("agent:reload-context", json!({"sessionId": "s"})),
        ("agent:delete-session", json!({"sessionId": "s"})),
    ] {
        for id in ["helper", "absent"] {
            let mut input = more.clone();
            if operation == "agent:fork" {
                input["sourceId"] = json!(id);
            } else {
                input["agentId"] = json!(id);
            }
            let job = ended(&bob, operation, input).await;
            assert_eq!(job["errorCode"], "agent_not_found", "{operation} {id}: {job}");
        }
    }
    // Neither do its requests.
    let asked = ran(&alice, "agent:ask", json!({"agentId": "helper", "question": "?"})).await;
    let before = if asked["status"] == "OPEN" { record(&alice, "helper").await } else { before };
    let absent = "helper~0123456789abcdef0123456789abcdef";
    let mut answers = Vec::new();
    for id in [asked["requestId"].as_str().unwrap(), absent] {
        let job = ended(&bob, "agent:answer", json!({"requestId": id, "answer": 1})).await;
        assert_eq!(job["status"], "FAILED", "{job}");
        answers.push((job["errorCode"].clone(), job["error"].to_string().replace(id, "")));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(ran(&bob, "agent:list", json!({})).await, json!({"agents": []}));
    assert_eq!(ran(&bob, "agent:requests", json!({})).await["requests"], json!([]));
    bob.get("/api/v1/agents/helper").await.expect_error(404, "agent_not_found");
    let list = bob.get("/api/v1/agents").await.expect(200).json();
    assert_eq!(list, json!({"agents": []}));
    let read = bob.get("/api/v1/values/read?path=g/helper").await.expect(200).json();
    assert_eq!(read["exists"], false);
    assert_eq!(record(&alice, "helper").await, before);
}

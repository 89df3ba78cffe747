//! Agents over MCP: the operations are tools, and what they do is what they do over `/api/v1`.

use catena_tests::mcp::{McpClient, STATELESS, WITH_HANDSHAKE};
use catena_tests::model::{Model, calls, last_content, says};
use catena_tests::site::Site;
use serde_json::{Value as Json, json};

use super::{record, status};

/// Calls a tool that must succeed, and returns its output.
async fn called(client: &McpClient, name: &str, arguments: Json) -> Json {
    let result = client.call(name, arguments).await;
    assert_ne!(result["isError"], true, "{name}: {result}");
    result["structuredContent"].clone()
}

#[tokio::test]
async fn an_agent_lives_its_life_over_mcp() {
    let model = Model::start(|body, _| match last_content(body).as_str() {
        "note milk" => calls(&[("covia_write", r#"{"path":"w/note","value":"milk"}"#)]),
        _ => says("Noted."),
    });
    let model = model.await;
    let host = model.host();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    for (number, revision) in [WITH_HANDSHAKE[2], STATELESS].into_iter().enumerate() {
        let mcp = McpClient::new(&site, revision);
        let id = format!("helper{number}");
        let named = |more: Json| {
            let mut arguments = json!({"agentId": id});
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            arguments
        };
        let config = json!({"operation": "llm:agent", "url": model.url(), "model": "m"});
        let created = called(&mcp, "agent_create", named(json!({"config": config}))).await;
        assert_eq!(created["created"], true, "{created}");
        called(&mcp, "agent_message", named(json!({"message": "note milk"}))).await;
        assert_eq!(record(&site, &id).await["inbox"].as_array().unwrap().len(), 1);
        let ran = called(&mcp, "agent_run", named(json!({}))).await;
        assert_eq!(ran["result"]["response"], "Noted.", "{ran}");
        let note = called(&mcp, "covia_read", json!({"path": "w/note"})).await;
        assert_eq!(note["value"], "milk");
        let chat = called(&mcp, "agent_chat", named(json!({"message": "hello"}))).await;
        assert_eq!(chat["response"], "Noted.");
        let info = called(&mcp, "agent_info", named(json!({}))).await;
        assert_eq!((&info["status"], &info["timelineLength"]), (&json!("SLEEPING"), &json!(2)));
        let asked = called(&mcp, "agent_ask", named(json!({"question": "Go on?"}))).await;
        let answer = json!({"requestId": asked["requestId"], "answer": "yes"});
        assert_eq!(called(&mcp, "agent_answer", answer.clone()).await["status"], "ANSWERED");
        let again = mcp.call("agent_answer", answer).await;
        assert_eq!(again["isError"], true, "a second answer: {again}");
        called(&mcp, "agent_suspend", named(json!({}))).await;
        let refused = mcp.call("agent_run", named(json!({}))).await;
        assert_eq!(refused["isError"], true, "{refused}");
        called(&mcp, "agent_resume", named(json!({}))).await;
        assert_eq!(status(&site, &id).await, "SLEEPING");
        called(&mcp, "agent_delete", named(json!({}))).await;
        assert_eq!(status(&site, &id).await, "TERMINATED");
        // Somebody else's agents do not exist here, either.
        let bob = McpClient::new(&site.caller(2).await, revision);
        let missing = bob.call("agent_info", named(json!({}))).await;
        assert!(missing.to_string().contains("agent_not_found"), "{missing}");
    }
}

//! Jobs as tasks, in both generations of the protocol.

use catena_tests::events::Events;
use catena_tests::mcp::{McpClient, STATELESS};
use catena_tests::site::Site;
use serde_json::{Value as Json, json};

const OLD: &str = "2025-11-25";

fn extension() -> Json {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}})
}

async fn task_of(client: &McpClient, name: &str, arguments: Json) -> String {
    let params = json!({"name": name, "arguments": arguments, "task": {"ttl": 60000}});
    let task = client.result("tools/call", params).await["task"].clone();
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &Json::Null), "{task}");
    for time in ["createdAt", "lastUpdatedAt"] {
        assert!(task[time].as_str().unwrap().ends_with('Z'), "{task}");
    }
    task["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_task_is_a_job_and_its_result_that_of_the_call() {
    let site = Site::start().await;
    let caller = site.caller(1).await;
    let client = McpClient::new(&caller, OLD);
    let task = task_of(&client, "test_delay", json!({"delay": 200, "input": {"a": 1}})).await;
    assert_eq!(caller.job(&task).await["id"], task.as_str());
    let result = client.result("tasks/result", json!({"taskId": task})).await;
    assert_eq!(result["structuredContent"], json!({"a": 1}));
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], task.as_str());
    let ended = client.result("tasks/get", json!({"taskId": task})).await;
    assert_eq!((&ended["status"], &ended["taskId"]), (&json!("completed"), &json!(task)));
    let failed = task_of(&client, "test_error", json!({"message": "no"})).await;
    let ended = client.result("tasks/get", json!({"taskId": failed})).await;
    assert_eq!((&ended["status"], &ended["statusMessage"]), (&json!("failed"), &json!("no")));
    let result = client.result("tasks/result", json!({"taskId": failed})).await;
    assert_eq!(result["isError"], true);

    let other = McpClient::new(&site.caller(2).await, OLD);
    for client in [&other, &McpClient::with_capabilities(&other, extension())] {
        for unknown in [task.as_str(), "0x00000000000000000000000000000000", "nonsense"] {
            let (_, code, _) = client.refusal("tasks/get", json!({"taskId": unknown})).await;
            assert_eq!(code, -32602, "{unknown}");
        }
    }
}

#[tokio::test]
async fn tasks_are_listed_page_by_page() {
    let site = Site::start().await;
    let client = McpClient::new(&site, OLD);
    let mut made = Vec::new();
    for number in 0..205 {
        let job = site.invoke("test:echo", json!(number)).await;
        made.push(job["id"].as_str().unwrap().to_owned());
    }
    let ids = |page: &Json| -> Vec<String> {
        let tasks = page["tasks"].as_array().unwrap();
        tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()).collect()
    };
    let first = client.result("tasks/list", json!({})).await;
    assert_eq!(first["tasks"][0]["status"], "completed");
    let second = client.result("tasks/list", json!({"cursor": first["nextCursor"]})).await;
    assert_eq!([ids(&first), ids(&second)].concat(), made);
    assert!(second["nextCursor"].is_null());
    let (_, code, _) = client.refusal("tasks/list", json!({"cursor": "x"})).await;
    assert_eq!(code, -32602);
}

#[tokio::test]
async fn a_task_is_cancelled_once() {
    let site = Site::start().await;
    let client = McpClient::new(&site, OLD);
    let task = task_of(&client, "test_never", json!({})).await;
    let cancelled = client.result("tasks/cancel", json!({"taskId": task})).await;
    assert_eq!((&cancelled["status"], &cancelled["taskId"]), (&json!("cancelled"), &json!(task)));
    assert_eq!(site.job(&task).await["status"], "CANCELLED");
    let (_, code, _) = client.refusal("tasks/cancel", json!({"taskId": task})).await;
    assert_eq!(code, -32602);
    let result = client.result("tasks/result", json!({"taskId": task})).await;
    assert_eq!(
        (&result["isError"], &result["_meta"]["catena/status"]),
        (&json!(true), &json!("CANCELLED"))
    );
    let new = McpClient::with_capabilities(&site, extension());
    let result = new.result("tasks/cancel", json!({"taskId": task})).await;
    assert_eq!(result["resultType"], "complete");
}

#[tokio::test]
async fn a_task_that_waits_for_somebody_is_not_waited_for() {
    let site = Site::start().await;
    let client = McpClient::new(&site, OLD);
    let task = task_of(&client, "test_chat", json!({})).await;
    site.until(&task, "INPUT_REQUIRED").await;
    let state = client.result("tasks/get", json!({"taskId": task})).await;
    assert_eq!(state["status"], "input_required");
    let (status, code, error) = client.refusal("tasks/result", json!({"taskId": task})).await;
    assert_eq!((status, code), (200, -32603));
    assert_eq!(error["data"]["status"], "INPUT_REQUIRED");
    assert!(error["data"]["hint"].as_str().unwrap().contains("message"), "{error}");
}

#[tokio::test]
async fn a_client_that_takes_tasks_gets_one_for_what_takes_long() {
    let site = Site::start().await;
    let client = McpClient::with_capabilities(&site, extension());
    let quick = client.call("test_echo", json!({"a": 1})).await;
    assert_eq!(
        (&quick["resultType"], &quick["structuredContent"]),
        (&json!("complete"), &json!({"a": 1}))
    );
    let task = client.call("test_never", json!({})).await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")));
    assert_eq!(task["ttlMs"], Json::Null);
    assert!(task["pollIntervalMs"].as_i64().unwrap() > 0);
    let id = task["taskId"].as_str().unwrap().to_owned();
    assert_eq!(site.job(&id).await["status"], "STARTED", "it was not ended");
    let state = client.result("tasks/get", json!({"taskId": id})).await;
    assert_eq!((&state["resultType"], &state["status"]), (&json!("complete"), &json!("working")));
    client.result("tasks/cancel", json!({"taskId": id})).await;
    let ended = client.result("tasks/get", json!({"taskId": id})).await;
    assert_eq!((&ended["status"], &ended["result"]), (&json!("cancelled"), &Json::Null));

    let plain = McpClient::new(&site, STATELESS);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let (status, code, error) = plain.refusal(method, json!({"taskId": id})).await;
        assert_eq!((status, code), (400, -32021), "{method}");
        let required = &error["data"]["requiredCapabilities"]["extensions"];
        assert!(required["io.modelcontextprotocol/tasks"].is_object(), "{error}");
    }
}

#[tokio::test]
async fn a_task_carries_its_question_and_then_its_result() {
    let site = Site::start().await;
    let client = McpClient::with_capabilities(&site, extension());
    let task = client.call("test_chat", json!({})).await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("input_required")));
    let id = task["taskId"].as_str().unwrap().to_owned();
    let get = async || client.result("tasks/get", json!({"taskId": id})).await;
    let state = get().await;
    assert_eq!(state["status"], "input_required");
    let requests = state["inputRequests"].as_object().unwrap();
    let (key, request) = requests.iter().next().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    let update = async |response: Json| {
        let params = json!({"taskId": id, "inputResponses": {key.as_str(): response, "other": {}}});
        client.result("tasks/update", params).await
    };
    let done = json!({"action": "accept", "content": {"content": "done"}});
    assert_eq!(update(done.clone()).await["resultType"], "complete");
    site.until(&id, "COMPLETE").await;
    let ended = get().await;
    assert_eq!(ended["status"], "completed");
    assert_eq!(ended["result"]["structuredContent"]["message"], "done");
    assert_eq!(update(done).await["resultType"], "complete", "an answer too late changes nothing");

    let failed = site.invoke("test:error", json!({"message": "no"})).await;
    let failed = client.result("tasks/get", json!({"taskId": failed["id"]})).await;
    assert_eq!(
        (&failed["status"], &failed["result"]["isError"]),
        (&json!("completed"), &json!(true))
    );
    let silent = McpClient::with_capabilities(
        &site,
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}),
    );
    let waiting = silent.call("test_chat", json!({})).await;
    let waiting = silent.result("tasks/get", json!({"taskId": waiting["taskId"]})).await;
    assert_eq!(
        (&waiting["status"], &waiting["inputRequests"]),
        (&json!("input_required"), &json!({}))
    );
}

#[tokio::test]
async fn tasks_survive_a_restart() {
    let site = Site::start().await;
    let old = McpClient::new(&site, OLD);
    let never = task_of(&old, "test_never", json!({})).await;
    let ended = task_of(&old, "test_echo", json!({"a": 1})).await;
    let chat = task_of(&old, "test_chat", json!({})).await;
    site.until(&never, "STARTED").await;
    site.until(&chat, "INPUT_REQUIRED").await;
    let new = McpClient::with_capabilities(&site, extension());
    let key =
        |task: &Json| task["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let before = key(&new.result("tasks/get", json!({"taskId": chat})).await);

    let site = site.restarted().await;
    let old = McpClient::new(&site, OLD);
    let new = McpClient::with_capabilities(&site, extension());
    let listed = old.result("tasks/list", json!({})).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 3);
    let state = old.result("tasks/get", json!({"taskId": never})).await;
    assert_eq!(state["status"], "working");
    let result = old.result("tasks/result", json!({"taskId": ended})).await;
    assert_eq!(result["structuredContent"], json!({"a": 1}));
    assert_eq!(key(&new.result("tasks/get", json!({"taskId": chat})).await), before);
    let response = json!({"action": "accept", "content": {"content": "done"}});
    let params = json!({"taskId": chat, "inputResponses": {before.as_str(): response}});
    new.result("tasks/update", params).await;
    site.until(&chat, "COMPLETE").await;
    old.result("tasks/cancel", json!({"taskId": never})).await;
    assert_eq!(site.job(&never).await["status"], "CANCELLED");
}

#[tokio::test]
async fn changes_of_tasks_are_sent_as_they_happen() {
    let site = Site::start().await;
    let caller = site.caller(1).await;
    let client = McpClient::with_capabilities(&caller, extension());
    let own = caller.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    let foreign = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    let wanted = json!({"notifications": {"taskIds": [own, foreign], "toolsListChanged": true}});
    let request = client.message("subscriptions/listen", wanted.clone());
    let mut events = Events::open(site.address, &request).await;
    let mut next = async || events.next().await.unwrap().data;
    let stream = json!({"io.modelcontextprotocol/subscriptionId": 1});
    let first = next().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"], json!({"notifications": {"taskIds": [own]}, "_meta": stream}));
    let state = next().await;
    assert_eq!(state["method"], "notifications/tasks");
    assert_eq!(state["params"]["status"], "input_required");
    assert_eq!(state["params"]["_meta"], stream);
    caller.send(&own, &json!({"content": "done"})).await.expect(202);
    let ended = loop {
        let message = next().await;
        if message["params"]["status"] != "working" {
            break message;
        }
    };
    assert_eq!(ended["params"]["status"], "completed");
    assert_eq!(ended["params"]["result"]["structuredContent"]["message"], "done");
    let result = next().await;
    assert_eq!((&result["id"], &result["result"]["resultType"]), (&json!(1), &json!("complete")));
    assert_eq!(result["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    assert!(events.next().await.is_none());

    let plain = McpClient::new(&caller, STATELESS);
    let (status, code, _) = plain.refusal("subscriptions/listen", wanted).await;
    assert_eq!((status, code), (400, -32021));
    for bad in [json!({}), json!({"notifications": {"taskIds": "x"}})] {
        let (status, code, _) = client.refusal("subscriptions/listen", bad).await;
        assert_eq!((status, code), (400, -32602));
    }
}

//! "/h/ (HITL) — reserved for human-in-the-loop requests", and the conversations that people read.

use catena_tests::site::{Client, Site};
use serde_json::{Value as Json, json};

use super::{ended, ran, record, status};

/// Creates an agent whose model calls the tools that messages name.
async fn agent(client: &Client, id: &str, tools: Json) {
    let config = json!({"operation": "llm:agent", "llmOperation": "test:toolllm", "tools": tools,
        "systemPrompt": "You ask before you act."});
    ran(client, "agent:create", json!({"agentId": id, "config": config})).await;
}

async fn chat(client: &Client, id: &str, message: &str) -> Json {
    ran(client, "agent:chat", json!({"agentId": id, "message": message})).await
}

#[tokio::test]
async fn an_agent_asks_a_person_and_gets_one_answer() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    agent(&alice, "a", json!(["agent:ask"])).await;
    let said =
        chat(&alice, "a", r#"tool agent_ask {"question":"Pay?","options":["yes","no"]}"#).await;
    assert!(said["response"].as_str().unwrap().contains("OPEN"), "{said}");
    let listed = alice.get("/api/v1/requests").await.expect(200).json();
    let request = &listed["requests"][0];
    assert_eq!((&request["question"], &request["agentId"]), (&json!("Pay?"), &json!("a")));
    let id = request["id"].as_str().unwrap().to_owned();
    let read = alice.get(&format!("/api/v1/values/read?path=h/{id}")).await.expect(200).json();
    assert_eq!(read["value"]["status"], "OPEN", "{read}");
    // Nobody else sees or answers it.
    let path = format!("/api/v1/requests/{id}");
    assert_eq!(bob.get("/api/v1/requests").await.expect(200).json()["requests"], json!([]));
    bob.post(&path, &json!({"answer": "yes"})).await.expect_error(404, "request_not_found");
    alice.post(&path, &json!({"answer": "maybe"})).await.expect_error(400, "bad_request");
    alice.post(&path, &json!({})).await.expect_error(400, "bad_request");
    let answered = alice.post(&path, &json!({"answer": "yes"})).await.expect(200).json();
    assert_eq!(answered["status"], "ANSWERED");
    alice.post(&path, &json!({"answer": "no"})).await.expect_error(409, "request_answered");
    let inbox = record(&alice, "a").await["inbox"].clone();
    assert_eq!(inbox.as_array().unwrap().len(), 1, "{inbox}");
    let content = json!({"request": id, "question": "Pay?", "answer": "yes"});
    assert_eq!(inbox[0]["content"], content);
    assert_eq!(alice.get("/api/v1/requests").await.expect(200).json()["requests"], json!([]));
    let all = alice.get("/api/v1/requests?all=true").await.expect(200).json();
    assert_eq!(all["requests"][0]["answer"], "yes");
}

/// A request ends with its agent, and a model does not answer for people.
#[tokio::test]
async fn a_request_ends_with_its_agent() {
    let site = Site::start().await;
    agent(&site, "a", json!(["agent:answer"])).await;
    let asked =
        ran(&site, "agent:ask", json!({"agentId": "a", "question": {"text": "Go on?"}})).await;
    let id = asked["requestId"].as_str().unwrap().to_owned();
    let answer = json!({"requestId": id, "answer": "yes"});
    let said = chat(&site, "a", &format!("tool agent_answer {answer}")).await;
    assert!(said["response"].as_str().unwrap().contains("a model cannot answer"), "{said}");
    ran(&site, "agent:delete", json!({"agentId": "a"})).await;
    let all = site.get("/api/v1/requests?all=true&agent=a").await.expect(200).json();
    assert_eq!(all["requests"][0]["status"], "CLOSED");
    let path = format!("/api/v1/requests/{id}");
    site.post(&path, &json!({"answer": 1})).await.expect_error(409, "request_answered");
    ran(&site, "agent:delete", json!({"agentId": "a", "remove": true})).await;
    site.post(&path, &json!({"answer": 1})).await.expect_error(404, "request_not_found");
    site.post("/api/v1/requests/x", &json!({"answer": 1}))
        .await
        .expect_error(404, "request_not_found");
    // Too many at once are refused.
    agent(&site, "b", json!([])).await;
    for number in 0..=100 {
        let job = ended(&site, "agent:ask", json!({"agentId": "b", "question": number})).await;
        let expected = if number < 100 { "COMPLETE" } else { "FAILED" };
        assert_eq!(job["status"], expected, "{number} {job}");
    }
}

/// A job asks, waits, and gets one answer, as a message.
#[tokio::test]
async fn a_job_asks_a_person_and_gets_one_answer() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let question = json!({"question": "How many?", "schema": {"type": "integer", "minimum": 1}});
    let job = alice.invoked("jobs:ask", question, "INPUT_REQUIRED").await;
    assert_eq!(alice.job(&job).await["message"], "How many?");
    let listed = alice.get("/api/v1/requests").await.expect(200).json();
    let request = &listed["requests"][0];
    assert_eq!((&request["status"], &request["question"]), (&json!("OPEN"), &json!("How many?")));
    let id = request["id"].as_str().unwrap().to_owned();
    let read = alice.get(&format!("/api/v1/values/read?path=h/{id}")).await.expect(200).json();
    assert_eq!(read["value"], *request, "it is at h/<id>");
    let path = format!("/api/v1/requests/{id}");
    assert_eq!(bob.get("/api/v1/requests").await.expect(200).json()["requests"], json!([]));
    bob.post(&path, &json!({"answer": 3})).await.expect_error(404, "request_not_found");
    for wrong in [json!("three"), json!(0), json!(null)] {
        alice.post(&path, &json!({"answer": wrong})).await.expect_error(400, "bad_request");
    }
    assert_eq!(alice.job(&job).await["status"], "INPUT_REQUIRED");
    let answered = alice.post(&path, &json!({"answer": 3})).await.expect(200).json();
    assert_eq!(answered["status"], "ANSWERED");
    alice.post(&path, &json!({"answer": 4})).await.expect_error(409, "request_answered");
    let ended = alice.until(&job, "COMPLETE").await;
    assert_eq!(ended["output"], json!({"requestId": id, "answer": 3}));
    let chain = alice.history(&job).await;
    let trigger = chain.entries.iter().find_map(|entry| entry["record"]["trigger"].as_object());
    let from = trigger.unwrap()["from"].as_str().unwrap().to_owned();
    assert!(from.starts_with("did:key:"), "the answer is a message of its sender: {from}");
    assert_eq!(alice.get("/api/v1/requests").await.expect(200).json()["requests"], json!([]));
    let all = alice.get("/api/v1/requests?all=true").await.expect(200).json();
    assert_eq!(all["requests"][0]["answer"], 3);
    // Of answers at the same time, one counts.
    let job = alice.invoked("jobs:ask", json!({"question": "Who?"}), "INPUT_REQUIRED").await;
    let listed = alice.get("/api/v1/requests").await.expect(200).json();
    let path = format!("/api/v1/requests/{}", listed["requests"][0]["id"].as_str().unwrap());
    let answers = (0..6).map(|number| {
        let (alice, path) = (alice.clone(), path.clone());
        tokio::spawn(async move { alice.post(&path, &json!({"answer": number})).await.status() })
    });
    let mut statuses = Vec::new();
    for answer in answers.collect::<Vec<_>>() {
        statuses.push(answer.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409, 409, 409]);
    alice.until(&job, "COMPLETE").await;
}

/// A request of a job ends with the job, and with everything above it.
#[tokio::test]
async fn a_request_of_a_job_ends_with_its_job() {
    let site = Site::start().await;
    let only = async || {
        let all = site.get("/api/v1/requests").await.expect(200).json();
        assert_eq!(all["requests"].as_array().unwrap().len(), 1, "{all}");
        all["requests"][0]["id"].as_str().unwrap().to_owned()
    };
    let job = site.invoked("jobs:ask", json!({"question": "Go on?"}), "INPUT_REQUIRED").await;
    let id = only().await;
    site.control(&job, "cancel").await.expect(200);
    let path = format!("/api/v1/requests/{id}");
    site.post(&path, &json!({"answer": 1})).await.expect_error(409, "request_answered");
    let read = site.get(&format!("/api/v1/values/read?path=h/{id}")).await.expect(200).json();
    assert_eq!(read["value"]["status"], "CLOSED", "{read}");
    // A step asks; its parent is cancelled.
    let steps = json!([{"op": "jobs:ask", "input": {"question": ["input", "q"]}},
                       {"op": "test:echo", "input": {"said": [0, "answer"]}}]);
    let metadata = json!({"name": "Ask", "type": "orchestration", "operation": {
        "adapter": "orchestrator", "steps": steps, "result": {"said": [1, "said"]}}});
    let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
    let asset = asset.as_str().unwrap();
    let ask = async || {
        let parent = site.invoke(asset, json!({"q": "And?"})).await;
        let parent = parent["id"].as_str().unwrap().to_owned();
        site.until_that(&parent, |job| job["steps"][0]["status"] == "INPUT_REQUIRED").await;
        (parent, only().await)
    };
    let (parent, id) = ask().await;
    site.control(&parent, "cancel").await.expect(200);
    let path = format!("/api/v1/requests/{id}");
    site.post(&path, &json!({"answer": 1})).await.expect_error(409, "request_answered");
    // And one whose request is answered goes on.
    let (parent, id) = ask().await;
    let path = format!("/api/v1/requests/{id}");
    site.post(&path, &json!({"answer": "yes"})).await.expect(200);
    let ended = site.until(&parent, "COMPLETE").await;
    assert_eq!(ended["output"], json!({"said": "yes"}));
    // What does not fit is asked again, also if the message was sent to the job itself.
    let input = json!({"question": "A or B?", "options": ["A", "B"]});
    let job = site.invoked("jobs:ask", input, "INPUT_REQUIRED").await;
    site.send(&job, &json!({"content": "C"})).await.expect(202);
    site.until_that(&job, |job| job["message"].as_str().is_some_and(|m| m.contains("options")))
        .await;
    site.send(&job, &json!({"content": "B"})).await.expect(202);
    assert_eq!(site.until(&job, "COMPLETE").await["output"]["answer"], "B");
    let listed = site.get("/api/v1/requests").await.expect(200).json();
    assert_eq!(listed["requests"], json!([]));
}

#[tokio::test]
async fn conversations_are_read_compacted_and_deleted() {
    let site = Site::start().await;
    agent(&site, "a", json!([])).await;
    let first = chat(&site, "a", "one").await;
    let session = first["sessionId"].as_str().unwrap().to_owned();
    let next = json!({"agentId": "a", "message": "two", "sessionId": session});
    ran(&site, "agent:chat", next).await;
    let read = ran(&site, "agent:session-read", json!({"agentId": "a"})).await;
    let contents: Vec<&str> = read["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(contents, ["one", "one", "two", "two"]);
    assert_eq!((&read["found"], &read["turnCount"]), (&json!(true), &json!(2)));
    let short = json!({"agentId": "a", "sessionId": session, "maxTurns": 1});
    let short = ran(&site, "agent:session-read", short).await;
    assert_eq!(
        (short["messages"].as_array().unwrap().len(), &short["truncated"]),
        (2, &json!(true))
    );
    let missing = ran(&site, "agent:session-read", json!({"agentId": "a", "sessionId": "x"})).await;
    assert_eq!(missing["found"], false);
    let context = ran(&site, "agent:context", json!({"agentId": "a", "task": "T"})).await;
    let context = context.as_str().unwrap();
    assert!(context.contains("You ask before") && context.contains("user: two"), "{context}");
    let named = |more: Json| {
        let mut input = json!({"agentId": "a", "sessionId": session});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    assert_eq!(ran(&site, "agent:reload-context", named(json!({}))).await["frames"], 1);
    let compacted =
        ran(&site, "agent:compact-session", named(json!({"summary": "they counted"}))).await;
    assert_eq!((&compacted["compacted"], &compacted["archivedTurns"]), (&json!(true), &json!(2)));
    ran(&site, "agent:chat", named(json!({"message": "three"}))).await;
    let read = ran(&site, "agent:session-read", named(json!({}))).await;
    assert!(read["messages"][0]["content"].as_str().unwrap().contains("they counted"), "{read}");
    assert_eq!(ran(&site, "agent:delete-session", named(json!({}))).await["deleted"], true);
    let job = ended(&site, "agent:delete-session", named(json!({}))).await;
    assert_eq!(job["errorCode"], "session_not_found");
    assert_eq!(ran(&site, "agent:sessions", json!({"agentId": "a"})).await["total"], 0);
    assert_eq!(record(&site, "a").await["timeline"].as_array().unwrap().len(), 3);
    super::tally(&site, "t").await;
    let job = ended(&site, "agent:context", json!({"agentId": "t"})).await;
    assert_eq!(job["errorCode"], "no_context");
}

/// A model ends its turn with a tool; outside a turn there is no task.
#[tokio::test]
async fn a_task_is_ended_by_the_model_only() {
    let site = Site::start().await;
    agent(&site, "a", json!(["agent:complete-task", "agent:fail-task"])).await;
    let said = chat(&site, "a", r#"tool agent_complete-task {"result":{"sum":3}}"#).await;
    assert_eq!(said["response"], json!({"sum": 3}));
    let said = chat(&site, "a", r#"tool agent_fail-task {"error":"no data"}"#).await;
    assert_eq!(said["response"], json!({"error": "no data"}));
    assert_eq!(status(&site, "a").await, "SLEEPING");
    for (operation, input) in
        [("agent:complete-task", json!({})), ("agent:fail-task", json!({"error": "x"}))]
    {
        let job = ended(&site, operation, input).await;
        assert_eq!(job["errorCode"], "no_task", "{job}");
    }
}

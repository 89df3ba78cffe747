//! Calls: jobs, their outputs, their errors, their questions.

use catena_auth::KeyPair;
use catena_tests::TIMEOUT;
use catena_tests::mcp::{McpClient, STATELESS, WITH_HANDSHAKE, last_message};
use catena_tests::site::{Site, delegation};
use serde_json::{Value as Json, json};

fn text(result: &Json) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

fn job(result: &Json) -> String {
    result["_meta"]["catena/job"].as_str().unwrap().to_owned()
}

/// Waits until the condition holds.
async fn until(holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, waiting).await.unwrap();
}

#[tokio::test]
async fn a_call_is_a_job_of_the_callers_in_every_revision() {
    let site = Site::start().await;
    let caller = site.caller(1).await;
    for revision in WITH_HANDSHAKE.into_iter().chain([STATELESS]) {
        let client = McpClient::new(&caller, revision);
        let result = client.call("test_echo", json!({"text": "hello"})).await;
        assert_eq!(result["structuredContent"], json!({"text": "hello"}));
        assert_eq!(text(&result), r#"{"text":"hello"}"#);
        assert_eq!(result["isError"], false);
        let made = caller.job(&job(&result)).await;
        assert_eq!((&made["status"], &made["op"]), (&json!("COMPLETE"), &json!("test:echo")));
        assert_eq!(made["input"], json!({"text": "hello"}));
        let chain = caller.history(&job(&result)).await;
        assert_eq!(chain.statuses(), "PENDING STARTED COMPLETE");
    }
    assert_eq!(caller.job_count().await, 5);
    assert_eq!(site.job_count().await, 0, "they belong to no other caller");
}

/// A model reads the text of a denial as the result of its call, and that a retry will not help.
#[tokio::test]
async fn a_denied_call_is_a_tool_result() {
    let site = Site::start().await;
    let caller = site.caller(2).await;
    let other = KeyPair::from_seed(&[1; 32]).did();
    for revision in WITH_HANDSHAKE.into_iter().chain([STATELESS]) {
        let client = McpClient::new(&caller, revision);
        let path = format!("{other}/w/private");
        for (tool, arguments) in [
            ("covia_read", json!({"path": path})),
            ("covia_write", json!({"path": path, "value": 1})),
            ("covia_delete", json!({"path": path})),
        ] {
            let result = client.call(tool, arguments).await;
            assert_eq!(result["isError"], true, "{tool}: {result}");
            let denial = text(&result);
            assert!(denial.starts_with("Capability denied: covia:"), "{tool}: {denial}");
            assert!(denial.ends_with("a retry will not help"), "{tool}: {denial}");
            assert_eq!(result["_meta"]["catena/errorCode"], "forbidden");
        }
    }
    assert_eq!(caller.job_count().await, 0, "a denial creates no job");
}

#[tokio::test]
async fn an_output_that_is_no_object_travels_inside_one() {
    let site = Site::start().await;
    let client = McpClient::new(&site, STATELESS);
    for (output, shown) in [
        (json!([1, 2.5, null]), "[1,2.5,null]"),
        (json!("plain text"), "plain text"),
        (json!(7), "7"),
        (Json::Null, "null"),
    ] {
        let result = client.call("test_delay", json!({"delay": 0, "input": output})).await;
        assert_eq!(result["structuredContent"], json!({"result": output}));
        assert_eq!(text(&result), shown);
    }
    let result = client.call("test_delay", json!({"delay": 0, "input": {"a": 1}})).await;
    assert_eq!(result["structuredContent"], json!({"a": 1}));
}

#[tokio::test]
async fn a_large_output_is_given_once() {
    let site = Site::start().await;
    let client = McpClient::new(&site, STATELESS);
    let large = "x".repeat(300_000);
    let result = client.call("test_echo", json!({"text": large})).await;
    assert_eq!(result["structuredContent"]["text"].as_str().unwrap().len(), 300_000);
    assert!(text(&result).contains("structuredContent"), "{}", text(&result));
}

#[tokio::test]
async fn a_job_that_did_not_do_it_says_why() {
    let site = Site::start().await;
    for revision in ["2025-06-18", STATELESS] {
        let client = McpClient::new(&site, revision);
        let failed = client.call("test_error", json!({"message": "Out of cheese"})).await;
        assert_eq!(failed["isError"], true);
        assert!(text(&failed).starts_with("Out of cheese"), "{failed}");
        assert!(text(&failed).contains(&job(&failed)), "{failed}");
        assert_eq!(failed["_meta"]["catena/status"], "FAILED");
        assert_eq!(failed["_meta"]["catena/errorCode"], "test_error");
        assert!(failed["structuredContent"].is_null());

        let rejected = client.call("test_error", json!({"message": 5})).await;
        assert_eq!(rejected["_meta"]["catena/status"], "REJECTED");
        assert_eq!(rejected["isError"], true);
        assert_eq!(client.job(&job(&rejected)).await["status"], "REJECTED");
    }
    let slow = Site::with(|flags| flags.execution = Some("50ms".to_owned())).await;
    let result = McpClient::new(&slow, STATELESS).call("test_never", json!({})).await;
    assert_eq!(
        (&result["isError"], &result["_meta"]["catena/status"]),
        (&json!(true), &json!("TIMEOUT"))
    );
}

#[tokio::test]
async fn a_call_that_is_wrong_in_itself_makes_no_job() {
    let site = Site::start().await;
    for (revision, status) in [("2025-11-25", 200), (STATELESS, 400)] {
        let client = McpClient::new(&site, revision);
        for params in [
            json!({"name": "no_such_tool", "arguments": {}}),
            json!({"arguments": {}}),
            json!({"name": 5}),
            json!({"name": "test_echo", "arguments": [1]}),
            json!({"name": "test_echo", "arguments": {"ucans": "x"}}),
        ] {
            let (found, code, error) = client.refusal("tools/call", params.clone()).await;
            assert_eq!((found, code), (status, -32602), "{params}");
            assert!(error["data"]["hint"].is_string(), "{error}");
        }
    }
    assert_eq!(site.job_count().await, 0);
}

#[tokio::test]
async fn reading_makes_no_job() {
    let site = Site::start().await;
    let caller = site.caller(1).await;
    let client = McpClient::new(&caller, STATELESS);
    let result = client.call("json_merge", json!({"values": [{"a": 1}, {"b": 2}]})).await;
    assert_eq!(result["structuredContent"], json!({"result": {"a": 1, "b": 2}}));
    assert!(result["_meta"]["catena/job"].is_null());
    let refused = client.call("json_merge", json!({"values": 5})).await;
    assert_eq!(
        (&refused["isError"], &refused["_meta"]["catena/status"]),
        (&json!(true), &json!("REJECTED"))
    );
    assert_eq!(caller.job_count().await, 0);
}

#[tokio::test]
async fn reading_makes_a_job_if_the_operator_wants_a_record() {
    let site = Site::with(|flags| flags.mcp_record = Some("all".to_owned())).await;
    let caller = site.caller(1).await;
    let client = McpClient::new(&caller, STATELESS);
    let result = client.call("json_merge", json!({"values": [{"a": 1}]})).await;
    assert_eq!(caller.job(&job(&result)).await["status"], "COMPLETE");
}

#[tokio::test]
async fn delegations_ride_along_and_are_not_input() {
    let site = Site::start().await;
    let caller = site.caller(1).await;
    let venue = site.get("/api/v1/status").await.json()["did"].as_str().unwrap().to_owned();
    let good = delegation(&KeyPair::from_seed(&[1; 32]), &venue, &[]);
    let client = McpClient::new(&caller, STATELESS);
    let result = client.call("test_echo", json!({"a": 1, "ucans": [good]})).await;
    assert_eq!(result["structuredContent"], json!({"a": 1}));
    // They are verified as by the grid API.
    for bad in ["one.two.three".to_owned(), delegation(&KeyPair::from_seed(&[2; 32]), &venue, &[])]
    {
        let params = json!({"name": "test_echo", "arguments": {"a": 1, "ucans": [bad]}});
        let error = client.reply("tools/call", params).await.json()["error"].clone();
        assert_eq!(error["data"]["code"], "delegation_invalid", "{error}");
    }
}

#[tokio::test]
async fn a_repeated_key_makes_one_job() {
    let site = Site::start().await;
    let client = McpClient::new(&site, STATELESS);
    let call = async |arguments: Json| {
        let params = json!({"name": "test_echo", "arguments": arguments});
        client.ask(client.message("tools/call", params).header("idempotency-key", "k")).await
    };
    let first = call(json!({"a": 1})).await.expect(200).json();
    let second = call(json!({"a": 1})).await.expect(200).json();
    assert_eq!(job(&first["result"]), job(&second["result"]));
    let other = call(json!({"a": 2})).await.expect(400).json();
    assert_eq!(other["error"]["data"]["code"], "idempotency_key_reused");
    assert_eq!(site.job_count().await, 1);
}

#[tokio::test]
async fn progress_is_sent_before_the_response_if_it_was_requested() {
    let site = Site::start().await;
    for (revision, token) in [("2025-03-26", json!("t")), (STATELESS, json!(7))] {
        let client = McpClient::new(&site, revision);
        let mut events = client
            .stream(json!({"name": "test_progress", "arguments": {"totalItems": 3, "itemMs": 300},
                "_meta": {"progressToken": token}}))
            .await;
        assert_eq!(events.head.header("content-type"), Some("text/event-stream"));
        assert_eq!(events.head.header("x-accel-buffering"), Some("no"));
        let mut messages: Vec<Json> =
            events.rest().await.into_iter().map(|event| event.data).collect();
        let answer = messages.pop().unwrap();
        assert_eq!(answer["result"]["structuredContent"]["processedItems"], 3, "{answer}");
        assert!(!messages.is_empty());
        let mut last = 0;
        for message in messages {
            assert_eq!(message["method"], "notifications/progress");
            let params = &message["params"];
            assert_eq!((&params["progressToken"], &params["total"]), (&token, &json!(3)));
            let progress = params["progress"].as_i64().unwrap();
            assert!(progress > last, "{message}");
            last = progress;
        }
    }
}

#[tokio::test]
async fn a_client_without_streams_gets_plain_json_however_long_it_takes() {
    let site = Site::start().await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "test_delay", "arguments": {"delay": 1200, "input": 1},
            "_meta": {"progressToken": 1}}});
    let request = site.request("POST", "/mcp").header("accept", "application/json").json(&body);
    let reply = site.ask(request).await.expect(200);
    assert!(reply.header("content-type").unwrap().starts_with("application/json"));
    assert_eq!(reply.json()["result"]["structuredContent"], json!({"result": 1}));
    let waiting = McpClient::new(&site, "2025-06-18");
    let params = json!({"name": "test_delay", "arguments": {"delay": 1200, "input": 2}});
    let reply = waiting.reply("tools/call", params).await.expect(200);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(last_message(reply)["result"]["structuredContent"], json!({"result": 2}));
}

#[tokio::test]
async fn closing_a_stateless_call_cancels_its_job_and_closing_an_older_one_does_not() {
    let site = Site::start().await;
    let streams = async || {
        let text = site.get("/metrics").await.expect(200).text().to_owned();
        let line = text.lines().find(|line| line.starts_with("catena_sse_clients ")).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let params = json!({"name": "test_progress", "arguments": {"totalItems": 1000, "itemMs": 100},
        "_meta": {"progressToken": 1}});
    let mut events = McpClient::new(&site, "2025-11-25").stream(params.clone()).await;
    events.next().await.unwrap();
    let client = McpClient::new(&site, STATELESS);
    let left = client.job_of("test:progress").await;
    drop(events);
    until(async || streams().await == "0").await;
    assert_eq!(site.job(&left).await["status"], "STARTED");
    site.control(&left, "delete").await.expect(200);

    let mut events = client.stream(params).await;
    events.next().await.unwrap();
    let taken_back = client.job_of("test:progress").await;
    drop(events);
    let ended = site.ended(&taken_back).await;
    assert_eq!(ended["status"], "CANCELLED");
    assert!(ended["error"].as_str().unwrap().contains("closed the call"), "{ended}");
    until(async || streams().await == "0").await;
}

#[tokio::test]
async fn a_venue_that_stops_answers_who_waits_and_the_job_goes_on_after_that() {
    let site = Site::start().await;
    let mut waiting = Vec::new();
    for revision in ["2025-06-18", STATELESS] {
        waiting.push(McpClient::new(&site, revision).begin("test_never", json!({})).await);
    }
    until(async || site.job_count().await == 2).await;
    let site = site.restarted().await;
    for mut connection in waiting {
        let answer = last_message(connection.reply().await.unwrap())["result"].clone();
        assert_eq!(answer["isError"], true);
        assert!(text(&answer).contains("It continues"), "{answer}");
        let status = site.job(&job(&answer)).await["status"].clone();
        assert!(status == "STARTED" || status == "PENDING", "{answer} is {status}");
    }
}

#[tokio::test]
async fn a_job_that_waits_for_somebody_is_told_at_once() {
    let site = Site::start().await;
    for revision in ["2024-11-05", "2025-11-25", STATELESS] {
        let client = McpClient::new(&site, revision);
        for (tool, status, part) in [
            ("test_chat", "INPUT_REQUIRED", "Send a message"),
            ("test_auth", "AUTH_REQUIRED", "auth/complete"),
            ("test_pause", "PAUSED", "/resume"),
        ] {
            let result = client.call(tool, json!({})).await;
            assert_eq!(result["isError"], true);
            assert_eq!(result["_meta"]["catena/status"], status);
            assert!(text(&result).contains(part), "{result}");
            let route = format!("http://{}/api/v1/jobs/{}", site.address, job(&result));
            assert!(text(&result).contains(&route), "{result}");
            assert_eq!(site.job(&job(&result)).await["status"], status, "it still waits");
        }
    }
}

#[tokio::test]
async fn a_question_is_asked_and_answered_by_calling_again() {
    let site = Site::start().await;
    let client = McpClient::with_capabilities(&site, json!({"elicitation": {"form": {}}}));
    let asked = client.call("test_chat", json!({"a": 1})).await;
    assert_eq!(asked["resultType"], "input_required");
    let state = asked["requestState"].as_str().unwrap().to_owned();
    let key = |result: &Json| {
        let requests = result["inputRequests"].as_object().unwrap();
        assert_eq!(requests.len(), 1, "{result}");
        requests.keys().next().unwrap().clone()
    };
    let request = &asked["inputRequests"][key(&asked)];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["mode"], "form");
    assert!(request["params"]["message"].as_str().unwrap().starts_with("Send a message"));
    assert_eq!(request["params"]["requestedSchema"]["type"], "object");

    let answer = async |key: &str, response: Json| {
        let params = json!({"name": "test_chat", "arguments": {"a": 1}, "requestState": state,
            "inputResponses": {key: response}});
        client.result("tools/call", params).await
    };
    let hello = json!({"action": "accept", "content": {"content": "hello"}});
    let first = key(&asked);
    let again = answer(&first, hello.clone()).await;
    assert_eq!(again["resultType"], "input_required");
    let second = key(&again);
    assert_ne!(first, second, "a key is used once");
    let message = again["inputRequests"][&second]["params"]["message"].as_str().unwrap();
    assert!(message.contains("hello"), "{message}");
    // An answer to an earlier question does not answer this one.
    let stale = answer(&first, hello).await;
    assert_eq!(key(&stale), second);
    let dismissed = answer(&second, json!({"action": "cancel"})).await;
    assert_eq!(
        (&dismissed["isError"], &dismissed["resultType"]),
        (&json!(true), &json!("complete"))
    );
    assert_eq!(site.job(&state).await["status"], "INPUT_REQUIRED");
    let done = answer(&second, json!({"action": "accept", "content": {"content": "done"}})).await;
    assert_eq!(done["structuredContent"]["message"], "done", "{done}");
    assert_eq!(job(&done), state);
    assert_eq!(site.job_count().await, 1);
}

#[tokio::test]
async fn declining_ends_the_job_and_only_its_caller_may_answer() {
    let site = Site::start().await;
    let elicits = json!({"elicitation": {}});
    let one = site.caller(1).await;
    let other = site.caller(2).await;
    let client = McpClient::with_capabilities(&one, elicits.clone());
    let asked = client.call("test_chat", json!({})).await;
    let state = asked["requestState"].clone();
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let params = |name: &str, response: Json| json!({"name": name, "requestState": state, "inputResponses": {key.as_str(): response}});
    let declined = json!({"action": "decline"});
    let foreign = McpClient::with_capabilities(&other, elicits);
    for (client, params) in [
        (&foreign, params("test_chat", declined.clone())),
        (&client, params("test_auth", declined.clone())),
        (&client, params("test_chat", json!({"action": "perhaps"}))),
        (&client, params("test_chat", json!({"action": "accept"}))),
        (&client, json!({"name": "test_chat", "requestState": "nonsense"})),
    ] {
        let (status, code, _) = client.refusal("tools/call", params).await;
        assert_eq!((status, code), (400, -32602));
    }
    let ended = client.result("tools/call", params("test_chat", declined)).await;
    assert_eq!(ended["_meta"]["catena/status"], "CANCELLED");
    assert_eq!(ended["isError"], true);
    assert!(text(&ended).contains("declined"), "{ended}");
}

/// A client that uses a handshake is asked within the response of its call.
#[tokio::test]
async fn a_question_is_asked_within_the_response_of_a_call() {
    let site = Site::start().await;
    for (revision, has_modes) in [("2025-06-18", false), ("2025-11-25", true)] {
        let client = McpClient::connected(&site, revision, json!({"elicitation": {}})).await;
        assert!(client.session().unwrap().starts_with("catena-f-"), "{:?}", client.session());
        let call = json!({"name": "test_chat", "arguments": {"a": 1}});
        let mut stream = client.stream(call).await;
        let first = stream.next().await.unwrap().data;
        assert_eq!(first["method"], "elicitation/create", "{first}");
        assert_eq!(first["params"].get("mode").is_some(), has_modes, "{first}");
        assert_eq!(first["params"]["requestedSchema"]["type"], "object");
        let hello = json!({"action": "accept", "content": {"content": "hello"}});
        client.respond(&first["id"], hello.clone()).await.expect(202);
        let second = stream.next().await.unwrap().data;
        assert!(second["params"]["message"].as_str().unwrap().contains("hello"), "{second}");
        assert_ne!(first["id"], second["id"]);
        // An answer to an earlier question does not answer this one.
        client.respond(&first["id"], hello).await.expect(202);
        let done = json!({"action": "accept", "content": {"content": "done"}});
        client.respond(&second["id"], done).await.expect(202);
        let last = stream.next().await.unwrap().data;
        assert_eq!(last["result"]["structuredContent"]["message"], "done", "{last}");
        assert!(stream.next().await.is_none());
    }
}

#[tokio::test]
async fn a_question_within_a_call_can_be_dismissed_and_declined_by_its_caller_alone() {
    let site = Site::start().await;
    let (one, other) = (site.caller(1).await, site.caller(2).await);
    let elicits = json!({"elicitation": {"form": {}, "url": {}}});
    let client = McpClient::connected(&one, "2025-11-25", elicits.clone()).await;
    let foreign = McpClient::connected(&other, "2025-11-25", elicits).await;
    let mut stream = client.stream(json!({"name": "test_chat"})).await;
    let asked = stream.next().await.unwrap().data;
    let decline = json!({"action": "decline"});
    assert_eq!(foreign.respond(&asked["id"], decline.clone()).await.status(), 400);
    client.respond(&asked["id"], json!({"action": "perhaps"})).await.expect(400);
    client.respond(&asked["id"], json!({"action": "cancel"})).await.expect(202);
    let dismissed = stream.next().await.unwrap().data["result"].clone();
    assert_eq!(dismissed["isError"], true);
    assert_eq!(one.job(&job(&dismissed)).await["status"], "INPUT_REQUIRED", "it still waits");
    let mut stream = client.stream(json!({"name": "test_chat"})).await;
    let asked = stream.next().await.unwrap().data;
    client.respond(&asked["id"], decline).await.expect(202);
    let declined = stream.next().await.unwrap().data["result"].clone();
    assert_eq!(declined["_meta"]["catena/status"], "CANCELLED");
    // What is no answer has no effect.
    for id in [json!(7), json!("x"), json!("x/y"), json!(null)] {
        client.respond(&id, json!({})).await.expect(202);
    }
}

/// A worker's question has the schema that the worker gives it.
#[tokio::test]
async fn the_question_of_a_worker_becomes_a_form() {
    let site = Site::start().await;
    let definition = json!({"name": "Ask", "operation": {"adapter": "worker", "queue": "ask"}});
    let request = site.request("PUT", "/api/v1/operations/ask").json(&definition);
    site.ask(request).await.expect(200);
    let client = McpClient::connected(&site, "2025-11-25", json!({"elicitation": {}})).await;
    let claim = json!({"worker": "w1", "queues": ["ask"], "max": 1, "waitMs": 20_000});
    let (mut stream, schema) = tokio::join!(client.stream(json!({"name": "o_ask"})), async {
        let claimed = site.post("/worker/v1/claim", &claim).await.expect(200).json();
        let held = &claimed["jobs"][0];
        let schema = json!({"type": "object", "properties": {
            "age": {"type": "integer", "default": 30}}});
        let ask = json!({"message": "How old?", "schema": schema});
        let path = format!("/worker/v1/jobs/{}/end", held["id"].as_str().unwrap());
        site.post(&path, &json!({"fence": held["fence"], "ask": ask})).await.expect(200);
        schema
    });
    let asked = stream.next().await.unwrap().data;
    assert_eq!(asked["params"]["requestedSchema"], schema, "{asked}");
    assert_eq!(asked["params"]["message"], "How old?");
    let answer = json!({"action": "accept", "content": {"age": 31}});
    client.respond(&asked["id"], answer).await.expect(202);
    let claimed = site.post("/worker/v1/claim", &claim).await.expect(200).json();
    let held = &claimed["jobs"][0];
    assert_eq!(held["message"]["age"], 31, "{held}");
    let path = format!("/worker/v1/jobs/{}/end", held["id"].as_str().unwrap());
    site.post(&path, &json!({"fence": held["fence"], "output": "old"})).await.expect(200);
    let last = stream.next().await.unwrap().data;
    assert_eq!(last["result"]["structuredContent"]["result"], "old", "{last}");
}

//! Level 3, the external call: one request to a language model.

use catena_tests::model::{Model, busy, calls, says, streams};
use catena_tests::service::{Service, json_response, response};
use catena_tests::site::{Client, Site};
use serde_json::{Value as Json, json};

use super::{ended, ran};

/// The key that must appear nowhere.
const KEY: &str = "sk-pl4nted/Key+7";

async fn site(model: &Model) -> Site {
    let host = model.host();
    Site::with(|flags| flags.allow_hosts = Some(host)).await
}

async fn set_secret(client: &Client, name: &str, input: Json) {
    let request = client.request("PUT", &format!("/api/v1/secrets/{name}")).json(&input);
    client.ask(request).await.expect(200);
}

/// "Level 3 knows about API serialisation, authentication, and provider-specific details."
#[tokio::test]
async fn a_model_is_asked_in_the_format_of_openai() {
    let model = Model::start(|_, _| says("Hello!")).await;
    let site = site(&model).await;
    let alice = site.caller(1).await;
    set_secret(&alice, "OPENAI_API_KEY", json!({"value": KEY})).await;
    let tools = json!([{"name": "f", "description": "d", "parameters": {"type": "object"}}]);
    let input = json!({"url": model.url(), "model": "m", "systemPrompt": "Be brief.", "tools": tools,
        "messages": [{"role": "user", "content": "hi"}]});
    let job = ended(&alice, "llm:chat", input).await;
    let output = &job["output"];
    assert_eq!((&output["role"], &output["content"]), (&json!("assistant"), &json!("Hello!")));
    assert_eq!(output["usage"]["totalTokens"], 15, "{output}");
    assert_eq!(output["model"], "scripted");
    let request = &model.received()[0];
    assert_eq!(request.headers["authorization"], format!("Bearer {KEY}"));
    let body = &model.bodies()[0];
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(body["messages"][1], json!({"role": "user", "content": "hi"}));
    assert_eq!(body["tools"][0]["function"]["name"], "f");
    let digest = |bytes: &str| {
        use sha2::Digest as _;
        let hex: String =
            sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("0x{hex}")
    };
    assert_eq!(output["requestHash"], digest(&request.body));
    let reply = says("Hello!");
    assert_eq!(output["responseHash"], digest(reply.split_once("\r\n\r\n").unwrap().1));
    // The same operation under the name that other venues use.
    let alias = json!({"url": model.url(), "model": "m", "prompt": "hi"});
    assert_eq!(ran(&alice, "v/ops/langchain/openai", alias).await["content"], "Hello!");
}

#[tokio::test]
async fn a_model_is_asked_in_the_format_of_anthropic() {
    let reply = json!({"type": "message", "model": "c", "stop_reason": "tool_use",
        "content": [{"type": "text", "text": "Wait"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
        "usage": {"input_tokens": 1, "output_tokens": 2}});
    let service = Service::start(move |_| json_response(200, &reply.to_string())).await;
    let host = service.host();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let alice = site.caller(1).await;
    set_secret(&alice, "ANTHROPIC_API_KEY", json!({"value": KEY})).await;
    let input =
        json!({"url": service.url("/v1"), "model": "c", "systemPrompt": "S", "prompt": "hi"});
    let output = ran(&alice, "langchain:anthropic", input).await;
    let call = json!({"id": "t", "name": "f", "arguments": "{\"a\":1}"});
    assert_eq!((&output["content"], &output["toolCalls"][0]), (&json!("Wait"), &call));
    let request = &service.received("/v1/messages")[0];
    assert_eq!(request.headers["x-api-key"], KEY);
    assert_eq!(request.headers["anthropic-version"], "2023-06-01");
    let body: Json = serde_json::from_str(&request.body).unwrap();
    assert_eq!(body["system"], "S");
}

#[tokio::test]
async fn streams_are_read_and_cut_streams_are_failures() {
    let model = Model::start(|_, number| match number {
        1 => streams(&["Hel", "lo"], None),
        2 => streams(&["Hel", "lo"], Some(1)),
        3 => json_response(200, "{\"choices\":[{\"mess"),
        4 => response(200, "", &"x".repeat(20_000_000)),
        5 => format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "y".repeat(20_000_000)),
        _ => json_response(400, r#"{"error":{"message":"no such model"}}"#),
    });
    let model = model.await;
    let site = site(&model).await;
    let input = json!({"url": model.url(), "model": "m", "prompt": "hi"});
    assert_eq!(ran(&site, "llm:chat", input.clone()).await["content"], "Hello");
    for code in ["model_reply", "model_reply", "too_large", "too_large", "http_400"] {
        let job = ended(&site, "llm:chat", input.clone()).await;
        assert_eq!((&job["status"], &job["errorCode"]), (&json!("FAILED"), &json!(code)), "{job}");
    }
    assert_eq!(model.received().len(), 6, "none of them is sent again");
}

#[tokio::test]
async fn a_busy_model_is_asked_again() {
    let model = Model::start(|_, number| match number {
        1 => busy(429, "0"),
        2 => busy(503, "0"),
        _ => says("now"),
    });
    let model = model.await;
    let site = site(&model).await;
    let input = json!({"url": model.url(), "model": "m", "prompt": "hi"});
    let output = ran(&site, "llm:chat", input).await;
    assert_eq!((&output["content"], &output["attempts"]), (&json!("now"), &json!(3)));
    let bodies = model.bodies();
    assert_eq!(bodies[0], bodies[2]);
}

/// `Retry-After` is the least time until the next request.
#[tokio::test]
async fn a_busy_model_is_asked_again_when_it_wants_to_be() {
    let times = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&times);
    let model = Model::start(move |_, number| {
        seen.lock().unwrap().push(tokio::time::Instant::now());
        if number == 1 { busy(429, "1") } else { says("now") }
    });
    let model = model.await;
    let site = site(&model).await;
    let input = json!({"url": model.url(), "model": "m", "prompt": "hi"});
    assert_eq!(ran(&site, "llm:chat", input).await["attempts"], 2);
    let times = times.lock().unwrap();
    let waited = times[1] - times[0];
    assert!(waited >= std::time::Duration::from_secs(1), "{waited:?}");
}

#[tokio::test]
async fn a_stream_in_the_format_of_anthropic_is_read() {
    let events = [
        json!({"type": "message_start", "message": {"model": "c", "usage": {"input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}),
        json!({"type": "message_stop"}),
    ];
    let stream = |count: usize| -> String {
        let events = events[..count].iter();
        let body: String = events
            .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
            .collect();
        let head = "content-type: text/event-stream\r\nconnection: close\r\n";
        format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}")
    };
    let (whole, cut) = (stream(7), stream(3));
    let service = Service::start(
        move |request| {
            if request.number == 1 { whole.clone() } else { cut.clone() }
        },
    )
    .await;
    let host = service.host();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let alice = site.caller(1).await;
    set_secret(&alice, "ANTHROPIC_API_KEY", json!({"value": KEY})).await;
    let input = json!({"url": service.url("/v1"), "model": "c", "prompt": "hi"});
    let output = ran(&alice, "langchain:anthropic", input.clone()).await;
    assert_eq!((&output["content"], &output["model"]), (&json!("Hello"), &json!("c")), "{output}");
    assert_eq!(output["usage"]["totalTokens"], 7, "{output}");
    let body: Json = serde_json::from_str(&service.received("/v1/messages")[0].body).unwrap();
    assert_eq!(body["stream"], true);
    let job = ended(&alice, "langchain:anthropic", input).await;
    assert_eq!(job["errorCode"], "model_reply", "a stream that is cut off: {job}");
}

/// "Operations that need API keys or other secrets resolve them from two sources, in priority order:
/// User's secret store … Input parameter — an optional plaintext field for testing only".
#[tokio::test]
async fn a_key_comes_from_the_secret_store_or_the_input_and_is_recorded_nowhere() {
    let model = Model::start(|_, _| says(&format!("your key is {KEY}"))).await;
    let site = site(&model).await;
    let alice = site.caller(1).await;
    let input = json!({"url": model.url(), "model": "m", "prompt": "hi", "apiKey": KEY});
    let job = ended(&alice, "llm:chat", input.clone()).await;
    assert_eq!(job["output"]["content"], "your key is [redacted]", "{job}");
    assert_eq!(job["input"]["apiKey"], json!({"redacted": true}));
    assert_eq!(model.received()[0].headers["authorization"], format!("Bearer {KEY}"));
    set_secret(&alice, "OPENAI_API_KEY", json!({"value": "sk-stored-0123456789"})).await;
    ran(&alice, "llm:chat", input).await;
    assert_eq!(model.received()[1].headers["authorization"], "Bearer sk-stored-0123456789");
    // Without a key, the service of somebody else is not asked.
    let job = ended(&site, "llm:chat", json!({"model": "m", "prompt": "hi"})).await;
    assert_eq!(job["errorCode"], "secret_not_found", "{job}");
    let id = job["id"].as_str().unwrap();
    let seen = alice.get(&format!("/api/v1/jobs/{id}/history")).await.text().to_owned();
    assert!(!seen.contains(KEY));
    assert_eq!(super::files_with(site.data(), KEY), Vec::<String>::new());
}

#[tokio::test]
async fn a_model_that_is_not_there_stands_in_for_one() {
    let site = Site::start().await;
    let output = ran(&site, "v/test/ops/llm", json!({"prompt": "hi"})).await;
    assert_eq!(output["content"], "hi");
    let messages = json!([{"role": "user", "content": "tool covia_read {\"path\":\"w/a\"}"}]);
    let output = ran(&site, "test:toolllm", json!({"messages": messages})).await;
    assert_eq!(output["toolCalls"][0]["name"], "covia_read");
    // What a scripted model says is what the operation returns.
    assert!(calls(&[("a", "{}")]).contains("tool_calls"));
}

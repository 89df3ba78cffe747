//! A language model whose answers a test decides, in the wire format of OpenAI, over real HTTP.

use serde_json::{Value as Json, json};

use crate::service::{ReceivedRequest, Service, json_response, response};

/// The path of the requests.
const PATH: &str = "/v1/chat/completions";

/// The server, which stops when this is dropped.
pub struct Model {
    service: Service,
}

impl Model {
    /// A model on a free port. `answer` returns the complete response to a request, from its body and its
    /// number, which begins with 1.
    pub async fn start(answer: impl Fn(&Json, usize) -> String + Send + Sync + 'static) -> Model {
        let service = Service::start(move |request: &ReceivedRequest| {
            let body = serde_json::from_str(&request.body).unwrap_or(Json::Null);
            answer(&body, request.number)
        });
        Model { service: service.await }
    }

    /// Its host and port.
    pub fn host(&self) -> String {
        self.service.host()
    }

    /// The URL for `url` of a configuration.
    pub fn url(&self) -> String {
        self.service.url("/v1")
    }

    /// The requests that it received.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.service.received(PATH)
    }

    /// The bodies of the requests that it received.
    pub fn bodies(&self) -> Vec<Json> {
        let received = self.received();
        received.iter().map(|request| serde_json::from_str(&request.body).unwrap()).collect()
    }
}

fn document(message: Json, finish: &str) -> String {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5});
    let choice = json!({"index": 0, "message": message, "finish_reason": finish});
    json_response(
        200,
        &json!({"model": "scripted", "choices": [choice], "usage": usage}).to_string(),
    )
}

/// An answer.
pub fn says(text: &str) -> String {
    document(json!({"role": "assistant", "content": text}), "stop")
}

/// An answer that asks for tools, by name and arguments.
pub fn calls(tools: &[(&str, &str)]) -> String {
    let call = |(at, (name, arguments)): (usize, &(&str, &str))| {
        json!({"id": format!("call_{at}"), "type": "function",
            "function": {"name": name, "arguments": arguments}})
    };
    let calls: Vec<Json> = tools.iter().enumerate().map(call).collect();
    document(json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
}

/// An answer as a stream of one event for each part. It is cut off after so many events, if a number is
/// given.
pub fn streams(parts: &[&str], cut_after: Option<usize>) -> String {
    let mut events: Vec<String> = parts
        .iter()
        .map(|part| {
            json!({"model": "scripted", "choices": [{"delta": {"content": part}}]}).to_string()
        })
        .collect();
    events.push(
        json!({"choices": [{"delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
        .to_string(),
    );
    events.push("[DONE]".to_owned());
    events.truncate(cut_after.unwrap_or(events.len()));
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let head = "content-type: text/event-stream\r\nconnection: close\r\n";
    format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}")
}

/// A response that says that the service is busy.
pub fn busy(status: u16, retry_after: &str) -> String {
    response(status, &format!("retry-after: {retry_after}\r\n"), r#"{"error":"busy"}"#)
}

/// The content of the last message of a request.
pub fn last_content(body: &Json) -> String {
    let last = body["messages"].as_array().and_then(|messages| messages.last());
    last.and_then(|last| last["content"].as_str()).unwrap_or_default().to_owned()
}

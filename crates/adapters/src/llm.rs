//! `llm`: language models, and agents that are driven by one.
//!
//! **What it does:** `chat` sends one conversation to a model and returns its answer, in the wire format of
//! OpenAI, which many services share, or of Anthropic. `agent` is a transition of an agent: it passes
//! messages to a model, runs the tools that the model asks for, and keeps the conversation in its state.
//! `langchain:*` are other names of `chat`, one for each service.
//!
//! **Cost:** `chat` is one request, and up to four more if the service is busy. `agent` is one sub-job for
//! each answer of the model and for each tool call.
//!
//! **Cancellation:** its future is dropped, which closes the connection. What the service charges by then
//! is charged.
//!
//! **Repetition:** `chat` is not repeated by recovery, because it is paid for. `agent` is repeated and finds
//! in its chain what it called before, so that no answer is paid for twice and no tool acts twice.

mod agent;
mod anthropic;
mod config;
mod conversation;
mod openai;
mod sse;
mod tools;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catena_engine::operations::Problem;
use catena_engine::{
    Adapter, Call, ExecutionMode, Failure, Operation, Registration, RetryAdvice, SecretPurpose,
    TurnFuture,
};
use catena_value::{Map, NoCells, Value, json};
use hyper::Method;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use url::Url;

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::{Fields, array, invalid_input, object, text};
use crate::http::policy::status_failure;
use crate::limits::{
    MODEL_ATTEMPTS_MAX, MODEL_BACKOFF, MODEL_BACKOFF_MAX, MODEL_REPLY_BYTES_MAX, MODEL_TIME,
    MODEL_TIME_MAX,
};
use crate::nested;
use crate::outbound::{Outbound, Redirects, Request, Response};
use wire::{Answer, Question, ToolCall, invalid_reply, to_json};

/// The adapter.
#[derive(Debug)]
pub(crate) struct Llm {
    outbound: Arc<Outbound>,
}

impl Llm {
    pub(crate) fn new(outbound: Arc<Outbound>) -> Self {
        Llm { outbound }
    }
}

/// The adapter with the names that other venues use.
#[derive(Debug)]
pub(crate) struct Langchain {
    outbound: Arc<Outbound>,
}

impl Langchain {
    pub(crate) fn new(outbound: Arc<Outbound>) -> Self {
        Langchain { outbound }
    }
}

// Operations.

const CHAT: Definition = Definition {
    name: "chat",
    title: "Ask a language model",
    description: "Sends a conversation to a language model and returns its answer. The key is the caller's \
                  secret `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`.",
    mode: ExecutionMode::Task,
    marks: &[],
    input: Some(
        r#"{"type":"object","properties":{
            "messages":{"type":["array","null"],"maxItems":10000,"description":"`{role, content}`, with `toolCalls` or `toolCallId`","items":{"type":"object","required":["role"]}},
            "prompt":{"type":["string","null"],"description":"One message of the user"},
            "systemPrompt":{"type":["string","null"]},
            "model":{"type":["string","null"]},
            "url":{"type":["string","null"],"description":"The service, such as `https://api.openai.com/v1`"},
            "provider":{"enum":[null,"openai","anthropic","ollama","xai"],"description":"The wire format; by default that of the URL"},
            "tools":{"type":["array","null"],"maxItems":128,"description":"`{name, description, parameters}`","items":{"type":"object"}},
            "responseFormat":{"description":"`\"json\"`, or `{name, schema}`"},
            "maxTokens":{"type":["integer","null"],"minimum":1,"maximum":10000000},
            "temperature":{"type":["number","null"]},
            "timeoutMs":{"type":["integer","null"],"minimum":1,"maximum":600000,"description":"120000 by default"},
            "apiKey":{"type":["string","null"],"writeOnly":true,"description":"For tests: the key, if there is no secret"}}}"#,
    ),
    output: Some(
        r#"{"type":"object","required":["role","content"],"properties":{
            "role":{"type":"string"},"content":{"type":"string"},
            "toolCalls":{"type":"array","items":{"type":"object","required":["id","name","arguments"],"properties":{
                "id":{"type":"string"},"name":{"type":"string"},"arguments":{"type":"string","description":"As the model wrote them"}}}},
            "finishReason":{"type":"string"},"model":{"type":"string"},"provider":{"type":"string"},
            "usage":{"type":"object","properties":{"inputTokens":{"type":"integer"},"outputTokens":{"type":"integer"},"totalTokens":{"type":"integer"}}},
            "attempts":{"type":"integer"},
            "requestHash":{"type":"string","description":"SHA-256 of the body of the request"},
            "responseHash":{"type":"string","description":"SHA-256 of the body of the reply"}}}"#,
    ),
};

const OPERATIONS: &[Definition] = &[
    CHAT,
    Definition {
        name: "agent",
        title: "Agent with a language model",
        description: "A transition of an agent: passes its messages to a language model, runs the tools that the \
                      model asks for, and keeps the conversations in `state.sessions`. `state.config` says which \
                      model and which tools.",
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["agent-id","messages"],"properties":{
                "agent-id":{"type":"string"},"state":{},"messages":{"type":"array"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["state","result"],"properties":{
                "state":{"type":"object"},
                "result":{"type":"object","required":["response"],"properties":{
                    "response":{"description":"The answer to the last message"},
                    "responses":{"type":"object","description":"The answers by session"},
                    "toolCalls":{"type":"integer"},
                    "usage":{"type":"object"},
                    "stopped":{"type":"string","enum":["tool_calls","token_budget"]}}}}}"#,
        ),
        ..CHAT
    },
];

const ALIASES: &[Definition] = &[
    Definition { name: "openai", title: "Ask a model of OpenAI", ..CHAT },
    Definition { name: "anthropic", title: "Ask a model of Anthropic", ..CHAT },
    Definition { name: "ollama", title: "Ask a model that runs locally", ..CHAT },
    Definition { name: "xai", title: "Ask a model of xAI", ..CHAT },
];

/// Adds the names of the secrets that an operation uses to its metadata.
fn with_secrets(mut registration: Registration) -> Registration {
    let names = match registration.name {
        "chat" => vec![Provider::OpenAi, Provider::Anthropic],
        "agent" => Vec::new(),
        name => Provider::parse(name).into_iter().collect(),
    };
    let names: Vec<Value> = names.iter().filter_map(|p| p.secret()).map(Value::from).collect();
    let metadata = registration.metadata.as_map();
    let operation = metadata.and_then(|map| map.field("operation")).and_then(Value::as_map);
    let changed = operation
        .filter(|_| !names.is_empty())
        .and_then(|operation| operation.insert("secrets".into(), array(names), &NoCells).ok())
        .and_then(|operation| {
            metadata?.insert("operation".into(), operation.into(), &NoCells).ok()
        });
    if let Some(changed) = changed {
        registration.metadata = changed.into();
    }
    registration
}

// Input.

/// A service with models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provider {
    OpenAi,
    Anthropic,
    Ollama,
    Xai,
}

impl Provider {
    fn parse(name: &str) -> Option<Provider> {
        let all = [Provider::OpenAi, Provider::Anthropic, Provider::Ollama, Provider::Xai];
        all.into_iter().find(|provider| provider.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Provider::OpenAi => "openai",
            Provider::Anthropic => "anthropic",
            Provider::Ollama => "ollama",
            Provider::Xai => "xai",
        }
    }

    /// The URL if the input names none.
    fn url(self) -> &'static str {
        match self {
            Provider::OpenAi => "https://api.openai.com/v1",
            Provider::Anthropic => "https://api.anthropic.com/v1",
            Provider::Ollama => "http://localhost:11434/v1",
            Provider::Xai => "https://api.x.ai/v1",
        }
    }

    /// The model if the input names none.
    fn model(self) -> &'static str {
        match self {
            Provider::OpenAi => "gpt-4o-mini",
            Provider::Anthropic => "claude-3-5-haiku-latest",
            Provider::Ollama | Provider::Xai => "",
        }
    }

    /// The name of the secret with the key.
    fn secret(self) -> Option<&'static str> {
        match self {
            Provider::OpenAi => Some("OPENAI_API_KEY"),
            Provider::Anthropic => Some("ANTHROPIC_API_KEY"),
            Provider::Xai => Some("XAI_API_KEY"),
            Provider::Ollama => None,
        }
    }

    fn path(self) -> &'static str {
        if self == Provider::Anthropic { "messages" } else { "chat/completions" }
    }
}

/// What `chat` was asked to do.
#[derive(Debug)]
struct ChatInput {
    provider: Provider,
    question: Question,
    request: Request,
    /// True if the URL is the service's own, which the input does not choose.
    is_default: bool,
    api_key: Option<String>,
}

impl ChatInput {
    fn parse(operation: &str, input: &Value) -> Result<ChatInput, Failure> {
        let fields = Fields::from_value(input)?;
        let given = fields.optional_text("url")?;
        let named = fields.optional_text("provider")?;
        let provider = Provider::parse(named.as_deref().unwrap_or(operation));
        let is_anthropic = given.as_deref().is_some_and(|url| url.contains("//api.anthropic.com/"));
        let by_url = if is_anthropic { Provider::Anthropic } else { Provider::OpenAi };
        let provider = provider.unwrap_or(by_url);
        let question = Question::parse(input, provider.model())?;
        let url = endpoint(given.as_deref().unwrap_or(provider.url()), provider)?;
        let is_default = url == endpoint(provider.url(), provider)?;
        let body = match provider {
            Provider::Anthropic => anthropic::body(&question)?,
            _ => openai::body(&question),
        };
        let mut request = Request::new(Method::POST, url);
        request.body = Bytes::from(to_json(&body)?);
        request.headers = headers(provider);
        // A key is for one host, and a model does not move.
        request.redirects = Redirects::Return;
        request.response_bytes_max = MODEL_REPLY_BYTES_MAX;
        let most = i64::try_from(MODEL_TIME_MAX.as_millis()).unwrap_or(i64::MAX);
        let time = fields.integer("timeoutMs", 1, most)?;
        request.time = time.map_or(MODEL_TIME, |ms| Duration::from_millis(ms.unsigned_abs()));
        let api_key = fields.optional_text("apiKey")?.filter(|key| !key.is_empty());
        Ok(ChatInput { provider, question, request, is_default, api_key })
    }
}

/// Returns the URL to which a request is sent.
fn endpoint(base: &str, provider: Provider) -> Result<Url, Failure> {
    let invalid = |error: url::ParseError| Failure::new("invalid_url", format!("`url`: {error}"));
    let mut url = Url::parse(base).map_err(invalid)?;
    let path = format!("{}/{}", url.path().trim_end_matches('/'), provider.path());
    url.set_path(&path);
    Ok(url)
}

fn headers(provider: Provider) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    if provider == Provider::Anthropic {
        let name = HeaderName::from_static("anthropic-version");
        headers.insert(name, HeaderValue::from_static(anthropic::VERSION));
    }
    headers
}

/// Adds the key to a request.
fn add_key(request: &mut Request, provider: Provider, key: &str) -> Result<(), Failure> {
    let (name, value) = match provider {
        Provider::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
        _ => (AUTHORIZATION, format!("Bearer {key}")),
    };
    // The library's error would contain the key.
    let value = HeaderValue::try_from(value);
    let mut value =
        value.map_err(|_| Failure::new("invalid_header", "the key is not a valid header value"))?;
    value.set_sensitive(true);
    request.headers.insert(name, value);
    Ok(())
}

// Output.

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{hex}")
}

fn output(answer: &Answer, input: &ChatInput, reply: &[u8], attempts: u32) -> Value {
    let model = answer.model.as_deref().unwrap_or(&input.question.model);
    let total = answer.input_tokens.saturating_add(answer.output_tokens);
    let usage = object([
        ("inputTokens", answer.input_tokens.into()),
        ("outputTokens", answer.output_tokens.into()),
        ("totalTokens", total.into()),
    ]);
    let mut members = vec![
        ("role", Value::from("assistant")),
        ("content", answer.content.as_str().into()),
        ("model", model.into()),
        ("provider", input.provider.name().into()),
        ("usage", usage),
        ("attempts", i64::from(attempts).into()),
        ("requestHash", sha256(&input.request.body).into()),
        ("responseHash", sha256(reply).into()),
    ];
    if !answer.calls.is_empty() {
        let calls = answer.calls.iter().map(ToolCall::to_value).collect();
        members.push(("toolCalls", array(calls)));
    }
    members.extend(answer.finish.as_deref().map(|reason| ("finishReason", reason.into())));
    members.into_iter().collect::<Map>().into()
}

// Execution.

impl Adapter for Llm {
    fn name(&self) -> &'static str {
        "llm"
    }

    fn description(&self) -> &'static str {
        "Asks language models, and drives agents with them."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS).into_iter().map(with_secrets).collect()
    }

    fn check(&self, operation: &Operation) -> Vec<Problem> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn run(&self, call: Call) -> TurnFuture {
        let outbound = Arc::clone(&self.outbound);
        Box::pin(async move {
            match call.operation.name() {
                "chat" => chat(&outbound, &call).await.into(),
                "agent" => agent::turn(&call).await.into(),
                _ => Err(nested::unsupported_operation(&call)).into(),
            }
        })
    }
}

impl Adapter for Langchain {
    fn name(&self) -> &'static str {
        "langchain"
    }

    fn description(&self) -> &'static str {
        "Other names of llm:chat, one for each service."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), ALIASES).into_iter().map(with_secrets).collect()
    }

    fn check(&self, operation: &Operation) -> Vec<Problem> {
        check_reference(operation.adapter_ref(), ALIASES)
    }

    fn run(&self, call: Call) -> TurnFuture {
        let outbound = Arc::clone(&self.outbound);
        Box::pin(async move { chat(&outbound, &call).await.into() })
    }
}

async fn chat(outbound: &Outbound, call: &Call) -> Result<Value, Failure> {
    let mut input = ChatInput::parse(call.operation.name(), &call.input)?;
    if let Some(key) = find_key(call, &input).await? {
        add_key(&mut input.request, input.provider, &key)?;
    }
    let (response, attempts) = send(outbound, call, &input.request).await?;
    let answer = read_answer(input.provider, &response)?;
    Ok(output(&answer, &input, &response.body, attempts))
}

/// Returns the key for the service: the secret of the caller, else the one in the input. `None` if there is
/// none, which a service of one's own may not need.
async fn find_key(call: &Call, input: &ChatInput) -> Result<Option<String>, Failure> {
    if let Some(key) = &input.api_key {
        call.control.hide(key);
    }
    let Some(name) = input.provider.secret() else { return Ok(input.api_key.clone()) };
    let host = input.request.host();
    let purpose = if input.is_default {
        SecretPurpose::send_to_default(host)
    } else {
        SecretPurpose::send(host)
    };
    let found = match call.secret(name, purpose).await {
        // Then the input decides.
        Err(failure) if failure.code == "secret_refused" && input.api_key.is_some() => None,
        found => found?,
    };
    let key = found.or_else(|| input.api_key.clone());
    if key.is_none() && input.is_default {
        let text = format!("the caller has no secret `{name}`; store it with secret:set");
        return Err(Failure::new("secret_not_found", text));
    }
    Ok(key)
}

/// Sends a request, and sends it again while the service is busy. Returns the reply and the number of
/// requests.
async fn send(
    outbound: &Outbound,
    call: &Call,
    request: &Request,
) -> Result<(Response, u32), Failure> {
    let mut backoff = MODEL_BACKOFF;
    for attempt in 1..=MODEL_ATTEMPTS_MAX {
        let response = outbound.send(request.clone(), &call.control).await?;
        if response.status.is_success() {
            return Ok((response, attempt));
        }
        let failure = status_failure(&request.host(), &response, call.control.now());
        if failure.retry == RetryAdvice::Never || attempt == MODEL_ATTEMPTS_MAX {
            return Err(failure);
        }
        let mut random = [0; 2];
        call.host.env().random(&mut random);
        let jitter = backoff.mul_f64(f64::from(u16::from_le_bytes(random)) / 131_072.0);
        let delay = failure.after.unwrap_or(backoff + jitter).min(MODEL_BACKOFF_MAX);
        call.control.sleep(delay).await;
        backoff = backoff.saturating_mul(2);
    }
    Err(Failure::transient("timeout", "the model is busy"))
}

/// Reads the reply, which is a stream or a document, whatever was asked for.
fn read_answer(provider: Provider, response: &Response) -> Result<Answer, Failure> {
    let body = std::str::from_utf8(&response.body);
    let body = body.map_err(|_| invalid_reply("the reply of the model is not text"))?;
    let kind = response.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
        || body.starts_with("data:")
        || body.starts_with("event:");
    let is_anthropic = provider == Provider::Anthropic;
    if is_stream {
        let events = sse::parse(body)?;
        return if is_anthropic {
            anthropic::read_stream(&events)
        } else {
            openai::read_stream(&events)
        };
    }
    let document = json::read(body.as_bytes())
        .map_err(|error| invalid_reply(format!("the reply of the model is not JSON: {error}")))?;
    if is_anthropic { anthropic::read(&document) } else { openai::read(&document) }
}

/// Returns the text of a value: a string as it is, anything else as JSON.
fn as_text(value: &Value) -> Result<String, Failure> {
    match text(value) {
        Some(text) => Ok(text),
        None => json::to_string(value).map_err(|error| invalid_input(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    fn parse(operation: &str, input: &str) -> ChatInput {
        ChatInput::parse(operation, &value(input)).unwrap()
    }

    #[test]
    fn the_wire_format_follows_from_the_operation_or_the_url() {
        let chat = parse("chat", r#"{"model":"m","prompt":"hi","url":"http://127.0.0.1:1/v1/"}"#);
        assert_eq!(chat.provider, Provider::OpenAi);
        assert_eq!(chat.request.url.as_str(), "http://127.0.0.1:1/v1/chat/completions");
        assert!(!chat.is_default);
        let by_url =
            parse("chat", r#"{"model":"m","prompt":"hi","url":"https://api.anthropic.com/v1"}"#);
        assert_eq!(by_url.request.url.as_str(), "https://api.anthropic.com/v1/messages");
        assert!(by_url.is_default);
        let named = parse("anthropic", r#"{"prompt":"hi","url":"http://localhost:9/x"}"#);
        assert_eq!(named.request.url.as_str(), "http://localhost:9/x/messages");
        assert_eq!(parse("xai", r#"{"prompt":"hi","model":"g"}"#).provider, Provider::Xai);
    }

    #[test]
    fn a_key_is_a_sensitive_header() {
        let mut chat = parse("openai", r#"{"prompt":"hi"}"#);
        add_key(&mut chat.request, chat.provider, "k").unwrap();
        assert!(chat.request.headers[AUTHORIZATION].is_sensitive());
        assert!(add_key(&mut chat.request, chat.provider, "a\nb").is_err());
        assert!(!String::from_utf8_lossy(&chat.request.body).contains("Bearer"));
    }

    #[test]
    fn operations_name_their_secrets() {
        let named = |definitions: &[Definition]| -> Vec<String> {
            let all = registrations("x", definitions).into_iter().map(with_secrets);
            all.map(|one| json::to_string(&one.metadata).unwrap()).collect()
        };
        assert!(
            named(OPERATIONS)[0].contains(r#""secrets":["OPENAI_API_KEY","ANTHROPIC_API_KEY"]"#)
        );
        assert!(!named(OPERATIONS)[1].contains(r#""secrets""#));
        assert!(named(ALIASES)[3].contains(r#""secrets":["XAI_API_KEY"]"#));
    }

    #[test]
    fn a_question_needs_a_message_and_a_model() {
        for refused in [r#"{"model":"m"}"#, r#"{"model":"m","systemPrompt":"x"}"#] {
            assert_eq!(
                ChatInput::parse("chat", &value(refused)).unwrap_err().code,
                "invalid_input"
            );
        }
        let no_model = r#"{"prompt":"hi","provider":"ollama"}"#;
        assert!(ChatInput::parse("chat", &value(no_model)).is_err());
    }
}

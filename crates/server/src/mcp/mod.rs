//! The MCP door: operations as tools, jobs as tasks.
//!
//! Every request stands alone. What a client can do is read from the request itself (2026-07-28) or
//! assumed from the revision it names (the older ones, after a handshake that changes nothing here),
//! so there is no session, and any replica can answer. A call is a job like any other: durable, the
//! caller's own, listed, and not ended when somebody stops waiting for it.
//!
//! Modules, in reading order: `message` (JSON-RPC), `revision` (what a client speaks and can do),
//! `about` (who the venue is), `tools` (operations as tools), `calls` (a tool is called), `outcome`
//! (a job as the result of a call), `input` (a job that asks), `tasks` (jobs as tasks), `listen`
//! (changes as they come), `stream` (an answer that takes a while).

mod about;
mod calls;
mod input;
mod listen;
mod message;
mod outcome;
mod revision;
pub(crate) mod routes;
mod stream;
mod tasks;
mod tools;

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use catena_engine::Caller;
use catena_engine::request::IdempotencyKey;
use catena_value::{Map, NoCells, Value};
use futures_util::future::join_all;

pub(crate) use about::well_known;
pub(crate) use tools::Tools;

use self::message::{Incoming, Message, Refusal, Rendered, Request};
use self::outcome::Answer;
use self::revision::{Client, Revision};
use self::stream::{Notes, Patience};
use crate::http::error::ApiResult;
use crate::http::request::{Call, read_json};
use crate::http::response;
use crate::http::service::Door;
use crate::http::sse;
use crate::limits::MCP_BATCH_MAX;

/// A request, with everything that is known about whoever made it.
struct Asked {
    door: Arc<Door>,
    caller: Caller,
    client: Client,
    /// Where the venue is reached.
    base_url: String,
    /// Makes a repeated call harmless.
    key: Option<IdempotencyKey>,
    notes: Notes,
}

type Answered = Result<Answer, Refusal>;

/// Answers one POST.
pub(crate) async fn post(mut call: Call) -> ApiResult<Response> {
    let body = call.read_body().await?;
    let incoming = match read_json(&body) {
        Ok(value) => Incoming::read(value),
        Err(error) => return Ok(Refusal::not_json(&error).rendered(None).into_response()),
    };
    drop(body);
    match incoming {
        Incoming::One(message) => one(call, message).await,
        Incoming::Batch(messages) => batch(call, messages).await,
    }
}

/// Answers one message.
async fn one(call: Call, message: Result<Message, Refusal>) -> ApiResult<Response> {
    let request = match message {
        Ok(Message::Request(request)) => request,
        // What a client tells us changes nothing: there is no session that it could be about.
        Ok(Message::Notification | Message::Response) => {
            return Ok(match Revision::of_header(&call.head.headers) {
                Ok(_) => response::empty(StatusCode::ACCEPTED),
                Err(refusal) => refusal.rendered(None).into_response(),
            });
        }
        Err(refusal) => return Ok(refusal.rendered(None).into_response()),
    };
    let client = match Client::of(&call.head.headers, &request) {
        Ok(client) => client,
        Err(refusal) => return Ok(refusal.for_request(&request).rendered(None).into_response()),
    };
    let key = match calls::key(&call, &request) {
        Ok(key) => key,
        Err(error) => {
            let refusal = Refusal::from(error).for_request(&request);
            return Ok(refusal.rendered(Some(client.revision)).into_response());
        }
    };
    let accepts_stream = sse::check_accept(&call.head.headers).is_ok();
    let (notes, told) = Notes::of(&request, accepts_stream);
    let patience = Patience::of(&notes);
    let base_url = crate::grid::identity::base_url(&call);
    let caller = call.caller.clone();
    let door = call.into_door();
    let asked = Asked { door: Arc::clone(&door), caller, client, base_url, key, notes };
    let answering = Box::pin(async move { answered(asked, request).await });
    Ok(stream::respond(&door, answering, told, accepts_stream.then_some(patience)).await)
}

/// Answers several messages at once, as the first revisions allow.
async fn batch(call: Call, messages: Vec<Result<Message, Refusal>>) -> ApiResult<Response> {
    if let Err(refusal) = check_batch(&call.head.headers, &messages) {
        return Ok(refusal.rendered(None).into_response());
    }
    let answering = messages.into_iter().filter_map(|message| match message {
        Ok(Message::Request(request)) => Some(Ok(request)),
        Ok(Message::Notification | Message::Response) => None,
        Err(refusal) => Some(Err(refusal)),
    });
    let base_url = crate::grid::identity::base_url(&call);
    let answering = answering.map(|request| {
        let (door, caller) = (Arc::clone(&call.door), call.caller.clone());
        let base_url = base_url.clone();
        async move {
            let request = match request {
                Ok(request) => request,
                Err(refusal) => return refusal.rendered(None).text,
            };
            if request.method == "initialize" {
                let refusal = Refusal::invalid_request("`initialize` cannot be part of a batch");
                return refusal.for_request(&request).rendered(None).text;
            }
            let client = Client::silent(Revision::WITHOUT_HEADER);
            let notes = Notes::none();
            let asked = Asked { door, caller, client, base_url, key: None, notes };
            answered(asked, request).await.text
        }
    });
    let texts = join_all(answering.collect::<Vec<_>>()).await;
    if texts.is_empty() {
        return Ok(response::empty(StatusCode::ACCEPTED));
    }
    Ok(response::json(StatusCode::OK, format!("[{}]", texts.join(","))))
}

fn check_batch(headers: &HeaderMap, messages: &[Result<Message, Refusal>]) -> Result<(), Refusal> {
    if !Revision::of_header(headers)?.allows_batches() {
        return Err(Refusal::invalid_request("this revision has no batches: send one message"));
    }
    match messages.len() {
        0 => Err(Refusal::invalid_request("a batch has at least one message")),
        1..=MCP_BATCH_MAX => Ok(()),
        _ => Err(Refusal::invalid_request(format!("a batch has at most {MCP_BATCH_MAX} messages"))),
    }
}

/// Carries out a request and writes down what came of it.
async fn answered(asked: Asked, request: Request) -> Rendered {
    let (revision, server) = (asked.client.revision, about::implementation(&asked.door));
    match dispatch(asked, &request).await {
        Ok(answer) => answer.rendered(&request, revision, server),
        Err(refusal) => refusal.for_request(&request).rendered(Some(revision)),
    }
}

async fn dispatch(asked: Asked, request: &Request) -> Answered {
    let params = &request.params;
    if asked.client.revision.is_stateless() {
        return match request.method.as_str() {
            "server/discover" => Ok(about::discover(&asked).into()),
            "tools/list" => tools::list(&asked, params),
            "tools/call" => calls::call(asked, params).await,
            "tasks/get" => tasks::get(&asked, params).await,
            "tasks/update" => tasks::update(&asked, params).await,
            "tasks/cancel" => tasks::cancel(&asked, params).await,
            "subscriptions/listen" => listen::listen(asked, request).await,
            other => Err(Refusal::no_method(other)),
        };
    }
    match request.method.as_str() {
        "initialize" => Ok(about::initialize(&asked, params).into()),
        "ping" => Ok(Value::from(Map::new()).into()),
        "tools/list" => tools::list(&asked, params),
        "tools/call" => calls::call(asked, params).await,
        "tasks/get" => tasks::get(&asked, params).await,
        "tasks/result" => tasks::result(asked, params).await,
        "tasks/list" => tasks::list(&asked, params).await,
        "tasks/cancel" => tasks::cancel(&asked, params).await,
        other => Err(Refusal::no_method(other)),
    }
}

/// A member that is text, when there is one.
fn text<'a>(params: &'a Map, name: &str) -> Result<Option<&'a str>, Refusal> {
    match params.field(name) {
        None | Some(Value::Nil) => Ok(None),
        Some(value) => value
            .as_str()
            .map(Some)
            .ok_or_else(|| Refusal::invalid_params(format!("`{name}` must be a string"))),
    }
}

/// A member that is an object, when there is one.
fn map<'a>(params: &'a Map, name: &str) -> Result<Option<&'a Map>, Refusal> {
    match params.field(name) {
        None | Some(Value::Nil) => Ok(None),
        Some(value) => value
            .as_map()
            .map(Some)
            .ok_or_else(|| Refusal::invalid_params(format!("`{name}` must be an object"))),
    }
}

/// An object with one more member.
fn with(map: &Map, name: &str, value: Value) -> Map {
    // What came as JSON is wholly in memory.
    map.insert(name.into(), value, &NoCells).unwrap_or_else(|_| map.clone())
}

//! From the body of a POST to method calls, and back to a response.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use catena_value::{Map, Value};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::http::error::ApiResult;
use crate::http::json;
use crate::http::memory;
use crate::http::request::{ApiRequest, act_under};
use crate::http::response;
use crate::http::sse;
use crate::identity::authenticate::Admission;
use crate::limits::MCP_BATCH_MAX;
use crate::mcp::client::{self, Client, revision_of_header};
use crate::mcp::context::RequestContext;
use crate::mcp::json_rpc::{RpcBody, RpcError, RpcMessage, RpcRequest, RpcResponse};
use crate::mcp::notifications::Notifications;
use crate::mcp::revision::Revision;
use crate::mcp::rpc_result::MethodResult;
use crate::mcp::stream::{self, StreamDelay};
use crate::mcp::{
    call_tool, list_tools, prompts, questions, resources, server_info, subscriptions, tasks,
};

/// Handles `POST /mcp`.
pub(super) async fn post(mut request: ApiRequest) -> ApiResult<Response> {
    let body = request.read_body().await?;
    let parsed = match json::parse(&body) {
        Ok(value) => RpcBody::parse(value),
        Err(error) => return Ok(RpcError::not_json(&error).into_http_response(None)),
    };
    drop(body);
    match parsed {
        RpcBody::Single(message) => handle_message(request, message).await,
        RpcBody::Batch(messages) => handle_batch(request, messages).await,
    }
}

async fn handle_message(
    request: ApiRequest,
    message: Result<RpcMessage, RpcError>,
) -> ApiResult<Response> {
    let rpc = match message {
        Ok(RpcMessage::Request(rpc)) => rpc,
        // Notifications change nothing: there is no session that they could be about.
        Ok(RpcMessage::Notification) => {
            return Ok(match revision_of_header(&request.head.headers) {
                Ok(_) => response::empty(StatusCode::ACCEPTED),
                Err(error) => error.into_http_response(None),
            });
        }
        Ok(RpcMessage::Response(reply)) => {
            let received = match revision_of_header(&request.head.headers) {
                Ok(_) => questions::receive(request, reply).await,
                Err(error) => Err(error),
            };
            return Ok(received.unwrap_or_else(|error| error.into_http_response(None)));
        }
        Err(error) => return Ok(error.into_http_response(None)),
    };
    let client = match Client::of_request(&request.head.headers, &rpc) {
        Ok(client) => client,
        Err(error) => return Ok(error.for_request(&rpc).into_http_response(None)),
    };
    let key = match call_tool::idempotency_key(&request, &rpc) {
        Ok(key) => key,
        Err(error) => {
            let error = RpcError::from(error).for_request(&rpc);
            return Ok(error.into_http_response(Some(client.revision)));
        }
    };
    let accepts_stream = sse::check_accept(&request.head.headers).is_ok();
    let (notifications, queue) = Notifications::for_request(&rpc, &client, accepts_stream);
    let session = session_of(&client, &rpc);
    let delay = StreamDelay::for_notifications(&notifications);
    let base_url = request.base_url();
    let caller = request.caller.clone();
    let admission = request.admission;
    let memory = request.memory.open_another();
    let (state, reserved) = request.into_state();
    let context = RequestContext {
        state: Arc::clone(&state),
        caller,
        admission,
        client,
        base_url,
        key,
        notifications,
    };
    // The response may become a stream, which outlives the handler.
    let memory = Arc::new(Mutex::new(memory));
    let response = Box::pin(async move {
        let _reserved = reserved;
        memory::counting(&memory, respond_to(context, rpc)).await
    });
    let delay = accepts_stream.then_some(delay);
    let mut response = stream::respond(&state, response, queue, delay).await;
    if let Some(session) = session {
        response.headers_mut().insert(client::SESSION, session);
    }
    Ok(response)
}

/// The ID of the session that a handshake begins, if the client needs one.
fn session_of(client: &Client, rpc: &RpcRequest) -> Option<HeaderValue> {
    if rpc.method != "initialize" || client.revision.is_stateless() {
        return None;
    }
    let mut random = [0; 8];
    // It is unique for the sake of logs, not a secret.
    let _ = getrandom::fill(&mut random);
    let session = client::new_session(&rpc.params, u64::from_be_bytes(random))?;
    HeaderValue::from_str(&session).ok()
}

/// Handles several messages in one body, which only the first revisions allow.
async fn handle_batch(
    request: ApiRequest,
    messages: Vec<Result<RpcMessage, RpcError>>,
) -> ApiResult<Response> {
    if let Err(error) = check_batch(&request.head.headers, &messages) {
        return Ok(error.into_http_response(None));
    }
    let requests = messages.into_iter().filter_map(|message| match message {
        Ok(RpcMessage::Request(rpc)) => Some(Ok(rpc)),
        Ok(RpcMessage::Notification | RpcMessage::Response(_)) => None,
        Err(error) => Some(Err(error)),
    });
    let base_url = request.base_url();
    let responses = requests.map(|rpc| {
        let state = Arc::clone(&request.state);
        let caller = request.caller.clone();
        let admission = request.admission;
        let base_url = base_url.clone();
        async move {
            let rpc = match rpc {
                Ok(rpc) => rpc,
                Err(error) => return error.into_rpc_response(None).text,
            };
            if rpc.method == "initialize" {
                let error = RpcError::invalid_request("`initialize` cannot be part of a batch");
                return error.for_request(&rpc).into_rpc_response(None).text;
            }
            let client = Client::without_capabilities(Revision::WITHOUT_HEADER);
            let notifications = Notifications::disabled();
            let key = None;
            let context =
                RequestContext { state, caller, admission, client, base_url, key, notifications };
            respond_to(context, rpc).await.text
        }
    });
    let texts = join_all(responses.collect::<Vec<_>>()).await;
    if texts.is_empty() {
        return Ok(response::empty(StatusCode::ACCEPTED));
    }
    Ok(response::json(StatusCode::OK, format!("[{}]", texts.join(","))))
}

fn check_batch(
    headers: &HeaderMap,
    messages: &[Result<RpcMessage, RpcError>],
) -> Result<(), RpcError> {
    if !revision_of_header(headers)?.allows_batches() {
        let error = "this revision does not allow batches; send one message per request";
        return Err(RpcError::invalid_request(error));
    }
    match messages.len() {
        0 => Err(RpcError::invalid_request("a batch must have at least one message")),
        1..=MCP_BATCH_MAX => Ok(()),
        _ => {
            let error = format!("a batch must have at most {MCP_BATCH_MAX} messages");
            Err(RpcError::invalid_request(error))
        }
    }
}

/// Runs the method of a request and renders its result or error.
async fn respond_to(context: RequestContext, rpc: RpcRequest) -> RpcResponse {
    let revision = context.client.revision;
    let server = server_info::implementation(&context.state);
    match call_method(context, &rpc).await {
        Ok(result) => result.into_rpc_response(&rpc, revision, server),
        Err(error) => error.for_request(&rpc).into_rpc_response(Some(revision)),
    }
}

/// The methods that an identity may use which is not on the access list: the handshake, which
/// reveals nothing, and calls, whose delegations are checked.
const UNLISTED_METHODS: [&str; 4] = ["initialize", "ping", "server/discover", "tools/call"];

async fn call_method(context: RequestContext, rpc: &RpcRequest) -> MethodResult {
    let params = &rpc.params;
    if context.admission != Admission::Admitted && !UNLISTED_METHODS.contains(&rpc.method.as_str())
    {
        let refused = act_under(&context.state, &context.caller, context.admission, Vec::new());
        return Err(refused.map_or_else(RpcError::from, |_| RpcError::unknown_method(&rpc.method)));
    }
    if context.client.revision.is_stateless() {
        return match rpc.method.as_str() {
            "server/discover" => Ok(server_info::discover(&context).into()),
            "tools/list" => list_tools::list(&context, params).await,
            "tools/call" => call_tool::call(context, params).await,
            "resources/list" => resources::list(&context, params).await,
            "resources/templates/list" => resources::templates(&context),
            "resources/read" => resources::read(&context, params).await,
            "prompts/list" => prompts::list(&context, params).await,
            "prompts/get" => prompts::get(&context, params).await,
            "completion/complete" => prompts::complete(&context, params).await,
            "tasks/get" => tasks::get(&context, params).await,
            "tasks/update" => tasks::update(&context, params).await,
            "tasks/cancel" => tasks::cancel(&context, params).await,
            "subscriptions/listen" => subscriptions::listen(context, rpc).await,
            other => Err(RpcError::unknown_method(other)),
        };
    }
    match rpc.method.as_str() {
        "initialize" => Ok(server_info::initialize(&context, params).into()),
        "ping" => Ok(Value::from(Map::new()).into()),
        "tools/list" => list_tools::list(&context, params).await,
        "tools/call" => call_tool::call(context, params).await,
        "resources/list" => resources::list(&context, params).await,
        "resources/templates/list" => resources::templates(&context),
        "resources/read" => resources::read(&context, params).await,
        "prompts/list" => prompts::list(&context, params).await,
        "prompts/get" => prompts::get(&context, params).await,
        "completion/complete" => prompts::complete(&context, params).await,
        "tasks/get" => tasks::get(&context, params).await,
        "tasks/result" => tasks::result(context, params).await,
        "tasks/list" => tasks::list(&context, params).await,
        "tasks/cancel" => tasks::cancel(&context, params).await,
        other => Err(RpcError::unknown_method(other)),
    }
}

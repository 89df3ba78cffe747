//! How the venue presents itself to MCP clients.

use axum::http::StatusCode;
use axum::response::Response;
use catena_value::{Map, Value};

use crate::http::VERSION;
use crate::http::error::ApiResult;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::state::ServerState;
use crate::limits::MCP_LIST_TTL_MS;
use crate::mcp::client::TASKS_EXTENSION;
use crate::mcp::context::RequestContext;
use crate::mcp::revision::Revision;
use crate::values::object;

/// Instructions for models, about the venue as a whole.
const INSTRUCTIONS: &str = "Every tool is an operation of a Catena venue. Calling a tool creates a durable job, whose ID is \
    `catena/job` in the result's `_meta`. If a job takes long, the result names it and the job continues; it is not lost.";

/// The name and version of this server.
pub(super) fn implementation(state: &ServerState) -> Value {
    let members = [("name", "catena"), ("title", state.name.as_str()), ("version", VERSION)];
    object(members.map(|(name, text)| (name, text.into())))
}

/// The result of `initialize`, the handshake, which changes nothing on the server.
pub(super) fn initialize(context: &RequestContext, params: &Map) -> Value {
    let requested = params.field("protocolVersion").and_then(Value::as_str);
    let revision = Revision::negotiate(requested);
    object([
        ("protocolVersion", revision.as_str().into()),
        ("capabilities", capabilities(revision)),
        ("serverInfo", implementation(&context.state)),
        ("instructions", INSTRUCTIONS.into()),
    ])
}

/// The result of `server/discover`, which replaces the handshake in the stateless revision.
pub(super) fn discover(context: &RequestContext) -> Value {
    let mut members = vec![
        ("supportedVersions", Revision::supported()),
        ("capabilities", capabilities(Revision::NEWEST)),
        ("instructions", INSTRUCTIONS.into()),
    ];
    members.extend(cache_hints(&context.state));
    object(members)
}

/// How long and by whom a result may be cached that is the same for all callers.
pub(super) fn cache_hints(state: &ServerState) -> [(&'static str, Value); 2] {
    // Where every caller needs a token, shared caches must not keep what they see.
    let scope = if state.authenticator.is_anonymous_on() { "public" } else { "private" };
    [("ttlMs", MCP_LIST_TTL_MS.into()), ("cacheScope", scope.into())]
}

fn capabilities(revision: Revision) -> Value {
    let empty = || object::<&str>([]);
    let mut members =
        vec![("tools", object([("listChanged", false.into())])), ("resources", empty())];
    members.push(("prompts", object([("listChanged", false.into())])));
    if revision.has_completions() {
        members.push(("completions", empty()));
    }
    if revision.is_stateless() {
        members.push(("extensions", object([(TASKS_EXTENSION, empty())])));
    } else if revision.requests_tasks() {
        let requests = object([("tools", object([("call", empty())]))]);
        let tasks = [("list", empty()), ("cancel", empty()), ("requests", requests)];
        members.push(("tasks", object(tasks)));
    }
    object(members)
}

/// Handles `GET /.well-known/mcp`, by which the Covia SDKs find the endpoint.
pub(super) async fn well_known(request: ApiRequest) -> ApiResult<Response> {
    let base = request.base_url();
    let name = request.state.name.as_str();
    let url = format!("{base}/mcp");
    let endpoint = [("type", "streamable-http"), ("url", &url)];
    let document = object([
        ("mcp_version", Revision::NEWEST.as_str().into()),
        ("supported_versions", Revision::supported()),
        ("name", name.into()),
        ("description", format!("The operations of {name} as tools").into()),
        ("server_url", url.as_str().into()),
        ("tools_endpoint", url.as_str().into()),
        ("endpoint", object(endpoint.map(|(name, text)| (name, text.into())))),
    ]);
    Ok(response::value(StatusCode::OK, &document))
}

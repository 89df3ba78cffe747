//! Who the venue is, in every way that clients ask for it.

use axum::http::StatusCode;
use axum::response::Response;
use catena_value::{Map, Value, json};

use super::Asked;
use super::revision::{Revision, TASKS};
use crate::grid::identity::{VERSION, base_url};
use crate::http::error::ApiResult;
use crate::http::request::Call;
use crate::http::response;
use crate::http::service::Door;
use crate::limits::MCP_LIST_TTL_MS;
use crate::values::object;

/// What a model is told about the venue as a whole.
const INSTRUCTIONS: &str = "Every tool is an operation of a Catena venue. Calling one makes a durable job, whose ID is \
    `catena/job` in the result's `_meta`. A job that takes long is not lost: the result then names it, and it goes on.";

/// What runs here.
pub(super) fn implementation(door: &Door) -> Value {
    let members = [("name", "catena"), ("title", door.name.as_str()), ("version", VERSION)];
    object(members.map(|(name, text)| (name, text.into())))
}

/// The answer to a handshake. It changes nothing here.
pub(super) fn initialize(asked: &Asked, params: &Map) -> Value {
    let wanted = params.field("protocolVersion").and_then(Value::as_str);
    let revision = Revision::negotiated(wanted);
    object([
        ("protocolVersion", revision.as_str().into()),
        ("capabilities", capabilities(revision)),
        ("serverInfo", implementation(&asked.door)),
        ("instructions", INSTRUCTIONS.into()),
    ])
}

/// The same for clients without a handshake.
pub(super) fn discover(asked: &Asked) -> Value {
    let mut members = vec![
        ("supportedVersions", Revision::supported()),
        ("capabilities", capabilities(Revision::NEWEST)),
        ("instructions", INSTRUCTIONS.into()),
    ];
    members.extend(cache_hints(&asked.door));
    object(members)
}

/// How long an answer that is the same for all may be kept, and by whom.
pub(super) fn cache_hints(door: &Door) -> [(&'static str, Value); 2] {
    // Where everybody needs a token, what they see is not for caches that others read.
    let scope = if door.identities.has_public_access() { "public" } else { "private" };
    [("ttlMs", MCP_LIST_TTL_MS.into()), ("cacheScope", scope.into())]
}

fn capabilities(revision: Revision) -> Value {
    let nothing = || object::<&str>([]);
    let mut members = vec![("tools", object([("listChanged", false.into())]))];
    if revision.is_stateless() {
        members.push(("extensions", object([(TASKS, nothing())])));
    } else if revision.asks_for_tasks() {
        let requests = object([("tools", object([("call", nothing())]))]);
        let tasks = [("list", nothing()), ("cancel", nothing()), ("requests", requests)];
        members.push(("tasks", object(tasks)));
    }
    object(members)
}

/// Where the door is: what the Covia SDKs ask for.
pub(crate) async fn well_known(call: Call) -> ApiResult<Response> {
    let (base, door) = (base_url(&call), &call.door);
    let url = format!("{base}/mcp");
    let endpoint = [("type", "streamable-http"), ("url", &url)];
    let members = object([
        ("mcp_version", Revision::NEWEST.as_str().into()),
        ("supported_versions", Revision::supported()),
        ("name", door.name.as_str().into()),
        ("description", format!("The operations of {} as tools", door.name).into()),
        ("server_url", base.into()),
        ("tools_endpoint", url.as_str().into()),
        ("endpoint", object(endpoint.map(|(name, text)| (name, text.into())))),
    ]);
    Ok(response::json(StatusCode::OK, json::to_string(&members).unwrap_or_default()))
}

//! `tools/list`: the tools and their definitions.

use catena_value::{Map, Value};

use crate::http::memory;
use crate::limits::{MCP_NAMED_PAGE_BYTES_MAX, MCP_NAMED_TTL_MS, MCP_PAGE_MAX};
use crate::mcp::context::RequestContext;
use crate::mcp::json_rpc::RpcError;
use crate::mcp::params::text;
use crate::mcp::revision::Revision;
use crate::mcp::rpc_result::{MethodResult, RpcResult};
use crate::mcp::server_info;
use crate::tools::Tool;
use crate::values::{list as list_of, object};

/// Lists tools in the order of their names, one page at a time: those of the catalogue, and the operations
/// to which the caller has given names.
pub(super) async fn list(context: &RequestContext, params: &Map) -> MethodResult {
    let tools = &context.state.tools;
    let named = tools.named(&context.state.engine, &context.caller).await?;
    let after = text(params, "cursor")?;
    let is_known = |name: &&str| tools.by_name(name).is_some() || named.contains_key(*name);
    if let Some(name) = after.filter(|name| !is_known(name)) {
        return Err(RpcError::invalid_params(format!("`cursor` is not valid: {name}")));
    }
    let mut names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    names.extend(named.keys().map(String::as_str));
    names.sort_unstable();
    let rest = names.into_iter().skip_while(|name| after.is_some_and(|after| *name <= after));
    let rest: Vec<&str> = rest.collect();
    let revision = context.client.revision;
    let mut definitions = Vec::new();
    let mut seen = 0;
    let mut named_bytes = 0;
    for name in rest.iter().copied().take(MCP_PAGE_MAX) {
        if named_bytes >= MCP_NAMED_PAGE_BYTES_MAX {
            break;
        }
        seen += 1;
        match (tools.by_name(name), named.get(name)) {
            (Some(tool), _) => definitions.push(definition(tool, revision)),
            (None, Some(reference)) => {
                if let Some(tool) = find_named(context, name, reference).await {
                    let definition = definition(&tool, revision);
                    memory::reserve_part(&definition)?;
                    named_bytes += definition.memory_bytes(MCP_NAMED_PAGE_BYTES_MAX);
                    definitions.push(definition);
                }
            }
            (None, None) => {}
        }
    }
    let mut members = vec![("tools", list_of(definitions))];
    let (page, more) = rest.split_at(seen.min(rest.len()));
    if let Some(last) = page.last().filter(|_| !more.is_empty()) {
        members.push(("nextCursor", (*last).into()));
    }
    if revision.is_stateless() {
        members.extend(cache_hints(context, named.is_empty()));
    }
    Ok(RpcResult::from(object(members)))
}

/// What caches may do with the list. Names change at any time, and are those of one caller.
fn cache_hints(context: &RequestContext, is_general: bool) -> Vec<(&'static str, Value)> {
    if is_general && !context.caller.is_authenticated() {
        return server_info::cache_hints(&context.state).into();
    }
    vec![("ttlMs", MCP_NAMED_TTL_MS.into()), ("cacheScope", "private".into())]
}

/// The tool for a named operation of the caller. `None` if the venue cannot run it.
pub(super) async fn find_named(
    context: &RequestContext,
    name: &str,
    reference: &str,
) -> Option<Tool> {
    let operation = context.state.engine.resolve(&context.caller, reference).await.ok()?;
    Some(Tool::named(name, reference, operation))
}

fn definition(tool: &Tool, revision: Revision) -> Value {
    let metadata = tool.operation.metadata().as_map();
    let text = |name: &str| metadata.and_then(|metadata| metadata.field(name)).cloned();
    let any_object = || object([("type", "object".into())]);
    let mut members = vec![
        ("name", Value::from(tool.name.as_str())),
        ("inputSchema", tool.input_schema().cloned().unwrap_or_else(any_object)),
        ("annotations", annotations(tool, text("name"))),
    ];
    members.extend(text("name").map(|title| ("title", title)));
    members.extend(text("description").map(|about| ("description", about)));
    members.extend(tool.output_schema().cloned().map(|schema| ("outputSchema", schema)));
    if revision.requests_tasks() {
        members.push(("execution", object([("taskSupport", "optional".into())])));
    }
    object(members)
}

/// The guarantees of the operation, as hints. Where it guarantees nothing, the client decides.
fn annotations(tool: &Tool, title: Option<Value>) -> Value {
    let is_marked = |mark: &str| tool.operation.member(mark) == Some(true.into());
    let is_pure = is_marked("pure");
    let is_read_only = is_pure || is_marked("readOnly");
    let mut members: Vec<(&str, Value)> = Vec::new();
    members.extend(title.map(|title| ("title", title)));
    members.push(("readOnlyHint", is_read_only.into()));
    if is_read_only {
        members.push(("destructiveHint", false.into()));
    }
    if is_read_only || is_marked("idempotent") {
        members.push(("idempotentHint", true.into()));
    }
    if is_pure {
        members.push(("openWorldHint", false.into()));
    }
    object(members)
}

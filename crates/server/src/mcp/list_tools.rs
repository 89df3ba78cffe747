//! `tools/list`: the tools and their definitions.

use catena_value::{Map, Value};

use crate::limits::MCP_PAGE_MAX;
use crate::mcp::context::RequestContext;
use crate::mcp::json_rpc::RpcError;
use crate::mcp::params::text;
use crate::mcp::revision::Revision;
use crate::mcp::rpc_result::{MethodResult, RpcResult};
use crate::mcp::server_info;
use crate::tools::Tool;
use crate::values::{list as list_of, object};

/// Lists tools in the order of their names, one page at a time.
pub(super) fn list(context: &RequestContext, params: &Map) -> MethodResult {
    let tools = &context.state.tools;
    let after = text(params, "cursor")?;
    if let Some(name) = after.filter(|name| tools.by_name(name).is_none()) {
        return Err(RpcError::invalid_params(format!("`cursor` is not valid: {name}")));
    }
    let mut rest =
        tools.iter().skip_while(|tool| after.is_some_and(|after| tool.name.as_str() <= after));
    let page: Vec<&Tool> = rest.by_ref().take(MCP_PAGE_MAX).collect();
    let revision = context.client.revision;
    let mut members = vec![("tools", list_of(page.iter().map(|tool| definition(tool, revision))))];
    if let Some(last) = page.last().filter(|_| rest.next().is_some()) {
        members.push(("nextCursor", last.name.as_str().into()));
    }
    if revision.is_stateless() {
        members.extend(server_info::cache_hints(&context.state));
    }
    Ok(RpcResult::from(object(members)))
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

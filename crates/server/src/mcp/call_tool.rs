//! `tools/call`: a tool is called.
//!
//! The call is a job, and the client waits for it: until it ends, until it needs something, or for as
//! long as a request may last. Waiting changes nothing about the job. Only the stateless revision has
//! a way to withdraw a call, which is to close the connection; the job is then cancelled. A client
//! that wants a job to outlive the connection asks for a task.

use std::sync::Arc;

use catena_engine::error::InvokeError;
use catena_engine::limits::WAIT_MAX;
use catena_engine::requests::{IdempotencyKey, Invoke, JobView};
use catena_engine::{Caller, Engine};
use catena_job::JobId;
use catena_value::{Map, NoCells, Value, json};

use crate::http::error::ApiResult;
use crate::http::request::{ApiRequest, act_under};
use crate::limits::{DELEGATIONS_MAX, MCP_URL_WAIT};
use crate::mcp::call_result;
use crate::mcp::context::RequestContext;
use crate::mcp::elicitation::{self, ElicitationOutcome};
use crate::mcp::json_rpc::{RpcError, RpcRequest};
use crate::mcp::params::{map, text};
use crate::mcp::rpc_result::MethodResult;
use crate::mcp::snapshot::JobSnapshot;
use crate::mcp::wait::until_settled;
use crate::mcp::{list_tools, questions, tasks};
use crate::tools::{DELEGATIONS, Tool};
use crate::values::list;

/// The client's idempotency key for a call: the same key with the same tool and arguments is the
/// same call, whatever the ID of the JSON-RPC request.
pub(super) fn idempotency_key(
    request: &ApiRequest,
    rpc: &RpcRequest,
) -> ApiResult<Option<IdempotencyKey>> {
    if rpc.method != "tools/call" {
        return Ok(None);
    }
    let member = |name: &str| rpc.params.field(name).cloned().unwrap_or_default();
    let call = list([member("name"), member("arguments")]);
    request.idempotency_key("mcp", &[], json::to_string(&call).unwrap_or_default().as_bytes())
}

/// Calls a tool, or continues a call that needed input.
pub(super) async fn call(mut context: RequestContext, params: &Map) -> MethodResult {
    let name =
        text(params, "name")?.ok_or_else(|| RpcError::invalid_params("`name` is missing"))?;
    let tool = find_tool(&context, name).await?;
    let tool = tool.ok_or_else(|| RpcError::invalid_params(format!("Unknown tool: {name}")))?;
    if context.client.revision.is_stateless()
        && let Some(state) = text(params, "requestState")?
    {
        return continue_call(context, &tool, state, params).await;
    }
    let invoke = invocation(&mut context, &tool, params)?;
    let is_task = context.client.revision.requests_tasks() && map(params, "task")?.is_some();
    if tool.operation.is_read_only() && !is_task && !context.state.records_mcp_reads {
        let invoke = Invoke { wait: Some(WAIT_MAX), ..invoke };
        return call_result::of_run(&tool, context.state.engine.run(invoke).await);
    }
    let invoked = match context.state.engine.invoke(invoke).await {
        Err(InvokeError::Forbidden(denial)) => return Ok(call_result::denied(denial)),
        invoked => invoked?,
    };
    let snapshot = JobSnapshot::from(invoked.view);
    if is_task {
        return Ok(tasks::created(&context, &snapshot));
    }
    let guard = if invoked.is_replay {
        CancelOnDrop::disarmed()
    } else {
        CancelOnDrop::for_job(&context, snapshot.job.id())
    };
    let snapshot = until_settled(&mut context, snapshot, None).await?;
    let snapshot = questions::ask(&mut context, snapshot).await?;
    guard.disarm();
    result_of(&context, &tool, &snapshot)
}

/// The tool with this name: one of the catalogue, or a named operation of the caller.
async fn find_tool(context: &RequestContext, name: &str) -> Result<Option<Arc<Tool>>, RpcError> {
    let tools = &context.state.tools;
    if let Some(tool) = tools.by_name(name) {
        return Ok(Some(Arc::clone(tool)));
    }
    let named = tools.named(&context.state.engine, &context.caller).await?;
    let Some(reference) = named.get(name) else { return Ok(None) };
    Ok(list_tools::find_named(context, name, reference).await.map(Arc::new))
}

/// The engine's request for a call.
fn invocation(context: &mut RequestContext, tool: &Tool, params: &Map) -> Result<Invoke, RpcError> {
    let arguments = map(params, "arguments")?.cloned().unwrap_or_default();
    let (input, delegations) = tool.split_arguments(&arguments);
    let delegations = delegations.as_ref().map(parse_delegations).transpose()?.unwrap_or_default();
    let caller = act_under(&context.state, &context.caller, context.admission, delegations)?;
    let invoke = Invoke::new(caller, &tool.reference, input);
    Ok(Invoke { idempotency: context.key.take(), ..invoke })
}

/// Delegations, as compact tokens.
fn parse_delegations(value: &Value) -> Result<Vec<String>, RpcError> {
    let error = || {
        let most = DELEGATIONS_MAX;
        RpcError::invalid_params(format!(
            "`{DELEGATIONS}` must be an array of at most {most} strings"
        ))
    };
    let items = value.as_vector().filter(|items| items.len() <= DELEGATIONS_MAX as u64);
    let items = items.ok_or_else(error)?.iter(&NoCells);
    let text = |item: Value| item.as_str().map(str::to_owned).ok_or_else(error);
    items.map(|item| item.map_err(|_| error()).and_then(text)).collect()
}

/// The result of a call after the wait for its job.
fn result_of(context: &RequestContext, tool: &Tool, snapshot: &JobSnapshot) -> MethodResult {
    let status = snapshot.job.status();
    if !status.is_terminal() && context.client.accepts_tasks {
        return Ok(tasks::created(context, snapshot));
    }
    if context.client.revision.is_stateless()
        && let Some(elicitation) = elicitation::for_client(&context.client, snapshot)
    {
        return Ok(elicitation.into_result(snapshot));
    }
    Ok(call_result::of_job(context, Some(tool), snapshot)?)
}

/// Continues a call that needed input: the client repeats the call with `requestState` and the
/// responses of its user.
async fn continue_call(
    mut context: RequestContext,
    tool: &Tool,
    state: &str,
    params: &Map,
) -> MethodResult {
    let id = tasks::parse_id(state)?;
    let engine = context.state.engine.clone();
    let snapshot = JobSnapshot::from(engine.job(&context.caller, id).await?);
    if snapshot.text("operation") != Some(tool.operation.id_text()) {
        let error = format!("`requestState` does not belong to a call of {}", tool.name);
        return Err(RpcError::invalid_params(error));
    }
    let responses = map(params, "inputResponses")?.cloned().unwrap_or_default();
    let known = snapshot.job.head();
    let outcome = elicitation::deliver(&engine, &context.caller, &snapshot, &responses).await?;
    let snapshot = match outcome {
        ElicitationOutcome::NoResponse => snapshot,
        ElicitationOutcome::Dismissed => {
            return Ok(call_result::of_job(&context, Some(tool), &snapshot)?);
        }
        ElicitationOutcome::Answered | ElicitationOutcome::Declined => {
            let guard = CancelOnDrop::for_job(&context, id);
            let snapshot = until_settled(&mut context, snapshot, Some(known)).await?;
            guard.disarm();
            snapshot
        }
        // What the user does on the page takes time, and the client asks again.
        ElicitationOutcome::VisitedUrl => {
            let is_known = |view: &JobView| view.job.head() == known;
            engine.wait_for_change(&context.caller, id, MCP_URL_WAIT, is_known).await?.into()
        }
    };
    result_of(&context, tool, &snapshot)
}

/// Cancels a job if the call that made it is withdrawn, which drops the guard before it is disarmed.
struct CancelOnDrop(Option<(Engine, Caller, JobId)>);

impl CancelOnDrop {
    fn disarmed() -> Self {
        CancelOnDrop(None)
    }

    fn for_job(context: &RequestContext, job: JobId) -> Self {
        // In the revisions with a handshake a lost connection does not withdraw a call.
        let is_armed = context.client.revision.is_stateless();
        let target = || (context.state.engine.clone(), context.caller.clone(), job);
        CancelOnDrop(is_armed.then(target))
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some((engine, caller, job)) = self.0.take() else { return };
        // A venue that is stopping closes connections too, which withdraws nothing.
        if !engine.is_ready() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let reason = Some("the MCP client closed the call".to_owned());
            if let Err(error) = engine.cancel(&caller, job, reason).await {
                tracing::warn!(%job, %error, "could not cancel the job of a withdrawn tool call");
            }
        });
    }
}

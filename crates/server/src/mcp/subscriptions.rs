//! `subscriptions/listen`: one stream of notifications for the tasks that a client names.
//!
//! The subscription is first acknowledged, as far as there is something to subscribe to: the list of
//! tools changes only with a restart, which ends the stream. Each record of a task's job is sent as
//! the complete task. The stream ends with its last task, when the venue stops, or after a time.

use catena_engine::views::{Follow, JobEvent, Reader};
use catena_job::JobId;
use catena_value::{NoCells, Value};
use futures_util::future::join_all;

use crate::http::error::{ApiError, Code};
use crate::limits::{MCP_LISTEN_MAX, MCP_LISTEN_TASKS_MAX};
use crate::mcp::context::RequestContext;
use crate::mcp::json_rpc::{RpcError, RpcRequest};
use crate::mcp::notifications::notification_text;
use crate::mcp::params::map;
use crate::mcp::rpc_result::{MethodResult, RpcResult};
use crate::mcp::snapshot::JobSnapshot;
use crate::mcp::tasks;
use crate::values::{list, object};

const SUBSCRIPTION_META: &str = "io.modelcontextprotocol/subscriptionId";

/// Sends notifications until there are no more.
pub(super) async fn listen(context: RequestContext, request: &RpcRequest) -> MethodResult {
    let requested = map(&request.params, "notifications")?
        .ok_or_else(|| RpcError::invalid_params("`notifications` is missing"))?;
    let ids = requested.field("taskIds").map(parse_task_ids).transpose()?.unwrap_or_default();
    if !ids.is_empty() {
        context.client.check_tasks()?;
    }
    if !context.notifications.is_enabled() {
        let error = "notifications need an event stream, which the client does not accept";
        return Err(ApiError::new(Code::NotAcceptable, error).into());
    }
    let mut followed = Vec::new();
    for id in ids {
        let reader = Reader::Caller(&context.caller);
        // Tasks that the caller may not see are left out of the acknowledgement.
        if let Ok(follow) = context.state.engine.follow(reader, id, None).await {
            followed.push((id, follow));
        }
    }
    let meta = object([(SUBSCRIPTION_META, request.id.clone())]);
    let params = object([("_meta", meta.clone()), ("notifications", acknowledged(&followed))]);
    let text = notification_text("notifications/subscriptions/acknowledged", params, &NoCells)?;
    context.notifications.send(text).await;
    let notifying = async {
        let is_empty = followed.is_empty();
        let tasks = followed.into_iter().map(|(_, follow)| notify_of_task(&context, follow, &meta));
        join_all(tasks.collect::<Vec<_>>()).await;
        if is_empty {
            context.state.engine.stopping().await;
        }
    };
    // A client that wants to continue after the time is up subscribes again.
    let _ = tokio::time::timeout(MCP_LISTEN_MAX, notifying).await;
    Ok(RpcResult::from(object([("_meta", meta)])))
}

fn parse_task_ids(value: &Value) -> Result<Vec<JobId>, RpcError> {
    let error = || {
        let most = MCP_LISTEN_TASKS_MAX;
        RpcError::invalid_params(format!("`taskIds` must be an array of at most {most} strings"))
    };
    let items = value.as_vector().filter(|items| items.len() <= MCP_LISTEN_TASKS_MAX as u64);
    let items: Vec<Value> = items.ok_or_else(error)?.iter(&NoCells).flatten().collect();
    items.iter().map(|item| tasks::parse_id(item.as_str().ok_or_else(error)?)).collect()
}

fn acknowledged(followed: &[(JobId, Follow)]) -> Value {
    match followed {
        [] => object::<&str>([]),
        some => object([("taskIds", list(some.iter().map(|(id, _)| Value::from(*id))))]),
    }
}

/// Notifies the client of every change of a task.
async fn notify_of_task(context: &RequestContext, mut follow: Follow, meta: &Value) {
    // The notifications of a task end when it can no longer be read or rendered.
    while let Ok(Some(event)) = follow.next().await {
        let JobEvent::Record { job, cells, .. } = event else { continue };
        let snapshot = JobSnapshot { job: *job, cells: Some(cells) };
        let Ok(text) = task_notification(context, &snapshot, meta) else { return };
        context.notifications.send(text).await;
    }
}

fn task_notification(
    context: &RequestContext,
    snapshot: &JobSnapshot,
    meta: &Value,
) -> Result<String, RpcError> {
    let mut members = tasks::details(context, snapshot)?;
    members.push(("_meta", meta.clone()));
    Ok(notification_text("notifications/tasks", object(members), snapshot.cells())?)
}

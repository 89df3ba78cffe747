//! Waiting for a job to settle: to end, or to need something from its caller.

use catena_engine::limits::WAIT_MAX;
use catena_engine::views::{Follow, JobEvent, Reader};
use catena_job::{RecordId, Status};

use crate::http::error::ApiResult;
use crate::limits::MCP_TASK_AFTER;
use crate::mcp::context::RequestContext;
use crate::mcp::json_rpc::RpcError;
use crate::mcp::notifications::Notifications;
use crate::mcp::snapshot::JobSnapshot;

/// Returns the job when it has ended, when it waits for its caller, or when the time is up. If it
/// was already waiting at the record `known`, that does not count.
pub(super) async fn until_settled(
    context: &mut RequestContext,
    snapshot: JobSnapshot,
    known: Option<RecordId>,
) -> Result<JobSnapshot, RpcError> {
    if is_settled(&snapshot, known) {
        return Ok(snapshot);
    }
    let time = if context.client.accepts_tasks { MCP_TASK_AFTER } else { WAIT_MAX };
    let engine = context.state.engine.clone();
    let id = snapshot.job.id();
    let mut follow = engine.follow(Reader::Caller(&context.caller), id, None).await?;
    let mut last = snapshot;
    let waiting = follow_until_settled(&mut follow, &mut last, known, &mut context.notifications);
    match tokio::time::timeout(time, waiting).await {
        Ok(result) => result?,
        Err(_) => tracing::debug!(job = %id, "a tool call stopped waiting for its job"),
    }
    if is_settled(&last, known) {
        return Ok(last);
    }
    // Read again, so that a job which was deleted in the meantime is an error.
    Ok(engine.job(&context.caller, id).await?.into())
}

async fn follow_until_settled(
    follow: &mut Follow,
    last: &mut JobSnapshot,
    known: Option<RecordId>,
    notifications: &mut Notifications,
) -> ApiResult<()> {
    // The events end when the venue stops or the job is deleted; `last` then stays as it was.
    while let Some(event) = follow.next().await? {
        match event {
            JobEvent::Progress(progress) => notifications.report_progress(&progress),
            JobEvent::Record { job, cells, .. } => {
                *last = JobSnapshot { job: *job, cells: Some(cells) };
                if is_settled(last, known) {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn is_settled(snapshot: &JobSnapshot, known: Option<RecordId>) -> bool {
    let is_new = known != Some(snapshot.job.head());
    match snapshot.job.status() {
        Status::Pending | Status::Started => false,
        Status::Paused | Status::InputRequired | Status::AuthRequired => is_new,
        _ => true,
    }
}

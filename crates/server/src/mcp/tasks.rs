//! Jobs as tasks: the task ID is the job ID.
//!
//! Every job of the caller is a task, whichever API created it. Tasks are as durable as jobs, so they
//! have no time to live.

use catena_engine::limits::WAIT_MAX;
use catena_engine::requests::ListJobs;
use catena_job::vocabulary::{Phase, State, TaskStatus, ToolErrorStatus};
use catena_job::{JobId, Status};
use catena_store::{ListOrder, ListedJob};
use catena_value::{Map, Value};

use crate::http::error::{ApiError, Code};
use crate::http::request::parse_whole_number;
use crate::limits::{MCP_PAGE_MAX, MCP_POLL_MS};
use crate::mcp::call_result;
use crate::mcp::context::RequestContext;
use crate::mcp::elicitation;
use crate::mcp::json_rpc::RpcError;
use crate::mcp::params::{map, text};
use crate::mcp::revision::Revision;
use crate::mcp::rpc_result::{MethodResult, RpcResult};
use crate::mcp::snapshot::JobSnapshot;
use crate::mcp::wait::until_settled;
use crate::values::{list as list_of, object};

const RELATED_TASK_META: &str = "io.modelcontextprotocol/related-task";

/// The members of a task.
type Members = Vec<(&'static str, Value)>;

/// The job that a task ID names.
pub(super) fn parse_id(text: &str) -> Result<JobId, RpcError> {
    text.parse().map_err(|error: catena_job::ids::ParseJobIdError| {
        ApiError::new(Code::InvalidJobId, error.to_string()).into()
    })
}

/// The job that `taskId` names.
fn id_param(context: &RequestContext, params: &Map) -> Result<JobId, RpcError> {
    context.client.check_tasks()?;
    let task = text(params, "taskId")?;
    parse_id(task.ok_or_else(|| RpcError::invalid_params("`taskId` is missing"))?)
}

async fn read_job(context: &RequestContext, id: JobId) -> Result<JobSnapshot, RpcError> {
    Ok(context.state.engine.job(&context.caller, id).await?.into())
}

/// The result of a call that became a task.
pub(super) fn created(context: &RequestContext, snapshot: &JobSnapshot) -> RpcResult {
    let revision = context.client.revision;
    let task = task(revision, snapshot);
    if revision.is_stateless() {
        return object([("resultType", "task".into())].into_iter().chain(task)).into();
    }
    // A new task is always `working`; the next `tasks/get` has its actual status.
    let task = task.into_iter().map(|(name, value)| match name {
        "status" => (name, TaskStatus::Working.as_str().into()),
        _ => (name, value),
    });
    object([("task", object(task))]).into()
}

/// `tasks/get`: the task; in the stateless revision with its result or what it asks for.
pub(super) async fn get(context: &RequestContext, params: &Map) -> MethodResult {
    let snapshot = read_job(context, id_param(context, params)?).await?;
    let members = details(context, &snapshot)?;
    Ok(RpcResult::from(object(members)).with_cells(snapshot.cells))
}

/// A task with everything that the client's revision says about one.
pub(super) fn details(
    context: &RequestContext,
    snapshot: &JobSnapshot,
) -> Result<Members, RpcError> {
    let revision = context.client.revision;
    let mut members = task(revision, snapshot);
    if !revision.is_stateless() {
        return Ok(members);
    }
    match task_status(revision, snapshot.job.status()) {
        TaskStatus::Completed => {
            let tool = snapshot.tool(&context.state.tools);
            members.push(("result", call_result::of_job(context, tool, snapshot)?.into_value()));
        }
        TaskStatus::InputRequired => {
            let elicitation = elicitation::for_client(&context.client, snapshot);
            let requests = elicitation.map(|elicitation| elicitation.as_requests());
            members.push(("inputRequests", requests.unwrap_or_else(|| object::<&str>([]))));
        }
        TaskStatus::Working | TaskStatus::Failed | TaskStatus::Cancelled => {}
    }
    Ok(members)
}

/// `tasks/result`: waits for the end of a task and returns its result.
pub(super) async fn result(mut context: RequestContext, params: &Map) -> MethodResult {
    let id = id_param(&context, params)?;
    let snapshot = read_job(&context, id).await?;
    let snapshot = until_settled(&mut context, snapshot, None).await?;
    let status = snapshot.job.status();
    if !status.is_terminal() {
        let text = format!("job {id} is {status} and has no result yet");
        let hint = match status {
            Status::InputRequired | Status::AuthRequired => {
                "Send the job a message with POST /api/v1/jobs/{id} to continue it."
            }
            _ => "The job continues; ask again later.",
        };
        let error = ApiError::new(Code::JobRunning, text).hint(hint);
        let error = error.member("job", id).member("status", status);
        return Err(error.detail(format!("Waited up to {} s.", WAIT_MAX.as_secs())).into());
    }
    let tool = snapshot.tool(&context.state.tools);
    let result = call_result::of_job(&context, tool, &snapshot)?;
    Ok(result.with_meta(RELATED_TASK_META, object([("taskId", id.into())])))
}

/// `tasks/list`: the caller's tasks, oldest first, so that new tasks appear on later pages.
pub(super) async fn list(context: &RequestContext, params: &Map) -> MethodResult {
    let offset = match text(params, "cursor")? {
        None => 0,
        Some(cursor) => parse_whole_number(cursor)
            .ok_or_else(|| RpcError::invalid_params("`cursor` is not valid"))?,
    };
    let query = ListJobs::all(ListOrder::Oldest, offset, MCP_PAGE_MAX);
    let page = context.state.engine.jobs(&context.caller, &query).await?;
    let revision = context.client.revision;
    let tasks = page.jobs.iter().map(|job| object(listed_task(revision, job)));
    let mut members = vec![("tasks", list_of(tasks))];
    let end = offset.saturating_add(page.jobs.len() as u64);
    if end < page.total && !page.jobs.is_empty() {
        members.push(("nextCursor", end.to_string().into()));
    }
    Ok(object(members).into())
}

/// `tasks/cancel`: cancels the job of a task.
pub(super) async fn cancel(context: &RequestContext, params: &Map) -> MethodResult {
    let id = id_param(context, params)?;
    let revision = context.client.revision;
    if !revision.is_stateless() {
        let before = read_job(context, id).await?.job.status();
        if before.is_terminal() {
            let status = task_status(revision, before).as_str();
            return Err(RpcError::invalid_params(format!("task {id} is already {status}")));
        }
    }
    let view = context.state.engine.cancel(&context.caller, id, None).await?;
    if revision.is_stateless() {
        return Ok(object::<&str>([]).into());
    }
    Ok(object(task(revision, &JobSnapshot::from(view))).into())
}

/// `tasks/update`: delivers what a task asked for.
pub(super) async fn update(context: &RequestContext, params: &Map) -> MethodResult {
    let snapshot = read_job(context, id_param(context, params)?).await?;
    let responses = map(params, "inputResponses")?;
    let responses =
        responses.ok_or_else(|| RpcError::invalid_params("`inputResponses` is missing"))?;
    elicitation::deliver(&context.state.engine, &context.caller, &snapshot, responses).await?;
    Ok(object::<&str>([]).into())
}

fn task_status(revision: Revision, status: Status) -> TaskStatus {
    let tool_error =
        if revision.is_stateless() { ToolErrorStatus::Completed } else { ToolErrorStatus::Failed };
    // The phase makes no difference to the status of a task.
    State { status, phase: Phase::Admitted, has_started: true }.task(tool_error)
}

fn task(revision: Revision, snapshot: &JobSnapshot) -> Members {
    let job = &snapshot.job;
    let mut members = task_members(revision, job.id(), job.status(), job.created(), job.updated());
    let message = snapshot.text("error").or(snapshot.text("message"));
    let message = message.or((job.status() == Status::Paused).then_some("The job is paused."));
    members.extend(message.map(|message| ("statusMessage", message.into())));
    members
}

fn listed_task(revision: Revision, job: &ListedJob) -> Members {
    task_members(revision, job.id, job.status, job.created, job.updated)
}

/// The members that every task has. Times are Unix time in milliseconds.
fn task_members(
    revision: Revision,
    id: JobId,
    status: Status,
    created: i64,
    updated: i64,
) -> Members {
    let (ttl, poll) =
        if revision.is_stateless() { ("ttlMs", "pollIntervalMs") } else { ("ttl", "pollInterval") };
    vec![
        ("taskId", id.into()),
        ("status", task_status(revision, status).as_str().into()),
        ("createdAt", iso_time(created).into()),
        ("lastUpdatedAt", iso_time(updated).into()),
        (ttl, Value::Nil),
        (poll, MCP_POLL_MS.into()),
    ]
}

/// Unix time in milliseconds as ISO 8601.
fn iso_time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_the_members_of_its_revision() {
        let of = |revision| {
            let job = JobId::from_bytes([7; 16]);
            let members = task_members(revision, job, Status::Failed, 0, 1_769_683_717_706);
            catena_value::json::to_string(&object(members)).unwrap()
        };
        let old = of(Revision::V2025_11_25);
        for part in [
            r#""status":"failed""#,
            r#""createdAt":"1970-01-01T00:00:00Z""#,
            r#""lastUpdatedAt":"2026-01-29T10:48:37.706Z""#,
            r#""ttl":null"#,
            r#""pollInterval":"#,
        ] {
            assert!(old.contains(part), "{part} in {old}");
        }
        let new = of(Revision::V2026_07_28);
        for part in [r#""status":"completed""#, r#""ttlMs":null"#, r#""pollIntervalMs":"#] {
            assert!(new.contains(part), "{part} in {new}");
        }
    }
}

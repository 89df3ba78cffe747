//! A job as the result of a tool call.
//!
//! A completed job returns its output twice, as text and as structured data. Any other job returns a
//! text that says what happened and what to do, marked as an error: a call without its result is an
//! error, even if the job continues. `_meta` always names the job.

use catena_engine::error::{InvokeError, NoOutput, RunError};
use catena_engine::requests::RunOutput;
use catena_job::{JobId, Status};
use catena_value::{CellSource, NoCells, Value};

use crate::http::error::ApiResult;
use crate::http::json::write_value;
use crate::limits::MCP_TEXT_BYTES_MAX;
use crate::mcp::context::RequestContext;
use crate::mcp::media;
use crate::mcp::rpc_result::{MethodResult, RpcResult};
use crate::mcp::snapshot::JobSnapshot;
use crate::tools::{Tool, structured_content};
use crate::values::{list, object};

/// The member of `_meta` that names the job.
pub(super) const JOB_META: &str = "catena/job";
const STATUS_META: &str = "catena/status";
const ERROR_CODE_META: &str = "catena/errorCode";

/// The result of a call: the output of its job, or why there is none.
pub(super) fn of_job(
    context: &RequestContext,
    tool: Option<&Tool>,
    snapshot: &JobSnapshot,
) -> ApiResult<RpcResult> {
    let status = snapshot.job.status();
    let id = snapshot.job.id();
    let result = match status {
        Status::Complete => {
            let output = snapshot.job.field("output").cloned().unwrap_or_default();
            let uri = format!("{}/j/{id}/output", context.state.engine.did());
            success(tool, &output, snapshot.cells(), &uri)?.with_cells(snapshot.cells.clone())
        }
        Status::Failed | Status::Rejected | Status::Timeout | Status::Cancelled => {
            failure(ended_text(snapshot.text("error"), status, Some(id)))
        }
        Status::Pending
        | Status::Started
        | Status::Paused
        | Status::InputRequired
        | Status::AuthRequired => failure(unfinished_text(context, snapshot)),
    };
    Ok(with_job_meta(result, Some(id), status, snapshot.text("errorCode")))
}

/// The result of a call that creates no job.
pub(super) fn of_run(tool: &Tool, result: Result<RunOutput, RunError>) -> MethodResult {
    match result {
        Ok(ran) => {
            let cells = ran.cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells);
            let result = success(Some(tool), &ran.output, cells, "output")?;
            Ok(with_job_meta(result, ran.job, Status::Complete, None).with_cells(ran.cells))
        }
        Err(RunError::Invoke(InvokeError::Forbidden(denial))) => Ok(denied(denial)),
        Err(RunError::Invoke(error)) => Err(error.into()),
        Err(RunError::Ended(ended)) => {
            let NoOutput { job, status, error, code, .. } = *ended;
            let result = failure(ended_text(Some(&error), status, job));
            Ok(with_job_meta(result, job, status, code.as_deref()))
        }
    }
}

/// The result of a call that was denied, which created no job. The model reads why, and that a retry will
/// not help.
pub(super) fn denied(denial: String) -> RpcResult {
    failure(denial).with_meta(ERROR_CODE_META, "forbidden".into())
}

/// Adds the job, its status and its error code to `_meta`.
fn with_job_meta(
    mut result: RpcResult,
    job: Option<JobId>,
    status: Status,
    code: Option<&str>,
) -> RpcResult {
    if let Some(job) = job {
        result = result.with_meta(JOB_META, job.into());
    }
    result = result.with_meta(STATUS_META, status.into());
    match code {
        Some(code) => result.with_meta(ERROR_CODE_META, code.into()),
        None => result,
    }
}

/// `uri` names the output.
fn success(
    tool: Option<&Tool>,
    output: &Value,
    cells: &dyn CellSource,
    uri: &str,
) -> ApiResult<RpcResult> {
    let mut text = String::new();
    match output.to_text() {
        Some(plain) => text.push_str(&plain),
        None => write_value(output, cells, &mut text)?,
    }
    if text.len() > MCP_TEXT_BYTES_MAX {
        text = format!("The output has {} bytes; it is in `structuredContent`.", text.len());
    }
    let output = output.loaded(cells).unwrap_or_else(|_| output.clone());
    let schema = tool.and_then(|tool| tool.operation.member("output"));
    let media = media::of_output(schema.as_ref(), &output, cells, uri);
    let text = (!media.is_everything).then(|| text_block(text));
    let content = text.into_iter().chain(media.content);
    let members = [
        ("content", list(content)),
        ("structuredContent", structured_content(tool, output)),
        ("isError", false.into()),
    ];
    Ok(object(members).into())
}

fn failure(text: String) -> RpcResult {
    object([("content", text_content(text)), ("isError", true.into())]).into()
}

fn text_content(text: String) -> Value {
    list([text_block(text)])
}

fn text_block(text: String) -> Value {
    object([("type", "text".into()), ("text", text.into())])
}

fn ended_text(error: Option<&str>, status: Status, job: Option<JobId>) -> String {
    let error = error.unwrap_or("the job gave no reason");
    let what = match status {
        Status::Rejected => "was rejected before it started: correct the arguments and call again",
        Status::Timeout => "exceeded its time limit",
        Status::Cancelled => "was cancelled",
        _ => "failed",
    };
    match job {
        Some(job) => format!("{error}\n\nJob {job} {what}."),
        None => format!("{error}\n\nThe call {what}."),
    }
}

/// What the client can do about a job that has not ended.
fn unfinished_text(context: &RequestContext, snapshot: &JobSnapshot) -> String {
    let id = snapshot.job.id();
    let base = &context.base_url;
    let message = snapshot.text("message").map(|text| format!(": {text}")).unwrap_or_default();
    let route = format!("{base}/api/v1/jobs/{id}");
    match snapshot.job.status() {
        Status::InputRequired => format!(
            "Job {id} is waiting for input{message}\n\nSend it a message to continue: POST {route} with JSON, such as \
             {{\"content\":\"…\"}}. Do not call the tool again: that would create another job."
        ),
        Status::AuthRequired => format!(
            "Job {id} is waiting for authorisation{message}\n\nSend it a message to continue: POST {route} with \
             {{\"type\":\"auth/complete\",\"credentials\":…}}. Do not call the tool again: that would create another job."
        ),
        Status::Paused => format!("Job {id} is paused. PUT {route}/resume continues it."),
        _ => format!(
            "Job {id} has not ended yet. It continues; calling the tool again would create another job. {}",
            how_to_read(context, id, &route)
        ),
    }
}

/// How the client gets the result of a job later.
fn how_to_read(context: &RequestContext, id: JobId, route: &str) -> String {
    let task = if context.client.revision.has_tasks() {
        format!(", or tasks/get with the task ID {id}")
    } else {
        String::new()
    };
    match context.state.tools.name_of("grid:job-result") {
        Some(name) => format!(
            "To get its result, call the tool {name} with {{\"id\":\"{id}\"}}, or GET {route}{task}."
        ),
        None => format!("To get its result, GET {route}{task}."),
    }
}

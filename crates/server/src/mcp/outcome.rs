//! A job as the result of a call.
//!
//! A job that ended well gives its output twice, as text and as data. Any other gives a text that
//! says what happened and what to do now, marked as an error: a call whose result did not come is
//! one, also when the job goes on. `_meta` names the job in every case.

use catena_engine::error::{NoOutput, RunError};
use catena_engine::request::{JobView, Ran};
use catena_job::{Job, JobId, Status};
use catena_store::JobCells;
use catena_value::{CellSource, Map, NoCells, Value};

use super::message::{Rendered, Request};
use super::tools::{Tool, Tools, structured};
use super::{Asked, Refusal, Revision, with};
use crate::grid::job_json;
use crate::http::error::ApiResult;
use crate::limits::MCP_TEXT_BYTES_MAX;
use crate::values::{list, object};

/// The member of `_meta` that names the job.
pub(super) const JOB: &str = "catena/job";
const STATUS: &str = "catena/status";
const ERROR_CODE: &str = "catena/errorCode";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The result of a request.
pub(super) struct Answer {
    result: Map,
    /// Where its large parts are.
    cells: Option<JobCells>,
}

impl From<Value> for Answer {
    fn from(result: Value) -> Self {
        Answer { result: result.as_map().cloned().unwrap_or_default(), cells: None }
    }
}

impl Answer {
    /// The same with large parts that are somewhere else.
    pub(super) fn with_cells(self, cells: Option<JobCells>) -> Self {
        Answer { cells, ..self }
    }

    /// The result alone.
    pub(super) fn into_value(self) -> Value {
        self.result.into()
    }

    /// The same with one more member of `_meta`.
    pub(super) fn with_meta(mut self, name: &str, value: Value) -> Self {
        let meta = self.result.field("_meta").and_then(Value::as_map).cloned().unwrap_or_default();
        self.result = with(&self.result, "_meta", with(&meta, name, value).into());
        self
    }

    /// What goes out.
    pub(super) fn rendered(self, request: &Request, revision: Revision, server: Value) -> Rendered {
        let mut answer = self;
        if revision.is_stateless() {
            if answer.result.field("resultType").is_none() {
                answer.result = with(&answer.result, "resultType", "complete".into());
            }
            answer = answer.with_meta(SERVER_INFO, server);
        }
        let Answer { result, cells } = answer;
        let cells = cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells);
        let message =
            [("jsonrpc", "2.0".into()), ("id", request.id.clone()), ("result", result.into())];
        let mut text = String::new();
        match job_json::write_value(&object(message), cells, &mut text) {
            Ok(()) => Rendered { status: axum::http::StatusCode::OK, text, cause: None },
            Err(error) => Refusal::from(error).for_request(request).rendered(Some(revision)),
        }
    }
}

/// A job as far as it is known.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) job: Job,
    pub(super) cells: Option<JobCells>,
}

impl From<JobView> for Seen {
    fn from(view: JobView) -> Self {
        Seen { job: (*view.job).clone(), cells: view.cells }
    }
}

impl Seen {
    pub(super) fn cells(&self) -> &dyn CellSource {
        self.cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells)
    }

    /// A member of the job that is text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.job.field(name).and_then(Value::as_str)
    }

    /// The tool that the job is a call of, when its operation is shown as one.
    pub(super) fn tool<'a>(&self, tools: &'a Tools) -> Option<&'a Tool> {
        self.text("operation").and_then(|hex| tools.of_operation(hex)).map(|tool| &**tool)
    }
}

/// What a call gives: the output, or why there is none.
pub(super) fn of_job(asked: &Asked, tool: Option<&Tool>, seen: &Seen) -> ApiResult<Answer> {
    let status = seen.job.status();
    let answer = match status {
        Status::Complete => {
            let output = seen.job.field("output").cloned().unwrap_or_default();
            done(tool, &output, seen.cells())?.with_cells(seen.cells.clone())
        }
        Status::Failed | Status::Rejected | Status::Timeout | Status::Cancelled => {
            not_done(ended_text(seen.text("error"), status, Some(seen.job.id())))
        }
        Status::Pending
        | Status::Started
        | Status::Paused
        | Status::InputRequired
        | Status::AuthRequired => not_done(unfinished_text(asked, seen)),
    };
    Ok(about(answer, Some(seen.job.id()), status, seen.text("errorCode")))
}

/// What a call of an operation gives that makes no job.
pub(super) fn of_run(tool: &Tool, ran: Result<Ran, RunError>) -> Result<Answer, Refusal> {
    match ran {
        Ok(ran) => {
            let cells = ran.cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells);
            let answer = done(Some(tool), &ran.output, cells)?;
            Ok(about(answer, ran.job, Status::Complete, None).with_cells(ran.cells))
        }
        Err(RunError::Invoke(error)) => Err(error.into()),
        Err(RunError::Ended(ended)) => {
            let NoOutput { job, status, error, code, .. } = *ended;
            let answer = not_done(ended_text(Some(&error), status, job));
            Ok(about(answer, job, status, code.as_deref()))
        }
    }
}

/// Names the job and where it stands.
fn about(answer: Answer, job: Option<JobId>, status: Status, code: Option<&str>) -> Answer {
    let answer = match job {
        Some(job) => answer.with_meta(JOB, job.into()),
        None => answer,
    };
    let answer = answer.with_meta(STATUS, status.into());
    match code {
        Some(code) => answer.with_meta(ERROR_CODE, code.into()),
        None => answer,
    }
}

fn done(tool: Option<&Tool>, output: &Value, cells: &dyn CellSource) -> ApiResult<Answer> {
    let mut text = String::new();
    match output.to_text() {
        Some(plain) => text.push_str(&plain),
        None => job_json::write_value(output, cells, &mut text)?,
    }
    if text.len() > MCP_TEXT_BYTES_MAX {
        text = format!("The output has {} bytes; it stands in `structuredContent`.", text.len());
    }
    let output = output.loaded(cells).unwrap_or_else(|_| output.clone());
    let members = [
        ("content", content(text)),
        ("structuredContent", structured(tool, output)),
        ("isError", false.into()),
    ];
    Ok(object(members).into())
}

fn not_done(text: String) -> Answer {
    object([("content", content(text)), ("isError", true.into())]).into()
}

fn content(text: String) -> Value {
    list([object([("type", "text".into()), ("text", text.into())])])
}

fn ended_text(error: Option<&str>, status: Status, job: Option<JobId>) -> String {
    let error = error.unwrap_or("the job gave no reason");
    let what = match status {
        Status::Rejected => "was refused before it began: correct the arguments and call again",
        Status::Timeout => "took longer than it may",
        Status::Cancelled => "was cancelled",
        _ => "failed",
    };
    match job {
        Some(job) => format!("{error}\n\nJob {job} {what}."),
        None => format!("{error}\n\nThe call {what}."),
    }
}

/// What to do about a job that has not ended.
fn unfinished_text(asked: &Asked, seen: &Seen) -> String {
    let (id, base) = (seen.job.id(), &asked.base_url);
    let wanted = seen.text("message").map(|text| format!(": {text}")).unwrap_or_default();
    let route = format!("{base}/api/v1/jobs/{id}");
    match seen.job.status() {
        Status::InputRequired => format!(
            "Job {id} waits for input{wanted}\n\nIt goes on with a message: POST {route} with JSON, such as \
             {{\"content\":\"…\"}}. Do not call the tool again: that would make another job."
        ),
        Status::AuthRequired => format!(
            "Job {id} waits for authorisation{wanted}\n\nIt goes on with a message: POST {route} with \
             {{\"type\":\"auth/complete\",\"credentials\":…}}. Do not call the tool again: that would make another job."
        ),
        Status::Paused => format!("Job {id} is paused. PUT {route}/resume lets it go on."),
        _ => format!(
            "Job {id} has not ended yet. It goes on; calling the tool again would make another job. {}",
            how_to_read(asked, id, &route)
        ),
    }
}

/// How the result of a job is had later.
fn how_to_read(asked: &Asked, id: JobId, route: &str) -> String {
    let task = match asked.client.revision.has_tasks() {
        true => format!(", or tasks/get with the task ID {id}"),
        false => String::new(),
    };
    match asked.door.mcp_tools.name_of("grid:job-result") {
        Some(name) => format!(
            "Its result: call the tool {name} with {{\"id\":\"{id}\"}}, or GET {route}{task}."
        ),
        None => format!("Its result: GET {route}{task}."),
    }
}

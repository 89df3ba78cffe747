//! Jobs as tasks: the task ID is the job ID.
//!
//! Every job of the caller's is a task, whichever door it came through. Tasks are as durable as
//! jobs, so they have no time to live.

use catena_engine::limits::WAIT_MAX;
use catena_engine::request::ListJobs;
use catena_job::vocabulary::{Fault, Phase, State, TaskStatus};
use catena_job::{Job, JobId, Status};
use catena_store::{ListOrder, ListedJob};
use catena_value::{Map, Value};

use super::calls::settled;
use super::outcome::{self, Answer, Seen};
use super::{Answered, Asked, Refusal, Revision, input, map, text};
use crate::http::error::{ApiError, Code};
use crate::http::request::whole_number;
use crate::limits::{MCP_PAGE_MAX, MCP_POLL_MS};
use crate::values::{list as list_of, object};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// The job that a task ID names.
pub(super) fn id(text: &str) -> Result<JobId, Refusal> {
    text.parse().map_err(|error: catena_job::ids::ParseJobIdError| {
        ApiError::new(Code::InvalidJobId, error.to_string()).into()
    })
}

/// The job that `taskId` names.
fn named(asked: &Asked, params: &Map) -> Result<JobId, Refusal> {
    asked.client.check_tasks()?;
    let task = text(params, "taskId")?;
    id(task.ok_or_else(|| Refusal::invalid_params("`taskId` is missing"))?)
}

async fn seen(asked: &Asked, id: JobId) -> Result<Seen, Refusal> {
    Ok(asked.door.engine.job(&asked.caller, id).await?.into())
}

/// The answer to a call that became a task.
pub(super) fn made(asked: &Asked, seen: &Seen) -> Answer {
    let task = task(asked.client.revision, seen);
    match asked.client.revision.is_stateless() {
        true => object([("resultType", "task".into())].into_iter().chain(task)).into(),
        // A task begins as one that is worked on; the next look says more.
        false => {
            let begun = task.into_iter().map(|(name, value)| match name {
                "status" => (name, TaskStatus::Working.as_str().into()),
                _ => (name, value),
            });
            object([("task", object(begun))]).into()
        }
    }
}

/// Where a task stands. In the extension this carries the result, too, or what is asked for.
pub(super) async fn get(asked: &Asked, params: &Map) -> Answered {
    let seen = seen(asked, named(asked, params)?).await?;
    let members = detailed(asked, &seen)?;
    Ok(Answer::from(object(members)).with_cells(seen.cells))
}

/// A task with all that its revision tells about one.
pub(super) fn detailed(asked: &Asked, seen: &Seen) -> Result<Vec<(&'static str, Value)>, Refusal> {
    let mut members = task(asked.client.revision, seen);
    if !asked.client.revision.is_stateless() {
        return Ok(members);
    }
    match status(asked.client.revision, seen.job.status()) {
        TaskStatus::Completed => {
            let tool = seen.tool(&asked.door.mcp_tools);
            members.push(("result", outcome::of_job(asked, tool, seen)?.into_value()));
        }
        TaskStatus::InputRequired => {
            let question = input::question(&asked.client, seen);
            let requests = question.map(|question| question.as_requests());
            members.push(("inputRequests", requests.unwrap_or_else(|| object::<&str>([]))));
        }
        TaskStatus::Working | TaskStatus::Failed | TaskStatus::Cancelled => {}
    }
    Ok(members)
}

/// The result of a task, when it has one.
pub(super) async fn result(mut asked: Asked, params: &Map) -> Answered {
    let id = named(&asked, params)?;
    let begun = seen(&asked, id).await?;
    let seen = settled(&mut asked, begun, None).await?;
    if !seen.job.status().is_terminal() {
        let text = format!("job {id} is {} and has no result yet", seen.job.status());
        let hint = match seen.job.status() {
            Status::InputRequired | Status::AuthRequired => {
                "Send the job a message with POST /api/v1/jobs/{id}; that lets it go on."
            }
            _ => "The job goes on: ask again.",
        };
        let error = ApiError::new(Code::JobRunning, text).hint(hint);
        let error = error.member("job", id).member("status", seen.job.status());
        return Err(error.detail(format!("Waited up to {} s.", WAIT_MAX.as_secs())).into());
    }
    let tool = seen.tool(&asked.door.mcp_tools);
    let answer = outcome::of_job(&asked, tool, &seen)?;
    Ok(answer.with_meta(RELATED, object([("taskId", id.into())])))
}

/// The caller's tasks, oldest first: what is added meanwhile comes on a later page.
pub(super) async fn list(asked: &Asked, params: &Map) -> Answered {
    let offset = match text(params, "cursor")? {
        None => 0,
        Some(cursor) => whole_number(cursor)
            .ok_or_else(|| Refusal::invalid_params("`cursor` is none that was given"))?,
    };
    let query = ListJobs::all(ListOrder::Oldest, offset, MCP_PAGE_MAX);
    let page = asked.door.engine.jobs(&asked.caller, &query).await?;
    let revision = asked.client.revision;
    let tasks = page.jobs.iter().map(|job| object(listed(revision, job)));
    let mut members = vec![("tasks", list_of(tasks))];
    let end = offset.saturating_add(page.jobs.len() as u64);
    if end < page.total && !page.jobs.is_empty() {
        members.push(("nextCursor", end.to_string().into()));
    }
    Ok(object(members).into())
}

/// Ends a task.
pub(super) async fn cancel(asked: &Asked, params: &Map) -> Answered {
    let id = named(asked, params)?;
    let revision = asked.client.revision;
    if !revision.is_stateless() {
        let before = seen(asked, id).await?.job.status();
        if before.is_terminal() {
            let error = format!("task {id} is {} already", status(revision, before).as_str());
            return Err(Refusal::invalid_params(error));
        }
    }
    let seen = Seen::from(asked.door.engine.cancel(&asked.caller, id, None).await?);
    Ok(match revision.is_stateless() {
        true => object::<&str>([]).into(),
        false => object(task(revision, &seen)).into(),
    })
}

/// Gives a task what it asked for.
pub(super) async fn update(asked: &Asked, params: &Map) -> Answered {
    let seen = seen(asked, named(asked, params)?).await?;
    let responses = map(params, "inputResponses")?;
    let responses =
        responses.ok_or_else(|| Refusal::invalid_params("`inputResponses` is missing"))?;
    input::give(&asked.door.engine, &asked.caller, &seen, responses).await?;
    Ok(object::<&str>([]).into())
}

fn status(revision: Revision, status: Status) -> TaskStatus {
    let fault = if revision.is_stateless() { Fault::Completed } else { Fault::Failed };
    // Where it is in the queue makes no difference to the words of tasks.
    State { status, phase: Phase::Admitted, has_started: true }.task(fault)
}

fn task(revision: Revision, seen: &Seen) -> Vec<(&'static str, Value)> {
    let job: &Job = &seen.job;
    let mut members = members(revision, job.id(), job.status(), job.created(), job.updated());
    let said = seen.text("error").or(seen.text("message"));
    let said = said.map(str::to_owned).or_else(|| match job.status() {
        Status::Paused => Some("The job is paused.".to_owned()),
        _ => None,
    });
    members.extend(said.map(|said| ("statusMessage", said.into())));
    members
}

fn listed(revision: Revision, job: &ListedJob) -> Vec<(&'static str, Value)> {
    members(revision, job.id, job.status, job.created, job.updated)
}

fn members(
    revision: Revision,
    id: JobId,
    job_status: Status,
    created: i64,
    updated: i64,
) -> Vec<(&'static str, Value)> {
    let (ttl, poll) = match revision.is_stateless() {
        true => ("ttlMs", "pollIntervalMs"),
        false => ("ttl", "pollInterval"),
    };
    vec![
        ("taskId", id.into()),
        ("status", status(revision, job_status).as_str().into()),
        ("createdAt", time(created).into()),
        ("lastUpdatedAt", time(updated).into()),
        (ttl, Value::Nil),
        (poll, MCP_POLL_MS.into()),
    ]
}

/// A time as ISO 8601 has it.
fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_the_members_of_its_revision() {
        let of = |revision| {
            let job = JobId::from_bytes([7; 16]);
            let members = members(revision, job, Status::Failed, 0, 1_769_683_717_706);
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

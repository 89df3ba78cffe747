//! A tool is called.
//!
//! The call is a job, and the caller waits for it: until it ends, until it asks for something, or
//! for as long as a request may last. Waiting changes nothing about the job. Only the stateless
//! revision knows a way to take a call back, which is to close the connection; the job is cancelled
//! then. Whoever wants a job to outlive the connection asks for a task.

use catena_engine::follow::{Follow, JobEvent, Reader};
use catena_engine::limits::WAIT_MAX;
use catena_engine::request::{IdempotencyKey, Invoke};
use catena_engine::{Caller, Engine};
use catena_job::{JobId, RecordId, Status};
use catena_value::{Map, NoCells, Value, json};

use super::message::Request;
use super::outcome::{self, Seen};
use super::tools::{DELEGATIONS, Tool};
use super::{Answered, Asked, Notes, Refusal, input, map, tasks, text};
use crate::http::error::ApiResult;
use crate::http::request::Call;
use crate::limits::{DELEGATIONS_MAX, MCP_TASK_AFTER};
use crate::values::list;

/// The client's key for a call: the same key with the same tool and arguments is the same call,
/// whatever number the request has.
pub(super) fn key(call: &Call, request: &Request) -> ApiResult<Option<IdempotencyKey>> {
    if request.method != "tools/call" {
        return Ok(None);
    }
    let member = |name: &str| request.params.field(name).cloned().unwrap_or_default();
    let what = list([member("name"), member("arguments")]);
    call.idempotency("mcp", &[], json::to_string(&what).unwrap_or_default().as_bytes())
}

/// Calls a tool, or goes on with a call that asked for something.
pub(super) async fn call(mut asked: Asked, params: &Map) -> Answered {
    let name = text(params, "name")?.ok_or_else(|| Refusal::invalid_params("`name` is missing"))?;
    let tool = asked.door.mcp_tools.get(name).cloned();
    let tool = tool.ok_or_else(|| Refusal::invalid_params(format!("Unknown tool: {name}")))?;
    if asked.client.revision.is_stateless()
        && let Some(state) = text(params, "requestState")?
    {
        return go_on(asked, &tool, state, params).await;
    }
    let request = invocation(&mut asked, &tool, params)?;
    let is_task = asked.client.revision.asks_for_tasks() && map(params, "task")?.is_some();
    if tool.operation.is_read_only() && !is_task {
        let request = Invoke { wait: Some(WAIT_MAX), ..request };
        return outcome::of_run(&tool, asked.door.engine.run(request).await);
    }
    let invoked = asked.door.engine.invoke(request).await?;
    let made = Seen::from(invoked.view);
    if is_task {
        return Ok(tasks::made(&asked, &made));
    }
    let hold = match invoked.is_replay {
        true => Hold::none(),
        false => Hold::of(&asked, made.job.id()),
    };
    let seen = settled(&mut asked, made, None).await?;
    hold.release();
    answer(&asked, &tool, &seen)
}

/// What the engine is asked for.
fn invocation(asked: &mut Asked, tool: &Tool, params: &Map) -> Result<Invoke, Refusal> {
    let arguments = map(params, "arguments")?.cloned().unwrap_or_default();
    let (input, delegations) = tool.input(&arguments);
    let mut caller = asked.caller.clone();
    caller.delegations = delegations.as_ref().map(tokens).transpose()?.unwrap_or_default();
    let request = Invoke::new(caller, tool.operation.adapter(), input);
    Ok(Invoke { idempotency: asked.key.take(), ..request })
}

/// Delegations, as compact tokens.
fn tokens(value: &Value) -> Result<Vec<String>, Refusal> {
    let bad = || {
        let most = DELEGATIONS_MAX;
        Refusal::invalid_params(format!("`{DELEGATIONS}` must be at most {most} strings"))
    };
    let items = value.as_vector().filter(|items| items.len() <= DELEGATIONS_MAX as u64);
    let items = items.ok_or_else(bad)?.iter(&NoCells);
    let text = |item: Value| item.as_str().map(str::to_owned).ok_or_else(bad);
    items.map(|item| item.map_err(|_| bad()).and_then(text)).collect()
}

/// What is said about a job after waiting for it.
fn answer(asked: &Asked, tool: &Tool, seen: &Seen) -> Answered {
    let status = seen.job.status();
    if !status.is_terminal() && asked.client.takes_tasks {
        return Ok(tasks::made(asked, seen));
    }
    if let Some(question) = input::question(&asked.client, seen) {
        return Ok(question.as_result(seen));
    }
    Ok(outcome::of_job(asked, Some(tool), seen)?)
}

/// A call that asked for something is made again, with what it asked for.
async fn go_on(mut asked: Asked, tool: &Tool, state: &str, params: &Map) -> Answered {
    let id = tasks::id(state)?;
    let engine = asked.door.engine.clone();
    let seen = Seen::from(engine.job(&asked.caller, id).await?);
    if seen.text("operation") != Some(tool.operation.id_text()) {
        let error = format!("`requestState` is not of a call of {}", tool.name);
        return Err(Refusal::invalid_params(error));
    }
    let responses = map(params, "inputResponses")?.cloned().unwrap_or_default();
    let known = seen.job.head();
    let given = input::give(&engine, &asked.caller, &seen, &responses).await?;
    let seen = match given {
        input::Given::Nothing => seen,
        input::Given::Dismissed => return Ok(outcome::of_job(&asked, Some(tool), &seen)?),
        input::Given::Answer | input::Given::Declined => {
            let hold = Hold::of(&asked, id);
            let seen = settled(&mut asked, seen, Some(known)).await?;
            hold.release();
            seen
        }
        // What is done on a page elsewhere takes its time, and the client will ask again.
        input::Given::Page => {
            let engine = &asked.door.engine;
            let is_known = |view: &catena_engine::request::JobView| view.job.head() == known;
            engine.wait_for_change(&asked.caller, id, input::PAGE_TIME, is_known).await?.into()
        }
    };
    answer(&asked, tool, &seen)
}

/// The job when there is something to say: it ended, it waits for somebody, or the time is up.
/// Where it stood when an answer was given does not count.
pub(super) async fn settled(
    asked: &mut Asked,
    seen: Seen,
    known: Option<RecordId>,
) -> Result<Seen, Refusal> {
    if is_settled(&seen, known) {
        return Ok(seen);
    }
    let time = if asked.client.takes_tasks { MCP_TASK_AFTER } else { WAIT_MAX };
    let (engine, id) = (asked.door.engine.clone(), seen.job.id());
    let mut follow = engine.follow(Reader::Caller(&asked.caller), id, None).await?;
    let mut last = seen;
    let waiting = wait(&mut follow, &mut last, known, &mut asked.notes);
    match tokio::time::timeout(time, waiting).await {
        Ok(waited) => waited?,
        Err(_) => tracing::debug!(job = %id, "a call stopped waiting for its job"),
    }
    // Nothing is said of a job that was deleted meanwhile.
    match is_settled(&last, known) {
        true => Ok(last),
        false => Ok(engine.job(&asked.caller, id).await?.into()),
    }
}

async fn wait(
    follow: &mut Follow,
    last: &mut Seen,
    known: Option<RecordId>,
    notes: &mut Notes,
) -> ApiResult<()> {
    // Nothing more happens when the venue stops or the job was deleted: it stands as it was seen.
    while let Some(happening) = follow.next().await? {
        match happening {
            JobEvent::Progress(progress) => notes.tell(&progress),
            JobEvent::Record { job, cells, .. } => {
                *last = Seen { job: *job, cells: Some(cells) };
                if is_settled(last, known) {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn is_settled(seen: &Seen, known: Option<RecordId>) -> bool {
    let is_new = known != Some(seen.job.head());
    match seen.job.status() {
        Status::Pending | Status::Started => false,
        Status::Paused | Status::InputRequired | Status::AuthRequired => is_new,
        _ => true,
    }
}

/// Cancels a job when the call that made it is taken back: dropped before it was released.
struct Hold(Option<(Engine, Caller, JobId)>);

impl Hold {
    fn none() -> Self {
        Hold(None)
    }

    fn of(asked: &Asked, job: JobId) -> Self {
        // In the handshake revisions a lost connection means nothing.
        let is_meant = asked.client.revision.is_stateless();
        Hold(is_meant.then(|| (asked.door.engine.clone(), asked.caller.clone(), job)))
    }

    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some((engine, caller, job)) = self.0.take() else { return };
        // A venue that stops closes connections, too.
        let (true, Ok(runtime)) = (engine.is_ready(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            let reason = Some("the MCP client closed the call".to_owned());
            if let Err(error) = engine.cancel(&caller, job, reason).await {
                tracing::warn!(%job, %error, "a call was taken back, but its job goes on");
            }
        });
    }
}

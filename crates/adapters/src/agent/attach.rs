//! An agent as a job that takes messages.
//!
//! Each message is delivered to the agent under its own ID, and the agent runs. Both are calls of the job, so
//! that they happen once, and each turn of the agent is in the chain. The run is a job of its own: what
//! happens to the job that is attached does not affect the agent.
//!
//! The job is bound to the agent, which lists it: whoever suspends, resumes or ends the agent sends it a notice in
//! the same commit, and the job then looks at the agent again. It pauses itself while the agent is suspended, and
//! continues as soon as the agent is not.

use catena_engine::limits::WAIT_MAX;
use catena_engine::requests::{CallRequest, JobView};
use catena_engine::{BoundStart, Call, Cause, Failure, Roots, Turn};
use catena_job::JobId;
use catena_job::agent::{AgentPolicy, AgentStatus};
use catena_job::limits::ATTACHED_JOBS_MAX;
use catena_job::state::Ask;
use catena_value::Value;

use super::stored::{AGENT_NOT_FOUND, Stored, agent_id, agent_roots};
use crate::failures::job_failure;
use crate::fields::{Fields, integer, object, text};
use crate::nested;

/// The member of a notice: the status of the agent.
pub(super) const NOTICE: &str = "agentStatus";

/// The member of the input of a run or a resume that names the attached job which makes it.
pub(super) const BY: &str = "attachedJob";

/// Adds the job to those that are attached, in the commit that starts it.
pub(super) fn start(
    mut stored: Stored,
    job: JobId,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<BoundStart, Failure> {
    let attached = &mut stored.control.attached;
    // The job of an agent that has ended ends at once.
    if stored.agent.status == AgentStatus::Terminated || attached.contains(&job) {
        return Ok(BoundStart::Run);
    }
    if attached.len() >= ATTACHED_JOBS_MAX {
        let text = format!(
            "{ATTACHED_JOBS_MAX} jobs are attached to agent `{}`, which is the limit",
            stored.id
        );
        return Ok(BoundStart::Fail(Failure::new("too_many_attached", text)));
    }
    attached.push(job);
    stored.save_unchanged(policy, roots)?;
    Ok(BoundStart::Run)
}

/// Removes the job from those that are attached, in the commit that ends it.
pub(super) fn end(
    mut stored: Stored,
    job: JobId,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<(), Failure> {
    stored.control.attached.retain(|attached| *attached != job);
    stored.save_unchanged(policy, roots).map(drop)
}

/// Returns true if a job that paused itself has no more reason to: the agent is not suspended.
pub(super) fn resumes(id: &str, roots: &Roots) -> bool {
    let stored = Stored::find(roots, id);
    stored.is_ok_and(|stored| {
        stored.is_none_or(|stored| stored.agent.status != AgentStatus::Suspended)
    })
}

/// Executes one turn of the job.
pub(super) async fn turn(call: &Call) -> Turn {
    match step(call).await {
        Ok(turn) => turn,
        Err(failure) => Turn::Failed(failure),
    }
}

async fn step(call: &Call) -> Result<Turn, Failure> {
    let id = agent_id(&Fields::from_value(&call.input)?, "agentId")?;
    let job = call.job.ok_or_else(|| Failure::new("needs_a_job", "this needs a recorded job"))?;
    let ended = || Turn::Complete(output(&id, AgentStatus::Terminated, Value::Nil, turns(call)));
    let stored = match read(call, &id).await {
        // It was removed since the job was attached to it.
        Err(failure) if failure.code == AGENT_NOT_FOUND && call.cause != Cause::Start => {
            return Ok(ended());
        }
        stored => stored?,
    };
    if stored.agent.status == AgentStatus::Terminated {
        return Ok(ended());
    }
    if let Cause::Message(message) = &call.cause
        && message.as_map().and_then(|map| map.field(NOTICE)).is_none()
    {
        return answer(call, job, &id, message).await;
    }
    if stored.agent.status != AgentStatus::Suspended {
        let output = match &call.cause {
            // The turn before may have ended with a pause.
            Cause::Resume | Cause::Retry => Some(after_pause(call, &id, stored.agent.status)),
            _ => call.last_output.clone(),
        };
        return Ok(wait_for_message(&id, output));
    }
    if call.cause != Cause::Resume {
        return Ok(Turn::Pause);
    }
    // The time of the record is another one after every change, so each suspension is resumed once.
    let key = format!("resume-{}", stored.agent.ts);
    let input = object([("agentId", id.as_str().into()), (BY, job.into())]);
    let resumed = make(call, job, key, "agent:resume", input, false).await?;
    nested::outcome(&resumed.job, resumed.cells())?;
    // The turn that ended with the suspension has no output, so it is counted here.
    let turns = turns(call).saturating_add(1);
    Ok(wait_for_message(&id, Some(output(&id, AgentStatus::Sleeping, Value::Nil, turns))))
}

/// Returns the output of a turn that continues after a pause. A turn that ended with a pause has no output, so
/// it is counted here, and the next one makes calls of its own.
fn after_pause(call: &Call, id: &str, status: AgentStatus) -> Value {
    let last = call.last_output.as_ref().and_then(Value::as_map);
    let result = last.and_then(|map| map.field("result")).cloned();
    output(id, status, result.unwrap_or_default(), turns(call).saturating_add(1))
}

/// Returns the number of turns up to the last one that has an output.
fn turns(call: &Call) -> i64 {
    let turns =
        call.last_output.as_ref().and_then(Value::as_map).and_then(|map| map.field("turns"));
    turns.and_then(integer).unwrap_or(0)
}

/// Delivers a message and runs the agent.
async fn answer(call: &Call, job: JobId, id: &str, message: &Value) -> Result<Turn, Failure> {
    // A turn that is repeated after a crash has the same number, and so makes the same calls.
    let turn = turns(call).saturating_add(1);
    let member = |name: &str| message.as_map().and_then(|map| map.field(name));
    let given = member("messageId").and_then(text);
    let message_id = given.unwrap_or_else(|| format!("{}-{turn}", job.to_hex()));
    let content = member("content").unwrap_or(message).clone();
    let input =
        object([("agentId", id.into()), ("message", content), ("messageId", message_id.into())]);
    let delivered =
        make(call, job, format!("message-{turn}"), "agent:message", input, false).await?;
    nested::outcome(&delivered.job, delivered.cells())?;
    if read(call, id).await?.agent.status == AgentStatus::Suspended {
        return Ok(Turn::Pause);
    }
    let input = object([("agentId", id.into()), (BY, job.into())]);
    let mut run = make(call, job, format!("run-{turn}"), "agent:run", input, true).await?;
    while !run.status().is_terminal() {
        let waited = call.host.wait(&call.caller, run.job.id(), WAIT_MAX).await;
        run = waited.map_err(job_failure)?;
    }
    let ended = nested::outcome(&run.job, run.cells());
    let status = read(call, id).await?.agent.status;
    match (ended, status) {
        (Ok(ran), _) => {
            let result = ran.as_map().and_then(|map| map.field("result")).cloned();
            let output = output(id, status, result.unwrap_or_default(), turn);
            if status == AgentStatus::Terminated {
                return Ok(Turn::Complete(output));
            }
            Ok(wait_for_message(id, Some(output)))
        }
        (Err(_), AgentStatus::Terminated) => {
            Ok(Turn::Complete(output(id, AgentStatus::Terminated, Value::Nil, turn)))
        }
        (Err(_), AgentStatus::Suspended) => Ok(Turn::Pause),
        (Err(failure), _) => {
            let error = object([("error", failure.error.into())]);
            Ok(wait_for_message(id, Some(output(id, status, error, turn))))
        }
    }
}

fn output(id: &str, status: AgentStatus, result: Value, turns: i64) -> Value {
    object([
        ("agentId", id.into()),
        ("status", status.word().into()),
        ("result", result),
        ("turns", turns.into()),
    ])
}

fn wait_for_message(id: &str, output: Option<Value>) -> Turn {
    let message = format!("Send a message to agent `{id}`.");
    Turn::NeedsInput(Ask { message: Some(message), output })
}

async fn read(call: &Call, id: &str) -> Result<Stored, Failure> {
    let roots = call.host.read_roots(&call.caller, agent_roots(id)).await?;
    Stored::get(&roots, id)
}

async fn make(
    call: &Call,
    job: JobId,
    key: String,
    operation: &str,
    input: Value,
    is_detached: bool,
) -> Result<JobView, Failure> {
    let request = CallRequest {
        job,
        caller: call.caller.clone(),
        authority: None,
        key,
        operation: operation.to_owned(),
        input,
        is_detached,
    };
    call.host.call(request).await
}

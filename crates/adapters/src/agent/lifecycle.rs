//! Operations that change the status of an agent from outside.

use catena_engine::{Call, Failure, Roots};
use catena_job::JobId;
use catena_job::agent::{AgentPolicy, AgentStatus};
use catena_value::Value;

use super::attach::BY;
use super::config::AgentLimits;
use super::stored::{Stored, agent_id};
use super::wake;
use crate::fields::{Fields, invalid_input, object};

/// Suspends an agent. Its run is cancelled in the same commit.
pub(super) fn suspend(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let id = agent_id(&Fields::from_value(&call.input)?, "agentId")?;
    let mut stored = Stored::live(roots, &id)?;
    if stored.agent.status == AgentStatus::Suspended {
        return Ok(object([("agentId", id.into()), ("status", stored.agent.status.word().into())]));
    }
    if let Some(run) = stored.control.run.take() {
        roots.cancel(run.job, format!("agent `{id}` was suspended"));
    }
    stored.agent = stored.agent.suspend(None);
    stored.offer_all(roots);
    let status = stored.save(policy, roots)?;
    Ok(object([("agentId", id.into()), ("status", status)]))
}

/// Clears the error of a suspended agent.
pub(super) fn resume(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let mut stored = Stored::live(roots, &id)?;
    if stored.agent.status != AgentStatus::Suspended {
        let text = format!("agent `{id}` is {}, not SUSPENDED", stored.agent.status);
        return Err(Failure::new("agent_not_suspended", text));
    }
    let is_forced = fields.get("force") == Some(&true.into());
    let limits = AgentLimits::new(policy, &stored.agent.config);
    let failures = stored.control.failures;
    if failures >= limits.failures && !is_forced {
        let text = format!(
            "{failures} turns of agent `{id}` have failed in a row; resume it with `force`"
        );
        return Err(Failure::new("too_many_failures", text));
    }
    if is_forced {
        stored.control.failures = 0;
    }
    stored.agent.status = AgentStatus::Sleeping;
    stored.agent.error = None;
    stored.informed = fields.optional_text(BY)?.and_then(|by| by.parse().ok());
    let auto_wake = fields.get("autoWake").map(|auto| *auto == true.into());
    wake::resumed(&mut stored, auto_wake, roots.now());
    let status = stored.save(policy, roots)?;
    Ok(object([("agentId", id.into()), ("status", status)]))
}

/// Terminates an agent. Its run and the runs that wait are cancelled in the same commit.
pub(super) fn delete(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let removes = fields.get("remove") == Some(&true.into());
    let mut stored = Stored::get(roots, &id)?;
    if fields.get("ifIdle") == Some(&true.into()) && !wake::is_idle(&stored, policy, roots.now()) {
        // Its schedule is set again.
        let status = stored.save_unchanged(policy, roots)?;
        return Ok(object([("agentId", id.into()), ("status", status)]));
    }
    let status: Value = AgentStatus::Terminated.word().into();
    let reason = format!("agent `{id}` was terminated");
    let open = stored.control.run.take().map(|run| run.job);
    let waiting = std::mem::take(&mut stored.control.waiting);
    open.into_iter().chain(waiting).for_each(|job| roots.cancel(job, reason.as_str()));
    if removes {
        stored.remove(roots)?;
        let removed = ("removed", true.into());
        return Ok(object([("agentId", id.into()), ("status", status), removed]));
    }
    if stored.agent.status != AgentStatus::Terminated {
        stored.agent.status = AgentStatus::Terminated;
        stored.save(policy, roots)?;
    }
    Ok(object([("agentId", id.into()), ("status", status)]))
}

/// Cancels a run that is in progress, or one that waits.
pub(super) fn cancel_task(call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let stored = Stored::get(roots, &id)?;
    let task = fields.text("taskId")?;
    let job: JobId =
        task.parse().map_err(|_| invalid_input(format!("`{task}` is not a job ID")))?;
    let is_run = stored.control.run.as_ref().is_some_and(|run| run.job == job);
    if !is_run && !stored.control.waiting.contains(&job) {
        let text = format!("job {task} neither runs agent `{id}` nor waits for it");
        return Err(Failure::new("task_not_found", text));
    }
    let reason = fields.optional_text("reason")?;
    // Its end releases the agent.
    roots.cancel(job, reason.unwrap_or_else(|| "the task was cancelled".to_owned()));
    let cancelled = ("cancelled", true.into());
    Ok(object([("agentId", id.into()), ("taskId", task.into()), cancelled]))
}

//! When an agent runs by itself: when a message arrives, by a timer, or at a time that somebody set.
//!
//! An agent that is to be woken has one schedule, which changes in the commits that change the agent. The
//! scheduler starts it, so nothing looks for agents at startup, and an agent that waits costs nothing.
//! The schedule is for the earliest of all reasons; the run finds out what is to be done.

use catena_engine::requests::{NewSchedule, When};
use catena_engine::{Call, Failure, Roots};
use catena_job::agent::{AgentPolicy, AgentStatus};
use catena_value::Value;

use super::config::AgentLimits;
use super::stored::{Stored, agent_id};
use crate::fields::{Fields, integer, invalid_input, object, text};
use crate::limits::{AGENT_WAKE_MS_MAX, AGENT_WAKE_MS_MIN};
use crate::scheduler::parse_time;

/// A schedule that is due for longer than this has been started, and its run did not change the agent.
const STALE_MS: i64 = 60_000;

/// What wakes an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wake {
    /// A message.
    Message,
    /// A timer, in ms.
    Every(i64),
    /// A cron expression, and the name of its time zone.
    Cron(String, Option<String>),
}

impl Wake {
    /// Reads `config.wake`. `None` if there is none.
    fn parse(config: &Value) -> Result<Option<Wake>, Failure> {
        let wake = config.as_map().and_then(|map| map.field("wake"));
        let Some(wake) = wake.filter(|wake| !wake.is_nil()) else { return Ok(None) };
        let wrong = || {
            invalid_input(
                "`config.wake` must be \"message\", `{\"everyMs\": number}` or `{\"cron\": expression}`",
            )
        };
        if text(wake).as_deref() == Some("message") {
            return Ok(Some(Wake::Message));
        }
        let map = wake.as_map().ok_or_else(wrong)?;
        if let Some(every) = map.field("everyMs") {
            let every = integer(every).ok_or_else(wrong)?;
            if !(AGENT_WAKE_MS_MIN..=AGENT_WAKE_MS_MAX).contains(&every) {
                let range = format!("from {AGENT_WAKE_MS_MIN} to {AGENT_WAKE_MS_MAX}");
                return Err(invalid_input(format!("`config.wake.everyMs` must be {range}")));
            }
            return Ok(Some(Wake::Every(every)));
        }
        let cron = map.field("cron").and_then(text).ok_or_else(wrong)?;
        Ok(Some(Wake::Cron(cron, map.field("timeZone").and_then(text))))
    }

    /// Returns the next time of a timer. `None` if this is none, or if it has no further time.
    fn next_time(&self, now: i64) -> Option<i64> {
        match self {
            Wake::Message => None,
            Wake::Every(every) => Some(now.saturating_add(*every)),
            Wake::Cron(expression, zone) => {
                When::Cron { expression: expression.clone(), time_zone: zone.clone() }
                    .next_time(now)
                    .ok()
            }
        }
    }
}

/// Fails if a configuration says nothing sensible about waking.
pub(super) fn check(config: &Value, now: i64) -> Result<(), Failure> {
    if let Some(Wake::Cron(expression, zone)) = Wake::parse(config)? {
        let when = When::Cron { expression, time_zone: zone };
        when.next_time(now).map_err(|error| invalid_input(format!("`config.wake`: {error}")))?;
    }
    Ok(())
}

/// Returns true if the configuration wakes the agent.
fn is_configured(config: &Value) -> bool {
    matches!(Wake::parse(config), Ok(Some(_)))
}

/// Returns true if nothing has happened to an agent for as long as the venue and its configuration allow.
pub(super) fn is_idle(stored: &Stored, policy: &AgentPolicy, now: i64) -> bool {
    let is_open = matches!(stored.agent.status, AgentStatus::Sleeping | AgentStatus::Suspended);
    let idle = AgentLimits::new(policy, &stored.agent.config).idle_ms.filter(|_| is_open);
    idle.is_some_and(|ms| stored.agent.ts.saturating_add(ms) <= now)
}

/// Sets the schedule of an agent that is about to be written.
pub(super) fn plan(
    stored: &mut Stored,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<(), Failure> {
    let now = roots.now();
    let wake = Wake::parse(&stored.agent.config).unwrap_or(None);
    let idle = AgentLimits::new(policy, &stored.agent.config).idle_ms;
    let control = &mut stored.control;
    if wake.is_none() && idle.is_none() && control.wake.is_none() {
        return Ok(());
    }
    let mut plan = control.wake.clone().unwrap_or_default();
    match &wake {
        Some(timer @ (Wake::Every(_) | Wake::Cron(..))) => {
            plan.timer = plan.timer.or_else(|| timer.next_time(now));
        }
        _ => plan.timer = None,
    }
    let is_sleeping = stored.agent.status == AgentStatus::Sleeping;
    let is_suspended = stored.agent.status == AgentStatus::Suspended;
    let waits = !stored.agent.inbox.is_empty() && !plan.is_quiet;
    let at_once = || {
        let known = plan.due.filter(|due| (now - STALE_MS..=now).contains(due));
        known.unwrap_or_else(|| now.max(plan.last_due + 1))
    };
    let message = (wake == Some(Wake::Message) && waits).then(at_once);
    let reasons = [message, plan.at, plan.timer].into_iter().flatten().filter(|_| is_sleeping);
    let wake_due = reasons.min();
    let idle_due = idle.filter(|_| is_sleeping || is_suspended);
    let idle_due = idle_due.map(|ms| match plan.due.filter(|_| plan.is_idle) {
        // It is found out then whether anything has happened meanwhile.
        Some(due) if due > now => due,
        _ => now.saturating_add(ms),
    });
    let is_idle = idle_due.is_some_and(|idle| wake_due.is_none_or(|wake| idle < wake));
    let due = if is_idle { idle_due } else { wake_due };
    if due != plan.due || is_idle != plan.is_idle {
        let id = Value::from(stored.id.as_str());
        let schedule = due.map(|due| {
            let (operation, input) = if is_idle {
                ("agent:delete", object([("agentId", id), ("ifIdle", true.into())]))
            } else {
                ("agent:trigger", object([("agentId", id), ("wake", true.into())]))
            };
            NewSchedule::new(operation, input, When::At(due))
        });
        roots.schedule(&stored.id, schedule);
        plan.last_due = due.unwrap_or(plan.last_due).max(plan.last_due);
        plan.due = due;
        plan.is_idle = is_idle;
    }
    let is_used = due.is_some() || plan.at.is_some() || plan.timer.is_some() || plan.is_quiet;
    stored.control.wake = (is_used || plan.last_due > 0).then_some(plan);
    Ok(())
}

/// Takes note that a run begins: what was due is done by it.
pub(super) fn begin_run(stored: &mut Stored, now: i64) {
    let wake = Wake::parse(&stored.agent.config).unwrap_or(None);
    let Some(plan) = &mut stored.control.wake else { return };
    plan.at = plan.at.filter(|at| *at > now);
    if plan.timer.is_some_and(|timer| timer <= now) {
        plan.timer = wake.and_then(|wake| wake.next_time(now));
    }
}

/// Takes note that a message arrived, which may wake the agent.
pub(super) fn message_arrived(stored: &mut Stored) {
    if let Some(plan) = &mut stored.control.wake {
        plan.is_quiet = false;
    }
}

/// Takes note that the configuration has changed: a timer starts again.
pub(super) fn config_changed(stored: &mut Stored) {
    if let Some(plan) = &mut stored.control.wake {
        plan.timer = None;
    }
}

/// Takes note that a suspended agent sleeps again. Without a decision of the caller, the configuration says
/// whether messages that wait are processed now.
pub(super) fn resumed(stored: &mut Stored, auto_wake: Option<bool>, now: i64) {
    let wakes = auto_wake.unwrap_or_else(|| is_configured(&stored.agent.config));
    let mut plan = stored.control.wake.clone().unwrap_or_default();
    plan.timer = plan.timer.filter(|timer| *timer > now);
    plan.is_quiet = !wakes;
    if wakes && !stored.agent.inbox.is_empty() {
        plan.at = Some(now.max(plan.last_due + 1));
    }
    if stored.control.wake.is_some() || plan.at.is_some() || plan.is_quiet && auto_wake.is_some() {
        stored.control.wake = Some(plan);
    }
}

/// Wakes an agent at a time.
pub(super) fn wake(call: &Call, policy: &AgentPolicy, roots: &mut Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let mut stored = Stored::live(roots, &id)?;
    let mut plan = stored.control.wake.clone().unwrap_or_default();
    let now = roots.now();
    let at = match fields.get_nullable("at") {
        // It is not woken at the time that was set before.
        Some(Value::Nil) => None,
        Some(at) => Some(parse_time(at)?.max(now)),
        None => Some(now),
    };
    plan.at = at.map(|at| at.max(plan.last_due + 1));
    stored.control.wake = Some(plan);
    let status = stored.save(policy, roots)?;
    let mut members = vec![("agentId", Value::from(id)), ("status", status)];
    members.extend(at.map(|at| ("at", at.into())));
    Ok(members.into_iter().collect::<catena_value::Map>().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn what_wakes_an_agent_is_checked() {
        for fine in [
            "{}",
            r#"{"wake":null}"#,
            r#"{"wake":"message"}"#,
            r#"{"wake":{"everyMs":1000}}"#,
            r#"{"wake":{"cron":"0 9 * * *","timeZone":"Europe/Berlin"}}"#,
        ] {
            assert_eq!(check(&value(fine), 1_000), Ok(()), "{fine}");
        }
        for wrong in [
            r#"{"wake":"sometimes"}"#,
            r#"{"wake":{}}"#,
            r#"{"wake":{"everyMs":1}}"#,
            r#"{"wake":{"everyMs":"often"}}"#,
            r#"{"wake":{"cron":"now and then"}}"#,
            r#"{"wake":true}"#,
        ] {
            assert_eq!(check(&value(wrong), 1_000).unwrap_err().code, "invalid_input", "{wrong}");
        }
    }
}

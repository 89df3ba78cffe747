//! The records of a pause and of an end.

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{Job, RecordId, Status};
use catena_store::{Effect, Hold};
use catena_value::{Map, Value};

use super::{FollowUp, JobChange};
use crate::error::ControlError;
use crate::execution::{Execution, PausedTurn, paused_member};
use crate::jobs::{Current, control_error, deadline, message_trigger};

/// Returns the `trigger` member of a record that follows from an ancestor's record.
pub(super) fn control_trigger(control: RecordId) -> Value {
    [("control", Value::from(control))].into_iter().collect::<Map>().into()
}

/// The message of a resume that nobody asked for.
pub(super) const RESUMED_BY_NOTICE: &str = "what the job was paused for is over";

/// Returns true if nobody asked for the resume of a job.
pub(crate) fn is_resumed_by_notice(job: &Job) -> bool {
    job.field("message").and_then(Value::as_str) == Some(RESUMED_BY_NOTICE)
}

/// Returns the status that an ending event leads to, for texts.
pub(super) fn ended_status(event: &Event) -> Status {
    match event {
        Event::Expired { .. } => Status::Timeout,
        Event::Erred { .. } => Status::Failed,
        Event::Finished { .. } => Status::Complete,
        _ => Status::Cancelled,
    }
}

/// Returns the error text of a job whose deadline has passed.
pub(crate) fn overdue_error(job: &Job) -> String {
    match job.status() {
        Status::Paused => "the job was paused for too long".to_owned(),
        Status::InputRequired => "the job waited for input for too long".to_owned(),
        Status::AuthRequired => "the job waited for authorisation for too long".to_owned(),
        _ => "the operation ran longer than its limit".to_owned(),
    }
}

impl Execution {
    /// Returns the change that pauses a job. `control` is the record of an ancestor that it follows
    /// from.
    pub(super) fn pause_change(
        &self,
        current: &Current,
        by: Option<&str>,
        control: Option<RecordId>,
    ) -> Result<JobChange, ControlError> {
        let id = current.job.id();
        let from = current.job.status();
        let now = self.runtime.now();
        let paused = paused_turn(current, now);
        let trigger = message_trigger(&current.job).filter(|_| from == Status::Started);
        let mut change = Change::new(Event::Paused, now);
        change.by = by.map(str::to_owned);
        change.trigger = control.map(control_trigger);
        change.extra.push(("paused", paused_member(&paused, trigger)));
        change.extra.push(("deadline", deadline(now, self.runtime.limits.interactive)));
        let mut draft = current.draft();
        draft.append(change).map_err(|error| control_error(id, error))?;
        if self.registry.get(id).is_some() {
            draft.save_progress();
        }
        if !current.is_held() {
            // A job that nobody runs may be on the queue. If a process acquires it first, this
            // decision is made again.
            draft.set_hold(Hold::Vacant(current.hold.fence));
            draft.add(Effect::Dequeue { job: id });
        }
        Ok(JobChange { draft, follow_up: FollowUp::Suspend, ends_sub_jobs: false })
    }

    /// Returns the change that ends a job.
    pub(super) fn end_change(
        &self,
        current: &Current,
        event: &Event,
        by: Option<&str>,
        control: Option<RecordId>,
    ) -> Result<JobChange, ControlError> {
        let id = current.job.id();
        let mut change = Change::new(event.clone(), self.runtime.now());
        change.by = by.map(str::to_owned);
        change.trigger = control.map(control_trigger);
        let mut draft = current.draft();
        draft.append(change).map_err(|error| control_error(id, error))?;
        Ok(JobChange { draft, follow_up: FollowUp::Stop, ends_sub_jobs: false })
    }
}

/// Returns what a resume of this job has to continue with.
fn paused_turn(current: &Current, now: i64) -> PausedTurn {
    let from = current.job.status();
    let waits_for_attempt = !current.is_held() && current.ready_at.is_some();
    let turn = match from {
        Status::Started if waits_for_attempt => "waiting",
        Status::Started => "open",
        _ => "ended",
    };
    let mut paused = PausedTurn::new(from, turn);
    paused.since = Some(now);
    let left = current.number("deadline").map(|at| at.saturating_sub(now).max(1));
    if from == Status::Pending {
        // The time that it may wait for an executor.
        paused.left_ms = left;
    } else if from == Status::Started {
        paused.left_ms = left;
        paused.ready_at = current.ready_at.filter(|_| waits_for_attempt);
    } else {
        paused.left_ms = current.number("leftMs");
    }
    paused
}

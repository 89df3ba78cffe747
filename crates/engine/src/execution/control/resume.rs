//! What a resume continues with.
//!
//! Finished work is not repeated: an outcome that arrived during the pause is appended in the same
//! commit. A turn that is suspended in a living process continues there. A turn that was lost with
//! its process follows the operation's recovery rule.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::plan::OnFailure;
use catena_job::record::EXECUTION;
use catena_job::state::Event;
use catena_job::{RecordId, Status};
use catena_store::{Hold, HolderKey};
use catena_value::Value;

use super::draft::{RESUMED_BY_NOTICE, control_trigger};
use super::{FollowUp, JobChange};
use crate::error::{ControlError, ResolveError};
use crate::execution::{Execution, PausedTurn, offer, offer_now};
use crate::jobs::{
    Current, control_error, deadline, interrupted, outcome_change, recorded_limit,
    waits_for_message,
};
use crate::operations::{Failure, Operation, QUEUE_NAME, Recovery};
use crate::requests::JobView;

/// What a resume continues with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Continuation {
    /// The outcome that was held.
    HeldOutcome,
    /// The turn that is suspended in the process that holds the job.
    SuspendedTurn,
    /// The steps of an orchestration.
    Steps,
    /// A new turn, from the queue, at this Unix time in ms at the earliest.
    NewTurn(i64),
    /// A repetition of the turn that was lost.
    LostTurn,
    /// A failure: the turn was lost and must not be repeated.
    Failure(Failure),
}

/// What is known of a paused job when it is resumed.
#[derive(Debug, Clone, Copy)]
struct PausedState<'a> {
    /// An outcome arrived during the pause.
    has_outcome: bool,
    /// A living process holds the job.
    is_held: bool,
    /// The job is an orchestration.
    has_plan: bool,
    has_started: bool,
    paused: &'a PausedTurn,
    recovery: Recovery,
    /// Unix time in ms.
    now: i64,
}

impl Continuation {
    fn decide(state: PausedState<'_>) -> Continuation {
        if state.has_outcome {
            Continuation::HeldOutcome
        } else if state.has_plan && state.has_started {
            Continuation::Steps
        } else if state.is_held {
            Continuation::SuspendedTurn
        } else if !state.has_started {
            Continuation::NewTurn(state.now)
        } else if state.paused.turn == "waiting" {
            Continuation::NewTurn(state.paused.ready_at.unwrap_or(state.now).max(state.now))
        } else if state.paused.turn == "ended" {
            Continuation::NewTurn(state.now)
        } else if state.recovery == Recovery::Fail {
            Continuation::Failure(interrupted())
        } else {
            // Resuming is the decision that the rule `pause` leaves to a person.
            Continuation::LostTurn
        }
    }
}

impl Execution {
    /// Returns the change that resumes a job. `control` is the record of an ancestor that it follows
    /// from.
    pub(super) async fn resume_change(
        &self,
        current: &Current,
        by: Option<&str>,
        control: Option<RecordId>,
        alive: &HashSet<HolderKey>,
    ) -> Result<JobChange, ControlError> {
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error.into()),
            Err(error) => {
                let text = format!("the operation is not available: {error}");
                return Err(ControlError::Invalid(text));
            }
        };
        let id = current.job.id();
        let now = self.runtime.now();
        let paused = PausedTurn::from_job(current)
            .unwrap_or_else(|| PausedTurn::new(Status::Started, "open"));
        let continuation = Continuation::decide(PausedState {
            has_outcome: current.job.held().is_some(),
            is_held: self.is_held_alive(current, alive),
            has_plan: operation.plan().is_some(),
            has_started: current.job.has_started(),
            paused: &paused,
            recovery: operation.recovery(),
            now,
        });
        let mut change = Change::new(Event::Resumed, now);
        change.by = by.map(str::to_owned);
        change.trigger = control.map(control_trigger);
        if by.is_none() && control.is_none() {
            change.extra.push(("message", RESUMED_BY_NOTICE.into()));
        }
        change.extra.push(("deadline", self.deadline_after(current, &paused, &operation)));
        let mut draft = current.draft();
        let fence = current.hold.fence;
        let mut append = |change| draft.append(change).map_err(|error| control_error(id, error));
        append(change)?;
        match &continuation {
            Continuation::HeldOutcome => {
                if let Some(held) = current.job.held() {
                    let mut change = Change::new(held.clone().event(), now);
                    change.extra.extend(held.execution.clone().map(|value| (EXECUTION, value)));
                    if !held.status.is_terminal() {
                        let deadline = deadline(now, self.runtime.limits.interactive);
                        change.extra.push(("deadline", deadline));
                    }
                    append(change)?;
                }
            }
            Continuation::Failure(failure) => append(outcome_change(Err(failure.clone()), now))?,
            Continuation::LostTurn => {
                let note = Note::Recovered {
                    attempt: Some(current.job.attempt() + 1),
                    reason: Some("resumed after the work had been lost".to_owned()),
                    interruptions: Some(current.job.interruptions()),
                };
                append(Change::new(Event::Noted(note), now))?;
            }
            Continuation::SuspendedTurn | Continuation::Steps | Continuation::NewTurn(_) => {}
        }
        match &continuation {
            Continuation::SuspendedTurn => draft.set_hold(Hold::Under(fence)),
            Continuation::Steps => {}
            _ if current.is_held() => draft.set_hold(Hold::Release(fence)),
            _ => draft.set_hold(Hold::Vacant(fence)),
        }
        match &continuation {
            Continuation::NewTurn(ready_at) => draft.add(offer(&current.job, *ready_at)),
            Continuation::LostTurn => draft.add(offer_now(&current.job, now)),
            _ => {}
        }
        let ends_sub_jobs = draft.job().status().is_terminal() && !leaves_steps(&operation);
        Ok(JobChange { draft, follow_up: FollowUp::Continue(continuation), ends_sub_jobs })
    }

    /// Returns true if a living process holds the job and still has its work.
    fn is_held_alive(&self, current: &Current, alive: &HashSet<HolderKey>) -> bool {
        match &current.hold.holder {
            None => false,
            Some(holder) if *holder == self.jobs.process => {
                let runs = self.registry.runs_of(current.job.id());
                runs.iter().any(|handle| handle.fence == current.hold.fence)
            }
            Some(holder) => holder.is_receiver() || alive.contains(&holder.key()),
        }
    }

    /// Returns the deadline of a job that is resumed. The time limit of one that nobody has claimed yet
    /// begins with the claim.
    fn deadline_after(
        &self,
        current: &Current,
        paused: &PausedTurn,
        operation: &Operation,
    ) -> Value {
        let now = self.runtime.now();
        if is_unclaimed(current) {
            return paused.left_ms.map_or(Value::Nil, |left| now.saturating_add(left).into());
        }
        deadline(now, self.time_left(current, paused, operation))
    }

    /// Returns the execution time that was left when the job was paused.
    fn time_left(&self, current: &Current, paused: &PausedTurn, operation: &Operation) -> Duration {
        let left = paused.left_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        left.unwrap_or_else(|| recorded_limit(&self.runtime.limits, &current.job, operation))
    }

    /// Does what a committed resume continues with.
    pub(super) fn continue_job(self: &Arc<Self>, view: &JobView, continuation: Continuation) {
        let id = view.job.id();
        match continuation {
            Continuation::SuspendedTurn => self.resume_runs(id),
            Continuation::Steps => {
                self.resume_runs(id);
                if let Some(plans) = self.plan_runner() {
                    self.runtime.spawn(plans.drive(id));
                }
            }
            Continuation::NewTurn(_) | Continuation::LostTurn => self.notify_queued(&view.job),
            Continuation::HeldOutcome if waits_for_message(view.status()) => {
                self.runtime.spawn(self.wake(id));
            }
            Continuation::HeldOutcome | Continuation::Failure(_) => {}
        }
    }

    fn resume_runs(&self, id: catena_job::JobId) {
        for handle in self.registry.runs_of(id) {
            handle.resume(&self.runtime, &self.slots.permits);
        }
    }
}

/// Returns true if a job waits on a queue and no worker has ever held it.
pub(crate) fn is_unclaimed(current: &Current) -> bool {
    current.hold.fence == 0 && current.job.field(QUEUE_NAME).is_some()
}

/// Returns true if the steps of an orchestration continue when it fails.
pub(super) fn leaves_steps(operation: &Operation) -> bool {
    operation.plan().is_some_and(|plan| plan.on_failure == OnFailure::Leave)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000;

    fn check(change: impl FnOnce(&mut PausedState<'_>), turn: &str, expected: Continuation) {
        let mut paused = PausedTurn::new(Status::Started, turn);
        paused.ready_at = (turn == "waiting").then_some(NOW + 50);
        let mut lost = PausedState {
            has_outcome: false,
            is_held: false,
            has_plan: false,
            has_started: true,
            paused: &paused,
            recovery: Recovery::Rerun,
            now: NOW,
        };
        change(&mut lost);
        assert_eq!(Continuation::decide(lost), expected, "{lost:?}");
    }

    #[test]
    fn a_resume_continues_with_the_first_that_applies() {
        use Continuation::*;
        check(|job| job.has_outcome = true, "open", HeldOutcome);
        check(|job| (job.has_outcome, job.is_held) = (true, true), "open", HeldOutcome);
        check(|job| job.has_plan = true, "open", Steps);
        check(|job| job.is_held = true, "open", SuspendedTurn);
        check(|job| job.is_held = true, "ended", SuspendedTurn);
        check(|job| job.has_started = false, "ended", NewTurn(NOW));
        check(|job| (job.has_started, job.has_plan) = (false, true), "ended", NewTurn(NOW));
        check(|_| {}, "waiting", NewTurn(NOW + 50));
        check(|job| job.recovery = Recovery::Fail, "waiting", NewTurn(NOW + 50));
        check(|_| {}, "ended", NewTurn(NOW));
        check(|job| job.recovery = Recovery::Fail, "ended", NewTurn(NOW));
        check(|job| job.recovery = Recovery::Fail, "open", Failure(interrupted()));
        check(|job| job.recovery = Recovery::Pause, "open", LostTurn);
        check(|_| {}, "open", LostTurn);
    }
}

//! Resumes a paused job where it stopped.
//!
//! Finished work is not repeated: an outcome that arrived during the pause is appended in the same
//! commit. A turn that is paused in this process continues; a turn that was lost with its process
//! follows the operation's recovery rule.

use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_value::{NoCells, Value};
use tokio::sync::OwnedSemaphorePermit;

use crate::commands::Commands;
use crate::error::{ControlError, ResolveError, StoreError};
use crate::execution::{Run, RunGuard, RunSpec, offer};
use crate::jobs::{
    Current, Draft, check_control, control_error, deadline, interrupted, outcome_change,
    recorded_limit, unless_overtaken,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::{Cause, Failure, Operation, Recovery, Signal};
use crate::requests::{Caller, JobView};

/// What a resume continues with.
#[derive(Debug, Clone, PartialEq)]
enum ResumeAction {
    /// The outcome that was held.
    ReleaseOutcome,
    /// The turn that is paused in this process.
    ContinueTurn,
    /// A new turn.
    StartTurn(Cause),
    /// A failure: the turn was lost and must not be repeated.
    Fail(Failure),
}

/// What is known of a paused job when it is resumed.
#[derive(Debug, Clone, Copy)]
struct PausedState {
    /// An outcome arrived during the pause.
    has_outcome: bool,
    /// This process has claimed the job for a run.
    runs_here: bool,
    has_started: bool,
    /// The job was paused in the middle of a turn.
    was_in_turn: bool,
    recovery: Recovery,
}

impl ResumeAction {
    /// Decides what a resume continues with. A turn that is repeated has [`Cause::Retry`] here.
    fn decide(paused: PausedState) -> ResumeAction {
        if paused.has_outcome {
            ResumeAction::ReleaseOutcome
        } else if paused.runs_here {
            ResumeAction::ContinueTurn
        } else if !paused.has_started {
            ResumeAction::StartTurn(Cause::Start)
        } else if !paused.was_in_turn {
            ResumeAction::StartTurn(Cause::Resume)
        } else if paused.recovery == Recovery::Fail {
            ResumeAction::Fail(interrupted())
        } else {
            ResumeAction::StartTurn(Cause::Retry)
        }
    }
}

/// What a resume has claimed before its commit.
struct Claims {
    guard: Option<RunGuard>,
    slot: Option<OwnedSemaphorePermit>,
}

impl Commands {
    /// Resumes a paused job.
    pub(crate) async fn resume(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
    ) -> Result<JobView, ControlError> {
        let commands = Arc::clone(self);
        let caller = caller.clone();
        let resuming = async move { commands.resume_recorded(&caller, id).await };
        self.runtime.finish_even_if_dropped(resuming).await
    }

    async fn resume_recorded(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
    ) -> Result<JobView, ControlError> {
        self.execution.check_recorded(id, "be resumed")?;
        for _ in 0..CONTENTION_TRIES_MAX {
            let current = self.jobs.current(id).await?.ok_or(ControlError::NotFound(id))?;
            check_control(caller, &current)?;
            let status = current.job.status();
            if status != Status::Paused {
                let action = "be resumed";
                return Err(ControlError::Conflict { job: id, status, action });
            }
            if let Some(view) = self.try_resume(caller, &current).await? {
                self.signal_children(&view.job, Signal::Go).await;
                return Ok(self.views.complete(view).await?);
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Tries once. Returns `None` if the job has changed meanwhile.
    async fn try_resume(
        &self,
        caller: &Caller,
        current: &Current,
    ) -> Result<Option<JobView>, ControlError> {
        let id = current.job.id();
        // Claimed before the commit, so that a request that stops the job next finds a run to signal.
        let registry = &self.execution.registry;
        let guard = registry.claim_when_idle(id, None, &self.runtime.env).await;
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error.into()),
            Err(error) => {
                let text = format!("the operation is not available: {error}");
                return Err(ControlError::Invalid(text));
            }
        };
        let action = self.resume_action(current, guard.is_none(), &operation).await?;
        let time_left = self.time_left(current, &operation);
        let slot = self.execution.try_claim_slot();
        let draft = self.draft_resume(caller, current, &action, time_left, slot.is_some())?;
        let Some(committed) = unless_overtaken(self.jobs.commit(draft).await)? else {
            return Ok(None);
        };
        let view = committed.view;
        let claims = Claims { guard, slot };
        self.carry_on(current, &view, action, time_left, claims, operation).await?;
        Ok(Some(view))
    }

    async fn resume_action(
        &self,
        current: &Current,
        runs_here: bool,
        operation: &Operation,
    ) -> Result<ResumeAction, StoreError> {
        let turn = member_of_pause(current, "turn");
        let action = ResumeAction::decide(PausedState {
            has_outcome: current.job.held().is_some(),
            runs_here,
            has_started: current.job.has_started(),
            was_in_turn: turn.and_then(|turn| Some(turn.as_str()? == "open")).unwrap_or(true),
            recovery: operation.recovery(),
        });
        let answers_message = member_of_pause(current, "trigger").is_some();
        if action == ResumeAction::StartTurn(Cause::Retry)
            && answers_message
            && let Some(message) = self.jobs.last_message(current).await?
        {
            return Ok(ResumeAction::StartTurn(Cause::Message(message)));
        }
        Ok(action)
    }

    /// Returns the time that was left when the job was paused.
    fn time_left(&self, current: &Current, operation: &Operation) -> Duration {
        let left = member_of_pause(current, "leftMs").and_then(|left| left.as_i64());
        let left = left.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        left.unwrap_or_else(|| recorded_limit(&self.runtime.limits, &current.job, operation))
    }

    fn draft_resume(
        &self,
        caller: &Caller,
        current: &Current,
        action: &ResumeAction,
        time_left: Duration,
        has_slot: bool,
    ) -> Result<Draft, ControlError> {
        let id = current.job.id();
        let now = self.runtime.now();
        let mut change = Change::new(Event::Resumed, now);
        change.by = Some(caller.did.to_string());
        change.extra.push(("deadline", deadline(now, time_left)));
        let mut draft = current.draft();
        let mut append = |change| draft.append(change).map_err(|error| control_error(id, error));
        append(change)?;
        match action {
            ResumeAction::ReleaseOutcome => {
                if let Some(held) = current.job.held() {
                    let mut change = Change::new(held.clone().event(), now);
                    if !held.status.is_terminal() {
                        let deadline = deadline(now, self.runtime.limits.interactive);
                        change.extra.push(("deadline", deadline));
                    }
                    append(change)?;
                }
            }
            ResumeAction::ContinueTurn => {}
            ResumeAction::Fail(failure) => append(outcome_change(Err(failure.clone()), now))?,
            ResumeAction::StartTurn(Cause::Retry | Cause::Message(_)) => {
                let reason = Some("resumed after the venue had stopped".to_owned());
                let attempt = Some(current.job.attempt() + 1);
                let note = Note::Recovered { attempt, reason };
                append(Change::new(Event::Noted(note), now))?;
            }
            ResumeAction::StartTurn(_) => {}
        }
        if matches!(action, ResumeAction::StartTurn(_)) && !has_slot {
            draft.add(offer(id, now));
        }
        Ok(draft)
    }

    /// Does what the committed resume continues with.
    async fn carry_on(
        &self,
        current: &Current,
        view: &JobView,
        action: ResumeAction,
        time_left: Duration,
        claims: Claims,
        operation: Arc<Operation>,
    ) -> Result<(), StoreError> {
        let id = current.job.id();
        match (action, claims.guard, claims.slot) {
            (ResumeAction::StartTurn(cause), Some(guard), Some(slot)) => {
                let spec = RunSpec {
                    operation,
                    caller: self.jobs.owner_of(&current.job),
                    input: self.jobs.input_of(current).await?,
                    cause,
                    time_left,
                };
                let run = Run::new((*view.job).clone(), view.cells.clone(), spec, guard);
                let run = run.with_slot(slot);
                self.runtime.spawn(run.execute(Arc::clone(&self.execution)));
            }
            (ResumeAction::StartTurn(_), guard, None) => {
                drop(guard);
                self.execution.notify_queued(&view.job);
            }
            (ResumeAction::ReleaseOutcome, guard, slot) => {
                drop(guard);
                self.execution.wake(id, slot).await;
            }
            (_, None, _) => {
                if let Some(handle) = self.execution.registry.get(id) {
                    handle.signal(Signal::Go);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns a member of the `paused` member of a job.
fn member_of_pause(current: &Current, name: &str) -> Option<Value> {
    let paused = current.member("paused").ok()??;
    paused.as_map()?.get(&name.into(), &NoCells).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resume_continues_with_the_first_that_applies() {
        use ResumeAction::*;
        let lost = PausedState {
            has_outcome: false,
            runs_here: false,
            has_started: true,
            was_in_turn: true,
            recovery: Recovery::Rerun,
        };
        let check = |paused: PausedState, expected: ResumeAction| {
            assert_eq!(ResumeAction::decide(paused), expected, "{paused:?}");
        };
        check(PausedState { has_outcome: true, runs_here: true, ..lost }, ReleaseOutcome);
        check(PausedState { has_outcome: true, has_started: false, ..lost }, ReleaseOutcome);
        check(PausedState { runs_here: true, ..lost }, ContinueTurn);
        check(PausedState { runs_here: true, was_in_turn: false, ..lost }, ContinueTurn);
        check(PausedState { has_started: false, ..lost }, StartTurn(Cause::Start));
        check(PausedState { was_in_turn: false, ..lost }, StartTurn(Cause::Resume));
        let no_turn = PausedState { was_in_turn: false, recovery: Recovery::Fail, ..lost };
        check(no_turn, StartTurn(Cause::Resume));
        check(PausedState { recovery: Recovery::Fail, ..lost }, Fail(interrupted()));
        check(lost, StartTurn(Cause::Retry));
        // Resuming is the decision that `pause` leaves to a person.
        check(PausedState { recovery: Recovery::Pause, ..lost }, StartTurn(Cause::Retry));
    }
}

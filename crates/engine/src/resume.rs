//! Lets a paused job go on where it stopped.
//!
//! What had finished is not done again: an outcome that arrived during the pause is appended in the
//! same commit. A turn that was in the middle and is still here goes on; one that was lost with its
//! process follows the operation's rule for recovery.

use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::CommitError;
use catena_value::{NoCells, Value};
use tokio::sync::OwnedSemaphorePermit;

use crate::adapter::{Cause, Failure};
use crate::caller::Caller;
use crate::change::{Current, Draft};
use crate::control::Signal;
use crate::engine::Engine;
use crate::error::{ControlError, ResolveError, StoreError};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operation::{Operation, Recovery};
use crate::pause::{may_control, uncontrolled};
use crate::request::JobView;
use crate::run::Run;
use crate::running::Held;
use crate::submit::{deadline, milliseconds, offer, outcome};

/// What a resume goes on with.
enum Plan {
    /// The outcome that was held.
    Outcome,
    /// The turn that stands still in this process.
    GoOn,
    /// A new turn.
    Turn(Cause),
    /// Nothing: the turn was lost and may not be repeated.
    Fail(Failure),
}

impl Engine {
    /// Lets a paused job go on.
    pub async fn resume(&self, caller: &Caller, id: JobId) -> Result<JobView, ControlError> {
        let (engine, caller) = (self.clone(), caller.clone());
        self.surely(async move { engine.resume_now(&caller, id).await }).await
    }

    async fn resume_now(&self, caller: &Caller, id: JobId) -> Result<JobView, ControlError> {
        self.check_recorded(id, "resume")?;
        for _ in 0..CONTENTION_TRIES_MAX {
            let current = self.current(id).await?.ok_or(ControlError::NotFound(id))?;
            may_control(caller, &current)?;
            let status = current.job.status();
            if status != Status::Paused {
                return Err(ControlError::Conflict { job: id, status, action: "resume" });
            }
            match self.try_resume(caller, &current).await {
                Ok(view) => {
                    self.hold_children(&view.job, Signal::Go).await;
                    return Ok(self.with_steps(self.phased(view)).await?);
                }
                Err(Some(error)) => return Err(error),
                Err(None) => {}
            }
        }
        Err(StoreError::Contended.into())
    }

    /// One attempt; no error when somebody else changed the job first.
    async fn try_resume(
        &self,
        caller: &Caller,
        current: &Current,
    ) -> Result<JobView, Option<ControlError>> {
        let id = current.job.id();
        let store = |trouble: StoreError| Some(ControlError::from(trouble));
        // Taken before the commit, so that whoever stops the job next finds whom to tell.
        let held = self.0.running.take_after_lookers(id, None, &self.0.env).await;
        let operation = match self.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(trouble)) => return Err(store(trouble)),
            Err(error) => {
                let text = format!("the operation is no longer here: {error}");
                return Err(Some(ControlError::Invalid(text)));
            }
        };
        let plan = self.plan(current, held.is_none(), &operation).await.map_err(store)?;
        let left = self.time_left(current, &operation);
        let slot = Arc::clone(&self.0.slots).try_acquire_owned().ok();
        let draft = self.resuming(caller, current, &plan, left, slot.is_some());
        let draft = draft.map_err(Some)?;
        let view = match self.commit(draft).await {
            Ok((view, _)) => view,
            Err(
                CommitError::HeadMoved { .. }
                | CommitError::QueueMoved { .. }
                | CommitError::RootMoved { .. },
            ) => return Err(None),
            Err(error) => return Err(store(error.into())),
        };
        self.go_on(current, &view, plan, left, held, slot, operation).await.map_err(store)?;
        Ok(view)
    }

    async fn plan(
        &self,
        current: &Current,
        runs_here: bool,
        operation: &Operation,
    ) -> Result<Plan, StoreError> {
        if current.job.held().is_some() {
            return Ok(Plan::Outcome);
        }
        if runs_here {
            return Ok(Plan::GoOn);
        }
        if !current.job.has_started() {
            return Ok(Plan::Turn(Cause::Start));
        }
        let was_open =
            paused_member(current, "turn").and_then(|turn| Some(turn.as_str()? == "open"));
        if !was_open.unwrap_or(true) {
            return Ok(Plan::Turn(Cause::Resume));
        }
        if operation.recovery() == Recovery::Fail {
            return Ok(Plan::Fail(crate::duties::recover::interrupted()));
        }
        let of_a_message = paused_member(current, "trigger").is_some();
        let message = match of_a_message {
            true => self.last_message(current).await?,
            false => None,
        };
        Ok(Plan::Turn(message.map_or(Cause::Retry, Cause::Message)))
    }

    /// The time that was left when the job was paused.
    fn time_left(&self, current: &Current, operation: &Operation) -> Duration {
        let left = paused_member(current, "leftMs").and_then(|left| left.as_i64());
        let left = left.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        left.unwrap_or_else(|| self.limit_of(&current.job, operation))
    }

    fn resuming(
        &self,
        caller: &Caller,
        current: &Current,
        plan: &Plan,
        left: Duration,
        has_slot: bool,
    ) -> Result<Draft, ControlError> {
        let (id, now) = (current.job.id(), self.now());
        let mut change = Change::new(Event::Resumed, now);
        change.by = Some(caller.did.to_string());
        change.extra.push(("deadline", deadline(now, left)));
        let mut draft = current.draft();
        let mut append = |change| draft.append(change).map_err(|error| uncontrolled(id, error));
        append(change)?;
        match plan {
            Plan::Outcome => {
                if let Some(held) = current.job.held() {
                    let mut change = Change::new(held.clone().event(), now);
                    if !held.status.is_terminal() {
                        let waits = deadline(now, self.0.limits.interactive);
                        change.extra.push(("deadline", waits));
                    }
                    append(change)?;
                }
            }
            Plan::GoOn => {}
            Plan::Fail(failure) => append(outcome(Err(failure.clone()), now))?,
            Plan::Turn(Cause::Retry | Cause::Message(_)) => {
                let reason = "resumed after the venue had stopped".to_owned();
                let attempt = Some(current.job.attempt() + 1);
                let note = Note::Recovered { attempt, reason: Some(reason) };
                append(Change::new(Event::Noted(note), now))?;
            }
            Plan::Turn(_) => {}
        }
        if matches!(plan, Plan::Turn(_)) && !has_slot {
            draft.with(offer(id, now));
        }
        Ok(draft)
    }

    #[expect(clippy::too_many_arguments, reason = "all of it is handed on to one run")]
    async fn go_on(
        &self,
        current: &Current,
        view: &JobView,
        plan: Plan,
        left: Duration,
        held: Option<Held>,
        slot: Option<OwnedSemaphorePermit>,
        operation: Arc<Operation>,
    ) -> Result<(), StoreError> {
        let id = current.job.id();
        match (plan, held, slot) {
            (Plan::Turn(cause), Some(held), Some(slot)) => {
                let run = Run {
                    job: (*view.job).clone(),
                    cells: view.cells.clone(),
                    operation,
                    caller: self.owner_of(&current.job),
                    input: self.input_of(current).await?,
                    cause,
                    left,
                    held,
                    slot: Some(slot),
                };
                self.spawn(run.carry_out(self.clone()));
            }
            (Plan::Turn(_), held, None) => {
                drop(held);
                self.has_queued(&view.job);
            }
            (Plan::Outcome, held, slot) => {
                drop(held);
                self.wake(id, slot).await;
            }
            (_, None, _) => {
                if let Some(reins) = self.0.running.get(id) {
                    reins.signal(Signal::Go);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn paused_member(current: &Current, name: &str) -> Option<Value> {
    let paused = current.member("paused").ok()??;
    paused.as_map()?.get(&name.into(), &NoCells).ok()?
}

/// The time that is left of a deadline, for a turn that begins now.
pub(crate) fn left_until(deadline: Option<i64>, now: i64, limit: Duration) -> Duration {
    let Some(at) = deadline else { return limit };
    let left = at.saturating_sub(now).clamp(1, milliseconds(limit).max(1));
    Duration::from_millis(u64::try_from(left).unwrap_or(1))
}

//! Starts jobs that are bound to roots.
//!
//! The adapter decides on the current roots whether the job runs, waits or ends, and what it decides is
//! committed together with the record. A job that has to wait leaves the queue and occupies nothing; the
//! change of roots that makes room for it puts it back.

use std::sync::Arc;

use catena_job::Status;
use catena_job::chain::Change;
use catena_job::state::Event;
use catena_store::{CommitError, Effect, Hold};

use crate::background::Background;
use crate::error::StoreError;
use crate::execution::{Run, RunGuard, RunSpec};
use crate::jobs::{
    Current, Draft, append_error, deadline, outcome_change, recorded_limit, refusal_change,
    unless_overtaken,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::{BoundStart, Cause, Operation};

impl Background {
    /// Starts a bound job for the first time. `None` if it waits, has ended, or another process was
    /// first.
    pub(super) async fn start_bound(
        &self,
        current: Current,
        operation: Arc<Operation>,
    ) -> Result<Option<Run>, StoreError> {
        let input = self.jobs.input_of(&current).await?;
        let caller = self.jobs.caller_of(&current.job).await?;
        let time_left = recorded_limit(&self.runtime.limits, &current.job, &operation);
        let mut notifies = true;
        for _ in 0..CONTENTION_TRIES_MAX {
            let (start, released) = self.jobs.decide_start(&current, &operation, notifies).await?;
            let mut draft = current.draft();
            let guard = self.append_start(&mut draft, &current, start, time_left)?;
            released.effects.into_iter().for_each(|effect| draft.add(effect));
            draft.mark_released();
            let committed = match self.jobs.commit(draft).await {
                // Somebody else changed the roots first.
                Err(CommitError::RootMoved { .. }) => continue,
                Err(CommitError::MessagesFull { .. }) if notifies => {
                    notifies = false;
                    continue;
                }
                committed => unless_overtaken(committed)?,
            };
            if committed.is_some() {
                self.jobs.wake_receivers(released.receivers);
            }
            let (Some(guard), Some(committed)) = (guard, committed) else { return Ok(None) };
            let cause = Cause::Start;
            let spec = RunSpec { operation, caller, input, cause, time_left };
            return Ok(Some(Run::new(committed.view.job, committed.view.cells, spec, guard)));
        }
        Err(StoreError::Contended)
    }

    /// Appends what was decided. Returns the guard of the run if the job runs.
    fn append_start(
        &self,
        draft: &mut Draft,
        current: &Current,
        start: BoundStart,
        time_left: std::time::Duration,
    ) -> Result<Option<RunGuard>, StoreError> {
        let now = self.runtime.now().max(current.job.updated());
        let is_pending = current.job.status() == Status::Pending;
        let result = match start {
            BoundStart::Run => {
                if is_pending {
                    let mut change = Change::new(Event::Started, now);
                    change.extra.push(("deadline", deadline(now, time_left)));
                    draft.append(change).map_err(append_error)?;
                }
                return Ok(Some(self.execution.acquire(draft)));
            }
            BoundStart::Wait => {
                draft.set_hold(Hold::Vacant(current.hold.fence));
                draft.add(Effect::Dequeue { job: current.job.id() });
                return Ok(None);
            }
            BoundStart::Refuse(failure) if is_pending => {
                draft.append(refusal_change(failure, now)).map_err(append_error)?;
                return Ok(None);
            }
            BoundStart::Complete(output) => Ok(output),
            BoundStart::Fail(failure) | BoundStart::Refuse(failure) => Err(failure),
        };
        if is_pending {
            draft.append(Change::new(Event::Started, now)).map_err(append_error)?;
        }
        draft.append(outcome_change(result, now)).map_err(append_error)?;
        Ok(None)
    }
}

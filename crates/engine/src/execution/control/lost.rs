//! Ends and pauses jobs that nobody runs, together with everything below them.

use std::sync::Arc;

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{Job, Status};
use catena_store::{CommitError, Effect};

use super::resume::leaves_steps;
use super::{ControlAction, PendingControl, open_sub_jobs};
use crate::error::{ControlError, StoreError};
use crate::execution::{Execution, PausedTurn, paused_member};
use crate::jobs::{
    Current, Draft, append_error, deadline, is_live, message_trigger, outcome_change,
    unless_overtaken, waits_for_message,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::Failure;

impl Execution {
    /// Pauses a job whose secrets were sealed with a key that this venue does not have.
    pub(crate) async fn pause_without_key(
        self: &Arc<Self>,
        current: &Current,
    ) -> Result<(), StoreError> {
        let message = "its secrets cannot be decrypted: the key that sealed them is missing";
        tracing::warn!(job = %current.job.id(), "paused a job: {message}");
        self.pause_lost(current, message).await
    }

    /// Pauses a job that nobody runs, so that a person decides how it goes on.
    pub(crate) async fn pause_lost(
        self: &Arc<Self>,
        current: &Current,
        message: &str,
    ) -> Result<(), StoreError> {
        let now = self.runtime.now();
        let mut change = Change::new(Event::Paused, now);
        // With a name, because it must not be resumed only because a step is.
        change.by = Some(self.jobs.did.to_string());
        let trigger = message_trigger(&current.job);
        let mut paused = PausedTurn::new(current.job.status(), "open");
        paused.since = Some(now);
        change.extra.push(("paused", paused_member(&paused, trigger)));
        change.extra.push(("deadline", deadline(now, self.runtime.limits.interactive)));
        change.extra.push(("message", message.into()));
        let mut draft = current.draft();
        draft.append(change).map_err(append_error)?;
        draft.set_hold(current.vacated());
        draft.add(Effect::Dequeue { job: current.job.id() });
        self.commit_with_sub_jobs(draft).await.map(drop)
    }

    /// Fails a job that nobody runs. Returns false if another request changed it first.
    pub(crate) async fn fail_lost(
        self: &Arc<Self>,
        current: &Current,
        failure: Failure,
    ) -> Result<bool, StoreError> {
        let now = self.runtime.now();
        let mut draft = current.draft();
        match current.job.status() {
            // A job that must fail before it ever started is REJECTED.
            Status::Pending => {
                draft.append(Change::new(Event::Refused { error: failure.error }, now))
            }
            status => {
                if waits_for_message(status) {
                    draft.append(Change::new(Event::Answered, now)).map_err(append_error)?;
                }
                draft.append(outcome_change(Err(failure), now))
            }
        }
        .map_err(append_error)?;
        self.commit_with_sub_jobs(draft).await
    }

    /// Cancels a step that must not run because the job above it has ended. Returns false if it may
    /// run.
    pub(crate) async fn cancel_orphan(self: &Arc<Self>, job: &Job) -> Result<bool, StoreError> {
        let Some(reason) = self.orphan_reason(job).await? else { return Ok(false) };
        let id = job.id();
        tracing::info!(job = %id, reason, "cancelling a step whose parent job has ended");
        let event = Event::Cancelled { error: format!("Job cancelled: {reason}") };
        let may = |current: &Current| Ok(is_live(&current.job));
        match self.end(id, &event, Some(self.jobs.did.to_string()), may).await {
            Err(ControlError::Store(error)) => Err(error),
            _ => Ok(true),
        }
    }

    /// Returns why a step must not run: a process stopped after the job above it had ended and before
    /// the step was cancelled.
    async fn orphan_reason(&self, job: &Job) -> Result<Option<String>, StoreError> {
        let Some(parent) = job.parent().filter(|parent| parent.step().is_some()) else {
            return Ok(None);
        };
        let Some(parent) = self.jobs.current(parent.job).await? else {
            return Ok(Some("the parent job was deleted".to_owned()));
        };
        let status = parent.job.status();
        if !status.is_terminal() || !self.cancels_sub_jobs(&parent.job).await {
            return Ok(None);
        }
        Ok(Some(format!("the parent job is {status}")))
    }

    /// Commits a draft that ends a job or pauses it, and ends or pauses what is open below the job.
    /// Returns false if another request changed the job first.
    async fn commit_with_sub_jobs(self: &Arc<Self>, draft: Draft) -> Result<bool, StoreError> {
        let id = draft.job().id();
        for _ in 0..CONTENTION_TRIES_MAX {
            let mut draft = draft.clone();
            let is_pending = self.control_sub_jobs(&mut draft).await?;
            let committed = match self.jobs.commit(draft).await {
                // What was pending below the job has been carried out or replaced meanwhile.
                Err(CommitError::RootMoved { .. }) => continue,
                committed => unless_overtaken(committed)?.is_some(),
            };
            if committed && is_pending {
                self.carry_out(id).await;
            }
            return Ok(committed);
        }
        Err(StoreError::Contended)
    }

    /// Adds to a change that ends a job or pauses it the request to end or pause what is open below
    /// it, in place of an earlier request. Returns false if there is nothing to carry out afterwards.
    pub(crate) async fn control_sub_jobs(&self, draft: &mut Draft) -> Result<bool, StoreError> {
        let ends = draft.job().status().is_terminal();
        if ends && !self.cancels_sub_jobs(draft.job()).await {
            draft.leave_remote_steps();
            return Ok(false);
        }
        if open_sub_jobs(draft.job()).is_empty() {
            return Ok(false);
        }
        let earlier = self.jobs.pending_control(draft.job().id()).await?;
        let pending = if ends {
            PendingControl::cancel(draft.job())
        } else {
            PendingControl::new(draft.job(), &ControlAction::Pause)
        };
        draft.add(pending.store(earlier.as_ref()));
        Ok(true)
    }

    /// Returns true if what is open below a job that has ended is cancelled. The definition of an
    /// orchestration may leave it running after a failure.
    pub(super) async fn cancels_sub_jobs(&self, ended: &Job) -> bool {
        if ended.status() != Status::Failed {
            return true;
        }
        let operation = self.operations.operation_of(ended).await;
        operation.map_or(true, |operation| !leaves_steps(&operation))
    }
}

//! Ends jobs that nobody runs, together with everything below them.

use std::sync::Arc;

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{Job, Status};
use catena_store::CommitError;

use super::resume::leaves_steps;
use super::{PendingControl, open_sub_jobs};
use crate::error::StoreError;
use crate::execution::Execution;
use crate::jobs::{
    Current, Draft, append_error, outcome_change, unless_overtaken, waits_for_message,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::Failure;

impl Execution {
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

    /// Commits a draft that ends a job, and ends what is open below the job. Returns false if another request changed the job first.
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

    /// Adds to a change that ends a job the request to end what is open below it, in place of an
    /// earlier request. Returns false if there is nothing to carry out afterwards.
    pub(crate) async fn control_sub_jobs(&self, draft: &mut Draft) -> Result<bool, StoreError> {
        if !self.cancels_sub_jobs(draft.job()).await {
            draft.leave_remote_steps();
            return Ok(false);
        }
        if open_sub_jobs(draft.job()).is_empty() {
            return Ok(false);
        }
        let earlier = self.jobs.pending_control(draft.job().id()).await?;
        let pending = PendingControl::cancel(draft.job());
        draft.add(pending.store(earlier.as_ref()));
        Ok(true)
    }

    /// Returns true if what is open below a job that has ended is cancelled. The definition of an
    /// orchestration may leave it running after a failure.
    pub(crate) async fn cancels_sub_jobs(&self, ended: &Job) -> bool {
        if ended.status() != Status::Failed {
            return true;
        }
        let operation = self.operations.operation_of(ended).await;
        operation.map_or(true, |operation| !leaves_steps(&operation))
    }
}

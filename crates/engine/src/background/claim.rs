//! Claims jobs from the queue and runs them, as many as there are slots for.
//!
//! A claim is a lease: it ends unless it is renewed, and every commit under it carries its fence.
//! Jobs are queued if there was no slot for them, if recovery requeued them, or if a message arrived
//! while all slots were occupied.

use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::{Claim, Effect, Effects};
use tokio::sync::OwnedSemaphorePermit;

use crate::background::Background;
use crate::error::{ResolveError, StoreError};
use crate::execution::{QUEUE, Run, RunGuard, RunSpec};
use crate::jobs::{
    Current, append_error, deadline, incomplete_payload, is_answering, milliseconds,
    outcome_change, recorded_limit, time_until, unless_overtaken,
};
use crate::operations::{Cause, Operation};

/// Tasks that claim at the same time, so that claims share syncs.
pub(super) const CLAIMERS: usize = 16;

/// How long a lease lasts.
pub(super) const LEASE: Duration = Duration::from_secs(10);

/// How often the queue is read without a notification: only another process can have queued a job
/// then.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// How long to wait after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Claims and runs jobs, repeatedly.
pub(super) async fn claim_jobs(background: Arc<Background>) {
    let execution = &background.execution;
    loop {
        let Ok(slot) = Arc::clone(&execution.slots).acquire_owned().await else { return };
        match background.claim_job(slot).await {
            Ok(true) => {}
            Ok(false) => {
                tokio::select! {
                    () = execution.queued.notified() => {}
                    () = background.runtime.env.sleep(POLL_INTERVAL) => {}
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot claim from the queue");
                background.runtime.env.sleep(RETRY_DELAY).await;
            }
        }
    }
}

impl Background {
    /// Claims one job and starts its run. Returns false if the queue is empty.
    async fn claim_job(&self, slot: OwnedSemaphorePermit) -> Result<bool, StoreError> {
        let execution = &self.execution;
        let now = self.runtime.now();
        let until = now + milliseconds(LEASE);
        let claim = self.jobs.store.claim(QUEUE, &execution.process, now, until).await?;
        let Some(claim) = claim else { return Ok(false) };
        // There may be more: let another task check.
        execution.queued.notify_one();
        let id = claim.job;
        let env = &self.runtime.env;
        let guard = execution.registry.claim_when_idle(id, Some(claim.fence), env).await;
        self.jobs.queue_stats.remove(id);
        let Some(guard) = guard else {
            // It runs here already, and that run does what it was queued for.
            self.withdraw(id).await?;
            return Ok(true);
        };
        match self.start_claimed(&claim, guard).await {
            Ok(Some(run)) => {
                self.runtime.spawn(run.with_slot(slot).execute(Arc::clone(execution)));
            }
            Ok(None) => {}
            Err(error) => tracing::error!(job = %id, %error, "cannot start a claimed job"),
        }
        Ok(true)
    }

    async fn withdraw(&self, job: JobId) -> Result<(), StoreError> {
        let committed = self.jobs.store.commit(Effects::one(Effect::Dequeue { job })).await;
        unless_overtaken(committed).map(drop)
    }

    /// Returns the run of a claimed job. If there is nothing to run, the job is withdrawn from the
    /// queue.
    async fn start_claimed(
        &self,
        claim: &Claim,
        guard: RunGuard,
    ) -> Result<Option<Run>, StoreError> {
        let id = claim.job;
        let Some(current) = self.jobs.current(id).await? else { return Ok(None) };
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error),
            Err(reason) => {
                tracing::warn!(job = %id, %reason, "a queued job has no operation at this venue");
                self.withdraw(id).await?;
                return Ok(None);
            }
        };
        let run = match current.job.status() {
            Status::Pending => self.start_pending(current, guard, operation).await?,
            Status::Started => self.restart(current, guard, operation).await?,
            Status::InputRequired | Status::AuthRequired => {
                let queued = self.jobs.store.messages(id, 1).await?.into_iter().next();
                match queued {
                    Some(message) => {
                        self.execution.start_answer(current, message, guard, operation).await?
                    }
                    None => None,
                }
            }
            _ => None,
        };
        if run.is_none() {
            self.withdraw(id).await?;
        }
        Ok(run)
    }

    /// Starts a job for the first time.
    async fn start_pending(
        &self,
        current: Current,
        guard: RunGuard,
        operation: Arc<Operation>,
    ) -> Result<Option<Run>, StoreError> {
        let now = self.runtime.now();
        let time_left = recorded_limit(&self.runtime.limits, &current.job, &operation);
        let mut change = Change::new(Event::Started, now);
        change.extra.push(("deadline", deadline(now, time_left)));
        let mut draft = current.draft();
        draft.set_fence(guard.handle.fence);
        draft.append(change).map_err(append_error)?;
        let input = self.jobs.input_of(&current).await?;
        let Some(committed) = unless_overtaken(self.jobs.commit(draft).await)? else {
            return Ok(None);
        };
        let view = committed.view;
        let caller = self.jobs.owner_of(&current.job);
        let spec = RunSpec { operation, caller, input, cause: Cause::Start, time_left };
        Ok(Some(Run::new((*view.job).clone(), view.cells, spec, guard)))
    }

    /// Runs a job again that was running before.
    async fn restart(
        &self,
        current: Current,
        guard: RunGuard,
        operation: Arc<Operation>,
    ) -> Result<Option<Run>, StoreError> {
        let limit = recorded_limit(&self.runtime.limits, &current.job, &operation);
        let cause = if is_answering(&current.job) {
            self.jobs.last_message(&current).await?.map_or(Cause::Retry, Cause::Message)
        } else {
            Cause::Retry
        };
        let input = match self.jobs.input_of(&current).await {
            Ok(input) => input,
            Err(StoreError::Damaged(reason)) => {
                self.fail_incomplete(&current, guard.handle.fence, &reason).await?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let caller = self.jobs.owner_of(&current.job);
        let time_left = time_until(current.number("deadline"), self.runtime.now(), limit);
        let spec = RunSpec { operation, caller, input, cause, time_left };
        let job = Arc::unwrap_or_clone(current.job);
        Ok(Some(Run::new(job, current.cells, spec, guard)))
    }

    /// Fails a job whose payload cannot be read.
    async fn fail_incomplete(
        &self,
        current: &Current,
        fence: Option<u64>,
        reason: &str,
    ) -> Result<(), StoreError> {
        let mut draft = current.draft();
        draft.set_fence(fence);
        let change = outcome_change(Err(incomplete_payload(reason)), self.runtime.now());
        draft.append(change).map_err(append_error)?;
        unless_overtaken(self.jobs.commit(draft).await).map(drop)
    }
}

//! Starts queued jobs, as many as there are slots for.
//!
//! Jobs are queued if there was no slot for them, if they wait for their next attempt, if recovery or
//! a resume put them there, or if a message arrived while all slots were occupied. Whichever process
//! acquires a queued job first runs it; the commit that acquires it takes it off the queue.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::{Effect, Effects};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::background::Background;
use crate::error::{ResolveError, StoreError};
use crate::execution::{QUEUE, Run, RunSpec, next_cause, offer};
use crate::jobs::{
    Current, append_error, deadline, incomplete_payload, milliseconds, outcome_change,
    recorded_limit, time_until, unless_overtaken,
};
use crate::operations::{Cause, Operation};

/// Jobs that are being acquired at the same time, so that their commits share syncs.
const CONCURRENCY: usize = 64;

/// How often the queue is read without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// How often it is read if other processes may have queued a job.
const PEER_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long a job stays on the queue whose operation this process does not have.
const UNKNOWN_OPERATION_DELAY: Duration = Duration::from_secs(30);

/// Starts queued jobs, repeatedly.
pub(super) async fn start_queued_jobs(background: Arc<Background>) {
    let acquiring: Arc<Mutex<HashSet<JobId>>> = Arc::default();
    let permits = Arc::new(tokio::sync::Semaphore::new(CONCURRENCY));
    loop {
        // A slot and a permit first: a job is looked for only if it can be started.
        let Ok(slot) = Arc::clone(&background.execution.slots).acquire_owned().await else {
            return;
        };
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match background.next_ready(&acquiring).await {
            Ok(Next::Job(job)) => {
                let starting = Arc::clone(&background);
                let acquiring = Arc::clone(&acquiring);
                background.runtime.spawn(async move {
                    starting.start_queued(job, slot).await;
                    acquiring.lock().remove(&job);
                    drop(permit);
                });
            }
            Ok(Next::Wait(time)) => {
                drop((slot, permit));
                tokio::select! {
                    () = background.execution.queued.notified() => {}
                    () = background.runtime.env.sleep(time) => {}
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot read the queue");
                background.runtime.env.sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// What to do next about the queue.
enum Next {
    /// Start this job.
    Job(JobId),
    /// No job is ready: wait at most this long.
    Wait(Duration),
}

impl Background {
    /// Finds a ready job that is not being acquired already, and marks it.
    async fn next_ready(&self, acquiring: &Mutex<HashSet<JobId>>) -> Result<Next, StoreError> {
        let now = self.runtime.now();
        let limit = acquiring.lock().len() + 1;
        let ready = self.jobs.store.ready(QUEUE, now, limit).await?;
        let mut acquiring = acquiring.lock();
        if let Some(job) = ready.jobs.into_iter().find(|job| !acquiring.contains(job)) {
            acquiring.insert(job);
            return Ok(Next::Job(job));
        }
        let longest = if self.jobs.store.has_peers() { PEER_POLL_INTERVAL } else { POLL_INTERVAL };
        let until = ready.next.map(|at| at.saturating_sub(now).max(1));
        let until = until.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        Ok(Next::Wait(until.unwrap_or(longest).min(longest)))
    }

    /// Acquires and runs a queued job.
    async fn start_queued(&self, id: JobId, slot: OwnedSemaphorePermit) {
        match self.acquire_queued(id).await {
            Ok(Some(run)) => {
                let execution = Arc::clone(&self.execution);
                self.runtime.spawn(run.with_slot(slot).execute(execution));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(job = %id, %error, "cannot start a queued job");
                self.runtime.env.sleep(RETRY_DELAY).await;
            }
        }
        // The next job may have been looked for while this one was still on the queue.
        self.execution.queued.notify_one();
    }

    /// Returns the run of a queued job. `None` if there is nothing to run: another process was
    /// first, or the job no longer needs to be on the queue.
    async fn acquire_queued(&self, id: JobId) -> Result<Option<Run>, StoreError> {
        let Some(current) = self.jobs.current(id).await? else { return Ok(None) };
        if self.runtime.is_stopping() {
            return Ok(None);
        }
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error),
            Err(reason) => {
                // Another process may have it, or this one after an upgrade.
                tracing::warn!(job = %id, %reason, "a queued job has no operation at this venue");
                let later = self.runtime.now() + milliseconds(UNKNOWN_OPERATION_DELAY);
                let committed = self.jobs.store.commit(Effects::one(offer(id, later))).await;
                return unless_overtaken(committed).map(|_| None);
            }
        };
        if self.jobs.lacks_key_of(&current.job).await? {
            return self.pause_without_key(current).await.map(|_| None);
        }
        match current.job.status() {
            Status::Pending => self.start_pending(current, operation).await,
            Status::Started if !current.is_held() => {
                self.continue_started(current, operation).await
            }
            Status::InputRequired | Status::AuthRequired => {
                let queued = self.jobs.store.messages(id, 1).await?.into_iter().next();
                match queued {
                    Some(message) => self.execution.start_answer(current, message, operation).await,
                    None => self.withdraw(id).await,
                }
            }
            _ => self.withdraw(id).await,
        }
    }

    async fn withdraw(&self, job: JobId) -> Result<Option<Run>, StoreError> {
        let committed = self.jobs.store.commit(Effects::one(Effect::Dequeue { job })).await;
        unless_overtaken(committed).map(|_| None)
    }

    /// Starts a job for the first time.
    async fn start_pending(
        &self,
        current: Current,
        operation: Arc<Operation>,
    ) -> Result<Option<Run>, StoreError> {
        let now = self.runtime.now();
        let time_left = recorded_limit(&self.runtime.limits, &current.job, &operation);
        let mut change = Change::new(Event::Started, now);
        change.extra.push(("deadline", deadline(now, time_left)));
        let mut draft = current.draft();
        draft.append(change).map_err(append_error)?;
        let guard = self.execution.acquire(&mut draft);
        let input = self.jobs.input_of(&current).await?;
        let Some(committed) = unless_overtaken(self.jobs.commit(draft).await)? else {
            return Ok(None);
        };
        let view = committed.view;
        let caller = self.jobs.owner_of(&current.job);
        let spec = RunSpec { operation, caller, input, cause: Cause::Start, time_left };
        Ok(Some(Run::new((*view.job).clone(), view.cells, spec, guard)))
    }

    /// Runs the next turn of a job that is STARTED and that nobody runs.
    async fn continue_started(
        &self,
        current: Current,
        operation: Arc<Operation>,
    ) -> Result<Option<Run>, StoreError> {
        let input = match self.jobs.input_of(&current).await {
            Ok(input) => input,
            Err(StoreError::Damaged(reason)) => {
                return self.fail_incomplete(&current, &reason).await.map(|()| None);
            }
            Err(error) => return Err(error),
        };
        let cause = next_cause(&self.jobs, &current).await?;
        let mut draft = current.draft();
        let guard = self.execution.acquire(&mut draft);
        let Some(_) = unless_overtaken(self.jobs.commit(draft).await)? else { return Ok(None) };
        let limit = recorded_limit(&self.runtime.limits, &current.job, &operation);
        let caller = self.jobs.owner_of(&current.job);
        let time_left = time_until(current.number("deadline"), self.runtime.now(), limit);
        let spec = RunSpec { operation, caller, input, cause, time_left };
        let job = Arc::unwrap_or_clone(current.job);
        Ok(Some(Run::new(job, current.cells, spec, guard)))
    }

    /// Fails a job whose payload cannot be read.
    async fn fail_incomplete(&self, current: &Current, reason: &str) -> Result<(), StoreError> {
        let mut draft = current.draft();
        let change = outcome_change(Err(incomplete_payload(reason)), self.runtime.now());
        draft.append(change).map_err(append_error)?;
        unless_overtaken(self.jobs.commit(draft).await).map(drop)
    }
}

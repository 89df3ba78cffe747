//! Recovery: jobs that were live when the previous process stopped continue.
//!
//! Only live jobs are read, so the cost does not grow with history. A job that was never STARTED is
//! always requeued. A job that was STARTED follows its operation's recovery rule. Jobs that wait
//! stay as they are.
//!
//! New work does not wait for recovery. The live jobs are found before any request is accepted and
//! recovered concurrently with new requests; each is changed on the condition that it has not
//! changed since.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::plan::OnFailure;
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use futures_util::StreamExt as _;

use crate::background::Background;
use crate::background::summary::{RecoverySummary, SkippedJob};
use crate::error::{ControlError, ResolveError, StoreError};
use crate::execution::{Run, RunSpec, TurnPosition, offer, paused_member};
use crate::jobs::{
    Changed, Current, Draft, append_error, deadline, incomplete_payload, interrupted,
    outcome_change, recorded_limit, unless_overtaken, waits_for_message,
};
use crate::limits::SKIPPED_JOBS_MAX;
use crate::operations::{Cause, Failure, Operation, Recovery};

/// Live jobs that are read at a time.
const SCAN_BATCH: usize = 1_000;

/// Jobs that are recovered concurrently, so that their commits share syncs.
const CONCURRENCY: usize = 512;

/// How long to wait before a job is recovered again if the store had no capacity.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// What recovery did with a job.
enum Recovered {
    Requeued,
    Failed,
    Unchanged,
    Skipped(SkippedJob),
}

impl Background {
    /// Returns every job that is live. No request is accepted yet, so all of them belong to the
    /// previous process.
    pub(super) async fn find_live_jobs(&self) -> Result<Vec<JobId>, StoreError> {
        let mut found: Vec<JobId> = Vec::new();
        loop {
            let page = self.jobs.store.live(found.last().copied(), SCAN_BATCH).await?;
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        self.jobs.unrecovered.add_all(&found);
        let now = self.runtime.now();
        self.runtime.heartbeat.store(now, Ordering::Relaxed);
        self.recovery.send_modify(|summary| {
            summary.found = found.len() as u64;
            summary.began = now;
        });
        Ok(found)
    }

    /// Completes a recovery without jobs.
    pub(super) fn finish_empty_recovery(&self) {
        self.recovery.send_modify(|summary| summary.took = Some(Duration::ZERO));
    }

    /// Recovers these jobs.
    pub(super) async fn recover(&self, live: Vec<JobId>) {
        let started = self.runtime.env.monotonic();
        let jobs = futures_util::stream::iter(live);
        let mut recovered = jobs.map(|job| self.recover_job(job)).buffer_unordered(CONCURRENCY);
        while let Some(recovered) = recovered.next().await {
            self.recovery.send_modify(|summary| count(summary, recovered));
        }
        self.jobs.unrecovered.clear();
        let took = self.runtime.env.monotonic().saturating_sub(started);
        self.recovery.send_modify(|summary| summary.took = Some(took));
        let RecoverySummary { scanned, requeued, failed, skipped, left, .. } =
            self.recovery.borrow().clone();
        tracing::info!(scanned, requeued, failed, skipped, left, ?took, "recovered live jobs");
    }

    /// Recovers one job, however long the store is busy.
    async fn recover_job(&self, id: JobId) -> Recovered {
        loop {
            match self.try_recover(id).await {
                Ok(recovered) => return recovered,
                Err(StoreError::Busy | StoreError::Full | StoreError::Contended) => {
                    self.runtime.env.sleep(RETRY_DELAY).await;
                }
                Err(error) => {
                    tracing::error!(job = %id, %error, "cannot recover a live job");
                    return Recovered::Skipped(SkippedJob {
                        job: id,
                        owner: String::new(),
                        op: String::new(),
                        reason: error.to_string(),
                    });
                }
            }
        }
    }

    async fn try_recover(&self, id: JobId) -> Result<Recovered, StoreError> {
        let Some(current) = self.jobs.current(id).await? else { return Ok(Recovered::Unchanged) };
        // A job that this process has changed needs no recovery. Checking after the read is
        // sufficient: a run is registered from before its first commit to after its last.
        if !self.jobs.unrecovered.contains(id) || self.execution.registry.get(id).is_some() {
            return Ok(Recovered::Unchanged);
        }
        if let Some(reason) = self.orphan_reason(&current.job).await? {
            tracing::info!(job = %id, reason, "cancelling a step whose parent job has ended");
            let caller = self.jobs.venue_caller();
            return match self.commands.cancel(&caller, id, Some(reason)).await {
                Err(ControlError::Store(error)) => Err(error),
                _ => Ok(Recovered::Unchanged),
            };
        }
        match current.job.status() {
            Status::Pending | Status::Started => {}
            status => {
                self.jobs.adopt(&current.job);
                if waits_for_message(status) {
                    self.resume_waiting(current).await?;
                }
                return Ok(Recovered::Unchanged);
            }
        }
        if self.jobs.lacks_key_of(&current.job).await? {
            let message = "its secrets cannot be decrypted: the key that sealed them is missing";
            tracing::warn!(job = %id, "paused a job: {message}");
            return self.pause(current, Some(message)).await;
        }
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(StoreError::Damaged(reason))) => {
                return self.fail(current, incomplete_payload(&reason)).await;
            }
            Err(ResolveError::Store(error)) => return Err(error),
            Err(reason) => return Ok(self.skip(&current, &reason)),
        };
        if let Err(StoreError::Damaged(reason)) = self.jobs.input_of(&current).await {
            return self.fail(current, incomplete_payload(&reason)).await;
        }
        self.apply_rule(current, &operation).await
    }

    /// Returns why a step must not continue: the process stopped after its parent job had ended and
    /// before the step was cancelled.
    async fn orphan_reason(&self, job: &Job) -> Result<Option<String>, StoreError> {
        let Some(parent) = job.parent() else { return Ok(None) };
        let Some(parent) = self.jobs.current(parent.job).await? else {
            return Ok(Some("the parent job was deleted".to_owned()));
        };
        let status = parent.job.status();
        if !status.is_terminal() {
            return Ok(None);
        }
        let operation = self.operations.operation_of(&parent.job).await.ok();
        let plan = operation.as_ref().and_then(|operation| operation.plan());
        let leaves_steps = plan.is_some_and(|plan| plan.on_failure == OnFailure::Leave);
        if status == Status::Failed && leaves_steps {
            return Ok(None);
        }
        Ok(Some(format!("the parent job is {status}")))
    }

    /// Leaves a job as it is because its operation is not available.
    fn skip(&self, current: &Current, reason: &ResolveError) -> Recovered {
        let job = current.job.id();
        tracing::warn!(%job, %reason, "skipping a live job whose operation is not available");
        self.jobs.adopt(&current.job);
        Recovered::Skipped(SkippedJob {
            job,
            owner: current.text("caller").to_owned(),
            op: current.text("op").to_owned(),
            reason: format!("the operation is not available: {reason}"),
        })
    }

    /// Continues a job that waits, if a message is queued or if it has steps that run.
    async fn resume_waiting(&self, current: Current) -> Result<(), StoreError> {
        let id = current.job.id();
        if current.job.steps().is_empty() {
            if current.queue_depth > 0 {
                self.runtime.spawn(self.execution.wake(id, None));
            }
            return Ok(());
        }
        let (Ok(operation), Some(guard)) = (
            self.operations.operation_of(&current.job).await,
            self.execution.registry.claim(id, None),
        ) else {
            return Ok(());
        };
        let spec = RunSpec {
            time_left: recorded_limit(&self.runtime.limits, &current.job, &operation),
            input: self.jobs.input_of(&current).await?,
            caller: self.jobs.owner_of(&current.job),
            operation,
            cause: Cause::Retry,
        };
        let run = Run::new(Arc::unwrap_or_clone(current.job), current.cells, spec, guard);
        self.runtime.spawn(run.execute_boxed(Arc::clone(&self.execution)));
        Ok(())
    }

    async fn apply_rule(
        &self,
        current: Current,
        operation: &Operation,
    ) -> Result<Recovered, StoreError> {
        if current.job.status() == Status::Pending {
            return self.requeue(current).await;
        }
        match operation.recovery() {
            Recovery::Rerun if operation.plan().is_some() => self.requeue(current).await,
            Recovery::Rerun if current.job.attempt() >= self.runtime.limits.attempts_max => {
                let attempts = current.job.attempt();
                let text = format!("the venue stopped during each of {attempts} attempts");
                self.fail(current, Failure::new("attempts_used_up", text)).await
            }
            Recovery::Rerun => self.requeue(current).await,
            Recovery::Fail => self.fail(current, interrupted()).await,
            Recovery::Pause => self.pause(current, None).await,
        }
    }

    async fn requeue(&self, current: Current) -> Result<Recovered, StoreError> {
        let draft = self.draft_requeue(&current)?;
        if !self.commit(draft).await? {
            return Ok(Recovered::Unchanged);
        }
        self.execution.notify_queued(&current.job);
        Ok(Recovered::Requeued)
    }

    /// Returns the draft that requeues a job.
    fn draft_requeue(&self, current: &Current) -> Result<Draft, StoreError> {
        let now = self.runtime.now();
        // A job that never started has used no attempt.
        let attempt = match current.job.status() {
            Status::Pending => current.job.attempt(),
            _ => current.job.attempt() + 1,
        };
        let reason = Some("the venue was restarted".to_owned());
        let note = Note::Recovered { attempt: Some(attempt), reason };
        let mut draft = current.draft();
        draft.append(Change::new(Event::Noted(note), now)).map_err(append_error)?;
        draft.add(offer(current.job.id(), now));
        Ok(draft)
    }

    async fn fail(&self, current: Current, failure: Failure) -> Result<Recovered, StoreError> {
        let now = self.runtime.now();
        let mut draft = current.draft();
        match current.job.status() {
            // A job that must fail before it ever started is REJECTED.
            Status::Pending => {
                draft.append(Change::new(Event::Refused { error: failure.error }, now))
            }
            _ => draft.append(outcome_change(Err(failure), now)),
        }
        .map_err(append_error)?;
        let is_changed = self.commit(draft).await?;
        Ok(if is_changed { Recovered::Failed } else { Recovered::Unchanged })
    }

    async fn pause(
        &self,
        current: Current,
        message: Option<&str>,
    ) -> Result<Recovered, StoreError> {
        let now = self.runtime.now();
        let mut change = Change::new(Event::Paused, now);
        let trigger = current.job.field("trigger");
        let paused = paused_member(current.job.status(), TurnPosition::Open, None, trigger);
        change.extra.push(("paused", paused));
        change.extra.extend(message.map(|message| ("message", message.into())));
        change.extra.push(("deadline", deadline(now, self.runtime.limits.interactive)));
        let mut draft = current.draft();
        draft.append(change).map_err(append_error)?;
        self.commit(draft).await?;
        Ok(Recovered::Unchanged)
    }

    /// Commits a draft. Returns false if another request changed the job first.
    async fn commit(&self, draft: Draft) -> Result<bool, StoreError> {
        Ok(unless_overtaken(self.jobs.commit(draft).await)?.is_some())
    }

    /// Requeues a job whose lease has ended. Returns false if there was nothing to do.
    pub(super) async fn requeue_after_lease(&self, id: JobId) -> Result<bool, StoreError> {
        let decide = |current: &Current| match current.job.status() {
            Status::Pending | Status::Started => self.draft_requeue(current).map(Some),
            _ => Ok(None),
        };
        let Changed::Done(view) = self.jobs.change(id, None, decide).await? else {
            return Ok(false);
        };
        self.execution.notify_queued(&view.job);
        Ok(true)
    }
}

fn count(summary: &mut RecoverySummary, recovered: Recovered) {
    summary.scanned += 1;
    match recovered {
        Recovered::Requeued => summary.requeued += 1,
        Recovered::Failed => summary.failed += 1,
        Recovered::Unchanged => summary.left += 1,
        Recovered::Skipped(skipped) => {
            summary.skipped += 1;
            if summary.skipped_jobs.len() < SKIPPED_JOBS_MAX {
                summary.skipped_jobs.push(skipped);
            }
        }
    }
}

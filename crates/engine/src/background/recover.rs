//! Recovery: jobs whose process has died continue.
//!
//! The same function serves a restart of this process, the death of another one, and a planned
//! shutdown. It never touches a job whose holder is alive. Only live jobs are read, so the cost does
//! not grow with history, and of those only the ones that the index does not show to be fine: a job
//! that waits for its next attempt, for a message or on the queue needs nothing.
//!
//! A job that was STARTED follows its operation's recovery rule. New work does not wait for recovery:
//! each job is changed on the condition that it has not changed since.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use catena_store::{Hold, HolderKey, LiveHold, LiveJob};
use futures_util::StreamExt as _;

use crate::background::Background;
use crate::background::summary::{RecoverySummary, SkippedJob};
use crate::error::{ResolveError, StoreError};
use crate::execution::offer_now;
use crate::jobs::{
    Current, Draft, append_error, executor_lost, incomplete_payload, interrupted,
    interrupted_too_often, is_live, unless_overtaken, waits_for_message, worker_lost,
};
use crate::limits::{ABORTS_MAX, SKIPPED_JOBS_MAX};
use crate::operations::{Failure, Operation, Recovery};

/// Live jobs that are read at a time.
const SCAN_BATCH: usize = 1_000;

/// Jobs that are recovered concurrently, so that their commits share syncs.
const CONCURRENCY: usize = 512;

/// Parked orchestrations that are checked concurrently: there is no hurry.
const PARKED_CONCURRENCY: usize = 8;

/// How long to wait before a job is recovered again if the store had no capacity.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long to wait before the live jobs are read again if they could not be.
const SCAN_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Why the work on a job was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The process that held it died.
    ProcessDied,
    /// This process stops as planned.
    Shutdown,
    /// The lease of this process ended, and the runs that it had were stopped.
    LeaseEnded,
    /// The worker that held it under this fence has forgotten it.
    WorkerForgot(u64),
}

/// What recovery did with a job.
pub(super) enum Recovered {
    Requeued,
    Failed,
    Unchanged,
    Skipped(SkippedJob),
}

/// The live jobs of a store, by what recovery has to do with them.
#[derive(Default)]
pub(super) struct LiveJobs {
    /// The number of all of them.
    found: u64,
    /// Those that wait on the queue.
    queued: u64,
    /// Those that may have to be recovered, with their status.
    lost: Vec<(JobId, Status)>,
    /// Parked orchestrations.
    parked: Vec<JobId>,
    /// Those that workers hold which are alive.
    worked: Vec<JobId>,
}

impl Background {
    /// Reads which jobs are live, and finds those that nobody takes care of.
    pub(super) async fn find_live_jobs(&self) -> Result<LiveJobs, StoreError> {
        let alive = self.execution.alive_holders().await?;
        let workers = self.execution.workers.keys();
        let mut live = LiveJobs::default();
        let mut after = None;
        loop {
            let page = self.jobs.store.live(after, SCAN_BATCH).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.job);
            for job in page {
                live.found += 1;
                if job.hold == LiveHold::Parked {
                    live.parked.push(job.job);
                } else if may_be_lost(&job, &alive) {
                    live.lost.push((job.job, job.status));
                } else if job.hold == LiveHold::Released && job.status == Status::Started {
                    live.queued += 1;
                } else if let LiveHold::By(key) = job.hold
                    && workers.contains(&key)
                {
                    live.worked.push(job.job);
                }
            }
        }
        Ok(live)
    }

    /// Counts the live jobs and recovers those that the processes before this one left, however long
    /// the store is busy. The venue is ready meanwhile: this takes time for each live job.
    pub(super) async fn recover_at_start(self: Arc<Self>) {
        loop {
            // The store counts on a thread of its own.
            let count = async { Ok(self.jobs.store.count_live().await?) };
            match futures_util::future::try_join(count, self.find_live_jobs()).await {
                Ok(((), live)) => return self.recover(live).await,
                Err(error) => tracing::error!(%error, "cannot read the live jobs"),
            }
            self.runtime.env.sleep(SCAN_RETRY_DELAY).await;
        }
    }

    /// Recovers the jobs whose runs were stopped here because the lease of this process had ended. It
    /// was renewed before others took them over, so nobody else does.
    pub(super) async fn recover_own(&self) -> Result<(), StoreError> {
        let own = LiveHold::By(self.jobs.process.key());
        let mut after = None;
        loop {
            let page = self.jobs.store.live(after, SCAN_BATCH).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.job);
            for job in page.into_iter().filter(|job| job.hold == own) {
                self.recover_job(job.job, Loss::LeaseEnded).await;
            }
        }
    }

    /// Recovers the jobs of processes that have died, and carries out what they left to do.
    pub(super) async fn recover(self: &Arc<Self>, live: LiveJobs) {
        let started = self.runtime.env.monotonic();
        let fine = live.found - live.lost.len() as u64;
        self.recovery.send_modify(|summary| {
            summary.found += live.found;
            summary.scanned += fine;
            summary.requeued += live.queued;
            summary.left += fine - live.queued;
        });
        let jobs = futures_util::stream::iter(live.lost);
        let mut recovered = jobs
            .map(|(job, status)| async move {
                match self.recover_job(job, Loss::ProcessDied).await {
                    // It was on the queue, and has been started since.
                    Recovered::Unchanged if status == Status::Pending => Recovered::Requeued,
                    recovered => recovered,
                }
            })
            .buffer_unordered(CONCURRENCY);
        while let Some(recovered) = recovered.next().await {
            self.recovery.send_modify(|summary| count(summary, recovered));
        }
        for job in live.worked {
            if let Err(error) = self.track_held(job).await {
                tracing::error!(%job, %error, "cannot read a job that a worker holds");
            }
        }
        self.suspects.end_recovery();
        self.finish_pending_controls().await;
        let took = self.runtime.env.monotonic().saturating_sub(started);
        self.recovery.send_modify(|summary| summary.took = Some(took));
        let RecoverySummary { scanned, requeued, failed, skipped, left, .. } =
            self.recovery.borrow().clone();
        if scanned > 0 {
            tracing::info!(scanned, requeued, failed, skipped, left, ?took, "recovered live jobs");
        }
        self.runtime.gate.opened().await;
        let parked = futures_util::stream::iter(live.parked);
        let orchestration = &self.commands.orchestration;
        let mut checked = parked
            .map(|job| async move { (job, orchestration.check_parked(job).await) })
            .buffer_unordered(PARKED_CONCURRENCY);
        while let Some((job, checked)) = checked.next().await {
            if let Err(error) = checked {
                tracing::error!(%job, %error, "cannot check a parked orchestration");
            }
        }
    }

    /// Notes that a worker holds a job, as the store says.
    async fn track_held(&self, job: JobId) -> Result<(), StoreError> {
        match self.jobs.current(job).await? {
            Some(current) => self.execution.track_worker_run(&current).await,
            None => Ok(()),
        }
    }

    /// Carries out control requests that a process left half done.
    async fn finish_pending_controls(&self) {
        let pending = match self.jobs.all_pending_controls().await {
            Ok(pending) => pending,
            Err(error) => {
                tracing::error!(%error, "cannot read the pending control requests");
                return;
            }
        };
        for job in pending {
            let pending = self.jobs.pending_control(job).await.ok().flatten();
            let Some(deletion) = pending.filter(|pending| pending.is_deletion()) else {
                self.execution.carry_out(job).await;
                continue;
            };
            if let Err(error) = self.commands.delete_tree(job, deletion.by.as_deref()).await {
                tracing::error!(%job, %error, "cannot complete the deletion of a job");
            }
        }
    }

    /// Gives back what this process still holds because it stops.
    pub(crate) async fn give_back(&self) {
        let held: HashSet<JobId> =
            self.execution.registry.all().into_iter().map(|(job, _)| job).collect();
        let jobs = futures_util::stream::iter(held);
        let mut given =
            jobs.map(|job| self.recover_job(job, Loss::Shutdown)).buffer_unordered(CONCURRENCY);
        while given.next().await.is_some() {}
    }

    /// Recovers one job, however long the store is busy.
    pub(super) async fn recover_job(&self, id: JobId, loss: Loss) -> Recovered {
        loop {
            match self.runtime.work_on(id, self.try_recover(id, loss)).await {
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

    async fn try_recover(&self, id: JobId, loss: Loss) -> Result<Recovered, StoreError> {
        let Some(current) = self.jobs.current(id).await? else { return Ok(Recovered::Unchanged) };
        if !self.check_lost(&current, loss).await? {
            let is_queued = current.ready_at.is_some() && is_live(&current.job);
            return Ok(if is_queued { Recovered::Requeued } else { Recovered::Unchanged });
        }
        if self.execution.cancel_orphan(&current.job).await? {
            return Ok(Recovered::Unchanged);
        }
        match current.job.status() {
            Status::Pending | Status::Started => {}
            status => return self.recover_waiting(current, status).await,
        }
        if self.jobs.lacks_key_of(&current.job).await? {
            self.execution.pause_without_key(&current).await?;
            return Ok(Recovered::Unchanged);
        }
        if self.pause_suspect(&current).await? {
            return Ok(Recovered::Unchanged);
        }
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(StoreError::Damaged(reason))) => {
                return self.fail(current, incomplete_payload(&reason)).await;
            }
            Err(ResolveError::Store(error)) => return Err(error),
            Err(reason) => return Ok(skip(&current, &reason)),
        };
        if let Err(StoreError::Damaged(reason)) = self.jobs.input_of(&current).await {
            return self.fail(current, incomplete_payload(&reason)).await;
        }
        self.apply_rule(current, &operation, loss).await
    }

    /// Returns true if nobody takes care of a job.
    async fn check_lost(&self, current: &Current, loss: Loss) -> Result<bool, StoreError> {
        let status = current.job.status();
        if status.is_terminal() {
            return Ok(false);
        }
        let Some(holder) = &current.hold.holder else {
            // A job that waits on the queue, or is parked, needs nothing. One that an earlier
            // version of this program started has neither.
            let is_queued = current.ready_at.is_some() || current.hold.is_parked;
            return Ok(match status {
                Status::Pending => !is_queued,
                Status::Started => !is_queued && current.hold.fence == 0,
                _ => true,
            });
        };
        if *holder == self.jobs.process {
            let was_stopped = || self.execution.registry.get(current.job.id()).is_none();
            return Ok(match loss {
                Loss::Shutdown => true,
                Loss::LeaseEnded => was_stopped(),
                Loss::ProcessDied | Loss::WorkerForgot(_) => false,
            });
        }
        if let Loss::WorkerForgot(fence) = loss {
            return Ok(holder.is_worker() && current.hold.fence == fence);
        }
        if holder.is_receiver() {
            // It has no lease: the job's time and that of the attempt bound how long it takes.
            self.execution.track_worker_run(current).await?;
            return Ok(false);
        }
        let alive = self.execution.alive_holders().await?;
        if loss != Loss::ProcessDied || alive.contains(&holder.key()) {
            return Ok(false);
        }
        if holder.is_worker() && !self.execution.workers.is_known(holder) {
            // This process has started since: the worker gets a full lease to be heard of.
            self.execution.renew_worker_lease(holder).await?;
            self.execution.track_worker_run(current).await?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Recovers a job that waits for people. Its work is lost, not its state.
    async fn recover_waiting(
        &self,
        current: Current,
        status: Status,
    ) -> Result<Recovered, StoreError> {
        let id = current.job.id();
        if current.is_held() {
            let mut draft = current.draft();
            let fence = current.hold.fence;
            let has_steps = !current.job.steps().is_empty();
            draft.set_hold(if has_steps { Hold::Park(fence) } else { Hold::Release(fence) });
            self.commit(draft).await?;
        }
        if waits_for_message(status) {
            if !current.job.steps().is_empty() {
                let plans = self.execution.plan_runner();
                let gate = Arc::clone(&self.runtime.gate);
                self.runtime.spawn(async move {
                    gate.opened().await;
                    if let Some(plans) = plans {
                        plans.drive(id).await;
                    }
                });
            } else if current.queue_depth > 0 {
                self.runtime.spawn(self.execution.wake(id));
            }
        }
        if status == Status::Paused {
            self.execution.resume_bound(id).await;
        }
        Ok(Recovered::Unchanged)
    }

    async fn apply_rule(
        &self,
        current: Current,
        operation: &Operation,
        loss: Loss,
    ) -> Result<Recovered, StoreError> {
        if current.job.status() == Status::Pending {
            return self.requeue(current, None).await;
        }
        let is_planned = loss == Loss::Shutdown;
        if operation.plan().is_some() {
            // It only waits for its steps: nothing was interrupted.
            let note = (!is_planned).then(|| recovered_note(&current.job, loss, false));
            return self.requeue(current, note).await;
        }
        let counts = !is_planned && !self.suspects.is_bystander(current.job.id());
        let interruptions = current.job.interruptions() + u32::from(counts);
        match operation.recovery() {
            Recovery::Rerun
                if operation.counts_all_attempts()
                    && counts
                    && current.job.attempt() >= operation.attempts_max() =>
            {
                self.fail(current, executor_lost(operation.attempts_max())).await
            }
            Recovery::Rerun if interruptions >= self.runtime.limits.attempts_max => {
                self.fail(current, interrupted_too_often(interruptions)).await
            }
            Recovery::Rerun => {
                let mut note = recovered_note(&current.job, loss, counts);
                if holds_worker(&current)
                    && let Note::Recovered { reason, .. } = &mut note
                {
                    *reason = Some("the worker that ran it was lost".to_owned());
                }
                self.requeue(current, Some(note)).await
            }
            Recovery::Fail => {
                let failure = if holds_worker(&current) { worker_lost() } else { interrupted() };
                self.fail(current, failure).await
            }
            Recovery::Pause => {
                let rule = "the venue stopped while the operation ran; resume it to run it again";
                self.execution.pause_lost(&current, rule).await?;
                Ok(Recovered::Unchanged)
            }
        }
    }

    /// Pauses a job with which the process aborted too often. Returns true if it did.
    pub(super) async fn pause_suspect(&self, current: &Current) -> Result<bool, StoreError> {
        let job = current.job.id();
        let aborts = self.suspects.aborts_of(job);
        let can_pause = matches!(current.job.status(), Status::Pending | Status::Started);
        if aborts < ABORTS_MAX || !can_pause {
            return Ok(false);
        }
        let message = format!(
            "the venue aborted {aborts} times while it was working on this job; resume it to try again"
        );
        tracing::error!(%job, aborts, "paused a job: {message}");
        self.execution.pause_lost(current, &message).await?;
        self.suspects.give_another_try(job);
        Ok(true)
    }

    async fn requeue(&self, current: Current, note: Option<Note>) -> Result<Recovered, StoreError> {
        let now = self.runtime.now();
        let mut draft = current.draft();
        if let Some(note) = note {
            draft.append(Change::new(Event::Noted(note), now)).map_err(append_error)?;
        }
        draft.set_hold(current.vacated());
        draft.add(offer_now(&current.job, now));
        if !self.commit(draft).await? {
            return Ok(Recovered::Unchanged);
        }
        self.execution.notify_queued(&current.job);
        Ok(Recovered::Requeued)
    }

    async fn fail(&self, current: Current, failure: Failure) -> Result<Recovered, StoreError> {
        let has_failed = self.execution.fail_lost(&current, failure).await?;
        Ok(if has_failed { Recovered::Failed } else { Recovered::Unchanged })
    }

    /// Commits a draft. Returns false if another request changed the job first.
    async fn commit(&self, draft: Draft) -> Result<bool, StoreError> {
        Ok(unless_overtaken(self.jobs.commit(draft).await)?.is_some())
    }
}

/// Returns true if the index of live jobs does not show that a job is fine.
fn may_be_lost(job: &LiveJob, alive: &HashSet<HolderKey>) -> bool {
    match job.hold {
        LiveHold::By(key) => !alive.contains(&key),
        // Whoever releases a STARTED job puts it on the queue in the same commit.
        // The parent of a paused step may have ended, and what a job paused itself for may be over.
        LiveHold::Released => waits_for_message(job.status) || job.status == Status::Paused,
        LiveHold::Never => job.status != Status::Paused || job.is_sub_job,
        LiveHold::Parked => false,
    }
}

/// Returns true if a worker holds a job, alive or not.
fn holds_worker(current: &Current) -> bool {
    current.hold.holder.as_ref().is_some_and(catena_store::Holder::is_worker)
}

fn recovered_note(job: &Job, loss: Loss, counts: bool) -> Note {
    let reason = match loss {
        Loss::ProcessDied | Loss::WorkerForgot(_) => "the venue was restarted",
        Loss::Shutdown => "the venue was shut down as planned",
        Loss::LeaseEnded => "the process that ran it lost its lease",
    };
    Note::Recovered {
        attempt: Some(job.attempt() + 1),
        reason: Some(reason.to_owned()),
        interruptions: Some(job.interruptions() + u32::from(counts)),
    }
}

/// Leaves a job as it is because its operation is not available.
fn skip(current: &Current, reason: &ResolveError) -> Recovered {
    let job = current.job.id();
    tracing::warn!(%job, %reason, "skipping a live job whose operation is not available");
    Recovered::Skipped(SkippedJob {
        job,
        owner: current.text("caller").to_owned(),
        op: current.text("op").to_owned(),
        reason: format!("the operation is not available: {reason}"),
    })
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

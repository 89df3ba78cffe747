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
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::background::{Background, RecoverySummary};
use crate::error::StoreError;
use crate::execution::{QUEUE, Run, RunSlot, RunSpec, next_cause};
use crate::jobs::{
    Current, append_error, deadline, incomplete_payload, is_bound, is_live, recorded_limit,
    time_until, unless_overtaken,
};
use crate::limits::{DEFERRED_MAX, SUSPECT_ALONE_TIME, SUSPECT_TIME, SUSPECTS_TIME_MAX};
use crate::operations::{Cause, Operation, lane_of};
use crate::runtime::{Alone, Closed};

/// Jobs that are being acquired at the same time, so that their commits share syncs.
const CONCURRENCY: usize = 64;

/// How often the queue is read without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// How often it is read if other processes may have queued a job.
const PEER_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Starts queued jobs, repeatedly.
pub(super) async fn start_queued_jobs(background: Arc<Background>) {
    let acquiring: Arc<Mutex<HashSet<JobId>>> = Arc::default();
    let permits = Arc::new(tokio::sync::Semaphore::new(CONCURRENCY));
    loop {
        background.runtime.gate.opened().await;
        // A slot and a permit first: a job is looked for only if it can be started.
        let Ok(slot) = Arc::clone(&background.execution.slots.permits).acquire_owned().await else {
            return;
        };
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match background.next_ready(&acquiring).await {
            Ok(Next::Job(job)) => {
                let starting = Arc::clone(&background);
                let acquiring = Arc::clone(&acquiring);
                background.runtime.spawn(async move {
                    let started = starting.start_queued(job, slot).await;
                    let mut permit = Some(permit);
                    if started == Start::Deferred {
                        // Others behind it may start meanwhile.
                        permit.take_if(|_| acquiring.lock().len() < DEFERRED_MAX);
                        starting.runtime.env.sleep(RETRY_DELAY).await;
                    }
                    acquiring.lock().remove(&job);
                    drop(permit);
                    if started == Start::Deferred {
                        starting.execution.queued.notify_one();
                    }
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

/// Starts the jobs with which earlier processes aborted, each of them alone, and then lets other work start.
pub(super) async fn start_suspects(background: Arc<Background>, closed: Closed) {
    let starting = async {
        let mut recovery = background.recovery.subscribe();
        let _ = recovery.wait_for(RecoverySummary::is_done).await;
        for job in background.suspects.to_start_alone() {
            if let Err(error) = background.start_suspect(job).await {
                tracing::error!(%job, %error, "cannot start a job alone");
            }
        }
        // The last one is still running.
        background.runtime.gate.none_alone().await;
    };
    tokio::select! {
        () = starting => {}
        () = background.runtime.env.sleep(SUSPECTS_TIME_MAX) => {
            tracing::warn!("other work starts although not all suspects have run alone");
        }
    }
    drop(closed);
    background.execution.queued.notify_one();
}

/// Acquits suspects once the process has survived for long enough, and forgets jobs that have ended.
pub(super) async fn acquit_survivors(background: Arc<Background>) {
    let suspects = &background.suspects;
    if suspects.all().is_empty() {
        return;
    }
    background.runtime.env.sleep(SUSPECT_TIME).await;
    suspects.acquit_first_time();
    for job in suspects.all().into_keys() {
        let is_over = |current: Option<Current>| current.is_none_or(|job| !is_live(&job.job));
        if background.jobs.current(job).await.is_ok_and(is_over) {
            suspects.acquit(job);
        }
    }
}

/// What became of a job that was to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// It was started, or need not be.
    Done,
    /// Its owner must leave the slots that are free to others.
    Deferred,
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

    /// Starts a suspect if it is on the queue, or pauses it if the process aborted with it too often.
    async fn start_suspect(&self, job: JobId) -> Result<(), StoreError> {
        let Some(current) = self.jobs.current(job).await? else { return Ok(()) };
        let is_paused = self.pause_suspect(&current).await?;
        self.suspects.give_another_try(job);
        let is_due = current.ready_at.is_some_and(|at| at <= self.runtime.now());
        if is_paused || !is_due || lane_of(&current.job).is_some() {
            return Ok(());
        }
        let permits = Arc::clone(&self.execution.slots.permits);
        let Ok(permit) = permits.acquire_owned().await else { return Ok(()) };
        self.start_queued(job, permit).await;
        Ok(())
    }

    /// Acquires and runs a queued job. One with which the process aborted before runs alone.
    async fn start_queued(&self, id: JobId, permit: OwnedSemaphorePermit) -> Start {
        let alone = if self.suspects.must_start_alone(id) {
            self.runtime.gate.start_alone(id).await
        } else {
            self.runtime.gate.opened().await;
            None
        };
        let slot = match self.jobs.current(id).await {
            Ok(Some(current)) => {
                match self.execution.slots.assign(permit, current.text("caller")) {
                    Ok(slot) => Some(slot),
                    Err(_) => self.claim_control_slot(&current).await,
                }
            }
            _ => Some(permit.into()),
        };
        let Some(slot) = slot else { return Start::Deferred };
        match self.runtime.work_on(id, self.acquire_queued(id)).await {
            Ok(Some(run)) => {
                let execution = Arc::clone(&self.execution);
                self.runtime.spawn_task(run.with_slot(slot).execute(execution));
                if let Some(alone) = alone {
                    self.watch_suspect(id, alone);
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(job = %id, %error, "cannot start a queued job");
                self.runtime.env.sleep(RETRY_DELAY).await;
            }
        }
        // The next job may have been looked for while this one was still on the queue.
        self.execution.queued.notify_one();
        Start::Done
    }

    /// Claims a slot for a queued job that controls others.
    async fn claim_control_slot(&self, current: &Current) -> Option<RunSlot> {
        let operation = self.execution.operation_to_claim(current).await.ok()??;
        self.execution.try_claim_control_slot(current.text("caller"), &operation)
    }

    /// Keeps other work from being started until a suspect has ended or has run for long enough, and acquits
    /// the suspect if the process survives it.
    fn watch_suspect(&self, job: JobId, alone: Alone) {
        let Some(background) = self.own.upgrade() else { return };
        tracing::warn!(%job, "started a job alone because the process aborted with it before");
        self.runtime.spawn(async move {
            let caller = background.jobs.venue_caller();
            let views = &background.commands.views;
            let survived = async {
                let ended = views.wait(&caller, job, SUSPECT_ALONE_TIME).await;
                drop(alone);
                if ended.is_ok_and(|view| is_live(&view.job)) {
                    let _ = views.wait(&caller, job, SUSPECT_TIME - SUSPECT_ALONE_TIME).await;
                }
            };
            tokio::select! {
                () = survived => {}
                () = background.runtime.stopping() => {}
            }
            background.suspects.acquit(job);
        });
    }

    /// Returns the run of a queued job. `None` if there is nothing to run: another process was
    /// first, or the job no longer needs to be on the queue.
    async fn acquire_queued(&self, id: JobId) -> Result<Option<Run>, StoreError> {
        let Some(current) = self.jobs.current(id).await? else { return Ok(None) };
        if self.runtime.is_stopping() {
            return Ok(None);
        }
        if self.execution.cancel_orphan(&current.job).await? {
            return Ok(None);
        }
        let Some(operation) = self.execution.operation_to_claim(&current).await? else {
            return Ok(None);
        };
        if self.jobs.lacks_key_of(&current.job).await? {
            self.execution.pause_without_key(&current).await?;
            return Ok(None);
        }
        if self.pause_suspect(&current).await? {
            return Ok(None);
        }
        match current.job.status() {
            // A job that was paused before it ran is STARTED by its resume.
            Status::Pending | Status::Started
                if is_bound(&current.job) && current.hold.fence == 0 =>
            {
                self.start_bound(current, operation).await
            }
            Status::Pending => self.start_pending(current, operation).await,
            Status::Started if !current.is_held() => {
                self.continue_started(current, operation).await
            }
            Status::InputRequired | Status::AuthRequired => {
                let queued = self.jobs.store.messages(id, 1).await?.into_iter().next();
                match queued {
                    Some(message) => self.execution.start_answer(current, message, operation).await,
                    None => self.execution.withdraw(id).await.map(|()| None),
                }
            }
            _ => self.execution.withdraw(id).await.map(|()| None),
        }
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
        let caller = self.jobs.caller_of(&current.job).await?;
        let Some(committed) = unless_overtaken(self.jobs.commit(draft).await)? else {
            return Ok(None);
        };
        let view = committed.view;
        let spec = RunSpec { operation, caller, input, cause: Cause::Start, time_left };
        Ok(Some(Run::new(view.job, view.cells, spec, guard)))
    }

    /// Runs the next turn of a job that is STARTED and that nobody runs.
    async fn continue_started(
        &self,
        current: Current,
        operation: Arc<Operation>,
    ) -> Result<Option<Run>, StoreError> {
        let payload = async {
            let input = self.jobs.input_of(&current).await?;
            Ok((input, self.jobs.caller_of(&current.job).await?))
        };
        let (input, caller) = match payload.await {
            Ok(payload) => payload,
            Err(StoreError::Damaged(reason)) => {
                let failure = incomplete_payload(&reason);
                return self.execution.fail_lost(&current, failure).await.map(|_| None);
            }
            Err(error) => return Err(error),
        };
        let cause = next_cause(&self.jobs, &current).await?;
        let mut draft = current.draft();
        let guard = self.execution.acquire(&mut draft);
        let Some(_) = unless_overtaken(self.jobs.commit(draft).await)? else { return Ok(None) };
        let limit = recorded_limit(&self.runtime.limits, &current.job, &operation);
        let time_left = time_until(current.number("deadline"), self.runtime.now(), limit);
        let spec = RunSpec { operation, caller, input, cause, time_left };
        Ok(Some(Run::new(current.job, current.cells, spec, guard)))
    }
}

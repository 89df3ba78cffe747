//! The tasks of remote steps. Each follows one job on another venue and reports to the driver.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use catena_job::{Job, JobId, RecordId, Status};
use catena_value::Value;
use tokio::sync::{Mutex, Notify, watch};

use crate::error::StoreError;
use crate::jobs::{PausedHere, RemoteSnapshot, has_open_remote_steps};
use crate::limits::CANCEL_TRIES_MAX;
use crate::operations::federation::{
    Delivery, Federation, PauseChange, REMOTE_CONFLICT, RemoteCall, RemoteJob, RemoteJobRef,
    RemoteReply, RemoteStart,
};
use crate::operations::{Failure, RetryAdvice, RunControl};
use crate::orchestration::Orchestration;
use crate::orchestration::drivers::DriverEvent;

/// How long to wait for the reply to a start whose step was cancelled: it names the job to cancel.
const START_GRACE: Duration = Duration::from_secs(60);

/// The mean time between two polls of a job.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// How far polls may run ahead of that: a pause and a resume are several changes at once.
const POLL_BURST: Duration = Duration::from_millis(1_500);

/// How long to wait before another attempt to resume a job that this venue paused.
const RESUME_RETRY_DELAY: Duration = Duration::from_secs(10);

/// How long to wait before a message is sent again to a venue that does not answer.
const DELIVERY_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The delay after the first failed attempt to cancel a job. It doubles with each attempt.
const CANCEL_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The work of a task.
pub(in crate::orchestration) enum RemoteWork {
    /// Start a step and follow it to its end.
    Start(Box<RemoteCall>),
    /// Follow a job that has started.
    Follow(Box<RemoteSnapshot>),
}

/// An event of a remote step.
pub(in crate::orchestration) enum RemoteEvent {
    /// The step started.
    Started(Box<RemoteStart>),
    /// The job changed to this state.
    Changed(Box<RemoteJob>),
    /// A message was sent to it.
    Delivered {
        /// The number of the message in the parent's queue.
        number: u64,
        /// The outcome, or a failure if the venue did not answer.
        delivery: Result<Delivery, Failure>,
    },
    /// The step cannot continue.
    Failed(Failure),
}

/// What a task receives from its driver.
pub(in crate::orchestration) struct TaskContext {
    /// Pausing and sleeping.
    pub(crate) control: RunControl,
    /// Changes when another task replaces this one, and closes when the driver ends.
    pub(crate) replaced: watch::Receiver<()>,
    /// What all tasks of this step share.
    pub(crate) sync: Arc<StepSync>,
    /// Whether to pause or resume the job first: the previous task may not have done it.
    pub(crate) pause: PauseChange,
}

/// What all tasks of one step share.
#[derive(Default)]
pub(in crate::orchestration) struct StepSync {
    /// Held while the job is paused or resumed, so that the other venue receives these requests in
    /// order.
    pausing: Mutex<()>,
    /// Notified when the job is likely to change soon.
    pub(crate) nudge: Notify,
}

/// A task that follows a remote step.
struct RemoteStepTask {
    orchestration: Arc<Orchestration>,
    federation: Arc<dyn Federation>,
    parent: JobId,
    step: u32,
    /// The job there. Requests with this reference ignore pauses of the parent.
    unpaused: RemoteJobRef,
    context: TaskContext,
}

/// The tasks of an orchestration's remote steps.
#[derive(Default)]
pub(in crate::orchestration) struct RemoteTasks {
    /// Changes when tasks are replaced; closes when the driver ends.
    replaced: watch::Sender<()>,
    /// What all tasks of a step share, by step.
    syncs: HashMap<u32, Arc<StepSync>>,
}

impl RemoteTasks {
    /// Returns what all tasks of a step share.
    pub(in crate::orchestration) fn sync(&mut self, step: u32) -> Arc<StepSync> {
        Arc::clone(self.syncs.entry(step).or_default())
    }

    /// Returns the receiver by which a task learns that it was replaced.
    pub(in crate::orchestration) fn subscribe(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// Ends the current tasks without cancelling their jobs.
    pub(in crate::orchestration) fn replace(&self) {
        self.replaced.send_replace(());
    }
}

impl Orchestration {
    /// Spawns the task of a remote step.
    pub(in crate::orchestration) fn spawn_remote(
        self: &Arc<Self>,
        parent: JobId,
        step: u32,
        work: RemoteWork,
        context: TaskContext,
    ) {
        let orchestration = Arc::clone(self);
        self.runtime.spawn(async move {
            if let Err(failure) = orchestration.run_remote(parent, step, work, context).await {
                orchestration.report_remote(parent, step, RemoteEvent::Failed(failure));
            }
        });
    }

    fn report_remote(&self, parent: JobId, step: u32, event: RemoteEvent) {
        self.drivers.send(parent, DriverEvent::Remote(step, event));
    }

    async fn run_remote(
        self: &Arc<Self>,
        parent: JobId,
        step: u32,
        work: RemoteWork,
        mut context: TaskContext,
    ) -> Result<(), Failure> {
        let federation = self.operations.federation()?;
        let known = match work {
            RemoteWork::Follow(known) => known,
            RemoteWork::Start(call) => {
                let location = call.venue.clone();
                let start = federation.start_job(*call);
                let Some(start) = self.await_start(start, &mut context).await? else {
                    return Ok(());
                };
                let known = RemoteSnapshot::from_start(&start, &location, self.runtime.now());
                self.report_remote(parent, step, RemoteEvent::Started(Box::new(start)));
                Box::new(known)
            }
        };
        let unpaused = self.job_ref(&known, self.execution.unpaused.clone());
        let orchestration = Arc::clone(self);
        let task = RemoteStepTask { orchestration, federation, parent, step, unpaused, context };
        task.follow(known).await
    }

    /// Sends a message to a remote step and reports the outcome to the driver. The message stays in
    /// the parent's queue until the outcome is recorded: after a crash it is sent again under the
    /// same ID.
    pub(in crate::orchestration) fn deliver_remote(
        self: &Arc<Self>,
        parent: JobId,
        step: u32,
        (number, message): (u64, Value),
        known: &RemoteSnapshot,
        control: RunControl,
    ) {
        let job = self.job_ref(known, control);
        let orchestration = Arc::clone(self);
        self.runtime.spawn(async move {
            let delivery = match orchestration.operations.federation() {
                Ok(federation) => federation.send_message(job, message).await,
                Err(failure) => Err(failure),
            };
            let delivery = match delivery {
                Err(failure) if failure.retry == RetryAdvice::MaySucceed => {
                    orchestration.runtime.env.sleep(DELIVERY_RETRY_DELAY).await;
                    Err(failure)
                }
                Err(failure) => Ok(Delivery::Refused(failure)),
                delivered => delivered,
            };
            let event = RemoteEvent::Delivered { number, delivery };
            orchestration.report_remote(parent, step, event);
        });
    }

    fn job_ref(&self, known: &RemoteSnapshot, control: RunControl) -> RemoteJobRef {
        RemoteJobRef {
            venue: known.location.clone(),
            did: known.venue.clone(),
            job: known.job,
            requester: known.requester,
            identity: self.identity.clone(),
            control,
        }
    }

    /// Cancels a job whose parent has ended, and stores its final state.
    async fn cancel_remote(&self, parent: JobId, step: u32, mut known: RemoteSnapshot) {
        let Ok(federation) = self.operations.federation() else { return };
        let job = self.job_ref(&known, self.execution.unpaused.clone());
        let mut delay = CANCEL_RETRY_DELAY;
        for _ in 0..CANCEL_TRIES_MAX {
            match federation.cancel_job(job.clone()).await {
                Ok(state) => known = RemoteSnapshot { state, at: self.runtime.now(), ..known },
                Err(_) if self.runtime.is_stopping() => return,
                Err(failure) if failure.retry == RetryAdvice::MaySucceed => {
                    self.runtime.env.sleep(delay).await;
                    delay *= 2;
                    continue;
                }
                Err(failure) => {
                    let error = &failure.error;
                    tracing::warn!(job = %parent, step, %error, "a remote step cannot be cancelled");
                    // It may have ended, or another process may have cancelled it.
                    if let Ok(state) = federation.fetch_job(job.clone()).await {
                        known = RemoteSnapshot { state, at: self.runtime.now(), ..known };
                    }
                }
            }
            break;
        }
        self.jobs.store_late_snapshot(parent, step, &known).await;
        self.jobs.clear_pending_cancel(parent, step).await;
    }

    fn spawn_cancel(self: &Arc<Self>, parent: JobId, step: u32, known: RemoteSnapshot) {
        let orchestration = Arc::clone(self);
        self.runtime.spawn(async move { orchestration.cancel_remote(parent, step, known).await });
    }

    /// Cancels all remote steps that could not be cancelled before the process stopped.
    pub(crate) async fn retry_pending_cancels(self: &Arc<Self>) {
        let pending = match self.jobs.all_pending_cancels().await {
            Ok(pending) => pending,
            Err(error) => {
                tracing::error!(%error, "cannot read which remote steps are to be cancelled");
                return;
            }
        };
        for (parent, step, known) in pending {
            self.spawn_cancel(parent, step, known);
        }
    }

    /// Cancels the open remote steps of a job that has ended and has no driver, because it was
    /// paused when the process started.
    pub(in crate::orchestration) async fn cancel_unfollowed_steps(self: &Arc<Self>, job: &Job) {
        if !has_open_remote_steps(job) || self.drivers.contains(job.id()) {
            return;
        }
        for (step, state) in job.steps() {
            if state.end.is_some() || state.start.venue.is_none() {
                continue;
            }
            if let Ok(Some((known, _))) = self.jobs.remote_snapshot(job.id(), *step).await {
                self.spawn_cancel(job.id(), *step, known);
            }
        }
    }

    /// Waits for the reply to a start. `None` if another task replaces this one. If the driver has
    /// ended, the reply is still awaited, because it names the job to cancel.
    async fn await_start(
        &self,
        mut start: RemoteReply<RemoteStart>,
        context: &mut TaskContext,
    ) -> Result<Option<RemoteStart>, Failure> {
        let is_closed = tokio::select! {
            start = &mut start => return start.map(Some),
            replaced = context.replaced.changed() => replaced.is_err(),
        };
        if !is_closed {
            return Ok(None);
        }
        tokio::select! {
            start = start => start.map(Some),
            () = self.runtime.env.sleep(START_GRACE) => Ok(None),
        }
    }
}

impl RemoteStepTask {
    /// Follows the job to its end, and pauses and resumes it with its parent.
    async fn follow(mut self, mut known: Box<RemoteSnapshot>) -> Result<(), Failure> {
        let mut last = (known.state.status, known.state.record);
        if last.0.is_terminal() {
            // It ended while it was started.
            self.report(known.state.clone());
            return Ok(());
        }
        let mut owes_resume = self.apply_pause(self.context.pause).await;
        let mut poll = self.poll(last);
        // The monotonic time up to which the polls so far use up the rate.
        let mut used = Duration::ZERO;
        loop {
            let retry = self.orchestration.runtime.env.sleep(RESUME_RETRY_DELAY);
            tokio::select! {
                state = &mut poll => {
                    let state = state?;
                    last = (state.status, state.record);
                    let at = self.orchestration.runtime.now();
                    *known = RemoteSnapshot { state, at, ..*known };
                    self.report(known.state.clone());
                    if last.0.is_terminal() {
                        return Ok(());
                    }
                    let now = self.orchestration.runtime.env.monotonic();
                    poll = self.poll_after(used.saturating_sub(now + POLL_BURST), last);
                    used = used.max(now) + POLL_INTERVAL;
                }
                replaced = self.context.replaced.changed() => {
                    // A process that stops cancels nothing: the next one continues.
                    if replaced.is_err() && !self.orchestration.runtime.is_stopping() {
                        self.orchestration.cancel_remote(self.parent, self.step, *known).await;
                    }
                    return Ok(());
                }
                () = self.context.sync.nudge.notified() => poll = self.poll(last),
                change = self.context.control.next_pause_or_resume() => {
                    owes_resume = self.apply_pause(change).await;
                }
                () = retry, if owes_resume => {
                    owes_resume = self.apply_pause(PauseChange::Resume).await;
                }
            }
        }
    }

    fn report(&self, state: RemoteJob) {
        let event = RemoteEvent::Changed(Box::new(state));
        self.orchestration.report_remote(self.parent, self.step, event);
    }

    /// Returns the job once it differs from `known`. The venue is asked only while the parent is not
    /// paused.
    fn poll(&self, known: (Status, RecordId)) -> RemoteReply<RemoteJob> {
        let control = self.context.control.clone();
        self.federation.poll_job(RemoteJobRef { control, ..self.unpaused.clone() }, known)
    }

    /// Polls after a delay, so that a job that changes all the time does not keep the venue busy.
    fn poll_after(&self, delay: Duration, known: (Status, RecordId)) -> RemoteReply<RemoteJob> {
        let poll = self.poll(known);
        let control = self.context.control.clone();
        Box::pin(async move {
            control.sleep(delay).await;
            poll.await
        })
    }

    /// Pauses or resumes the job. Returns true if a resume has to be tried again.
    async fn apply_pause(&self, change: PauseChange) -> bool {
        let _order = self.context.sync.pausing.lock().await;
        let result = match change {
            PauseChange::Pause => self.pause().await.map(|()| false),
            PauseChange::Resume => self.resume().await,
        };
        result.unwrap_or_else(|error| {
            let job = self.parent;
            tracing::warn!(%job, step = self.step, %error, "cannot pause or resume a remote step");
            false
        })
    }

    /// Pauses the job, unless it is paused already. That this venue pauses it is stored first, or a
    /// crash would leave it paused for ever.
    async fn pause(&self) -> Result<(), StoreError> {
        let jobs = &self.orchestration.jobs;
        let parent = self.parent;
        let step = self.step;
        let paused = jobs.paused_here(parent, step).await?;
        if let Some(PausedHere::At(_)) = paused {
            return Ok(());
        }
        if paused.is_none() {
            match self.federation.fetch_job(self.unpaused.clone()).await {
                Ok(state) if state.status == Status::Paused || state.status.is_terminal() => {
                    return Ok(());
                }
                // The venue cannot be reached.
                Err(_) => return Ok(()),
                Ok(_) => {
                    jobs.set_paused_here(parent, step, Some(PausedHere::Requested)).await?;
                }
            }
        }
        match self.federation.set_paused(self.unpaused.clone(), PauseChange::Pause).await {
            Ok(state) => {
                jobs.set_paused_here(parent, step, Some(PausedHere::At(state.record))).await
            }
            // If the pause was requested before, it may be the reason for the conflict.
            Err(failure) if failure.code == REMOTE_CONFLICT && paused.is_none() => {
                jobs.set_paused_here(parent, step, None).await
            }
            Err(_) => Ok(()),
        }
    }

    /// Resumes the job if this venue paused it. Returns true if this has to be tried again.
    async fn resume(&self) -> Result<bool, StoreError> {
        let jobs = &self.orchestration.jobs;
        let parent = self.parent;
        let step = self.step;
        let Some(paused) = jobs.paused_here(parent, step).await? else { return Ok(false) };
        let state = match self.federation.fetch_job(self.unpaused.clone()).await {
            Ok(state) => state,
            Err(failure) => return Ok(failure.retry == RetryAdvice::MaySucceed),
        };
        let is_ours = match paused {
            PausedHere::Requested => true,
            PausedHere::At(record) => record == state.record,
        };
        if state.status == Status::Paused && is_ours {
            match self.federation.set_paused(self.unpaused.clone(), PauseChange::Resume).await {
                Err(failure) if failure.retry == RetryAdvice::MaySucceed => return Ok(true),
                _ => self.context.sync.nudge.notify_one(),
            }
        }
        jobs.set_paused_here(parent, step, None).await?;
        Ok(false)
    }
}

//! Publishes the progress of a running turn.
//!
//! The newest report is announced to watchers at intervals and, less often, made durable outside
//! the chain: a report costs no record and no sync. When the job is paused, waits or ends, and when
//! the process stops, the newest report is stored regardless of the interval.

use std::time::Duration;

use catena_job::JobId;
use catena_job::progress::Meter;
use catena_store::{Effect, Effects, Hint};
use catena_value::{Map, Value};

use crate::execution::Execution;
use crate::operations::{ProgressMeter, Signal};
use crate::runtime::Task;

/// How often progress is announced to watchers.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(200);

/// How often progress is made durable.
const STORE_INTERVAL: Duration = Duration::from_secs(1);

/// Announces and stores the progress of one turn.
pub(super) struct ProgressReporter<'a> {
    execution: &'a Execution,
    job: JobId,
    attempt: u32,
    progress: &'a ProgressMeter,
    /// Monotonic time of the last announcement.
    announced: Option<Duration>,
    /// Monotonic time at which progress was last stored.
    stored: Option<Duration>,
    /// Completes when the scheduled announcement is due. `None` if none is scheduled.
    due: Option<Task>,
}

impl<'a> ProgressReporter<'a> {
    pub(super) fn new(
        execution: &'a Execution,
        job: JobId,
        attempt: u32,
        progress: &'a ProgressMeter,
    ) -> ProgressReporter<'a> {
        progress.start(attempt, execution.runtime.env.monotonic());
        ProgressReporter {
            execution,
            job,
            attempt,
            progress,
            announced: None,
            stored: None,
            due: None,
        }
    }

    /// Returns once [`ProgressReporter::advance`] has something to do.
    pub(super) async fn wait(&mut self) {
        match &mut self.due {
            None => self.progress.reported().await,
            Some(due) => due.await,
        }
    }

    /// Schedules the announcement of a new report, or makes a scheduled one.
    pub(super) async fn advance(&mut self) {
        if self.due.take().is_some() {
            return self.announce();
        }
        self.ensure_meter().await;
        let now = self.execution.runtime.env.monotonic();
        let next = self.announced.map_or(now, |announced| announced + ANNOUNCE_INTERVAL);
        self.due = Some(self.execution.runtime.env.sleep(next.saturating_sub(now)));
    }

    /// Continues from what the same attempt reported before, with the first report of a turn.
    async fn ensure_meter(&mut self) {
        if !self.progress.needs_meter() {
            return;
        }
        let current = self.execution.jobs.current(self.job).await.ok().flatten();
        let stored = current.and_then(|current| current.progress);
        self.progress.set_meter(Meter::new(self.attempt, stored.as_ref()));
    }

    fn announce(&mut self) {
        let runtime = &self.execution.runtime;
        let Some(progress) = self.progress.newest(&*runtime.env) else { return };
        let now = runtime.env.monotonic();
        self.announced = Some(now);
        let jobs = &self.execution.jobs;
        jobs.watchers.announce_progress(self.job, &progress);
        if jobs.store.has_peers() {
            let hint = Hint::Progress { job: self.job, progress };
            jobs.store.send_hint(&jobs.process, hint);
        }
        if self.stored.is_none_or(|stored| now >= stored + STORE_INTERVAL) {
            self.stored = Some(now);
            if let Some(progress) = self.progress.take_unsaved(&*runtime.env) {
                let effect = Effect::SetProgress { job: self.job, progress };
                let committed = self.execution.jobs.store.commit(Effects::one(effect));
                // If this report is lost, the next one is stored.
                runtime.spawn(async move { drop(committed.await) });
            }
        }
    }

    /// Stops or starts the clock of the turn.
    pub(super) fn signalled(&self, signal: Signal) {
        let now = self.execution.runtime.env.monotonic();
        match signal {
            Signal::Go => self.progress.resume(now),
            Signal::Pause | Signal::Stop => self.progress.pause(now),
        }
    }

    /// Returns the last progress of a turn that ended.
    pub(super) async fn last(&mut self) -> Option<Value> {
        self.ensure_meter().await;
        self.progress.newest(&*self.execution.runtime.env)
    }
}

/// Returns the steps of an orchestration as a progress report.
pub(crate) fn step_progress(ended: usize, total: usize) -> Value {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let members = [("processedItems", number(ended)), ("totalItems", number(total))];
    members.into_iter().collect::<Map>().into()
}

impl Execution {
    /// Makes the newest progress of all runs durable.
    pub(crate) async fn store_progress(&self) {
        let stored = self.registry.all().into_iter().filter_map(|(job, handle)| {
            let progress = handle.progress.take_unsaved(&*self.runtime.env)?;
            Some(self.jobs.store.commit(Effects::one(Effect::SetProgress { job, progress })))
        });
        // Progress that cannot be stored does not delay a shutdown.
        drop(futures_util::future::join_all(stored.collect::<Vec<_>>()).await);
    }
}

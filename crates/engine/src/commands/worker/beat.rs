//! Tells a worker what became of the jobs that it holds.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_job::progress::Meter;
use catena_store::{Effect, Effects, Hint};

use crate::commands::Commands;
use crate::error::{StoreError, WorkerError};
use crate::execution::RunHandle;
use crate::execution::workers::sessions::WorkerSession;
use crate::limits::{BEAT_JOBS_MAX, WORKER_WAIT_MAX};
use crate::requests::{Beat, BeatJob, BeatReply, WorkerSignal};

/// How often the progress of a job is made durable.
const PROGRESS_STORE_INTERVAL: Duration = Duration::from_secs(1);

impl Commands {
    /// Renews the lease of a worker and returns the signals for its jobs, as soon as there is a new one.
    pub(crate) async fn beat(self: &Arc<Self>, beat: Beat) -> Result<BeatReply, WorkerError> {
        if beat.jobs.len() > BEAT_JOBS_MAX {
            let text = format!("`jobs` has more than {BEAT_JOBS_MAX} entries");
            return Err(WorkerError::Invalid(text));
        }
        let (session, _) = self.renew_worker(&beat.caller, &beat.worker).await?;
        let mut signals = Vec::new();
        let mentioned: HashSet<JobId> = beat.jobs.iter().map(|job| job.job).collect();
        for job in &beat.jobs {
            let found = self.execution.worker_run(&beat.caller, job.job, job.fence).await?;
            match found.filter(|(holder, _)| Arc::ptr_eq(holder, &session)) {
                Some((_, handle)) => self.report_progress(&session, job, &handle).await?,
                None => signals.push((job.job, WorkerSignal::Stop)),
            }
        }
        let is_answered = !signals.is_empty();
        // Answered in time for the next beat, which renews the lease.
        let longest = WORKER_WAIT_MAX.min(self.runtime.limits.worker_lease / 2);
        let wait = if is_answered { Duration::ZERO } else { beat.wait.min(longest) };
        self.wait_for_signal(&session, wait).await;
        signals.extend(session.take_signals(&mentioned));
        signals.sort_unstable_by_key(|(job, _)| *job);
        signals.dedup_by_key(|(job, _)| *job);
        let (_, lease_until) = self.renew_worker(&beat.caller, &beat.worker).await?;
        Ok(BeatReply { lease_until, signals })
    }

    /// Returns when a job was signalled since the worker was last told, or after a time.
    async fn wait_for_signal(&self, session: &WorkerSession, wait: Duration) {
        let until = self.runtime.env.monotonic() + wait;
        loop {
            let mut signalled = Box::pin(session.signalled.notified());
            signalled.as_mut().enable();
            let left = until.saturating_sub(self.runtime.env.monotonic());
            if session.has_news() || left.is_zero() || self.runtime.is_stopping() {
                return;
            }
            tokio::select! {
                () = signalled => {}
                () = self.runtime.env.sleep(left) => {}
                () = self.runtime.stopping() => {}
            }
        }
    }

    /// Keeps the log of a job, publishes its progress, and stores that now and then.
    async fn report_progress(
        &self,
        session: &WorkerSession,
        job: &BeatJob,
        handle: &RunHandle,
    ) -> Result<(), StoreError> {
        if let Some(log) = &job.log {
            handle.log(log);
        }
        let Some(report) = &job.progress else { return Ok(()) };
        let meter = &handle.progress;
        if meter.needs_meter() {
            let current = self.jobs.current(job.job).await?;
            let (attempt, stored) =
                current.map_or((1, None), |current| (current.job.attempt(), current.progress));
            meter.set_meter(Meter::new(attempt, stored.as_ref()));
        }
        meter.report(handle.secrets.redact(report.clone()));
        let env = &*self.runtime.env;
        let Some(progress) = meter.newest(env) else { return Ok(()) };
        self.jobs.watchers.announce_progress(job.job, &progress);
        if self.jobs.store.has_peers() {
            let hint = Hint::Progress { job: job.job, progress };
            self.jobs.store.send_hint(&self.jobs.process, hint);
        }
        if session.should_store_progress(job.job, env.monotonic(), PROGRESS_STORE_INTERVAL)
            && let Some(progress) = meter.take_unsaved(env)
        {
            let effect = Effect::SetProgress { job: job.job, progress };
            let committed = self.jobs.store.commit(Effects::one(effect));
            // If this report is lost, the next one is stored.
            self.runtime.spawn(async move { drop(committed.await) });
        }
        Ok(())
    }
}

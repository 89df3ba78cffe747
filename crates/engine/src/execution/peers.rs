//! What other processes do to the jobs of this one.
//!
//! Another process may pause, cancel or delete a job that runs here, may take it over if this
//! process seemed dead, and may change a job that somebody watches here. A hint says so at once; a
//! lost hint costs the time until the next check.

use std::sync::Arc;

use catena_job::{JobId, Status};
use catena_store::Hint;

use crate::error::StoreError;
use crate::execution::{Execution, QUEUE, RunHandle};
use crate::jobs::Current;

impl Execution {
    /// Acts on a hint.
    pub(crate) async fn receive_hint(self: &Arc<Self>, hint: Hint) -> Result<(), StoreError> {
        if matches!(hint, Hint::Changed { .. } | Hint::Deleted { .. }) {
            self.jobs.changes.send();
        }
        match hint {
            Hint::Queued { queue } if queue == QUEUE => self.queued.notify_one(),
            Hint::Queued { queue } => self.workers.queues.notify(&queue),
            Hint::Changed { job, parent } => {
                let concerns_parent = parent.is_some_and(|parent| self.jobs.is_driven(parent));
                let is_watched = self.jobs.watchers.is_watched(job);
                let runs = self.registry.runs_of(job);
                if concerns_parent || is_watched || !runs.is_empty() || self.jobs.is_driven(job) {
                    self.check_job(job, &runs).await?;
                }
            }
            Hint::Deleted { job } => {
                self.jobs.watchers.announce_deleted(job);
                self.registry.runs_of(job).iter().for_each(|handle| handle.stop());
            }
            Hint::Progress { job, progress } => {
                self.jobs.watchers.announce_progress(job, &progress);
            }
            Hint::Room { job } => self.jobs.notify_driver(job),
        }
        Ok(())
    }

    /// Checks everything that runs or is watched here, in case a hint was lost.
    pub(crate) async fn check_jobs(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut jobs = self.jobs.watchers.watched();
        jobs.extend(self.registry.all().into_iter().map(|(job, _)| job));
        jobs.extend(self.jobs.open_children_of_drivers());
        jobs.sort_unstable();
        jobs.dedup();
        for job in jobs {
            let runs = self.registry.runs_of(job);
            self.check_job(job, &runs).await?;
        }
        Ok(())
    }

    /// Compares a job with the store: its runs here are signalled, and its watchers and the driver
    /// of its parent are notified.
    async fn check_job(
        self: &Arc<Self>,
        job: JobId,
        runs: &[Arc<RunHandle>],
    ) -> Result<(), StoreError> {
        if self.private.get(job).is_some() {
            return Ok(());
        }
        let Some(current) = self.jobs.current(job).await? else {
            runs.iter().for_each(|handle| handle.stop());
            self.jobs.watchers.announce_deleted(job);
            return Ok(());
        };
        for handle in runs {
            self.synchronise(&current, handle);
        }
        self.jobs.announce_current(current);
        Ok(())
    }

    /// Makes a run do what the store says of its job.
    fn synchronise(self: &Arc<Self>, current: &Current, handle: &Arc<RunHandle>) {
        let status = current.job.status();
        // A run whose commit is in flight has a later fence than the store.
        if status.is_terminal() || current.hold.fence > handle.fence {
            handle.stop();
        } else if current.hold.fence == handle.fence && current.is_held() {
            match status {
                Status::Paused => handle.pause(&*self.runtime.env),
                _ => handle.resume(&self.runtime, &self.slots.permits),
            }
        }
    }
}

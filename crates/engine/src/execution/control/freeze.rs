//! Keeping paused work within its bounds.

use std::sync::Arc;

use catena_job::{JobId, Status};
use catena_store::{Effect, Effects, Hold};

use crate::execution::registry::FrozenRun;
use crate::execution::{Execution, RunHandle};
use crate::limits::FROZEN_MAX;

impl Execution {
    /// Keeps a run that was paused, within the bounds.
    pub(crate) fn freeze(self: &Arc<Self>, job: JobId, owner: &str, handle: Arc<RunHandle>) {
        let run = FrozenRun { job, owner: owner.to_owned(), handle };
        for run in self.frozen.add(run, self.runtime.limits.running_max) {
            let execution = Arc::clone(self);
            self.runtime.spawn(async move { execution.thaw(run.job, &run.handle).await });
        }
    }

    /// Releases the runs that have been paused for too long.
    pub(crate) async fn thaw_old(&self) {
        let env = &*self.runtime.env;
        for (job, handle) in self.registry.all() {
            if handle.paused_for(env).is_some_and(|time| time >= FROZEN_MAX) {
                self.thaw(job, &handle).await;
            }
        }
    }

    /// Gives up paused work: the job stays PAUSED, held by nobody.
    async fn thaw(&self, job: JobId, handle: &RunHandle) {
        let Ok(Some(current)) = self.jobs.current(job).await else { return };
        if current.job.status() != Status::Paused || current.hold.fence != handle.fence {
            return;
        }
        let hold = Hold::Release(handle.fence);
        let effect = Effect::SetHold { job, after: current.job.head(), hold };
        // If it was resumed meanwhile, it continues.
        if self.jobs.store.commit(Effects::one(effect)).await.is_ok() {
            handle.stop();
        }
    }
}

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
        let of_executor =
            handle.worker().and_then(|worker| self.workers.frozen_beyond(worker, &self.runtime));
        let released = of_executor.unwrap_or_else(|| {
            let run = FrozenRun { job, owner: owner.to_owned(), handle };
            let released = self.frozen.add(run, self.runtime.limits.running_max);
            released.into_iter().map(|run| (run.job, run.handle)).collect()
        });
        for (job, handle) in released {
            let execution = Arc::clone(self);
            self.runtime.spawn(async move { execution.thaw(job, &handle).await });
        }
    }

    /// Releases the runs that have been paused for too long, and those beyond the bounds of their executor,
    /// which may have announced itself after they were paused.
    pub(crate) async fn thaw_old(&self) {
        for (job, handle) in self.workers.all_frozen_beyond(&self.runtime) {
            self.thaw(job, &handle).await;
        }
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

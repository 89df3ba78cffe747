//! Paused work that is kept in memory, so that a resume continues it instead of repeating it.
//!
//! It is bounded: at most as many runs as there are slots, at most half of them of one owner, and
//! each for at most [`FROZEN_MAX`]. Beyond that the oldest is released, and its resume follows the
//! operation's recovery rule.

use std::collections::VecDeque;
use std::sync::Arc;

use catena_job::{JobId, Status};
use catena_store::{Effect, Effects, Hold};
use parking_lot::Mutex;

use crate::execution::{Execution, RunHandle};
use crate::limits::FROZEN_MAX;

/// The paused runs of this process, oldest first.
#[derive(Default)]
pub(crate) struct FrozenRuns(Mutex<VecDeque<FrozenRun>>);

struct FrozenRun {
    job: JobId,
    owner: String,
    handle: Arc<RunHandle>,
}

impl FrozenRuns {
    /// Adds a run that was paused, and returns the runs that must be released for it.
    fn add(&self, run: FrozenRun, max: usize) -> Vec<FrozenRun> {
        let mut runs = self.0.lock();
        runs.retain(|known| known.handle.is_frozen() && known.job != run.job);
        let owner = run.owner.clone();
        runs.push_back(run);
        let mut released = Vec::new();
        let of_owner = runs.iter().filter(|run| run.owner == owner).count();
        let oldest = if runs.len() > max {
            Some(0)
        } else if of_owner > max.div_ceil(2) {
            runs.iter().position(|run| run.owner == owner)
        } else {
            None
        };
        released.extend(oldest.and_then(|at| runs.remove(at)));
        released
    }
}

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

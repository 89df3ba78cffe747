//! Paused work that is kept in memory, so that a resume continues it instead of repeating it.
//!
//! It is bounded: at most as many runs as there are slots, at most half of them of one owner, and
//! each for at most [`crate::limits::FROZEN_MAX`]. Beyond that the oldest is released, and its resume follows the
//! operation's recovery rule.

use std::collections::VecDeque;
use std::sync::Arc;

use catena_job::JobId;
use parking_lot::Mutex;

use crate::execution::registry::RunHandle;

/// The paused runs of this process, oldest first.
#[derive(Default)]
pub(crate) struct FrozenRuns(Mutex<VecDeque<FrozenRun>>);

pub(super) struct FrozenRun {
    pub(super) job: JobId,
    pub(super) owner: String,
    pub(super) handle: Arc<RunHandle>,
}

impl FrozenRuns {
    /// Adds a run that was paused, and returns the runs that must be released for it.
    pub(super) fn add(&self, run: FrozenRun, max: usize) -> Vec<FrozenRun> {
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

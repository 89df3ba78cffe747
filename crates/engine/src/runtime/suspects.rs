//! Jobs that the process was working on when it aborted.
//!
//! A job that aborts the process would do so again after every restart. Which jobs the threads of the
//! process were working on at an abort is known (`on_thread.rs`); these are suspects. After two aborts
//! a suspect is started alone (`start_gate.rs`), before anything else. After the third it is paused with the
//! reason, and a person decides.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use catena_job::JobId;
use parking_lot::Mutex;

use crate::limits::ABORTS_ALONE;

/// What is known of the aborts of earlier processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aborts {
    /// How often a process aborted while it was working on a job.
    pub by_job: HashMap<JobId, u32>,
    /// True if the process before this one aborted.
    pub was_last: bool,
}

/// The suspects, and how often the process aborted while it was working on each.
pub(crate) struct Suspects {
    aborts: Mutex<HashMap<JobId, u32>>,
    /// True while the jobs of a process that aborted are being recovered.
    recovers_from_abort: AtomicBool,
}

impl Suspects {
    pub(crate) fn new(aborts: Aborts) -> Suspects {
        Suspects {
            aborts: Mutex::new(aborts.by_job),
            recovers_from_abort: AtomicBool::new(aborts.was_last),
        }
    }

    /// Returns true if a job was interrupted by an abort that others are suspected of. That does not count
    /// as an interruption, or a job that aborts the process would make all others fail.
    pub(crate) fn is_bystander(&self, job: JobId) -> bool {
        self.recovers_from_abort.load(Ordering::Relaxed) && self.aborts_of(job) == 0
    }

    /// Notes that what the process that aborted left is recovered.
    pub(crate) fn end_recovery(&self) {
        self.recovers_from_abort.store(false, Ordering::Relaxed);
    }

    /// Returns all suspects.
    pub(crate) fn all(&self) -> HashMap<JobId, u32> {
        self.aborts.lock().clone()
    }

    /// Returns how often the process aborted while it was working on a job.
    pub(crate) fn aborts_of(&self, job: JobId) -> u32 {
        self.aborts.lock().get(&job).copied().unwrap_or(0)
    }

    /// Removes a job from the suspects.
    pub(crate) fn acquit(&self, job: JobId) {
        self.aborts.lock().remove(&job);
    }

    /// Returns true if a job must be started alone.
    pub(crate) fn must_start_alone(&self, job: JobId) -> bool {
        self.aborts_of(job) >= ABORTS_ALONE
    }

    /// Returns the jobs that must be started alone.
    pub(crate) fn to_start_alone(&self) -> Vec<JobId> {
        let aborts = self.aborts.lock();
        aborts.iter().filter(|(_, count)| **count >= ABORTS_ALONE).map(|(job, _)| *job).collect()
    }

    /// Notes that a job was paused because of its aborts. If it is resumed, it is started alone, and
    /// paused again after one more.
    pub(crate) fn give_another_try(&self, job: JobId) {
        if let Some(count) = self.aborts.lock().get_mut(&job) {
            *count = (*count).min(ABORTS_ALONE);
        }
    }

    /// Acquits those who need not be started alone.
    pub(crate) fn acquit_first_time(&self) {
        self.aborts.lock().retain(|_, aborts| *aborts >= ABORTS_ALONE);
    }
}

//! Jobs that the process was working on when it aborted.
//!
//! A job that aborts the process would do so again after every restart. Which jobs the threads of the
//! process were working on at an abort is known (`on_thread.rs`); these are suspects. After two aborts
//! a suspect is started alone, that is, no other suspect starts until it has ended or the process has
//! survived it for a minute. After the third it is paused with the reason, and a person decides.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use catena_job::JobId;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
    /// Permits the start of one suspect at a time.
    alone: Arc<Semaphore>,
    /// True while the jobs of a process that aborted are being recovered.
    recovers_from_abort: AtomicBool,
}

impl Suspects {
    pub(crate) fn new(aborts: Aborts) -> Suspects {
        Suspects {
            aborts: Mutex::new(aborts.by_job),
            alone: Arc::new(Semaphore::new(1)),
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

    /// Waits until a job that must be started alone may be. `None` if it need not be.
    pub(crate) async fn wait_alone(&self, job: JobId) -> Option<OwnedSemaphorePermit> {
        if self.aborts_of(job) < ABORTS_ALONE {
            return None;
        }
        Arc::clone(&self.alone).acquire_owned().await.ok()
    }

    /// Acquits those who need not be started alone.
    pub(crate) fn acquit_first_time(&self) {
        self.aborts.lock().retain(|_, aborts| *aborts >= ABORTS_ALONE);
    }
}

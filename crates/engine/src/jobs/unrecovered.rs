//! Jobs that were live when this process started and that it has not changed yet.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use catena_job::JobId;
use parking_lot::Mutex;

/// Jobs of the previous process that have not been recovered.
#[derive(Default)]
pub(crate) struct Unrecovered {
    /// Avoids the lock if there are none, which is the usual case.
    count: AtomicUsize,
    jobs: Mutex<HashSet<JobId>>,
}

impl Unrecovered {
    pub(crate) fn add_all(&self, found: &[JobId]) {
        let mut jobs = self.jobs.lock();
        jobs.extend(found);
        self.count.store(jobs.len(), Ordering::SeqCst);
    }

    pub(crate) fn contains(&self, job: JobId) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.jobs.lock().contains(&job)
    }

    /// Removes a job. Returns false if it was not there.
    pub(super) fn remove(&self, job: JobId) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut jobs = self.jobs.lock();
        let was_there = jobs.remove(&job);
        self.count.store(jobs.len(), Ordering::SeqCst);
        was_there
    }

    pub(crate) fn clear(&self) {
        self.count.store(0, Ordering::SeqCst);
        *self.jobs.lock() = HashSet::new();
    }
}

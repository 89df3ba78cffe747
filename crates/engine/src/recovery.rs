//! What recovery did, and what it has still to do.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use catena_job::{Job, JobId};
use catena_value::Value;
use parking_lot::Mutex;

use crate::engine::Engine;

/// Jobs that are named when they are skipped; others are only counted.
pub const SKIPPED_NAMED_MAX: usize = 100;

/// What recovery has done since the venue started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoverySummary {
    /// Live jobs that were there when the venue started.
    pub found: u64,
    /// Those looked at so far.
    pub scanned: u64,
    /// Put back on the queue.
    pub requeued: u64,
    /// Failed.
    pub failed: u64,
    /// Left as they were because they could not be recovered.
    pub skipped: u64,
    /// Left as they were because they wait for somebody, or because somebody changed them first.
    pub left: u64,
    /// The first of those that were skipped.
    pub skipped_jobs: Vec<SkippedJob>,
    /// When it began, in milliseconds since 1970.
    pub began: i64,
    /// How long it took; nothing while it is under way.
    pub took: Option<Duration>,
}

impl RecoverySummary {
    /// Whether everything has been looked at.
    pub fn is_done(&self) -> bool {
        self.took.is_some()
    }
}

/// A job that could not be recovered and was left as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedJob {
    /// The job.
    pub job: JobId,
    /// Whose it is.
    pub owner: String,
    /// Its operation, as the caller named it.
    pub op: String,
    /// Why.
    pub reason: String,
}

/// Jobs that were live before this process began and that nobody here has changed.
#[derive(Default)]
pub(crate) struct Leftover {
    /// Spares looking when there are none, which is nearly always.
    count: AtomicUsize,
    jobs: Mutex<HashSet<JobId>>,
}

impl Leftover {
    pub(crate) fn fill(&self, found: &[JobId]) {
        let mut jobs = self.jobs.lock();
        jobs.extend(found);
        self.count.store(jobs.len(), Ordering::SeqCst);
    }

    pub(crate) fn contains(&self, job: JobId) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.jobs.lock().contains(&job)
    }

    fn take(&self, job: JobId) -> bool {
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

impl Engine {
    /// Takes over a job of the life before: from now on it counts among its owner's.
    pub(crate) fn adopt(&self, job: &Job) {
        if self.0.leftover.take(job.id()) && job.parent().is_none() {
            let owner = job.field("caller").and_then(Value::as_str).unwrap_or_default();
            self.0.admission.enter(owner);
        }
    }
}

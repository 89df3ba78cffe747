//! Counters since the engine started, and the alarm for the next deadline.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use catena_job::Status;
use tokio::sync::Notify;

/// Counters since the engine started.
#[derive(Default)]
pub(crate) struct EventCounters {
    pub(crate) invoked: AtomicU64,
    pub(crate) ended: [AtomicU64; 5],
    pub(crate) messages: AtomicU64,
    pub(crate) retries: AtomicU64,
}

impl EventCounters {
    /// Counts a committed change of a job: whether it is new, and its terminal status if it ended.
    pub(crate) fn count_job(&self, is_new: bool, ended: Option<Status>) {
        if is_new {
            self.invoked.fetch_add(1, Ordering::Relaxed);
        }
        let index = match ended {
            Some(Status::Complete) => 0,
            Some(Status::Failed) => 1,
            Some(Status::Cancelled) => 2,
            Some(Status::Rejected) => 3,
            Some(Status::Timeout) => 4,
            _ => return,
        };
        self.ended[index].fetch_add(1, Ordering::Relaxed);
    }
}

/// When the background task that ends overdue jobs must wake, as Unix time in ms.
pub(crate) struct DeadlineAlarm {
    next: AtomicI64,
    pub(crate) earlier: Notify,
}

impl Default for DeadlineAlarm {
    fn default() -> Self {
        DeadlineAlarm { next: AtomicI64::new(i64::MAX), earlier: Notify::new() }
    }
}

impl DeadlineAlarm {
    /// Makes the task wake at `at` at the latest.
    pub(crate) fn wake_by(&self, at: i64) {
        if self.next.fetch_min(at, Ordering::SeqCst) > at {
            self.earlier.notify_one();
        }
    }

    /// Records that the task sleeps until `at`.
    pub(crate) fn set(&self, at: i64) {
        self.next.store(at, Ordering::SeqCst);
    }
}

/// Counters of the engine: totals since it started, and current numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Jobs created.
    pub invoked: u64,
    /// Jobs ended, by status, in the order COMPLETE, FAILED, CANCELLED, REJECTED, TIMEOUT.
    pub ended: [u64; 5],
    /// Jobs that run in this process now.
    pub running: u64,
    /// Jobs that are queued now, as far as this process knows.
    pub queued: u64,
    /// Messages accepted.
    pub messages: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Watches of jobs now.
    pub watchers: u64,
}

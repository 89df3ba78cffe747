//! What is counted, and when the next alarm rings.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use catena_job::Status;
use tokio::sync::Notify;

/// Counters since the engine started.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) invoked: AtomicU64,
    pub(crate) ended: [AtomicU64; 5],
    pub(crate) messages: AtomicU64,
    pub(crate) retries: AtomicU64,
}

impl Counts {
    pub(crate) fn job(&self, is_new: bool, ended: Option<Status>) {
        if is_new {
            self.invoked.fetch_add(1, Ordering::Relaxed);
        }
        let place = match ended {
            Some(Status::Complete) => 0,
            Some(Status::Failed) => 1,
            Some(Status::Cancelled) => 2,
            Some(Status::Rejected) => 3,
            Some(Status::Timeout) => 4,
            _ => return,
        };
        self.ended[place].fetch_add(1, Ordering::Relaxed);
    }
}

/// When the duty that looks at deadlines must wake.
pub(crate) struct Alarms {
    next: AtomicI64,
    pub(crate) earlier: Notify,
}

impl Default for Alarms {
    fn default() -> Self {
        Alarms { next: AtomicI64::new(i64::MAX), earlier: Notify::new() }
    }
}

impl Alarms {
    /// The duty wakes at this time at the latest.
    pub(crate) fn not_later_than(&self, at: i64) {
        if self.next.fetch_min(at, Ordering::SeqCst) > at {
            self.earlier.notify_one();
        }
    }

    /// The duty sleeps until this time.
    pub(crate) fn set(&self, at: i64) {
        self.next.store(at, Ordering::SeqCst);
    }
}

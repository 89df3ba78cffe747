//! Whether work may start: while a suspect runs alone, nothing else does.
//!
//! Work means runs of jobs, orchestrations and schedules. Requests are answered, and operations that run
//! inside a request run: they leave nothing that would come back after a restart, so they cannot be
//! confused with a suspect. What runs already goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use catena_job::JobId;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Decides whether work may start.
pub(crate) struct StartGate {
    /// The number of [`Closed`] that exist.
    closed: AtomicUsize,
    opened: Notify,
    /// Permits one suspect at a time.
    alone: Arc<Semaphore>,
    /// The job that may start nevertheless.
    suspect: Mutex<Option<JobId>>,
}

impl StartGate {
    pub(super) fn new() -> Arc<StartGate> {
        let alone = Arc::new(Semaphore::new(1));
        Arc::new(StartGate {
            closed: AtomicUsize::new(0),
            opened: Notify::new(),
            alone,
            suspect: Mutex::new(None),
        })
    }

    /// Returns true if work may start.
    pub(crate) fn is_open(&self) -> bool {
        self.closed.load(Ordering::Acquire) == 0
    }

    /// Returns true if this job may start.
    pub(crate) fn lets_start(&self, job: JobId) -> bool {
        self.is_open() || *self.suspect.lock() == Some(job)
    }

    /// Waits until work may start.
    pub(crate) async fn opened(&self) {
        while !self.is_open() {
            let opened = self.opened.notified();
            if self.is_open() {
                return;
            }
            opened.await;
        }
    }

    /// Lets no work start until what it returns is dropped.
    pub(crate) fn close(self: &Arc<Self>) -> Closed {
        self.closed.fetch_add(1, Ordering::AcqRel);
        Closed(Arc::clone(self))
    }

    /// Waits until no suspect is running alone, and lets nothing but this job start until what it returns
    /// is dropped.
    pub(crate) async fn start_alone(self: &Arc<Self>, job: JobId) -> Option<Alone> {
        let permit = Arc::clone(&self.alone).acquire_owned().await.ok()?;
        *self.suspect.lock() = Some(job);
        Some(Alone { closed: self.close(), _permit: permit })
    }

    /// Waits until no suspect is running alone.
    pub(crate) async fn none_alone(&self) {
        drop(self.alone.acquire().await);
    }
}

/// Keeps work from starting.
pub(crate) struct Closed(Arc<StartGate>);

impl Drop for Closed {
    fn drop(&mut self) {
        if self.0.closed.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.opened.notify_waiters();
        }
    }
}

/// Says that a suspect is running alone.
pub(crate) struct Alone {
    closed: Closed,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Alone {
    fn drop(&mut self) {
        *self.closed.0.suspect.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_waits_until_every_suspect_has_run() {
        let gate = StartGate::new();
        let job = |number: u8| JobId::from_bytes([number; 16]);
        assert!(gate.is_open() && gate.lets_start(job(1)));
        let first = gate.start_alone(job(1)).await.unwrap();
        assert!(gate.lets_start(job(1)) && !gate.lets_start(job(2)));
        let mut second = Box::pin(gate.start_alone(job(2)));
        let wait = Duration::from_secs(1);
        assert!(tokio::time::timeout(wait, &mut second).await.is_err());
        let waiting = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.opened().await }
        });
        tokio::task::yield_now().await;
        drop(first);
        let second = second.await;
        tokio::task::yield_now().await;
        assert!(!gate.is_open());
        drop(second);
        waiting.await.unwrap();
        assert!(gate.is_open());
    }
}

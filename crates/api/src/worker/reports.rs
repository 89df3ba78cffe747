//! What a running job reports: its progress, and the end of its log.
//!
//! Reports of a job are sent by one request at a time, and the end of the job waits for its last one: a venue drops what
//! arrives after the end. What could not be sent is kept for the next request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catena_value::Value;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::limits::WORKER_LOG_BYTES_MAX;

/// What a job has reported since it was last sent.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pending: Mutex<Pending>,
    /// Held by the request that sends reports of the job.
    sending: Arc<AsyncMutex<()>>,
}

#[derive(Debug, Default)]
struct Pending {
    progress: Option<Value>,
    log: String,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.progress.is_none() && self.log.is_empty()
    }

    /// Keeps the end of the log.
    fn cut_log(&mut self) {
        if self.log.len() > WORKER_LOG_BYTES_MAX {
            let start = self.log.ceil_char_boundary(self.log.len() - WORKER_LOG_BYTES_MAX);
            self.log.drain(..start);
        }
    }
}

impl Reports {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_progress(&self, progress: Value) {
        self.pending().progress = Some(progress);
    }

    pub(super) fn add_log(&self, text: &str) {
        let mut pending = self.pending();
        pending.log.push_str(text);
        pending.cut_log();
    }

    /// Returns what is to be sent. `None` if there is nothing, or reports are being sent already.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Taken> {
        let sending = Arc::clone(&self.sending).try_lock_owned().ok()?;
        self.take_under(sending)
    }

    /// Returns what is to be sent, once what is being sent has been answered. `None` if there is nothing.
    pub(super) async fn take(self: &Arc<Self>) -> Option<Taken> {
        let sending = Arc::clone(&self.sending).lock_owned().await;
        self.take_under(sending)
    }

    fn take_under(self: &Arc<Self>, sending: OwnedMutexGuard<()>) -> Option<Taken> {
        let taken = std::mem::take(&mut *self.pending());
        let reports = Arc::clone(self);
        (!taken.is_empty()).then_some(Taken { taken, reports, _sending: sending })
    }
}

/// Reports that are being sent. They are kept for the next request unless they are confirmed.
#[derive(Debug)]
pub(super) struct Taken {
    taken: Pending,
    reports: Arc<Reports>,
    _sending: OwnedMutexGuard<()>,
}

impl Taken {
    pub(super) fn progress(&self) -> Option<Value> {
        self.taken.progress.clone()
    }

    pub(super) fn log(&self) -> Option<String> {
        Some(self.taken.log.clone()).filter(|log| !log.is_empty())
    }

    /// The venue has them.
    pub(super) fn confirm(mut self) {
        self.taken = Pending::default();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let taken = std::mem::take(&mut self.taken);
        let mut pending = self.reports.pending();
        pending.progress = pending.progress.take().or(taken.progress);
        pending.log.insert_str(0, &taken.log);
        pending.cut_log();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(taken: &Taken) -> (Option<Value>, Option<String>) {
        (taken.progress(), taken.log())
    }

    #[test]
    fn what_was_not_sent_is_sent_with_what_came_since() {
        let reports = Arc::new(Reports::default());
        assert!(reports.try_take().is_none());
        reports.set_progress(1.into());
        reports.add_log("one\n");
        let taken = reports.try_take().unwrap();
        reports.add_log("two\n");
        drop(taken);
        let taken = reports.try_take().unwrap();
        assert_eq!(sent(&taken), (Some(1.into()), Some("one\ntwo\n".into())));
        reports.set_progress(2.into());
        drop(taken);
        let taken = reports.try_take().unwrap();
        assert_eq!(taken.progress(), Some(2.into()), "the newer progress is kept");
        taken.confirm();
        assert!(reports.try_take().is_none());
    }

    #[tokio::test]
    async fn the_last_reports_wait_until_earlier_ones_are_answered() {
        let reports = Arc::new(Reports::default());
        reports.add_log("one\n");
        let earlier = reports.try_take().unwrap();
        let mut last = Box::pin(reports.take());
        tokio::select! {
            biased;
            _ = &mut last => panic!("the job must not end yet"),
            () = std::future::ready(()) => {}
        }
        assert!(reports.try_take().is_none());
        earlier.confirm();
        assert!(last.await.is_none());
    }

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        let reports = Arc::new(Reports::default());
        reports.add_log(&"é".repeat(WORKER_LOG_BYTES_MAX));
        reports.add_log("end");
        let log = reports.try_take().unwrap().log().unwrap();
        assert!(log.len() <= WORKER_LOG_BYTES_MAX && log.ends_with("éend"));
    }
}

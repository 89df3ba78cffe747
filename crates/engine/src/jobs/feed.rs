//! The signal that some job changed, for those who follow all jobs.
//!
//! It carries nothing: readers find the changes in the store, in the order of commits. Without
//! readers, a change costs one load of an atomic number.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// Wakes those who follow all jobs.
pub(crate) struct ChangeSignal {
    readers: AtomicUsize,
    changed: watch::Sender<()>,
}

impl Default for ChangeSignal {
    fn default() -> Self {
        ChangeSignal { readers: AtomicUsize::new(0), changed: watch::Sender::new(()) }
    }
}

impl ChangeSignal {
    /// Wakes all readers.
    pub(crate) fn send(&self) {
        if self.readers.load(Ordering::SeqCst) > 0 {
            self.changed.send_replace(());
        }
    }

    /// Adds a reader.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.readers.fetch_add(1, Ordering::SeqCst);
        self.changed.subscribe()
    }

    /// Removes a reader.
    pub(crate) fn unsubscribe(&self) {
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }
}

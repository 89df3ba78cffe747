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

#[cfg(test)]
mod tests {
    use super::*;

    /// An echo job takes tens of microseconds. The bound is far above what an unoptimized build needs.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the time of the computer is what is measured")]
    fn a_change_that_nobody_follows_costs_less_than_a_microsecond() {
        const CHANGES: u32 = 1_000_000;
        let signal = ChangeSignal::default();
        let started = std::time::Instant::now();
        for _ in 0..CHANGES {
            std::hint::black_box(&signal).send();
        }
        assert!(started.elapsed() / CHANGES < std::time::Duration::from_micros(1));
    }

    #[test]
    fn a_reader_is_woken_once_for_many_changes_until_it_leaves() {
        let signal = ChangeSignal::default();
        let mut reader = signal.subscribe();
        signal.send();
        signal.send();
        assert!(reader.has_changed().is_ok_and(|has_changed| has_changed));
        reader.mark_unchanged();
        assert!(reader.has_changed().is_ok_and(|has_changed| !has_changed));
        signal.unsubscribe();
        signal.send();
        assert!(reader.has_changed().is_ok_and(|has_changed| !has_changed), "nobody reads");
    }
}

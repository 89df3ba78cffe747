//! The signal that tells a run to go on, pause or stop.
//!
//! Every run has one, and few are ever paused: a signal is one word and one list of waiters. A `watch`
//! channel of tokio has eight lists, all of which are locked when a run ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Whether a turn may continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Run.
    Go,
    /// Pause.
    Pause,
    /// Stop for good.
    Stop,
}

/// The bits of the word that hold the signal. The others count its changes.
const SIGNAL_BITS: u32 = 2;

struct Shared {
    word: AtomicU64,
    changed: Notify,
}

impl Shared {
    fn signal(&self) -> Signal {
        signal_in(self.word.load(Ordering::SeqCst))
    }
}

fn signal_in(word: u64) -> Signal {
    match word & ((1 << SIGNAL_BITS) - 1) {
        0 => Signal::Go,
        1 => Signal::Pause,
        _ => Signal::Stop,
    }
}

fn word_with(signal: Signal, changes: u64) -> u64 {
    let bits = match signal {
        Signal::Go => 0,
        Signal::Pause => 1,
        Signal::Stop => 2,
    };
    changes << SIGNAL_BITS | bits
}

/// Sends the signals of one run. The run is stopped when this is dropped.
pub(crate) struct SignalSender(Arc<Shared>);

impl Default for SignalSender {
    fn default() -> Self {
        let word = AtomicU64::new(word_with(Signal::Go, 0));
        SignalSender(Arc::new(Shared { word, changed: Notify::new() }))
    }
}

impl SignalSender {
    /// Returns the current signal.
    pub(crate) fn current(&self) -> Signal {
        self.0.signal()
    }

    /// Changes the signal. Returns false if it is the current one, or if the run was stopped.
    pub(crate) fn send(&self, signal: Signal) -> bool {
        let changed = self.0.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            let current = signal_in(word);
            let changes = current != signal && current != Signal::Stop;
            changes.then(|| word_with(signal, (word >> SIGNAL_BITS) + 1))
        });
        if changed.is_ok() {
            self.0.changed.notify_waiters();
        }
        changed.is_ok()
    }

    /// Returns a receiver that has seen the current signal.
    pub(crate) fn subscribe(&self) -> SignalReceiver {
        let shared = Arc::clone(&self.0);
        SignalReceiver { seen: shared.word.load(Ordering::SeqCst), shared }
    }
}

impl Drop for SignalSender {
    fn drop(&mut self) {
        self.send(Signal::Stop);
    }
}

/// Receives the signals of one run.
#[derive(Clone)]
pub(crate) struct SignalReceiver {
    shared: Arc<Shared>,
    /// The word that [`SignalReceiver::changed`] last returned.
    seen: u64,
}

impl SignalReceiver {
    /// Returns the current signal.
    pub(crate) fn current(&self) -> Signal {
        self.shared.signal()
    }

    /// Returns the signal once it has changed since the last call. A stopped run has no further
    /// changes, and this never returns.
    pub(crate) async fn changed(&mut self) -> Signal {
        loop {
            // Created before the word is read, so that no change is missed.
            let changed = self.shared.changed.notified();
            let word = self.shared.word.load(Ordering::SeqCst);
            if word != self.seen {
                self.seen = word;
                return signal_in(word);
            }
            changed.await;
        }
    }

    /// Returns as soon as `accepts` returns true of the signal.
    pub(crate) async fn wait_for(&self, accepts: impl Fn(Signal) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            if accepts(self.shared.signal()) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_ready<T>(future: &mut std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_receiver_sees_every_change_that_it_waits_for_and_none_twice() {
        let sender = SignalSender::default();
        let mut receiver = sender.subscribe();
        {
            let mut changed = pin!(receiver.changed());
            assert!(!is_ready(&mut changed));
            assert!(sender.send(Signal::Pause));
            assert!(is_ready(&mut changed));
        }
        assert!(!is_ready(&mut pin!(receiver.changed())));
        assert!(!sender.send(Signal::Pause), "it is paused already");
        assert!(!is_ready(&mut pin!(receiver.changed())));
        // Two changes between two looks are one, also if they lead back to the same signal.
        assert!(sender.send(Signal::Go) && sender.send(Signal::Pause));
        assert!(is_ready(&mut pin!(receiver.changed())));
        assert_eq!(receiver.current(), Signal::Pause);
    }

    #[test]
    fn a_waiter_is_woken_by_the_signal_it_waits_for() {
        let sender = SignalSender::default();
        let receiver = sender.subscribe();
        let mut waiting = pin!(receiver.wait_for(|signal| signal == Signal::Stop));
        assert!(!is_ready(&mut waiting));
        sender.send(Signal::Pause);
        assert!(!is_ready(&mut waiting));
        drop(sender);
        assert!(is_ready(&mut waiting), "the sender is gone, so the run is stopped");
    }

    #[test]
    fn a_stopped_run_takes_no_other_signal() {
        let sender = SignalSender::default();
        assert!(sender.send(Signal::Stop));
        assert!(!sender.send(Signal::Go));
        assert_eq!(sender.current(), Signal::Stop);
    }
}

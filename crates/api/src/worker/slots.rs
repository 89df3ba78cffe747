//! The slots of a worker: how many jobs run at a time.
//!
//! A job that is paused gives its slot back if its work stands still. One that is resumed continues at once,
//! whether or not there is a free slot: its time passes again. Nothing is claimed until a slot is free, so
//! that at most twice as many jobs run as there are slots if the paused ones are at most as many.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::watch;

use crate::client::worker::WorkerSignal;

/// The slots of a worker.
pub(super) struct Slots {
    occupied: Arc<watch::Sender<usize>>,
    total: usize,
}

impl Slots {
    pub(super) fn new(total: usize) -> Slots {
        Slots { occupied: Arc::new(watch::Sender::new(0)), total }
    }

    /// Returns how many slots are free. `None` if none is.
    pub(super) fn free_now(&self) -> Option<usize> {
        self.total.checked_sub(*self.occupied.borrow()).filter(|free| *free > 0)
    }

    /// Waits until a slot is free.
    pub(super) async fn wait_for_free(&self) {
        let mut occupied = self.occupied.subscribe();
        let _ = occupied.wait_for(|occupied| *occupied < self.total).await;
    }

    /// Waits until no slot is occupied.
    pub(super) async fn unused(&self) {
        let mut occupied = self.occupied.subscribe();
        let _ = occupied.wait_for(|occupied| *occupied == 0).await;
    }

    /// Occupies a slot.
    pub(super) fn occupy(&self) -> Slot {
        let mut slot = Slot { occupied: Arc::clone(&self.occupied), is_occupied: false };
        slot.occupy();
        slot
    }
}

/// The slot of a job. It is free when this is dropped.
pub(super) struct Slot {
    occupied: Arc<watch::Sender<usize>>,
    is_occupied: bool,
}

impl Slot {
    /// Occupies the slot again.
    pub(super) fn occupy(&mut self) {
        if !std::mem::replace(&mut self.is_occupied, true) {
            self.occupied.send_modify(|occupied| *occupied += 1);
        }
    }

    fn give_back(&mut self) {
        if std::mem::replace(&mut self.is_occupied, false) {
            self.occupied.send_modify(|occupied| *occupied -= 1);
        }
    }

    /// Gives the slot back while the job is paused.
    pub(super) async fn follow(&mut self, mut signal: watch::Receiver<WorkerSignal>) -> Infallible {
        loop {
            let wanted = *signal.borrow_and_update();
            match wanted {
                WorkerSignal::Go => self.occupy(),
                WorkerSignal::Pause => self.give_back(),
                // Its work ends now.
                WorkerSignal::Stop => {}
            }
            if signal.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_paused_job_has_no_slot_and_a_resumed_one_gets_it_at_once() {
        let slots = Slots::new(1);
        let (signal, signals) = watch::channel(WorkerSignal::Go);
        let mut paused = slots.occupy();
        let following = tokio::spawn(async move { paused.follow(signals).await });
        signal.send_replace(WorkerSignal::Pause);
        slots.wait_for_free().await;
        assert_eq!(slots.free_now(), Some(1));
        let other = slots.occupy();
        signal.send_replace(WorkerSignal::Go);
        let mut occupied = slots.occupied.subscribe();
        occupied.wait_for(|occupied| *occupied == 2).await.unwrap();
        assert_eq!(slots.free_now(), None);
        drop(other);
        signal.send_replace(WorkerSignal::Pause);
        slots.unused().await;
        following.abort();
    }
}

//! Helpers for tests and benchmarks of stores: jobs to store, and ways to wait for a result.

pub mod crash;
pub mod jobs;
pub mod stepped;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

pub use catena_ledger::testing::rng;
pub use catena_ledger::testing::sim_disk::{Crash, SimDisk, SimOp};
pub use catena_ledger::{Disk, Faults, RealDisk};

use crate::embedded::EmbeddedStore;

/// Polls a future once. `None` if it is pending.
pub fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Waits for a result on a store without threads, by stepping it. `None` if the store makes no
/// progress, not even after flushing.
pub fn drive<T>(store: &EmbeddedStore, mut future: impl Future<Output = T> + Unpin) -> Option<T> {
    for _ in 0..64 {
        if let Some(value) = poll_once(&mut future) {
            return Some(value);
        }
        if !store.step_commit() {
            store.step_flush();
        }
    }
    poll_once(&mut future)
}

//! How many rows a list has, without counting them every time.
//!
//! Places in the order only grow, so what was counted up to a place stays counted until something
//! is deleted: then all tallies are forgotten, and the next reader counts anew.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Lists whose tallies are kept.
const TALLIES_MAX: usize = 10_000;

/// Rows counted, and the place of the last of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) rows: u64,
    pub(super) last: Option<u64>,
}

#[derive(Default)]
struct Kept {
    by_scope: HashMap<[u8; 8], Tally>,
    /// Grows when something is deleted, so that a count that began before is not kept.
    epoch: u64,
}

/// The tallies of this process.
#[derive(Clone, Default)]
pub(super) struct Tallies(Arc<Mutex<Kept>>);

impl Tallies {
    /// What is known of a list, and the epoch in which it is true.
    pub(super) fn get(&self, scope: [u8; 8]) -> (Tally, u64) {
        let kept = self.0.lock();
        (kept.by_scope.get(&scope).copied().unwrap_or_default(), kept.epoch)
    }

    /// Keeps a tally, unless something was deleted since it was begun.
    pub(super) fn keep(&self, scope: [u8; 8], tally: Tally, epoch: u64) {
        let mut kept = self.0.lock();
        if kept.epoch != epoch {
            return;
        }
        if kept.by_scope.len() >= TALLIES_MAX {
            kept.by_scope.clear();
        }
        kept.by_scope.insert(scope, tally);
    }

    /// Something was deleted.
    pub(super) fn forget(&self) {
        let mut kept = self.0.lock();
        kept.epoch += 1;
        kept.by_scope.clear();
    }
}

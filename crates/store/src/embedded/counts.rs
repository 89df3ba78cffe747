//! How many rows each list has, without counting them every time.
//!
//! Positions in the order of commits only grow, so what was counted up to a position stays counted
//! until something is deleted: then all counts are dropped, and the next reader counts again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::LIST_COUNTS_MAX;

/// The rows counted in a list, and the position of the last of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ListCount {
    pub(super) rows: u64,
    pub(super) last: Option<u64>,
}

#[derive(Default)]
struct CountsByScope {
    by_scope: HashMap<[u8; 8], ListCount>,
    /// Grows when something is deleted, so that a count that began before is not stored.
    epoch: u64,
}

/// The counts of this process.
#[derive(Clone, Default)]
pub(super) struct ListCounts(Arc<Mutex<CountsByScope>>);

impl ListCounts {
    /// The count of a list so far, and the epoch in which it is valid.
    pub(super) fn get(&self, scope: [u8; 8]) -> (ListCount, u64) {
        let counts = self.0.lock();
        (counts.by_scope.get(&scope).copied().unwrap_or_default(), counts.epoch)
    }

    /// Stores a count, unless something was deleted since counting began.
    pub(super) fn insert(&self, scope: [u8; 8], count: ListCount, epoch: u64) {
        let mut counts = self.0.lock();
        if counts.epoch != epoch {
            return;
        }
        if counts.by_scope.len() >= LIST_COUNTS_MAX {
            counts.by_scope.clear();
        }
        counts.by_scope.insert(scope, count);
    }

    /// Drops all counts, because something was deleted.
    pub(super) fn invalidate(&self) {
        let mut counts = self.0.lock();
        counts.epoch += 1;
        counts.by_scope.clear();
    }
}

//! How many rows each list has, without counting them every time.
//!
//! Positions in the order of commits only grow, so what was counted up to a position stays counted
//! until something is deleted: then all counts are dropped, and the next reader counts again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::{LIST_COUNTS_MAX, LIST_MARK_STEP};
use crate::store::{ListOrder, Seek};

/// The rows counted in a list, and the position of the last of them.
#[derive(Debug, Clone, Default)]
pub(super) struct ListCount {
    pub(super) rows: u64,
    pub(super) last: Option<u64>,
    /// The positions of every [`LIST_MARK_STEP`]th row, from the first.
    marks: Arc<Vec<u64>>,
}

impl ListCount {
    /// Counts the next row.
    pub(super) fn add(&mut self, position: u64) {
        if self.rows.is_multiple_of(LIST_MARK_STEP) {
            Arc::make_mut(&mut self.marks).push(position);
        }
        self.rows += 1;
        self.last = Some(position);
    }

    /// Where to begin to read so that few rows are skipped until `offset` are passed.
    pub(super) fn seek(&self, order: ListOrder, offset: u64) -> Seek {
        let from_end = Seek { after: None, skip: offset };
        let mark = |number: u64| {
            let at = usize::try_from(number / LIST_MARK_STEP).ok()?;
            self.marks.get(at).copied()
        };
        match order {
            ListOrder::Oldest => {
                let marked = offset - offset % LIST_MARK_STEP;
                let Some(position) = mark(marked).filter(|_| marked > 0) else { return from_end };
                Seek { after: Some(position.saturating_sub(1)), skip: offset - marked }
            }
            ListOrder::Newest => {
                // The page begins with the row before this one, counted from the oldest.
                let Some(end) = self.rows.checked_sub(offset) else { return from_end };
                let marked = end.next_multiple_of(LIST_MARK_STEP);
                let Some(position) = mark(marked) else { return from_end };
                Seek { after: Some(position), skip: marked - end }
            }
        }
    }
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
        (counts.by_scope.get(&scope).cloned().unwrap_or_default(), counts.epoch)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every page begins where a reader that skips one by one would begin.
    #[test]
    fn a_page_is_found_from_the_nearest_mark() {
        for rows in [0, 1, 999, 1_000, 1_001, 3_000, 4_321] {
            let positions: Vec<u64> = (0..rows).map(|number| 7 + 3 * number).collect();
            let mut count = ListCount::default();
            positions.iter().for_each(|position| count.add(*position));
            for offset in (0..rows + 2).step_by(37).chain([999, 1_000, 1_001, rows]) {
                for order in [ListOrder::Oldest, ListOrder::Newest] {
                    let Seek { after, skip } = count.seek(order, offset);
                    let is_left = |position: &&u64| match (order, after) {
                        (_, None) => true,
                        (ListOrder::Oldest, Some(after)) => **position > after,
                        (ListOrder::Newest, Some(after)) => **position < after,
                    };
                    let mut expected = positions.clone();
                    if order == ListOrder::Newest {
                        expected.reverse();
                    }
                    let left: Vec<u64> = expected.iter().filter(is_left).copied().collect();
                    let at = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
                    assert_eq!(
                        left.get(at(skip)),
                        expected.get(at(offset)),
                        "{rows} {offset} {order:?}"
                    );
                    assert!(skip < LIST_MARK_STEP || offset >= rows, "{skip} of {offset}");
                }
            }
        }
    }
}

//! Where the entries of each queue begin.
//!
//! Jobs leave a queue at its front, and what they leave behind are tombstones until the next flush. A reader
//! that began at the start of the queue would pass all of them, for every job again. So each reader
//! remembers the first entry that it found, and the next one begins there.
//!
//! An entry may be added before that place: a job of higher priority, or one whose clock was behind. Its commit
//! says so after it has become visible and before its caller learns of it. Whoever reads in between misses
//! the entry, as if the commit came later.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::keys::queue_key;
use crate::limits::QUEUE_FRONTS_MAX;

/// The key of an entry.
pub(super) type QueueKey = [u8; 25];

/// The fronts of the queues that this process reads.
#[derive(Clone, Default)]
pub(super) struct QueueFronts(Arc<Mutex<Fronts>>);

#[derive(Default)]
struct Fronts {
    by_scope: HashMap<[u8; 8], Front>,
    /// Tells a front from an earlier one of the same queue that was dropped.
    created: u64,
}

struct Front {
    number: u64,
    /// No entry of the queue comes before this key.
    first: QueueKey,
    /// The lowest key that was added since the first of the current readers began.
    added: Option<QueueKey>,
    readers: usize,
}

impl QueueFronts {
    /// Begins to read a queue.
    pub(super) fn read(&self, scope: [u8; 8]) -> FrontReader {
        let mut fronts = self.0.lock();
        if fronts.by_scope.len() >= QUEUE_FRONTS_MAX && !fronts.by_scope.contains_key(&scope) {
            fronts.by_scope.clear();
        }
        fronts.created += 1;
        let number = fronts.created;
        let front = fronts.by_scope.entry(scope).or_insert_with(|| {
            let mut first = [0; 25];
            first[..8].copy_from_slice(&scope);
            Front { number, first, added: None, readers: 0 }
        });
        if front.readers == 0 {
            front.added = None;
        }
        front.readers += 1;
        FrontReader { fronts: self.clone(), scope, number: front.number, first: front.first }
    }

    /// Notes that an entry was added. It is visible already.
    pub(super) fn add(&self, key: QueueKey) {
        let mut fronts = self.0.lock();
        let Some(front) = fronts.by_scope.get_mut(&key[..8]) else { return };
        front.first = front.first.min(key);
        front.added = Some(front.added.map_or(key, |added| added.min(key)));
    }
}

/// The lowest key that an entry of these properties can have.
pub(super) fn lowest_key(queue: &str, priority: u8, ready_at: i64) -> QueueKey {
    queue_key(queue, priority, ready_at, 0)
}

/// Somebody who reads a queue.
pub(super) struct FrontReader {
    fronts: QueueFronts,
    scope: [u8; 8],
    number: u64,
    /// Where to begin.
    pub(super) first: QueueKey,
}

impl FrontReader {
    /// Notes the first entry that was found. `None` if the queue is empty.
    pub(super) fn found(&self, first: Option<&[u8]>) {
        let mut last = [u8::MAX; 25];
        last[..8].copy_from_slice(&self.scope);
        // What is no key of an entry says nothing about where the entries begin.
        let Ok(first) = first.map_or(Ok(last), QueueKey::try_from) else { return };
        let mut fronts = self.fronts.0.lock();
        let Some(front) = fronts.by_scope.get_mut(&self.scope) else { return };
        if front.number == self.number {
            let first = front.added.map_or(first, |added| added.min(first));
            front.first = front.first.max(first);
        }
    }
}

impl Drop for FrontReader {
    fn drop(&mut self) {
        let mut fronts = self.fronts.0.lock();
        if let Some(front) = fronts.by_scope.get_mut(&self.scope)
            && front.number == self.number
        {
            front.readers = front.readers.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ready_at: i64) -> QueueKey {
        lowest_key("q", 0, ready_at)
    }

    fn scope() -> [u8; 8] {
        crate::keys::queue_scope("q")
    }

    #[test]
    fn the_next_reader_begins_at_the_first_entry_that_was_found() {
        let fronts = QueueFronts::default();
        fronts.read(scope()).found(Some(&key(5)));
        assert_eq!(fronts.read(scope()).first, key(5));
        fronts.read(scope()).found(None);
        assert!(fronts.read(scope()).first > key(i64::MAX), "the queue was empty");
        fronts.add(key(7));
        fronts.add(key(9));
        assert_eq!(fronts.read(scope()).first, key(7));
    }

    #[test]
    fn an_entry_that_is_added_while_others_read_is_not_passed() {
        let fronts = QueueFronts::default();
        let early = fronts.read(scope());
        fronts.add(key(3));
        let late = fronts.read(scope());
        early.found(Some(&key(5)));
        assert_eq!(fronts.read(scope()).first, key(3));
        late.found(Some(&key(8)));
        assert_eq!(fronts.read(scope()).first, key(3), "the first reader still reads");
        drop((early, late));
        fronts.read(scope()).found(Some(&key(8)));
        assert_eq!(fronts.read(scope()).first, key(8));
    }

    #[test]
    fn a_reader_of_a_front_that_was_dropped_changes_nothing() {
        let fronts = QueueFronts::default();
        let old = fronts.read(scope());
        fronts.add(key(3));
        fronts.0.lock().by_scope.clear();
        let new = fronts.read(scope());
        old.found(Some(&key(5)));
        assert!(fronts.read(scope()).first < key(3));
        drop(old);
        fronts.add(key(4));
        new.found(Some(&key(5)));
        assert_eq!(fronts.read(scope()).first, key(4));
    }

    #[test]
    fn the_number_of_fronts_is_bounded() {
        let fronts = QueueFronts::default();
        for number in 0..=QUEUE_FRONTS_MAX as u64 {
            fronts.read(number.to_be_bytes());
        }
        assert_eq!(fronts.0.lock().by_scope.len(), 1);
    }
}

//! The rows of one table in memory: found by hashing, put in order only for those who ask.
//!
//! Every write goes through here on the committer's thread, and nearly all are never read in order before they are flushed.
//! So a write costs one hash insert, and its key waits in a list. A range puts the waiting keys in order first: a table
//! that is scanned often pays for order little by little, one that is only flushed pays once, on the flusher's thread.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use parking_lot::Mutex;

use crate::embedded::ledger::types::{Direction, Key, KeyRange, Slot};

/// Keys that a range takes at a time.
const CHUNK: usize = 16;

/// What one generation says about the keys of one table.
#[derive(Debug, Default)]
pub struct Rows {
    slots: HashMap<Key, Slot>,
    order: Mutex<Order>,
}

/// The keys in order. May hold keys that have no slot any more; lacks none that has one.
#[derive(Debug, Clone, Default)]
struct Order {
    ordered: BTreeSet<Key>,
    waiting: Vec<Key>,
}

impl Clone for Rows {
    fn clone(&self) -> Self {
        Self { slots: self.slots.clone(), order: Mutex::new(self.order.lock().clone()) }
    }
}

impl Rows {
    /// Sets what a key holds and returns what it held.
    pub fn insert(&mut self, key: Key, slot: Slot) -> Option<Slot> {
        match self.slots.entry(key) {
            Entry::Occupied(mut held) => Some(held.insert(slot)),
            Entry::Vacant(place) => {
                self.order.get_mut().waiting.push(place.key().clone());
                place.insert(slot);
                None
            }
        }
    }

    /// Forgets a key, and returns what it held.
    pub fn remove(&mut self, key: &[u8]) -> Option<Slot> {
        self.slots.remove(key)
    }

    /// Forgets everything but keeps the memory.
    pub fn clear(&mut self) {
        if !self.slots.is_empty() || !self.order.get_mut().is_empty() {
            self.slots.clear();
            self.order.get_mut().clear();
        }
    }

    pub fn get(&self, key: &[u8]) -> Option<&Slot> {
        // Most tables of most generations are empty, and an empty one need not hash.
        if self.slots.is_empty() { None } else { self.slots.get(key) }
    }

    /// The rows of a range, in order.
    pub fn range(&self, range: KeyRange, direction: Direction) -> Range<'_> {
        Range { rows: self, rest: range, direction, next: Vec::new().into_iter() }
    }

    /// All rows, in order.
    pub fn sorted(&self) -> Vec<(&Key, &Slot)> {
        let mut rows: Vec<_> =
            self.slots.iter().map(|(key, slot)| (key.leading(), key, slot)).collect();
        // The leading bytes decide nearly always, and comparing them is a comparison of numbers.
        rows.sort_unstable_by(|one, other| one.0.cmp(&other.0).then_with(|| one.1.cmp(other.1)));
        rows.into_iter().map(|(_, key, slot)| (key, slot)).collect()
    }

    /// At most [`CHUNK`] keys from the front of a range.
    fn keys(&self, range: &KeyRange, direction: Direction) -> Vec<Key> {
        if range.is_empty() || self.slots.is_empty() {
            return Vec::new();
        }
        let mut order = self.order.lock();
        order.settle();
        let keys = order.ordered.range::<[u8], _>(range.as_bytes());
        match direction {
            Direction::Forward => keys.take(CHUNK).cloned().collect(),
            Direction::Backward => keys.rev().take(CHUNK).cloned().collect(),
        }
    }
}

impl Order {
    fn is_empty(&self) -> bool {
        self.ordered.is_empty() && self.waiting.is_empty()
    }

    fn clear(&mut self) {
        self.ordered.clear();
        self.waiting.clear();
    }

    fn settle(&mut self) {
        self.ordered.extend(self.waiting.drain(..));
    }
}

/// The rows of a range, read as it is driven.
pub struct Range<'a> {
    rows: &'a Rows,
    rest: KeyRange,
    direction: Direction,
    next: std::vec::IntoIter<Key>,
}

impl<'a> Range<'a> {
    /// Takes the next keys; false when there are none.
    fn refill(&mut self) -> bool {
        let keys = self.rows.keys(&self.rest, self.direction);
        let Some(last) = keys.last().cloned() else { return false };
        match self.direction {
            Direction::Forward => self.rest.lower = Bound::Excluded(last),
            Direction::Backward => self.rest.upper = Bound::Excluded(last),
        }
        self.next = keys.into_iter();
        true
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = (&'a Key, &'a Slot);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(key) = self.next.next() {
                if let Some(row) = self.rows.slots.get_key_value(&key) {
                    return Some(row);
                }
            }
            if !self.refill() {
                return None;
            }
        }
    }
}

//! The rows of one table in memory: found by hashing, put in order only for those who ask.
//!
//! Every write goes through here on the committer's thread, and nearly all are never read in order before they are flushed.
//! So a write is put behind the one before it, and only its place is hashed: that table is small enough for the
//! processor's cache where one of whole rows is not. A range puts the keys that came since the last one in order first: a
//! table that is scanned often pays for order little by little, one that is only flushed pays once, on the flusher's
//! thread.

use std::collections::BTreeSet;
use std::ops::Bound;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use indexmap::map::Entry;
use parking_lot::Mutex;

use crate::types::{Direction, Key, KeyRange, Slot};

/// Keys that a range takes at a time.
const CHUNK: usize = 16;

/// What one generation says about the keys of one table.
#[derive(Debug, Default)]
pub struct Rows {
    /// In the order in which the keys came.
    slots: IndexMap<Key, Slot, RandomState>,
    order: Mutex<Order>,
}

/// The keys in order, as far as somebody wanted to know.
#[derive(Debug, Clone, Default)]
struct Order {
    ordered: BTreeSet<Key>,
    /// So many of the first slots have their keys in it.
    settled: usize,
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
                place.insert(slot);
                None
            }
        }
    }

    /// Forgets a key, and returns what it held. The order has to be found again afterwards.
    pub fn remove(&mut self, key: &[u8]) -> Option<Slot> {
        self.order.get_mut().clear();
        self.slots.swap_remove(key)
    }

    /// Forgets everything but keeps the memory.
    pub fn clear(&mut self) {
        if !self.slots.is_empty() {
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
        order.settle(&self.slots);
        let keys = order.ordered.range::<[u8], _>(range.as_bytes());
        match direction {
            Direction::Forward => keys.take(CHUNK).cloned().collect(),
            Direction::Backward => keys.rev().take(CHUNK).cloned().collect(),
        }
    }
}

impl Order {
    fn clear(&mut self) {
        self.ordered.clear();
        self.settled = 0;
    }

    fn settle(&mut self, slots: &IndexMap<Key, Slot, RandomState>) {
        self.ordered.extend(slots.keys().skip(self.settled).cloned());
        self.settled = slots.len();
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
            for key in self.next.by_ref() {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::rng::Rng;
    use crate::types::Value;

    /// Keys of every length around the sixteen bytes that are compared as a number.
    fn key(rng: &mut Rng) -> Vec<u8> {
        let len = [0, 1, 3, 15, 16, 17, 20, 60][rng.below(8) as usize];
        (0..len).map(|at| if at % 15 == 0 { rng.below(4) as u8 } else { 0 }).collect()
    }

    #[test]
    fn rows_read_like_an_ordered_map_whenever_they_are_asked() {
        let (mut rows, mut model, mut rng) = (Rows::default(), BTreeMap::new(), Rng::new(3));
        for number in 0..4_000u32 {
            let written =
                if rng.chance(50) { key(&mut rng) } else { number.to_be_bytes().to_vec() };
            if rng.chance(20) {
                rows.remove(&written);
                model.remove(&written);
            } else {
                let slot = Slot::Put(Value::from(number.to_be_bytes()));
                rows.insert(written.as_slice().into(), slot.clone());
                model.insert(written, slot);
            }
            if number % 50 != 0 {
                continue;
            }
            let (one, other) = (key(&mut rng), key(&mut rng));
            let (lower, upper) = if one < other { (one, other) } else { (vec![], vec![255]) };
            let range = KeyRange::between(lower.as_slice(), upper.as_slice());
            let expected: Vec<_> =
                model.range(lower..upper).map(|(key, slot)| (key.clone(), slot)).collect();
            let own = |(key, slot): (&Key, _)| (key.to_vec(), slot);
            let forward: Vec<_> = rows.range(range.clone(), Direction::Forward).map(own).collect();
            let mut backward: Vec<_> = rows
                .clone()
                .range(range, Direction::Backward)
                .map(|(key, slot)| (key.to_vec(), slot.clone()))
                .collect();
            backward.reverse();
            assert_eq!(forward, expected);
            assert!(backward.iter().map(|(key, slot)| (key.clone(), slot)).eq(expected));
            let sorted: Vec<_> = rows.sorted().into_iter().map(own).collect();
            assert!(sorted.into_iter().eq(model.iter().map(|(key, slot)| (key.clone(), slot))));
        }
        rows.clear();
        assert!(rows.sorted().is_empty() && rows.get(b"").is_none());
    }
}

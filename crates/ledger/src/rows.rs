//! The rows of one table in memory: found by hash, sorted only on demand.
//!
//! Every write goes through here on the committer's thread, and nearly all rows are never read in order before they are
//! flushed. So a write is appended, and only its position is hashed: the table of positions is small enough for the
//! processor's cache, which a table of complete rows is not. A range read first sorts the keys that were added since the
//! last one: a table that is scanned often pays for sorting bit by bit, and one that is only flushed pays once, on the
//! flusher's thread.

use std::collections::BTreeSet;
use std::ops::Bound;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use indexmap::map::Entry;
use parking_lot::Mutex;

use crate::types::{Direction, Key, KeyRange, Slot};

/// Keys that a range copies at a time.
const CHUNK: usize = 16;

/// The slots of one table in one generation.
#[derive(Debug, Default)]
pub struct TableRows {
    /// In the order in which the keys were first written.
    slots: IndexMap<Key, Slot, RandomState>,
    order: Mutex<KeyOrder>,
}

/// The keys in sorted order, as far as a range read has needed them.
#[derive(Debug, Clone, Default)]
struct KeyOrder {
    keys: BTreeSet<Key>,
    /// The number of slots, from the first, whose keys are in `keys`.
    sorted_slots: usize,
}

impl Clone for TableRows {
    fn clone(&self) -> Self {
        Self { slots: self.slots.clone(), order: Mutex::new(self.order.lock().clone()) }
    }
}

/// What became of a slot that was set.
pub enum SetSlot {
    /// The key had none.
    Added,
    /// It replaced this one.
    Replaced(Slot),
    /// This one, which was new, was deleted: the key has none any more.
    Vanished(Slot),
}

impl TableRows {
    /// Sets the slot of a key.
    pub fn set(&mut self, key: Key, slot: Slot) -> SetSlot {
        match self.slots.entry(key) {
            Entry::Occupied(mut entry) => match (entry.get(), slot) {
                (Slot::New(_), Slot::Deleted) => {
                    let index = entry.index();
                    let (key, old) = entry.swap_remove_entry();
                    self.order.get_mut().forget(&self.slots, index, &key);
                    SetSlot::Vanished(old)
                }
                (Slot::New(_), Slot::Put(value)) => {
                    SetSlot::Replaced(entry.insert(Slot::New(value)))
                }
                // The key was deleted here, so an older layer may have it.
                (Slot::Put(_) | Slot::Deleted, Slot::New(value)) => {
                    SetSlot::Replaced(entry.insert(Slot::Put(value)))
                }
                (_, slot) => SetSlot::Replaced(entry.insert(slot)),
            },
            Entry::Vacant(entry) => {
                entry.insert(slot);
                SetSlot::Added
            }
        }
    }

    /// Removes a key and returns its slot.
    pub fn remove(&mut self, key: &[u8]) -> Option<Slot> {
        let (index, key, slot) = self.slots.swap_remove_full(key)?;
        self.order.get_mut().forget(&self.slots, index, &key);
        Some(slot)
    }

    /// Removes every row but keeps the memory.
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
    pub fn range(&self, range: KeyRange, direction: Direction) -> RowRange<'_> {
        RowRange { rows: self, rest: range, direction, next: Vec::new().into_iter() }
    }

    /// All rows, in order.
    pub fn sorted(&self) -> Vec<(&Key, &Slot)> {
        let mut rows: Vec<_> =
            self.slots.iter().map(|(key, slot)| (key.leading(), key, slot)).collect();
        // The leading bytes nearly always decide, and comparing them is comparing numbers.
        rows.sort_unstable_by(|one, other| one.0.cmp(&other.0).then_with(|| one.1.cmp(other.1)));
        rows.into_iter().map(|(_, key, slot)| (key, slot)).collect()
    }

    /// At most [`CHUNK`] keys from the front of a range.
    fn keys(&self, range: &KeyRange, direction: Direction) -> Vec<Key> {
        if range.is_empty() || self.slots.is_empty() {
            return Vec::new();
        }
        let mut order = self.order.lock();
        order.sort_new_keys(&self.slots);
        let keys = order.keys.range::<[u8], _>(range.as_bytes());
        match direction {
            Direction::Forward => keys.take(CHUNK).cloned().collect(),
            Direction::Backward => keys.rev().take(CHUNK).cloned().collect(),
        }
    }
}

impl KeyOrder {
    fn clear(&mut self) {
        self.keys.clear();
        self.sorted_slots = 0;
    }

    /// Forgets a key that was removed from this position, which the last slot has taken.
    fn forget(&mut self, slots: &IndexMap<Key, Slot, RandomState>, index: usize, key: &Key) {
        if index >= self.sorted_slots {
            return;
        }
        self.keys.remove(key);
        match slots.get_index(index) {
            Some((moved, _)) if slots.len() >= self.sorted_slots => {
                self.keys.insert(moved.clone());
            }
            _ => self.sorted_slots -= 1,
        }
    }

    fn sort_new_keys(&mut self, slots: &IndexMap<Key, Slot, RandomState>) {
        self.keys.extend(slots.keys().skip(self.sorted_slots).cloned());
        self.sorted_slots = slots.len();
    }
}

/// An iterator over the rows of a range. It copies keys in chunks.
pub struct RowRange<'a> {
    rows: &'a TableRows,
    rest: KeyRange,
    direction: Direction,
    next: std::vec::IntoIter<Key>,
}

impl<'a> RowRange<'a> {
    /// Copies the next keys. Returns `false` if there are none.
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

impl<'a> Iterator for RowRange<'a> {
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
    use crate::types::RowBytes;

    /// Keys of every length around the sixteen bytes that are compared as a number.
    fn key(rng: &mut Rng) -> Vec<u8> {
        let len = [0, 1, 3, 15, 16, 17, 20, 60][rng.below(8) as usize];
        (0..len).map(|at| if at % 15 == 0 { rng.below(4) as u8 } else { 0 }).collect()
    }

    #[test]
    fn rows_read_like_an_ordered_map_whenever_they_are_asked() {
        let (mut rows, mut model, mut rng) = (TableRows::default(), BTreeMap::new(), Rng::new(3));
        for number in 0..4_000u32 {
            let written =
                if rng.chance(50) { key(&mut rng) } else { number.to_be_bytes().to_vec() };
            if rng.chance(20) {
                rows.remove(&written);
                model.remove(&written);
            } else if rng.chance(20) {
                rows.set(written.as_slice().into(), Slot::Deleted);
                match model.get(&written) {
                    Some(Slot::New(_)) => model.remove(&written),
                    _ => model.insert(written, Slot::Deleted),
                };
            } else {
                let value = RowBytes::from(number.to_be_bytes());
                let slot = if rng.chance(50) {
                    Slot::New(value.clone())
                } else {
                    Slot::Put(value.clone())
                };
                rows.set(written.as_slice().into(), slot.clone());
                let slot = match model.get(&written) {
                    Some(Slot::New(_)) => Slot::New(value),
                    Some(_) => Slot::Put(value),
                    None => slot,
                };
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

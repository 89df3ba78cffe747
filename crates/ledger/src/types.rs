//! The types that every part of the ledger uses: tables, keys, values, writes and key ranges.
//!
//! The ledger knows nothing of jobs. A write is `(table, key) -> put value | delete`, and that is all that the journal,
//! the overlay and the index see.

use std::ops::Bound;

pub use crate::key::Key;
pub use crate::value::RowBytes;

/// The number under which a table is written into the journal. It is part of the stored format: never reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u8);

/// One table: its number in the journal and its name in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// The number in the journal.
    pub id: TableId,
    /// The name in the index file.
    pub name: &'static str,
}

/// The state of a key in one layer. A layer that does not know the key has no slot for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// The key holds this value.
    Put(RowBytes),
    /// The key holds this value, and no older layer has one for it: if it is deleted in this layer, there is
    /// nothing to hide and the slot vanishes.
    New(RowBytes),
    /// A tombstone: the key is deleted, even if an older layer has a value for it.
    Deleted,
}

impl Slot {
    /// The value, if this slot holds one.
    pub fn value(self) -> Option<RowBytes> {
        match self {
            Slot::Put(value) | Slot::New(value) => Some(value),
            Slot::Deleted => None,
        }
    }

    /// The value for changing it in place, if this slot holds one.
    pub(crate) fn value_mut(&mut self) -> Option<&mut RowBytes> {
        match self {
            Slot::Put(value) | Slot::New(value) => Some(value),
            Slot::Deleted => None,
        }
    }

    /// The length of the value in bytes; zero for a tombstone.
    pub fn value_len(&self) -> usize {
        match self {
            Slot::Put(value) | Slot::New(value) => value.len(),
            Slot::Deleted => 0,
        }
    }
}

/// One change to one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The table written to.
    pub table: TableId,
    /// The row's key.
    pub key: Key,
    /// The row's new state.
    pub slot: Slot,
}

/// The order in which a range is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Smallest key first.
    Forward,
    /// Largest key first.
    Backward,
}

/// A contiguous range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// Where the range begins.
    pub lower: Bound<Key>,
    /// Where the range ends.
    pub upper: Bound<Key>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// From `lower` (included) to `upper` (not included).
    pub fn between(lower: impl Into<Key>, upper: impl Into<Key>) -> Self {
        Self { lower: Bound::Included(lower.into()), upper: Bound::Excluded(upper.into()) }
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { lower: Bound::Included(prefix.into()), upper: prefix_end(prefix) }
    }

    /// Whether no key can lie inside. Ordered maps panic on inverted ranges, so every layer checks this first.
    pub fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
        }
    }

    /// The bounds as plain byte slices.
    pub fn as_bytes(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (as_bytes(&self.lower), as_bytes(&self.upper))
    }
}

fn as_bytes(bound: &Bound<Key>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The first key after all those that begin with `prefix`.
fn prefix_end(prefix: &[u8]) -> Bound<Key> {
    let Some(last) = prefix.iter().rposition(|byte| *byte != u8::MAX) else {
        return Bound::Unbounded;
    };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Bound::Excluded(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_ends_before_the_next_prefix() {
        let range = KeyRange::prefix(&[1, 255]);
        assert_eq!(range.upper, Bound::Excluded(vec![2].into()));
        assert_eq!(KeyRange::prefix(&[255, 255]).upper, Bound::Unbounded);
    }

    #[test]
    fn inverted_ranges_are_known_to_be_empty() {
        assert!(KeyRange::between(*b"b", *b"a").is_empty());
        assert!(KeyRange::between(*b"a", *b"a").is_empty());
        assert!(!KeyRange::between(*b"a", *b"b").is_empty());
    }
}

//! The IDs of encodings that were written recently.
//!
//! Whoever writes a root or its cells has computed their IDs. The next change of the same root reads them back, and
//! would compute the IDs again from the same bytes: once to read the root, once in the committer to compare it with the
//! one that the change expects, and once per cell to check it. An entry is found by a fast hash and counts only if it
//! has exactly the same bytes, so it never has to be invalidated.

use std::hash::BuildHasher as _;

use catena_value::{Encoded, ValueId};
use foldhash::fast::FixedState;
use parking_lot::Mutex;

use crate::limits::{KNOWN_ENCODING_BYTES_MAX, KNOWN_IDS_MAX};

type Slot = Mutex<Option<(Box<[u8]>, ValueId)>>;

/// IDs of encodings. Each hash has one slot, which the last encoding with that hash occupies.
pub(super) struct KnownIds {
    slots: Box<[Slot]>,
    hasher: FixedState,
}

impl Default for KnownIds {
    fn default() -> Self {
        KnownIds {
            slots: (0..KNOWN_IDS_MAX).map(|_| Slot::default()).collect(),
            hasher: FixedState::default(),
        }
    }
}

impl KnownIds {
    fn slot(&self, bytes: &[u8]) -> Option<&Slot> {
        if bytes.len() > KNOWN_ENCODING_BYTES_MAX {
            return None;
        }
        self.slots.get(self.hasher.hash_one(bytes) as usize % KNOWN_IDS_MAX)
    }

    /// Remembers the ID of an encoding.
    pub(super) fn insert(&self, bytes: &[u8], id: ValueId) {
        if let Some(slot) = self.slot(bytes) {
            *slot.lock() = Some((bytes.into(), id));
        }
    }

    /// Remembers the IDs of cells.
    pub(super) fn insert_cells(&self, cells: &[Encoded]) {
        cells.iter().for_each(|cell| self.insert(&cell.bytes, cell.id));
    }

    /// Returns the ID of an encoding.
    pub(super) fn id_of(&self, bytes: &[u8]) -> ValueId {
        let known = self.slot(bytes).and_then(|slot| {
            let slot = slot.lock();
            slot.as_ref().filter(|(known, _)| **known == *bytes).map(|(_, id)| *id)
        });
        known.unwrap_or_else(|| ValueId::of_encoding(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_that_of_the_bytes_whatever_is_known() {
        let known = KnownIds::default();
        for number in 0..2 * KNOWN_IDS_MAX {
            let bytes = number.to_be_bytes();
            assert_eq!(known.id_of(&bytes), ValueId::of_encoding(&bytes), "not known yet");
            known.insert(&bytes, ValueId::of_encoding(&bytes));
            assert_eq!(known.id_of(&bytes), ValueId::of_encoding(&bytes));
        }
    }

    #[test]
    fn what_is_known_is_not_computed() {
        let known = KnownIds::default();
        let wrong = ValueId::of_encoding(b"another one");
        known.insert(b"bytes", wrong);
        assert_eq!(known.id_of(b"bytes"), wrong);
        let long = vec![0; KNOWN_ENCODING_BYTES_MAX + 1];
        known.insert(&long, wrong);
        assert_eq!(known.id_of(&long), ValueId::of_encoding(&long), "too long to be kept");
    }
}

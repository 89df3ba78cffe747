//! A cache of the IDs of short strings.
//!
//! Map entries are ordered by the ID of their key, so building a map needs one hash per member,
//! and nearly all members of typical documents have one of a few hundred names. Hashing a name
//! costs about as much as parsing forty bytes of JSON; a lookup here costs a twentieth of that.
//! The cache is a fixed table per thread: it never grows, takes no lock, and a key that was evicted
//! is simply hashed again.

use std::cell::RefCell;

use crate::bytes::{INLINE_BYTES, InlineBytes};
use crate::id::ValueId;

/// Number of sets of two entries each; about 120 kB per thread that builds maps.
const SETS: usize = 1024;

#[derive(Clone, Copy)]
struct CacheEntry {
    key: InlineBytes,
    id: ValueId,
}

struct Table {
    sets: Vec<[Option<CacheEntry>; 2]>,
}

thread_local! {
    static TABLE: RefCell<Table> = const { RefCell::new(Table { sets: Vec::new() }) };
}

/// The ID of the string cell with these bytes.
pub(crate) fn inline_string_id(key: &InlineBytes) -> ValueId {
    TABLE.with_borrow_mut(|table| table.id(key))
}

impl Table {
    fn id(&mut self, key: &InlineBytes) -> ValueId {
        if self.sets.is_empty() {
            self.sets.resize(SETS, [None; 2]);
        }
        let set = &mut self.sets[set_index(key)];
        for entry in set.iter().flatten() {
            if entry.key == *key {
                return entry.id;
            }
        }
        let id = string_id(key.as_slice());
        // The new entry becomes the first of its set; the former first becomes the second.
        set[1] = set[0];
        set[0] = Some(CacheEntry { key: *key, id });
        id
    }
}

fn string_id(bytes: &[u8]) -> ValueId {
    let mut encoding = [0u8; INLINE_BYTES + 2];
    encoding[0] = 0x30;
    encoding[1] = bytes.len() as u8;
    encoding[2..2 + bytes.len()].copy_from_slice(bytes);
    ValueId::of_encoding(&encoding[..2 + bytes.len()])
}

/// The set of a key, by a cheap hash of all bytes. A request with colliding names slows down only
/// itself.
fn set_index(key: &InlineBytes) -> usize {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = key.as_slice().len() as u64;
    for word in key.words() {
        state = (state.rotate_left(5) ^ word).wrapping_mul(MIX);
    }
    (state >> 54) as usize % SETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_name_has_the_id_of_its_encoding() {
        for name in ["", "a", "status", "a name of twenty-two b"] {
            let key = InlineBytes::new(name.as_bytes()).unwrap();
            let expected = ValueId::of_encoding(&crate::encode(&crate::Value::from(name)));
            assert_eq!(inline_string_id(&key), expected);
            assert_eq!(inline_string_id(&key), expected, "second time, from the cache");
        }
    }

    #[test]
    fn names_beyond_the_capacity_still_get_their_ids() {
        for i in 0..10 * SETS {
            let name = format!("n{i}");
            let key = InlineBytes::new(name.as_bytes()).unwrap();
            assert_eq!(inline_string_id(&key), string_id(name.as_bytes()));
        }
    }
}

//! A memo of the IDs of short strings.
//!
//! Map entries are ordered by the ID of their key, so building a map needs one hash per member,
//! and nearly all members of the documents we see have one of a few hundred names. Hashing a name
//! costs about as much as parsing forty bytes of JSON; looking it up here costs a twentieth of
//! that. The memo is a fixed table per thread: it never grows, takes no lock, and a key that
//! falls out is simply hashed again.

use std::cell::RefCell;

use crate::bytes::{INLINE_BYTES, InlineBytes};
use crate::id::ValueId;

/// Sets of two places each; about 120 kB per thread that builds maps.
const SETS: usize = 1024;

#[derive(Clone, Copy)]
struct Place {
    key: InlineBytes,
    id: ValueId,
}

struct Table {
    places: Vec<[Option<Place>; 2]>,
}

thread_local! {
    static TABLE: RefCell<Table> = const { RefCell::new(Table { places: Vec::new() }) };
}

/// The ID of the string cell with these bytes.
pub(crate) fn inline_string_id(key: &InlineBytes) -> ValueId {
    TABLE.with_borrow_mut(|table| table.id(key))
}

impl Table {
    fn id(&mut self, key: &InlineBytes) -> ValueId {
        if self.places.is_empty() {
            self.places.resize(SETS, [None; 2]);
        }
        let set = &mut self.places[set_of(key)];
        for place in set.iter().flatten() {
            if place.key == *key {
                return place.id;
            }
        }
        let id = string_id(key.as_slice());
        // The newcomer takes the first place, the former first becomes second.
        set[1] = set[0];
        set[0] = Some(Place { key: *key, id });
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

/// A cheap mixing of all bytes. Whoever makes names collide only slows down his own request.
fn set_of(key: &InlineBytes) -> usize {
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
    fn a_remembered_name_has_the_id_of_its_encoding() {
        for name in ["", "a", "status", "a name of twenty-two b"] {
            let key = InlineBytes::new(name.as_bytes()).unwrap();
            let expected = ValueId::of_encoding(&crate::encode(&crate::Value::from(name)));
            assert_eq!(inline_string_id(&key), expected);
            assert_eq!(inline_string_id(&key), expected, "second time, from the memo");
        }
    }

    #[test]
    fn more_names_than_places_still_get_their_ids() {
        for i in 0..10 * SETS {
            let name = format!("n{i}");
            let key = InlineBytes::new(name.as_bytes()).unwrap();
            assert_eq!(inline_string_id(&key), string_id(name.as_bytes()));
        }
    }
}

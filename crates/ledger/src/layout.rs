//! Sizes of the journal's on-disk layout that other modules need for their limits. `docs/internals/format.md` draws the
//! bytes.

use crate::types::Slot;

/// Frames begin at multiples of this. It is the unit in which file systems and disks rewrite, so that no torn write can
/// reach an acknowledged frame.
pub const BLOCK_BYTES: usize = 4096;

/// The fixed part in front of a frame's payload.
pub const FRAME_HEADER_BYTES: usize = 24;

/// The fixed part in front of an entry's key and value.
pub const ENTRY_HEADER_BYTES: usize = 8;

/// The bytes that a write takes in a frame's payload.
pub fn entry_bytes(key_bytes: usize, slot: &Slot) -> usize {
    ENTRY_HEADER_BYTES + key_bytes + slot.value_len()
}

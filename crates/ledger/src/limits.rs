//! Every fixed bound of the ledger, with its reason. The bounds that a caller may choose are in [`crate::options`].

/// The longest key, in bytes: it must fit the 16-bit length of a journal entry.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// The largest journal segment, in bytes: replay reads a segment whole into memory, and lengths in frames are 32 bits wide.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// The longest value that is copied into the shared allocation of its batch. Copying more would cost the committer more
/// than it saves the flusher.
pub const GATHERED_BYTES_MAX: usize = 4096;

/// How often a read is tried. An attempt is used up only by a flush that fails between two attempts, which happens only on
/// a full disk.
pub const READ_ATTEMPTS_MAX: usize = 5;

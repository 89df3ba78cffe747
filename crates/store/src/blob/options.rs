//! What a caller may choose when it opens a blob store.

use crate::limits::BLOB_BYTES_MAX;

/// The options of a blob store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The longest blob that is accepted, in bytes.
    pub blob_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { blob_bytes_max: BLOB_BYTES_MAX }
    }
}

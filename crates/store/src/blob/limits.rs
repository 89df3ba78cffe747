//! Every bound of the blob store, with its reason.

/// Content up to this length is handed back to the caller and never stored as a blob of its own. A file costs two syncs
/// and a directory entry; a row of this size rides along in a commit that happens anyway.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// How long a blob may be unless [`Options`] say otherwise: the cap the API puts on the content of an asset.
pub const BLOB_BYTES_MAX: u64 = 100 * 1024 * 1024;

/// What a reader hands out at a time and a writer gathers before it writes: large enough that the cost of a system call
/// does not matter, small enough that a thousand open blobs fit into memory.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// The longest range one call may ask for from a [`BlobSource`](super::BlobSource): it is held in memory whole.
pub const RANGE_BYTES_MAX: usize = 1024 * 1024;

/// How many entries a page of a listing has at most: what object stores give out at a time.
pub const LIST_PAGE_ENTRIES: usize = 1000;

/// What is uploaded to an object store at a time. Object stores refuse parts below 5 MiB except the last, and some want
/// all of them alike. One part is the memory an upload needs, since it is sent before the next one is gathered.
pub const PART_BYTES: usize = 5 * 1024 * 1024;

/// What a caller may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The longest blob that is accepted.
    pub blob_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { blob_bytes_max: BLOB_BYTES_MAX }
    }
}

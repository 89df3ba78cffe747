//! Every bound of this crate, with its reason.

/// Longest encoding that is embedded in its parent, in bytes; anything longer becomes a branch.
/// Fixed by CAD003.
pub const EMBEDDED_BYTES_MAX: usize = 140;

/// Longest encoding that a cell can have, in bytes. Follows from the other CAD003 limits.
pub const CELL_BYTES_MAX: usize = 16_383;

/// Longest two's-complement form of an integer, in bytes. Fixed by CAD003.
pub const INTEGER_BYTES_MAX: usize = 4_096;

/// Maximum number of decimal digits of an integer that fits [`INTEGER_BYTES_MAX`]:
/// 2^32767 has 9,864 digits.
pub const INTEGER_DIGITS_MAX: usize = 9_864;

/// Longest byte sequence in one cell of a string or blob. Fixed by CAD003.
pub const CHUNK_BYTES: usize = 4_096;

/// Longest name of a symbol or keyword, in bytes. Fixed by CAD003.
pub const NAME_BYTES_MAX: usize = 128;

/// Maximum number of children of a tree node, and of elements of a vector leaf. Fixed by CAD003.
pub const FAN_OUT: u64 = 16;

/// Maximum number of entries of a map or set leaf. Fixed by CAD003.
pub const HASH_LEAF_MAX: usize = 15;

/// Number of leading hex digits of a key by which an index orders it. Fixed by CAD003.
pub const INDEX_NIBBLES_MAX: usize = 64;

/// Maximum nesting depth of a JSON document. Deep enough for every real document, shallow enough
/// that recursion over a parsed value never threatens the stack.
pub const JSON_DEPTH_MAX: usize = 128;

/// Longest JSON document that is read from a file or the standard input, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum nesting depth that a traversal of a complete value follows. Larger than
/// [`JSON_DEPTH_MAX`] because values may also be built by code; still far below what the smallest
/// stack can hold.
pub const VALUE_DEPTH_MAX: usize = 256;

/// Longest multi-cell message that is decoded, in bytes; the same as the limit of the network.
pub const MESSAGE_BYTES_MAX: usize = 50_000_000;

/// Maximum number of segments of a path such as `w/records/1/name`.
pub const PATH_SEGMENTS_MAX: usize = 128;

/// Largest scratch buffer for encodings that a thread keeps for reuse, in bytes. A larger one is
/// returned to the allocator.
pub(crate) const SCRATCH_BYTES_MAX: usize = 64 * 1024;

/// The elements of an array that are read before they become nodes of its tree, and the members of an object up to which
/// they are copied into it. A multiple of sixteen. Most containers are smaller and are built in one step; larger ones are
/// never in memory twice.
pub(crate) const PENDING_ITEMS_MAX: usize = 4_096;

/// The number of IDs up to which an ID is compared with each. Hashing takes longer than that.
pub(crate) const FEW_IDS_MAX: usize = 32;

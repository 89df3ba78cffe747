//! Every bound of this crate, with its reason.

/// Longest encoding that is written inside its parent; anything longer becomes a branch.
/// Fixed by CAD003.
pub const EMBEDDED_BYTES_MAX: usize = 140;

/// Longest encoding any cell can have. Follows from the other CAD003 limits.
pub const CELL_BYTES_MAX: usize = 16_383;

/// Longest two's-complement form of an integer. Fixed by CAD003.
pub const INTEGER_BYTES_MAX: usize = 4_096;

/// Most decimal digits an integer literal can have and still fit [`INTEGER_BYTES_MAX`]:
/// 2^32767 has 9,864 digits.
pub const INTEGER_DIGITS_MAX: usize = 9_864;

/// Longest run of bytes in one cell of a string or blob. Fixed by CAD003.
pub const CHUNK_BYTES: usize = 4_096;

/// Longest symbol or keyword name. Fixed by CAD003.
pub const NAME_BYTES_MAX: usize = 128;

/// Children of a tree node, and elements of a vector leaf. Fixed by CAD003.
pub const FAN_OUT: u64 = 16;

/// Entries of a map or set leaf. Fixed by CAD003.
pub const HASH_LEAF_MAX: usize = 15;

/// Nibbles of a key that take part in an index. Fixed by CAD003.
pub const INDEX_NIBBLES_MAX: usize = 64;

/// Containers a JSON document may nest. Deep enough for every real document, shallow enough that
/// recursion over a parsed value never threatens the stack.
pub const JSON_DEPTH_MAX: usize = 128;

/// Longest JSON document read from a file or the standard input.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Nested containers that a walk over a whole value follows. Larger than [`JSON_DEPTH_MAX`]
/// because values may also be built by code; still far below what the smallest stack holds.
pub const VALUE_DEPTH_MAX: usize = 256;

/// Longest multi-cell message that is read; the same as the network's own limit.
pub const MESSAGE_BYTES_MAX: usize = 50_000_000;

/// Segments of a path such as `w/records/1/name`.
pub const PATH_SEGMENTS_MAX: usize = 128;

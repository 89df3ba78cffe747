//! Every bound of this crate, with its reason.

/// Records one job's chain may have. A chain that long is a process gone wrong, and every reader
/// of it pays for its length.
pub const HISTORY_RECORDS_MAX: u64 = 100_000;

/// Places at the end of a full chain that are kept for its ending: a job that waits must start
/// again before it can fail.
pub const HISTORY_RECORDS_RESERVED: u64 = 2;

/// Steps one job may have.
pub const STEPS_MAX: u32 = 1_000;

/// Bytes, as JSON, of an output and of what sources put together. More than any request may send, so
/// that what came in can be passed on with something around it.
pub const VALUE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Containers that an output, and what sources put together, may nest: those a request may send and
/// a few around them. A history puts six more around that and is still read everywhere.
pub const VALUE_DEPTH_MAX: usize = catena_value::limits::JSON_DEPTH_MAX + 8;

/// Bytes that the sources of one orchestration may put together in all.
pub const ASSEMBLED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How deep verification follows sub-jobs of sub-jobs in one document.
pub const SUBJOB_DEPTH_MAX: usize = 8;

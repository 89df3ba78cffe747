//! Every bound of this crate, with its reason.

/// Records one job's chain may have. A chain that long is a process gone wrong, and every reader
/// of it pays for its length.
pub const HISTORY_RECORDS_MAX: u64 = 100_000;

/// Places at the end of a full chain that are kept for its ending: a job that waits must start
/// again before it can fail.
pub const HISTORY_RECORDS_RESERVED: u64 = 2;

/// Steps one job may have.
pub const STEPS_MAX: u32 = 1_000;

/// How deep verification follows sub-jobs of sub-jobs in one document.
pub const SUBJOB_DEPTH_MAX: usize = 8;

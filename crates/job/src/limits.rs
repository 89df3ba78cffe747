//! Every bound of this crate, with its reason.

/// Maximum number of records in one chain. A job with more is out of control, and every reader of
/// the chain pays for its length.
pub const HISTORY_RECORDS_MAX: u64 = 100_000;

/// Records at the end of a full chain that are reserved for ending the job: a waiting job must
/// return to STARTED before it can fail.
pub const HISTORY_RECORDS_RESERVED: u64 = 2;

/// Maximum number of steps of one job.
pub const STEPS_MAX: u32 = 1_000;

/// Maximum number of calls of one job: all sub-jobs that a root may have.
pub const CALLS_MAX: u32 = 10_000;

/// Maximum size of an output, and of a value that sources assemble, in bytes of JSON. Larger than
/// any request may be, so that an input can be passed on inside another value.
pub const VALUE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Maximum nesting depth of an output, and of a value that sources assemble: that of a request and
/// a few levels around it. A history adds six more levels and is still readable by every party.
pub const VALUE_DEPTH_MAX: usize = catena_value::limits::JSON_DEPTH_MAX + 8;

/// Maximum total size of the values that the sources of one orchestration assemble, in bytes.
pub const ASSEMBLED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Maximum depth to which verification follows sub-jobs of sub-jobs in one document.
pub const SUBJOB_DEPTH_MAX: usize = 8;

/// Maximum size of a progress report, in bytes of JSON. Only the counts of a larger one are kept.
pub const REPORT_BYTES_MAX: usize = 8 * 1024;

/// Highest percentage shown for a job that has not ended.
pub const ACTIVE_PERCENT_MAX: u8 = 99;

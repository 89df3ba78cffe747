//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Largest file that is read as a key: hex digits and white space around them.
pub(crate) const KEY_BYTES_MAX: u64 = 256;

/// Longest array or object, in characters, that is printed on one line.
pub(crate) const LINE_CHARS_MAX: usize = 72;

/// Characters of a reason on a live line: a line that wraps cannot be overwritten.
pub(crate) const LIVE_REASON_CHARS_MAX: usize = 48;

/// Longest validity of a token, in days: a hundred years.
pub(crate) const TOKEN_DAYS_MAX: i64 = 36_500;

/// Jobs that one `catena work` runs at a time: each is a process.
pub(crate) const WORK_PARALLEL_MAX: u64 = 1_024;

/// Bytes of the output of a command: what a venue accepts as a request.
pub(crate) const WORK_OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of a line of a command's log, and of its end that becomes the error of a failed attempt.
pub(crate) const WORK_ERROR_BYTES_MAX: usize = 4_096;

/// Longest value of a secret that is read. The venue has a smaller bound.
pub(crate) const SECRET_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a token that is read from the standard input.
pub(crate) const TOKEN_BYTES_MAX: u64 = 8_192;

/// How often it is checked whether memory can be returned to the kernel.
pub(crate) const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes that requests must have held at a time before memory is returned: a venue with small requests keeps
/// what it has.
pub(crate) const RELEASED_BYTES_MIN: u64 = 16 * 1024 * 1024;

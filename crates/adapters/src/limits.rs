//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Longest time that `test:delay` and one item of `test:progress` sleep, in ms: a day is longer than
/// any test, and a mistyped number still ends.
pub const DELAY_MS_MAX: i64 = 24 * 3600 * 1000;

/// Most items that `test:progress` pretends to process. Each costs a progress report.
pub const ITEMS_MAX: i64 = 1_000_000;

/// Most bytes that `test:progress` pretends to produce: what every JSON reader holds exactly.
pub const PRETENDED_BYTES_MAX: i64 = 1 << 53;

/// Most bytes that `test:random` returns. The same as other venues.
pub const RANDOM_BYTES_MAX: i64 = 1_024;

/// Violations of a schema that are reported. A value with more of them has a more basic problem.
pub const VIOLATIONS_MAX: usize = 100;

/// Nested schemas that `schema:coerce` follows: as deep as a JSON text may be.
pub const COERCE_DEPTH_MAX: usize = 128;

/// Locations that `schema:coerce` visits. A schema that refers to itself several times could
/// otherwise keep the venue busy without end.
pub const COERCE_STEPS_MAX: usize = 1_000_000;

/// Bytes that `schema:coerce` adds to a value, including the list of its changes: as many as an output
/// may have.
pub const COERCE_ADDED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Redirects that are followed: browsers allow 20, real services need two or three.
pub const REDIRECTS_MAX: usize = 5;

/// Largest response body that is read. It becomes part of a job's output.
pub const RESPONSE_BYTES_MAX: usize = 10_000_000;

/// Largest head of a response, and how much of it is buffered at once.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most headers of a response.
pub const RESPONSE_HEADERS_MAX: usize = 100;

/// Most headers that a caller may set on a request.
pub const REQUEST_HEADERS_MAX: usize = 100;

/// Largest sum of names and values of the headers that a caller may set on a request. Servers
/// commonly refuse more than 8 to 64 kB.
pub const REQUEST_HEADER_BYTES_MAX: usize = 32 * 1024;

/// Longest URL. Servers commonly refuse longer ones.
pub const URL_BYTES_MAX: usize = 8 * 1024;

/// How long a request may take by default.
pub const REQUEST_TIME: Duration = Duration::from_secs(30);

/// How long a request may take at most. Longer work should be a job of the other service.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(120);

/// How long one address may take to accept a connection before the next is tried.
pub const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Addresses of one host that are tried.
pub const ADDRESSES_MAX: usize = 8;

/// Reads of a polled job that may fail in a row before the operation fails: half a minute of
/// intervals.
pub const POLL_FAILURES_MAX: u32 = 5;

/// How long a request that cancels, pauses or resumes a job of another venue may take.
pub const REMOTE_CONTROL_TIME: Duration = Duration::from_secs(10);

/// Sum of the delays between attempts to start a step on a venue that does not answer.
pub const REMOTE_START_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Sum of the delays between attempts to reach a venue that runs a step and does not answer, before
/// the step fails: a venue that is restarted, or moved, is back by then.
pub const REMOTE_OUTAGE_MAX: Duration = Duration::from_secs(300);

/// Longest delay that another venue may ask for with `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Largest JSON of a job that is read from another venue, its input and output included. Its output
/// is stored here and becomes part of other jobs.
pub const REMOTE_JOB_BYTES_MAX: usize = RESPONSE_BYTES_MAX;

/// Characters of another venue's error text that become part of a job's error.
pub const REMOTE_ERROR_CHARS_MAX: usize = 1_000;

/// Longest job ID of another venue. It becomes part of a path.
pub const REMOTE_JOB_ID_BYTES_MAX: usize = 128;

/// Longest DID of another venue. It becomes part of records.
pub const REMOTE_DID_BYTES_MAX: usize = 1_024;

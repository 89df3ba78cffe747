//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Longest time that `test:delay` and one item of `test:progress` sleep, in milliseconds: a day is
/// longer than any test, and a mistyped number still ends.
pub const DELAY_MS_MAX: i64 = 24 * 3600 * 1000;

/// Most items that `test:progress` pretends to process. Each costs a report.
pub const ITEMS_MAX: i64 = 1_000_000;

/// Most bytes that `test:progress` pretends to produce: what every JSON reader holds exactly.
pub const PRETENDED_BYTES_MAX: i64 = 1 << 53;

/// Most bytes that `test:random` makes. The same as other venues.
pub const RANDOM_BYTES_MAX: i64 = 1_024;

/// Violations of a schema that are told. Who has more has another problem.
pub const VIOLATIONS_MAX: usize = 100;

/// Nested schemas that `schema:coerce` follows: as deep as a JSON text may be.
pub const COERCE_DEPTH_MAX: usize = 128;

/// Places that `schema:coerce` visits. A schema that refers to itself several times could
/// otherwise keep the venue busy for ever.
pub const COERCE_STEPS_MAX: usize = 1_000_000;

/// Redirects that are followed: browsers allow 20, real services need two or three.
pub const REDIRECTS_MAX: usize = 5;

/// Longest response body that is taken in. It becomes part of a job's output.
pub const RESPONSE_BYTES_MAX: usize = 10_000_000;

/// Longest head of a response, and what is read of it at once.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most headers of a response.
pub const RESPONSE_HEADERS_MAX: usize = 100;

/// Most headers that a request may be given.
pub const REQUEST_HEADERS_MAX: usize = 100;

/// Longest sum of names and values of the headers that a request may be given. Servers commonly
/// refuse more than 8 to 64 kB.
pub const REQUEST_HEADER_BYTES_MAX: usize = 32 * 1024;

/// Longest URL. Servers commonly refuse longer ones.
pub const URL_BYTES_MAX: usize = 8 * 1024;

/// How long a request may take when it does not say.
pub const REQUEST_TIME: Duration = Duration::from_secs(30);

/// How long a request may take at most. What takes longer should be a job over there.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(120);

/// How long one address may take to accept a connection before the next is tried.
pub const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Addresses of one host that are tried.
pub const ADDRESSES_MAX: usize = 8;

/// First pause between two looks at a job of another venue. From COG-8, as the next two.
pub const POLL_FIRST: Duration = Duration::from_millis(300);

/// By how much the pause grows, in halves: 3/2.
pub const POLL_GROWTH_HALVES: u32 = 3;

/// Longest pause between two looks.
pub const POLL_MAX: Duration = Duration::from_secs(10);

/// Looks that may fail in a row before the other venue is given up: half a minute of pauses.
pub const POLL_FAILURES_MAX: u32 = 5;

/// How long a message that cancels, pauses or resumes a job of another venue may take.
pub const REMOTE_CONTROL_TIME: Duration = Duration::from_secs(10);

/// How long in all the pauses between tries to begin a step on a venue that does not answer may be.
pub const REMOTE_BEGIN_PAUSES_MAX: Duration = Duration::from_secs(60);

/// How long in all the pauses between looks at a step on a venue that does not answer may be before
/// it is given up: a venue that is restarted, or moved, is back by then.
pub const REMOTE_SILENCE_MAX: Duration = Duration::from_secs(300);

/// Longest pause that another venue may ask for with `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Longest JSON of a job that is taken from another venue, its input and output included. What it
/// gave is kept here and becomes part of other jobs.
pub const REMOTE_JOB_BYTES_MAX: usize = RESPONSE_BYTES_MAX;

/// Nested containers in an answer of another venue: what a value may have there, and what stands
/// around it in a job's JSON.
pub const REMOTE_DEPTH_MAX: usize = 144;

/// Longest DID of another venue. It stands in records here.
pub const REMOTE_DID_BYTES_MAX: usize = 1_024;

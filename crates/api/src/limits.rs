//! Every bound of this crate, with its reason.

use std::time::Duration;

/// How long one address may take to accept a connection. Longer than three lost packets.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Addresses of one name that are tried.
pub const ADDRESSES_MAX: usize = 8;

/// How long an answer may take, with its body: what the Python SDK allows.
pub const REQUEST_TIME: Duration = Duration::from_secs(30);

/// The longest that a venue waits for a job before it answers.
pub const WAIT_MAX: Duration = Duration::from_secs(120);

/// How long a stream may be silent. Venues send something at least every 15 s.
pub const STREAM_SILENCE: Duration = Duration::from_secs(45);

/// Bytes of one answer, or of one event of a stream: the most that a venue makes of one job.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024 + 1024 * 1024;

/// Bytes of the head of an answer.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Nested arrays and objects in an answer: what a request may nest, inside a record, inside a
/// history, with room for other venues.
pub const ANSWER_DEPTH_MAX: usize = 144;

/// Connections that are kept open while nothing is asked. One client rarely asks twice at once.
pub const IDLE_CONNECTIONS_MAX: usize = 4;

/// Times that a request is sent, the first included, while it is refused because of its rate.
/// This and the next three are what the published SDKs do.
pub const RATE_ATTEMPTS_MAX: u32 = 4;

/// The first delay before such a request is sent again; it doubles.
pub const RATE_DELAY_FIRST: Duration = Duration::from_millis(200);

/// The longest such delay, unless the venue asks for a longer one.
pub const RATE_DELAY_MAX: Duration = Duration::from_secs(10);

/// All such delays together.
pub const RATE_BUDGET: Duration = Duration::from_secs(30);

/// The first pause between two looks at a job, where there are no events (COG-8).
pub const POLL_FIRST: Duration = Duration::from_millis(300);

/// The longest such pause.
pub const POLL_MAX: Duration = Duration::from_secs(10);

/// How often a stream is opened again without a single event in between. A restart of a venue takes
/// a few seconds; with the pauses between tries this is about half a minute.
pub const REOPEN_MAX: u32 = 8;

/// The longest pause before a stream is opened again, also when the venue asks for a longer one.
pub const REOPEN_DELAY_MAX: Duration = Duration::from_secs(5);

/// The pause before a stream is opened again, when the venue says nothing about it.
pub const REOPEN_DELAY: Duration = Duration::from_secs(1);

/// Records that are asked for at a time, and jobs of a list: the most that a venue gives.
pub const PAGE_MAX: u64 = 1_000;

/// Records of one history: what a venue allows for one job, ten times over.
pub const HISTORY_RECORDS_MAX: u64 = 1_000_000;

/// Characters of a text that a venue gave as a reason and that is shown.
pub const REASON_CHARS_MAX: usize = 2_000;

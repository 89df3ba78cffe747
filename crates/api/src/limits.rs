//! Every bound of this crate, with its reason.

use std::time::Duration;

/// How long one address may take to accept a connection. Longer than three lost packets.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Addresses of one host name that are tried.
pub const ADDRESSES_MAX: usize = 8;

/// How long a request may take, response body included: what the Python SDK allows.
pub const REQUEST_TIME: Duration = Duration::from_secs(30);

/// The longest time that a venue waits for a job before it answers.
pub const WAIT_MAX: Duration = Duration::from_secs(120);

/// How long an event stream may be silent. Venues send something at least every 15 s.
pub const STREAM_SILENCE: Duration = Duration::from_secs(45);

/// Bytes of one response, or of one event of a stream: the most that a venue makes of one job.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024 + 1024 * 1024;

/// Bytes of the head of a response.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Nested arrays and objects in a response: what a request may nest, inside a record, inside a
/// history, with room for other implementations.
pub const ANSWER_DEPTH_MAX: usize = 144;

/// Idle connections that are kept open. One client rarely sends two requests at once.
pub const IDLE_CONNECTIONS_MAX: usize = 4;

/// How often a request is sent, the first time included, while it is refused because of its rate.
/// This and the next three are what the published SDKs do.
pub const RATE_ATTEMPTS_MAX: u32 = 4;

/// The first delay before such a request is sent again; it doubles.
pub const RATE_DELAY_FIRST: Duration = Duration::from_millis(200);

/// The longest such delay, unless the venue asks for a longer one.
pub const RATE_DELAY_MAX: Duration = Duration::from_secs(10);

/// All such delays together.
pub const RATE_BUDGET: Duration = Duration::from_secs(30);

/// The first interval between two reads of a job that is polled (COG-8).
pub const POLL_FIRST: Duration = Duration::from_millis(300);

/// By how much that interval grows, in halves: 3/2 (COG-8).
pub const POLL_GROWTH_HALVES: u32 = 3;

/// The longest such interval (COG-8).
pub const POLL_MAX: Duration = Duration::from_secs(10);

/// How often a stream is opened again without a single event in between. A restart of a venue takes
/// a few seconds; with the delays between attempts this is about half a minute.
pub const REOPEN_MAX: u32 = 8;

/// The longest delay before a stream is opened again, even if the venue asks for a longer one.
pub const REOPEN_DELAY_MAX: Duration = Duration::from_secs(5);

/// The delay before a stream is opened again if the venue asks for none.
pub const REOPEN_DELAY: Duration = Duration::from_secs(1);

/// Records, or jobs of a list, that are requested at a time: the largest page that a venue returns.
pub const PAGE_MAX: u64 = 1_000;

/// Records of one history: what a venue allows for one job, ten times over.
pub const HISTORY_RECORDS_MAX: u64 = 1_000_000;

/// Characters of an error text from a venue that are shown.
pub const REASON_CHARS_MAX: usize = 2_000;

/// Bytes of the file of known venues: several thousand of them.
pub const KNOWN_VENUES_BYTES_MAX: u64 = 1024 * 1024;

/// The longest time that a venue waits before it answers a worker.
pub const WORKER_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a worker lets the venue wait for a job.
pub const WORKER_CLAIM_WAIT: Duration = Duration::from_secs(20);

/// How often the progress and log of running jobs are sent.
pub const WORKER_PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// How long a worker lets the venue wait for a signal: half of a lease, which the next report renews.
pub const WORKER_BEAT: Duration = Duration::from_secs(4);

/// Bytes of a job's log that a worker sends with one report: as many as the venue keeps.
pub const WORKER_LOG_BYTES_MAX: usize = 4_096;

/// How long a worker waits before it tries to reach a venue again.
pub const WORKER_RETRY_DELAY: Duration = Duration::from_millis(500);

/// How long a worker that stops waits until the venue knows how its last jobs have ended. Then their leases
/// end.
pub const WORKER_END_TIME: Duration = Duration::from_secs(5);

/// How long the transfer of a dataset or a file of a job may take.
pub const BLOB_TIME: Duration = Duration::from_secs(120);

/// Bytes of a file that are read at a time while it is sent.
pub const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// Sub-jobs that are fetched to verify one job, nested ones included: what a venue allows for one root.
pub const SUBJOBS_MAX: usize = 10_000;

/// How long the call of a job waits for its result before the job is given back. Most calls end sooner.
pub const WORKER_CALL_WAIT: Duration = Duration::from_secs(1);

/// Runs of one job in the test helper. A handler that needs more asks or calls without end.
pub const HARNESS_RUNS_MAX: usize = 1_000;

//! Every bound of the engine, with its reason. Those that an operator may set are in [`Limits`].

use std::time::Duration;

/// What an operator may set. The defaults are documented in `docs/reference/limits.md`.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// How long an operation may run: long enough for real work, short enough that a forgotten
    /// one is noticed.
    pub execution: Duration,
    /// How long a job may wait for somebody.
    pub interactive: Duration,
    /// How long an invocation waits for an operation that may be quick.
    pub grace: Duration,
    /// Bytes of one message as JSON.
    pub message_bytes_max: usize,
    /// Jobs of one caller that have not ended.
    pub live_jobs_per_caller_max: usize,
    /// Jobs that run in this process at a time; others wait in the queue.
    pub running_max: usize,
    /// Requests that create something, per caller and second; none when there is no limit.
    pub rate: Option<Rate>,
    /// Tries of a job that recovery may begin, the first included.
    pub attempts_max: u32,
    /// How long an idempotency key is remembered.
    pub idempotency: Duration,
    /// Age at which jobs that have ended are deleted; none keeps them.
    pub retention: Option<Duration>,
    /// Bytes of one asset's content.
    pub content_bytes_max: u64,
}

/// A bound on how often something happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How often, per second, over time.
    pub per_second: f64,
    /// How often at once.
    pub burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            execution: Duration::from_secs(600),
            interactive: Duration::from_secs(7 * 24 * 3600),
            grace: Duration::from_millis(20),
            message_bytes_max: 1_000_000,
            live_jobs_per_caller_max: 10_000,
            running_max: 4_096,
            rate: None,
            attempts_max: 3,
            idempotency: Duration::from_secs(24 * 3600),
            retention: None,
            content_bytes_max: 100 * 1024 * 1024,
        }
    }
}

/// Longest time that a request may wait for a job. A client that wants more asks again.
pub const WAIT_MAX: Duration = Duration::from_secs(120);

/// Longest `timeoutMs` that a request may ask for.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Tags of one job: enough to group by, few enough to index.
pub const TAGS_MAX: usize = 16;

/// Bytes of one tag.
pub const TAG_BYTES_MAX: usize = 128;

/// Bytes of an operation reference.
pub const REFERENCE_BYTES_MAX: usize = 2_048;

/// Bytes of an idempotency key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Bytes of a message ID that a client may give.
pub const MESSAGE_ID_BYTES_MAX: usize = 255;

/// Bytes of a reason given with a cancel.
pub const REASON_BYTES_MAX: usize = 4_096;

/// Bytes of an asset's metadata. It is held in memory when it is used.
pub const METADATA_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a job's JSON. What is larger is read record by record or as an asset.
pub const JOB_JSON_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Jobs or assets on one page.
pub const PAGE_MAX: usize = 1_000;

/// How often the same change is tried when others change the job at the same time.
pub const CONTENTION_TRIES_MAX: usize = 64;

/// Longest error text in a record; what is longer is cut.
pub const ERROR_BYTES_MAX: usize = 16 * 1024;

/// Callers whose request rates are remembered. If there are more, full buckets are dropped, which
/// changes nothing for their callers.
pub const RATES_MAX: usize = 100_000;

/// Attempts that `operation.retry` may declare.
pub const RETRY_ATTEMPTS_MAX: i64 = 100;

/// Longest delay between two attempts.
pub const BACKOFF_MAX: Duration = Duration::from_secs(24 * 3600);

/// Schema violations that an error text lists.
pub const VIOLATIONS_MAX: usize = 5;

/// Definitions of callers that are cached, compiled.
pub const CACHED_DEFINITIONS_MAX: usize = 1_024;

/// Names that the error for an unknown reference suggests.
pub const NEAREST_MAX: usize = 3;

/// Errors in the summary of a job: the newest ones.
pub const SUMMARY_ERRORS_MAX: usize = 50;

/// Bytes of one error in the summary of a job.
pub const SUMMARY_ERROR_BYTES_MAX: usize = 2_048;

/// Sub-jobs of one root that may run at a time, including those of nested orchestrations.
pub const CONCURRENT_STEPS_MAX: usize = 256;

/// Depth of nested orchestrations, including those on other venues that report their depth.
pub const NESTING_MAX: usize = 8;

/// Steps that start in one commit: enough to share its sync, few enough that other commits do not
/// wait long for it.
pub const BATCH_STEPS_MAX: usize = 128;

/// Problems of an orchestration that are listed; the others are counted.
pub const PREFLIGHT_PROBLEMS_MAX: usize = 100;

/// Definitions on one level below an orchestration that are checked before it starts.
pub const NESTED_DEFINITIONS_MAX: usize = 1_000;

/// Steps of nested definitions that are checked before an orchestration starts: wide definitions of
/// wide definitions would otherwise keep the venue busy with one request.
pub const NESTED_STEPS_MAX: usize = 100_000;

/// Bytes of the output of a remote step's interactive turn that are recorded in the parent's chain.
pub const TURN_OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Attempts to cancel a remote step before it is left to its venue.
pub const CANCEL_TRIES_MAX: u32 = 8;

/// Schedules of one caller.
pub const SCHEDULES_MAX: usize = 1_000;

/// Jobs that the recovery summary names because they could not be recovered; others are counted.
pub const SKIPPED_JOBS_MAX: usize = 100;

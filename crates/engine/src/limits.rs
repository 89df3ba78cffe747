//! Every bound of the engine, with its reason. Those that an operator may set are in [`Limits`].

use std::time::Duration;

/// The limits that an operator may set. `docs/reference/limits.md` documents the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// How long an operation may run unless it declares a limit: long enough for real work, short
    /// enough that an operation that hangs is noticed.
    pub execution: Duration,
    /// How long a job may wait for input, authorisation or a resume.
    pub interactive: Duration,
    /// How long an invocation waits for the job's end by default: a quick operation is answered with
    /// its result.
    pub grace: Duration,
    /// Bytes of one message as JSON.
    pub message_bytes_max: usize,
    /// Jobs of one caller that have not ended.
    pub live_jobs_per_caller_max: usize,
    /// Jobs that run in this process at a time; others wait in the queue.
    pub running_max: usize,
    /// The rate of requests that create something, per caller. `None` if it is unlimited.
    pub rate: Option<Rate>,
    /// Attempts that a job may use, including the first, before recovery fails it.
    pub attempts_max: u32,
    /// How long an idempotency key is remembered.
    pub idempotency: Duration,
    /// The age at which jobs that have ended are deleted. `None` if they are kept.
    pub retention: Option<Duration>,
    /// Bytes of one asset's content.
    pub content_bytes_max: u64,
}

/// A bound on the frequency of requests: a token bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests per second in the long run.
    pub per_second: f64,
    /// Requests that are admitted at once.
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

/// Longest time that a request may wait for a job. A client that wants to wait longer repeats it.
pub const WAIT_MAX: Duration = Duration::from_secs(120);

/// Longest `timeoutMs` of a request.
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

/// Bytes of the reason of a cancellation.
pub const REASON_BYTES_MAX: usize = 4_096;

/// Bytes of an asset's metadata, which is held in memory while it is used.
pub const METADATA_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a job's JSON. A larger job is read record by record, or its output as an asset.
pub const JOB_JSON_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Jobs or assets on one page.
pub const PAGE_MAX: usize = 1_000;

/// Attempts to commit a change of a job that other requests change concurrently.
pub const CONTENTION_TRIES_MAX: usize = 64;

/// Bytes of an error text in a record. A longer text is truncated.
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

/// Bytes of the description of one schema violation, which may quote a large value.
pub const VIOLATION_BYTES_MAX: usize = 2_000;

/// Applications of schemas to parts of a value in one check, and entries that are compared. A check
/// that would take more is refused before it starts, because it cannot be interrupted.
pub const SCHEMA_CHECK_STEPS_MAX: u64 = 2_000_000;

/// Depth of a schema check: schemas within schemas, including references. It bounds the stack.
pub const SCHEMA_CHECK_DEPTH_MAX: usize = 512;

/// Steps of a schema check that lists several violations. A longer check stops at the first
/// violation, because each violation that is found uses memory, even if it is not listed.
pub const SCHEMA_LIST_VIOLATIONS_STEPS_MAX: u64 = 100_000;

/// Depth in a value at which secrets are located. A part at this depth that may contain secrets is
/// treated as a secret itself, which bounds the locations of a recursive schema.
pub const SECRET_DEPTH_MAX: usize = 16;

/// Schemas that are visited to locate the secrets of a schema: combinations of references can reach
/// a small schema in a very large number of ways.
pub const SECRET_SEARCH_SCHEMAS_MAX: usize = 10_000;

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

/// Jitter of a schedule in ms: a day, the longest period of most schedules.
pub const SCHEDULE_JITTER_MAX_MS: i64 = 24 * 3_600 * 1_000;

/// Runs of one owner's schedules that one process starts at a time. Starts of other owners do not
/// wait for them.
pub const SCHEDULE_STARTS_MAX: usize = 16;

/// Consecutive starts of a schedule that the process may not survive, before the schedule is set
/// aside.
pub const SCHEDULE_ABORTS_MAX: i64 = 3;

/// Longest delay in ms before a scheduled run that was refused is tried again.
pub const SCHEDULE_DELAY_MAX_MS: i64 = 60_000;

/// Schedules that a list over all owners shows.
pub const SCHEDULES_LISTED_MAX: usize = 10_000;

/// Jobs that the recovery summary names because they could not be recovered; others are counted.
pub const SKIPPED_JOBS_MAX: usize = 100;

/// Longest time for which paused work is kept in memory. A resume after it follows the operation's
/// recovery rule.
pub const FROZEN_MAX: Duration = Duration::from_secs(3600);

/// Jobs of one tree that change in one commit. A larger tree is changed by its root first, and then
/// job by job.
pub const TREE_COMMIT_MAX: usize = 2_048;

/// Queued jobs that are read for statistics. A longer queue is reported as this long.
pub const QUEUE_SAMPLE_MAX: usize = 1_000;

/// Parts of an orchestration's input that are secret because of its steps. With more, all of the input
/// is secret.
pub(crate) const FLOWING_SECRETS_MAX: usize = 256;

/// Operations that are resolved to find these parts. With more, all of the input is secret.
pub(crate) const FLOWING_OPERATIONS_MAX: usize = 1_000;

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
    /// Jobs of all callers that have not ended: what recovery reads at a start.
    pub live_jobs_max: usize,
    /// Bytes that are stored for one caller: jobs, messages, workspace, content. `None` if they are
    /// unlimited, and then they are not counted.
    pub stored_bytes_per_caller_max: Option<u64>,
    /// The same for all callers together: many callers fill a disk as well as one.
    pub stored_bytes_max: Option<u64>,
    /// Sub-jobs of one root in total: steps and calls on every level. A definition that is known to
    /// need more is refused; a tree that grows while it runs stops there.
    pub sub_jobs_per_root_max: u64,
    /// The number of jobs of one tree that change in one commit.
    pub tree_commit_max: usize,
    /// Jobs that run in this process at a time; others wait in the queue.
    pub running_max: usize,
    /// Bytes, decoded, that requests, runs and responses hold in memory at a time.
    pub memory_bytes_max: u64,
    /// The same for those of one caller.
    pub memory_per_caller_bytes_max: u64,
    /// The rate of requests that create something, per caller. `None` if it is unlimited.
    pub rate: Option<Rate>,
    /// Attempts that a job may use, including the first, before recovery fails it.
    pub attempts_max: u32,
    /// How long a worker holds its jobs without being heard of.
    pub worker_lease: Duration,
    /// How long a job waits for an executor, pauses excluded.
    pub queue_time: Duration,
    /// The CPU time that executors spend on the jobs of one owner per day. `None` if it is unlimited.
    pub cpu_per_day: Option<Duration>,
    /// How long an idempotency key is remembered.
    pub idempotency: Duration,
    /// The age at which jobs that have ended are deleted. `None` if they are kept.
    pub retention: Option<Duration>,
    /// Bytes of one asset's content.
    pub content_bytes_max: u64,
    /// Whether the anonymous identity may own workspace entries and secrets. Beyond loopback it is
    /// everyone's, so it may not.
    pub anonymous_owns: bool,
}

/// Executors that a process keeps in mind. Those beyond it work, but their slots are not counted.
pub const EXECUTORS_MAX: usize = 1_024;

/// Characters of base64 that are taken for an encoded secret at least. Shorter ones occur by chance.
pub const REDACTED_BASE64_CHARS_MIN: usize = 5;

/// Queued messages of one job that are searched for credentials when the key of secrets changes. More
/// cannot be queued unless the operator allows it.
pub const MESSAGES_READ_MAX: usize = 100_000;

/// Capabilities that the text of a denial names.
pub const SHOWN_CAPABILITIES_MAX: usize = 16;

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
            live_jobs_max: 1_000_000,
            stored_bytes_per_caller_max: None,
            stored_bytes_max: None,
            sub_jobs_per_root_max: 10_000,
            tree_commit_max: TREE_COMMIT_MAX,
            running_max: 4_096,
            memory_bytes_max: 512 * 1024 * 1024,
            memory_per_caller_bytes_max: 128 * 1024 * 1024,
            rate: None,
            attempts_max: 3,
            worker_lease: Duration::from_secs(10),
            queue_time: QUEUE_TIME,
            cpu_per_day: None,
            idempotency: Duration::from_secs(24 * 3600),
            retention: None,
            content_bytes_max: 100 * 1024 * 1024,
            anonymous_owns: true,
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

/// Bytes of an asset's metadata that are parsed on a thread of the runtime, which takes less than a millisecond. A list
/// parses the metadata of every asset on it.
pub const METADATA_INLINE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the metadata of a prompt. Names of prompts are unique, so all of a caller are read for most requests.
pub const PROMPT_METADATA_BYTES_MAX: usize = 64 * 1024;

/// Bytes of the name, the type and the description of an asset in a list, each.
pub const LISTED_TEXT_BYTES_MAX: usize = 2_048;

/// Bytes of a job's JSON. A larger job is read record by record, or its output as an asset.
pub const JOB_JSON_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes that one request, run or response may hold in memory without a reservation. There are at most
/// a few thousand of them.
pub const UNCOUNTED_BYTES_MAX: u64 = 64 * 1024;

/// Bytes of the inputs of steps that start in one commit. Further steps start in the next one.
pub const BATCH_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes of the output of one step in the JSON of its parent. A larger output is in the JSON of the
/// sub-job.
pub const STEP_OUTPUT_BYTES_MAX: u64 = 64 * 1024;

/// Bytes of the outputs of all steps in the JSON of their parent, which is sent with every event.
pub const STEP_OUTPUTS_BYTES_MAX: u64 = 1024 * 1024;

/// Large outputs of steps whose sizes are remembered. Each takes about 50 bytes.
pub const OUTPUT_SIZES_MAX: usize = 16_384;

/// Jobs or assets on one page.
pub const PAGE_MAX: usize = 1_000;

/// Owners whose statistics are kept: at most 100 KiB each, usually a few. The one that was idle longest
/// is dropped first.
pub const STATS_OWNERS_MAX: usize = 256;

/// Running jobs whose start is remembered for statistics: 40 bytes each. The time of others is not
/// counted.
pub const STATS_RUNNING_MAX: usize = 65_536;

/// Bytes of the text that jobs are searched for.
pub const FILTER_TEXT_BYTES_MAX: usize = 256;

/// Jobs that one request for a filtered list examines once its page is full, to count how many match,
/// or before it returns a page that is not full: a rare match must not keep the venue busy.
pub const LIST_EXAMINED_MAX: usize = 20_000;

/// How far the times of creation of two jobs may contradict the order of their commits, in ms, without
/// one of them being missed by a list between two times. A clock that is set back by more is an
/// operator's mistake.
pub const CREATION_DISORDER_MAX_MS: i64 = 600_000;

/// Rows that all streams of events together read at a time: a stream that has more to read counts
/// what it read and continues with the newest change.
pub const EVENT_ROWS_MAX: usize = 8_000;

/// Events of single jobs that a stream sends at once, and per second in the long run. With the counts
/// that it sends beyond that, four a second, no second has more than twenty.
pub const EVENT_BURST_MAX: u32 = 8;

/// Frames that a reader of events may be behind. If it is further behind, it reads the changes from
/// the store instead.
pub const EVENT_BACKLOG_MAX: usize = 64;

/// Attempts to commit a change of a job that other requests change concurrently.
pub const CONTENTION_TRIES_MAX: usize = 64;

/// Changes of one user's roots in one commit: so many records and cells fit into one well, and those
/// that wait behind them wait for one sync.
pub const ROOT_BATCH_MAX: usize = 256;

/// Changes of one user's roots that wait for a commit. Further ones are refused as busy.
pub const ROOT_QUEUE_MAX: usize = 10_000;

/// Cells that an operation on roots loads on a thread of the runtime. Loading one takes a few
/// microseconds; an operation that needs more is executed on a compute thread.
pub const INLINE_CELLS_MAX: u32 = 128;

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

/// Longest part of a value that the description of a violation quotes, in bytes. A longer one is
/// described by its type and size.
pub const VIOLATION_QUOTE_BYTES_MAX: usize = 1_000;

/// Bytes of the violations that are made to list some of them. Each contains a copy of the part that
/// it concerns, so that 9,000 alternatives violated by a text of 400 kB take 3.5 GB. If they could take
/// more than this, they are not listed.
pub const VIOLATION_COPIES_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes of a schema as JSON: as many as an asset's metadata may have.
pub const SCHEMA_BYTES_MAX: u64 = 1024 * 1024;

/// JSON values in a schema. Each takes about half a kilobyte and five microseconds when compiled.
pub const SCHEMA_VALUES_MAX: u64 = 50_000;

/// Nesting of the JSON of a schema: as deep as a request may be, with some room for values that
/// orchestrations assemble. It bounds the stack of the compiler.
pub const SCHEMA_NESTING_MAX: usize = 144;

/// Sum of the lengths of the locations of all values in a schema. The compiled schema contains each
/// of them, so that a long name above many subschemas would take gigabytes.
pub const SCHEMA_LOCATION_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Bytes of a reference, an anchor or an ID in a schema, which locations are made of.
pub const SCHEMA_NAME_BYTES_MAX: usize = 2_048;

/// Subschemas and references in a schema.
pub const SCHEMA_EDGES_MAX: usize = 100_000;

/// Schemas that apply to the same part of a value within each other: references and combinations
/// such as `allOf`. The compiler recurses over them.
pub const SCHEMA_REFERENCE_DEPTH_MAX: usize = 128;

/// Schemas that the compiler visits for the `unevaluated…` keywords of a schema, once for each way
/// to them. Each takes about 1.4 kB and 8 microseconds, and n references can be combined to 2^n ways.
pub const SCHEMA_UNEVALUATED_MAX: u64 = 20_000;

/// Schemas in a compiled schema that is dropped on whichever thread drops it. A chain of them is
/// dropped recursively.
pub const SCHEMA_DROPPED_INLINE_MAX: usize = 256;

/// Patterns in a schema. Each takes up to twice [`PATTERN_PROGRAM_BYTES_MAX`].
pub const SCHEMA_PATTERNS_MAX: usize = 128;

/// Bytes of a pattern in a schema.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 4_096;

/// Bytes of a compiled pattern: a repetition of a repetition is small as a text only.
pub const PATTERN_PROGRAM_BYTES_MAX: usize = 256 * 1024;

/// Positions that a pattern with look-around or back-references tries again.
pub const PATTERN_BACKTRACKS_MAX: usize = 100_000;

/// Steps of a schema check that runs on a thread of the runtime: about a millisecond, so that
/// other requests do not notice it. A longer check runs on a compute thread.
pub const SCHEMA_INLINE_STEPS_MAX: u64 = 20_000;

/// Schemas applied within each other by a check on a thread of the runtime, whose stack has 2 MiB.
pub const SCHEMA_INLINE_DEPTH_MAX: usize = 64;

/// Bytes of a value that is checked on a thread of the runtime. Its conversion alone takes longer
/// than a request should occupy such a thread if it is larger.
pub const SCHEMA_INLINE_BYTES_MAX: u64 = 64 * 1024;

/// Most names in `secretFields` of a definition. A schema marks more with one `writeOnly`.
pub const SECRET_FIELDS_MAX: u64 = 256;

/// Bytes of an input or output, decoded, that an instant operation processes on a thread of the runtime.
pub const INLINE_INPUT_BYTES_MAX: u64 = 256 * 1024;

/// Stack of a compute thread. An eighth of it suffices for the deepest compilation within the bounds
/// above, without optimisation; memory that is not used is not resident.
pub const COMPUTE_STACK_BYTES: usize = 64 * 1024 * 1024;

/// Compute threads. Most machines have more cores, but what runs here may be hostile, and the
/// threads of the runtime need some.
pub const COMPUTE_THREADS_MAX: usize = 4;

/// Compute threads that one caller may occupy while others wait.
pub const COMPUTE_THREADS_PER_CALLER_MAX: usize = 2;

/// Work of one caller that waits for a compute thread. Each item holds its input in memory.
pub const COMPUTE_QUEUE_PER_CALLER_MAX: usize = 256;

/// Work of all callers that waits for a compute thread.
pub const COMPUTE_QUEUE_MAX: usize = 4_096;

/// How long work may wait for a compute thread and run on it. What is allowed to start takes a few
/// seconds at most; the rest is for waiting.
pub const COMPUTE_TIME_MAX: Duration = Duration::from_secs(10);

/// Applications of schemas to parts of a value in one check, and entries that are compared. A check
/// that would take more is refused before it starts, because it cannot be interrupted.
pub const SCHEMA_CHECK_STEPS_MAX: u64 = 2_000_000;

/// Steps of the checks of many values against one schema in one call.
pub const SCHEMA_CHECK_ALL_STEPS_MAX: u64 = 20_000_000;

/// Depth of a schema check: schemas within schemas, including references. It bounds the stack.
pub const SCHEMA_CHECK_DEPTH_MAX: usize = 512;

/// Depth in a value at which secrets are located. A part at this depth that may contain secrets is
/// treated as a secret itself, which bounds the locations of a recursive schema.
pub const SECRET_DEPTH_MAX: usize = 16;

/// Schemas that are visited to locate the secrets of a schema: combinations of references can reach
/// a small schema in a very large number of ways.
pub const SECRET_SEARCH_SCHEMAS_MAX: usize = 10_000;

/// Bytes of all paths that are visited to locate the secrets of a schema. A few copies of each exist
/// during the search.
pub const SECRET_PATH_BYTES_MAX: usize = 1024 * 1024;

/// Secrets that are removed one by one from an input. If there are more, the smallest part that
/// contains all of them is removed as a whole: each is named in a record.
pub const SECRETS_MAX: usize = 1_000;

/// Bytes of the definitions of callers that are cached, compiled.
pub const CACHED_DEFINITION_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Names that the error for an unknown reference suggests.
pub const NEAREST_MAX: usize = 3;

/// Errors in the summary of a job: the newest ones.
pub const SUMMARY_ERRORS_MAX: usize = 50;

/// Bytes of one error in the summary of a job.
pub const SUMMARY_ERROR_BYTES_MAX: usize = 2_048;

/// Sub-jobs of one root that may run at a time, including those of nested orchestrations.
pub const CONCURRENT_STEPS_MAX: usize = 256;

/// Depth of steps and calls below a root, including those on other venues that report their depth.
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

/// Consecutive processes that did not survive the start of a schedule, before it is started alone.
pub const SCHEDULE_ABORTS_ALONE: i64 = 2;

/// Consecutive processes that did not survive the start of a schedule, before it is set aside.
pub const SCHEDULE_ABORTS_MAX: i64 = 3;

/// Longest delay in ms before a scheduled run that was refused is tried again.
pub const SCHEDULE_DELAY_MAX_MS: i64 = 60_000;

/// Schedules that a list over all owners shows.
pub const SCHEDULES_LISTED_MAX: usize = 10_000;

/// Jobs that the recovery summary names because they could not be recovered; others are counted.
pub const SKIPPED_JOBS_MAX: usize = 100;

/// Slots below which none is left to others: a venue with so few is meant to use them all.
pub const SLOTS_SHARED_MIN: usize = 8;

/// Slots that a caller who occupies half of them leaves to others, at most a quarter of all: enough that
/// the jobs of a few callers start at once.
pub const SLOTS_RESERVED_MAX: usize = 64;

/// Slots for jobs that control others, in addition to those of all jobs, and how many such jobs may be live
/// beyond the limits of live jobs.
pub const CONTROL_SLOTS_MAX: usize = 16;

/// Queued jobs that are passed over because their owner must leave the free slots to others.
pub const DEFERRED_MAX: usize = 1_024;

/// Threads whose work is attributed to jobs, in case the process aborts: those of the runtime, one for
/// each core, and the compute threads, with room for those of the store.
pub const TRACKED_THREADS_MAX: usize = 256;

/// Aborts of the process after which a job that was worked on each time is started alone.
pub const ABORTS_ALONE: u32 = 2;

/// Aborts of the process after which a job that was worked on each time is paused.
pub const ABORTS_MAX: u32 = 3;

/// How long the process must survive the start of a suspect before it is none any more. A process that dies
/// later than this after it started to work on a job did not die of that job.
pub const SUSPECT_TIME: Duration = Duration::from_secs(60);

/// How long nothing else is started while a suspect runs: what aborts the process mostly does so at once,
/// and others wait meanwhile.
pub const SUSPECT_ALONE_TIME: Duration = Duration::from_secs(10);

/// How long other work waits at a start for all suspects together.
pub const SUSPECTS_TIME_MAX: Duration = Duration::from_secs(60);

/// Longest time for which paused work is kept in memory. A resume after it follows the operation's
/// recovery rule.
pub const FROZEN_MAX: Duration = Duration::from_secs(3600);

/// Jobs of one tree that change in one commit. A larger tree is changed by its root first, and then
/// in batches.
pub const TREE_COMMIT_MAX: usize = 2_048;

/// Jobs of a larger tree that the reconciler changes in one commit: enough to share its sync, few
/// enough that one job that changes meanwhile does not repeat much work.
pub const RECONCILE_BATCH: usize = 256;

/// Attempts of the reconciler to change a batch in one commit. Jobs that change faster than they can
/// be read are then changed one by one.
pub const RECONCILE_TRIES_MAX: usize = 4;

/// Jobs that the reconciler ends at the same time, each in one commit: enough that their commits
/// share syncs.
pub const RECONCILE_CONCURRENCY_MAX: usize = 64;

/// Queued jobs that are read for statistics. A longer queue is reported as this long.
pub const QUEUE_SAMPLE_MAX: usize = 1_000;

/// Parts of an orchestration's input that are secret because of its steps. With more, all of the input
/// is secret.
pub(crate) const FLOWING_SECRETS_MAX: usize = 256;

/// Operations that are resolved to find these parts. With more, all of the input is secret.
pub(crate) const FLOWING_OPERATIONS_MAX: usize = 1_000;

/// Bytes of what distinguishes the jobs of a queue for its limits. Longer values are represented by
/// their ID.
pub const LANE_GROUP_BYTES_MAX: usize = 64;

/// Bytes of the name of a queue, a worker or a user's operation: it fits into a line.
pub const NAME_BYTES_MAX: usize = 128;

/// Queues from which one request of a worker claims.
pub const CLAIM_QUEUES_MAX: usize = 16;

/// Jobs that one request of a worker claims or ends: enough that their commits share syncs.
pub const CLAIM_JOBS_MAX: usize = 256;

/// How long a claim or a beat waits for something to happen. A beat waits for half a lease at most, so that
/// the wait does not end it.
pub const WORKER_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a claim that ends earlier jobs waits for new ones: a worker learns within this time whether its
/// results were recorded, and asks at most this often for nothing.
pub const CLAIM_WITH_ENDS_WAIT_MAX: Duration = Duration::from_secs(1);

/// Bytes of the end of a job's log that are kept, in memory while it runs and in its last record: enough
/// to see what it did last.
pub const LOG_BYTES_MAX: usize = 4_096;

/// Secrets that an operation of a worker may declare. Each is opened, sealed for the job and searched for in
/// everything that the worker reports.
pub const WORKER_SECRETS_MAX: usize = 16;

/// Jobs that a process sends to URLs at a time. Each is a connection and a document in memory.
pub const PUSHES_MAX: usize = 256;

/// Jobs of one owner's queues that a process sends to URLs at a time, so that an owner with a slow
/// receiver does not delay the others.
pub const PUSHES_PER_OWNER_MAX: usize = 32;

/// Jobs that one beat of a worker lists.
pub const BEAT_JOBS_MAX: usize = 10_000;

/// Bytes of the outputs of earlier steps that are sent with a claimed job. Others are read by repeating
/// the step.
pub const CLAIMED_STEPS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Bytes of the key of a call or a step: it is part of a record.
pub const CALL_KEY_BYTES_MAX: usize = 256;

/// Names of operations per user: the entry of each is loaded when they are listed.
pub const NAMES_MAX: u64 = 10_000;

/// Histories in one imported document: those of a job and its sub-jobs. Each is a root of the commit.
pub const IMPORT_HISTORIES_MAX: usize = 1_000;

/// Histories that a user has imported. They are listed by venue and job.
pub const IMPORTED_HISTORIES_MAX: u64 = 100_000;

/// Bytes of all histories that a user has imported: as many as a caller may store.
pub const IMPORTED_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;

/// Bytes of one imported history. It is in memory while another copy is united with it.
pub const IMPORTED_HISTORY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes of the DID of a venue in an imported history. It is part of the name of a root.
pub const IMPORTED_DID_BYTES_MAX: usize = 512;

/// Versions of a named operation.
pub const NAME_VERSIONS_MAX: usize = 1_000;

/// How long a job waits for an executor unless the operator says otherwise: a day, after which nobody expects
/// its result.
pub const QUEUE_TIME: Duration = Duration::from_secs(86_400);

/// Versions of environments that executors have announced: all of them are listed in errors.
pub const ENVIRONMENTS_MAX: usize = 1_000;

/// Bytes of what an executor says about an execution: output of both streams, logs and artifacts.
pub const EXECUTION_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Records that one search for a record by its ID reads before it stops; the search can be continued. Reading
/// them takes about a second.
pub const RECORD_SEARCH_MAX: usize = 200_000;

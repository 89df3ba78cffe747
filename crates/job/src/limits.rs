//! Every bound of this crate, with its reason.

/// Maximum number of records in one chain. A job with more is out of control, and every reader of
/// the chain pays for its length.
pub const HISTORY_RECORDS_MAX: u64 = 100_000;

/// Records at the end of a full chain that are reserved for ending the job: a waiting job must
/// return to STARTED before it can fail.
pub const HISTORY_RECORDS_RESERVED: u64 = 2;

/// Characters of a name that are compared with known names. No known name is as long.
pub const COMPARED_CHARS_MAX: usize = 256;

/// Characters of an unknown member's name that are shown and compared.
pub const MEMBER_CHARS_MAX: usize = 64;

/// Unknown members of one object that are compared with the known ones and reported. An object with more
/// is not a mistyped one, and comparing all of them would take as long as its author likes.
pub const UNKNOWN_MEMBERS_MAX: usize = 32;

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

/// Depth to which a message is searched for credentials: more deeply than anything that may be stored.
pub const REDACTION_DEPTH_MAX: usize = 256;

/// Maximum number of characters of an agent's ID: long enough for any name, short enough for a path.
pub const AGENT_ID_CHARS_MAX: usize = 128;

/// Maximum number of messages that wait in the inbox of an agent: a turn loads all of them.
pub const INBOX_ENTRIES_MAX: u64 = 1_000;

/// Maximum size of the messages that wait in the inbox of an agent, in bytes of JSON.
pub const INBOX_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Maximum number of turns in the timeline of an agent. Entries are never dropped, so an agent that has
/// reached it is suspended.
pub const TIMELINE_ENTRIES_MAX: u64 = 100_000;

/// Maximum number of runs that wait for their turn with one agent.
pub const WAITING_RUNS_MAX: usize = 1_000;

/// Maximum number of jobs that are attached to one agent: each gets a message when it is suspended or ends, in the
/// same commit.
pub const ATTACHED_JOBS_MAX: usize = 16;

/// Maximum number of sessions of one agent.
pub const AGENT_SESSIONS_MAX: u64 = 10_000;

/// Agents of one user, including terminated ones that were not removed.
pub const AGENTS_PER_USER_MAX: u64 = 10_000;

/// Messages per second that one agent accepts on a venue that others can reach.
pub const AGENT_DELIVERIES_PER_SECOND: u64 = 50;

/// Number of consecutive failed turns after which an agent stays suspended, unless its configuration
/// says otherwise.
pub const CONSECUTIVE_FAILURES_MAX: u64 = 10;

/// Entries of a list in the payload of a contract job: targets, dependencies, snapshots, formats, blocks.
pub const CONTRACT_ENTRIES_MAX: usize = 1_000;

/// Bytes of a source that is rendered: what the renderer accepts.
pub const CONTRACT_SOURCE_BYTES_MAX: usize = 256 * 1024;

/// Blocks of a document that is exported.
pub const DOCUMENT_BLOCKS_MAX: usize = 10_000;

/// Authors of a document.
pub const DOCUMENT_AUTHORS_MAX: usize = 100;

/// Pixels of the shortest side of a thumbnail.
pub const THUMBNAIL_SIDE_MIN: i64 = 16;

/// Pixels of the longest side of a thumbnail.
pub const THUMBNAIL_SIDE_MAX: i64 = 2_048;

/// Bytes of the name under which a dataset appears in the folder of a cell: what file systems allow.
pub const CONTRACT_NAME_BYTES_MAX: usize = 200;

/// Log entries of a contract job. The rest is counted.
pub const CONTRACT_LOGS_MAX: usize = 200;

/// Bytes of one log entry of a contract job.
pub const CONTRACT_LOG_BYTES_MAX: usize = 2 * 1024;

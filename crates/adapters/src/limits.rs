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

/// Connections to other hosts at a time. Fewer if the process may not open that many file descriptors:
/// a request waits until there is one, within its time limit.
pub const OUTBOUND_CONNECTIONS_MAX: usize = 4_096;

/// Redirects that are followed: browsers allow 20, real services need two or three.
pub const REDIRECTS_MAX: usize = 5;

/// Largest response body that is read. It becomes part of a job's output.
pub const RESPONSE_BYTES_MAX: usize = 10_000_000;

/// Largest JSON body that `http:*` parses into its output. It is parsed on a thread that other jobs share,
/// and stored in addition to the text.
pub const RESPONSE_JSON_BYTES_MAX: usize = 4_000_000;

/// Characters of a response that become part of the error of a failed request.
pub const RESPONSE_EXCERPT_CHARS_MAX: usize = 200;

/// Most entries of `failOn`. There are fewer than 600 statuses, and ranges of them.
pub const FAIL_ON_MAX: u64 = 100;

/// Longest delay that a service may ask for with `Retry-After`: the longest delay between two attempts.
pub const SERVICE_RETRY_AFTER_MAX: Duration = catena_engine::limits::BACKOFF_MAX;

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

/// Jobs that one action on many jobs is about: their IDs are held in memory and recorded.
pub const BULK_JOBS_MAX: usize = 50_000;

/// Jobs of one batch of such an action: what is repeated after a crash, and what one sub-job reports.
pub const BULK_BATCH_MAX: usize = 200;

/// Failures that such an action lists; others are only counted.
pub const BULK_FAILURES_MAX: usize = 20;

/// Tries of an action on one job while the store is busy.
pub const BULK_TRIES_MAX: u32 = 20;

/// Bytes of a workspace path. Longer ones do not fit into the URL of `GET /values`.
pub const PATH_BYTES_MAX: usize = 2_048;

/// Bytes of a value that is written to the workspace, and the most that one read returns: as many as
/// an output may have.
pub const WORKSPACE_VALUE_BYTES_MAX: i64 = 16 << 20;

/// Nesting of a value that is written to the workspace: as deep as a JSON text may be.
pub const WORKSPACE_VALUE_DEPTH_MAX: usize = 128;

/// Entries of one object or array of the workspace. A million times what people look at, and a depth
/// of six cells.
pub const CONTAINER_ENTRIES_MAX: u64 = 10_000_000;

/// Bytes that a read returns unless the caller asks for more. The same as other venues.
pub const READ_BYTES_MAX: i64 = 1_000_000;

/// Entries on one page of `covia:slice` and `covia:list`.
pub const SLICE_ENTRIES_MAX: i64 = 10_000;

/// Bytes of a text of `covia:inspect`.
pub const INSPECT_BYTES_MAX: i64 = 100_000;

/// Paths of one `covia:inspect`.
pub const INSPECT_PATHS_MAX: u64 = 100;

/// Levels that `covia:count` and `covia:aggregate` descend.
pub const COUNT_DEPTH_MAX: i64 = 16;

/// Entries that `covia:count` and `covia:aggregate` visit. Each costs about a microsecond.
pub const AGGREGATE_ENTRIES_MAX: u64 = 1_000_000;

/// Groups of `covia:aggregate`: more is a list, not a summary.
pub const AGGREGATE_GROUPS_MAX: usize = 10_000;

/// Records of a history that `covia:read` returns: one page of it.
pub const HISTORY_RECORDS_MAX: usize = 1_000;

/// Entries of all objects and arrays in a user's workspace and operations together.
pub const ENTRIES_PER_USER_MAX: u64 = 10_000_000;

/// Bytes of the name of a secret.
pub const SECRET_NAME_BYTES_MAX: usize = 128;

/// Bytes of a secret: a key file, not a document.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;

/// Secrets of one user. They are one value, which changes as a whole.
pub const USER_SECRETS_MAX: u64 = 1_000;

/// Hosts to which a secret is bound, and definitions to which its use is granted.
pub const SECRET_HOSTS_MAX: usize = 32;

/// Capabilities of a delegation that this venue issues.
pub const ISSUED_CAPABILITIES_MAX: usize = 64;

/// Delegations that one user revokes.
pub const REVOCATIONS_MAX: u64 = 100_000;

/// Largest message to an agent, in bytes: the same as a message to a job.
pub const AGENT_MESSAGE_BYTES_MAX: u64 = 1_000_000;

/// Largest state of an agent, in bytes: the transition receives all of it, together with the inbox.
pub const AGENT_STATE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Entries of a memory. It is read as a whole.
pub const MEMORY_ENTRIES_MAX: usize = 1_000;

/// Bytes of one entry of a memory.
pub const MEMORY_TEXT_BYTES_MAX: usize = 16 * 1024;

/// How long one request to a model may take by default. Long answers take minutes.
pub const MODEL_TIME: Duration = Duration::from_secs(120);

/// How long one request to a model may take at most: as long as a turn of an agent.
pub const MODEL_TIME_MAX: Duration = Duration::from_secs(600);

/// Requests of one call of a model, if the service answers that it is busy.
pub const MODEL_ATTEMPTS_MAX: u32 = 5;

/// Delay before the second request to a model. It doubles with every request.
pub const MODEL_BACKOFF: Duration = Duration::from_millis(500);

/// Longest delay between two requests to a model, also if the service asks for more.
pub const MODEL_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Largest reply of a model, as it is sent. The longest answers of today's models have about 1 MB, and
/// several times as much as a stream of small parts.
pub const MODEL_REPLY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Tool calls in one reply of a model.
pub const MODEL_REPLY_CALLS_MAX: usize = 128;

/// Messages of one call of a model.
pub const MODEL_MESSAGES_MAX: usize = 10_000;

/// Tools of one call of a model: services refuse more.
pub const MODEL_TOOLS_MAX: usize = 128;

/// Characters of the name of a tool: services refuse more.
pub const TOOL_NAME_CHARS_MAX: usize = 64;

/// Tool calls of one turn of an agent, unless its configuration says otherwise.
pub const TURN_TOOL_CALLS: i64 = 32;

/// Most tool calls of one turn that a configuration can allow. Each is a sub-job.
pub const TURN_TOOL_CALLS_MAX: i64 = 1_000;

/// Tokens of one turn of an agent, unless its configuration says otherwise.
pub const TURN_TOKENS: i64 = 1_000_000;

/// Most tokens of one turn that a configuration can allow.
pub const TURN_TOKENS_MAX: i64 = 100_000_000;

/// Bytes of a tool's result that a model receives.
pub const TOOL_RESULT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a conversation that a model receives, unless the configuration says otherwise: about 100,000
/// tokens.
pub const CONTEXT_BYTES: i64 = 400_000;

/// Most bytes of a conversation that a configuration can send to a model.
pub const CONTEXT_BYTES_MAX: i64 = 4_000_000;

/// Bytes of one conversation that an agent keeps. Older parts are removed from its state; the timeline
/// has them.
pub const SESSION_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of all conversations that an agent keeps: most of its state.
pub const SESSIONS_BYTES_MAX: usize = 6 * 1024 * 1024;

/// Answers of a model that may not fit the schema of its output, before the turn fails.
pub const STRUCTURED_TRIES_MAX: u32 = 3;

/// Different lists of capabilities of callers who configured an agent. Every request of the agent is checked
/// against all of them.
pub const AGENT_RESTRICTIONS_MAX: usize = 16;

/// Shortest time between two wakes of an agent by a timer, in ms. Each is a job.
pub const AGENT_WAKE_MS_MIN: i64 = 1_000;

/// Longest time between two wakes of an agent by a timer, in ms: a year. Longer ones are cron expressions.
pub const AGENT_WAKE_MS_MAX: i64 = 366 * 24 * 3600 * 1000;

/// Questions of one agent to people that are kept, and that can wait for an answer.
pub const AGENT_QUESTIONS_MAX: usize = 100;

/// Requests of the jobs of one user to people that are kept, and that can wait for an answer.
pub const JOB_REQUESTS_MAX: usize = 1_000;

/// Memory of the requests to people in one list, in bytes. There is at least one in each; those that come first are
/// the oldest.
pub const REQUEST_LIST_BYTES_MAX: u64 = 1024 * 1024;

/// Largest question to a person, with its options and its schema, in bytes. People read it.
pub const QUESTION_BYTES_MAX: u64 = 64 * 1024;

/// Messages of a session that `agent:session-read` returns: a page.
pub const SESSION_MESSAGES_MAX: usize = 1_000;

//! Every bound of this crate, with its reason. Those an operator may set are defaults here and
//! settings in [`crate::config`].

use std::time::Duration;

/// Nested arrays and objects in a request's JSON.
pub const JSON_DEPTH_MAX: usize = 128;

/// Delegations that one request may carry. Real ones carry one or two.
pub const DELEGATIONS_MAX: usize = 64;

/// Bytes of one page of a history: what goes beyond it is on the next page.
pub const HISTORY_PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of a value in a line of a canvas list: a page of the longest ones is still one answer.
pub const LISTED_VALUE_BYTES_MAX: usize = 16 * 1024;

/// How long a starting venue lets recovery go ahead before it listens. What is left is recovered
/// while requests are answered.
pub const RECOVERY_AHEAD: Duration = Duration::from_millis(200);

/// Longest time between two bytes of an event stream. The Python SDK gives up after 30 s.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// How long a client may take to send the head of a request, and how long a connection may idle
/// between two: long enough for connection pools, short enough that half-requests end.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(75);

/// Bytes of a body beyond its bound that are read and thrown away, so that the client, who is still
/// sending, gets to read why.
pub const DISCARD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long that may take.
pub const DISCARD_TIME_MAX: Duration = Duration::from_secs(10);

/// Connections at a time. Fewer when the process may not have so many descriptors.
pub const CONNECTIONS_MAX: usize = 50_000;

/// Descriptors that are kept for the store and for requests that leave, if there are twice as many:
/// at least these, and a quarter of all.
pub const DESCRIPTORS_KEPT_MIN: usize = 64;

/// Bytes of a request id that a client may choose; longer ones are replaced.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

/// Tokens whose signatures are remembered as checked. One takes about 300 bytes.
pub const TOKENS_REMEMBERED_MAX: usize = 4_096;

/// How often the list of revoked tokens is looked at.
pub const REVOKED_CHECK: Duration = Duration::from_secs(2);

/// How often the health of the store is looked at.
pub const HEALTH_CHECK: Duration = Duration::from_millis(250);

/// How long a venue whose store failed says so on `/readyz` before the process ends.
pub const FAILURE_NOTICE: Duration = Duration::from_secs(1);

/// MCP: messages in one batch, each of which may wait for a job.
pub const MCP_BATCH_MAX: usize = 64;

/// MCP: tools or tasks on one page.
pub const MCP_PAGE_MAX: usize = 200;

/// MCP: bytes of a tool's name, as the strictest clients have it.
pub const MCP_TOOL_NAME_BYTES_MAX: usize = 64;

/// MCP: how long a client may keep the list of tools, in milliseconds. It changes with a restart.
pub const MCP_LIST_TTL_MS: i64 = 300_000;

/// MCP: how long a call waits before its answer becomes an event stream: most are done by then.
pub const MCP_STREAM_AFTER: Duration = Duration::from_secs(1);

/// MCP: the same for a call that asks for progress: instant operations are done by then.
pub const MCP_PROGRESS_AFTER: Duration = Duration::from_millis(50);

/// MCP: how long a call waits that may be answered with a task.
pub const MCP_TASK_AFTER: Duration = Duration::from_secs(1);

/// MCP: how often a client should ask for a task, in milliseconds.
pub const MCP_POLL_MS: i64 = 1_000;

/// MCP: tasks that one stream of changes may follow.
pub const MCP_LISTEN_TASKS_MAX: usize = 64;

/// MCP: how long a stream of changes lives; whoever wants more asks again.
pub const MCP_LISTEN_MAX: Duration = Duration::from_secs(3600);

/// MCP: bytes of an output that is also given as text. A model has no use for more, and it would
/// travel twice.
pub const MCP_TEXT_BYTES_MAX: usize = 256 * 1024;

/// MCP: bytes of what a job has said so far that a user is shown with its question.
pub const MCP_QUESTION_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a configuration file.
pub const CONFIG_BYTES_MAX: u64 = 1024 * 1024;

/// Most that the buffers of a connection grow to, from 8 kB: room for the head of any request, with
/// the largest token. Idle connections stay at their first 8 kB.
pub const CONNECTION_BUFFER_BYTES: usize = 64 * 1024;

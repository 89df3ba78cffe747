//! Every bound of this crate, with its reason. Those that an operator can change are settings in
//! [`crate::config`].

use std::time::Duration;

/// Nesting depth of arrays and objects in the JSON of a request.
pub const JSON_DEPTH_MAX: usize = 128;

/// Delegations in one request. Real requests carry one or two.
pub const DELEGATIONS_MAX: usize = 64;

/// Bytes of the warnings in one header. Clients and proxies commonly refuse heads of more than 8 kB.
pub const WARNINGS_BYTES_MAX: usize = 4 * 1024;

/// Bytes of one page of a history. Further records are on the next page.
pub const HISTORY_PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of a member of a job or a record that a request for brief values contains.
pub const BRIEF_VALUE_BYTES_MAX: u64 = 64 * 1024;

/// Records of a history that are read and written at a time, before other requests have their turn.
pub const HISTORY_BATCH_MAX: usize = 64;

/// Bytes of a value in an entry of a canvas list: a full page of the longest values still fits one
/// response.
pub const LISTED_VALUE_BYTES_MAX: usize = 16 * 1024;

/// Operations that the canvas health report counts one by one; the rest are counted together.
pub const QUEUE_TYPES_MAX: usize = 100;

/// Rendered jobs in the response cache. With the longest bodies they take 32 MiB.
pub const CACHED_RESPONSES_MAX: usize = 8_192;

/// Bytes of a rendered job in the response cache.
pub const CACHED_RESPONSE_BYTES_MAX: usize = 4_096;

/// Bytes of a user's name in a path.
pub const USER_NAME_BYTES_MAX: usize = 128;

/// Bytes stored for one caller, if the venue is not meant for this machine only and no quota is
/// configured: one caller cannot fill the disk of all.
pub const STORED_BYTES_BEYOND_LOOPBACK: u64 = 10 << 30;

/// Bytes stored for all callers together, if the venue is not meant for this machine only and no quota is
/// configured: whoever may make keys is as many callers as he likes.
pub const STORED_BYTES_TOTAL_BEYOND_LOOPBACK: u64 = 100 << 30;

/// Creating requests per second and caller, if the venue does not listen on loopback and no rate is
/// configured: far above what people do, far below what a runaway program does.
pub const RATE_BEYOND_LOOPBACK: f64 = 100.0;

/// How long recovery runs before a starting venue accepts requests. The rest is recovered in the
/// background.
pub const RECOVERY_AHEAD: Duration = Duration::from_millis(200);

/// Longest time between two bytes of an event stream. The Python SDK gives up after 30 s.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// How long a client may take to send the head of a request, and how long a connection may be idle
/// between two requests: long enough for connection pools, short enough to end incomplete requests.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(75);

/// Bytes of a refused body that are read and dropped, so that a client which is still sending gets to
/// read the response.
pub const DISCARD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long that may take.
pub const DISCARD_TIME_MAX: Duration = Duration::from_secs(10);

/// Time over which the rate of a body is measured.
pub const RATE_WINDOW: Duration = Duration::from_secs(30);

/// Bytes of a body that must pass in this time: 1 kB/s, slower than any network that people use.
pub const RATE_BYTES_MIN: usize = 30 * 1_000;

/// How long a request body, or the body of a response that is no event stream, may take.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(120);

/// Bytes of small values in a response that are counted at once against the memory of its caller.
pub const COUNTED_STEP_BYTES: usize = 4 * 1024;

/// Bytes of a response that is handed to the connection at once. A larger one is sent in chunks, so
/// that the connection does not buffer all of it.
pub const RESPONSE_WHOLE_BYTES_MAX: u64 = 64 * 1024;

/// Bytes of one chunk of a large response.
pub const RESPONSE_CHUNK_BYTES: usize = 64 * 1024;

/// Assumed bytes of memory for each comma in a JSON body: the handle of an item, and its share of a node. A list of digits,
/// which takes most, then fits what one caller may hold up to about 7.2 MB.
pub const DECODED_BYTES_PER_COMMA: u64 = 32;

/// The same for each opening bracket and each colon: a node of a container; an entry of a map, and half of one, which
/// sorting takes meanwhile.
pub const DECODED_BYTES_PER_NODE: u64 = 88;

/// Connections beyond [`CONNECTIONS_MAX`] that serve only probes, reads of the status and control of
/// jobs: a venue whose connections are all taken can still be observed and relieved.
pub const CONNECTIONS_RESERVED: usize = 16;

/// Open connections. Fewer if the process may not open that many file descriptors.
pub const CONNECTIONS_MAX: usize = 50_000;

/// File descriptors that are reserved for the store and for outbound requests: at least this many and
/// a quarter of all, but never more than half.
pub const DESCRIPTORS_RESERVED_MIN: usize = 64;

/// Bytes of a request ID chosen by a client. Longer ones are replaced.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

/// Verified tokens in the cache. Each takes about 300 bytes.
pub const VERIFIED_TOKENS_MAX: usize = 4_096;

/// How often the lists of members, blocked identities and revoked tokens are checked for changes.
pub const LISTS_CHECK: Duration = Duration::from_secs(2);

/// Bytes of one of these lists: a hundred thousand DIDs.
pub const LIST_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How long an event stream lasts at most. Clients reconnect with a new token.
pub const STREAM_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// How long a client may take for its TLS handshake.
pub const TLS_HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes of a file with a certificate chain or its key.
pub const TLS_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// How often the health of the store is checked.
pub const HEALTH_CHECK: Duration = Duration::from_millis(250);

/// How long a venue whose store failed reports it in `/readyz` before the process ends.
pub const FAILURE_NOTICE: Duration = Duration::from_secs(1);

/// MCP: messages in one batch, each of which may wait for a job.
pub const MCP_BATCH_MAX: usize = 64;

/// MCP: tools or tasks on one page.
pub const MCP_PAGE_MAX: usize = 200;

/// MCP: bytes of a tool's name. The strictest clients accept no more.
pub const MCP_TOOL_NAME_BYTES_MAX: usize = 64;

/// MCP: how long a client may cache the list of tools, in milliseconds. It changes only with a
/// restart.
pub const MCP_LIST_TTL_MS: i64 = 300_000;

/// MCP: the same for a list with operations to which its caller has given names, which can change at any
/// time.
pub const MCP_NAMED_TTL_MS: i64 = 5_000;

/// MCP: how long a response may take before it becomes an event stream. Most are complete by then.
pub const MCP_STREAM_AFTER: Duration = Duration::from_secs(1);

/// MCP: the same for a client that receives notifications. Inline operations are complete by then.
pub const MCP_PROGRESS_AFTER: Duration = Duration::from_millis(50);

/// MCP: how long a call waits for its job if the client accepts a task instead of a result.
pub const MCP_TASK_AFTER: Duration = Duration::from_secs(1);

/// MCP: the interval at which a client should poll a task, in milliseconds.
pub const MCP_POLL_MS: i64 = 1_000;

/// MCP: how long a call waits for what its user does at a URL, before the client is asked again.
pub const MCP_URL_WAIT: Duration = Duration::from_secs(10);

/// MCP: tasks in one subscription.
pub const MCP_LISTEN_TASKS_MAX: usize = 64;

/// MCP: how long a subscription lasts. A client can subscribe again.
pub const MCP_LISTEN_MAX: Duration = Duration::from_secs(3600);

/// MCP: notifications that are queued for a slow client. Further progress reports are dropped.
pub const MCP_NOTIFICATIONS_QUEUED_MAX: usize = 16;

/// MCP: dismissed questions that calls have not noticed yet. A call that misses one waits until its time is up.
pub const MCP_DISMISSALS_QUEUED_MAX: usize = 64;

/// MCP: bytes of an output that is also returned as text. A model has no use for more, and it would
/// be sent twice.
pub const MCP_TEXT_BYTES_MAX: usize = 256 * 1024;

/// MCP: bytes of a job's output so far that is shown to a user with the job's question.
pub const MCP_QUESTION_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a configuration file.
pub const CONFIG_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum size of a connection's read buffer: room for the head of any request, with the largest
/// token. Idle connections keep their first 8 kB.
pub const CONNECTION_BUFFER_BYTES: usize = 64 * 1024;

/// Users with whom a name is shared one by one. For more, it is shared with everyone.
pub const SHARED_WITH_MAX: usize = 256;

/// Jobs that are remembered because the process aborted while it was working on them: one per thread and
/// abort.
pub const SUSPECTS_MAX: usize = 1_000;

/// How often it is checked whether some of them have been acquitted, if there are any.
pub(crate) const SUSPECTS_CHECK: Duration = Duration::from_secs(2);

/// How often the time is noted while threads are working on jobs.
pub(crate) const WORK_TICK: Duration = Duration::from_secs(1);

/// Bytes of the name of an isolation tier.
pub const TIER_BYTES_MAX: usize = 16;

/// Isolation tiers about which an executor reports.
pub const TIERS_MAX: usize = 16;

/// Bytes of a reason that an executor gives. The rest is cut off.
pub const REASON_BYTES_MAX: usize = 1_000;

/// Bytes of one artifact of a contract job.
pub const ARTIFACT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Cells that one executor may say to run at a time.
pub const EXECUTOR_SLOTS_MAX: usize = 256;

/// Environments that one executor announces.
pub const ANNOUNCED_MAX: usize = 64;

/// Seconds for which a signed URL of an artifact can be valid: a day.
pub const URL_SECONDS_MAX: u64 = 86_400;

/// Contract jobs on one page of a list: each is read in full.
pub const CONTRACT_PAGE_MAX: usize = 200;

/// Jobs that one contract job can supersede.
pub const SUPERSEDED_MAX: usize = 100;

/// Bytes from which a JSON response is compressed: shorter ones fit in a packet.
pub const COMPRESSED_BYTES_MIN: u64 = 1_000;

/// Bytes up to which a response is compressed on a thread that other requests share: less than a
/// millisecond of work.
pub const COMPRESSED_INLINE_BYTES_MAX: u64 = 64 * 1024;

/// Requests that one HTTP/2 connection may have in progress. Each holds what a connection of HTTP/1.1
/// holds.
pub const HTTP2_STREAMS_MAX: u32 = 64;

/// Bytes of the headers of one HTTP/2 request: as many as an HTTP/1.1 connection buffers.
pub const HTTP2_HEADER_BYTES_MAX: u32 = 64 * 1024;

/// Bytes that are buffered for one HTTP/2 request, in each direction.
pub const HTTP2_BUFFER_BYTES_MAX: usize = 256 * 1024;

/// MCP: content of a resource in one result. Larger content is read over HTTP.
pub const MCP_RESOURCE_BYTES_MAX: u64 = 700_000;

/// MCP: prompts of one caller that are listed. Names are unique among them, so that all are read for a list.
pub const MCP_PROMPTS_MAX: usize = 500;

/// MCP: bytes of the messages of a prompt with its arguments inserted.
pub const MCP_PROMPT_BYTES_MAX: usize = 1024 * 1024;

/// MCP: bytes of the embedded resources of a prompt, in total.
pub const MCP_PROMPT_RESOURCES_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// MCP: memory of the definitions of named operations on one page of the list of tools, in bytes. There is at least
/// one on each page.
pub const MCP_NAMED_PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// MCP: memory of the prompts on one page of a list, in bytes. There is at least one on each page.
pub const MCP_PROMPTS_PAGE_BYTES_MAX: u64 = 1024 * 1024;

/// MCP: values that a completion suggests; the protocol allows no more.
pub const MCP_COMPLETIONS_MAX: usize = 100;

/// MCP: images, sounds and documents in the result of one call.
pub const MCP_MEDIA_MAX: usize = 16;

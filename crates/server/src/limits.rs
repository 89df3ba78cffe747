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

/// Bytes of a configuration file.
pub const CONFIG_BYTES_MAX: u64 = 1024 * 1024;

/// Most that the buffers of a connection grow to, from 8 kB: room for the head of any request, with
/// the largest token. Idle connections stay at their first 8 kB.
pub const CONNECTION_BUFFER_BYTES: usize = 64 * 1024;

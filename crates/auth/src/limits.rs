//! Every bound of this crate, with its reason.

/// Longest token that is looked at. Identity tokens have a few hundred bytes, delegations with
/// their proofs a few thousand.
pub const TOKEN_BYTES_MAX: usize = 32 * 1024;

/// Nested containers in the parts of a token.
pub const TOKEN_DEPTH_MAX: usize = 16;

/// How far clocks may disagree, in seconds.
pub const CLOCK_SKEW_SECONDS: i64 = 60;

/// How long a token holds that somebody makes for themselves, in seconds: what the published SDKs
/// use, and enough for one request whose clocks disagree.
pub const SELF_ISSUED_SECONDS: i64 = 300;

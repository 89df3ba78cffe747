//! Every bound of this crate, with its reason.

/// Longest text that is decoded as base58, in bytes. Decoding is quadratic, and keys are short.
pub const BASE58_TEXT_MAX: usize = 128;

/// Longest token that is parsed, in bytes. Identity tokens have a few hundred bytes, delegations
/// with their proofs a few thousand.
pub const TOKEN_BYTES_MAX: usize = 32 * 1024;

/// Maximum nesting depth of the JSON in the header and claims of a token.
pub const TOKEN_DEPTH_MAX: usize = 16;

/// Tolerated difference between the clocks of issuer and venue, in seconds.
pub const CLOCK_SKEW_SECONDS: i64 = 60;

/// Lifetime of a self-issued token, in seconds: the value that the published SDKs use, and enough
/// for one request between machines whose clocks differ.
pub const SELF_ISSUED_SECONDS: i64 = 300;

/// Longest lifetime of an identity token, in seconds: a stolen one is of no use afterwards. The
/// published SDKs use 300 s.
pub const IDENTITY_SECONDS_MAX: i64 = 3_600;

/// Capabilities in one delegation. Real ones have a handful.
pub const CAPABILITIES_MAX: u64 = 256;

/// Proofs of one delegation. Real ones have one.
pub const PROOFS_MAX: u64 = 8;

/// Levels of proofs below a delegation. Every level is contained in the text of the level above it,
/// so that the length of a token bounds their total.
pub const PROOF_DEPTH_MAX: usize = 8;

/// Delegations that are checked for one: itself and all on which it is based. Each costs a signature.
pub const PROOF_TOKENS_MAX: usize = 64;

/// Longest DID that a token may name, in bytes. A did:key has 56, a scoped account less than 300.
pub const DID_BYTES_MAX: usize = 512;

/// Largest age of a signed request, and largest difference of the clocks, in seconds: what Standard
/// Webhooks recommend.
pub const WEBHOOK_SECONDS_MAX: u64 = 300;

/// Signatures of one request that are tried. A venue sends one; more are for keys that change.
pub const WEBHOOK_SIGNATURES_MAX: usize = 8;

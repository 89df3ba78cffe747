//! Who asks.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use catena_auth::KeyPair;
use catena_auth::identity::self_issued;

/// How a client says who it is.
#[derive(Clone, Default)]
pub enum Credentials {
    /// Not at all.
    #[default]
    Anonymous,
    /// With a token that somebody gave it.
    Token(String),
    /// With a key of its own: a new token, for this venue and a few minutes, with every request.
    Key(Box<KeyPair>),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::Anonymous => f.write_str("anonymous"),
            Credentials::Token(_) => f.write_str("a token"),
            Credentials::Key(key) => write!(f, "{key:?}"),
        }
    }
}

/// A token for one request.
pub(super) fn token(key: &KeyPair, audience: Option<&str>) -> String {
    self_issued(key, audience, now())
}

/// Seconds since 1970.
fn now() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "a token must say when it was made")]
    let now = SystemTime::now();
    let passed = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(passed.as_secs()).unwrap_or(i64::MAX)
}

//! How a client identifies itself to a venue.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use catena_auth::KeyPair;
use catena_auth::identity::self_issued;

/// What a client authenticates with.
#[derive(Clone, Default)]
pub enum Credentials {
    /// Nothing: requests are anonymous.
    #[default]
    Anonymous,
    /// A bearer token, sent as it is.
    Token(String),
    /// A key of the client's own. Every request carries a new token that is signed with it and valid
    /// for this venue and a few minutes.
    Key(Box<KeyPair>),
}

impl Credentials {
    /// The key, if the client has one: its DID is the identity of the client.
    pub(super) fn key(&self) -> Option<&KeyPair> {
        match self {
            Credentials::Key(key) => Some(key),
            Credentials::Anonymous | Credentials::Token(_) => None,
        }
    }
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

/// Signs a token for one request. `audience` is the venue's DID, `origin` the URL that the request is
/// sent to, without a path.
pub(super) fn sign_token(key: &KeyPair, audience: &str, origin: Option<&str>) -> String {
    self_issued(key, Some(audience), origin, now())
}

/// Unix time in seconds.
fn now() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "a token contains the time of its issue")]
    let now = SystemTime::now();
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}

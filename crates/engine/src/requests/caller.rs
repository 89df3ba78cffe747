//! The identity behind a request.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use catena_auth::Token;
use catena_value::{NoCells, Value};

/// A DID, as text and as the value that records carry. The value is built once and shared.
#[derive(Clone)]
pub struct Did {
    text: Arc<str>,
    value: Value,
}

impl Did {
    /// Returns the shared text.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the value that records carry.
    pub fn value(&self) -> Value {
        self.value.clone()
    }
}

impl From<&str> for Did {
    fn from(text: &str) -> Self {
        Did { text: text.into(), value: text.into() }
    }
}

impl From<String> for Did {
    fn from(text: String) -> Self {
        Did { text: text.as_str().into(), value: text.into() }
    }
}

impl Deref for Did {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Did {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Did {}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// What separates the two identities in the name of a scoped account. A did:key contains no colon
/// after its prefix, so nobody can sign as such an account.
const SCOPE: &str = ":for:";

/// The authenticated identity behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The caller's DID.
    pub did: Did,
    /// What the caller may do with resources of others.
    pub role: Role,
    /// The delegations sent with the request that steps on other venues may present, as compact
    /// tokens. The server has verified them.
    pub delegations: Vec<String>,
}

/// What a caller may do with resources of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// No token was presented: the shared anonymous identity.
    Anonymous,
    /// A valid token was presented.
    Known,
    /// May see and control every job.
    Admin,
}

impl Caller {
    /// Creates a caller that presented a valid token.
    pub fn known(did: &str) -> Self {
        Caller { did: did.into(), role: Role::Known, delegations: Vec::new() }
    }

    /// The account of an identity that acts for a user under a delegation. Two users of one venue
    /// have two accounts.
    pub fn scoped(did: &str, user: &str) -> Self {
        Caller::known(&format!("{did}{SCOPE}{user}"))
    }

    /// The user for whom this identity acts in an account, if it is an account of this identity.
    pub fn user_of_scoped<'a>(&self, account: &'a str) -> Option<&'a str> {
        account.strip_prefix(&*self.did)?.strip_prefix(SCOPE)
    }

    /// Returns true if the caller may see and change what belongs to `owner`. That includes the
    /// accounts in which the caller itself acts for its users: a venue keeps these apart, and
    /// requests about a job that it started carry no delegations.
    pub fn may_touch(&self, owner: &str) -> bool {
        self.role == Role::Admin
            || *self.did == *owner
            || self.role == Role::Known && self.user_of_scoped(owner).is_some()
    }

    /// Returns true if the caller presented a token.
    pub fn is_authenticated(&self) -> bool {
        self.role != Role::Anonymous
    }

    /// Returns the delegations that name `venue` as their audience: those that this venue may
    /// present to others. All others are not ours to use.
    pub(crate) fn delegations_for(&self, venue: &str) -> Vec<String> {
        let names_venue = |text: &&String| {
            let Ok(token) = Token::parse(text) else { return false };
            match token.claims().field("aud") {
                Some(Value::Vector(names)) => {
                    let mut names = names.iter(&NoCells).flatten();
                    names.any(|name| name.as_str() == Some(venue))
                }
                Some(name) => {
                    // Other venues know a venue with a did:web by the did:key of its key.
                    let name = name.as_str().unwrap_or_default();
                    name == venue || venue.starts_with("did:web:") && name.starts_with("did:key:")
                }
                None => false,
            }
        };
        self.delegations.iter().filter(names_venue).cloned().collect()
    }
}

//! Who asks for something.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use catena_value::Value;

/// A DID: as text, and as the value that records carry, which is made once for all of them.
#[derive(Clone)]
pub struct Did {
    text: Arc<str>,
    value: Value,
}

impl Did {
    /// The text, shared.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The value that stands for it in records.
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

/// Who asks, as far as the venue could make sure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Their DID.
    pub did: Did,
    /// What they may do beyond their own things.
    pub role: Role,
    /// Delegations they sent along, as compact tokens, not yet believed.
    pub delegations: Vec<String>,
}

/// What somebody may do beyond their own things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nobody in particular: the identity that all share who show no token.
    Anonymous,
    /// Somebody who showed a token.
    Known,
    /// Somebody who sees and controls everybody's jobs.
    Admin,
}

impl Caller {
    /// Somebody who showed a token.
    pub fn known(did: &str) -> Self {
        Caller { did: did.into(), role: Role::Known, delegations: Vec::new() }
    }

    /// Whether they may see and change what belongs to this owner.
    pub fn may_touch(&self, owner: &str) -> bool {
        self.role == Role::Admin || *self.did == *owner
    }

    /// Whether they showed a token.
    pub fn is_authenticated(&self) -> bool {
        self.role != Role::Anonymous
    }
}

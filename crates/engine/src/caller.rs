//! Who asks for something.

use std::sync::Arc;

/// Who asks, as far as the venue could make sure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Their DID.
    pub did: Arc<str>,
    /// What they may do beyond their own things.
    pub standing: Standing,
    /// Delegations they sent along, as compact tokens, not yet believed.
    pub delegations: Vec<String>,
}

/// What somebody may do beyond their own things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
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
        Caller { did: did.into(), standing: Standing::Known, delegations: Vec::new() }
    }

    /// Whether they may see and change what belongs to this owner.
    pub fn may_touch(&self, owner: &str) -> bool {
        self.standing == Standing::Admin || *self.did == *owner
    }

    /// Whether they showed a token.
    pub fn is_authenticated(&self) -> bool {
        self.standing != Standing::Anonymous
    }
}

//! Agents as data: the record of an agent, what the framework keeps in addition, and their changes.
//!
//! An agent is one record of eight fields ([`Agent`]), which every change replaces as a whole. What else
//! the framework has to know, such as the job that runs the agent, is in a [`Control`] that changes in
//! the same commit. Both are values that share structure with what is stored, so a change loads and
//! creates the cells on the path to it, however long the timeline is.
//!
//! Everything here is a function of its arguments. The adapter that runs agents decides when to call it.

mod control;
mod merge;
mod message;
mod policy;
mod record;
mod redaction;

pub use control::{Control, RunState, WakePlan};
pub use merge::merge;
pub use message::{Message, TurnResult};
pub use policy::AgentPolicy;
pub use record::{Agent, AgentStatus};
pub use redaction::{
    SecretPath, SecretStep, find_credentials, secrets_from_value, secrets_to_value,
    without_credentials, without_secrets,
};

use catena_value::LoadError;

use crate::limits::AGENT_ID_CHARS_MAX;

/// Returns true if a text can be the ID of an agent.
pub fn is_agent_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=AGENT_ID_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Why an agent cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// A part of it cannot be loaded.
    #[error("stored data cannot be read: {0}")]
    Load(String),
    /// The stored value is not an agent.
    #[error("`{0}` of the stored agent is missing or has the wrong type")]
    Malformed(&'static str),
}

impl From<LoadError> for AgentError {
    fn from(error: LoadError) -> Self {
        AgentError::Load(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_short_plain_name() {
        for id in ["a", "Alice-2_b.c", &"x".repeat(128)] {
            assert!(is_agent_id(id), "{id}");
        }
        for id in ["", "a/b", "a b", "é", &"x".repeat(129)] {
            assert!(!is_agent_id(id), "{id}");
        }
    }
}

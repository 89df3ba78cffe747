//! The limits of agents that an operator sets.

use crate::limits::{
    AGENTS_PER_USER_MAX, CONSECUTIVE_FAILURES_MAX, INBOX_BYTES_MAX, INBOX_ENTRIES_MAX,
    TIMELINE_ENTRIES_MAX,
};

/// The limits of agents. The configuration of an agent can lower those of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentPolicy {
    /// Agents of one user.
    pub per_user: u64,
    /// Messages that wait in the inbox of one agent.
    pub inbox_entries: u64,
    /// Bytes of the messages that wait in the inbox of one agent.
    pub inbox_bytes: u64,
    /// Entries of the timeline of one agent.
    pub timeline_entries: u64,
    /// Turns that fail in a row before an agent stays suspended, unless its configuration says otherwise.
    pub failures: u64,
    /// Messages per second that one agent accepts. `None` if that is not limited.
    pub deliveries_per_second: Option<u64>,
    /// The time after which an agent without any change is terminated, in ms. `None` if it is not.
    pub idle_ms: Option<u64>,
}

impl Default for AgentPolicy {
    fn default() -> Self {
        AgentPolicy {
            per_user: AGENTS_PER_USER_MAX,
            inbox_entries: INBOX_ENTRIES_MAX,
            inbox_bytes: INBOX_BYTES_MAX,
            timeline_entries: TIMELINE_ENTRIES_MAX,
            failures: CONSECUTIVE_FAILURES_MAX,
            deliveries_per_second: None,
            idle_ms: None,
        }
    }
}

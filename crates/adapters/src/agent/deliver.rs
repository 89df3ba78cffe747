//! Delivery of a message to an inbox, within its bounds.

use catena_engine::{Failure, Roots};
use catena_job::agent::{AgentPolicy, Message, without_credentials, without_secrets};
use catena_value::{Extent, NoCells, Value};

use super::config::AgentLimits;
use super::stored::{Stored, agent_failure, load_failure};
use crate::limits::{AGENT_MESSAGE_BYTES_MAX, WORKSPACE_VALUE_DEPTH_MAX};

/// What is delivered.
pub(super) struct Delivery {
    pub(super) id: String,
    pub(super) from: String,
    pub(super) content: Value,
    pub(super) session: Option<String>,
}

/// Appends a message to the inbox of an agent.
pub(super) fn deliver(
    mut stored: Stored,
    delivery: Delivery,
    policy: &AgentPolicy,
    roots: &Roots,
) -> Result<Stored, Failure> {
    let content = without_credentials(&delivery.content);
    let content = without_secrets(&content, &stored.control.secrets);
    let bounds = Extent { bytes: AGENT_MESSAGE_BYTES_MAX, depth: WORKSPACE_VALUE_DEPTH_MAX };
    let too_large = |error| Failure::new("message_too_large", format!("the message {error}"));
    let bytes = bounds.measure(&content, &NoCells).map_err(too_large)?;
    let limits = AgentLimits::new(policy, &stored.agent.config);
    let inbox_bytes = stored.control.inbox_bytes.saturating_add(bytes);
    if stored.agent.inbox.len() >= limits.inbox_entries || inbox_bytes > limits.inbox_bytes {
        let text = format!(
            "the inbox of agent `{}` is full: it has {} messages of {} bytes, and may have {} of {}",
            stored.id,
            stored.agent.inbox.len(),
            stored.control.inbox_bytes,
            limits.inbox_entries,
            limits.inbox_bytes
        );
        return Err(Failure::transient("inbox_full", text));
    }
    let message = Message {
        id: delivery.id,
        ts: roots.now(),
        from: delivery.from,
        content,
        session: delivery.session,
    };
    stored.agent = stored.agent.deliver(&message, roots.cells()).map_err(agent_failure)?;
    stored.control.inbox_bytes = inbox_bytes;
    super::wake::message_arrived(&mut stored);
    Ok(stored)
}

/// Counts a delivery. Fails if the agent has accepted as many messages in this second as it may: as the
/// venue says, or fewer if its configuration says so.
pub(super) fn limit_rate(
    stored: &mut Stored,
    policy: &AgentPolicy,
    now: i64,
) -> Result<(), Failure> {
    let limit = AgentLimits::new(policy, &stored.agent.config).deliveries_per_second;
    let Some(limit) = limit else { return Ok(()) };
    let second = now.div_euclid(1_000);
    let counted = &mut stored.control.deliveries;
    if counted.0 != second {
        *counted = (second, 0);
    }
    if counted.1 >= limit {
        let text = format!("agent `{}` accepts {limit} messages per second", stored.id);
        let after = Some(std::time::Duration::from_secs(1));
        return Err(Failure { after, ..Failure::transient("too_fast", text) });
    }
    counted.1 += 1;
    Ok(())
}

/// Returns true if a message with this ID waits in the inbox.
pub(super) fn waits_in_inbox(stored: &Stored, id: &str, roots: &Roots) -> Result<bool, Failure> {
    let cells = roots.cells();
    for message in stored.agent.inbox.iter(cells) {
        let message = message.map_err(load_failure)?;
        let known = match message.as_map() {
            Some(map) => map.get(&"id".into(), cells).map_err(load_failure)?,
            None => None,
        };
        if known.is_some_and(|known| known.as_str() == Some(id)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the size of the messages in an inbox, in bytes.
pub(super) fn inbox_bytes(stored: &Stored, roots: &Roots) -> u64 {
    if stored.agent.inbox.is_empty() {
        return 0;
    }
    let bounds = Extent { bytes: u64::MAX, depth: usize::MAX };
    let inbox = Value::from(stored.agent.inbox.clone());
    bounds.measure(&inbox, roots.cells()).unwrap_or(0)
}

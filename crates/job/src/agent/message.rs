//! What is in an inbox and in a timeline.

use catena_value::{Map, Value, Vector};

/// A message in the inbox of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The ID that the sender or the venue gave it.
    pub id: String,
    /// When it was delivered, as Unix time in ms.
    pub ts: i64,
    /// The DID of the sender.
    pub from: String,
    /// The content.
    pub content: Value,
    /// The session that it belongs to, if any.
    pub session: Option<String>,
}

impl Message {
    /// Returns the entry of the inbox.
    pub fn to_value(&self) -> Value {
        let mut members = vec![
            ("id", Value::from(self.id.as_str())),
            ("ts", self.ts.into()),
            ("from", self.from.as_str().into()),
            ("content", self.content.clone()),
        ];
        members.extend(self.session.as_deref().map(|session| ("sessionId", session.into())));
        members.into_iter().collect::<Map>().into()
    }
}

/// A turn that succeeded.
#[derive(Debug, Clone)]
pub struct TurnResult {
    /// When it started, as Unix time in ms.
    pub start: i64,
    /// When it ended, as Unix time in ms.
    pub end: i64,
    /// The reference of the transition operation.
    pub op: String,
    /// The state that it received.
    pub state: Value,
    /// The messages that it received.
    pub messages: Vector,
    /// What it returned as result.
    pub result: Value,
    /// What it returned as state. `None` if it returned none, which leaves the state as it is.
    pub new_state: Option<Value>,
}

impl TurnResult {
    /// Returns the entry of the timeline.
    pub(super) fn entry(&self) -> Value {
        let members: [(&str, Value); 6] = [
            ("start", self.start.into()),
            ("end", self.end.into()),
            ("op", self.op.as_str().into()),
            ("state", self.state.clone()),
            ("messages", self.messages.clone().into()),
            ("result", self.result.clone()),
        ];
        members.into_iter().collect::<Map>().into()
    }
}

//! The conversations of an agent: how they are kept in its state, and which part a model receives.
//!
//! A session is `{meta: {created, updated, turns}, pending: [], frames: [{conversation: [message]}]}`, the
//! form in which clients read it. A conversation is shortened at its beginning. What is removed is
//! always complete: a tool call never loses its result, nor a result its call.

use catena_engine::Failure;
use catena_value::{Map, NoCells, Value};

use super::wire::{Message, Role, to_json};
use crate::fields::{array, integer, items, load_failure, object};
use crate::limits::{SESSION_BYTES_MAX, SESSIONS_BYTES_MAX};

/// A message with its time and origin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) message: Message,
    /// Unix time in ms.
    pub(super) ts: i64,
    /// The DID of the sender, of a message that the agent received.
    pub(super) source: Option<String>,
    bytes: usize,
}

impl Entry {
    pub(super) fn new(message: Message, ts: i64, source: Option<String>) -> Result<Entry, Failure> {
        let bytes = to_json(&message.to_value())?.len();
        Ok(Entry { message, ts, source, bytes })
    }

    fn parse(value: &Value) -> Result<Entry, Failure> {
        let member = |name: &str| value.as_map().and_then(|map| map.field(name));
        let ts = member("ts").and_then(integer).unwrap_or(0);
        let source = member("source").and_then(crate::fields::text);
        Entry::new(Message::parse(value)?, ts, source)
    }

    fn to_value(&self) -> Value {
        let message = self.message.to_value();
        let mut map = message.as_map().cloned().unwrap_or_default();
        let mut add = |name: &str, value: Value| {
            map = map.insert(name.into(), value, &NoCells).unwrap_or_else(|_| map.clone());
        };
        add("ts", self.ts.into());
        if let Some(source) = &self.source {
            add("source", source.as_str().into());
        }
        map.into()
    }
}

/// A conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct Session {
    created: i64,
    updated: i64,
    turns: i64,
    pub(super) entries: Vec<Entry>,
}

impl Session {
    /// Reads a session of a state. One that cannot be read fails the turn: it is not overwritten.
    fn parse(value: &Value) -> Result<Session, Failure> {
        let map = value.as_map();
        let meta = map.and_then(|map| map.field("meta")).and_then(Value::as_map);
        let number =
            |name: &str| meta.and_then(|meta| meta.field(name)).and_then(integer).unwrap_or(0);
        let mut entries = Vec::new();
        let frames = map.and_then(|map| map.field("frames")).and_then(Value::as_vector);
        for frame in frames.map(items).transpose()?.unwrap_or_default() {
            let conversation = frame.as_map().and_then(|map| map.field("conversation"));
            let conversation = conversation.and_then(Value::as_vector).map(items).transpose()?;
            for entry in conversation.unwrap_or_default() {
                entries.push(Entry::parse(&entry)?);
            }
        }
        Ok(Session {
            created: number("created"),
            updated: number("updated"),
            turns: number("turns"),
            entries,
        })
    }

    fn to_value(&self) -> Value {
        let meta = object([
            ("created", self.created.into()),
            ("updated", self.updated.into()),
            ("turns", self.turns.into()),
        ]);
        let conversation = self.entries.iter().map(Entry::to_value).collect();
        let frame = object([("conversation", array(conversation))]);
        object([("meta", meta), ("pending", array(Vec::new())), ("frames", array(vec![frame]))])
    }

    /// Records that the session has a turn.
    pub(super) fn begin_turn(&mut self, now: i64) {
        if self.turns == 0 {
            self.created = now;
        }
        self.updated = now;
        self.turns = self.turns.saturating_add(1);
    }

    fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// Removes the oldest parts until the conversation has at most so many bytes.
    pub(super) fn shorten(&mut self, bytes_max: usize) {
        let kept = recent(&self.entries, bytes_max);
        self.entries = kept.into_iter().cloned().collect();
    }
}

/// All conversations of an agent, by session.
#[derive(Debug, Default)]
pub(super) struct Sessions(Vec<(String, Session)>);

impl Sessions {
    /// Reads `sessions` of a state.
    pub(super) fn from_state(state: &Value) -> Result<Sessions, Failure> {
        let sessions = state.as_map().and_then(|map| map.field("sessions")).and_then(Value::as_map);
        let mut all = Vec::new();
        for (id, session) in sessions.map(Map::fields).unwrap_or_default() {
            let id = id.to_text().map(std::borrow::Cow::into_owned).unwrap_or_default();
            let session = Session::parse(session).map_err(|failure| {
                let text = format!("`state.sessions.{id}` is invalid: {}", failure.error);
                Failure::new("invalid_config", text)
            })?;
            all.push((id, session));
        }
        Ok(Sessions(all))
    }

    /// Returns a session, which is new if there was none with this ID.
    pub(super) fn get(&mut self, id: &str) -> &mut Session {
        let at = match self.0.iter().position(|(known, _)| known == id) {
            Some(at) => at,
            None => {
                self.0.push((id.to_owned(), Session::default()));
                self.0.len() - 1
            }
        };
        &mut self.0[at].1
    }

    /// Returns a state with these sessions, within the bounds of a state: a long conversation is
    /// shortened, and if all together are too large, those that were not used for longest are removed.
    pub(super) fn into_state(mut self, state: &Value) -> Result<Value, Failure> {
        for (_, session) in &mut self.0 {
            session.shorten(SESSION_BYTES_MAX);
        }
        self.0.sort_by_key(|(_, session)| session.updated);
        let mut bytes: usize = self.0.iter().map(|(_, session)| session.bytes()).sum();
        while bytes > SESSIONS_BYTES_MAX && self.0.len() > 1 {
            let (_, removed) = self.0.remove(0);
            bytes -= removed.bytes();
        }
        let sessions = self.0.iter().map(|(id, session)| (id.as_str(), session.to_value()));
        let sessions: Map = sessions.collect();
        let map = state.as_map().cloned().unwrap_or_default();
        let changed = map.insert("sessions".into(), sessions.into(), &NoCells);
        changed.map(Value::from).map_err(load_failure)
    }
}

/// Returns the most recent part of a conversation that has at most so many bytes. It begins with a
/// message that the agent received, and has every tool call together with its result. The message that the
/// agent works on is always part of it.
pub(super) fn recent(entries: &[Entry], bytes_max: usize) -> Vec<&Entry> {
    let mut left = bytes_max;
    let mut kept: Vec<&[Entry]> = Vec::new();
    let units = units(entries);
    let last_user = units.iter().rposition(|unit| unit[0].message.role == Role::User);
    for (at, unit) in units.iter().enumerate().rev() {
        let bytes: usize = unit.iter().map(|entry| entry.bytes).sum();
        match last_user {
            // The message itself is kept, without what was done for it first.
            Some(last) if bytes > left && at > last => {
                kept.push(units[last]);
                return in_order(kept);
            }
            Some(last) if at == last => {}
            _ if bytes > left => break,
            _ => {}
        }
        left = left.saturating_sub(bytes);
        kept.push(unit);
    }
    while let (Some(first), true) = (kept.last(), kept.len() > 1) {
        if first[0].message.role == Role::User {
            break;
        }
        kept.pop();
    }
    in_order(kept)
}

fn in_order(mut kept: Vec<&[Entry]>) -> Vec<&Entry> {
    kept.reverse();
    kept.into_iter().flatten().collect()
}

/// Splits a conversation into parts that are kept or removed as a whole: a message with tool calls and
/// their results are one part.
fn units(entries: &[Entry]) -> Vec<&[Entry]> {
    let mut units = Vec::new();
    let mut start = 0;
    for at in 1..=entries.len() {
        if entries.get(at).is_none_or(|entry| entry.message.role != Role::Tool) {
            units.push(&entries[start..at]);
            start = at;
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::super::wire::ToolCall;
    use super::*;

    fn entry(role: Role, text: &str) -> Entry {
        let mut message = Message::new(role, text);
        match role {
            Role::Assistant if text.starts_with("call") => {
                message.calls.push(ToolCall { id: text.to_owned(), ..ToolCall::default() });
            }
            Role::Tool => message.call_id = Some("x".to_owned()),
            _ => {}
        }
        Entry::new(message, 1, None).unwrap()
    }

    fn talk() -> Vec<Entry> {
        let mut entries = Vec::new();
        for turn in 0..4 {
            entries.push(entry(Role::User, &format!("question {turn}")));
            for step in 0..3 {
                entries.push(entry(Role::Assistant, &format!("call {turn} {step}")));
                entries.push(entry(Role::Tool, "result"));
                entries.push(entry(Role::Tool, "result"));
            }
            entries.push(entry(Role::Assistant, "answer"));
        }
        entries
    }

    #[test]
    fn shortening_never_separates_a_call_from_its_result() {
        let entries = talk();
        let all: usize = entries.iter().map(|entry| entry.bytes).sum();
        for bytes_max in 0..=all {
            let kept = recent(&entries, bytes_max);
            assert_eq!(kept[0].message.role, Role::User, "{bytes_max}");
            let mut open = 0;
            for entry in &kept {
                match entry.message.role {
                    Role::Tool => open -= 1,
                    _ => {
                        assert_eq!(open, 0, "{bytes_max}");
                        open = if entry.message.calls.is_empty() { 0 } else { 2 };
                    }
                }
            }
            assert_eq!(open, 0, "{bytes_max}");
            assert!(kept.iter().any(|entry| entry.message.text() == "question 3"), "{bytes_max}");
        }
        assert_eq!(recent(&entries, all).len(), entries.len());
        assert!(recent(&entries, all / 2).len() < entries.len());
        assert!(recent(&[], 10).is_empty());
    }

    #[test]
    fn sessions_are_read_back_from_a_state() {
        let mut sessions = Sessions::default();
        sessions.get("s").entries = talk();
        sessions.get("s").begin_turn(5);
        let state = sessions.into_state(&object([("config", 1.into())])).unwrap();
        let again = Sessions::from_state(&state).unwrap().into_state(&state).unwrap();
        assert_eq!(again, state);
        assert_eq!(state.as_map().unwrap().field("config"), Some(&1.into()));
    }

    #[test]
    fn old_sessions_make_room_for_new_ones() {
        let mut sessions = Sessions::default();
        let large = "x".repeat(SESSION_BYTES_MAX - 1_000);
        for number in 0..8 {
            let session = sessions.get(&format!("s{number}"));
            session.begin_turn(number);
            session.entries.push(entry(Role::User, &large));
        }
        let state = sessions.into_state(&Value::Nil).unwrap();
        let kept = state.as_map().unwrap().field("sessions").unwrap().as_map().unwrap();
        assert!(kept.field("s0").is_none() && kept.field("s7").is_some());
    }
}

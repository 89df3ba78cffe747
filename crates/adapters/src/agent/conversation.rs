//! Operations on the conversations that a transition keeps in `state.sessions`, and on its context.
//!
//! Nothing here is part of a run: the operations read the state as any reader of `g/<id>/sessions` does, and
//! change it, as `agent:update` does, while the agent does not run.

use catena_engine::{Call, Failure, Roots};
use catena_job::agent::{AgentPolicy, AgentStatus};
use catena_value::{Map, NoCells, Value};

use super::change::check_state;
use super::session;
use super::stored::{Stored, agent_id, load_failure};
use crate::fields::{Fields, array, integer, items, object, text};
use crate::limits::SESSION_MESSAGES_MAX;

/// Returns the state of an agent, completely in memory.
fn state(stored: &Stored, roots: &Roots) -> Result<Map, Failure> {
    let state = stored.agent.state.fully_loaded(roots.cells()).map_err(load_failure)?;
    Ok(state.as_map().cloned().unwrap_or_default())
}

fn sessions(state: &Map) -> Map {
    state.field("sessions").and_then(Value::as_map).cloned().unwrap_or_default()
}

/// Returns the messages of a session.
fn messages(session: &Value) -> Result<Vec<Value>, Failure> {
    let frames = session.as_map().and_then(|map| map.field("frames")).and_then(Value::as_vector);
    let mut all = Vec::new();
    for frame in frames.map(items).transpose()?.unwrap_or_default() {
        let conversation = frame.as_map().and_then(|map| map.field("conversation"));
        let conversation = conversation.and_then(Value::as_vector).map(items).transpose()?;
        all.extend(conversation.unwrap_or_default());
    }
    Ok(all)
}

fn is_role(message: &Value, role: &str) -> bool {
    message.as_map().and_then(|map| map.field("role")).and_then(Value::as_str) == Some(role)
}

fn number(count: usize) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}

/// Reads a conversation: the one with this ID, or the one that was used last.
pub(super) fn read(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let stored = Stored::get(roots, &agent_id(&fields, "agentId")?)?;
    let id = match fields.optional_text("sessionId")? {
        Some(id) => Some(id),
        None => session::latest(&stored, roots)?,
    };
    let known = match &id {
        Some(id) => session::find(&stored, id, roots)?,
        None => None,
    };
    let state = state(&stored, roots)?;
    let kept = id.as_deref().and_then(|id| sessions(&state).field(id).cloned());
    let (Some(id), true) = (id, known.is_some() || kept.is_some()) else {
        return Ok(object([("found", false.into()), ("messages", array(Vec::new()))]));
    };
    let all = kept.as_ref().map(messages).transpose()?.unwrap_or_default();
    let turns = fields.integer("maxTurns", 0, i64::MAX)?;
    let turns =
        turns.map_or(SESSION_MESSAGES_MAX, |turns| usize::try_from(turns).unwrap_or(usize::MAX));
    let chars = fields.integer("maxChars", 0, i64::MAX)?;
    let mut chars_left =
        chars.map_or(usize::MAX, |chars| usize::try_from(chars).unwrap_or(usize::MAX));
    let mut shown: Vec<Value> = Vec::new();
    let mut shown_turns = 0;
    for message in all.iter().rev() {
        let content = message.as_map().and_then(|map| map.field("content")).and_then(text);
        let length = content.map_or(0, |content| content.chars().count());
        if shown_turns >= turns || shown.len() >= SESSION_MESSAGES_MAX || length > chars_left {
            break;
        }
        chars_left -= length;
        shown_turns += usize::from(is_role(message, "user"));
        shown.push(message.clone());
    }
    shown.reverse();
    let member = |name: &str| known.as_ref().and_then(|known| known.field(name)).cloned();
    let mut members = vec![
        ("found", Value::from(true)),
        ("sessionId", id.into()),
        ("truncated", (shown.len() < all.len()).into()),
        ("messages", array(shown)),
        ("turnCount", number(all.iter().filter(|message| is_role(message, "user")).count())),
    ];
    for name in ["created", "updated", "title"] {
        members.extend(member(name).map(|value| (name, value)));
    }
    Ok(members.into_iter().collect::<Map>().into())
}

/// Reads an agent whose state can be changed.
fn changeable(roots: &Roots, id: &str) -> Result<Stored, Failure> {
    let stored = Stored::live(roots, id)?;
    if stored.agent.status == AgentStatus::Running {
        let text = format!("agent `{id}` is RUNNING; its state belongs to the run");
        return Err(Failure::transient("agent_running", text));
    }
    Ok(stored)
}

fn save_sessions(
    mut stored: Stored,
    state: &Map,
    sessions: Map,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<(), Failure> {
    let changed = state.insert("sessions".into(), sessions.into(), &NoCells);
    stored.agent.state = changed.map_err(load_failure)?.into();
    check_state(&stored.agent.state)?;
    stored.save(policy, roots).map(drop)
}

/// Replaces a conversation by a summary of it.
pub(super) fn compact(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let session_id = fields.text("sessionId")?;
    let summary = fields.text("summary")?;
    let stored = changeable(roots, &id)?;
    let state = state(&stored, roots)?;
    let all = sessions(&state);
    let found = all.field(&session_id).cloned();
    let found = found.ok_or_else(|| session::not_found(&session_id))?;
    let archived = messages(&found)?.iter().filter(|message| is_role(message, "user")).count();
    let message = object([
        ("role", "user".into()),
        ("content", format!("Summary of the conversation so far: {summary}").into()),
        ("ts", roots.now().into()),
    ]);
    let frame = object([("conversation", array(vec![message]))]);
    let map = found.as_map().cloned().unwrap_or_default();
    let map = map.insert("frames".into(), array(vec![frame]), &NoCells).map_err(load_failure)?;
    let all = all.insert(session_id.as_str().into(), map.into(), &NoCells);
    save_sessions(stored, &state, all.map_err(load_failure)?, policy, roots)?;
    Ok(object([
        ("agentId", id.into()),
        ("sessionId", session_id.into()),
        ("compacted", true.into()),
        ("archivedTurns", number(archived)),
        ("turnCount", 1.into()),
    ]))
}

/// Says what a session consists of. Every turn reads the configuration again, so there is nothing to reload.
pub(super) fn reload(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let session_id = fields.text("sessionId")?;
    let stored = Stored::live(roots, &id)?;
    let state = state(&stored, roots)?;
    let kept = sessions(&state).field(&session_id).cloned();
    if kept.is_none() && session::find(&stored, &session_id, roots)?.is_none() {
        return Err(session::not_found(&session_id));
    }
    let frames = kept.as_ref().and_then(Value::as_map).and_then(|map| map.field("frames"));
    let frames = frames.and_then(Value::as_vector).map_or(0, catena_value::Vector::len);
    Ok(object([
        ("agentId", id.into()),
        ("sessionId", session_id.into()),
        ("reloaded", true.into()),
        ("frames", i64::try_from(frames).unwrap_or(i64::MAX).into()),
    ]))
}

/// Removes a session and its conversation.
pub(super) fn delete(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let session_id = fields.text("sessionId")?;
    let mut stored = changeable(roots, &id)?;
    let state = state(&stored, roots)?;
    let is_known = session::forget(&mut stored, &session_id, roots)?;
    let all = sessions(&state);
    if all.field(&session_id).is_some() {
        let all = all.remove(&session_id.as_str().into(), &NoCells).map_err(load_failure)?;
        save_sessions(stored, &state, all, policy, roots)?;
    } else if is_known {
        stored.save(policy, roots)?;
    } else {
        return Err(session::not_found(&session_id));
    }
    Ok(object([("agentId", id.into()), ("sessionId", session_id.into()), ("deleted", true.into())]))
}

/// Describes what a model would be told: the system prompt, the tools, and the conversation that was used
/// last.
pub(super) fn context(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let stored = Stored::get(roots, &id)?;
    let operation = stored.agent.config.as_map().and_then(|map| map.field("operation"));
    let operation = operation.and_then(text).unwrap_or_default();
    if !matches!(operation.trim_start_matches('/'), "llm:agent" | "v/ops/llm/agent") {
        let text = format!("agent `{id}` is not driven by a model, so it has no context");
        return Err(Failure::new("no_context", text));
    }
    let state = state(&stored, roots)?;
    let config = state.field("config").and_then(Value::as_map).cloned().unwrap_or_default();
    let mut lines = Vec::new();
    lines.push("# System".to_owned());
    lines.push(config.field("systemPrompt").and_then(text).unwrap_or_default());
    if let Some(tools) = config.field("tools") {
        lines.push("\n# Tools".to_owned());
        lines.push(catena_value::json::to_string(tools).unwrap_or_default());
    }
    let all = sessions(&state);
    let updated = |session: &Value| {
        let meta = session.as_map().and_then(|map| map.field("meta")).and_then(Value::as_map);
        meta.and_then(|meta| meta.field("updated")).and_then(integer).unwrap_or(0)
    };
    let latest = all.fields().into_iter().max_by_key(|(_, session)| updated(session));
    if let Some((_, session)) = latest {
        lines.push("\n# Conversation".to_owned());
        for message in messages(session)? {
            let member = |name: &str| message.as_map().and_then(|map| map.field(name));
            let role = member("role").and_then(text).unwrap_or_default();
            lines.push(format!("{role}: {}", member("content").and_then(text).unwrap_or_default()));
        }
    }
    if let Some(task) = fields.get("task") {
        lines.push("\n# Task".to_owned());
        lines.push(
            text(task).or_else(|| catena_value::json::to_string(task).ok()).unwrap_or_default(),
        );
    }
    Ok(lines.join("\n").into())
}

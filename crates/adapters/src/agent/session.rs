//! Sessions: which conversations an agent has. What was said in them is in its state.

use catena_engine::{Call, Failure, Roots};
use catena_job::agent::AgentPolicy;
use catena_job::limits::AGENT_SESSIONS_MAX;
use catena_value::{Map, Value};

use super::stored::{Stored, agent_id, load_failure};
use crate::fields::{Fields, array, invalid_input, object};

/// Records that a message belongs to a session. Fails if the agent has no such session.
pub(super) fn touch(mut stored: Stored, session: &str, roots: &Roots) -> Result<Stored, Failure> {
    let Some(known) = find(&stored, session, roots)? else { return Err(not_found(session)) };
    let turns = known.field("turns").and_then(Value::as_i64).unwrap_or(0);
    let known = set(&known, "updated", roots.now().into())?;
    let known = set(&known, "turns", (turns + 1).into())?;
    put(&mut stored, session, known, roots)?;
    Ok(stored)
}

/// Begins a session.
pub(super) fn begin(mut stored: Stored, session: &str, roots: &Roots) -> Result<Stored, Failure> {
    if stored.control.sessions.len() >= AGENT_SESSIONS_MAX {
        let text =
            format!("agent `{}` has {AGENT_SESSIONS_MAX} sessions, which is the limit", stored.id);
        return Err(Failure::new("too_many_sessions", text));
    }
    let now = Value::from(roots.now());
    let new = [("created", now.clone()), ("updated", now), ("turns", 1.into())];
    put(&mut stored, session, new.into_iter().collect(), roots)?;
    Ok(stored)
}

pub(super) fn not_found(session: &str) -> Failure {
    Failure::new("session_not_found", format!("the agent has no session `{session}`"))
}

pub(super) fn find(stored: &Stored, session: &str, roots: &Roots) -> Result<Option<Map>, Failure> {
    let cells = roots.cells();
    let found = stored.control.sessions.get(&session.into(), cells).map_err(load_failure)?;
    let found = found.map(|found| found.loaded(cells)).transpose().map_err(load_failure)?;
    Ok(found.as_ref().and_then(Value::as_map).cloned())
}

fn set(session: &Map, name: &str, value: Value) -> Result<Map, Failure> {
    session.insert(name.into(), value, &catena_value::NoCells).map_err(load_failure)
}

fn put(stored: &mut Stored, id: &str, session: Map, roots: &Roots) -> Result<(), Failure> {
    let sessions = &stored.control.sessions;
    let changed = sessions.insert(id.into(), session.into(), roots.cells());
    stored.control.sessions = changed.map_err(load_failure)?;
    Ok(())
}

/// Returns the session that was used last. `None` if there is none.
pub(super) fn latest(stored: &Stored, roots: &Roots) -> Result<Option<String>, Failure> {
    let mut latest: Option<(i64, String)> = None;
    for entry in stored.control.sessions.iter(roots.cells()) {
        let (id, session) = entry.map_err(load_failure)?;
        let session = session.loaded(roots.cells()).map_err(load_failure)?;
        let updated = session.as_map().and_then(|map| map.field("updated")).and_then(Value::as_i64);
        let id = id.to_text().map(std::borrow::Cow::into_owned).unwrap_or_default();
        latest = latest.max(Some((updated.unwrap_or(0), id)));
    }
    Ok(latest.map(|(_, id)| id))
}

/// Removes a session from those that are known. Returns false if there is none with this ID.
pub(super) fn forget(stored: &mut Stored, id: &str, roots: &Roots) -> Result<bool, Failure> {
    let is_known = find(stored, id, roots)?.is_some();
    let changed = stored.control.sessions.remove(&id.into(), roots.cells());
    stored.control.sessions = changed.map_err(load_failure)?;
    Ok(is_known)
}

/// Lists the sessions of an agent.
pub(super) fn list(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let stored = Stored::get(roots, &agent_id(&fields, "agentId")?)?;
    let offset = fields.integer("offset", 0, i64::MAX)?.unwrap_or(0);
    let limit = fields.integer("limit", 0, 1_000)?.unwrap_or(100);
    let mut sessions = Vec::new();
    for entry in stored.control.sessions.iter(roots.cells()) {
        let (id, session) = entry.map_err(load_failure)?;
        let session = session.loaded(roots.cells()).map_err(load_failure)?;
        let map = session.as_map().cloned().unwrap_or_default();
        let member = |name: &str| map.field(name).cloned().unwrap_or_default();
        let updated = member("updated").as_i64().unwrap_or(0);
        let mut members = vec![
            ("sessionId", id),
            ("created", member("created")),
            ("updated", updated.into()),
            ("turnCount", member("turns")),
        ];
        members.extend(map.field("title").map(|title| ("title", title.clone())));
        sessions.push((updated, Value::from(members.into_iter().collect::<Map>())));
    }
    sessions.sort_by_key(|(updated, _)| std::cmp::Reverse(*updated));
    let total = i64::try_from(sessions.len()).unwrap_or(i64::MAX);
    let page = sessions.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX));
    let page: Vec<Value> =
        page.take(usize::try_from(limit).unwrap_or(0)).map(|(_, session)| session).collect();
    let count = i64::try_from(page.len()).unwrap_or(i64::MAX);
    Ok(object([
        ("sessions", array(page)),
        ("count", count.into()),
        ("total", total.into()),
        ("offset", offset.into()),
    ]))
}

/// Gives a session a title.
pub(super) fn rename(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let mut stored = Stored::live(roots, &id)?;
    let session = fields.text("sessionId")?;
    let known = find(&stored, &session, roots)?.ok_or_else(|| not_found(&session))?;
    let title = fields.optional_text("title")?;
    let renamed = match &title {
        Some(title) if title.chars().count() > 256 => {
            return Err(invalid_input("`title` has more than 256 characters"));
        }
        Some(title) => set(&known, "title", title.as_str().into())?,
        None => known.remove(&"title".into(), &catena_value::NoCells).map_err(load_failure)?,
    };
    put(&mut stored, &session, renamed, roots)?;
    stored.save(policy, roots)?;
    let mut members: Vec<(&str, Value)> =
        vec![("agentId", id.into()), ("sessionId", session.into())];
    members.extend(title.map(|title| ("title", title.into())));
    Ok(members.into_iter().collect::<Map>().into())
}

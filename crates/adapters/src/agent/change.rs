//! Operations that create agents and change what they contain.

use catena_engine::{Call, Failure, Roots};
use catena_job::agent::{Agent, AgentPolicy, AgentStatus, Control, find_credentials};
use catena_value::{Map, Value, Vector};

use super::authority::restrict;
use super::config::{described, layered_config, merged};
use super::deliver::{Delivery, deliver, limit_rate, waits_in_inbox};
use super::secrets::{public_message, transition_secrets};
use super::session;
use super::stored::{Stored, agent_id, controls};
use super::wake;
use crate::fields::{Fields, invalid_input, object};
use crate::limits::{AGENT_STATE_BYTES_MAX, WORKSPACE_VALUE_DEPTH_MAX};

/// Creates an agent, unless there is one with this ID.
pub(super) fn create(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let id = agent_id(&Fields::from_value(&call.input)?, "agentId")?;
    if let Some(stored) = Stored::find(roots, &id)? {
        return Ok(created(&id, stored.agent.status.word().into(), false));
    }
    check_count(policy, roots)?;
    let new = described(call)?;
    check_state(&new.state)?;
    refuse_credentials("config", &new.config.clone().into())?;
    refuse_credentials("state", &new.state)?;
    wake::check(&new.config.clone().into(), roots.now())?;
    let agent = Agent::new(roots.now(), new.config.into(), new.state, new.caps);
    let mut control = Control::new(roots.now());
    control.secrets = transition_secrets(call).unwrap_or_default();
    restrict(&mut control, &call.caller)?;
    let status = Stored::new(id.clone(), agent, control).save(policy, roots)?;
    Ok(created(&id, status, true))
}

fn created(id: &str, status: Value, is_new: bool) -> Value {
    object([
        ("agentId", id.into()),
        ("status", status),
        ("created", is_new.into()),
        ("updated", false.into()),
    ])
}

fn check_count(policy: &AgentPolicy, roots: &Roots) -> Result<(), Failure> {
    if controls(roots)?.len() < policy.per_user {
        return Ok(());
    }
    let text = format!("a user has at most {} agents; remove one of them", policy.per_user);
    Err(Failure::new("too_many_agents", text))
}

/// Fails if a part of the record contains credentials, which are not stored there in plaintext.
fn refuse_credentials(part: &str, value: &Value) -> Result<(), Failure> {
    let Some(name) = find_credentials(value) else { return Ok(()) };
    let text = format!(
        "`{part}` contains `{name}`, which an agent must not store; store it as a secret with `secret:set`, under \
         the name that the operation declares in `secrets`"
    );
    Err(invalid_input(text))
}

/// Fails if a state is too large.
pub(super) fn check_state(state: &Value) -> Result<(), Failure> {
    let bounds =
        catena_value::Extent { bytes: AGENT_STATE_BYTES_MAX, depth: WORKSPACE_VALUE_DEPTH_MAX };
    let measured = bounds.measure(state, &catena_value::NoCells);
    measured
        .map(drop)
        .map_err(|error| Failure::new("state_too_large", format!("the state of the agent {error}")))
}

/// Delivers a message.
pub(super) fn message(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let mut stored = Stored::live(roots, &id)?;
    let content = fields.get_nullable("message");
    let content = content.ok_or_else(|| invalid_input("`message` is missing"))?;
    let content = public_message(call, content);
    let session = fields.optional_text("sessionId")?;
    if let Some(session) = &session {
        stored = session::touch(stored, session, roots)?;
    }
    let given = fields.optional_text("messageId")?;
    let message_id = given.clone().or_else(|| call.job.map(|job| job.to_string()));
    let message_id = message_id.unwrap_or_default();
    let output = |inbox: u64| {
        let mut members = vec![
            ("agentId", Value::from(id.as_str())),
            ("delivered", true.into()),
            ("messageId", message_id.as_str().into()),
            ("inbox", i64::try_from(inbox).unwrap_or(i64::MAX).into()),
        ];
        members.extend(session.as_deref().map(|session| ("sessionId", session.into())));
        members.into_iter().collect::<Map>().into()
    };
    if given.is_some_and(|given| waits_in_inbox(&stored, &given, roots).unwrap_or(false)) {
        return Ok(output(stored.agent.inbox.len()));
    }
    let delivery = Delivery {
        id: message_id.clone(),
        from: call.caller.did.to_string(),
        content,
        session: session.clone(),
    };
    limit_rate(&mut stored, policy, roots.now())?;
    let stored = deliver(stored, delivery, policy, roots)?;
    let waiting = stored.agent.inbox.len();
    stored.save(policy, roots)?;
    Ok(output(waiting))
}

/// Changes the configuration and the state.
pub(super) fn update(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let mut stored = Stored::live(roots, &id)?;
    restrict(&mut stored.control, &call.caller)?;
    if fields.get("config").is_some() {
        let own = stored.agent.config.as_map().cloned().unwrap_or_default();
        let changes = layered_config(call)?;
        refuse_credentials("config", &changes.clone().into())?;
        stored.agent.config = merged(&own, &changes).into();
        if let Some(secrets) = transition_secrets(call) {
            stored.control.secrets = secrets;
        }
        wake::check(&stored.agent.config, roots.now())?;
        wake::config_changed(&mut stored);
    }
    if let Some(changes) = fields.get_nullable("state") {
        if stored.agent.status == AgentStatus::Running {
            let text = format!("agent `{id}` is RUNNING; its state belongs to the run");
            return Err(Failure::transient("agent_running", text));
        }
        refuse_credentials("state", changes)?;
        let state = stored.agent.state.fully_loaded(roots.cells());
        let state = state.map_err(super::stored::load_failure)?;
        stored.agent.state = match (state.as_map(), changes.as_map()) {
            (Some(own), Some(changes)) => merged(own, changes).into(),
            _ => changes.clone(),
        };
        check_state(&stored.agent.state)?;
    }
    let status = stored.save(policy, roots)?;
    Ok(object([("agentId", id.into()), ("status", status)]))
}

/// Creates a copy of an agent.
pub(super) fn fork(call: &Call, policy: &AgentPolicy, roots: &mut Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let source_id = agent_id(&fields, "sourceId")?;
    let id = agent_id(&fields, "agentId")?;
    let is_true = |name: &str| fields.get(name) == Some(&true.into());
    let source = Stored::get(roots, &source_id)?;
    let mut replaced = None;
    match Stored::find(roots, &id)? {
        Some(target) if target.agent.status == AgentStatus::Running => {
            return Err(Failure::transient("agent_running", format!("agent `{id}` is RUNNING")));
        }
        Some(_) if !is_true("overwrite") => {
            return Err(Failure::new("agent_exists", format!("there is an agent `{id}` already")));
        }
        Some(target) => {
            target.control.waiting.iter().for_each(|job| roots.offer(*job));
            replaced = Some(target.control);
        }
        None => check_count(policy, roots)?,
    }
    let config = source.agent.config.as_map().cloned().unwrap_or_default();
    let changes = layered_config(call)?;
    refuse_credentials("config", &changes.clone().into())?;
    let config = merged(&config, &changes);
    wake::check(&config.clone().into(), roots.now())?;
    let mut agent = Agent::new(roots.now(), config.into(), source.agent.state, source.agent.caps);
    agent.timeline = if is_true("includeTimeline") { source.agent.timeline } else { Vector::new() };
    let mut control = Control::new(roots.now());
    control.authority = source.control.authority;
    control.secrets = transition_secrets(call).unwrap_or(source.control.secrets);
    if let Some(replaced) = replaced {
        // The jobs that are attached are told if it was suspended.
        control.status = replaced.status;
        control.attached = replaced.attached;
    }
    restrict(&mut control, &call.caller)?;
    let status = Stored::new(id.clone(), agent, control).save(policy, roots)?;
    Ok(object([
        ("agentId", id.into()),
        ("status", status),
        ("created", true.into()),
        ("forkedFrom", source_id.into()),
    ]))
}

//! Questions of agents to people, at `h/<id>`.
//!
//! A question belongs to an agent and ends with it: it is kept with what the framework knows about the agent.
//! The owner answers it once, and the answer is a message to the agent.

use catena_engine::{Call, Failure, Roots};
use catena_job::agent::{AgentPolicy, AgentStatus, Control};
use catena_value::{Map, Value};

use super::deliver::{Delivery, deliver};
use super::stored::{Stored, agent_failure, agent_id, controls, load_failure};
use crate::fields::{Fields, array, invalid_input, object};
use crate::jobs::ask as of_jobs;
use crate::limits::AGENT_QUESTIONS_MAX;
use crate::request::{
    self, ANSWERED, CLOSED, OPEN, RequestHead, SEPARATOR, not_found, not_open, set, status_of,
};

/// Returns the agent that a question belongs to. `None` if it belongs to a job.
pub(super) fn agent_of(request: &str) -> Result<Option<&str>, Failure> {
    if of_jobs::job_of(request).is_some() {
        return Ok(None);
    }
    let (agent, _) = request.split_once(SEPARATOR).ok_or_else(|| not_found(request))?;
    Ok(Some(agent))
}

/// Returns the questions of an agent, oldest first.
fn all(control: &Control, roots: &Roots) -> Result<Vec<RequestHead>, Failure> {
    let mut all = Vec::new();
    for entry in control.requests.iter(roots.cells()) {
        let (_, request) = entry.map_err(load_failure)?;
        all.push(RequestHead::read(&request, roots.cells())?);
    }
    all.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
    Ok(all)
}

fn put(stored: &mut Stored, id: &str, request: Map, roots: &Roots) -> Result<(), Failure> {
    let changed = stored.control.requests.insert(id.into(), request.into(), roots.cells());
    stored.control.requests = changed.map_err(load_failure)?;
    Ok(())
}

/// Asks the owner of an agent a question.
pub(super) fn ask(call: &Call, policy: &AgentPolicy, roots: &mut Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let mut stored = Stored::live(roots, &id)?;
    let job = call.job.ok_or_else(|| Failure::new("needs_a_job", "a question needs a job"))?;
    let request_id = format!("{id}{SEPARATOR}{}", job.to_hex());
    let mut members = request::asked(&request_id, &fields, roots.now())?;
    make_room(&mut stored, roots)?;
    members.push(("agentId", id.as_str().into()));
    let session = fields.optional_text("sessionId")?;
    members.extend(session.map(|session| ("sessionId", session.into())));
    put(&mut stored, &request_id, members.into_iter().collect(), roots)?;
    stored.save(policy, roots)?;
    Ok(object([("agentId", id.into()), ("requestId", request_id.into()), ("status", OPEN.into())]))
}

/// Removes old questions that have been answered. Fails if too many are open.
fn make_room(stored: &mut Stored, roots: &Roots) -> Result<(), Failure> {
    let known = all(&stored.control, roots)?;
    let mut excess = (known.len() + 1).saturating_sub(AGENT_QUESTIONS_MAX);
    for head in &known {
        if excess == 0 {
            break;
        }
        if head.status != OPEN {
            let changed = stored.control.requests.remove(&head.id.as_str().into(), roots.cells());
            stored.control.requests = changed.map_err(load_failure)?;
            excess -= 1;
        }
    }
    if excess == 0 {
        return Ok(());
    }
    let text = format!(
        "{AGENT_QUESTIONS_MAX} requests of agent `{}` wait for an answer, which is the limit",
        stored.id
    );
    Err(Failure::new("too_many_requests", text))
}

/// Closes the questions of an agent that has ended.
pub(super) fn close(stored: &mut Stored, roots: &Roots) -> Result<(), Failure> {
    if stored.control.requests.is_empty() {
        return Ok(());
    }
    for head in all(&stored.control, roots)? {
        if head.status == OPEN {
            let request = set(&head.load(roots.cells())?, "status", CLOSED.into())?;
            put(stored, &head.id, request, roots)?;
        }
    }
    Ok(())
}

/// Lists the questions of agents and jobs that wait for an answer, or all.
pub(super) fn list(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let only = fields.optional_text("agentId")?;
    let includes_all = fields.get("all") == Some(&true.into());
    let is_listed = |head: &RequestHead| includes_all || head.status == OPEN;
    let mut heads = Vec::new();
    for entry in controls(roots)?.iter(roots.cells()) {
        let (id, control) = entry.map_err(load_failure)?;
        if only.as_deref().is_some_and(|only| id.to_text().as_deref() != Some(only)) {
            continue;
        }
        let control = Control::read(&control, roots.cells()).map_err(agent_failure)?;
        heads.extend(all(&control, roots)?.into_iter().filter(is_listed));
    }
    if only.is_none() {
        heads.extend(of_jobs::all(roots)?.into_iter().filter(is_listed));
    }
    let (requests, has_more) = request::oldest(heads, roots.cells())?;
    let more = has_more.then(|| ("hasMore", Value::from(true)));
    let listed: Map = [("requests", array(requests))].into_iter().chain(more).collect();
    Ok(listed.into())
}

/// Answers a question: the answer becomes a message to the agent or the job that asked.
pub(super) fn answer(
    call: &Call,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    if call.caller.is_model() {
        let text = "a model cannot answer a request to a person";
        return Err(Failure::new("forbidden", text));
    }
    let fields = Fields::from_value(&call.input)?;
    let request_id = fields.text("requestId")?;
    let answer = fields.get_nullable("answer");
    let answer = answer.ok_or_else(|| invalid_input("`answer` is missing"))?.clone();
    let Some(agent) = agent_of(&request_id)?.map(str::to_owned) else {
        return of_jobs::answer(call, &request_id, &answer, roots);
    };
    let mut stored = Stored::find(roots, &agent)?.ok_or_else(|| not_found(&request_id))?;
    let found = stored.control.requests.get(&request_id.as_str().into(), roots.cells());
    let found = found.map_err(load_failure)?.ok_or_else(|| not_found(&request_id))?;
    let request = found.fully_loaded(roots.cells()).map_err(load_failure)?;
    let request = request.as_map().cloned().unwrap_or_default();
    let status = status_of(&request);
    if status != OPEN || stored.agent.status == AgentStatus::Terminated {
        return Err(not_open(&request_id, &status));
    }
    request::check_answer(&request, &answer)?;
    let content = object([
        ("request", request_id.as_str().into()),
        ("question", request.field("question").cloned().unwrap_or_default()),
        ("answer", answer.clone()),
    ]);
    let delivery = Delivery {
        id: request_id.clone(),
        from: call.caller.did.to_string(),
        content,
        session: request.field("sessionId").and_then(crate::fields::text),
    };
    stored = deliver(stored, delivery, policy, roots)?;
    let request = request::answered(&request, answer, roots.now())?;
    put(&mut stored, &request_id, request, roots)?;
    stored.save(policy, roots)?;
    Ok(object([
        ("agentId", agent.into()),
        ("requestId", request_id.into()),
        ("status", ANSWERED.into()),
    ]))
}

//! Questions of agents to people, at `h/<id>`.
//!
//! A question belongs to an agent and ends with it: it is kept with what the framework knows about the agent.
//! The owner answers it once, and the answer is a message to the agent.

use catena_engine::{Call, Failure, Roots};
use catena_job::agent::{AgentStatus, Control};
use catena_value::{Extent, Map, NoCells, Value};

use super::deliver::{Delivery, deliver};
use super::stored::{Stored, agent_failure, agent_id, controls, load_failure};
use crate::fields::{Fields, array, integer, invalid_input, items, object};
use crate::limits::{AGENT_QUESTION_BYTES_MAX, AGENT_QUESTIONS_MAX, WORKSPACE_VALUE_DEPTH_MAX};

/// What separates the agent from the rest in the ID of a question. No agent has it in its ID.
const SEPARATOR: char = '~';

const OPEN: &str = "OPEN";
const ANSWERED: &str = "ANSWERED";
const CLOSED: &str = "CLOSED";

/// Returns the agent that a question belongs to.
pub(super) fn agent_of(request: &str) -> Result<&str, Failure> {
    let (agent, _) = request.split_once(SEPARATOR).ok_or_else(|| not_found(request))?;
    Ok(agent)
}

fn not_found(request: &str) -> Failure {
    Failure::new("request_not_found", format!("there is no request `{request}`"))
}

fn status_of(request: &Map) -> String {
    let status = request.field("status").and_then(crate::fields::text);
    status.unwrap_or_default()
}

fn set(request: &Map, name: &str, value: Value) -> Result<Map, Failure> {
    request.insert(name.into(), value, &NoCells).map_err(load_failure)
}

/// Returns the questions of an agent, oldest first.
fn all(control: &Control, roots: &Roots) -> Result<Vec<(String, Map)>, Failure> {
    let mut all = Vec::new();
    for entry in control.requests.iter(roots.cells()) {
        let (id, request) = entry.map_err(load_failure)?;
        let request = request.fully_loaded(roots.cells()).map_err(load_failure)?;
        let id = id.to_text().map(std::borrow::Cow::into_owned).unwrap_or_default();
        all.push((id, request.as_map().cloned().unwrap_or_default()));
    }
    let created = |request: &Map| request.field("created").and_then(integer).unwrap_or(0);
    all.sort_by(|(a, one), (b, other)| (created(one), a).cmp(&(created(other), b)));
    Ok(all)
}

fn put(stored: &mut Stored, id: &str, request: Map, roots: &Roots) -> Result<(), Failure> {
    let changed = stored.control.requests.insert(id.into(), request.into(), roots.cells());
    stored.control.requests = changed.map_err(load_failure)?;
    Ok(())
}

/// Asks the owner of an agent a question.
pub(super) fn ask(call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let id = agent_id(&fields, "agentId")?;
    let mut stored = Stored::live(roots, &id)?;
    let question = fields.get("question").cloned();
    let question = question.ok_or_else(|| invalid_input("`question` is missing"))?;
    let options = fields.get("options").cloned();
    let bounds = Extent { bytes: AGENT_QUESTION_BYTES_MAX, depth: WORKSPACE_VALUE_DEPTH_MAX };
    let asked = array(vec![question.clone(), options.clone().unwrap_or_default()]);
    bounds
        .measure(&asked, &NoCells)
        .map_err(|error| invalid_input(format!("the question {error}")))?;
    let job = call.job.ok_or_else(|| Failure::new("needs_a_job", "a question needs a job"))?;
    let request_id = format!("{id}{SEPARATOR}{}", job.to_hex());
    make_room(&mut stored, roots)?;
    let mut members = vec![
        ("id", Value::from(request_id.as_str())),
        ("agentId", id.as_str().into()),
        ("status", OPEN.into()),
        ("created", roots.now().into()),
        ("question", question),
    ];
    members.extend(options.map(|options| ("options", options)));
    let session = fields.optional_text("sessionId")?;
    members.extend(session.map(|session| ("sessionId", session.into())));
    put(&mut stored, &request_id, members.into_iter().collect(), roots)?;
    stored.save(roots)?;
    Ok(object([("agentId", id.into()), ("requestId", request_id.into()), ("status", OPEN.into())]))
}

/// Removes old questions that have been answered. Fails if too many are open.
fn make_room(stored: &mut Stored, roots: &Roots) -> Result<(), Failure> {
    let known = all(&stored.control, roots)?;
    let mut excess = (known.len() + 1).saturating_sub(AGENT_QUESTIONS_MAX);
    for (id, request) in &known {
        if excess == 0 {
            break;
        }
        if status_of(request) != OPEN {
            let changed = stored.control.requests.remove(&id.as_str().into(), roots.cells());
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
    for (id, request) in all(&stored.control, roots)? {
        if status_of(&request) == OPEN {
            put(stored, &id, set(&request, "status", CLOSED.into())?, roots)?;
        }
    }
    Ok(())
}

/// Lists the questions that wait for an answer, or all.
pub(super) fn list(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let only = fields.optional_text("agentId")?;
    let includes_all = fields.get("all") == Some(&true.into());
    let mut requests = Vec::new();
    for entry in controls(roots)?.iter(roots.cells()) {
        let (id, control) = entry.map_err(load_failure)?;
        if only.as_deref().is_some_and(|only| id.to_text().as_deref() != Some(only)) {
            continue;
        }
        let control = Control::read(&control, roots.cells()).map_err(agent_failure)?;
        for (_, request) in all(&control, roots)? {
            if includes_all || status_of(&request) == OPEN {
                requests.push(request);
            }
        }
    }
    let created = |request: &Map| request.field("created").and_then(integer).unwrap_or(0);
    requests.sort_by_key(created);
    Ok(object([("requests", array(requests.into_iter().map(Value::from).collect()))]))
}

/// Answers a question: the answer becomes a message to the agent.
pub(super) fn answer(call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
    if call.caller.is_model() {
        let text = "a model cannot answer a request to a person";
        return Err(Failure::new("forbidden", text));
    }
    let fields = Fields::from_value(&call.input)?;
    let request_id = fields.text("requestId")?;
    let agent = agent_of(&request_id)?.to_owned();
    let mut stored = Stored::find(roots, &agent)?.ok_or_else(|| not_found(&request_id))?;
    let found = stored.control.requests.get(&request_id.as_str().into(), roots.cells());
    let found = found.map_err(load_failure)?.ok_or_else(|| not_found(&request_id))?;
    let request = found.fully_loaded(roots.cells()).map_err(load_failure)?;
    let request = request.as_map().cloned().unwrap_or_default();
    let status = status_of(&request);
    if status != OPEN || stored.agent.status == AgentStatus::Terminated {
        let word = if status == ANSWERED { ANSWERED } else { CLOSED };
        let text = format!("request `{request_id}` is {word}");
        return Err(Failure::new("request_answered", text));
    }
    let answer = fields.get_nullable("answer");
    let answer = answer.ok_or_else(|| invalid_input("`answer` is missing"))?.clone();
    let options = request.field("options").and_then(Value::as_vector).map(items).transpose()?;
    if options.is_some_and(|options| !options.contains(&answer)) {
        return Err(invalid_input("`answer` is not one of the options of the request"));
    }
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
    stored = deliver(stored, delivery, roots)?;
    let request = set(&request, "status", ANSWERED.into())?;
    let request = set(&request, "answered", roots.now().into())?;
    let request = set(&request, "answer", answer)?;
    put(&mut stored, &request_id, request, roots)?;
    stored.save(roots)?;
    Ok(object([
        ("agentId", agent.into()),
        ("requestId", request_id.into()),
        ("status", ANSWERED.into()),
    ]))
}

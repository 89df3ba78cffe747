//! The run of an agent: what its start and its end change, and the turn between them.
//!
//! The job of a run is bound to the agent. The commit that starts the job makes the agent RUNNING and
//! fixes what the turn works on: the state, and the number of messages. The turn calls the transition.
//! The commit that ends the job, however it ends, writes what became of the agent.

use std::time::Duration;

use catena_engine::requests::CallRequest;
use catena_engine::{BoundEnd, BoundJob, BoundStart, Call, Failure, Roots};
use catena_job::Status;
use catena_job::agent::{AgentPolicy, AgentStatus, RunState, TurnResult, is_agent_id};
use catena_job::limits::WAITING_RUNS_MAX;
use catena_value::{Map, NoCells, Value, Vector};

use super::attach;
use super::authority::RunCallers;
use super::change::check_state;
use super::config::{AgentLimits, terminates_on_failures};
use super::deliver::{Delivery, deliver, inbox_bytes, limit_rate};
use super::session;
use super::stored::{
    Stored, agent_failure, agent_id, agent_not_found, agent_roots, agent_terminated, load_failure,
};
use super::wake;
use crate::failures::job_failure;
use crate::fields::{Fields, invalid_input, object};
use crate::nested;

/// The key of the call of the transition.
const TRANSITION: &str = "transition";

/// Returns the agent that a job of an operation runs or is attached to. `None` if there is none.
pub(super) fn binding(operation: &str, input: &Value) -> Option<String> {
    let fields = Fields::from_value(input).ok()?;
    let waits = match operation {
        "run" | "chat" | "attach" => true,
        "trigger" | "request" => waits_for_end(&fields),
        _ => false,
    };
    let id = fields.optional_text("agentId").ok()??;
    (waits && is_agent_id(&id)).then_some(id)
}

/// Returns true if a request waits for the end of the run, however long it takes.
fn waits_for_end(fields: &Fields<'_>) -> bool {
    let wait = fields.get("wait").is_none_or(|wait| *wait == true.into());
    wait && fields.get("timeout").is_none()
}

/// Decides whether a run starts.
pub(super) fn start(
    job: BoundJob<'_>,
    operation: &str,
    input: &Value,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<BoundStart, Failure> {
    let id = job.name;
    let Some(mut stored) = Stored::find(roots, id)? else {
        return Ok(BoundStart::Refuse(agent_not_found(id)));
    };
    if operation == "attach" {
        return attach::start(stored, job.id, policy, roots);
    }
    match stored.agent.status {
        AgentStatus::Terminated if matches!(operation, "request" | "chat") => {
            return Ok(BoundStart::Refuse(agent_terminated(id)));
        }
        AgentStatus::Terminated => return Ok(BoundStart::Fail(agent_terminated(id))),
        AgentStatus::Suspended => return Ok(BoundStart::Fail(agent_suspended(&stored))),
        AgentStatus::Sleeping | AgentStatus::Running => {}
    }
    let is_first = stored.control.waiting.first().is_none_or(|first| *first == job.id);
    if stored.control.run.is_some() || !is_first {
        return wait(stored, job, policy, roots);
    }
    let was_waiting = !stored.control.waiting.is_empty();
    stored.control.waiting.retain(|waiting| *waiting != job.id);
    match begin(stored, job, operation, input, policy, roots) {
        Ok(start) => Ok(start),
        Err(failure) => {
            // It ends, so the next one has its turn.
            if was_waiting {
                leave(job, policy, roots)?;
            }
            Ok(BoundStart::Fail(failure))
        }
    }
}

fn agent_suspended(stored: &Stored) -> Failure {
    let text = match &stored.agent.error {
        Some(error) => format!("agent `{}` is SUSPENDED: {error}", stored.id),
        None => format!("agent `{}` is SUSPENDED", stored.id),
    };
    Failure::new("agent_suspended", text)
}

/// Makes a run wait for its turn.
fn wait(
    mut stored: Stored,
    job: BoundJob<'_>,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<BoundStart, Failure> {
    let waiting = &mut stored.control.waiting;
    if waiting.contains(&job.id) {
        return Ok(BoundStart::Wait);
    }
    if waiting.len() >= WAITING_RUNS_MAX {
        let text =
            format!("{WAITING_RUNS_MAX} runs wait for agent `{}`, which is the limit", job.name);
        return Ok(BoundStart::Fail(Failure::transient("too_many_runs", text)));
    }
    waiting.push(job.id);
    stored.save(policy, roots)?;
    Ok(BoundStart::Wait)
}

/// Starts a run whose turn it is.
fn begin(
    mut stored: Stored,
    job: BoundJob<'_>,
    operation: &str,
    input: &Value,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<BoundStart, Failure> {
    let fields = Fields::from_value(input)?;
    let configured = stored.agent.config.as_map().and_then(|map| map.field("operation"));
    let configured = configured.and_then(Value::to_text).map(std::borrow::Cow::into_owned);
    let Some(op) = fields.optional_text("operation")?.or(configured) else {
        let text =
            format!("agent `{}` has no `config.operation`, and the run names none", job.name);
        return Err(Failure::new("no_transition", text));
    };
    let limits = AgentLimits::new(policy, &stored.agent.config);
    if stored.agent.timeline.len() >= limits.timeline {
        let text = format!("the timeline has {} entries, which is the limit", limits.timeline);
        stored.agent = stored.agent.suspend(Some(text.clone()));
        stored.offer_all(roots);
        stored.save(policy, roots)?;
        return Ok(BoundStart::Fail(Failure::new("timeline_full", text)));
    }
    if let Some(content) = delivered_content(operation, &fields) {
        let session = fields.optional_text("sessionId")?;
        stored = match &session {
            Some(session) => session::touch(stored, session, roots)?,
            None => session::begin(stored, &job.id.to_hex(), roots)?,
        };
        let delivery = Delivery {
            id: job.id.to_string(),
            from: job.owner.to_owned(),
            content,
            session: Some(session.unwrap_or_else(|| job.id.to_hex())),
        };
        limit_rate(&mut stored, policy, roots.now())?;
        stored = deliver(stored, delivery, policy, roots)?;
    }
    let is_woken = fields.get("wake") == Some(&true.into());
    if operation == "trigger" && is_woken && stored.agent.inbox.is_empty() {
        let content = object([("wake", true.into()), ("at", roots.now().into())]);
        let (id, from) = (job.id.to_string(), job.owner.to_owned());
        let delivery = Delivery { id, from, content, session: None };
        stored = deliver(stored, delivery, policy, roots)?;
    }
    if stored.agent.inbox.is_empty() {
        // Nothing is written, unless the run had waited.
        leave(job, policy, roots)?;
        let output = ran(job.name, AgentStatus::Sleeping, None, 0);
        return Ok(BoundStart::Complete(output));
    }
    wake::begin_run(&mut stored, roots.now());
    stored.agent.status = AgentStatus::Running;
    stored.control.run = Some(RunState {
        job: job.id,
        start: roots.now(),
        op,
        count: stored.agent.inbox.len(),
        state: stored.agent.state.clone(),
        by: fields.optional_text(attach::BY)?.and_then(|by| by.parse().ok()),
    });
    stored.save(policy, roots)?;
    Ok(BoundStart::Run)
}

/// Returns the message that a request delivers before it runs the agent.
fn delivered_content(operation: &str, fields: &Fields<'_>) -> Option<Value> {
    match operation {
        "request" => Some(fields.get_or_nil("input")),
        "chat" => Some(fields.get_or_nil("message")),
        _ => None,
    }
}

/// Removes a run from those that wait, and offers the next one.
fn leave(job: BoundJob<'_>, policy: &AgentPolicy, roots: &mut Roots) -> Result<(), Failure> {
    let Some(mut stored) = Stored::find(roots, job.name)? else { return Ok(()) };
    let Some(at) = stored.control.waiting.iter().position(|waiting| *waiting == job.id) else {
        return Ok(());
    };
    stored.control.waiting.remove(at);
    if at == 0 {
        stored.offer_next(roots);
    }
    stored.save(policy, roots).map(drop)
}

/// Writes what became of the agent when a run ends.
pub(super) fn end(
    job: BoundJob<'_>,
    end: &BoundEnd<'_>,
    policy: &AgentPolicy,
    roots: &mut Roots,
) -> Result<(), Failure> {
    let Some(mut stored) = Stored::find(roots, job.name)? else { return Ok(()) };
    if stored.control.attached.contains(&job.id) {
        return attach::end(stored, job.id, policy, roots);
    }
    let Some(run) = stored.control.run.take_if(|run| run.job == job.id) else {
        return leave(job, policy, roots);
    };
    if end.status == Status::Complete {
        stored = succeed(stored, run, end, roots)?;
        stored.offer_next(roots);
    } else {
        stored = fail(stored, end, policy);
        stored.offer_all(roots);
    }
    stored.save(policy, roots).map(drop)
}

fn succeed(
    mut stored: Stored,
    run: RunState,
    end: &BoundEnd<'_>,
    roots: &Roots,
) -> Result<Stored, Failure> {
    let call = end.calls.iter().find(|call| call.key == TRANSITION);
    let output = call.and_then(|call| call.output.as_ref());
    let (new_state, result) = transition_output(output.unwrap_or(&Value::Nil))?;
    let messages = stored.agent.inbox.slice(0..run.count, roots.cells());
    let messages = messages.map_err(load_failure)?;
    // What the transition marks as secret is not in the timeline either.
    let redacted = call.and_then(|call| call.redacted_input.as_ref());
    let (state, messages) = match redacted {
        Some(input) => redacted_turn(input, run.count),
        None => (run.state, messages),
    };
    let turn = TurnResult {
        start: run.start,
        end: roots.now().max(run.start),
        op: run.op,
        state,
        messages,
        result,
        new_state,
    };
    stored.agent = stored.agent.succeed(turn, roots.cells()).map_err(agent_failure)?;
    stored.control.failures = 0;
    stored.control.inbox_bytes = inbox_bytes(&stored, roots);
    Ok(stored)
}

/// Returns the state and the messages that a transition received, as its record shows them.
fn redacted_turn(input: &Value, count: u64) -> (Value, Vector) {
    let member = |name: &str| input.as_map().and_then(|map| map.field(name)).cloned();
    let redacted = || object([("redacted", true.into())]);
    let messages = member("messages").as_ref().and_then(Value::as_vector).cloned();
    let messages = messages.filter(|messages| messages.len() == count);
    // All of them are secret.
    let messages = messages.unwrap_or_else(|| (0..count).map(|_| redacted()).collect());
    (member("state").unwrap_or_else(redacted), messages)
}

/// Suspends an agent whose run did not complete, or terminates it if it has failed too often.
fn fail(mut stored: Stored, end: &BoundEnd<'_>, policy: &AgentPolicy) -> Stored {
    let error = end.error.map_or_else(|| format!("the run is {}", end.status), str::to_owned);
    stored.agent = stored.agent.suspend(Some(error));
    if end.status != Status::Cancelled {
        stored.control.failures = stored.control.failures.saturating_add(1);
        // What failed may contain what the agent was told, so it is in the record only.
        let (agent, failures) = (&stored.id, stored.control.failures);
        let cause = end.code.unwrap_or_else(|| end.status.as_str());
        tracing::warn!(agent, failures, cause, "a turn of an agent failed");
    }
    let limits = AgentLimits::new(policy, &stored.agent.config);
    let is_failing = stored.control.failures >= limits.failures;
    if is_failing && terminates_on_failures(&stored.agent.config) {
        stored.agent.status = AgentStatus::Terminated;
    }
    stored
}

/// Returns the state and the result that a transition returned. The state is `None` if it stays as it
/// is.
fn transition_output(output: &Value) -> Result<(Option<Value>, Value), Failure> {
    let wrong = |text: String| Failure::new("transition_failed", text);
    let Some(map) = output.as_map() else {
        let kind = output.kind();
        return Err(wrong(format!("the transition returned {kind}, not `{{state, result}}`")));
    };
    for (name, _) in map.fields() {
        if !matches!(name.as_str(), Some("state" | "result")) {
            let name = name.to_text().unwrap_or_default();
            return Err(wrong(format!(
                "the transition returned `{name}`, which is neither `state` nor `result`"
            )));
        }
    }
    let state = map.get(&"state".into(), &NoCells).map_err(load_failure)?;
    let result = map.get(&"result".into(), &NoCells).map_err(load_failure)?;
    let result = result.ok_or_else(|| wrong("the transition returned no `result`".to_owned()))?;
    Ok((state, result))
}

fn ran(id: &str, status: AgentStatus, result: Option<Value>, messages: u64) -> Value {
    let messages = i64::try_from(messages).unwrap_or(i64::MAX);
    let mut members: Vec<(&str, Value)> = vec![
        ("agentId", id.into()),
        ("status", status.word().into()),
        ("messages", messages.into()),
    ];
    members.extend(result.map(|result| ("result", result)));
    members.into_iter().collect::<Map>().into()
}

/// Executes an operation that runs an agent.
pub(super) async fn turn(call: &Call) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let Some(id) = binding(call.operation.name(), &call.input) else {
        return start_detached(call, &fields).await;
    };
    let job = call.job.ok_or_else(|| Failure::new("needs_a_job", "a run needs a recorded job"))?;
    let roots = call.host.read_roots(&call.caller, agent_roots(&id)).await?;
    let stored = Stored::get(&roots, &id)?;
    let run = stored.control.run.clone().filter(|run| run.job == job);
    let run = run.ok_or_else(|| Failure::transient("stopped", "the run was stopped"))?;
    let input = transition_input(&stored, &run, &roots)?;
    drop(roots);
    let callers = RunCallers::new(&call.caller, &stored);
    let request = CallRequest {
        job,
        caller: callers.narrowed,
        authority: Some(callers.configured),
        key: TRANSITION.to_owned(),
        operation: run.op.clone(),
        input,
        is_detached: false,
    };
    let failed = |failure: Failure| {
        let text = format!("the transition {} failed: {}", run.op, failure.error);
        Failure { code: "transition_failed".to_owned(), error: text, ..failure }
    };
    let called = call.host.call(request).await.map_err(failed)?;
    let output = nested::outcome(&called.job, called.cells()).map_err(failed)?;
    let (state, result) = transition_output(&output)?;
    if let Some(state) = &state {
        check_state(state)?;
    }
    Ok(match call.operation.name() {
        "request" => object([
            ("id", job.into()),
            ("agentId", id.into()),
            ("status", Status::Complete.into()),
            ("output", result),
            ("sessionId", session_of(&fields, job)?),
        ]),
        "chat" => {
            let session = session_of(&fields, job)?;
            let response = response_for(&result, &session);
            object([("agentId", id.into()), ("sessionId", session), ("response", response)])
        }
        _ => ran(&id, AgentStatus::Sleeping, Some(result), run.count),
    })
}

fn session_of(fields: &Fields<'_>, job: catena_job::JobId) -> Result<Value, Failure> {
    let given = fields.optional_text("sessionId")?;
    Ok(given.unwrap_or_else(|| job.to_hex()).into())
}

/// Returns what the result of a turn says to a session: its entry of `responses`, else `response`, else
/// the result itself.
fn response_for(result: &Value, session: &Value) -> Value {
    let Some(map) = result.as_map() else { return result.clone() };
    let responses = map.field("responses").and_then(Value::as_map);
    let own = responses.and_then(|responses| responses.get(session, &NoCells).ok().flatten());
    own.or_else(|| map.field("response").cloned()).unwrap_or_else(|| result.clone())
}

/// Returns what the transition receives.
fn transition_input(stored: &Stored, run: &RunState, roots: &Roots) -> Result<Value, Failure> {
    let cells = roots.cells();
    let messages = stored.agent.inbox.slice(0..run.count, cells).map_err(load_failure)?;
    let messages = Value::from(messages).fully_loaded(cells).map_err(load_failure)?;
    let state = run.state.fully_loaded(cells).map_err(load_failure)?;
    let id = stored.id.as_str();
    Ok(object([("agent-id", id.into()), ("state", state), ("messages", messages)]))
}

/// Starts a run as a job of its own, and waits for its end as long as the request says.
async fn start_detached(call: &Call, fields: &Fields<'_>) -> Result<Value, Failure> {
    let id = agent_id(fields, "agentId")?;
    let time = match (fields.get("timeout"), fields.get("wait")) {
        (Some(time), _) => crate::fields::integer(time),
        (None, Some(wait)) => crate::fields::integer(wait),
        (None, None) => None,
    };
    let Some(map) = call.input.as_map() else { return Err(invalid_input("an object is needed")) };
    let mut input = map.clone();
    for name in ["wait", "timeout"] {
        input = input.remove(&name.into(), &NoCells).map_err(load_failure)?;
    }
    let reference = call.operation.adapter_ref().to_owned();
    let mut view = nested::invoke(call, reference, input.into()).await?;
    let time = Duration::from_millis(time.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0));
    if !view.status().is_terminal() && !time.is_zero() {
        let waited = call.host.wait(&call.caller, view.job.id(), time).await;
        view = waited.map_err(job_failure)?;
    }
    if view.status().is_terminal() {
        return nested::outcome(&view.job, view.cells());
    }
    let status = Value::from(view.status());
    Ok(object([
        ("id", view.job.id().into()),
        ("agentId", id.into()),
        ("status", status),
        ("sessionId", session_of(fields, view.job.id())?),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn only_requests_that_wait_are_runs() {
        let bound = |operation: &str, input: &str| binding(operation, &value(input));
        assert_eq!(bound("run", r#"{"agentId":"a"}"#).as_deref(), Some("a"));
        assert_eq!(bound("request", r#"{"agentId":"a","wait":true}"#).as_deref(), Some("a"));
        assert_eq!(bound("request", r#"{"agentId":"a","wait":false}"#), None);
        assert_eq!(bound("request", r#"{"agentId":"a","timeout":5}"#), None);
        assert_eq!(bound("trigger", r#"{"agentId":"a","wait":100}"#), None);
        assert_eq!(bound("attach", r#"{"agentId":"a"}"#).as_deref(), Some("a"));
        assert_eq!(bound("create", r#"{"agentId":"a"}"#), None);
        assert_eq!(bound("run", r#"{"agentId":"a/b"}"#), None);
    }

    #[test]
    fn a_transition_returns_state_and_result_and_nothing_else() {
        let check = |output: &str| transition_output(&value(output)).map_err(|error| error.error);
        assert_eq!(check(r#"{"result":1}"#), Ok((None, 1.into())));
        assert_eq!(check(r#"{"state":null,"result":1}"#), Ok((Some(Value::Nil), 1.into())));
        for refused in ["1", "{}", r#"{"state":1}"#, r#"{"result":1,"response":2}"#] {
            assert!(check(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_response_is_found_in_a_result() {
        let session = Value::from("s");
        let check = |result: &str| response_for(&value(result), &session);
        assert_eq!(check(r#"{"responses":{"s":1},"response":2}"#), 1.into());
        assert_eq!(check(r#"{"response":2}"#), 2.into());
        assert_eq!(check(r#"{"seen":[]}"#), value(r#"{"seen":[]}"#));
    }
}

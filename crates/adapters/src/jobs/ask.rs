//! Questions of jobs to people: `jobs:ask` is a job that waits for the answer.
//!
//! It is bound to the requests of its owner: the request appears in the commit that starts the job and ends
//! in the commit that ends it, however it ends. A step or a call is therefore closed with everything above it.
//! The answer is a message to the job, sent in the commit that says that the request is answered.

use catena_engine::{BoundEnd, BoundJob, BoundStart, Call, Cause, Failure, RootId, Roots, Turn};
use catena_job::JobId;
use catena_job::Status;
use catena_job::state::Ask;
use catena_value::{Map, Value};

use crate::fields::{Fields, load_failure, object, text};
use crate::limits::JOB_REQUESTS_MAX;
use crate::request::{self, ANSWERED, CLOSED, OPEN, RequestHead, SEPARATOR};

/// What jobs of `ask` are bound to.
pub(super) const BINDING: &str = "requests";

/// Returns the ID of the request of a job.
pub(crate) fn id_of(job: JobId) -> String {
    format!("{SEPARATOR}{}", job.to_hex())
}

/// Returns the job of a request. `None` if it is no request of a job.
pub(crate) fn job_of(id: &str) -> Option<JobId> {
    id.strip_prefix(SEPARATOR)?.parse().ok()
}

/// Returns the requests of the owner's jobs.
fn requests(roots: &Roots) -> Result<Map, Failure> {
    let stored = roots.get(&RootId::requests())?;
    Ok(stored.and_then(Value::as_map).cloned().unwrap_or_default())
}

fn find(roots: &Roots, id: &str) -> Result<Option<Map>, Failure> {
    let found = requests(roots)?.get(&id.into(), roots.cells()).map_err(load_failure)?;
    let Some(found) = found else { return Ok(None) };
    let found = found.fully_loaded(roots.cells()).map_err(load_failure)?;
    Ok(found.as_map().cloned())
}

fn put(roots: &mut Roots, id: &str, request: Map) -> Result<(), Failure> {
    let changed = requests(roots)?.insert(id.into(), request.into(), roots.cells());
    let changed = changed.map_err(load_failure)?;
    roots.set(&RootId::requests(), Some(changed.into()))
}

/// Returns all requests that are kept, oldest first.
pub(crate) fn all(roots: &Roots) -> Result<Vec<RequestHead>, Failure> {
    let mut all = Vec::new();
    for entry in requests(roots)?.iter(roots.cells()) {
        let (_, request) = entry.map_err(load_failure)?;
        all.push(RequestHead::read(&request, roots.cells())?);
    }
    all.sort_by_key(|head| head.created);
    Ok(all)
}

/// Removes requests that have ended if there is no room. Fails if too many are open.
fn make_room(roots: &mut Roots) -> Result<(), Failure> {
    if (requests(roots)?.len() as usize) < JOB_REQUESTS_MAX {
        return Ok(());
    }
    let mut rest = requests(roots)?;
    let known = all(roots)?;
    let ended: Vec<&RequestHead> = known.iter().filter(|head| head.status != OPEN).collect();
    if ended.is_empty() {
        let text =
            format!("{JOB_REQUESTS_MAX} requests of jobs wait for an answer, which is the limit");
        return Err(Failure::new("too_many_requests", text));
    }
    // Half of them, so that not every question has to make room.
    for head in ended.iter().take(ended.len().div_ceil(2)) {
        rest = rest.remove(&head.id.as_str().into(), roots.cells()).map_err(load_failure)?;
    }
    roots.set(&RootId::requests(), Some(rest.into()))
}

/// Adds the request in the commit that starts its job.
pub(super) fn start(
    job: BoundJob<'_>,
    input: &Value,
    roots: &mut Roots,
) -> Result<BoundStart, Failure> {
    let id = id_of(job.id);
    let fields = Fields::from_value(input)?;
    let mut members = request::asked(&id, &fields, roots.now())?;
    make_room(roots)?;
    members.push(("job", job.id.into()));
    put(roots, &id, members.into_iter().collect())?;
    Ok(BoundStart::Run)
}

/// Ends the request in the commit that ends its job.
pub(super) fn end(job: BoundJob<'_>, end: &BoundEnd<'_>, roots: &mut Roots) -> Result<(), Failure> {
    let id = id_of(job.id);
    let Some(found) = find(roots, &id)? else { return Ok(()) };
    if request::status_of(&found) != OPEN {
        return Ok(());
    }
    // A message that was sent to the job itself may have answered it.
    let word = if end.status == Status::Complete { ANSWERED } else { CLOSED };
    put(roots, &id, request::set(&found, "status", word.into())?)
}

/// Executes one turn: asks, or checks what it got.
pub(super) fn turn(call: &Call) -> Turn {
    match step(call) {
        Ok(turn) => turn,
        Err(failure) => Turn::Failed(failure),
    }
}

fn step(call: &Call) -> Result<Turn, Failure> {
    let job = call.job.ok_or_else(|| Failure::new("needs_a_job", "a question needs a job"))?;
    let id = id_of(job);
    let fields = Fields::from_value(&call.input)?;
    let asked: Map = request::asked(&id, &fields, 0)?.into_iter().collect();
    let question = asked.field("question").cloned().unwrap_or_default();
    let ask = |message: Option<String>| {
        let names = ["question", "options", "schema"];
        let shown = names.into_iter().filter_map(|name| Some((name, asked.field(name)?.clone())));
        let shown: Map = shown.chain([("requestId", Value::from(id.as_str()))]).collect();
        Turn::NeedsInput(Ask { message, output: Some(shown.into()) })
    };
    let Cause::Message(message) = &call.cause else {
        return Ok(ask(text(&question).or_else(|| catena_value::json::to_string(&question).ok())));
    };
    let member = |name: &str| message.as_map().and_then(|map| map.field(name));
    let answer = member("answer").or_else(|| member("content")).unwrap_or(message).clone();
    Ok(match request::check_answer(&asked, &answer) {
        Ok(()) => Turn::Complete(object([("requestId", id.as_str().into()), ("answer", answer)])),
        Err(failure) => ask(Some(failure.error)),
    })
}

/// Answers the request of a job: the answer becomes a message to it.
pub(crate) fn answer(
    call: &Call,
    id: &str,
    answer: &Value,
    roots: &mut Roots,
) -> Result<Value, Failure> {
    let job = job_of(id).ok_or_else(|| request::not_found(id))?;
    let found = find(roots, id)?.ok_or_else(|| request::not_found(id))?;
    let status = request::status_of(&found);
    if status != OPEN {
        return Err(request::not_open(id, &status));
    }
    request::check_answer(&found, answer)?;
    let message_id = call.job.map_or_else(|| id.to_owned(), |job| job.to_hex());
    let message = [("request", Value::from(id)), ("answer", answer.clone())];
    roots.send(job, &call.caller.did, message_id, message.into_iter().collect());
    put(roots, id, request::answered(&found, answer.clone(), roots.now())?)?;
    Ok(object([("job", job.into()), ("requestId", id.into()), ("status", ANSWERED.into())]))
}

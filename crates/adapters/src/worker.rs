//! `worker`: operations that processes outside the venue run.
//!
//! **What it does:** a definition with `adapter: "worker"` names a queue. Its jobs wait there until a
//! worker claims them over `/worker/v1`; the venue itself runs nothing. A definition with a `url`
//! instead has its jobs sent there ([`push`]). The operation `step` records the result of a step of
//! such a job.
//!
//! **Cost:** nothing in this process. A waiting job is an entry in the store. A job that is sent is a
//! connection until it is answered.
//!
//! **Cancellation:** the worker is told to stop, and its result is refused. A request that is being
//! sent is closed.
//!
//! **Repetition:** a job whose worker is lost is offered again unless its definition says otherwise
//! (`recovery`), so a worker may see a job twice. Steps that were recorded are not repeated.

mod push;

use std::sync::Arc;

use catena_engine::limits::WORKER_SECRETS_MAX;
use catena_engine::operations::{
    Delivery, DeliveryFuture, Problem, QueueOwner, QueueSpec, Recovery, RunningLimit, StartRate,
    is_name, push_queue,
};
use catena_engine::{Adapter, Call, ExecutionMode, Failure, Operation, Registration, TurnFuture};
use catena_job::members::Members;
use catena_value::{NoCells, Value};

use crate::definition::{Definition, Mark, registrations};
use crate::fields::Fields;
use crate::outbound::Outbound;
use crate::secret::is_secret_name;

/// The adapter.
#[derive(Debug)]
pub(crate) struct Worker {
    outbound: Arc<Outbound>,
}

impl Worker {
    pub(crate) fn new(outbound: Arc<Outbound>) -> Self {
        Worker { outbound }
    }
}

// Operations.

const OPERATIONS: &[Definition] = &[Definition {
    name: "step",
    title: "Step of a worker",
    description: "Records the result of a step that a worker has run.",
    mode: ExecutionMode::Inline,
    marks: &[Mark::Pure, Mark::Idempotent],
    input: Some(
        r#"{"type":"object","properties":{
            "input":{"description":"What the step was given"},
            "output":{"description":"What it produced"}}}"#,
    ),
    output: Some(r#"{"description":"What the step produced"}"#),
}];

/// The name under which definitions refer to the adapter. Its jobs are queued.
const REFERENCE: &str = "worker";

// Input.

fn at(name: &str, problem: impl Into<String>) -> Problem {
    (format!("/operation/{name}"), problem.into())
}

fn parse_queue(operation: &Operation) -> Result<QueueSpec, Vec<Problem>> {
    let mut problems = Vec::new();
    let (queue, url) = parse_target(operation, &mut problems);
    let priority = match present(operation, "priority") {
        None => Some(0),
        Some(value) => value.as_i64().filter(|priority| (-10..=10).contains(priority)),
    };
    if priority.is_none() {
        problems.push(at("priority", "must be a whole number from -10 to 10"));
    }
    let limit = present(operation, "limit").and_then(|limit| parse_limit(&limit, &mut problems));
    let rate = present(operation, "rate").and_then(|rate| parse_rate(&rate, &mut problems));
    let secrets = parse_secrets(operation, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let owner = QueueOwner::Reference;
    Ok(QueueSpec { queue, url, owner, priority: priority.unwrap_or(0), limit, rate, secrets })
}

/// Reads the names of the caller's secrets that a worker gets with a job.
fn parse_secrets(operation: &Operation, problems: &mut Vec<Problem>) -> Vec<String> {
    let Some(value) = present(operation, "secrets") else { return Vec::new() };
    let name = |item: Value| item.as_str().filter(|name| is_secret_name(name)).map(str::to_owned);
    let names = value.as_vector().filter(|names| names.len() <= WORKER_SECRETS_MAX as u64);
    let names: Option<Vec<String>> =
        names.and_then(|names| names.iter(&NoCells).map(|item| name(item.ok()?)).collect());
    let mut names = names.unwrap_or_else(|| {
        let text = format!("must be an array of at most {WORKER_SECRETS_MAX} names of secrets");
        problems.push(at("secrets", text));
        Vec::new()
    });
    names.sort();
    names.dedup();
    names
}

/// Reads where the jobs go: the queue from which they are claimed, or the queue and the URL from and to
/// which they are sent.
fn parse_target(operation: &Operation, problems: &mut Vec<Problem>) -> (String, Option<String>) {
    let queue = present(operation, "queue");
    match push::parse_url(operation) {
        Some(_) if queue.is_some() => problems.push(at("url", "cannot be given with `queue`")),
        Some(Err(problem)) => problems.push(problem),
        Some(Ok(url)) => return (push_queue(url.as_str()), Some(url.to_string())),
        None => {}
    }
    let queue = queue.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    if problems.is_empty() && !is_name(&queue) {
        let text = "must name a queue: 1 to 128 letters, digits, dots, underscores or hyphens";
        problems.push(at("queue", text));
    }
    (queue, None)
}

fn present(operation: &Operation, name: &str) -> Option<Value> {
    operation.member(name).filter(|value| !value.is_nil())
}

fn parse_limit(value: &Value, problems: &mut Vec<Problem>) -> Option<RunningLimit> {
    let by = parse_by("limit", value, Members::new(&["running", "by"]), problems)?;
    let running = value.as_map()?.field("running").and_then(Value::as_i64);
    match running.and_then(|running| u32::try_from(running).ok()).filter(|running| *running > 0) {
        Some(running) => Some(RunningLimit { running, by }),
        None => {
            problems.push(at("limit/running", "must be a whole number of jobs above 0"));
            None
        }
    }
}

fn parse_rate(value: &Value, problems: &mut Vec<Problem>) -> Option<StartRate> {
    let by = parse_by("rate", value, Members::new(&["perSecond", "by"]), problems)?;
    let per_second = match value.as_map()?.field("perSecond") {
        Some(Value::Double(number)) => Some(number.get()),
        Some(number) => number.as_i64().map(|number| number as f64),
        None => None,
    };
    match per_second.filter(|number| (0.001..=1_000_000.0).contains(number)) {
        Some(per_second) => Some(StartRate { per_second, by }),
        None => {
            problems.push(at("rate/perSecond", "must be a number from 0.001 to 1000000"));
            None
        }
    }
}

/// Checks the members of a limit or a rate, and returns the path in `by`.
fn parse_by(
    name: &str,
    value: &Value,
    known: Members,
    problems: &mut Vec<Problem>,
) -> Option<Vec<Value>> {
    let fields = match Fields::from_value(value) {
        Ok(fields) => fields,
        Err(failure) => {
            problems.push(at(name, failure.error));
            return None;
        }
    };
    if let Err(failure) = fields.refuse_unknown(known) {
        problems.push(at(name, failure.error));
        return None;
    }
    let path = match fields.get("by") {
        None => return Some(Vec::new()),
        Some(path) => path.as_vector(),
    };
    let keys: Option<Vec<Value>> = path.map(|path| path.iter(&NoCells).flatten().collect());
    let is_key = |key: &Value| key.as_str().is_some() || key.as_i64().is_some();
    match keys.filter(|keys| !keys.is_empty() && keys.iter().all(is_key)) {
        Some(keys) => Some(keys),
        None => {
            let text = "must be a path into the input: names and positions, at least one";
            problems.push(at(&format!("{name}/by"), text));
            None
        }
    }
}

// Invoke.

impl Adapter for Worker {
    fn name(&self) -> &'static str {
        REFERENCE
    }

    fn description(&self) -> &'static str {
        "Operations that your own processes run: they claim jobs from a queue, or are sent them."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn default_recovery(&self) -> Option<Recovery> {
        Some(Recovery::Rerun)
    }

    fn queue(&self, operation: &Operation) -> Option<Result<QueueSpec, Vec<Problem>>> {
        (operation.adapter_ref() == REFERENCE).then(|| parse_queue(operation))
    }

    fn deliver(&self, delivery: Delivery) -> DeliveryFuture {
        let outbound = Arc::clone(&self.outbound);
        Box::pin(async move { push::deliver(&outbound, &delivery).await })
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        Ok(Fields::from_value(&call.input)?.get_or_nil("output"))
    }

    fn run(&self, _call: Call) -> TurnFuture {
        let text = "workers run recorded jobs only; invoke the operation without `private`";
        Box::pin(async move { Err(Failure::new("needs_a_job", text)).into() })
    }
}

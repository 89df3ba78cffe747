//! `contract`: jobs of the platform contract, which executors run.
//!
//! **What it does:** a contract job has a payload envelope as its input. It waits on a queue of the venue
//! for its environment until an executor claims it. `/contract/v1` creates such jobs; invoking the
//! operation directly works too, without a comparison with earlier jobs.
//!
//! **Cost:** nothing in this process. A waiting job is an entry in the store.
//!
//! **Cancellation:** the executor is told to stop, and its result is refused.
//!
//! **Repetition:** a job whose executor is lost is offered again, three attempts in all. Cells have no
//! effects outside of their folder, so that is safe.

use std::sync::Arc;

use catena_engine::operations::{
    Environments, Placement, Problem, QueueOwner, QueueSpec, Recovery,
};
use catena_engine::{Adapter, Call, ExecutionMode, Failure, Operation, Registration, TurnFuture};
use catena_job::Job;
use catena_job::contract::envelope::payload;
use catena_job::contract::{ENV_VERSION, EXECUTION_KEY, Envelope, INPUT_HASH, JobType, Plan};
use catena_value::{Map, NoCells, Value};

use crate::definition::{Definition, Mark, parse_constant, registrations};

/// The adapter.
#[derive(Debug, Clone)]
pub(crate) struct Contract {
    policy: CodePolicy,
}

/// What the operator has decided about jobs that run code.
#[derive(Debug, Clone)]
pub(crate) struct CodePolicy {
    /// The highest limits.
    pub(crate) plan: Plan,
    /// The kind of environment that is used if a job names none.
    pub(crate) default_environment: Arc<str>,
}

impl Contract {
    pub(crate) fn new(policy: CodePolicy) -> Contract {
        Contract { policy }
    }
}

// Operations.

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "object_execute",
        title: "Execute an object",
        description: "Executes a compute-capable object, such as a Python cell, in a sandbox.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["job_type","inputs"],"properties":{
            "job_type":{"const":"object_execute","description":"What the job does"},
            "inputs":{"type":"object","description":"The object and what it depends on"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","properties":{
            "result_json":{"description":"What the entrypoint returned"},
            "stdout":{"type":"string","description":"What was written to stdout"},
            "stderr":{"type":"string","description":"What was written to stderr"}}}"#,
        ),
    },
    Definition {
        name: "object_render",
        title: "Render an object",
        description: "Renders a formula as SVG or PNG, in a sandbox.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["job_type","inputs"],"properties":{
            "job_type":{"const":"object_render","description":"What the job does"},
            "inputs":{"type":"object","description":"The object with its source"}}}"#,
        ),
        output: Some(RENDERED),
    },
    Definition {
        name: "document_export",
        title: "Export a document",
        description: "Exports a document as PDF or HTML, in a sandbox.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["job_type","inputs"],"properties":{
            "job_type":{"const":"document_export","description":"What the job does"},
            "inputs":{"type":"object","description":"The document, the format and the view"}}}"#,
        ),
        output: Some(RENDERED),
    },
    Definition {
        name: "thumbnail_generate",
        title: "Generate a thumbnail",
        description: "Draws an image, the first page of a PDF, a document or a formula in a small size, in a sandbox.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["job_type","inputs"],"properties":{
            "job_type":{"const":"thumbnail_generate","description":"What the job does"},
            "inputs":{"type":"object","description":"What is drawn, and its size"}}}"#,
        ),
        output: Some(RENDERED),
    },
];

/// The output of jobs that render: everything is in their artifacts.
const RENDERED: &str = r#"{"type":"object","properties":{
    "stdout":{"type":"string","description":"Empty"},
    "stderr":{"type":"string","description":"Empty"}}}"#;

/// The queue of jobs that can run in any version of the default environment.
pub(crate) const DEFAULT_QUEUE: &str = "exec.default";

// Input.

/// The registrations of operations that executors run: those of their adapter, with three attempts in
/// all if the platform is at fault.
pub(crate) fn executor_registrations(
    adapter: &str,
    definitions: &[Definition],
) -> Vec<Registration> {
    let retry = parse_constant(r#"{"attempts":3,"backoffMs":200,"on":["INTERNAL_ERROR"]}"#);
    let with = |map: &Map, name: &str, value: Value| {
        map.insert(name.into(), value, &NoCells).unwrap_or_else(|_| map.clone())
    };
    let with_retry = |mut registration: Registration| {
        let metadata = registration.metadata.as_map().cloned().unwrap_or_default();
        let operation = metadata.field("operation").and_then(Value::as_map).cloned();
        let operation = with(&operation.unwrap_or_default(), "retry", retry.clone());
        registration.metadata = with(&metadata, "operation", operation.into()).into();
        registration
    };
    registrations(adapter, definitions).into_iter().map(with_retry).collect()
}

/// How the jobs of executors are queued.
pub(crate) fn executor_queue() -> QueueSpec {
    QueueSpec {
        url: None,
        queue: DEFAULT_QUEUE.to_owned(),
        owner: QueueOwner::Venue,
        priority: 0,
        limit: None,
        rate: None,
        secrets: Vec::new(),
    }
}

/// The queue of jobs for one version of an environment.
pub(crate) fn queue_of(version: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '.' };
    format!("exec.{}", version.chars().map(plain).collect::<String>())
}

fn read(input: &Value, plan: &Plan) -> Result<Envelope, String> {
    let map = input.as_map().ok_or("the input must be a payload envelope")?;
    Envelope::read(map, plan).map_err(|error| format!("{}: {}", error.code, error.message))
}

/// Why jobs of a type have no environment.
pub(crate) fn no_environment(environments: &Environments, job_type: JobType) -> String {
    if job_type != JobType::ObjectExecute {
        return "no executor of this venue renders".to_owned();
    }
    let reason = environments.unavailable();
    let reason = reason.unwrap_or_else(|| "no executor has announced an environment".to_owned());
    format!("code cannot run on this venue: {reason}")
}

// Output.

/// The payload of a job for its executor.
fn payload_of(job: &Job, input: &Value, plan: Plan) -> Option<Value> {
    let envelope = read(input, &plan.accepting()).ok()?;
    let text = |name: &str| job.field(name).and_then(Value::as_str);
    let keyed = envelope.keyed(text(ENV_VERSION).unwrap_or_default());
    let caller = text("caller").unwrap_or_default();
    Some(payload(&keyed.members, job.id(), job.created(), caller, text(EXECUTION_KEY)))
}

// Execution.

impl Adapter for Contract {
    fn name(&self) -> &'static str {
        "contract"
    }

    fn description(&self) -> &'static str {
        "Jobs of the platform contract, which executors run in a sandbox."
    }

    fn operations(&self) -> Vec<Registration> {
        executor_registrations(self.name(), OPERATIONS)
    }

    fn default_recovery(&self) -> Option<Recovery> {
        Some(Recovery::Rerun)
    }

    fn queue(&self, _operation: &Operation) -> Option<Result<QueueSpec, Vec<Problem>>> {
        Some(Ok(executor_queue()))
    }

    fn place(
        &self,
        _operation: &Operation,
        input: &Value,
        environments: &Environments,
    ) -> Result<Placement, String> {
        let envelope = read(input, &self.policy.plan)?;
        let profile = envelope.job_type.profile(&self.policy.default_environment);
        let environment = match &envelope.env_version {
            Some(version) => environments.get(version),
            None => environments.newest(profile),
        };
        let environment =
            environment.ok_or_else(|| no_environment(environments, envelope.job_type))?;
        let keyed = envelope.keyed(&environment.version);
        Ok(Placement {
            queue: queue_of(&environment.version),
            priority: envelope.priority.level(),
            members: vec![
                (EXECUTION_KEY, keyed.execution_key.into()),
                (INPUT_HASH, keyed.input_hash.into()),
                (ENV_VERSION, environment.version.into()),
            ],
        })
    }

    fn worker_input(&self, _operation: &Operation, job: &Job, input: Value) -> Value {
        payload_of(job, &input, self.policy.plan).unwrap_or(input)
    }

    fn run(&self, _call: Call) -> TurnFuture {
        Box::pin(async move { Err(needs_a_job()).into() })
    }
}

/// The failure of a job that is not recorded: executors claim recorded ones.
pub(crate) fn needs_a_job() -> Failure {
    let text = "executors run recorded jobs only; invoke the operation without `private`";
    Failure::new("needs_a_job", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_a_plain_name() {
        assert_eq!(queue_of("py-bare@0123456789ab"), "exec.py-bare.0123456789ab");
        assert!(catena_engine::operations::is_name(&queue_of("py bare@1/2")));
    }

    #[test]
    fn a_job_has_three_attempts_if_the_platform_fails() {
        for registration in executor_registrations("contract", OPERATIONS) {
            let operation = registration.metadata.as_map().unwrap().field("operation").unwrap();
            let retry = operation.as_map().unwrap().field("retry").unwrap().as_map().unwrap();
            assert_eq!(retry.field("attempts").and_then(Value::as_i64), Some(3));
        }
    }
}

//! `exec`: runs code and renders in a sandbox.
//!
//! **What it does:** `exec:python` runs a Python module and then, if there is one, its entrypoint. `exec:render`,
//! `exec:export` and `exec:thumbnail` make images and documents. The job waits on a queue of the venue until an
//! executor claims it, as contract jobs do.
//!
//! **Cost:** nothing in this process. An executor takes a few milliseconds and what the code takes.
//!
//! **Cancellation:** the executor is told to stop, and its result is refused.
//!
//! **Repetition:** a job whose executor is lost is offered again, three attempts in all. Code has no
//! effects outside of its folder, so that is safe.

use catena_engine::operations::{Environments, Placement, Problem, QueueSpec, Recovery};
use catena_engine::{Adapter, Call, ExecutionMode, Operation, Registration, TurnFuture};
use catena_job::Job;
use catena_job::contract::cell::{CellPlan, payload_of_code};
use catena_job::contract::envelope::{Limits, payload};
use catena_job::contract::render::payload_of_rendering;
use catena_job::contract::{ContractError, ENV_VERSION, JobType, Plan, Priority};
use catena_value::{Map, NoCells, Value};

use crate::contract::{
    CodePolicy, executor_queue, executor_registrations, needs_a_job, no_environment, queue_of,
};
use crate::definition::{Definition, Mark};

/// The adapter.
#[derive(Debug, Clone)]
pub(crate) struct Exec {
    policy: CodePolicy,
}

impl Exec {
    pub(crate) fn new(policy: CodePolicy) -> Exec {
        Exec { policy }
    }
}

// Operations.

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "python",
        title: "Run Python",
        description: "Runs Python code in a sandbox and returns its result, its output and its files.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["code"],"properties":{
            "code":{"type":"string","description":"The source of the module"},
            "entrypoint":{"type":["string","null"],"description":"The function that is called after the body: `main` if there is one by default, null for none"},
            "parameters":{"type":["object","null"],"description":"The keyword arguments of the entrypoint"},
            "datasets":{"type":["array","null"],"description":"Uploaded data that the code reads below inputs/: digests, or objects with digest and name"},
            "limits":{"type":["object","null"],"description":"timeout_ms, cpu_ms, memory_mb, max_output_kb, max_artifacts"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","properties":{
            "result":{"description":"What the entrypoint returned"},
            "stdout":{"type":"string","description":"What was written to stdout"},
            "stderr":{"type":"string","description":"What was written to stderr"},
            "artifacts":{"type":"array","description":"The files that the code left in its folder"}}}"#,
        ),
    },
    Definition {
        name: "render",
        title: "Render a formula",
        description: "Renders LaTeX or Typst as SVG or PNG in a sandbox.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","properties":{
            "latex":{"type":["string","null"],"description":"A formula"},
            "typst":{"type":["string","null"],"description":"A source of Typst, instead of a formula"},
            "display":{"type":["boolean","null"],"description":"Whether the formula is set as a display: true by default"},
            "formats":{"type":["array","null"],"description":"svg, png: svg by default"},
            "options":{"type":["object","null"],"description":"scale (1 to 8), color, background, font_size"},
            "limits":{"type":["object","null"],"description":"timeout_ms, cpu_ms, memory_mb, max_output_kb, max_artifacts"}}}"#,
        ),
        output: Some(FILES),
    },
    Definition {
        name: "export",
        title: "Export a document",
        description: "Exports a document of blocks as PDF or HTML in a sandbox.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["document"],"properties":{
            "document":{"type":"object","description":"title, authors, lang and blocks"},
            "format":{"type":["string","null"],"description":"pdf or html: pdf by default"},
            "view_mode":{"type":["string","null"],"description":"document or slide: document by default"},
            "include_speaker_notes":{"type":["boolean","null"],"description":"Whether notes are part of the output"},
            "limits":{"type":["object","null"],"description":"timeout_ms, cpu_ms, memory_mb, max_output_kb, max_artifacts"}}}"#,
        ),
        output: Some(FILES),
    },
    Definition {
        name: "thumbnail",
        title: "Generate a thumbnail",
        description: "Draws an image, the first page of a PDF, a document or a formula in a small size in a sandbox.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["width","height"],"properties":{
            "digest":{"type":["string","null"],"description":"An image or a PDF of the caller"},
            "document":{"type":["object","null"],"description":"A document, instead of a digest"},
            "object":{"type":["object","null"],"description":"A formula, instead of a digest"},
            "width":{"type":"integer","description":"16 to 2048 pixels"},
            "height":{"type":"integer","description":"16 to 2048 pixels"},
            "fit":{"type":["string","null"],"description":"contain or cover: contain by default"},
            "limits":{"type":["object","null"],"description":"timeout_ms, cpu_ms, memory_mb, max_output_kb, max_artifacts"}}}"#,
        ),
        output: Some(FILES),
    },
];

/// The output of operations that make files.
const FILES: &str = r#"{"type":"object","properties":{
    "artifacts":{"type":"array","description":"The files that were made, with their digests"}}}"#;

/// What an operation does, by its reference.
fn job_type_of(operation: &Operation) -> JobType {
    match operation.adapter_ref() {
        "exec:render" => JobType::ObjectRender,
        "exec:export" => JobType::DocumentExport,
        "exec:thumbnail" => JobType::ThumbnailGenerate,
        _ => JobType::ObjectExecute,
    }
}

// Input.

/// The payload that an input stands for.
fn payload_members(job_type: JobType, input: &Map) -> Result<Map, ContractError> {
    match job_type {
        JobType::ObjectExecute => payload_of_code(input),
        _ => payload_of_rendering(job_type, input),
    }
}

/// Checks an input completely, as an executor will read it.
fn check(job_type: JobType, input: &Value, plan: &Plan) -> Result<Map, String> {
    let text = |error: ContractError| error.message;
    let map = input.as_map().ok_or("the input must be an object")?;
    let members = payload_members(job_type, map).map_err(text)?;
    let limits = members.field("limits").and_then(Value::as_map).cloned().unwrap_or_default();
    Limits::read(&limits, plan).map_err(text)?;
    if job_type == JobType::ObjectExecute {
        CellPlan::read(&members.clone().into()).map_err(text)?;
    }
    Ok(members)
}

// Output.

/// The payload of a job for its executor.
fn payload_of(operation: &Operation, job: &Job, input: &Value, plan: Plan) -> Option<Value> {
    let mut members = payload_members(job_type_of(operation), input.as_map()?).ok()?;
    let given = members.field("limits").and_then(Value::as_map).cloned().unwrap_or_default();
    let limits = Limits::read(&given, &plan.accepting()).ok()?;
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let limits: Map =
        limits.members().map(|(name, limit)| (name, number(limit))).into_iter().collect();
    members = members.insert("limits".into(), limits.into(), &NoCells).ok()?;
    let text = |name: &str| job.field(name).and_then(Value::as_str);
    if let Some(version) = text(ENV_VERSION) {
        let environment = members.field("environment")?.as_map()?;
        let environment =
            environment.insert("env_version".into(), version.into(), &NoCells).ok()?;
        members = members.insert("environment".into(), environment.into(), &NoCells).ok()?;
    }
    // The executor returns what this operation promises.
    members = members.insert("operation".into(), operation.adapter_ref().into(), &NoCells).ok()?;
    Some(payload(&members, job.id(), job.created(), text("caller").unwrap_or_default(), None))
}

// Execution.

impl Adapter for Exec {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn description(&self) -> &'static str {
        "Runs code in a sandbox, in processes of its own."
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
        operation: &Operation,
        input: &Value,
        environments: &Environments,
    ) -> Result<Placement, String> {
        let job_type = job_type_of(operation);
        check(job_type, input, &self.policy.plan)?;
        let profile = job_type.profile(&self.policy.default_environment);
        let environment = environments.newest(profile);
        let environment = environment.ok_or_else(|| no_environment(environments, job_type))?;
        Ok(Placement {
            queue: queue_of(&environment.version),
            priority: Priority::Normal.level(),
            members: vec![(ENV_VERSION, environment.version.into())],
        })
    }

    fn worker_input(&self, operation: &Operation, job: &Job, input: Value) -> Value {
        payload_of(operation, job, &input, self.policy.plan).unwrap_or(input)
    }

    fn run(&self, _call: Call) -> TurnFuture {
        Box::pin(async move { Err(needs_a_job()).into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn an_input_is_checked_before_the_job_waits() {
        let check = |text: &str| check(JobType::ObjectExecute, &value(text), &Plan::default());
        assert!(check(r#"{"code":"print(1)","parameters":{"x":1}}"#).is_ok());
        for (wrong, part) in [
            (r#"{"code":"","limits":{"memory_mb":5000}}"#, "limits.memory_mb"),
            (r#"{"code":"","entrypoint":"a b"}"#, "entrypoint"),
            (r#"{"code":"","datasets":["x"]}"#, "datasets.0"),
        ] {
            let error = check(wrong).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}

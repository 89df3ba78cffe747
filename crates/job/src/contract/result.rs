//! The result envelope of a job, as the contract defines it, from its fold.
//!
//! Before the end it has the members that are known so far. A job that is no contract job has its
//! operation as job type and a null identity.

use catena_value::{Map, Value};

use super::envelope::RENDER_PROFILE;
use super::error::{Category, ContractError};
use super::read::{format_time, object, present, text};
use super::{ENV_VERSION, EXECUTION_KEY, INPUT_HASH, SCHEMA_VERSION};
use crate::chain::Job;
use crate::state::Status;
use crate::vocabulary::ContractStatus;

/// The identity that a contract job has.
const IDENTITY: [&str; 4] = ["workspace_id", "project_id", "document_id", "document_revision_id"];

/// A job and its large members, completely in memory.
#[derive(Debug, Clone)]
pub struct JobResult<'a> {
    /// The fold.
    pub job: &'a Job,
    /// Its status in the contract.
    pub status: ContractStatus,
    /// Its input.
    pub input: Value,
    /// Its output.
    pub output: Option<Value>,
    /// What its terminal record says about the execution.
    pub execution: Option<Value>,
    /// Its last progress report.
    pub progress: Option<Value>,
}

impl JobResult<'_> {
    /// Returns the envelope.
    pub fn to_value(&self) -> Value {
        let job = self.job;
        let input = self.input.as_map().filter(|_| is_contract_job(job));
        let mut members = vec![
            ("schema_version", Value::from(SCHEMA_VERSION)),
            ("job_id", job.id().to_uuid().into()),
            ("job_type", job_type(job, input)),
            ("status", self.status.as_str().into()),
            ("created_at", format_time(job.created()).into()),
            ("attempt", job.attempt().into()),
            ("head", job.head().to_string().into()),
        ];
        let given = |name: &str| input.and_then(|input| input.field(name)).cloned();
        for name in IDENTITY {
            members.push((name, given(name).unwrap_or_default()));
        }
        members.extend(self.target(input));
        for (name, member) in [("execution_key", EXECUTION_KEY), ("input_hash", INPUT_HASH)] {
            members.push((name, job.field(member).cloned().unwrap_or_default()));
        }
        members.push(("priority", given("priority").unwrap_or_else(|| "normal".into())));
        members.push(("parameters", parameters(input)));
        members.push(("dependencies", dependencies(input)));
        members.extend(self.executed());
        members.extend(self.progress.clone().map(|progress| ("progress", progress)));
        members.extend(self.error().map(|error| ("error", error)));
        if self.status == ContractStatus::Cancelled {
            let reason = job.field("error").and_then(Value::to_text).unwrap_or_default();
            let reason = reason.strip_prefix("Job cancelled: ").unwrap_or(&reason);
            members.push(("reason", reason.into()));
        }
        object(members)
    }

    fn target(&self, input: Option<&Map>) -> Vec<(&'static str, Value)> {
        let target = input.and_then(|input| input.field("target")).and_then(Value::as_map);
        let member = |name: &'static str| Some((name, present(target?, name)?.clone()));
        let found: Vec<_> = ["object_id", "object_ids"].into_iter().filter_map(member).collect();
        if found.is_empty() { vec![("object_id", Value::Nil)] } else { found }
    }

    /// The members that the executor knows.
    fn executed(&self) -> Vec<(&'static str, Value)> {
        let execution = self.execution.as_ref().and_then(Value::as_map);
        let member = |name: &str| execution.and_then(|map| present(map, name)).cloned();
        let mut members = Vec::new();
        for name in [
            "started_at",
            "finished_at",
            "duration_ms",
            "resource_usage",
            "limits",
            "tier",
            "executor",
            "logs_dropped",
        ] {
            members.extend(member(name).map(|value| (name, value)));
        }
        members.push(("environment", member("environment").unwrap_or_else(|| self.environment())));
        let outputs = member("outputs")
            .or_else(|| self.output.clone())
            .filter(|_| is_contract_job(self.job) && self.status.is_terminal());
        let outputs = outputs.filter(|outputs| outputs.as_map().is_some());
        members.push(("outputs", outputs.unwrap_or_else(|| Map::new().into())));
        let list = |name: &str| member(name).unwrap_or_else(|| catena_value::Vector::new().into());
        members.push(("artifacts", list("artifacts")));
        members.push(("logs", list("logs")));
        members
    }

    fn environment(&self) -> Value {
        let version = self.job.field(ENV_VERSION).cloned().unwrap_or_default();
        let is_render = version.as_str().is_some_and(|version| version.starts_with("render@"));
        object([
            ("language", (if is_render { RENDER_PROFILE } else { "python" }).into()),
            ("env_version", version),
            ("network_access", "disabled".into()),
        ])
    }

    /// The error of a job that failed. If the executor did not say why, the platform does.
    fn error(&self) -> Option<Value> {
        let execution = self.execution.as_ref().and_then(Value::as_map);
        let category = match self.job.status() {
            Status::Failed => Category::InternalError,
            Status::Rejected => Category::ValidationError,
            Status::Timeout => Category::ResourceLimit,
            _ => return None,
        };
        if let Some(error) = execution.and_then(|map| present(map, "error")) {
            return Some(error.clone());
        }
        let stated = |name: &str| Some(self.job.field(name)?.to_text()?.into_owned());
        let code = match category {
            Category::ResourceLimit => "TIME_LIMIT".to_owned(),
            Category::ValidationError => "REJECTED".to_owned(),
            _ => stated("errorCode").unwrap_or_else(|| "unknown".into()).to_uppercase(),
        };
        let message = stated("error").unwrap_or_else(|| "the job failed".to_owned());
        Some(ContractError::new(category, &code, message).to_value())
    }
}

/// Returns true if a job was created as a contract job.
pub fn is_contract_job(job: &Job) -> bool {
    job.field(EXECUTION_KEY).is_some()
}

fn job_type(job: &Job, input: Option<&Map>) -> Value {
    let stated = input.and_then(|input| text(input, "job_type")).map(Value::from);
    stated.unwrap_or_else(|| job.field("op").cloned().unwrap_or_default())
}

fn object_of(input: Option<&Map>) -> Option<&Map> {
    input?.field("inputs")?.as_map()?.field("object")?.as_map()
}

fn parameters(input: Option<&Map>) -> Value {
    let runtime = object_of(input).and_then(|object| object.field("runtime")?.as_map());
    runtime.and_then(|runtime| runtime.field("parameters")).cloned().unwrap_or_default()
}

fn dependencies(input: Option<&Map>) -> Value {
    let stated = object_of(input).and_then(|object| present(object, "dependencies")).cloned();
    stated.unwrap_or_else(|| catena_value::Vector::new().into())
}

#[cfg(test)]
mod tests {
    use catena_value::json;

    use super::*;
    use crate::chain::{Change, NewJob};
    use crate::state::Event;
    use crate::{JobId, vocabulary};

    fn job(extra: Vec<(&'static str, Value)>, events: &[Event]) -> Job {
        let new_job = NewJob {
            id: JobId::from_bytes([7; 16]),
            venue: "did:key:venue".into(),
            op: "contract:object_execute".into(),
            operation: None,
            input: Value::Nil,
            caller: "did:key:caller".into(),
            parent: None,
            extra,
        };
        let (mut job, _) = Job::create(new_job, 1, None).unwrap();
        for event in events {
            job.append(Change::new(event.clone(), 2)).unwrap();
        }
        job
    }

    fn result(job: &Job, input: &str, execution: Option<&str>) -> Map {
        let value = |text: &str| json::read(text.as_bytes()).unwrap();
        let phase = vocabulary::Phase::Queued;
        let state =
            vocabulary::State { status: job.status(), phase, has_started: job.has_started() };
        let result = JobResult {
            job,
            status: state.contract(),
            input: value(input),
            output: job.field("output").cloned(),
            execution: execution.map(value),
            progress: None,
        };
        result.to_value().as_map().unwrap().clone()
    }

    #[test]
    fn a_job_that_nobody_claimed_shows_what_is_known() {
        let key = vec![(EXECUTION_KEY, Value::from("sha256:1")), (ENV_VERSION, "py-bare@1".into())];
        let job = job(key, &[]);
        let input =
            r#"{"job_type":"object_execute","workspace_id":"w","target":{"object_id":"o"}}"#;
        let found = result(&job, input, None);
        let text = |name: &str| found.field(name).and_then(Value::as_str).unwrap_or("-").to_owned();
        assert_eq!((text("status"), text("job_type")), ("QUEUED".into(), "object_execute".into()));
        assert_eq!((text("workspace_id"), text("object_id")), ("w".into(), "o".into()));
        assert_eq!((text("execution_key"), text("job_id").len()), ("sha256:1".into(), 36));
        assert!(found.field("error").is_none());
    }

    #[test]
    fn another_job_has_its_operation_as_type_and_no_identity() {
        let job = job(Vec::new(), &[Event::Started, Event::Finished { output: 1i64.into() }]);
        let found = result(&job, r#"{"workspace_id":"w"}"#, None);
        assert_eq!(
            found.field("job_type").and_then(Value::as_str),
            Some("contract:object_execute")
        );
        assert_eq!(found.field("workspace_id"), Some(&Value::Nil));
        assert_eq!(found.field("status").and_then(Value::as_str), Some("SUCCEEDED"));
    }

    #[test]
    fn what_the_executor_says_is_shown_and_what_it_does_not_say_is_internal() {
        let key = || vec![(EXECUTION_KEY, Value::from("sha256:1"))];
        let failed = job(key(), &[Event::Started, Event::Erred { error: "lost".into() }]);
        let category = |found: &Map| {
            let error = found.field("error").and_then(Value::as_map).unwrap();
            error.field("category").and_then(Value::as_str).unwrap().to_owned()
        };
        assert_eq!(category(&result(&failed, "{}", None)), "INTERNAL_ERROR");
        let execution = r#"{"error":{"category":"USER_CODE_ERROR"},"duration_ms":3}"#;
        let found = result(&failed, "{}", Some(execution));
        assert_eq!(category(&found), "USER_CODE_ERROR");
        assert_eq!(found.field("duration_ms").and_then(Value::as_i64), Some(3));
        let late = job(key(), &[Event::Started, Event::Expired { error: "slow".into() }]);
        let found = result(&late, "{}", None);
        assert_eq!(category(&found), "RESOURCE_LIMIT");
        assert_eq!(found.field("status").and_then(Value::as_str), Some("TIMED_OUT"));
    }
}

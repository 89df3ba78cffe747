//! `jobs`: actions on many jobs at once, and questions of jobs to people.
//!
//! `ask` waits for an answer of a person (`jobs/ask.rs`).
//!
//! **What it does:** `select` returns the IDs of the jobs that match a filter. `control` cancels, pauses,
//! resumes, deletes or reruns them. It first selects the jobs with a call, so its chain says which ones
//! they are, compares their number with what the caller expected, and then works in batches, each a
//! call of `control` with IDs. A job that the action does not apply to is skipped and counted.
//!
//! **Cost:** one commit or more per job that changes, and one sub-job for each batch.
//!
//! **Cancellation:** its future is dropped. Jobs that were changed by then stay changed.
//!
//! **Repetition:** safe. After a crash, batches that have ended are taken from the chain, and in a batch
//! that is repeated each action has an effect once: a job that is cancelled is not cancelled again, and a
//! rerun has an idempotency key.

use std::collections::HashSet;
use std::time::Duration;

use catena_engine::error::{ControlError, RerunError, StoreError};
use catena_engine::requests::{CallRequest, IdempotencyKey, JobFilter};
use catena_engine::{
    Adapter, BoundEnd, BoundJob, BoundStart, Call, ExecutionMode, Failure, Operation, Registration,
    RootId, Roots, TurnFuture,
};
use catena_job::members::Members;
use catena_job::{JobId, Status};
use catena_value::{Map, Value};

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::failures::store_failure;
use crate::fields::{Fields, array, integer, invalid_input, object, text};
use crate::limits::{BULK_BATCH_MAX, BULK_FAILURES_MAX, BULK_JOBS_MAX, BULK_TRIES_MAX};
use crate::nested;

pub(crate) mod ask;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Jobs;

/// The pause before an action that the store could not take is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

// Operations.

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "select",
        title: "Select jobs",
        description: "Returns the IDs of the jobs that match a filter, oldest first.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent, Mark::ReadOnly],
        input: Some(
            r#"{"type":"object","required":["filter"],"properties":{
                "filter":{"type":"object","description":"The filter of the list of jobs: owner, status, op, tag, since, until, parent, text"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["count","ids"],"properties":{
                "count":{"type":"integer"},"ids":{"type":"array","items":{"type":"string"}}}}"#,
        ),
    },
    Definition {
        name: "ask",
        title: "Ask a person",
        description: "Waits for the answer of the owner. The request is listed, is read at `h/<requestId>`, is \
                      answered once with `agent:answer`, and ends with this job. As a step or a call, it ends with \
                      the job that made it.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["question"],"properties":{
                "question":{"description":"What to ask, at most 64 KiB with options and schema"},
                "options":{"type":["array","null"],"description":"The answers that are accepted; any by default"},
                "schema":{"type":["object","boolean","null"],"description":"A JSON Schema that the answer must fit"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["requestId"],"properties":{
                "requestId":{"type":"string"},"answer":{}}}"#,
        ),
    },
    Definition {
        name: "control",
        title: "Control many jobs",
        description: "Cancels, pauses, resumes, deletes or reruns the jobs with these IDs, or all that \
                      match a filter, if their number is the expected one. Jobs that the action does \
                      not apply to are skipped.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["action","expected"],"properties":{
                "filter":{"type":["object","null"],"description":"The filter of the list of jobs; this job itself never matches"},
                "ids":{"type":["array","null"],"items":{"type":"string"},"description":"Job IDs, instead of a filter"},
                "action":{"enum":["cancel","pause","resume","delete","rerun"]},
                "expected":{"type":"integer","minimum":0,"description":"How many jobs there must be; with any other number, nothing happens"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["action","total","changed","skipped","failed"],"properties":{
                "action":{"type":"string"},"total":{"type":"integer"},
                "changed":{"type":"integer","description":"Jobs that the action changed"},
                "skipped":{"type":"integer","description":"Jobs whose status does not allow the action, or that are gone"},
                "failed":{"type":"integer"},
                "failures":{"type":"array","items":{"type":"object"},"description":"The first of those that failed"}}}"#,
        ),
    },
];

// Input.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Cancel,
    Pause,
    Resume,
    Delete,
    Rerun,
}

impl Action {
    const ALL: [(&'static str, Action); 5] = [
        ("cancel", Action::Cancel),
        ("pause", Action::Pause),
        ("resume", Action::Resume),
        ("delete", Action::Delete),
        ("rerun", Action::Rerun),
    ];

    fn parse(word: &str) -> Result<Self, Failure> {
        let known = Action::ALL.into_iter().find(|(name, _)| *name == word);
        known.map(|(_, action)| action).ok_or_else(|| {
            invalid_input("`action` must be one of cancel, pause, resume, delete and rerun")
        })
    }

    fn name(self) -> &'static str {
        let own = Action::ALL.into_iter().find(|(_, action)| *action == self);
        own.map_or("", |(name, _)| name)
    }
}

/// Which jobs an action is about.
#[derive(Debug, Clone, PartialEq)]
enum Selection {
    Ids(Vec<JobId>),
    /// A filter that was checked, as it was written.
    Filter(Value),
}

struct Request {
    selection: Selection,
    action: Action,
    expected: usize,
}

fn parse_request(input: &Value) -> Result<Request, Failure> {
    let fields = Fields::from_value(input)?;
    fields.refuse_unknown(Members::new(&["filter", "ids", "action", "expected"]))?;
    let action = Action::parse(&fields.text("action")?)?;
    let expected = fields.integer("expected", 0, i64::MAX)?;
    let expected = expected.ok_or_else(|| invalid_input("`expected` is missing"))?;
    let selection = match (fields.map("filter")?, fields.get("ids")) {
        (Some(filter), None) => {
            parse_filter(filter)?;
            Selection::Filter(Value::Map(filter.clone()))
        }
        (None, Some(_)) => Selection::Ids(parse_ids(fields.items("ids")?)?),
        _ => return Err(invalid_input("give one of `filter` and `ids`")),
    };
    let expected = usize::try_from(expected).unwrap_or(usize::MAX);
    Ok(Request { selection, action, expected })
}

/// The members of a filter are texts; times may be numbers, too.
fn parse_filter(filter: &Map) -> Result<JobFilter, Failure> {
    let filter_value = Value::Map(filter.clone());
    Fields::from_value(&filter_value)?.refuse_unknown(Members::new(&JobFilter::NAMES))?;
    let mut members = Vec::new();
    for name in JobFilter::NAMES {
        let Some(value) = filter.field(name).filter(|value| **value != Value::Nil) else {
            continue;
        };
        let number = || integer(value).map(|number| number.to_string());
        let member = text(value).or_else(number);
        let error = || invalid_input(format!("`filter.{name}` must be a string"));
        members.push((name, member.ok_or_else(error)?));
    }
    let member = |name| members.iter().find(|(own, _)| *own == name).map(|(_, text)| text.clone());
    JobFilter::parse(member).map_err(|error| invalid_input(format!("`filter`: {error}")))
}

/// Each job once, in the given order.
fn parse_ids(items: Vec<Value>) -> Result<Vec<JobId>, Failure> {
    if items.len() > BULK_JOBS_MAX {
        return Err(invalid_input(format!("`ids` has more than {BULK_JOBS_MAX} entries")));
    }
    let mut seen = HashSet::new();
    let mut ids = Vec::with_capacity(items.len());
    for item in items {
        let id = text(&item).and_then(|id| id.parse::<JobId>().ok());
        let id = id.ok_or_else(|| invalid_input("`ids` must contain job IDs"))?;
        if seen.insert(id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

// Output.

/// What became of the jobs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    changed: i64,
    skipped: i64,
    failed: i64,
    /// The first failures.
    failures: Vec<Value>,
}

impl Outcome {
    fn add_failure(&mut self, id: JobId, error: &str) {
        self.failed += 1;
        if self.failures.len() < BULK_FAILURES_MAX {
            self.failures.push(object([("id", id.into()), ("error", error.into())]));
        }
    }

    /// Adds the output of a batch.
    fn add(&mut self, batch: &Value) -> Result<(), Failure> {
        let fields = Fields::from_value(batch)?;
        let count = |name| fields.integer(name, 0, i64::MAX).map(Option::unwrap_or_default);
        self.changed += count("changed")?;
        self.skipped += count("skipped")?;
        self.failed += count("failed")?;
        let failures = fields.get("failures").map(|_| fields.items("failures")).transpose()?;
        let room = BULK_FAILURES_MAX.saturating_sub(self.failures.len());
        self.failures.extend(failures.unwrap_or_default().into_iter().take(room));
        Ok(())
    }

    fn into_value(self, action: Action) -> Value {
        object([
            ("action", action.name().into()),
            ("total", (self.changed + self.skipped + self.failed).into()),
            ("changed", self.changed.into()),
            ("skipped", self.skipped.into()),
            ("failed", self.failed.into()),
            ("failures", array(self.failures)),
        ])
    }
}

fn ids_value(ids: &[JobId]) -> Value {
    array(ids.iter().map(|id| Value::from(*id)).collect())
}

// Execution.

impl Adapter for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn description(&self) -> &'static str {
        "Actions on many jobs at once, and questions of jobs to people."
    }

    fn frees_storage(&self, name: &str) -> bool {
        matches!(name, "control")
    }

    fn controls_jobs(&self, name: &str) -> bool {
        matches!(name, "control" | "select")
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn binding(&self, operation: &str, _input: &Value) -> Option<String> {
        (operation == "ask").then(|| ask::BINDING.to_owned())
    }

    fn bound_roots(&self, _name: &str) -> Vec<RootId> {
        vec![RootId::requests()]
    }

    fn start_bound(
        &self,
        job: BoundJob<'_>,
        _operation: &Operation,
        input: &Value,
        roots: &mut Roots,
    ) -> Result<BoundStart, Failure> {
        ask::start(job, input, roots)
    }

    fn end_bound(
        &self,
        job: BoundJob<'_>,
        end: &BoundEnd<'_>,
        roots: &mut Roots,
    ) -> Result<(), Failure> {
        ask::end(job, end, roots)
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(async move {
            match call.operation.name() {
                "ask" => ask::turn(&call),
                _ => run(&call).await.into(),
            }
        })
    }
}

async fn run(call: &Call) -> Result<Value, Failure> {
    match call.operation.name() {
        "select" => select(call).await,
        "control" => control(call, parse_request(&call.input)?).await,
        _ => Err(nested::unsupported_operation(call)),
    }
}

async fn select(call: &Call) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let filter = fields.map("filter")?.ok_or_else(|| invalid_input("`filter` is missing"))?;
    let filter = parse_filter(filter)?;
    if !filter.is_allowed(&call.caller) {
        return Err(Failure::new("forbidden", "only admins can select the jobs of others"));
    }
    let found = call.host.select(&call.caller, filter, BULK_JOBS_MAX + 1).await;
    let ids = found.map_err(|error| store_failure(&error))?;
    if ids.len() > BULK_JOBS_MAX {
        let error = format!("more than {BULK_JOBS_MAX} jobs match; narrow the filter");
        return Err(Failure::new("too_many", error));
    }
    let count = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    Ok(object([("count", count.into()), ("ids", ids_value(&ids))]))
}

async fn control(call: &Call, request: Request) -> Result<Value, Failure> {
    let Request { selection, action, expected } = request;
    let is_batch = matches!(&selection, Selection::Ids(ids) if ids.len() <= BULK_BATCH_MAX);
    let ids = match selection {
        Selection::Ids(ids) => ids,
        Selection::Filter(filter) => {
            let input = object([("filter", filter)]);
            let selected = make_call(call, "select", "jobs:select", input).await?;
            let mut ids = parse_ids(Fields::from_value(&selected)?.items("ids")?)?;
            ids.retain(|id| Some(*id) != call.job);
            ids
        }
    };
    if ids.len() != expected {
        let error =
            format!("{} jobs match, {expected} were expected; nothing was changed", ids.len());
        return Err(Failure::new("count_changed", error));
    }
    if is_batch {
        let outcome = apply_all(call, action, &ids).await?;
        return Ok(outcome.into_value(action));
    }
    let mut outcome = Outcome::default();
    for (number, batch) in ids.chunks(BULK_BATCH_MAX).enumerate() {
        report(call, number * BULK_BATCH_MAX, ids.len());
        let count = i64::try_from(batch.len()).unwrap_or(i64::MAX);
        let input = object([
            ("ids", ids_value(batch)),
            ("action", action.name().into()),
            ("expected", count.into()),
        ]);
        let key = format!("batch-{}", number + 1);
        outcome.add(&make_call(call, &key, "jobs:control", input).await?)?;
    }
    report(call, ids.len(), ids.len());
    Ok(outcome.into_value(action))
}

fn report(call: &Call, processed: usize, total: usize) {
    let number = |count: usize| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
    call.control
        .report(object([("processedItems", number(processed)), ("totalItems", number(total))]));
}

/// Makes a call of this job and returns its output.
async fn make_call(
    call: &Call,
    key: &str,
    operation: &str,
    input: Value,
) -> Result<Value, Failure> {
    let Some(job) = call.job else {
        return Err(Failure::new("unrecorded", "an action on many jobs must be recorded"));
    };
    let request = CallRequest {
        job,
        caller: call.caller.clone(),
        authority: None,
        key: key.to_owned(),
        operation: operation.to_owned(),
        input,
        is_detached: false,
    };
    let view = call.host.call(request).await?;
    nested::outcome(&view.job, view.cells())
}

async fn apply_all(call: &Call, action: Action, ids: &[JobId]) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    for (done, id) in ids.iter().enumerate() {
        call.control.proceed().await;
        match apply(call, action, *id).await {
            Applied::Changed => outcome.changed += 1,
            Applied::Skipped => outcome.skipped += 1,
            Applied::Failed(error) => outcome.add_failure(*id, &error),
        }
        report(call, done + 1, ids.len());
    }
    Ok(outcome)
}

enum Applied {
    Changed,
    Skipped,
    Failed(String),
}

/// Applies an action to one job, again if the store is busy.
async fn apply(call: &Call, action: Action, id: JobId) -> Applied {
    let mut tries = 1;
    loop {
        let error = match apply_once(call, action, id).await {
            Ok(true) => return Applied::Changed,
            Ok(false) => return Applied::Skipped,
            Err(RerunError::Control(ControlError::Store(
                StoreError::Busy | StoreError::Contended,
            ))) if tries < BULK_TRIES_MAX => {
                tries += 1;
                call.control.sleep(RETRY_PAUSE).await;
                continue;
            }
            Err(error) => error,
        };
        return match error {
            RerunError::Control(
                ControlError::NotFound(_)
                | ControlError::Conflict { .. }
                | ControlError::ParentPaused { .. }
                | ControlError::StepPaused { .. },
            ) => Applied::Skipped,
            error => Applied::Failed(error.to_string()),
        };
    }
}

/// Applies an action to one job. Returns true if that changed it.
async fn apply_once(call: &Call, action: Action, id: JobId) -> Result<bool, RerunError> {
    let (host, caller) = (&call.host, &call.caller);
    match action {
        Action::Cancel => {
            let view = host.cancel(caller, id, None).await?;
            Ok(view.status() == Status::Cancelled)
        }
        Action::Pause => host.pause(caller, id).await.map(|_| true).map_err(Into::into),
        Action::Resume => host.resume(caller, id).await.map(|_| true).map_err(Into::into),
        Action::Delete => host.delete(caller, id).await.map(|()| true).map_err(Into::into),
        Action::Rerun => {
            // A batch that is repeated after a crash reruns nothing twice.
            let batch = call.job.map(|job| job.to_string()).unwrap_or_default();
            let key = IdempotencyKey {
                endpoint: "bulk rerun",
                key: format!("{batch} {id}"),
                body_digest: [0; 32],
            };
            host.rerun(caller, id, Some(key)).await.map(|_| true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    fn error_of(input: &str) -> String {
        parse_request(&value(input)).err().unwrap().error
    }

    #[test]
    fn a_request_names_jobs_in_one_way() {
        let one = "give one of `filter` and `ids`";
        assert_eq!(error_of(r#"{"action":"cancel","expected":1}"#), one);
        let both = r#"{"action":"cancel","expected":1,"ids":[],"filter":{}}"#;
        assert_eq!(error_of(both), one);
        let request =
            parse_request(&value(r#"{"action":"cancel","expected":0,"ids":[]}"#)).unwrap();
        assert_eq!(request.selection, Selection::Ids(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(error_of(r#"{"action":"stop","expected":1,"ids":[]}"#).contains("`action`"));
        assert!(error_of(r#"{"action":"cancel","ids":[]}"#).contains("`expected`"));
        let filter = r#"{"action":"cancel","expected":1,"filter":{"state":"x"}}"#;
        assert!(error_of(filter).contains("state"));
        let status = r#"{"action":"cancel","expected":1,"filter":{"status":"x"}}"#;
        assert!(error_of(status).contains("`status`"));
        assert!(error_of(r#"{"action":"cancel","expected":1,"ids":["x"]}"#).contains("`ids`"));
    }

    #[test]
    fn a_job_is_named_once() {
        let hex = "07".repeat(16);
        let input = format!(r#"{{"action":"cancel","expected":1,"ids":["{hex}","0x{hex}"]}}"#);
        let Selection::Ids(ids) = parse_request(&value(&input)).unwrap().selection else {
            panic!("IDs")
        };
        assert_eq!(ids.len(), 1);
    }

    #[test]
    fn batches_add_up() {
        let mut outcome = Outcome { changed: 1, ..Outcome::default() };
        outcome.add_failure(JobId::from_bytes([7; 16]), "no");
        let batch = Outcome { changed: 2, skipped: 3, ..Outcome::default() };
        outcome.add(&batch.into_value(Action::Pause)).unwrap();
        assert_eq!((outcome.changed, outcome.skipped, outcome.failed), (3, 3, 1));
        let all = outcome.into_value(Action::Pause);
        assert_eq!(Fields::from_value(&all).unwrap().integer("total", 0, 99).unwrap(), Some(7));
    }
}

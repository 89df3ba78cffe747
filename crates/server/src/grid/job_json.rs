//! A job as JSON.
//!
//! The members of the resolved job are written straight to text. The SDKs rely on these: `id` with
//! `0x`, both `op` and `operation`, `error` as a string, `parent` as a string with `parentStep` next
//! to it, and one of the ten statuses as `status`.

use std::fmt::Write as _;

use catena_engine::requests::JobView;
use catena_job::record::Link;
use catena_job::{Job, Record};
use catena_value::{CellSource, Extent, Map, NoCells, Value, Vector};

use crate::http::error::{ApiResult, Code};
use crate::http::json::write_value;

/// Initial capacity of the text: enough for a small job, so that it rarely grows.
const TYPICAL_JOB_BYTES: usize = 768;

/// A job with its state outside the chain: queue, progress and steps.
pub(crate) fn view_to_json(view: &JobView) -> ApiResult<String> {
    let mut text = String::with_capacity(TYPICAL_JOB_BYTES);
    write_job(&view.job, view.cells(), &mut text)?;
    text.pop();
    if let Some(at) = view.ready_at.filter(|_| view.waits_for_attempt()) {
        let _ = write!(text, ",\"nextAttemptAt\":{at}");
    }
    if view.queue_depth > 0 {
        let _ = write!(text, ",\"queueDepth\":{}", view.queue_depth);
    }
    if let Some(progress) = &view.progress {
        write_member(&Value::from("progress"), progress, view.cells(), &mut text)?;
    }
    if let Some(steps) = &view.steps {
        write_member(&Value::from("steps"), steps, view.cells(), &mut text)?;
    }
    text.push('}');
    Ok(text)
}

/// Adds a member, which must be fully in memory, to the JSON of a job.
pub(crate) fn add_member(name: &str, value: &Value, text: &mut String) -> ApiResult<()> {
    text.pop();
    write_member(&Value::from(name), value, &NoCells, text)?;
    text.push('}');
    Ok(())
}

/// The response to a request that changed a job. If there is no memory for all of it, it is the job
/// without what it contains: the change has happened, so the request must not be refused.
pub(crate) fn changed_to_json(view: &JobView) -> ApiResult<String> {
    match view_to_json(view) {
        Err(error) if error.code() == Code::TooMuchMemory => {
            let (id, status, head) = (view.job.id(), view.status(), view.job.head());
            let link = format!("/api/v1/jobs/{id}");
            Ok(format!(
                r#"{{"id":"{id}","status":"{status}","head":"{head}","omitted":true,"link":"{link}"}}"#
            ))
        }
        written => written,
    }
}

/// Which outputs of steps the JSON of a job contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepOutputs {
    /// Those that are not too large.
    Bounded,
    /// None.
    Omitted,
}

impl StepOutputs {
    /// The steps as they are shown.
    pub(crate) fn apply(self, steps: Option<Value>) -> Option<Value> {
        match (self, steps) {
            (StepOutputs::Omitted, Some(Value::Vector(steps))) => {
                let items = steps.iter(&NoCells).filter_map(Result::ok);
                Some(items.map(without_output).collect::<Vector>().into())
            }
            (_, steps) => steps,
        }
    }
}

/// The entry of a step with the size of its output instead of the output.
fn without_output(step: Value) -> Value {
    let Value::Map(members) = &step else { return step };
    let Some(output) = members.field("output") else { return step };
    let extent = Extent { bytes: u64::MAX, depth: usize::MAX };
    let bytes = extent.measure(output, &NoCells).unwrap_or(0);
    let bytes = Value::from(i64::try_from(bytes).unwrap_or(i64::MAX));
    let entries = members.iter(&NoCells).filter_map(Result::ok);
    let others = entries.filter(|(name, _)| name.as_str() != Some("output"));
    others.chain([(Value::from("outputBytes"), bytes)]).collect::<Map>().into()
}

/// A job as of one of its records.
pub(crate) fn job_to_json(
    job: &Job,
    cells: &dyn CellSource,
    steps: Option<&Value>,
) -> ApiResult<String> {
    let mut text = String::with_capacity(TYPICAL_JOB_BYTES);
    write_job(job, cells, &mut text)?;
    if let Some(steps) = steps {
        text.pop();
        write_member(&Value::from("steps"), steps, cells, &mut text)?;
        text.push('}');
    }
    Ok(text)
}

fn write_job(job: &Job, cells: &dyn CellSource, text: &mut String) -> ApiResult<()> {
    let status = job.status();
    // IDs and statuses need no escaping.
    let _ = write!(text, "{{\"id\":\"{}\",\"status\":\"{status}\"", job.id());
    for (key, value) in job.fields() {
        let Some(name) = key.as_str() else { continue };
        // The outputs that a rerun keeps are shown with its steps.
        if !matches!(name, "id" | "parent" | "reusedOutputs") {
            write_member(key, value, cells, text)?;
        }
    }
    if job.field("operation").is_none()
        && let Some(op) = job.field("op")
    {
        write_member(&Value::from("operation"), op, cells, text)?;
    }
    if let Some(parent) = job.parent() {
        let (name, number) = match parent.link {
            Link::Step(step) => ("parentStep", step),
            Link::Call(call) => ("parentCall", call),
        };
        let _ = write!(text, ",\"parent\":\"{}\",\"{name}\":{number}", parent.job);
    }
    if let Some(failure) = job.last_failure().filter(|_| !status.is_terminal()) {
        let reason = Value::from(failure.reason.as_str());
        write_member(&Value::from("lastError"), &reason, cells, text)?;
        if let Some(code) = failure.code.as_deref() {
            write_member(&Value::from("lastErrorCode"), &Value::from(code), cells, text)?;
        }
    }
    if job.attempt() > 1 {
        let _ = write!(text, ",\"attempt\":{}", job.attempt());
    }
    let _ = write!(text, ",\"updated\":{},\"head\":\"{}\"}}", job.updated(), job.head());
    Ok(())
}

fn write_member(
    name: &Value,
    value: &Value,
    cells: &dyn CellSource,
    text: &mut String,
) -> ApiResult<()> {
    text.push(',');
    write_value(name, cells, text)?;
    text.push(':');
    write_value(value, cells, text)
}

/// Appends an entry of a history: a record, the ID that can be computed from it, and the signature next to
/// it.
pub(crate) fn write_record(
    record: &Record,
    signature: Option<&Value>,
    cells: &dyn CellSource,
    text: &mut String,
) -> ApiResult<()> {
    let _ = write!(text, "{{\"id\":\"{}\",\"record\":", record.id());
    write_value(&record.to_value(), cells, text)?;
    if let Some(signature) = signature {
        text.push_str(",\"signature\":");
        write_value(signature, cells, text)?;
    }
    text.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_job::record::Parent;
    use catena_job::state::{Ask, Event};
    use catena_job::vocabulary::Phase;
    use catena_job::{Change, JobId, NewJob};
    use catena_value::{NoCells, json};
    use std::sync::Arc;

    const NOW: i64 = 1_769_683_717_706;

    fn new_job(parent: Option<Parent>) -> NewJob {
        NewJob {
            id: JobId::from_bytes([7; 16]),
            venue: "did:key:venue".into(),
            op: "test:echo".into(),
            operation: Some("0xab".into()),
            input: json::read(br#"{"text":"a \"quoted\" word"}"#).unwrap(),
            caller: "did:key:caller".into(),
            parent,
            extra: vec![("tags", Value::Vector([Value::from("a")].into_iter().collect()))],
        }
    }

    fn read(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    fn field(text: &str, name: &str) -> Value {
        read(text).as_map().unwrap().field(name).cloned().unwrap_or(Value::Nil)
    }

    #[test]
    fn a_job_has_the_members_that_sdks_read() {
        let (mut job, _) = Job::create(new_job(None), NOW, None).unwrap();
        job.append(Change::new(Event::Started, NOW + 1)).unwrap();
        job.append(Change::new(Event::Finished { output: 5.into() }, NOW + 2)).unwrap();
        let text = job_to_json(&job, &NoCells, None).unwrap();
        let expected = format!(
            r#"{{"id":"0x{}","status":"COMPLETE","op":"test:echo","operation":"0xab",
            "input":{{"text":"a \"quoted\" word"}},"caller":"did:key:caller","created":{NOW},
            "venue":"did:key:venue","tags":["a"],"output":5,"updated":{},"head":"{}"}}"#,
            "07".repeat(16),
            NOW + 2,
            job.head()
        );
        assert_eq!(read(&text), read(&expected), "{text}");
    }

    #[test]
    fn the_parent_is_a_string_and_the_error_too() {
        let parent = Parent::of_step(JobId::from_bytes([8; 16]), 3);
        let (job, _) = Job::create(new_job(Some(parent)), NOW, Some("bad input")).unwrap();
        let text = job_to_json(&job, &NoCells, None).unwrap();
        assert_eq!(field(&text, "parent"), format!("0x{}", "08".repeat(16)).into());
        assert_eq!(field(&text, "parentStep"), 3.into());
        assert_eq!(field(&text, "error"), "bad input".into());
        assert_eq!(field(&text, "status"), "REJECTED".into());
    }

    #[test]
    fn both_names_of_the_operation_are_there() {
        let new_job = NewJob { operation: None, ..new_job(None) };
        let (job, _) = Job::create(new_job, NOW, None).unwrap();
        let text = job_to_json(&job, &NoCells, None).unwrap();
        assert_eq!(field(&text, "operation"), "test:echo".into());
    }

    #[test]
    fn a_view_includes_state_outside_the_chain() {
        let (mut job, _) = Job::create(new_job(None), NOW, None).unwrap();
        job.append(Change::new(Event::Started, NOW + 1)).unwrap();
        let ask = Ask { message: Some("name?".to_owned()), output: None };
        job.append(Change::new(Event::AskedForInput(ask), NOW + 2)).unwrap();
        let view = JobView {
            job: Arc::new(job),
            cells: None,
            changes: 4,
            queue_depth: 2,
            steps: None,
            progress: Some(read(r#"{"processedItems":1}"#)),
            phase: Phase::Admitted,
            ready_at: None,
        };
        let text = view_to_json(&view).unwrap();
        assert_eq!(field(&text, "queueDepth"), 2.into());
        assert_eq!(field(&text, "progress"), read(r#"{"processedItems":1}"#));
        assert_eq!(field(&text, "message"), "name?".into());
    }

    #[test]
    fn a_record_comes_with_the_id_of_its_json() {
        let (_, record) = Job::create(new_job(None), NOW, None).unwrap();
        let mut text = String::new();
        write_record(&record, None, &NoCells, &mut text).unwrap();
        let id = field(&text, "record").id().to_string();
        assert_eq!(field(&text, "id"), id.into());
    }
}

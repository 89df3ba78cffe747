//! A job as JSON.
//!
//! The members of the resolved job are written straight to text. The SDKs rely on these: `id` with
//! `0x`, both `op` and `operation`, `error` as a string, `parent` as a string with `parentStep` next
//! to it, and one of the ten statuses as `status`.

use std::fmt::Write as _;

use catena_engine::requests::JobView;
use catena_job::limits::VALUE_DEPTH_MAX;
use catena_job::record::Link;
use catena_job::{Job, Record, Status};
use catena_value::{CellSource, Extent, ExtentError, Map, NoCells, Value, Vector};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::{load_error, write_value};
use crate::http::request::ApiRequest;
use crate::http::route::{Parameter, query};
use crate::limits::BRIEF_VALUE_BYTES_MAX;

/// Initial capacity of the text: enough for a small job, so that it rarely grows.
const TYPICAL_JOB_BYTES: usize = 768;

/// A job with its state outside the chain: queue, progress and steps.
pub(crate) fn view_to_json(view: &JobView, values: Values) -> ApiResult<String> {
    let mut text = String::with_capacity(TYPICAL_JOB_BYTES);
    write_job(&view.job, values, view.cells(), &mut text)?;
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
        write_steps(&view.job, steps, view.cells(), &mut text)?;
    }
    text.push('}');
    Ok(text)
}

/// Writes the steps of a job. While it runs, its message names a step that is paused: once no other step can
/// run, its record does.
fn write_steps(
    job: &Job,
    steps: &Value,
    cells: &dyn CellSource,
    text: &mut String,
) -> ApiResult<()> {
    if job.status() == Status::Started
        && job.field("message").is_none()
        && let Some(message) = message_of_paused_step(steps)
    {
        write_member(&Value::from("message"), &message.into(), cells, text)?;
    }
    write_member(&Value::from("steps"), steps, cells, text)
}

fn message_of_paused_step(steps: &Value) -> Option<String> {
    let steps = steps.as_vector()?;
    steps.iter(&NoCells).map_while(Result::ok).find_map(|step| {
        let step = step.as_map()?;
        let text = |name: &str| step.field(name).and_then(Value::as_str);
        if text("status") != Some(Status::Paused.as_str()) {
            return None;
        }
        let index = step.field("index")?.as_i64()?;
        let name = text("name").map(|name| format!(" ({name})")).unwrap_or_default();
        Some(format!("step {index}{name} is paused: job {}", text("id")?))
    })
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
    match view_to_json(view, Values::Full) {
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

/// Which members the JSON of a job or a record contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// All.
    Full,
    /// Those that are not large. `omittedMembers` names the others.
    Brief,
}

/// The parameter that chooses the values.
pub(crate) const VALUES: Parameter = query(
    "values",
    r#"{"enum":["full","brief"]}"#,
    "`brief` omits members of more than 64 KiB and names them in `omittedMembers`.",
);

impl Values {
    /// What a request asks for with the parameter `values`.
    pub(crate) fn from_request(request: &ApiRequest) -> ApiResult<Self> {
        match request.parameter(VALUES.name)?.as_deref() {
            None | Some("full") => Ok(Values::Full),
            Some("brief") => Ok(Values::Brief),
            Some(_) => Err(ApiError::bad_request("`values` must be brief or full")),
        }
    }

    /// Returns true if a member has to be left out. A large one is not read to its end.
    fn omits(self, value: &Value, cells: &dyn CellSource) -> bool {
        let extent = Extent { bytes: BRIEF_VALUE_BYTES_MAX, depth: 2 * VALUE_DEPTH_MAX };
        self == Values::Brief && matches!(extent.measure(value, cells), Err(ExtentError::Bytes(_)))
    }

    /// A record without the members that have to be left out, and the names of these.
    fn split(self, record: &Record, cells: &dyn CellSource) -> ApiResult<(Value, Vec<Value>)> {
        if self == Values::Full {
            return Ok((record.to_value(), Vec::new()));
        }
        let members = record.fields().iter(cells).collect::<Result<Vec<_>, _>>();
        let members = members.map_err(load_error)?;
        let (large, shown): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|(_, value)| self.omits(value, cells));
        let shown: Map = shown.into_iter().collect();
        Ok((shown.into(), large.into_iter().map(|(name, _)| name).collect()))
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
    values: Values,
    cells: &dyn CellSource,
    steps: Option<&Value>,
) -> ApiResult<String> {
    let mut text = String::with_capacity(TYPICAL_JOB_BYTES);
    write_job(job, values, cells, &mut text)?;
    if let Some(steps) = steps {
        text.pop();
        write_steps(job, steps, cells, &mut text)?;
        text.push('}');
    }
    Ok(text)
}

fn write_job(
    job: &Job,
    values: Values,
    cells: &dyn CellSource,
    text: &mut String,
) -> ApiResult<()> {
    let status = job.status();
    let mut omitted = Vec::new();
    // IDs and statuses need no escaping.
    let _ = write!(text, "{{\"id\":\"{}\",\"status\":\"{status}\"", job.id());
    for (key, value) in job.fields() {
        let Some(name) = key.as_str() else { continue };
        // The outputs that a rerun keeps are shown with its steps.
        if matches!(name, "id" | "parent" | "reusedOutputs") {
            continue;
        }
        if values.omits(value, cells) {
            omitted.push(key.clone());
        } else {
            write_member(key, value, cells, text)?;
        }
    }
    write_omitted(omitted, text)?;
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

/// Names the members that were left out, if there are any.
fn write_omitted(names: Vec<Value>, text: &mut String) -> ApiResult<()> {
    if names.is_empty() {
        return Ok(());
    }
    let names = Vector::from_items(names).into();
    write_member(&Value::from("omittedMembers"), &names, &NoCells, text)
}

/// Appends an entry of a history: a record, the ID that can be computed from it unless members were left
/// out, and the signature next to it.
pub(crate) fn write_record(
    record: &Record,
    values: Values,
    signature: Option<&Value>,
    cells: &dyn CellSource,
    text: &mut String,
) -> ApiResult<()> {
    let _ = write!(text, "{{\"id\":\"{}\",\"record\":", record.id());
    let (shown, omitted) = values.split(record, cells)?;
    write_value(&shown, cells, text)?;
    write_omitted(omitted, text)?;
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

    use crate::values::{list, object};

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
        let text = job_to_json(&job, Values::Full, &NoCells, None).unwrap();
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
        let text = job_to_json(&job, Values::Full, &NoCells, None).unwrap();
        assert_eq!(field(&text, "parent"), format!("0x{}", "08".repeat(16)).into());
        assert_eq!(field(&text, "parentStep"), 3.into());
        assert_eq!(field(&text, "error"), "bad input".into());
        assert_eq!(field(&text, "status"), "REJECTED".into());
    }

    #[test]
    fn both_names_of_the_operation_are_there() {
        let new_job = NewJob { operation: None, ..new_job(None) };
        let (job, _) = Job::create(new_job, NOW, None).unwrap();
        let text = job_to_json(&job, Values::Full, &NoCells, None).unwrap();
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
        let text = view_to_json(&view, Values::Full).unwrap();
        assert_eq!(field(&text, "queueDepth"), 2.into());
        assert_eq!(field(&text, "progress"), read(r#"{"processedItems":1}"#));
        assert_eq!(field(&text, "message"), "name?".into());
    }

    #[test]
    fn brief_values_leave_out_what_is_large_and_name_it() {
        let long = "x".repeat(usize::try_from(BRIEF_VALUE_BYTES_MAX).unwrap());
        let short = &long[..long.len() / 2];
        for (text, is_omitted) in [(short, false), (long.as_str(), true)] {
            let input = object([("text", text.into())]);
            let new_job = NewJob { input: input.clone(), ..new_job(None) };
            let (job, record) = Job::create(new_job, NOW, None).unwrap();
            let brief = job_to_json(&job, Values::Brief, &NoCells, None).unwrap();
            let full = job_to_json(&job, Values::Full, &NoCells, None).unwrap();
            let mut entry = String::new();
            write_record(&record, Values::Brief, None, &NoCells, &mut entry).unwrap();
            let names = if is_omitted { list([Value::from("input")]) } else { Value::Nil };
            let shown = if is_omitted { Value::Nil } else { input.clone() };
            assert_eq!(field(&brief, "omittedMembers"), names);
            assert_eq!(field(&entry, "omittedMembers"), names);
            assert_eq!((field(&brief, "input"), field(&full, "input")), (shown, input));
            assert_eq!(field(&brief, "op"), field(&full, "op"));
            let record = field(&entry, "record");
            assert_eq!(record.id().to_string() == record_id(&entry), !is_omitted);
        }
    }

    fn record_id(entry: &str) -> String {
        field(entry, "id").as_str().unwrap().to_owned()
    }

    #[test]
    fn a_record_comes_with_the_id_of_its_json() {
        let (_, record) = Job::create(new_job(None), NOW, None).unwrap();
        let mut text = String::new();
        write_record(&record, Values::Full, None, &NoCells, &mut text).unwrap();
        let id = field(&text, "record").id().to_string();
        assert_eq!(field(&text, "id"), id.into());
    }
}

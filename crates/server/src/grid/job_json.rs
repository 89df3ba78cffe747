//! A job as JSON.
//!
//! The members of the resolved job are written as they stand, straight to text. What SDKs rely on:
//! `id` with `0x`, both `op` and `operation`, `error` a string, `parent` a string with `parentStep`
//! beside it, and one of the ten words as `status`.

use std::fmt::Write as _;

use catena_engine::limits::JOB_JSON_BYTES_MAX;
use catena_engine::request::JobView;
use catena_job::{Job, Record, RecordId};
use catena_value::json::{WriteError, write};
use catena_value::{CellSource, Value};

use crate::http::error::{ApiError, ApiResult, Code};

/// Bytes that a small job needs: saves growing the text again and again.
const USUAL_BYTES: usize = 768;

/// A job as somebody who may see it sees it.
pub(crate) fn of_view(view: &JobView) -> ApiResult<String> {
    let mut text = String::with_capacity(USUAL_BYTES);
    write_job(&view.job, view.cells(), &mut text)?;
    text.pop();
    if view.queue_depth > 0 {
        let _ = write!(text, ",\"queueDepth\":{}", view.queue_depth);
    }
    if let Some(progress) = &view.progress {
        member(&Value::from("progress"), progress, view.cells(), &mut text)?;
    }
    if let Some(steps) = &view.steps {
        member(&Value::from("steps"), steps, view.cells(), &mut text)?;
    }
    text.push('}');
    Ok(text)
}

/// A job as of one of its records.
pub(crate) fn of_job(
    job: &Job,
    cells: &dyn CellSource,
    steps: Option<&Value>,
) -> ApiResult<String> {
    let mut text = String::with_capacity(USUAL_BYTES);
    write_job(job, cells, &mut text)?;
    if let Some(steps) = steps {
        text.pop();
        member(&Value::from("steps"), steps, cells, &mut text)?;
        text.push('}');
    }
    Ok(text)
}

fn write_job(job: &Job, cells: &dyn CellSource, text: &mut String) -> ApiResult<()> {
    let (status, head) = (job.status(), job.head());
    // Neither IDs nor statuses have anything to escape.
    let _ = write!(text, "{{\"id\":\"{}\",\"status\":\"{status}\"", job.id());
    for (key, value) in job.fields() {
        let Some(name) = key.as_str() else { continue };
        if !matches!(name, "id" | "parent") {
            member(key, value, cells, text)?;
        }
    }
    if job.field("operation").is_none() {
        let name = Value::from("operation");
        job.field("op").map_or(Ok(()), |op| member(&name, op, cells, text))?;
    }
    if let Some(parent) = job.parent() {
        let _ = write!(text, ",\"parent\":\"{}\",\"parentStep\":{}", parent.job, parent.step);
    }
    if job.attempt() > 1 {
        let _ = write!(text, ",\"attempt\":{}", job.attempt());
    }
    let _ = write!(text, ",\"updated\":{},\"head\":\"{head}\"}}", job.updated());
    Ok(())
}

fn member(name: &Value, value: &Value, cells: &dyn CellSource, text: &mut String) -> ApiResult<()> {
    text.push(',');
    write_value(name, cells, text)?;
    text.push(':');
    write_value(value, cells, text)
}

/// Appends a value, within the bound of one answer.
pub(crate) fn write_value(
    value: &Value,
    cells: &dyn CellSource,
    text: &mut String,
) -> ApiResult<()> {
    write(value, cells, JOB_JSON_BYTES_MAX.saturating_sub(text.len()), text).map_err(not_written)
}

/// Appends one line of a history: a record, and the ID that anybody can compute from it.
pub(crate) fn write_record(
    record: &Record,
    cells: &dyn CellSource,
    text: &mut String,
) -> ApiResult<()> {
    let id: RecordId = record.id();
    let _ = write!(text, "{{\"id\":\"{id}\",\"record\":");
    write_value(&record.to_value(), cells, text)?;
    text.push('}');
    Ok(())
}

fn not_written(error: WriteError) -> ApiError {
    match error {
        WriteError::TooLarge { .. } => {
            let error = format!("the answer would have more than {JOB_JSON_BYTES_MAX} bytes");
            ApiError::new(Code::AnswerTooLarge, error)
        }
        WriteError::Load(error) => {
            tracing::error!(%error, "a value could not be read");
            ApiError::new(Code::StoreDamaged, "what is stored is damaged")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_engine::request::JobView;
    use catena_job::record::Parent;
    use catena_job::state::{Ask, Event};
    use catena_job::vocabulary::Phase;
    use catena_job::{Change, JobId, NewJob};
    use catena_value::{NoCells, json};
    use std::sync::Arc;

    const NOW: i64 = 1_769_683_717_706;

    fn opening(parent: Option<Parent>) -> NewJob {
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
        let (mut job, _) = Job::open(opening(None), NOW, None).unwrap();
        job.append(Change::new(Event::Started, NOW + 1)).unwrap();
        job.append(Change::new(Event::Finished { output: 5.into() }, NOW + 2)).unwrap();
        let text = of_job(&job, &NoCells, None).unwrap();
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
        let parent = Parent { job: JobId::from_bytes([8; 16]), step: 3 };
        let (job, _) = Job::open(opening(Some(parent)), NOW, Some("bad input")).unwrap();
        let text = of_job(&job, &NoCells, None).unwrap();
        assert_eq!(field(&text, "parent"), format!("0x{}", "08".repeat(16)).into());
        assert_eq!(field(&text, "parentStep"), 3.into());
        assert_eq!(field(&text, "error"), "bad input".into());
        assert_eq!(field(&text, "status"), "REJECTED".into());
    }

    #[test]
    fn both_names_of_the_operation_are_there() {
        let opening = NewJob { operation: None, ..opening(None) };
        let (job, _) = Job::open(opening, NOW, None).unwrap();
        let text = of_job(&job, &NoCells, None).unwrap();
        assert_eq!(field(&text, "operation"), "test:echo".into());
    }

    #[test]
    fn a_view_shows_what_stands_beside_the_chain() {
        let (mut job, _) = Job::open(opening(None), NOW, None).unwrap();
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
        };
        let text = of_view(&view).unwrap();
        assert_eq!(field(&text, "queueDepth"), 2.into());
        assert_eq!(field(&text, "progress"), read(r#"{"processedItems":1}"#));
        assert_eq!(field(&text, "message"), "name?".into());
    }

    #[test]
    fn a_record_comes_with_the_id_of_its_json() {
        let (_, record) = Job::open(opening(None), NOW, None).unwrap();
        let mut text = String::new();
        write_record(&record, &NoCells, &mut text).unwrap();
        let id = field(&text, "record").id().to_string();
        assert_eq!(field(&text, "id"), id.into());
    }
}

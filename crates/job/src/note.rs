//! Annotations: records that keep the status.
//!
//! The list of kinds is closed, and each kind says in which statuses it is allowed. A note never
//! changes the resolved job, with one exception that clients wait for: the output of an interactive
//! turn.

use std::borrow::Cow;

use catena_value::{Map, Value, Vector};

use crate::ids::{JobId, RecordId};
use crate::limits::{CALLS_MAX, STEPS_MAX};
use crate::record::{BadField, EXECUTION, field_text, missing, wrong};
use crate::state::{Ask, Event, Status};

/// The kind of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sub-jobs started or ended.
    Step,
    /// Operations that the job invoked started or ended.
    Call,
    /// An attempt failed, and another one follows.
    Attempt,
    /// A message was received or answered without a change of status.
    Message,
    /// An outcome arrived while the job was paused.
    Held,
    /// The job was put back on the queue after a restart.
    Recovered,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 6] =
        [Kind::Step, Kind::Call, Kind::Attempt, Kind::Message, Kind::Held, Kind::Recovered];

    /// The name of the kind in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Step => "step",
            Kind::Call => "call",
            Kind::Attempt => "attempt",
            Kind::Message => "message",
            Kind::Held => "held",
            Kind::Recovered => "recovered",
        }
    }

    /// The kind with this name. `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether a job in this status may be annotated with this kind.
    pub const fn is_allowed_in(self, status: Status) -> bool {
        use Status::*;
        match self {
            Kind::Step | Kind::Call => {
                matches!(status, Started | Paused | InputRequired | AuthRequired)
            }
            Kind::Attempt => matches!(status, Started),
            Kind::Message => matches!(status, Started | InputRequired | AuthRequired),
            Kind::Held => matches!(status, Paused),
            Kind::Recovered => matches!(status, Pending | Started),
        }
    }
}

/// The content of an annotation.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// Sub-jobs that started or ended in one commit.
    Step {
        /// Steps that started.
        started: Vec<StepStart>,
        /// Steps that ended.
        ended: Vec<StepEnd>,
    },
    /// Invocations that started or ended in one commit.
    Call {
        /// Calls that started.
        started: Vec<CallStart>,
        /// Calls that ended.
        ended: Vec<CallEnd>,
    },
    /// An attempt failed, and another one follows; or a worker claimed another attempt.
    Attempt(Attempt),
    /// A message was received or answered; `trigger` identifies it.
    Message,
    /// An outcome that is applied when the job is resumed. `None` if the venue that wrote the
    /// record does not include the outcome; then it cannot be compared with the record after the
    /// resume.
    Held(Option<Outcome>),
    /// The job was put back on the queue after a restart.
    Recovered {
        /// Number of the attempt that starts, from 1. `None` if it is the previous number plus one.
        attempt: Option<u32>,
        /// Why the previous attempt was interrupted.
        reason: Option<String>,
        /// Number of interruptions so far, including this one if it counts. `None` if it is the
        /// previous number plus one.
        interruptions: Option<u32>,
    },
}

/// An attempt that follows a failed one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Number of the attempt, from 1. `None` if it is the previous number plus one.
    pub attempt: Option<u32>,
    /// Why the previous attempt failed. `None` if the note does not follow a failure.
    pub reason: Option<String>,
    /// Failure code of the previous attempt.
    pub code: Option<String>,
    /// DID of the worker that claimed the attempt.
    pub by: Option<String>,
    /// Environment in which the worker runs it.
    pub environment: Option<String>,
    /// Isolation tier in which the worker runs it.
    pub tier: Option<String>,
}

/// Commits a job to an operation that it invoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallStart {
    /// Number of the call, from 0.
    pub call: u32,
    /// Identifies the call within the job: a repeated turn makes the same call under the same key.
    pub key: String,
    /// Operation as the caller named it.
    pub op: String,
    /// ID of the called job.
    pub job: JobId,
    /// First record of the called job.
    pub record: RecordId,
    /// True if the calling job may end before the called one.
    pub is_detached: bool,
}

/// Commits a job to the end of an operation that it invoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    /// Number of the call.
    pub call: u32,
    /// Final status of the called job.
    pub status: Status,
    /// Last record of the called job.
    pub record: RecordId,
}

/// Commits a parent to a sub-job that started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepStart {
    /// Index of the step.
    pub step: u32,
    /// ID of the sub-job.
    pub job: JobId,
    /// First record of the sub-job.
    pub record: RecordId,
    /// DID of the venue that runs the sub-job. `None` if it is the venue of the parent job.
    pub venue: Option<String>,
}

/// Commits a parent to the end of a sub-job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEnd {
    /// Index of the step.
    pub step: u32,
    /// Final status of the sub-job.
    pub status: Status,
    /// Last record of the sub-job.
    pub record: RecordId,
}

/// The outcome of an operation, from which the next record is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Status that the job changes to.
    pub status: Status,
    /// Output, for COMPLETE and interactive statuses.
    pub output: Option<Value>,
    /// Error text, for FAILED.
    pub error: Option<String>,
    /// What the operation needs, for interactive statuses.
    pub message: Option<String>,
    /// What an executor says about the execution.
    pub execution: Option<Value>,
}

impl Outcome {
    /// A COMPLETE outcome.
    pub fn complete(output: Value) -> Self {
        let output = Some(output);
        Outcome { status: Status::Complete, output, error: None, message: None, execution: None }
    }

    /// A FAILED outcome.
    pub fn failed(error: &str) -> Self {
        let error = Some(error.to_owned());
        Outcome { status: Status::Failed, output: None, error, message: None, execution: None }
    }

    /// The event that applies this outcome to the job.
    pub fn event(self) -> Event {
        let ask = Ask { message: self.message, output: self.output.clone() };
        match self.status {
            Status::Complete => Event::Finished { output: self.output.unwrap_or(Value::Nil) },
            Status::InputRequired => Event::AskedForInput(ask),
            Status::AuthRequired => Event::AskedForAuth(ask),
            Status::Paused => Event::Paused,
            _ => Event::Erred { error: self.error.unwrap_or_default() },
        }
    }

    fn to_value(&self) -> Value {
        let mut fields = vec![("status", Value::from(self.status))];
        fields.extend(self.output.clone().map(|output| ("output", output)));
        fields.extend(self.error.as_deref().map(|error| ("error", error.into())));
        fields.extend(self.message.as_deref().map(|message| ("message", message.into())));
        fields.extend(self.execution.clone().map(|execution| (EXECUTION, execution)));
        fields.into_iter().collect::<Map>().into()
    }

    fn from_value(value: &Value) -> Result<Self, BadField> {
        let map = value.as_map().ok_or_else(|| wrong("note.outcome", "an object"))?;
        let status = parse_status(map, "note.outcome.status")?;
        let holdable = [
            Status::Complete,
            Status::Failed,
            Status::Paused,
            Status::InputRequired,
            Status::AuthRequired,
        ];
        if !holdable.contains(&status) {
            return Err(wrong("note.outcome.status", "a status that an operation can lead to"));
        }
        Ok(Outcome {
            status,
            output: map.field("output").cloned(),
            error: field_text(map, "error")?.map(Cow::into_owned),
            message: field_text(map, "message")?.map(Cow::into_owned),
            execution: map.field(EXECUTION).cloned(),
        })
    }
}

impl Note {
    /// The kind of the note.
    pub fn kind(&self) -> Kind {
        match self {
            Note::Step { .. } => Kind::Step,
            Note::Call { .. } => Kind::Call,
            Note::Attempt(_) => Kind::Attempt,
            Note::Message => Kind::Message,
            Note::Held(_) => Kind::Held,
            Note::Recovered { .. } => Kind::Recovered,
        }
    }

    /// The note as the `note` field of a record.
    pub fn to_value(&self) -> Value {
        let mut fields = vec![("kind", Value::from(self.kind().as_str()))];
        match self {
            Note::Step { started, ended } => {
                push_list(&mut fields, "started", started, StepStart::to_value);
                push_list(&mut fields, "ended", ended, StepEnd::to_value);
            }
            Note::Call { started, ended } => {
                push_list(&mut fields, "started", started, CallStart::to_value);
                push_list(&mut fields, "ended", ended, CallEnd::to_value);
            }
            Note::Attempt(attempt) => {
                fields.extend(attempt.attempt.map(|attempt| ("attempt", attempt.into())));
                let texts = [
                    ("reason", &attempt.reason),
                    ("code", &attempt.code),
                    ("by", &attempt.by),
                    ("environment", &attempt.environment),
                    ("tier", &attempt.tier),
                ];
                let present = texts.into_iter().filter_map(|(name, text)| {
                    text.as_deref().map(|text| (name, Value::from(text)))
                });
                fields.extend(present);
            }
            Note::Recovered { attempt, reason, interruptions } => {
                fields.extend(attempt.map(|attempt| ("attempt", attempt.into())));
                fields.extend(reason.as_deref().map(|reason| ("reason", reason.into())));
                fields.extend(interruptions.map(|count| ("interruptions", count.into())));
            }
            Note::Message => {}
            Note::Held(outcome) => {
                fields.extend(outcome.as_ref().map(|outcome| ("outcome", outcome.to_value())));
            }
        }
        fields.into_iter().collect::<Map>().into()
    }

    /// Reads the `note` field of a record.
    pub fn from_value(value: &Value) -> Result<Self, BadField> {
        let map = value.as_map().ok_or_else(|| wrong("note", "an object"))?;
        let kind = field_text(map, "kind")?.ok_or_else(|| missing("note.kind"))?;
        let kind = Kind::parse(&kind).ok_or_else(|| {
            wrong("note.kind", "one of step, call, attempt, message, held, recovered")
        })?;
        Ok(match kind {
            Kind::Step => {
                let started = parse_list(map, "started", StepStart::from_map)?;
                let ended = parse_list(map, "ended", StepEnd::from_map)?;
                Note::Step { started, ended }
            }
            Kind::Call => {
                let started = parse_list(map, "started", CallStart::from_map)?;
                let ended = parse_list(map, "ended", CallEnd::from_map)?;
                Note::Call { started, ended }
            }
            Kind::Attempt => {
                let text =
                    |name| field_text(map, name).map(|text| text.map(|text| text.into_owned()));
                Note::Attempt(Attempt {
                    attempt: parse_number(map, "attempt", 1)?,
                    reason: text("reason")?,
                    code: text("code")?,
                    by: text("by")?,
                    environment: text("environment")?,
                    tier: text("tier")?,
                })
            }
            Kind::Message => Note::Message,
            Kind::Held => Note::Held(map.field("outcome").map(Outcome::from_value).transpose()?),
            Kind::Recovered => Note::Recovered {
                attempt: parse_number(map, "attempt", 1)?,
                reason: field_text(map, "reason")?.map(Cow::into_owned),
                interruptions: parse_number(map, "interruptions", 0)?,
            },
        })
    }
}

impl StepStart {
    fn to_value(&self) -> Value {
        let mut fields = vec![
            ("step", Value::from(self.step)),
            ("job", self.job.into()),
            ("record", self.record.into()),
        ];
        fields.extend(self.venue.as_deref().map(|venue| ("venue", venue.into())));
        fields.into_iter().collect::<Map>().into()
    }

    fn from_map(map: &Map) -> Result<Self, BadField> {
        let job = field_text(map, "job")?.and_then(|text| text.parse().ok());
        Ok(StepStart {
            step: parse_step_index(map)?,
            job: job.ok_or_else(|| wrong("note.started.job", "a job ID"))?,
            record: parse_record_id(map, "note.started.record")?,
            venue: field_text(map, "venue")?.map(Cow::into_owned),
        })
    }
}

impl StepEnd {
    fn to_value(&self) -> Value {
        let fields = [
            ("step", Value::from(self.step)),
            ("status", self.status.into()),
            ("record", self.record.into()),
        ];
        fields.into_iter().collect::<Map>().into()
    }

    fn from_map(map: &Map) -> Result<Self, BadField> {
        let status = parse_status(map, "note.ended.status")?;
        if !status.is_terminal() {
            return Err(wrong("note.ended.status", "a terminal status"));
        }
        let record = parse_record_id(map, "note.ended.record")?;
        Ok(StepEnd { step: parse_step_index(map)?, status, record })
    }
}

impl CallStart {
    fn to_value(&self) -> Value {
        let mut fields = vec![
            ("call", Value::from(self.call)),
            ("key", self.key.as_str().into()),
            ("op", self.op.as_str().into()),
            ("job", self.job.into()),
            ("record", self.record.into()),
        ];
        fields.extend(self.is_detached.then(|| ("detached", Value::from(true))));
        fields.into_iter().collect::<Map>().into()
    }

    fn from_map(map: &Map) -> Result<Self, BadField> {
        let job = field_text(map, "job")?.and_then(|text| text.parse().ok());
        let key = field_text(map, "key")?.ok_or_else(|| missing("note.started.key"))?;
        let op = field_text(map, "op")?.ok_or_else(|| missing("note.started.op"))?;
        let is_detached = match map.field("detached") {
            None => false,
            Some(Value::Bool(detached)) => *detached,
            Some(_) => return Err(wrong("note.started.detached", "true or false")),
        };
        Ok(CallStart {
            call: parse_call_number(map)?,
            key: key.into_owned(),
            op: op.into_owned(),
            job: job.ok_or_else(|| wrong("note.started.job", "a job ID"))?,
            record: parse_record_id(map, "note.started.record")?,
            is_detached,
        })
    }
}

impl CallEnd {
    fn to_value(&self) -> Value {
        let fields = [
            ("call", Value::from(self.call)),
            ("status", self.status.into()),
            ("record", self.record.into()),
        ];
        fields.into_iter().collect::<Map>().into()
    }

    fn from_map(map: &Map) -> Result<Self, BadField> {
        let status = parse_status(map, "note.ended.status")?;
        if !status.is_terminal() {
            return Err(wrong("note.ended.status", "a terminal status"));
        }
        let record = parse_record_id(map, "note.ended.record")?;
        Ok(CallEnd { call: parse_call_number(map)?, status, record })
    }
}

fn parse_call_number(map: &Map) -> Result<u32, BadField> {
    let number = parse_number(map, "call", 0)?.filter(|number| *number < CALLS_MAX);
    number.ok_or_else(|| wrong("note.call", "the number of a call"))
}

fn parse_status(map: &Map, name: &'static str) -> Result<Status, BadField> {
    let status = field_text(map, "status")?.and_then(|word| Status::parse(&word));
    status.ok_or_else(|| wrong(name, "a status"))
}

fn parse_record_id(map: &Map, name: &'static str) -> Result<RecordId, BadField> {
    let record = field_text(map, "record")?.and_then(|text| text.parse().ok());
    record.ok_or_else(|| wrong(name, "a record ID"))
}

fn parse_step_index(map: &Map) -> Result<u32, BadField> {
    map.field("step")
        .and_then(Value::as_i64)
        .and_then(|index| u32::try_from(index).ok())
        .filter(|index| *index < STEPS_MAX)
        .ok_or_else(|| wrong("note.step", "the index of a step"))
}

/// A whole number of at least `min`, which is 0 or 1.
fn parse_number(map: &Map, name: &'static str, min: u32) -> Result<Option<u32>, BadField> {
    let Some(number) = map.field(name) else { return Ok(None) };
    let number = number.as_i64().and_then(|number| u32::try_from(number).ok());
    match number.filter(|number| *number >= min) {
        Some(number) => Ok(Some(number)),
        None if min == 0 => Err(wrong(note_field(name), "a whole number, 0 or more")),
        None => Err(wrong(note_field(name), "a whole number, 1 or more")),
    }
}

/// The path of a member of a note, for error texts.
fn note_field(name: &'static str) -> &'static str {
    match name {
        "attempt" => "note.attempt",
        "interruptions" => "note.interruptions",
        _ => "note.call",
    }
}

fn push_list<T>(
    fields: &mut Vec<(&'static str, Value)>,
    name: &'static str,
    items: &[T],
    to_value: fn(&T) -> Value,
) {
    if !items.is_empty() {
        let items = items.iter().map(to_value).collect();
        fields.push((name, Vector::from_items(items).into()));
    }
}

fn parse_list<T>(
    map: &Map,
    name: &'static str,
    item: fn(&Map) -> Result<T, BadField>,
) -> Result<Vec<T>, BadField> {
    let Some(value) = map.field(name) else { return Ok(Vec::new()) };
    let vector = value.as_vector().ok_or_else(|| wrong(name, "an array"))?;
    if vector.len() > u64::from(STEPS_MAX.max(CALLS_MAX)) {
        return Err(wrong(name, "at most one entry per step or call"));
    }
    let items = vector.iter(&catena_value::NoCells);
    items
        .map(|entry| match entry {
            Ok(Value::Map(map)) => item(&map),
            _ => Err(wrong(name, "an array of objects")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_round_trips() {
        let record = RecordId::new(Value::Nil.id());
        let job = JobId::new(1, [1; 10]);
        let notes = [
            Note::Step {
                started: vec![
                    StepStart { step: 0, job, record, venue: None },
                    StepStart { step: 7, job, record, venue: Some("did:web:x".into()) },
                ],
                ended: vec![StepEnd { step: 0, status: Status::Failed, record }],
            },
            Note::Call {
                started: vec![CallStart {
                    call: 0,
                    key: "grid:run-1".into(),
                    op: "test:echo".into(),
                    job,
                    record,
                    is_detached: true,
                }],
                ended: vec![CallEnd { call: 0, status: Status::Complete, record }],
            },
            Note::Attempt(Attempt {
                attempt: Some(2),
                reason: Some("timed out".into()),
                code: Some("timeout".into()),
                ..Attempt::default()
            }),
            Note::Attempt(Attempt {
                attempt: Some(2),
                by: Some("did:key:worker".into()),
                environment: Some("py-bare@0".into()),
                tier: Some("T2".into()),
                ..Attempt::default()
            }),
            Note::Message,
            Note::Held(Some(Outcome::complete(Value::Nil))),
            Note::Held(Some(Outcome::failed("why"))),
            Note::Held(None),
            Note::Recovered { attempt: Some(1), reason: None, interruptions: Some(0) },
            Note::Recovered { attempt: None, reason: None, interruptions: None },
            Note::Step { started: vec![], ended: vec![] },
        ];
        for note in notes {
            assert_eq!(Note::from_value(&note.to_value()), Ok(note));
        }
    }

    #[test]
    fn a_malformed_note_is_refused_with_the_field() {
        let refused = |json: &str| {
            let value = catena_value::json::read(json.as_bytes()).unwrap();
            Note::from_value(&value).unwrap_err().to_string()
        };
        assert_eq!(refused("[]"), "`note` must be an object");
        assert_eq!(refused("{}"), "`note.kind` is missing");
        assert_eq!(
            refused(r#"{"kind":"other"}"#),
            "`note.kind` must be one of step, call, attempt, message, held, recovered"
        );
        assert_eq!(
            refused(r#"{"kind":"held","outcome":{"status":"CANCELLED"}}"#),
            "`note.outcome.status` must be a status that an operation can lead to"
        );
        assert_eq!(
            refused(r#"{"kind":"attempt","attempt":0}"#),
            "`note.attempt` must be a whole number, 1 or more"
        );
        let record = RecordId::new(Value::Nil.id());
        let ended = format!(
            r#"{{"kind":"step","ended":[{{"step":1000,"status":"FAILED","record":"{record}"}}]}}"#
        );
        assert_eq!(refused(&ended), "`note.step` must be the index of a step");
    }
}

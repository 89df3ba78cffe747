//! Annotations: records that keep the status.
//!
//! The list of kinds is closed, and each kind says in which statuses it is allowed. A note never
//! changes the resolved job, with one exception that clients wait for: the output of an interactive
//! turn.

use std::borrow::Cow;

use catena_value::{Map, Value, Vector};

use crate::ids::{JobId, RecordId};
use crate::limits::STEPS_MAX;
use crate::record::{BadField, field_text, missing, wrong};
use crate::state::{Ask, Event, Status};

/// The kind of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sub-jobs started or ended.
    Step,
    /// Another attempt started.
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
    pub const ALL: [Kind; 5] =
        [Kind::Step, Kind::Attempt, Kind::Message, Kind::Held, Kind::Recovered];

    /// The name of the kind in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Step => "step",
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
            Kind::Step => matches!(status, Started | Paused | InputRequired | AuthRequired),
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
    /// Another attempt started.
    Attempt {
        /// Number of the attempt, from 1. `None` if it is the previous number plus one.
        attempt: Option<u32>,
        /// Why the previous attempt failed.
        reason: Option<String>,
    },
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
    },
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
}

impl Outcome {
    /// A COMPLETE outcome.
    pub fn complete(output: Value) -> Self {
        Outcome { status: Status::Complete, output: Some(output), error: None, message: None }
    }

    /// A FAILED outcome.
    pub fn failed(error: &str) -> Self {
        let error = Some(error.to_owned());
        Outcome { status: Status::Failed, output: None, error, message: None }
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
        })
    }
}

impl Note {
    /// The kind of the note.
    pub fn kind(&self) -> Kind {
        match self {
            Note::Step { .. } => Kind::Step,
            Note::Attempt { .. } => Kind::Attempt,
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
                let list = |items: Vec<Value>| Value::from(Vector::from_items(items));
                if !started.is_empty() {
                    let items = started.iter().map(StepStart::to_value).collect();
                    fields.push(("started", list(items)));
                }
                if !ended.is_empty() {
                    fields.push(("ended", list(ended.iter().map(StepEnd::to_value).collect())));
                }
            }
            Note::Attempt { attempt, reason } | Note::Recovered { attempt, reason } => {
                fields.extend(attempt.map(|attempt| ("attempt", attempt.into())));
                fields.extend(reason.as_deref().map(|reason| ("reason", reason.into())));
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
        let kind = Kind::parse(&kind)
            .ok_or_else(|| wrong("note.kind", "one of step, attempt, message, held, recovered"))?;
        Ok(match kind {
            Kind::Step => {
                let started = parse_list(map, "started", StepStart::from_map)?;
                let ended = parse_list(map, "ended", StepEnd::from_map)?;
                Note::Step { started, ended }
            }
            Kind::Attempt => {
                let (attempt, reason) = parse_attempt(map)?;
                Note::Attempt { attempt, reason }
            }
            Kind::Message => Note::Message,
            Kind::Held => Note::Held(map.field("outcome").map(Outcome::from_value).transpose()?),
            Kind::Recovered => {
                let (attempt, reason) = parse_attempt(map)?;
                Note::Recovered { attempt, reason }
            }
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

fn parse_attempt(map: &Map) -> Result<(Option<u32>, Option<String>), BadField> {
    let number = map.field("attempt").map(|number| {
        let number = number.as_i64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| *number > 0);
        number.ok_or_else(|| wrong("note.attempt", "a whole number of at least 1"))
    });
    Ok((number.transpose()?, field_text(map, "reason")?.map(Cow::into_owned)))
}

fn parse_list<T>(
    map: &Map,
    name: &'static str,
    item: fn(&Map) -> Result<T, BadField>,
) -> Result<Vec<T>, BadField> {
    let Some(value) = map.field(name) else { return Ok(Vec::new()) };
    let vector = value.as_vector().ok_or_else(|| wrong(name, "an array"))?;
    if vector.len() > u64::from(STEPS_MAX) {
        return Err(wrong(name, "at most one entry per step"));
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
            Note::Attempt { attempt: Some(2), reason: Some("timed out".into()) },
            Note::Message,
            Note::Held(Some(Outcome::complete(Value::Nil))),
            Note::Held(Some(Outcome::failed("why"))),
            Note::Held(None),
            Note::Recovered { attempt: Some(1), reason: None },
            Note::Recovered { attempt: None, reason: None },
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
            "`note.kind` must be one of step, attempt, message, held, recovered"
        );
        assert_eq!(
            refused(r#"{"kind":"held","outcome":{"status":"CANCELLED"}}"#),
            "`note.outcome.status` must be a status that an operation can lead to"
        );
        assert_eq!(
            refused(r#"{"kind":"attempt","attempt":0}"#),
            "`note.attempt` must be a whole number of at least 1"
        );
        let record = RecordId::new(Value::Nil.id());
        let ended = format!(
            r#"{{"kind":"step","ended":[{{"step":1000,"status":"FAILED","record":"{record}"}}]}}"#
        );
        assert_eq!(refused(&ended), "`note.step` must be the index of a step");
    }
}

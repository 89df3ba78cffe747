//! Annotations: records that leave the status as it is.
//!
//! The list of kinds is closed, and each says where it may stand. A note never changes what the
//! resolved job shows, with one exception that people wait for: the answer of an interactive turn.

use std::borrow::Cow;

use catena_value::{Map, Value, Vector};

use crate::ids::{JobId, RecordId};
use crate::limits::STEPS_MAX;
use crate::record::{BadField, field_text, missing, wrong};
use crate::state::{Ask, Event, Status};

/// What an annotation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sub-jobs started or ended.
    Step,
    /// Another try began.
    Attempt,
    /// A message was taken, or answered, without a change of status.
    Message,
    /// An outcome arrived while the job was paused.
    Held,
    /// The job was put back on the queue after a restart.
    Recovered,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::Step, Kind::Attempt, Kind::Message, Kind::Held, Kind::Recovered];

    /// The word that stands in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Step => "step",
            Kind::Attempt => "attempt",
            Kind::Message => "message",
            Kind::Held => "held",
            Kind::Recovered => "recovered",
        }
    }

    /// The kind with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Whether a job in this status may get such a note.
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
        /// Those that started.
        started: Vec<StepStart>,
        /// Those that ended.
        ended: Vec<StepEnd>,
    },
    /// Another try began.
    Attempt {
        /// Its number, the first being 1; the next one when it is not said.
        attempt: Option<u32>,
        /// Why the one before it did not do.
        reason: Option<String>,
    },
    /// A message was taken or answered; which one is in `trigger`.
    Message,
    /// An outcome that waits for the job to be resumed. A venue that keeps it in another form than
    /// ours leaves nothing to compare with what follows.
    Held(Option<Outcome>),
    /// Put back on the queue after a restart.
    Recovered {
        /// The number of the try that begins; the next one when it is not said.
        attempt: Option<u32>,
        /// What happened.
        reason: Option<String>,
    },
}

/// Commits a parent to a sub-job that started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepStart {
    /// Index of the step.
    pub step: u32,
    /// The sub-job.
    pub job: JobId,
    /// Its first record.
    pub record: RecordId,
    /// The venue's DID, when it runs on another one.
    pub venue: Option<String>,
}

/// Commits a parent to how a sub-job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEnd {
    /// Index of the step.
    pub step: u32,
    /// The status it ended in.
    pub status: Status,
    /// Its last record.
    pub record: RecordId,
}

/// An outcome of an operation: what the record that follows will say.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The status it leads to.
    pub status: Status,
    /// The result, with COMPLETE and interactive statuses.
    pub output: Option<Value>,
    /// The error, with FAILED.
    pub error: Option<String>,
    /// What is needed, with interactive statuses.
    pub message: Option<String>,
}

impl Outcome {
    /// A result.
    pub fn complete(output: Value) -> Self {
        Outcome { status: Status::Complete, output: Some(output), error: None, message: None }
    }

    /// An error.
    pub fn failed(error: &str) -> Self {
        let error = Some(error.to_owned());
        Outcome { status: Status::Failed, output: None, error, message: None }
    }

    /// The event that carries this outcome.
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
        let status = status_of(map, "note.outcome.status")?;
        let holdable = [
            Status::Complete,
            Status::Failed,
            Status::Paused,
            Status::InputRequired,
            Status::AuthRequired,
        ];
        if !holdable.contains(&status) {
            return Err(wrong("note.outcome.status", "a status an operation can lead to"));
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
    /// What it is about.
    pub fn kind(&self) -> Kind {
        match self {
            Note::Step { .. } => Kind::Step,
            Note::Attempt { .. } => Kind::Attempt,
            Note::Message => Kind::Message,
            Note::Held(_) => Kind::Held,
            Note::Recovered { .. } => Kind::Recovered,
        }
    }

    /// As it stands in a record.
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

    /// From its place in a record.
    pub fn from_value(value: &Value) -> Result<Self, BadField> {
        let map = value.as_map().ok_or_else(|| wrong("note", "an object"))?;
        let kind = field_text(map, "kind")?.ok_or_else(|| missing("note.kind"))?;
        let kind = Kind::parse(&kind)
            .ok_or_else(|| wrong("note.kind", "one of step, attempt, message, held, recovered"))?;
        Ok(match kind {
            Kind::Step => {
                let started = list(map, "started", StepStart::from_map)?;
                let ended = list(map, "ended", StepEnd::from_map)?;
                Note::Step { started, ended }
            }
            Kind::Attempt => {
                let (attempt, reason) = attempt(map)?;
                Note::Attempt { attempt, reason }
            }
            Kind::Message => Note::Message,
            Kind::Held => Note::Held(map.field("outcome").map(Outcome::from_value).transpose()?),
            Kind::Recovered => {
                let (attempt, reason) = attempt(map)?;
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
            step: step_index(map)?,
            job: job.ok_or_else(|| wrong("note.started.job", "a job ID"))?,
            record: record_id(map, "note.started.record")?,
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
        let status = status_of(map, "note.ended.status")?;
        if !status.is_terminal() {
            return Err(wrong("note.ended.status", "a terminal status"));
        }
        let record = record_id(map, "note.ended.record")?;
        Ok(StepEnd { step: step_index(map)?, status, record })
    }
}

fn status_of(map: &Map, name: &'static str) -> Result<Status, BadField> {
    let status = field_text(map, "status")?.and_then(|word| Status::parse(&word));
    status.ok_or_else(|| wrong(name, "a status"))
}

fn record_id(map: &Map, name: &'static str) -> Result<RecordId, BadField> {
    let record = field_text(map, "record")?.and_then(|text| text.parse().ok());
    record.ok_or_else(|| wrong(name, "a record ID"))
}

fn step_index(map: &Map) -> Result<u32, BadField> {
    let index = map.field("step").and_then(Value::as_i64);
    let index = index.and_then(|index| u32::try_from(index).ok());
    index
        .filter(|index| *index < STEPS_MAX)
        .ok_or_else(|| wrong("note.step", "the index of a step"))
}

fn attempt(map: &Map) -> Result<(Option<u32>, Option<String>), BadField> {
    let number = map.field("attempt").map(|number| {
        let number = number.as_i64().and_then(|number| u32::try_from(number).ok());
        number.filter(|n| *n > 0).ok_or_else(|| wrong("note.attempt", "a number from 1"))
    });
    Ok((number.transpose()?, field_text(map, "reason")?.map(Cow::into_owned)))
}

fn list<T>(
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
    fn every_note_reads_back() {
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
    fn what_a_note_must_not_say_is_named() {
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
            "`note.outcome.status` must be a status an operation can lead to"
        );
        assert_eq!(
            refused(r#"{"kind":"attempt","attempt":0}"#),
            "`note.attempt` must be a number from 1"
        );
        let record = RecordId::new(Value::Nil.id());
        let ended = format!(
            r#"{{"kind":"step","ended":[{{"step":1000,"status":"FAILED","record":"{record}"}}]}}"#
        );
        assert_eq!(refused(&ended), "`note.step` must be the index of a step");
    }
}

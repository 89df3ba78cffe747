//! State records: the links of a chain, as values and with their fields parsed.

use std::borrow::Cow;

use catena_value::{CellSource, LoadError, Map, NoCells, Value, ValueId, encode_into};

use crate::ids::{JobId, RecordId};
use crate::note::Note;
use crate::state::{Ask, Event, Status};

// Fields that every record has, and `note`, which every annotation has.
pub(crate) const STATUS: &str = "status";
pub(crate) const PREV: &str = "prev";
pub(crate) const UPDATED: &str = "updated";
pub(crate) const NOTE: &str = "note";

/// The member of a terminal record with everything that an executor says about the execution, except
/// for `output` and `error`.
pub const EXECUTION: &str = "execution";

/// Fields of the first record that identify the job, its venue and the request. No later record may
/// change one.
pub(crate) const IDENTITY: [&str; 8] =
    ["id", "venue", "op", "operation", "input", "caller", "created", "parent"];

/// One immutable state record.
#[derive(Debug, Clone)]
pub struct Record {
    id: RecordId,
    fields: Map,
    status: Status,
    prev: Option<RecordId>,
    updated: i64,
    note: Option<Note>,
    /// Encoding of a record that was just made: it was needed to compute the ID. `None` for a
    /// record that was read.
    encoding: Option<Vec<u8>>,
}

/// Length that the encoding of a record rarely exceeds: the initial capacity of the buffer.
const ENCODING_BYTES_TYPICAL: usize = 512;

/// A field that is missing or has a wrong value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` {problem}")]
pub struct BadField {
    /// Name of the field.
    pub name: &'static str,
    problem: String,
}

pub(crate) fn missing(name: &'static str) -> BadField {
    BadField { name, problem: "is missing".to_owned() }
}

pub(crate) fn wrong(name: &'static str, expected: &str) -> BadField {
    BadField { name, problem: format!("must be {expected}") }
}

/// The text of a string field. `None` if the field is absent; an error if it is not a string.
pub(crate) fn field_text<'a>(
    map: &'a Map,
    name: &'static str,
) -> Result<Option<Cow<'a, str>>, BadField> {
    match map.field(name) {
        None => Ok(None),
        Some(value) => value.to_text().map(Some).ok_or_else(|| wrong(name, "a string")),
    }
}

/// Fields that the fold and the indexes read. A store keeps them in the same place as the record;
/// all others may be stored separately and are loaded on demand.
pub const SKELETON: [&str; 15] = [
    STATUS,
    PREV,
    UPDATED,
    NOTE,
    "id",
    "venue",
    "op",
    "operation",
    "caller",
    "parent",
    "trigger",
    "error",
    "message",
    "tags",
    "reused",
];

/// Whether a field belongs to the [`SKELETON`].
pub fn is_skeleton(key: &Value) -> bool {
    key.as_str().is_some_and(|key| SKELETON.contains(&key))
}

fn is_in_memory(value: &Value) -> bool {
    match value {
        Value::Unloaded(_) => false,
        Value::String(_) => value.to_text().is_some(),
        Value::Map(_) | Value::Vector(_) => value.fully_loaded(&NoCells).is_ok(),
        _ => true,
    }
}

/// The fields of a stored record, with its skeleton loaded into memory.
fn with_skeleton(fields: Map, cells: &dyn CellSource) -> Result<Map, LoadError> {
    let is_loaded = |(key, value): &(&Value, &Value)| !is_skeleton(key) || is_in_memory(value);
    let in_memory = fields.fields();
    if in_memory.len() as u64 == fields.len() && in_memory.iter().all(is_loaded) {
        return Ok(fields);
    }
    let load = |entry: Result<(Value, Value), LoadError>| {
        let (key, value) = entry?;
        let value = if is_skeleton(&key) { value.fully_loaded(cells)? } else { value };
        Ok((key, value))
    };
    fields.slots(cells).map(load).collect::<Result<Vec<_>, _>>().map(Map::from_iter)
}

/// The position of a sub-job: its parent job, and what it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// ID of the parent job.
    pub job: JobId,
    /// Which sub-job of the parent it is.
    pub link: Link,
}

/// Which sub-job of its parent a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The step with this index.
    Step(u32),
    /// The call with this number.
    Call(u32),
}

impl Parent {
    /// The position of a step.
    pub fn of_step(job: JobId, step: u32) -> Self {
        Parent { job, link: Link::Step(step) }
    }

    /// The position of a call.
    pub fn of_call(job: JobId, call: u32) -> Self {
        Parent { job, link: Link::Call(call) }
    }

    /// The index of the step. `None` if the job is not a step.
    pub fn step(&self) -> Option<u32> {
        match self.link {
            Link::Step(step) => Some(step),
            Link::Call(_) => None,
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        let link = match self.link {
            Link::Step(step) => ("step", Value::from(step)),
            Link::Call(call) => ("call", call.into()),
        };
        [("job", Value::from(self.job)), link].into_iter().collect::<Map>().into()
    }

    pub(crate) fn from_value(value: &Value) -> Result<Self, BadField> {
        let map = value.as_map().ok_or_else(|| wrong("parent", "an object"))?;
        let job = field_text(map, "job")?.and_then(|text| text.parse().ok());
        let number = |name| {
            let number = map.field(name).and_then(Value::as_i64);
            number.and_then(|number| u32::try_from(number).ok())
        };
        let link = number("step").map(Link::Step).or_else(|| number("call").map(Link::Call));
        Ok(Parent {
            job: job.ok_or_else(|| wrong("parent", "an object with the `job` ID"))?,
            link: link.ok_or_else(|| wrong("parent", "an object with the index of a `step`"))?,
        })
    }
}

impl Record {
    /// Parses a record. Its ID is the Value ID of the map.
    pub fn from_map(fields: Map) -> Result<Self, BadField> {
        let id = RecordId::new(Value::from(fields.clone()).id());
        Record::from_stored(fields, id, &NoCells)
    }

    /// A new record. `fields` must contain the other arguments, which are not parsed again.
    pub(crate) fn new(
        fields: Map,
        status: Status,
        prev: Option<RecordId>,
        updated: i64,
        note: Option<Note>,
    ) -> Result<Self, BadField> {
        if updated < 0 {
            return Err(wrong(UPDATED, "a Unix time in whole milliseconds"));
        }
        check_trigger(&fields)?;
        let mut encoding = Vec::with_capacity(ENCODING_BYTES_TYPICAL);
        encode_into(&Value::from(fields.clone()), &mut encoding);
        let id = RecordId::new(ValueId::of_encoding(&encoding));
        Ok(Record { id, fields, status, prev, updated, note, encoding: Some(encoding) })
    }

    /// Like [`Record::from_map`], for a store that already knows the ID; the ID is not checked. The
    /// fields that the fold reads are loaded from `cells`; the others stay unloaded.
    pub fn from_stored(
        fields: Map,
        id: RecordId,
        cells: &dyn CellSource,
    ) -> Result<Self, BadField> {
        let fields = with_skeleton(fields, cells)
            .map_err(|_| wrong("record", "in memory or in the supplied cells"))?;
        let status = field_text(&fields, STATUS)?.ok_or_else(|| missing(STATUS))?;
        let status =
            Status::parse(&status).ok_or_else(|| wrong(STATUS, "one of the ten statuses"))?;
        let prev = parse_prev(&fields)?;
        let updated = fields.field(UPDATED).ok_or_else(|| missing(UPDATED))?.as_i64();
        let updated = updated
            .filter(|at| *at >= 0)
            .ok_or_else(|| wrong(UPDATED, "a Unix time in whole milliseconds"))?;
        let note = fields.field(NOTE).map(Note::from_value).transpose()?;
        check_trigger(&fields)?;
        Ok(Record { id, fields, status, prev, updated, note, encoding: None })
    }

    /// ID of the record; the next record names it in `prev`.
    pub fn id(&self) -> RecordId {
        self.id
    }

    /// All fields of the record.
    pub fn fields(&self) -> &Map {
        &self.fields
    }

    /// The record as a value.
    pub fn to_value(&self) -> Value {
        self.fields.clone().into()
    }

    /// The canonical encoding of the root cell of the record.
    pub fn encoding(&self) -> Cow<'_, [u8]> {
        match &self.encoding {
            Some(encoding) => Cow::Borrowed(encoding),
            None => Cow::Owned(catena_value::encode(&self.to_value())),
        }
    }

    /// Status of the job after this record.
    pub fn status(&self) -> Status {
        self.status
    }

    /// ID of the previous record. `None` for the first record.
    pub fn prev(&self) -> Option<RecordId> {
        self.prev
    }

    /// Time of the record: Unix time in ms.
    pub fn updated(&self) -> i64 {
        self.updated
    }

    /// The note of an annotation. `None` if the record changes the status.
    pub fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// The value of one field. `None` if it is absent.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.field(name)
    }

    /// The event that leads from status `from` to this record. `None` if no event does. Whether the
    /// status allows the event is not checked.
    pub(crate) fn event(&self, from: Status) -> Result<Option<Event>, BadField> {
        if let Some(note) = &self.note {
            return Ok(Some(Event::Noted(note.clone())));
        }
        let error = || {
            let error = field_text(&self.fields, "error")?;
            error.map(Cow::into_owned).ok_or_else(|| missing("error"))
        };
        let ask = || -> Result<Ask, BadField> {
            let message = field_text(&self.fields, "message")?.map(Cow::into_owned);
            Ok(Ask { message, output: self.field("output").cloned() })
        };
        Ok(Some(match self.status {
            // No event leads to PENDING: only a first record has this status.
            Status::Pending => return Ok(None),
            Status::Started => match from {
                Status::Paused => Event::Resumed,
                Status::InputRequired | Status::AuthRequired => Event::Answered,
                _ => Event::Started,
            },
            Status::Complete => {
                let output = self.field("output").cloned();
                Event::Finished { output: output.ok_or_else(|| missing("output"))? }
            }
            Status::Failed => Event::Erred { error: error()? },
            Status::Cancelled => Event::Cancelled { error: error()? },
            Status::Rejected => Event::Refused { error: error()? },
            Status::Timeout => Event::Expired { error: error()? },
            Status::Paused => Event::Paused,
            Status::InputRequired => Event::AskedForInput(ask()?),
            Status::AuthRequired => Event::AskedForAuth(ask()?),
        }))
    }
}

fn parse_prev(fields: &Map) -> Result<Option<RecordId>, BadField> {
    const EXPECTED: &str = "null or `0x` and 64 lower-case hex digits";
    match fields.field(PREV) {
        None => Err(missing(PREV)),
        Some(Value::Nil) => Ok(None),
        Some(value) => {
            let text = value.as_str().ok_or_else(|| wrong(PREV, EXPECTED))?;
            let id: RecordId = text.parse().map_err(|_| wrong(PREV, EXPECTED))?;
            // Only the canonical spelling: the ID of this record depends on it.
            if id.to_string() == text { Ok(Some(id)) } else { Err(wrong(PREV, EXPECTED)) }
        }
    }
}

fn check_trigger(fields: &Map) -> Result<(), BadField> {
    let Some(trigger) = fields.field("trigger") else { return Ok(()) };
    let text = |name: &str| trigger.as_map().and_then(|trigger| trigger.field(name)?.as_str());
    if text("messageId").is_some() {
        return Ok(());
    }
    match text("control").map(str::parse::<RecordId>) {
        Some(Ok(_)) => Ok(()),
        _ => Err(wrong("trigger", "an object with a `messageId` or the `control` record")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_value::json;

    fn record(text: &str) -> Result<Record, BadField> {
        let Value::Map(fields) = json::read(text.as_bytes()).unwrap() else { panic!("no object") };
        Record::from_map(fields)
    }

    #[test]
    fn the_published_chain_has_the_published_ids() {
        // From the vectors cog8_state0 and cog8_state1.
        let first = record(
            r#"{"status":"PENDING","prev":null,"op":"v/test/ops/echo","input":{"text":"hello"},"updated":1769683717706}"#,
        )
        .unwrap();
        let id = "0xafdc597a056f70b0171da7857540d70e5d9bba1da6bd5840b3fac499f44d393b";
        assert_eq!(first.id().to_string(), id);
        let next =
            record(&format!(r#"{{"status":"STARTED","prev":"{id}","updated":1769683717708}}"#))
                .unwrap();
        assert_eq!(next.prev(), Some(first.id()));
        let id = "0xeea86197d55af7d80443163902b08a2140e3d0a8fda4deb44cf33fa02bbf2078";
        assert_eq!(next.id().to_string(), id);
    }

    #[test]
    fn a_bad_field_is_named() {
        let refused = |text: &str| record(text).unwrap_err().to_string();
        assert_eq!(refused("{}"), "`status` is missing");
        assert_eq!(refused(r#"{"status":"DONE"}"#), "`status` must be one of the ten statuses");
        assert_eq!(refused(r#"{"status":"PENDING"}"#), "`prev` is missing");
        assert_eq!(
            refused(r#"{"status":"PENDING","prev":"0xAB"}"#),
            "`prev` must be null or `0x` and 64 lower-case hex digits"
        );
        assert_eq!(refused(r#"{"status":"PENDING","prev":null}"#), "`updated` is missing");
        assert_eq!(
            refused(r#"{"status":"PENDING","prev":null,"updated":1.5}"#),
            "`updated` must be a Unix time in whole milliseconds"
        );
        assert_eq!(
            refused(r#"{"status":"STARTED","prev":null,"updated":1,"trigger":{}}"#),
            "`trigger` must be an object with a `messageId` or the `control` record"
        );
    }
}

//! The chain and its fold: how records become a job, and how a change becomes a record.
//!
//! [`Job`] is the fold of a chain up to some record. [`Job::follow`] checks the next record against
//! everything known at that point and applies it; [`Job::append`] makes a record from a change and
//! then follows it in the same way. So a chain written by this venue passes the same checks as a
//! chain received from another one.

mod calls;
mod merge;
mod steps;

pub use calls::CallState;
pub use merge::{Fork, merge};
pub use steps::StepState;

use std::collections::BTreeMap;

use catena_value::{Map, MapBuilder, Value};

use crate::ids::{JobId, RecordId};
use crate::limits::{HISTORY_RECORDS_MAX, HISTORY_RECORDS_RESERVED};
use crate::note::{Attempt, Kind, Note, Outcome};
use crate::record::{
    BadField, EXECUTION, IDENTITY, NOTE, PREV, Parent, Record, STATUS, UPDATED, field_text,
    missing, wrong,
};
use crate::state::{Event, Illegal, Status, apply};
use calls::Calls;
use steps::Steps;

/// Fields that describe one change of status and not the job; the next change of status clears
/// them.
const TRANSIENT_FIELDS: [&str; 3] = ["message", "trigger", "by"];

/// Fields that every annotation may have. They are not part of the resolved fields.
const ANNOTATION_FIELDS: [&str; 4] = [STATUS, PREV, UPDATED, NOTE];

/// Number of fields that a first record rarely exceeds: the initial capacity of its list.
const FIRST_FIELDS_TYPICAL: usize = 11;

/// Number of fields that a later record rarely exceeds.
const FIELDS_TYPICAL: usize = 5;

/// A job: the fold of its records.
#[derive(Debug, Clone)]
pub struct Job {
    id: JobId,
    venue: String,
    parent: Option<Parent>,
    status: Status,
    head: RecordId,
    first: RecordId,
    count: u64,
    created: i64,
    updated: i64,
    has_started: bool,
    attempt: u32,
    /// Attempts of this turn that failed.
    failures: u32,
    /// Attempts of this turn that were interrupted.
    interruptions: u32,
    /// Why the last attempt that was retried failed.
    last_failure: Option<Box<LastFailure>>,
    /// Outcome that arrived while the job was paused.
    held: Option<Box<Outcome>>,
    /// Held outcome whose record must come next, because the job was resumed.
    due: Option<Box<Outcome>>,
    steps: Steps,
    calls: Calls,
    /// Resolved fields, without `status` and `updated`, which have struct fields of their own.
    fields: Vec<(Value, Value)>,
}

/// Why an attempt failed that was retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailure {
    /// Error text.
    pub reason: String,
    /// Failure code.
    pub code: Option<String>,
}

/// All parts of a fold, as a store keeps them. An outcome that is due is not among them, because
/// the resume and the outcome are always written in one commit.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each is what the method of the same name on `Job` returns")]
pub struct Parts {
    pub id: JobId,
    pub venue: String,
    pub parent: Option<Parent>,
    pub status: Status,
    pub head: RecordId,
    pub first: RecordId,
    pub count: u64,
    pub created: i64,
    pub updated: i64,
    pub has_started: bool,
    pub attempt: u32,
    pub failures: u32,
    pub interruptions: u32,
    pub last_failure: Option<LastFailure>,
    pub held: Option<Outcome>,
    pub steps: Vec<StepState>,
    pub calls: Vec<CallState>,
    pub fields: Vec<(Value, Value)>,
}

/// The reason why a record is not valid at its position in the chain.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChainError {
    /// A field is missing or has a wrong value.
    #[error(transparent)]
    Malformed(#[from] BadField),
    /// The status is not one that a first record may have.
    #[error("a chain cannot start with status {0}")]
    NotFirst(Status),
    /// `prev` does not name the previous record.
    #[error("`prev` names {}, but the previous record is {expected}", or_null(.found))]
    Link {
        /// ID of the previous record.
        expected: RecordId,
        /// The value of `prev`.
        found: Option<RecordId>,
    },
    /// The first record names a predecessor.
    #[error("`prev` of the first record must be null, but it names {0}")]
    MissingStart(RecordId),
    /// The job has already ended.
    #[error("the job has already ended as {0}; no record may follow")]
    Final(Status),
    /// No event leads from one status to the other.
    #[error("status {to} cannot follow {from}")]
    Transition {
        /// Status of the previous record.
        from: Status,
        /// Status of this record.
        to: Status,
    },
    /// An annotation breaks the rules for annotations.
    #[error("{0}")]
    Annotation(String),
    /// `updated` is earlier than in the previous record.
    #[error("`updated` is {found}, which is earlier than {before} in the previous record")]
    Time {
        /// `updated` of the previous record: Unix time in ms.
        before: i64,
        /// `updated` of this record: Unix time in ms.
        found: i64,
    },
    /// A later record changes a field that identifies the job.
    #[error("`{0}` is part of the job's identity and cannot change")]
    Identity(&'static str),
    /// The record after a resume does not carry the outcome that was held during the pause.
    #[error("this record must carry the {expected} outcome that was held during the pause")]
    Held {
        /// Status of the held outcome.
        expected: Status,
    },
    /// A commitment to a sub-job contradicts another.
    #[error("{0}")]
    Commitment(String),
}

fn or_null(id: &Option<RecordId>) -> String {
    id.map_or_else(|| "null".to_owned(), |id| id.to_string())
}

/// The content of the first record of a new job.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// ID of the job.
    pub id: JobId,
    /// DID of the venue. Strings are values here, because a caller that creates many jobs already
    /// has them in that form.
    pub venue: Value,
    /// Operation as the caller named it.
    pub op: Value,
    /// Asset ID of the definition that is used.
    pub operation: Option<Value>,
    /// Input of the operation.
    pub input: Value,
    /// DID of the caller.
    pub caller: Value,
    /// Parent job and step index. `None` if the job is not a step of another job.
    pub parent: Option<Parent>,
    /// Further fields of the first record, such as `tags` and `timeoutMs`.
    pub extra: Vec<(&'static str, Value)>,
}

/// One change of a job.
#[derive(Debug, Clone)]
pub struct Change {
    /// Event that happens to the job.
    pub event: Event,
    /// Unix time in ms. A time before the previous record is raised to that of the record.
    pub now: i64,
    /// DID of the caller that caused the change. `None` if the venue caused it.
    pub by: Option<String>,
    /// Message that caused the change: `{messageId, role?, from}`.
    pub trigger: Option<Value>,
    /// Further fields of the record, such as `discarded` and the last progress.
    pub extra: Vec<(&'static str, Value)>,
}

impl Change {
    /// A change that the venue itself causes, without further fields.
    pub fn new(event: Event, now: i64) -> Self {
        Change { event, now, by: None, trigger: None, extra: Vec::new() }
    }
}

/// The reason why a change was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AppendError {
    /// The status of the job does not allow the event.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// The chain has reached its maximum length.
    #[error("the job's history is full ({HISTORY_RECORDS_MAX} records)")]
    HistoryFull,
    /// The resulting record would violate the rules of the chain.
    #[error("the resulting record would not be valid")]
    Invalid(#[from] ChainError),
}

impl From<BadField> for AppendError {
    fn from(error: BadField) -> Self {
        AppendError::Invalid(ChainError::Malformed(error))
    }
}

impl Job {
    /// Creates a job and its first record: PENDING, or REJECTED if a refusal is given. `now` is
    /// Unix time in ms.
    pub fn create(
        new: NewJob,
        now: i64,
        refusal: Option<&str>,
    ) -> Result<(Job, Record), AppendError> {
        let status = if refusal.is_some() { Status::Rejected } else { Status::Pending };
        let mut fields = MapBuilder::with_capacity(FIRST_FIELDS_TYPICAL + new.extra.len());
        fields.extend([
            (STATUS, Value::from(status)),
            (PREV, Value::Nil),
            (UPDATED, now.into()),
            ("id", new.id.into()),
            ("venue", new.venue),
            ("op", new.op),
            ("input", new.input),
            ("caller", new.caller),
            ("created", now.into()),
        ]);
        fields.extend(new.operation.map(|operation| ("operation", operation)));
        fields.extend(new.parent.map(|parent| ("parent", parent.to_value())));
        fields.extend(refusal.map(|error| ("error", error)));
        add_extra(&mut fields, new.extra)?;
        let record = Record::new(fields.build(), status, None, now, None)?;
        let job = Job::from_first_record(&record)?;
        Ok((job, record))
    }

    /// The job whose chain starts with this record.
    pub fn from_first_record(record: &Record) -> Result<Job, ChainError> {
        if let Some(prev) = record.prev() {
            return Err(ChainError::MissingStart(prev));
        }
        if !matches!(record.status(), Status::Pending | Status::Rejected) {
            return Err(ChainError::NotFirst(record.status()));
        }
        if record.note().is_some() {
            return Err(ChainError::Annotation("the first record cannot be an annotation".into()));
        }
        // Checks that a REJECTED record has an `error`.
        record.event(Status::Pending)?;
        let fields = record.fields();
        let required = |name| field_text(fields, name)?.ok_or_else(|| missing(name));
        let id = required("id")?.parse().map_err(|_| wrong("id", "a job ID"))?;
        let venue = required("venue")?.into_owned();
        required("op")?;
        required("caller")?;
        field_text(fields, "operation")?;
        let created = fields
            .field("created")
            .ok_or_else(|| missing("created"))?
            .as_i64()
            .filter(|at| (0..=record.updated()).contains(at))
            .ok_or_else(|| wrong("created", "a time that is not after `updated`"))?;
        let parent = fields.field("parent").map(Parent::from_value).transpose()?;
        let mut job = Job {
            id,
            venue,
            parent,
            status: record.status(),
            head: record.id(),
            first: record.id(),
            count: 1,
            created,
            updated: record.updated(),
            has_started: false,
            attempt: 1,
            failures: 0,
            interruptions: 0,
            last_failure: None,
            held: None,
            due: None,
            steps: Steps::default(),
            calls: Calls::default(),
            fields: Vec::with_capacity(12),
        };
        job.merge_fields(record);
        Ok(job)
    }

    /// The fold of a complete chain, oldest record first. `None` if there are no records.
    pub fn fold<'a>(
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<Option<Job>, ChainError> {
        let mut records = records.into_iter();
        let Some(first) = records.next() else { return Ok(None) };
        let mut job = Job::from_first_record(first)?;
        for record in records {
            job.follow(record)?;
        }
        Ok(Some(job))
    }

    /// Checks the next record and applies it. On an error, the job is unchanged.
    pub fn follow(&mut self, record: &Record) -> Result<(), ChainError> {
        if record.prev() != Some(self.head) {
            return Err(ChainError::Link { expected: self.head, found: record.prev() });
        }
        if self.status.is_terminal() {
            return Err(ChainError::Final(self.status));
        }
        check_annotation(self.status, record)?;
        let illegal = ChainError::Transition { from: self.status, to: record.status() };
        let Some(event) = record.event(self.status)? else { return Err(illegal) };
        if apply(self.status, &event) != Ok(record.status()) {
            return Err(illegal);
        }
        if record.updated() < self.updated {
            return Err(ChainError::Time { before: self.updated, found: record.updated() });
        }
        self.check_identity(record)?;
        self.check_due(record)?;
        self.check_commitments(&event)?;
        self.apply_checked(record, event);
        Ok(())
    }

    /// Makes the record of a change and applies it. On an error, the job is unchanged.
    pub fn append(&mut self, change: Change) -> Result<Record, AppendError> {
        let status = apply(self.status, &change.event)?;
        self.check_room(&change.event, status)?;
        let now = change.now.max(self.updated);
        let mut fields = MapBuilder::with_capacity(FIELDS_TYPICAL + change.extra.len());
        fields.extend([
            (STATUS, Value::from(status)),
            (PREV, Value::from(self.head)),
            (UPDATED, Value::from(now)),
        ]);
        fields.extend(change.by.map(|by| ("by", by)));
        fields.extend(change.trigger.map(|trigger| ("trigger", trigger)));
        let mut note = None;
        match change.event {
            Event::Finished { output } => fields.push("output", output),
            Event::Refused { error }
            | Event::Erred { error }
            | Event::Cancelled { error }
            | Event::Expired { error } => fields.push("error", error),
            Event::AskedForInput(ask) | Event::AskedForAuth(ask) => {
                fields.extend(ask.message.map(|message| ("message", message)));
                fields.extend(ask.output.map(|output| ("output", output)));
            }
            Event::Noted(noted) => {
                fields.push(NOTE, noted.to_value());
                note = Some(noted);
            }
            Event::Started | Event::Paused | Event::Resumed | Event::Answered => {}
        }
        add_extra(&mut fields, change.extra)?;
        let record = Record::new(fields.build(), status, Some(self.head), now, note)?;
        self.follow(&record)?;
        Ok(record)
    }

    /// Checks that the chain has room for this record and for those needed to end the job after it.
    fn check_room(&self, event: &Event, to: Status) -> Result<(), AppendError> {
        let reserved = match event {
            _ if to.is_terminal() => 0,
            // Returning to STARTED must leave room for the final record.
            Event::Started | Event::Resumed | Event::Answered => 1,
            _ => HISTORY_RECORDS_RESERVED,
        };
        if self.count + reserved >= HISTORY_RECORDS_MAX {
            return Err(AppendError::HistoryFull);
        }
        Ok(())
    }

    fn check_identity(&self, record: &Record) -> Result<(), ChainError> {
        let changed = |name: &&'static str| {
            record.field(name).is_some_and(|value| self.field(name) != Some(value))
        };
        match IDENTITY.into_iter().find(changed) {
            Some(name) => Err(ChainError::Identity(name)),
            None => Ok(()),
        }
    }

    fn check_due(&self, record: &Record) -> Result<(), ChainError> {
        let Some(due) = &self.due else { return Ok(()) };
        let carries = record.note().is_none()
            && record.status() == due.status
            && record.field("output") == due.output.as_ref()
            && record.field("error").and_then(Value::to_text).as_deref() == due.error.as_deref()
            && record.field("message").and_then(Value::to_text).as_deref()
                == due.message.as_deref()
            && record.field(EXECUTION) == due.execution.as_ref();
        if carries { Ok(()) } else { Err(ChainError::Held { expected: due.status }) }
    }

    fn check_commitments(&self, event: &Event) -> Result<(), ChainError> {
        match event {
            Event::Noted(Note::Held(_)) if self.held.is_some() => {
                Err(ChainError::Annotation("an outcome is already held".into()))
            }
            Event::Noted(Note::Held(Some(outcome))) if outcome.status == Status::Complete => {
                self.steps.check_complete()?;
                self.calls.check_complete()
            }
            Event::Noted(Note::Step { started, ended }) => {
                self.steps.check(started, ended, self.held.is_some())
            }
            Event::Noted(Note::Call { started, ended }) => {
                self.calls.check(started, ended, self.held.is_some())
            }
            Event::Finished { .. } => {
                self.steps.check_complete()?;
                self.calls.check_complete()
            }
            _ => Ok(()),
        }
    }

    /// Applies a record that has passed every check.
    fn apply_checked(&mut self, record: &Record, event: Event) {
        self.due = None;
        match event {
            Event::Noted(Note::Step { started, ended }) => {
                self.steps.record(started, ended, record.updated());
            }
            Event::Noted(Note::Call { started, ended }) => {
                self.calls.record(started, ended, record.updated());
            }
            Event::Noted(Note::Attempt(attempt)) => self.apply_attempt(attempt),
            Event::Noted(Note::Recovered { attempt, interruptions, .. }) => {
                self.attempt = attempt.unwrap_or(self.attempt + 1);
                let counts = u32::from(self.status == Status::Started);
                self.interruptions = interruptions.unwrap_or(self.interruptions + counts);
            }
            Event::Noted(Note::Held(outcome)) => self.held = outcome.map(Box::new),
            Event::Noted(Note::Message) => {}
            Event::Resumed => self.due = self.held.take(),
            // A new turn starts with its own count of attempts.
            Event::Answered => {
                self.attempt = 1;
                self.failures = 0;
                self.interruptions = 0;
                self.last_failure = None;
                self.held = None;
            }
            _ => self.held = None,
        }
        if record.note().is_none() {
            self.fields.retain(|(key, _)| !TRANSIENT_FIELDS.iter().any(|name| is_named(key, name)));
        }
        self.status = record.status();
        self.head = record.id();
        self.count += 1;
        self.updated = record.updated();
        self.has_started |= record.status() == Status::Started;
        self.merge_fields(record);
    }

    fn apply_attempt(&mut self, note: Attempt) {
        // A worker that claims an attempt repeats its number and states no reason.
        self.attempt = note.attempt.unwrap_or(self.attempt + 1);
        if let Some(reason) = note.reason {
            self.failures += 1;
            self.last_failure = Some(Box::new(LastFailure { reason, code: note.code }));
        }
    }

    fn merge_fields(&mut self, record: &Record) {
        record.fields().for_each_field(|key, value| {
            if ANNOTATION_FIELDS.iter().any(|name| is_named(key, name)) {
                return;
            }
            match self.fields.iter_mut().find(|(own, _)| same_name(own, key)) {
                Some((_, own)) => *own = value.clone(),
                None => self.fields.push((key.clone(), value.clone())),
            }
        });
    }

    /// The parts of the fold, for a store that keeps them next to a long chain.
    pub fn to_parts(&self) -> Parts {
        Parts {
            id: self.id,
            venue: self.venue.clone(),
            parent: self.parent.clone(),
            status: self.status,
            head: self.head,
            first: self.first,
            count: self.count,
            created: self.created,
            updated: self.updated,
            has_started: self.has_started,
            attempt: self.attempt,
            failures: self.failures,
            interruptions: self.interruptions,
            last_failure: self.last_failure.as_deref().cloned(),
            held: self.held.as_deref().cloned(),
            steps: self.steps.by_index().values().cloned().collect(),
            calls: self.calls.all().to_vec(),
            fields: self.fields.clone(),
        }
    }

    /// Restores the fold from its parts, without checking them. A store compares the parts it keeps
    /// with the chain during a full check.
    pub fn from_parts(parts: Parts) -> Job {
        Job {
            id: parts.id,
            venue: parts.venue,
            parent: parts.parent,
            status: parts.status,
            head: parts.head,
            first: parts.first,
            count: parts.count,
            created: parts.created,
            updated: parts.updated,
            has_started: parts.has_started,
            attempt: parts.attempt,
            failures: parts.failures,
            interruptions: parts.interruptions,
            last_failure: parts.last_failure.map(Box::new),
            held: parts.held.map(Box::new),
            due: None,
            steps: Steps::from_states(parts.steps),
            calls: Calls::from_states(parts.calls),
            fields: parts.fields,
        }
    }

    /// ID of the job.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// DID of the venue that the job belongs to.
    pub fn venue(&self) -> &str {
        &self.venue
    }

    /// Parent job and step index. `None` if the job is not a step of another job.
    pub fn parent(&self) -> Option<&Parent> {
        self.parent.as_ref()
    }

    /// Current status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// ID of the last record.
    pub fn head(&self) -> RecordId {
        self.head
    }

    /// ID of the first record.
    pub fn first_record(&self) -> RecordId {
        self.first
    }

    /// Number of records in the chain.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Time of creation: Unix time in ms.
    pub fn created(&self) -> i64 {
        self.created
    }

    /// Time of the last record: Unix time in ms.
    pub fn updated(&self) -> i64 {
        self.updated
    }

    /// Whether the job has ever been STARTED.
    pub fn has_started(&self) -> bool {
        self.has_started
    }

    /// Number of the current attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Number of attempts of the current turn that failed.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Number of attempts of the current turn that were interrupted.
    pub fn interruptions(&self) -> u32 {
        self.interruptions
    }

    /// Why the last attempt of the current turn that was retried failed.
    pub fn last_failure(&self) -> Option<&LastFailure> {
        self.last_failure.as_deref()
    }

    /// Outcome that arrived while the job was paused and is applied when it is resumed.
    pub fn held(&self) -> Option<&Outcome> {
        self.held.as_deref()
    }

    /// Held outcome that must be appended next, in the same commit as the resume.
    pub fn due(&self) -> Option<&Outcome> {
        self.due.as_deref()
    }

    /// Steps that the chain has started, by step index.
    pub fn steps(&self) -> &BTreeMap<u32, StepState> {
        self.steps.by_index()
    }

    /// Operations that the job invoked, in the order of their numbers.
    pub fn calls(&self) -> &[CallState] {
        self.calls.all()
    }

    /// One resolved field, such as `input` or `output`.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(key, _)| is_named(key, name)).map(|(_, value)| value)
    }

    /// All resolved fields except `status`, `updated` and `head`, in the order in which the chain
    /// first set them.
    pub fn fields(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.fields.iter().map(|(key, value)| (key, value))
    }

    /// The resolved job as a JSON object, the form that clients see.
    pub fn to_value(&self) -> Value {
        let own = [
            (Value::from(STATUS), Value::from(self.status)),
            (Value::from(UPDATED), Value::from(self.updated)),
            (Value::from("head"), Value::from(self.head)),
        ];
        self.fields.iter().cloned().chain(own).collect::<Map>().into()
    }
}

/// Adds the fields given by the caller. An error if one is already set or reserved for the record.
fn add_extra(fields: &mut MapBuilder, extra: Vec<(&'static str, Value)>) -> Result<(), BadField> {
    for (name, value) in extra {
        if fields.has(name) || ANNOTATION_FIELDS.contains(&name) {
            return Err(wrong(name, "set by the record itself"));
        }
        fields.push(name, value);
    }
    Ok(())
}

/// Checks the rules for annotations: a record that keeps the status must have a note and only the
/// fields that its kind of note allows; a record that changes the status must not have a note.
fn check_annotation(before: Status, record: &Record) -> Result<(), ChainError> {
    let annotation = |text: String| Err(ChainError::Annotation(text));
    let Some(note) = record.note() else {
        if record.status() == before {
            return annotation(format!("the record keeps status {before} but has no `note`"));
        }
        return Ok(());
    };
    let kind = note.kind();
    if record.status() != before {
        return annotation(format!("a record that changes the status cannot have a `{NOTE}`"));
    }
    if !kind.is_allowed_in(before) {
        let kind = kind.as_str();
        return annotation(format!(
            "a note of kind {kind} is not allowed while the job is {before}"
        ));
    }
    for (key, _) in record.fields().fields() {
        let is = |name: &&str| is_named(key, name);
        let may_set_output =
            kind == Kind::Message || matches!(before, Status::InputRequired | Status::AuthRequired);
        let allowed = ANNOTATION_FIELDS.iter().any(is)
            || is(&"message")
            || is(&"trigger")
            || is(&"by")
            || is(&"deadline")
            || may_set_output && is(&"output");
        if !allowed {
            let kind = kind.as_str();
            return annotation(format!("a note of kind {kind} cannot set {key:?}"));
        }
    }
    Ok(())
}

fn is_named(key: &Value, name: &str) -> bool {
    matches!(key, Value::String(key) if *key == *name)
}

fn same_name(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.as_bytes() == b.as_bytes(),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests;

//! The chain and its fold: how records become a job, and how a change becomes a record.
//!
//! [`Job`] is the fold of a chain, as far as it has been followed. [`Job::follow`] takes one more
//! record and checks everything that can be known at that place; [`Job::append`] makes a record
//! from a change and then follows it like anybody else's. So a chain we wrote passes the same
//! checks as a chain we are shown.

mod merge;
mod steps;

pub use merge::{Fork, merge};
pub use steps::StepState;

use std::collections::BTreeMap;

use catena_value::{Map, MapBuilder, Value};

use crate::ids::{JobId, RecordId};
use crate::limits::{HISTORY_RECORDS_MAX, HISTORY_RECORDS_RESERVED};
use crate::note::{Kind, Note, Outcome};
use crate::record::{
    BadField, IDENTITY, NOTE, PREV, Parent, Record, STATUS, UPDATED, field_text, missing, wrong,
};
use crate::state::{Event, Illegal, Status, apply};
use steps::Steps;

/// Members that describe one change of status and not the job: the next change clears them.
const OF_THE_MOMENT: [&str; 3] = ["message", "trigger", "by"];

/// Members an annotation may have.
const OF_AN_ANNOTATION: [&str; 4] = [STATUS, PREV, UPDATED, NOTE];

/// Members that a first record has at most as a rule, and a later one: saves growing lists.
const FIRST_FIELDS_USUAL: usize = 11;
const FIELDS_USUAL: usize = 5;

/// A job as its records tell it.
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
    /// An outcome that arrived while the job is paused.
    held: Option<Box<Outcome>>,
    /// A held outcome whose record must come next, because the job was resumed.
    due: Option<Box<Outcome>>,
    steps: Steps,
    /// The resolved members, without those above that are kept apart.
    fields: Vec<(Value, Value)>,
}

/// What a fold consists of. A held outcome that is due is never part of it: the resume and the
/// outcome are one commit.
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
    pub held: Option<Outcome>,
    pub steps: Vec<StepState>,
    pub fields: Vec<(Value, Value)>,
}

/// Why a record cannot stand where it stands.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChainError {
    /// A member is missing or wrong.
    #[error(transparent)]
    Malformed(#[from] BadField),
    /// The chain does not begin as one must.
    #[error("a chain cannot begin with status {0}")]
    NotFirst(Status),
    /// `prev` does not name the record before it.
    #[error("`prev` names {}, but the record before it is {expected}", or_null(.found))]
    Link {
        /// The record before it.
        expected: RecordId,
        /// What `prev` says.
        found: Option<RecordId>,
    },
    /// The first record names a predecessor.
    #[error("the first record names a predecessor, {0}")]
    MissingStart(RecordId),
    /// The job had ended.
    #[error("the job had ended as {0}; nothing may follow")]
    Final(Status),
    /// No event leads from one status to the other.
    #[error("status {to} cannot follow {from}")]
    Transition {
        /// The status before.
        from: Status,
        /// The status of this record.
        to: Status,
    },
    /// An annotation breaks the rules for annotations.
    #[error("{0}")]
    Annotation(String),
    /// Time runs backwards.
    #[error("`updated` is {found}, before the {before} of the record before it")]
    Time {
        /// `updated` of the record before.
        before: i64,
        /// `updated` of this one.
        found: i64,
    },
    /// A later record changes what the job is.
    #[error("`{0}` is part of the job's identity and cannot change")]
    Identity(&'static str),
    /// The outcome held during a pause is not what follows the resume.
    #[error("the outcome held during the pause was {expected}; this record does not carry it")]
    Held {
        /// The status of the held outcome.
        expected: Status,
    },
    /// A commitment to a sub-job contradicts another.
    #[error("{0}")]
    Commitment(String),
}

fn or_null(id: &Option<RecordId>) -> String {
    id.map_or_else(|| "null".to_owned(), |id| id.to_string())
}

/// What a new job is.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Its ID.
    pub id: JobId,
    /// The venue's DID. Texts are values here, since whoever makes many jobs has them as such.
    pub venue: Value,
    /// The operation as the caller named it.
    pub op: Value,
    /// The asset ID of the definition that is used.
    pub operation: Option<Value>,
    /// The input.
    pub input: Value,
    /// The caller's DID.
    pub caller: Value,
    /// Where it hangs, when it is a step of another job.
    pub parent: Option<Parent>,
    /// Further members of the first record, such as `tags` and `timeoutMs`.
    pub extra: Vec<(&'static str, Value)>,
}

/// One change of a job.
#[derive(Debug, Clone)]
pub struct Change {
    /// What happens.
    pub event: Event,
    /// The time in milliseconds since 1970. A clock that went back is corrected.
    pub now: i64,
    /// The DID of whoever caused it, when somebody did.
    pub by: Option<String>,
    /// The message that caused it: `{messageId, role?, from}`.
    pub trigger: Option<Value>,
    /// Further members, such as `discarded` and the last progress.
    pub extra: Vec<(&'static str, Value)>,
}

impl Change {
    /// A change that the venue itself causes.
    pub fn new(event: Event, now: i64) -> Self {
        Change { event, now, by: None, trigger: None, extra: Vec::new() }
    }
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AppendError {
    /// The status does not allow it.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// The chain has no place left for it.
    #[error("the history of the job is full ({HISTORY_RECORDS_MAX} records)")]
    HistoryFull,
    /// The record would not verify.
    #[error("the record would not verify")]
    Invalid(#[from] ChainError),
}

impl From<BadField> for AppendError {
    fn from(error: BadField) -> Self {
        AppendError::Invalid(ChainError::Malformed(error))
    }
}

impl Job {
    /// A new job and its first record: PENDING, or REJECTED when it comes with a refusal.
    pub fn open(
        opening: NewJob,
        now: i64,
        refusal: Option<&str>,
    ) -> Result<(Job, Record), AppendError> {
        let status = if refusal.is_some() { Status::Rejected } else { Status::Pending };
        let mut fields = MapBuilder::with_capacity(FIRST_FIELDS_USUAL + opening.extra.len());
        fields.extend([
            (STATUS, Value::from(status)),
            (PREV, Value::Nil),
            (UPDATED, now.into()),
            ("id", opening.id.into()),
            ("venue", opening.venue),
            ("op", opening.op),
            ("input", opening.input),
            ("caller", opening.caller),
            ("created", now.into()),
        ]);
        fields.extend(opening.operation.map(|operation| ("operation", operation)));
        fields.extend(opening.parent.map(|parent| ("parent", parent.to_value())));
        fields.extend(refusal.map(|error| ("error", error)));
        add_extra(&mut fields, opening.extra)?;
        let record = Record::made(fields.build(), status, None, now, None)?;
        let job = Job::first(&record)?;
        Ok((job, record))
    }

    /// The job that begins with this record.
    pub fn first(record: &Record) -> Result<Job, ChainError> {
        if let Some(prev) = record.prev() {
            return Err(ChainError::MissingStart(prev));
        }
        if !matches!(record.status(), Status::Pending | Status::Rejected) {
            return Err(ChainError::NotFirst(record.status()));
        }
        if record.note().is_some() {
            return Err(ChainError::Annotation("the first record cannot be an annotation".into()));
        }
        // Checks that a refusal says why.
        record.event(Status::Pending)?;
        let fields = record.fields();
        let required = |name| field_text(fields, name)?.ok_or_else(|| missing(name));
        let id = required("id")?.parse().map_err(|_| wrong("id", "a job ID"))?;
        let venue = required("venue")?.into_owned();
        required("op")?;
        required("caller")?;
        field_text(fields, "operation")?;
        let created = fields.field("created").ok_or_else(|| missing("created"))?;
        let created = created.as_i64().filter(|at| (0..=record.updated()).contains(at));
        let created = created.ok_or_else(|| wrong("created", "a time not after `updated`"))?;
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
            held: None,
            due: None,
            steps: Steps::default(),
            fields: Vec::with_capacity(12),
        };
        job.take_fields(record);
        Ok(job)
    }

    /// The fold of a whole chain, oldest record first. Nothing when there is no record.
    pub fn fold<'a>(
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<Option<Job>, ChainError> {
        let mut records = records.into_iter();
        let Some(first) = records.next() else { return Ok(None) };
        let mut job = Job::first(first)?;
        for record in records {
            job.follow(record)?;
        }
        Ok(Some(job))
    }

    /// Takes one more record. On an error the job stays as it was.
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
        self.take(record, event);
        Ok(())
    }

    /// Makes the record of a change and takes it. On an error the job stays as it was.
    pub fn append(&mut self, change: Change) -> Result<Record, AppendError> {
        let status = apply(self.status, &change.event)?;
        self.check_room(&change.event, status)?;
        let now = change.now.max(self.updated);
        let mut fields = MapBuilder::with_capacity(FIELDS_USUAL + change.extra.len());
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
        let record = Record::made(fields.build(), status, Some(self.head), now, note)?;
        self.follow(&record)?;
        Ok(record)
    }

    fn check_room(&self, event: &Event, to: Status) -> Result<(), AppendError> {
        let is_ending =
            to.is_terminal() || matches!(event, Event::Started | Event::Resumed | Event::Answered);
        let kept = if is_ending { 0 } else { HISTORY_RECORDS_RESERVED };
        // A step towards the ending must leave room for the ending itself.
        let kept = if is_ending && !to.is_terminal() { 1 } else { kept };
        if self.count + kept >= HISTORY_RECORDS_MAX {
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
                == due.message.as_deref();
        if carries { Ok(()) } else { Err(ChainError::Held { expected: due.status }) }
    }

    fn check_commitments(&self, event: &Event) -> Result<(), ChainError> {
        match event {
            Event::Noted(Note::Held(_)) if self.held.is_some() => {
                Err(ChainError::Annotation("an outcome is held already".into()))
            }
            Event::Noted(Note::Held(Some(outcome))) if outcome.status == Status::Complete => {
                self.steps.check_complete()
            }
            Event::Noted(Note::Step { started, ended }) => {
                self.steps.check(started, ended, self.held.is_some())
            }
            Event::Finished { .. } => self.steps.check_complete(),
            _ => Ok(()),
        }
    }

    /// Takes a record that passed every check.
    fn take(&mut self, record: &Record, event: Event) {
        self.due = None;
        match event {
            Event::Noted(Note::Step { started, ended }) => {
                self.steps.take(started, ended, record.updated());
            }
            Event::Noted(Note::Attempt { attempt, .. } | Note::Recovered { attempt, .. }) => {
                self.attempt = attempt.unwrap_or(self.attempt + 1);
            }
            Event::Noted(Note::Held(outcome)) => self.held = outcome.map(Box::new),
            Event::Noted(Note::Message) => {}
            Event::Resumed => self.due = self.held.take(),
            // Another turn, with tries of its own.
            Event::Answered => {
                self.attempt = 1;
                self.held = None;
            }
            _ => self.held = None,
        }
        if record.note().is_none() {
            self.fields.retain(|(key, _)| !OF_THE_MOMENT.iter().any(|name| is_named(key, name)));
        }
        self.status = record.status();
        self.head = record.id();
        self.count += 1;
        self.updated = record.updated();
        self.has_started |= record.status() == Status::Started;
        self.take_fields(record);
    }

    fn take_fields(&mut self, record: &Record) {
        record.fields().each_field(|key, value| {
            if OF_AN_ANNOTATION.iter().any(|name| is_named(key, name)) {
                return;
            }
            match self.fields.iter_mut().find(|(own, _)| same_name(own, key)) {
                Some((_, own)) => *own = value.clone(),
                None => self.fields.push((key.clone(), value.clone())),
            }
        });
    }

    /// Everything the fold holds, for a store that keeps it beside a long chain.
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
            held: self.held.as_deref().cloned(),
            steps: self.steps.by_index().values().cloned().collect(),
            fields: self.fields.clone(),
        }
    }

    /// The fold from its parts. They are believed: a store that keeps them checks them against
    /// the chain when it is checked as a whole.
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
            held: parts.held.map(Box::new),
            due: None,
            steps: Steps::from_states(parts.steps),
            fields: parts.fields,
        }
    }

    /// The job's ID.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The DID of the venue it belongs to.
    pub fn venue(&self) -> &str {
        &self.venue
    }

    /// Where it hangs, when it is a step of another job.
    pub fn parent(&self) -> Option<&Parent> {
        self.parent.as_ref()
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Its last record.
    pub fn head(&self) -> RecordId {
        self.head
    }

    /// Its first record.
    pub fn first_record(&self) -> RecordId {
        self.first
    }

    /// How many records it has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// When it was made.
    pub fn created(&self) -> i64 {
        self.created
    }

    /// When its last record was made.
    pub fn updated(&self) -> i64 {
        self.updated
    }

    /// Whether it has ever been STARTED.
    pub fn has_started(&self) -> bool {
        self.has_started
    }

    /// The number of the current try.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The outcome that waits for a resume.
    pub fn held(&self) -> Option<&Outcome> {
        self.held.as_deref()
    }

    /// The outcome that must be appended next, in the same commit as the resume.
    pub fn due(&self) -> Option<&Outcome> {
        self.due.as_deref()
    }

    /// What the chain says about its steps.
    pub fn steps(&self) -> &BTreeMap<u32, StepState> {
        self.steps.by_index()
    }

    /// One resolved member, such as `input` or `output`.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(key, _)| is_named(key, name)).map(|(_, value)| value)
    }

    /// All resolved members but `status`, `updated` and `head`, in the order in which records
    /// brought them.
    pub fn fields(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.fields.iter().map(|(key, value)| (key, value))
    }

    /// The resolved job as clients see it.
    pub fn to_value(&self) -> Value {
        let own = [
            (Value::from(STATUS), Value::from(self.status)),
            (Value::from(UPDATED), Value::from(self.updated)),
            (Value::from("head"), Value::from(self.head)),
        ];
        self.fields.iter().cloned().chain(own).collect::<Map>().into()
    }
}

/// Adds members that the caller names, unless the record has them by itself.
fn add_extra(fields: &mut MapBuilder, extra: Vec<(&'static str, Value)>) -> Result<(), BadField> {
    for (name, value) in extra {
        if fields.has(name) || OF_AN_ANNOTATION.contains(&name) {
            return Err(wrong(name, "left to the record itself"));
        }
        fields.push(name, value);
    }
    Ok(())
}

/// A record that keeps the status has a note and little else; one that changes it has none.
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
        return annotation(format!("a note of kind {kind} cannot stand while a job is {before}"));
    }
    for (key, _) in record.fields().fields() {
        let is = |name: &&str| is_named(key, name);
        let of_a_turn =
            kind == Kind::Message || matches!(before, Status::InputRequired | Status::AuthRequired);
        let allowed = OF_AN_ANNOTATION.iter().any(is)
            || is(&"message")
            || is(&"trigger")
            || of_a_turn && is(&"output");
        if !allowed {
            let kind = kind.as_str();
            return annotation(format!("a note of kind {kind} cannot change {key:?}"));
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

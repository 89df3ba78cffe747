//! Verification: whether a history is complete, untampered and follows the rules.
//!
//! A pure function over a document. It needs no store, no server and no trust: IDs are computed
//! from the records, every record is checked by the same fold that created it, and the commitments
//! of a parent are compared with its sub-jobs. The result names the first invalid record and the
//! reason.

mod reused;

use std::collections::HashMap;

use catena_value::{Map, Value};

use crate::chain::{ChainError, Job};
use crate::history::{Entry, History, HistoryError};
use crate::ids::{JobId, RecordId};
use crate::limits::SUBJOB_DEPTH_MAX;
use crate::record::{Link, Record};
use crate::signature::{self, Checked};
use crate::state::Status;
use reused::Claims;

/// What the verifying party already knows about the job.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// ID that the job must have.
    pub job: Option<JobId>,
    /// DID of the venue that the job must belong to.
    pub venue: Option<String>,
    /// ID that the last record must have.
    pub head: Option<RecordId>,
}

/// The result of a successful verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// ID of the job.
    pub job: JobId,
    /// DID of the venue of the job.
    pub venue: String,
    /// Status after the last record.
    pub status: Status,
    /// Number of records in the chain.
    pub records: u64,
    /// ID of the first record.
    pub first: RecordId,
    /// ID of the last record.
    pub head: RecordId,
    /// Number of sub-jobs, at any depth, whose histories are in the document and valid. Those of an
    /// earlier run whose outputs were reused are included.
    pub subjobs_verified: u64,
    /// Number of sub-jobs whose histories are not in the document.
    pub subjobs_unavailable: u64,
    /// Number of signatures in the document that were checked: whoever ran the job signed how it ended.
    pub signatures_verified: u64,
    /// Number of other signatures in the document.
    pub signatures_unchecked: u64,
}

impl Report {
    /// Counts a sub-job that was verified, and its own.
    fn add_subjob(&mut self, found: &Report) {
        self.subjobs_verified += 1 + found.subjobs_verified;
        self.subjobs_unavailable += found.subjobs_unavailable;
        self.signatures_verified += found.signatures_verified;
        self.signatures_unchecked += found.signatures_unchecked;
    }

    /// The report as JSON.
    pub fn to_value(&self) -> Value {
        let number = |n: u64| Value::from(i64::try_from(n).unwrap_or(i64::MAX));
        let fields = [
            ("valid", Value::from(true)),
            ("job", self.job.into()),
            ("venue", self.venue.as_str().into()),
            ("status", self.status.into()),
            ("records", number(self.records)),
            ("first", self.first.into()),
            ("head", self.head.into()),
            ("subjobsVerified", number(self.subjobs_verified)),
            ("subjobsUnavailable", number(self.subjobs_unavailable)),
            ("signaturesVerified", number(self.signatures_verified)),
            ("signaturesUnchecked", number(self.signatures_unchecked)),
        ];
        fields.into_iter().collect::<Map>().into()
    }
}

/// The first fault that verification found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", self.location())]
pub struct Fault {
    /// Sub-job in which the fault is. `None` if it is in the job itself.
    pub subjob: Option<JobId>,
    /// Index of the first invalid record. `None` if the fault concerns the entire history.
    pub record: Option<u64>,
    /// Kind of the fault.
    pub code: Code,
    /// Description of the fault.
    pub reason: String,
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The document or an entry does not have the required shape.
    MalformedHistory,
    /// A field of a record is missing or has a wrong value.
    MalformedRecord,
    /// A record does not have the ID that the document states.
    HashMismatch,
    /// `prev` does not name the previous record.
    BrokenLink,
    /// The same record occurs twice.
    Duplicate,
    /// Two records follow the same one.
    Fork,
    /// The first record is missing or cannot be a first record.
    BadStart,
    /// A later record changes a field that identifies the job.
    Binding,
    /// The status cannot follow the previous one.
    IllegalTransition,
    /// An annotation breaks the rules for annotations.
    BadAnnotation,
    /// A record follows a terminal status.
    Finality,
    /// `updated` is earlier than in the previous record.
    TimeReversed,
    /// Commitments contradict each other, or a sub-job contradicts its parent.
    Commitment,
    /// Records are missing at the end.
    Incomplete,
    /// The job, the venue or the head is not the expected one.
    Unexpected,
    /// The end of the job was not signed by whoever is said to have ended it.
    Signature,
}

impl Code {
    /// The code in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::MalformedHistory => "malformed_history",
            Code::MalformedRecord => "malformed_record",
            Code::HashMismatch => "hash_mismatch",
            Code::BrokenLink => "broken_link",
            Code::Duplicate => "duplicate_record",
            Code::Fork => "fork",
            Code::BadStart => "bad_start",
            Code::Binding => "binding",
            Code::IllegalTransition => "illegal_transition",
            Code::BadAnnotation => "bad_annotation",
            Code::Finality => "finality",
            Code::TimeReversed => "time_reversed",
            Code::Commitment => "commitment",
            Code::Incomplete => "incomplete",
            Code::Unexpected => "unexpected",
            Code::Signature => "signature",
        }
    }
}

impl Fault {
    /// A fault that concerns the entire history.
    fn in_history(code: Code, reason: impl Into<String>) -> Self {
        Fault { subjob: None, record: None, code, reason: reason.into() }
    }

    /// A fault in one record.
    fn at(record: u64, code: Code, reason: impl Into<String>) -> Self {
        Fault { subjob: None, record: Some(record), code, reason: reason.into() }
    }

    fn in_subjob(mut self, job: JobId) -> Self {
        self.subjob.get_or_insert(job);
        self
    }

    /// The location of the fault, as a prefix of its message.
    fn location(&self) -> String {
        let subjob = self.subjob.map(|job| format!("sub-job {job}, ")).unwrap_or_default();
        let record = self.record.map(|record| format!("record {record}: ")).unwrap_or_default();
        subjob + &record
    }

    /// The fault as JSON.
    pub fn to_value(&self) -> Value {
        let number = |n: u64| Value::from(i64::try_from(n).unwrap_or(i64::MAX));
        let mut fields = vec![
            ("valid", Value::from(false)),
            ("code", self.code.as_str().into()),
            ("reason", self.reason.as_str().into()),
        ];
        fields.extend(self.record.map(|record| ("record", number(record))));
        fields.extend(self.subjob.map(|job| ("subjob", job.into())));
        fields.into_iter().collect::<Map>().into()
    }
}

/// Verifies a history document and every sub-job history it carries.
pub fn verify(document: &Value, expected: &Expected) -> Result<Report, Fault> {
    let history = History::from_value(document).map_err(|error| malformed(&error))?;
    verify_history(&history, expected, 0)
}

fn malformed(error: &HistoryError) -> Fault {
    Fault::in_history(Code::MalformedHistory, error.to_string())
}

fn verify_history(history: &History, expected: &Expected, depth: usize) -> Result<Report, Fault> {
    let mut verifier = Verifier::default();
    for (at, entry) in (0u64..).zip(history.entries()) {
        let entry =
            entry.map_err(|error| Fault::at(at, Code::MalformedHistory, error.to_string()))?;
        verifier.push(entry)?;
    }
    check_complete(history)?;
    let (verified, unchecked) = (verifier.signatures_verified, verifier.signatures_unchecked);
    let claims = std::mem::take(&mut verifier.claims);
    let job = verifier.finish(expected)?;
    let mut report = Report {
        job: job.id(),
        venue: job.venue().to_owned(),
        status: job.status(),
        records: job.count(),
        first: job.first_record(),
        head: job.head(),
        subjobs_verified: 0,
        subjobs_unavailable: 0,
        signatures_verified: verified,
        signatures_unchecked: unchecked,
    };
    for commitment in commitments(&job) {
        let Some(child) = history.child(commitment.job) else {
            report.subjobs_unavailable += 1;
            continue;
        };
        check_depth(depth)?;
        let in_subjob = |fault: Fault| fault.in_subjob(commitment.job);
        let child = child.map_err(|error| in_subjob(malformed(&error)))?;
        let venue = commitment.venue.unwrap_or(job.venue()).to_owned();
        let expected = Expected { job: Some(commitment.job), venue: Some(venue), head: None };
        let found = verify_history(&child, &expected, depth + 1).map_err(in_subjob)?;
        check_child(&job, &commitment, &child, &found).map_err(in_subjob)?;
        report.add_subjob(&found);
    }
    for claim in &claims.all {
        let Some(earlier) = history.child(claim.job) else {
            report.subjobs_unavailable += 1;
            continue;
        };
        check_depth(depth)?;
        let in_subjob = |fault: Fault| fault.in_subjob(claim.job);
        let earlier = earlier.map_err(|error| in_subjob(malformed(&error)))?;
        let venue = (!claim.is_remote).then(|| job.venue().to_owned());
        let expected = Expected { job: Some(claim.job), venue, head: None };
        let found = verify_history(&earlier, &expected, depth + 1).map_err(in_subjob)?;
        claim.check_subjob(&earlier, &found).map_err(in_subjob)?;
        report.add_subjob(&found);
    }
    Ok(report)
}

/// What a job committed to about one of its sub-jobs.
struct Commitment<'a> {
    link: Link,
    job: JobId,
    /// First record.
    first: RecordId,
    /// Final status and last record.
    end: Option<(Status, RecordId)>,
    /// DID of the venue. `None` if it is that of the parent.
    venue: Option<&'a str>,
}

/// The sub-jobs that a job committed to: its steps and its calls.
fn commitments(job: &Job) -> impl Iterator<Item = Commitment<'_>> {
    let steps = job.steps().values().map(|state| Commitment {
        link: Link::Step(state.start.step),
        job: state.start.job,
        first: state.start.record,
        end: state.end.as_ref().map(|end| (end.status, end.record)),
        venue: state.start.venue.as_deref(),
    });
    let calls = job.calls().iter().map(|state| Commitment {
        link: Link::Call(state.start.call),
        job: state.start.job,
        first: state.start.record,
        end: state.end.as_ref().map(|end| (end.status, end.record)),
        venue: None,
    });
    steps.chain(calls)
}

fn check_depth(depth: usize) -> Result<(), Fault> {
    if depth < SUBJOB_DEPTH_MAX {
        return Ok(());
    }
    let reason = format!("sub-jobs nest deeper than {SUBJOB_DEPTH_MAX}");
    Err(Fault::in_history(Code::MalformedHistory, reason))
}

/// Checks that the document has as many records as it says there are.
fn check_complete(history: &History) -> Result<(), Fault> {
    let found = history.len();
    match history.total() {
        Some(total) if total != found => {
            let reason = format!("the history has {found} of {total} records");
            Err(Fault::at(found.min(total), Code::Incomplete, reason))
        }
        _ if history.has_more() => {
            let reason = format!("the history has {found} records and says that more follow");
            Err(Fault::at(found, Code::Incomplete, reason))
        }
        _ => Ok(()),
    }
}

/// Checks that a sub-job is the one that its parent committed to.
fn check_child(
    parent: &Job,
    commitment: &Commitment<'_>,
    history: &History,
    report: &Report,
) -> Result<(), Fault> {
    let fault = |record, reason: String| Err(Fault::at(record, Code::Commitment, reason));
    if report.first != commitment.first {
        let committed = commitment.first;
        return fault(0, format!("the parent job committed to {committed} as the first record"));
    }
    if commitment.venue.is_none() && !names_parent(history, parent.id(), commitment.link) {
        let place = match commitment.link {
            Link::Step(step) => format!("step {step}"),
            Link::Call(call) => format!("call {call}"),
        };
        return fault(0, format!("`parent` must name {place} of job {}", parent.id()));
    }
    let last = report.records - 1;
    match commitment.end {
        Some((_, record)) if record != report.head => {
            fault(last, format!("the parent job committed to {record} as the last record"))
        }
        Some((status, _)) if status != report.status => {
            fault(last, format!("the parent job committed to {status} as the final status"))
        }
        _ => Ok(()),
    }
}

fn names_parent(history: &History, job: JobId, link: Link) -> bool {
    let first = history.entries().next().and_then(Result::ok);
    let record = first.and_then(|entry| Record::from_map(entry.record).ok());
    let child = record.and_then(|record| Job::from_first_record(&record).ok());
    child.is_some_and(|child| child.parent().is_some_and(|p| p.job == job && p.link == link))
}

/// Verifies a chain record by record, so that it need not be in memory all at once.
#[derive(Debug, Default)]
pub struct Verifier {
    job: Option<Job>,
    /// Index of each record, to distinguish forks and duplicates from broken links.
    seen: HashMap<RecordId, u64>,
    signatures_verified: u64,
    signatures_unchecked: u64,
    /// What the job claims to have reused.
    claims: Claims,
}

impl Verifier {
    /// Checks the next entry.
    pub fn push(&mut self, entry: Entry) -> Result<(), Fault> {
        let at = self.seen.len() as u64;
        let found = RecordId::new(Value::from(entry.record.clone()).id());
        if entry.id != found.to_string() {
            let reason = format!("the record is listed as {}, but its ID is {found}", entry.id);
            return Err(Fault::at(at, Code::HashMismatch, reason));
        }
        if let Some(earlier) = self.seen.get(&found) {
            let reason = format!("the same record already occurs at index {earlier}");
            return Err(Fault::at(at, Code::Duplicate, reason));
        }
        let record = Record::from_map(entry.record)
            .map_err(|error| Fault::at(at, Code::MalformedRecord, error.to_string()))?;
        self.follow(at, &record)?;
        if at == 0 {
            self.claims = Claims::from_first_record(&record)?;
        } else {
            self.claims.check_record(at, &record)?;
        }
        self.seen.insert(found, at);
        if let (Some(signature), Some(job)) = (&entry.signature, &self.job) {
            match signature::check(job.id(), &record, signature) {
                Checked::Valid => self.signatures_verified += 1,
                Checked::Unknown => self.signatures_unchecked += 1,
                Checked::Invalid(reason) => return Err(Fault::at(at, Code::Signature, reason)),
            }
        }
        Ok(())
    }

    fn follow(&mut self, at: u64, record: &Record) -> Result<(), Fault> {
        let followed = match &mut self.job {
            Some(job) => job.follow(record),
            None => Job::from_first_record(record).map(|job| self.job = Some(job)),
        };
        followed.map_err(|error| self.fault(at, &error))
    }

    fn fault(&self, at: u64, error: &ChainError) -> Fault {
        let code = match error {
            ChainError::Malformed(_) if at == 0 => Code::BadStart,
            ChainError::Malformed(_) => Code::MalformedRecord,
            ChainError::NotFirst(_) | ChainError::MissingStart(_) => Code::BadStart,
            ChainError::Link { found, .. } => match found.and_then(|found| self.seen.get(&found)) {
                Some(earlier) => {
                    let other = earlier + 1;
                    let reason = format!("records {other} and {at} both follow record {earlier}");
                    return Fault::at(at, Code::Fork, reason);
                }
                None => Code::BrokenLink,
            },
            ChainError::Final(_) => Code::Finality,
            ChainError::Transition { .. } => Code::IllegalTransition,
            ChainError::Annotation(_) => Code::BadAnnotation,
            ChainError::Time { .. } => Code::TimeReversed,
            ChainError::Identity(_) => Code::Binding,
            ChainError::Held { .. } => Code::IllegalTransition,
            ChainError::Commitment(_) => Code::Commitment,
        };
        Fault::at(at, code, error.to_string())
    }

    /// Compares the completed chain with what was expected and returns the job.
    pub fn finish(self, expected: &Expected) -> Result<Job, Fault> {
        let Some(job) = self.job else {
            return Err(Fault::in_history(Code::BadStart, "the history has no records"));
        };
        if let Some(due) = job.due() {
            let reason =
                format!("the job was resumed, but its held outcome {} is missing", due.status);
            return Err(Fault::at(job.count(), Code::Incomplete, reason));
        }
        let unexpected = |what: &str, expected: &dyn ToString, found: &dyn ToString| {
            let reason =
                format!("expected {what} {}, found {}", expected.to_string(), found.to_string());
            Err(Fault::in_history(Code::Unexpected, reason))
        };
        match expected {
            Expected { job: Some(id), .. } if *id != job.id() => unexpected("job", id, &job.id()),
            Expected { venue: Some(venue), .. } if *venue != job.venue() => {
                unexpected("venue", venue, &job.venue())
            }
            Expected { head: Some(head), .. } if *head != job.head() => {
                unexpected("head", head, &job.head())
            }
            _ => Ok(job),
        }
    }
}

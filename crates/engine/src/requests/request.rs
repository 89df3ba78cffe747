//! The requests that the engine accepts and what it returns for them.

use std::sync::Arc;
use std::time::Duration;

use catena_job::{Job, JobId, Record, Status};
use catena_store::{JobCells, ListOrder};
use catena_value::{CellSource, Value};

use crate::requests::{Caller, JobFilter};
use crate::runtime::Reservation;

/// A request to run an operation as a job.
#[derive(Debug, Clone)]
pub struct Invoke {
    /// The caller.
    pub caller: Caller,
    /// A reference to the operation, in any form.
    pub operation: String,
    /// The input of the operation.
    pub input: Value,
    /// How long to wait for the job's end. `None` waits for the grace period only.
    pub wait: Option<Duration>,
    /// The execution limit. `None` applies the operation's limit or the venue's default.
    pub timeout: Option<Duration>,
    /// The tags that the job can be listed by.
    pub tags: Vec<String>,
    /// Whether the job is recorded.
    pub recording: Recording,
    /// Makes a repeated request safe.
    pub idempotency: Option<IdempotencyKey>,
    /// The number of orchestrations that enclose it, including those on calling venues.
    pub depth: u32,
    /// The ID of the job, if the run has one already: the store refuses to create it twice.
    pub id: Option<JobId>,
    /// The memory that is reserved for the input already. `None` if whoever holds the input reserves it.
    pub reserved: Option<Arc<Reservation>>,
}

impl Invoke {
    /// Creates a request for a durable job with defaults for everything else.
    pub fn new(caller: Caller, operation: impl Into<String>, input: Value) -> Self {
        Invoke {
            caller,
            operation: operation.into(),
            input,
            wait: None,
            timeout: None,
            tags: Vec::new(),
            recording: Recording::Durable,
            idempotency: None,
            depth: 0,
            id: None,
            reserved: None,
        }
    }
}

/// A request to create a job unless one with the same key exists.
#[derive(Debug, Clone)]
pub struct SubmitOnce {
    /// The job to create. Workers must run its operation.
    pub invoke: Invoke,
    /// Separates equal keys of one caller.
    pub scope: String,
    /// What makes two requests the same work.
    pub key: String,
    /// True if a job that failed is good enough.
    pub reuses_failed: bool,
}

/// The result of a submission.
#[derive(Debug, Clone)]
pub struct Submitted {
    /// The job as of the response.
    pub view: JobView,
    /// True if an earlier request with the same idempotency key got this response.
    pub is_replay: bool,
    /// True if the job existed before the first of these requests.
    pub is_reused: bool,
}

/// What a rerun of an orchestration runs again. The outputs of all other steps are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RerunScope {
    /// The steps that did not complete, and what depends on them. Everything if the job is COMPLETE.
    Unfinished,
    /// The same, and this step and what depends on it.
    From(u32),
    /// All steps.
    Everything,
}

impl From<Option<u32>> for RerunScope {
    fn from(step: Option<u32>) -> Self {
        step.map_or(RerunScope::Unfinished, RerunScope::From)
    }
}

/// Whether a job is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// The job has a durable chain.
    Durable,
    /// The job exists in memory only, is absent from lists and is forgotten when it ends.
    Private,
}

/// A client's statement that requests with the same key are the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The route, so that a key is not shared between different calls.
    pub endpoint: &'static str,
    /// The key as the client sent it.
    pub key: String,
    /// SHA-256 of the request's body.
    pub body_digest: [u8; 32],
}

/// The result of an invocation.
#[derive(Debug, Clone)]
pub struct Invoked {
    /// The job as of the response.
    pub view: JobView,
    /// True if an earlier request with the same idempotency key created the job.
    pub is_replay: bool,
}

/// A job as an authorised reader sees it.
#[derive(Debug, Clone)]
pub struct JobView {
    /// The fold of its chain.
    pub job: Arc<Job>,
    /// Where the cells of its large members are. `None` if all of it is in memory.
    pub cells: Option<JobCells>,
    /// The number of changes outside the chain (progress, message queue, steps).
    pub changes: u64,
    /// The number of queued messages.
    pub queue_depth: u32,
    /// The last progress report, unless the chain carries it.
    pub progress: Option<Value>,
    /// One entry per step. `None` if the job is not an orchestration.
    pub steps: Option<Value>,
    /// Whether the job is queued or runs.
    pub phase: catena_job::vocabulary::Phase,
    /// When it may be started from its queue, as Unix time in ms. `None` if it is not known to be on
    /// one.
    pub ready_at: Option<i64>,
}

impl JobView {
    /// Returns the job's status.
    pub fn status(&self) -> Status {
        self.job.status()
    }

    /// Returns true if the job waits for its next attempt.
    pub fn waits_for_attempt(&self) -> bool {
        self.status() == Status::Started && self.job.failures() > 0 && self.ready_at.is_some()
    }

    /// Returns the entity tag, with quotes.
    pub fn etag(&self) -> String {
        format!("\"{}-{}\"", self.job.head(), self.changes)
    }

    /// Returns the source of the cells of its large members.
    pub fn cells(&self) -> &dyn CellSource {
        match &self.cells {
            Some(cells) => cells,
            None => &catena_value::NoCells,
        }
    }
}

/// A request of a running job to invoke an operation.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The calling job.
    pub job: JobId,
    /// The caller on whose authority the calling job runs.
    pub caller: Caller,
    /// The caller whose permission is checked, if it is another one: an operation may have to be
    /// permitted to whoever configured the calling job, and still run on the narrower authority of
    /// `caller`.
    pub authority: Option<Caller>,
    /// Identifies the call within the job: a repeated turn makes the same call under the same key.
    pub key: String,
    /// The operation, in any form of reference.
    pub operation: String,
    /// Its input.
    pub input: Value,
    /// True if the calling job does not wait for the end of the call.
    pub is_detached: bool,
}

/// A page of a job's records.
#[derive(Debug, Clone)]
pub struct HistoryPage {
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// The number of records in the chain.
    pub total: u64,
    /// Where the cells of the records are.
    pub cells: JobCells,
    /// The signature next to the last record of the chain, if that is one of these.
    pub signature: Option<Value>,
}

/// A history that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedHistory {
    /// The DID of the job's venue.
    pub venue: String,
    /// The job.
    pub job: JobId,
    /// The number of records that are known now.
    pub records: u64,
    /// How many of them are new.
    pub added: u64,
    /// The ID of the last record.
    pub head: String,
    /// The status after the last record.
    pub status: Status,
    /// True if it is a job of this venue, so that nothing was stored.
    pub is_local: bool,
}

/// Which jobs to list.
#[derive(Debug, Clone)]
pub struct ListJobs {
    /// The filter.
    pub filter: JobFilter,
    /// The sort order.
    pub order: ListOrder,
    /// The cursor: `next` of the previous page. A page is then read without those before it.
    pub after: Option<u64>,
    /// The number of jobs to skip.
    pub offset: u64,
    /// The page size.
    pub limit: usize,
}

impl ListJobs {
    /// Selects one page of all jobs of the caller.
    pub fn all(order: ListOrder, offset: u64, limit: usize) -> Self {
        ListJobs { filter: JobFilter::default(), order, after: None, offset, limit }
    }
}

/// A page of jobs.
#[derive(Debug, Clone)]
pub struct JobList {
    /// The jobs on this page.
    pub jobs: Vec<catena_store::ListedJob>,
    /// The number of jobs on all pages.
    pub total: u64,
    /// True if there may be more than `total`: not all were counted.
    pub is_at_least: bool,
    /// The cursor of the next page. `None` if this is the last page.
    pub next: Option<u64>,
}

impl JobList {
    /// Returns a list without jobs.
    pub(crate) fn empty() -> Self {
        JobList { jobs: Vec::new(), total: 0, is_at_least: false, next: None }
    }
}

/// The acknowledgement of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageReceipt {
    /// The job.
    pub job: JobId,
    /// The job's status when the message was accepted.
    pub status: Status,
    /// The number of queued messages, including this one.
    pub queue_depth: u32,
    /// The message's ID, given by the sender or assigned by the venue.
    pub message_id: String,
    /// True if the job had received this message before. Nothing changed then.
    pub is_duplicate: bool,
    /// True if an earlier request with the same idempotency key sent it.
    pub is_replay: bool,
}

/// The output of an operation that was run with [`crate::Engine::run`].
#[derive(Debug)]
pub struct RunOutput {
    /// The operation's output.
    pub output: Value,
    /// Where the cells of large parts are. `None` if all of it is in memory.
    pub cells: Option<JobCells>,
    /// The job, if one was recorded.
    pub job: Option<JobId>,
    /// True if an earlier request with the same idempotency key created the job.
    pub is_replay: bool,
    /// The memory that the output takes, if the job that has it is not stored.
    pub memory: Option<Reservation>,
}

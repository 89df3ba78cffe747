//! What can be asked of the engine, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use catena_job::{Job, JobId, Record, Status};
use catena_store::{JobCells, ListOrder};
use catena_value::{CellSource, Value};

use crate::caller::Caller;

/// Asks for an operation to be carried out as a job.
#[derive(Debug, Clone)]
pub struct Invoke {
    /// Who asks.
    pub caller: Caller,
    /// The operation, in any form of reference.
    pub operation: String,
    /// Its input.
    pub input: Value,
    /// How long to wait for the end; the grace at least.
    pub wait: Option<Duration>,
    /// How long it may run, when not as long as the operation or the venue says.
    pub timeout: Option<Duration>,
    /// What it is listed under.
    pub tags: Vec<String>,
    /// Whether anything is recorded.
    pub recording: Recording,
    /// Makes a repeated request harmless.
    pub idempotency: Option<IdempotencyKey>,
    /// How many orchestrations it is nested in, here or on the venues it comes from.
    pub depth: u32,
}

impl Invoke {
    /// A request for a durable job, with everything else as it is by default.
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
        }
    }
}

/// Whether a job is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// Durably.
    Durable,
    /// In memory only: absent from lists, forgotten at its end.
    Private,
}

/// A client's promise that requests with the same key are the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The route, so that a key is not shared between different calls.
    pub endpoint: &'static str,
    /// The key as the client sent it.
    pub key: String,
    /// SHA-256 of the request's body.
    pub body_digest: [u8; 32],
}

/// What became of an invocation.
#[derive(Debug, Clone)]
pub struct Invoked {
    /// The job.
    pub view: JobView,
    /// Whether an earlier request with the same key had made it.
    pub is_replay: bool,
}

/// A job as somebody who may see it sees it.
#[derive(Debug, Clone)]
pub struct JobView {
    /// The fold of its chain.
    pub job: Arc<Job>,
    /// The cells of its large members; none when all is in memory.
    pub cells: Option<JobCells>,
    /// How often something beside the chain changed.
    pub changes: u64,
    /// How many messages wait for it.
    pub queue_depth: u32,
    /// The last progress, unless the chain carries it.
    pub progress: Option<Value>,
    /// One entry per step, when it is an orchestration.
    pub steps: Option<Value>,
    /// Whether it is being run, waits for its turn, or neither.
    pub phase: catena_job::vocabulary::Phase,
}

impl JobView {
    /// Where the job stands.
    pub fn status(&self) -> Status {
        self.job.status()
    }

    /// Its entity tag, with quotes.
    pub fn etag(&self) -> String {
        format!("\"{}-{}\"", self.job.head(), self.changes)
    }

    /// The cells of its large members.
    pub fn cells(&self) -> &dyn CellSource {
        match &self.cells {
            Some(cells) => cells,
            None => &catena_value::NoCells,
        }
    }
}

/// Records of a job.
#[derive(Debug, Clone)]
pub struct HistoryPage {
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// How many the chain has.
    pub total: u64,
    /// Their cells.
    pub cells: JobCells,
}

/// Which jobs to list.
#[derive(Debug, Clone)]
pub struct ListJobs {
    /// Whose, when an admin asks for somebody else's.
    pub owner: Option<String>,
    /// Only those that stand here.
    pub status: Option<Status>,
    /// Only those of this operation, as the caller named it.
    pub op: Option<String>,
    /// Only those with this tag.
    pub tag: Option<String>,
    /// The direction.
    pub order: ListOrder,
    /// How many to leave out at the beginning.
    pub offset: u64,
    /// At most so many.
    pub limit: usize,
}

impl ListJobs {
    /// One page of all of the caller's.
    pub fn all(order: ListOrder, offset: u64, limit: usize) -> Self {
        ListJobs { owner: None, status: None, op: None, tag: None, order, offset, limit }
    }
}

/// A page of jobs.
#[derive(Debug, Clone)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<catena_store::ListedJob>,
    /// How many there are in all.
    pub total: u64,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The job.
    pub job: JobId,
    /// Where it stood when the message was taken in.
    pub status: Status,
    /// How many messages wait, this one included.
    pub queue_depth: u32,
    /// The message's ID: the sender's, or one that the venue gave.
    pub message_id: String,
    /// Whether the job has had this message before; then nothing changed.
    pub is_duplicate: bool,
    /// Whether an earlier request with the same key had sent it.
    pub is_replay: bool,
}

/// The output of an operation that was carried out at once.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The output.
    pub output: Value,
    /// Where its large parts are; none when all is in memory.
    pub cells: Option<JobCells>,
    /// The job, when one was recorded.
    pub job: Option<JobId>,
    /// Whether an earlier request with the same key had made it.
    pub is_replay: bool,
}

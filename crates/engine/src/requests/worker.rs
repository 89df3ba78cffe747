//! The requests of workers, and what the engine returns for them.

use std::time::Duration;

use catena_job::{JobId, Status};
use catena_value::{Map, Value, Vector};

use crate::requests::Caller;

/// A request for jobs to run. It may end earlier jobs of the same worker.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The owner of the queues.
    pub caller: Caller,
    /// The name of the worker, unique among those of the owner.
    pub worker: String,
    /// The queues: short names, or full names that begin with the owner.
    pub queues: Vec<String>,
    /// The largest number of jobs.
    pub max: usize,
    /// How long to wait for the first one.
    pub wait: Duration,
    /// Turns that have ended.
    pub done: Vec<EndTurn>,
    /// What an executor says about itself. It is recorded with the start of each attempt.
    pub about: Option<ExecutorAbout>,
}

/// What an executor says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorAbout {
    /// The isolation tier in which it runs code.
    pub tier: String,
}

/// What an executor announces about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedExecutor {
    /// Its name as a worker.
    pub worker: String,
    /// The number of jobs that it runs at a time.
    pub slots: usize,
    /// The versions of its environments.
    pub versions: Vec<String>,
    /// The isolation tier in which it runs code. `None` if it runs none.
    pub tier: Option<String>,
    /// What it found out about each tier on its host.
    pub tiers: Vec<AnnouncedTier>,
    /// Why it can run nothing.
    pub unavailable: Option<String>,
}

/// Whether a tier works on the host of an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedTier {
    /// Its name.
    pub tier: String,
    /// True if it works.
    pub is_available: bool,
    /// What was seen, or why it does not work.
    pub reason: String,
}

/// An executor that is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedExecutor {
    /// What it announced last.
    pub announced: AnnouncedExecutor,
    /// When it did, as Unix time in ms.
    pub announced_at: i64,
    /// When it was last heard of, as Unix time in ms.
    pub heard_at: i64,
    /// When its lease ends, as Unix time in ms. `None` before its first claim.
    pub lease_until: Option<i64>,
    /// The number of jobs that it runs, as far as the caller may see them.
    pub running: usize,
}

/// The end of a turn that a worker ran.
#[derive(Debug, Clone)]
pub struct EndTurn {
    /// The job.
    pub job: JobId,
    /// The fence under which the worker holds it.
    pub fence: u64,
    /// How the turn ended.
    pub end: WorkerEnd,
    /// The worker's signature of an output or an error: see [`catena_job::signature`].
    pub signature: Option<String>,
    /// What an executor says about the execution. It becomes a member of the terminal record.
    pub execution: Option<Value>,
}

/// How a turn of a worker ended.
#[derive(Debug, Clone)]
pub enum WorkerEnd {
    /// With this output.
    Output(Value),
    /// With a failure.
    Error {
        /// The text of the record.
        error: String,
        /// The failure code.
        code: Option<String>,
        /// Whether the job may be retried.
        retry: RetryRequest,
    },
    /// The work hit its limit of time.
    TimedOut {
        /// The text of the record.
        error: String,
    },
    /// The job needs a message from a person.
    Ask {
        /// What is asked.
        message: String,
        /// The schema of the answer.
        schema: Option<Value>,
    },
    /// The worker gives the job back until the calls with these keys have ended. Without keys, the job
    /// is offered again at once.
    Awaiting(Vec<String>),
}

/// What a worker says about a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryRequest {
    /// It would fail in the same way.
    Never,
    /// It may succeed.
    May,
    /// It may succeed after this time.
    After(Duration),
}

/// The result of ending a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// True if the same end was recorded before.
    pub is_repeated: bool,
}

/// The result of a claim.
#[derive(Debug)]
pub struct Claimed {
    /// The jobs that the worker holds now.
    pub jobs: Vec<ClaimedJob>,
    /// When the lease of the worker ends, as Unix time in ms.
    pub lease_until: i64,
    /// The results of [`Claim::done`], in the same order.
    pub done: Vec<(JobId, Result<Ended, crate::error::WorkerError>)>,
}

/// A job that a worker holds.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// The job.
    pub id: JobId,
    /// The fence under which the worker holds it.
    pub fence: u64,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The asset ID of its definition, as 64 hex digits.
    pub operation: String,
    /// The operation as the caller named it.
    pub op: String,
    /// The DID of the caller who invoked it.
    pub caller: String,
    /// The input, including secret values.
    pub input: Value,
    /// The caller's secrets that the operation declares, by name.
    pub secrets: Vec<(String, String)>,
    /// The calls and steps of earlier turns that have ended.
    pub steps: Vec<ClaimedStep>,
    /// The message that the turn answers.
    pub message: Option<Value>,
    /// When the job's time is up, as Unix time in ms.
    pub deadline: Option<i64>,
}

impl ClaimedJob {
    /// Returns the document that a worker gets, with these further members.
    pub fn document(&self, more: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
        let steps: Vector = self.steps.iter().map(ClaimedStep::document).collect();
        let mut members = vec![
            ("id", Value::from(self.id.to_string())),
            ("fence", Value::from(i64::try_from(self.fence).unwrap_or(i64::MAX))),
            ("attempt", i64::from(self.attempt).into()),
            ("operation", self.operation.as_str().into()),
            ("op", self.op.as_str().into()),
            ("caller", self.caller.as_str().into()),
            ("input", self.input.clone()),
            ("steps", steps.into()),
            ("deadline", self.deadline.map_or(Value::Nil, Value::from)),
            ("idempotencyKey", self.id.to_string().into()),
        ];
        if !self.secrets.is_empty() {
            let secrets = self.secrets.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            members.push(("secrets", secrets.collect::<Map>().into()));
        }
        members.extend(self.message.as_ref().map(|message| ("message", content_of(message))));
        members.extend(more);
        members.into_iter().collect::<Map>().into()
    }
}

/// What a message says: its `content`, or the whole message if it has none.
fn content_of(message: &Value) -> Value {
    let content = message.as_map().and_then(|message| message.field("content"));
    content.unwrap_or(message).clone()
}

impl ClaimedStep {
    fn document(&self) -> Value {
        let mut members = vec![
            ("key", Value::from(self.key.as_str())),
            ("job", self.job.to_string().into()),
            ("status", self.status.as_str().into()),
        ];
        members.extend(self.output.clone().map(|output| ("output", output)));
        members.extend(self.error.as_deref().map(|error| ("error", error.into())));
        if self.is_omitted {
            members.push(("omitted", true.into()));
        }
        members.into_iter().collect::<Map>().into()
    }
}

/// A call or step of an earlier turn that has ended.
#[derive(Debug, Clone)]
pub struct ClaimedStep {
    /// Its key within the job.
    pub key: String,
    /// The sub-job that recorded it.
    pub job: JobId,
    /// How it ended.
    pub status: Status,
    /// Its output, completely in memory. `None` if it has none, or if the outputs are too large to be
    /// sent with the job.
    pub output: Option<Value>,
    /// Its error.
    pub error: Option<String>,
    /// True if the output was left out because of its size.
    pub is_omitted: bool,
}

/// A report by which a worker keeps its lease and learns what became of its jobs.
#[derive(Debug, Clone)]
pub struct Beat {
    /// The owner of the queues.
    pub caller: Caller,
    /// The name of the worker.
    pub worker: String,
    /// How long to wait for a signal.
    pub wait: Duration,
    /// All jobs that the worker holds.
    pub jobs: Vec<BeatJob>,
}

/// A job that a worker says it holds.
#[derive(Debug, Clone)]
pub struct BeatJob {
    /// The job.
    pub job: JobId,
    /// The fence under which the worker holds it.
    pub fence: u64,
    /// Its progress.
    pub progress: Option<Value>,
    /// What the job has logged since the last report.
    pub log: Option<String>,
}

/// The result of a beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeatReply {
    /// When the lease of the worker ends, as Unix time in ms.
    pub lease_until: i64,
    /// What the worker must do with its jobs.
    pub signals: Vec<(JobId, WorkerSignal)>,
}

/// What a worker must do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerSignal {
    /// Continue after a pause.
    Go,
    /// Suspend the work.
    Pause,
    /// Stop for good: the job has ended, or belongs to another worker.
    Stop,
}

/// A call that a worker makes for the job that it holds.
#[derive(Debug, Clone)]
pub struct WorkerCall {
    /// The owner of the queue.
    pub caller: Caller,
    /// The job.
    pub job: JobId,
    /// The fence under which the worker holds it.
    pub fence: u64,
    /// Identifies the call within the job.
    pub key: String,
    /// The operation, in any form of reference.
    pub operation: String,
    /// Its input.
    pub input: Value,
    /// How long to wait for its end.
    pub wait: Duration,
    /// What makes a repeated call the same one.
    pub identity: CallIdentity,
}

/// What makes a repeated call the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallIdentity {
    /// The key; a different operation or input under a known key fails.
    KeyAndInput,
    /// The key alone: the recorded result of a step counts, whatever the repetition produced.
    Key,
}

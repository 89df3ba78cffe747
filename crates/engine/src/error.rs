//! Why the engine refused a request or could not complete it: one enum per kind of request. The
//! server maps each variant to one response.

use std::time::Duration;

use catena_job::members::UnknownMember;
use catena_job::verify::Fault;
use catena_job::{JobId, RecordId, Status};
use catena_store::{CommitError, ReadError};

/// A failure of the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is overloaded. Nothing was changed.
    #[error("the venue is busy")]
    Busy,
    /// The disk is full. Nothing was changed.
    #[error("the venue's disk is full")]
    Full,
    /// The store accepts no more writes, or the venue is shutting down.
    #[error("the venue is stopping: {0}")]
    Stopped(String),
    /// Stored data cannot be read.
    #[error("stored data is damaged: {0}")]
    Damaged(String),
    /// Concurrent requests changed the same data on every attempt. Nothing was changed.
    #[error("too many concurrent changes")]
    Contended,
    /// The change does not fit into one commit. Nothing was changed.
    #[error("too large to store: {0}")]
    TooLarge(String),
    /// As much is stored for the caller, or for all callers together, as may be.
    #[error("{bytes} bytes are stored for {whom}, and at most {max} may be")]
    QuotaExceeded {
        /// For whom: `you` or `all callers together`.
        whom: &'static str,
        /// The stored bytes.
        bytes: u64,
        /// The largest number.
        max: u64,
    },
}

impl From<CommitError> for StoreError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Busy => StoreError::Busy,
            CommitError::Full => StoreError::Full,
            CommitError::Stopped { reason } => StoreError::Stopped(reason),
            CommitError::Damaged { reason } => StoreError::Damaged(reason),
            CommitError::TooLarge { reason } => StoreError::TooLarge(reason),
            full @ CommitError::TreeFull { .. } => StoreError::TooLarge(full.to_string()),
            CommitError::HeadMoved { .. }
            | CommitError::RootMoved { .. }
            | CommitError::NotNext { .. }
            | CommitError::Fenced { .. } => StoreError::Contended,
            other => StoreError::Damaged(other.to_string()),
        }
    }
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged { what, reason } => StoreError::Damaged(format!("{what}: {reason}")),
            ReadError::Unavailable { reason } => StoreError::Stopped(reason),
        }
    }
}

/// Why a reference does not resolve to an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The reference names nothing.
    #[error("there is no operation {reference}")]
    Unknown {
        /// The reference, as the caller wrote it.
        reference: String,
        /// The registered names that are most similar to it.
        nearest: Vec<String>,
    },
    /// The reference names an asset that is not an operation.
    #[error("asset {reference} is not an operation")]
    NotAnOperation {
        /// The reference, as the caller wrote it.
        reference: String,
    },
    /// The reference names an operation that this venue cannot run.
    #[error("operation {reference} cannot run on this venue: {reason}")]
    Unusable {
        /// The reference, as the caller wrote it.
        reference: String,
        /// Why it cannot run.
        reason: String,
    },
    /// The text has none of the forms of a reference.
    #[error("{reference} is not a valid operation reference: {reason}")]
    Malformed {
        /// The reference, as the caller wrote it.
        reference: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why roots were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The change itself refused it. Nothing was changed.
    #[error("{error}")]
    Refused {
        /// The failure code.
        code: String,
        /// The reason.
        error: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a history was not imported. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The caller may own nothing.
    #[error("{0}")]
    Forbidden(String),
    /// The history does not verify.
    #[error("the history is not valid: {0}")]
    Invalid(Fault),
    /// The history contradicts what is known of the same job.
    #[error(
        "the history of job {job} of {venue} diverges at record {record}: known is {known}, the document has {found}"
    )]
    Fork {
        /// The DID of the job's venue.
        venue: String,
        /// The job.
        job: JobId,
        /// The index of the first record that differs.
        record: u64,
        /// The known record at this index.
        known: String,
        /// The record of the document at this index.
        found: String,
    },
    /// The caller has as many imported histories as it may have.
    #[error("{0}")]
    Full(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a request with an idempotency key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdempotencyError {
    /// The key was used for another request.
    #[error("the idempotency key was used with another body")]
    Reused,
    /// An earlier request with this key has not been answered yet.
    #[error("a request with this idempotency key is in progress")]
    InFlight,
    /// The caller has as many keys as it may have.
    #[error("too many idempotency keys are stored for this caller")]
    TooMany,
}

/// Why no job was created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The reference does not resolve to an operation.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The request is invalid, for this reason.
    #[error("{0}")]
    Invalid(String),
    /// The input has a member that the operation refuses.
    #[error("{0}")]
    UnknownMember(UnknownMember),
    /// The caller has as many live jobs as it may have.
    #[error("{live} of your jobs have not ended, which is the maximum")]
    TooManyJobs {
        /// The number of the caller's jobs that have not ended.
        live: usize,
    },
    /// All callers together have as many live jobs as the venue takes.
    #[error("{max} jobs of this venue have not ended, which is the maximum")]
    VenueFull {
        /// The largest number.
        max: usize,
    },
    /// The caller exceeded its request rate.
    #[error("too many requests")]
    RateLimited(RateLimited),
    /// The input does not fit the memory that is left.
    #[error(transparent)]
    TooMuchMemory(#[from] TooMuchMemory),
    /// The idempotency key was refused.
    #[error(transparent)]
    Key(#[from] IdempotencyError),
    /// The caller may not do this, for this reason.
    #[error("{0}")]
    Forbidden(String),
    /// The venue is shutting down.
    #[error("the venue is shutting down")]
    ShuttingDown,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why memory was not reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMuchMemory {
    /// The caller holds too much.
    #[error("your requests and jobs may hold at most {max} bytes in memory at a time")]
    OfCaller {
        /// The largest number of bytes.
        max: u64,
    },
    /// All callers together hold too much.
    #[error("requests and jobs may hold at most {max} bytes in memory at a time")]
    OfProcess {
        /// The largest number of bytes.
        max: u64,
    },
}

/// A caller exceeded its request rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimited {
    /// The time until the next request is admitted.
    pub after: Duration,
    /// The number of requests that are admitted at once.
    pub burst: u32,
}

/// Why [`crate::Engine::run`] returned no output.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    /// Nothing was run.
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    /// The job ended without an output, or has not ended yet.
    #[error("{}", .0.error)]
    Ended(Box<NoOutput>),
}

/// A run without an output.
#[derive(Debug, Clone)]
pub struct NoOutput {
    /// The job, if one was recorded.
    pub job: Option<JobId>,
    /// The status of the job or of the unrecorded run.
    pub status: Status,
    /// The error text.
    pub error: String,
    /// The failure code, if the adapter returned one.
    pub code: Option<String>,
    /// True if an earlier request with the same idempotency key created the job.
    pub is_replay: bool,
}

/// Why a job could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The job does not exist, or the caller may not see it.
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// The job was deleted.
    #[error("job {job} was deleted")]
    Deleted {
        /// The job.
        job: JobId,
        /// The ID of its last record.
        head: RecordId,
        /// The DID of the caller that deleted it.
        by: String,
        /// When it was deleted, as Unix time in ms.
        at: i64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a job was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The job does not exist, or the caller may not see it.
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// The job's status does not allow the action.
    #[error("job {job} is {status} and cannot {action}")]
    Conflict {
        /// The job.
        job: JobId,
        /// Its current status.
        status: Status,
        /// The action, as it continues "the job cannot": for example `be paused`.
        action: &'static str,
    },
    /// The job is below a paused job and can be resumed only with it.
    #[error("job {job} cannot be resumed while job {parent} above it is PAUSED")]
    ParentPaused {
        /// The job.
        job: JobId,
        /// The paused job above it.
        parent: JobId,
    },
    /// The job runs, and one of its steps is paused.
    #[error("job {job} is {status} and cannot be resumed; its sub-job {step} is PAUSED")]
    StepPaused {
        /// The job.
        job: JobId,
        /// Its current status.
        status: Status,
        /// The paused sub-job.
        step: JobId,
    },
    /// The job is a step of another job and cannot be changed on its own.
    #[error("job {job} is a step of job {root}")]
    SubJob {
        /// The job.
        job: JobId,
        /// The root of the tree that the job belongs to.
        root: JobId,
    },
    /// The job is private, and the action needs a recorded job.
    #[error("job {job} is private and cannot {action}")]
    Private {
        /// The job.
        job: JobId,
        /// The action, as it continues "the job cannot": for example `be paused`.
        action: &'static str,
    },
    /// The job's chain has as many records as it may have.
    #[error("the history of job {0} is full")]
    HistoryFull(JobId),
    /// The request is invalid, for this reason.
    #[error("{0}")]
    Invalid(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a message was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The job does not exist, or the caller may not see it.
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// The job has ended.
    #[error("job {job} has ended as {status}")]
    Ended {
        /// The job.
        job: JobId,
        /// The status it ended with.
        status: Status,
    },
    /// The job is private: it has no message queue.
    #[error("job {0} is private and accepts no messages")]
    Private(JobId),
    /// The message is too large.
    #[error("the message has {bytes} bytes; the maximum is {max}")]
    TooLarge {
        /// The size of the message as JSON.
        bytes: usize,
        /// The maximum size of a message as JSON.
        max: usize,
    },
    /// The message queue of the job is full.
    #[error("{waiting} messages are queued for job {job}, which is the maximum")]
    QueueFull {
        /// The job.
        job: JobId,
        /// The number of queued messages.
        waiting: u32,
    },
    /// The message has credentials, and the step that waits for them is on another venue.
    #[error(
        "credentials are not sent to other venues: send them to job {asking} at {venue}, which waits for them"
    )]
    CredentialsStay {
        /// The job that the message was sent to.
        job: JobId,
        /// The job on the other venue that waits for the credentials.
        asking: JobId,
        /// That venue's DID.
        venue: String,
    },
    /// The caller exceeded its request rate.
    #[error("too many requests")]
    RateLimited(RateLimited),
    /// The idempotency key was refused.
    #[error(transparent)]
    Key(#[from] IdempotencyError),
    /// The request is invalid, for this reason.
    #[error("{0}")]
    Invalid(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an asset was not registered or not returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssetError {
    /// The asset does not exist.
    #[error("there is no asset {0}")]
    NotFound(String),
    /// The asset exists, but this venue does not have its content.
    #[error("this venue does not have the content of asset {0}")]
    NoContent(String),
    /// The text has none of the forms of a reference, for this reason.
    #[error("{0}")]
    Malformed(String),
    /// The metadata is invalid. Each problem has its location as a JSON pointer and a description.
    #[error("the metadata is invalid: {}", first_problem(.0))]
    Invalid(Vec<(String, String)>),
    /// The content does not have the digest that the metadata declares.
    #[error("the content has the SHA-256 {found}, but the metadata declares {declared}")]
    WrongContent {
        /// The declared SHA-256 in hex.
        declared: String,
        /// The SHA-256 of the uploaded content in hex.
        found: String,
    },
    /// The content is too large.
    #[error("the content has more than {max} bytes")]
    TooLarge {
        /// The maximum size in bytes.
        max: u64,
    },
    /// The caller may not do this, for this reason.
    #[error("{0}")]
    Forbidden(String),
    /// The caller exceeded its request rate.
    #[error("too many requests")]
    RateLimited(RateLimited),
    /// The idempotency key was refused.
    #[error(transparent)]
    Key(#[from] IdempotencyError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a job was not run again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RerunError {
    /// The caller may not see the job, or its status does not allow a rerun.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The new job was not created.
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    /// The output of a step that would be reused is no longer stored.
    #[error("the output of step {step} is no longer stored, so it cannot be reused")]
    StepGone {
        /// The index of the step.
        step: u32,
    },
}

impl From<StoreError> for RerunError {
    fn from(error: StoreError) -> Self {
        RerunError::Control(error.into())
    }
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A definition of an adapter or of a demo asset is invalid.
    #[error("a definition of the venue itself is invalid: {0}")]
    Definition(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ControlError> for StoreError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Store(error) => error,
            other => StoreError::Damaged(other.to_string()),
        }
    }
}

/// Describes the first of some problems and counts the others.
fn first_problem(problems: &[(String, String)]) -> String {
    match problems {
        [] => "unknown".to_owned(),
        [(location, problem)] => format!("{problem} at {location:?}"),
        [(location, problem), rest @ ..] => {
            format!("{problem} at {location:?}, and {} more", rest.len())
        }
    }
}

/// Why a request of a worker was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// The job does not exist, or belongs to a queue of another owner.
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// The queue belongs to another owner.
    #[error("there is no queue {0}")]
    NoSuchQueue(String),
    /// The worker no longer holds the job under this fence.
    #[error("job {0} is no longer held under this fence")]
    Fenced(JobId),
    /// The job is paused: the worker must wait until it is resumed.
    #[error("job {0} is PAUSED")]
    Paused(JobId),
    /// A call could not be made.
    #[error("{error}")]
    Failed {
        /// The failure code.
        code: String,
        /// Why.
        error: String,
    },
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A failure of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

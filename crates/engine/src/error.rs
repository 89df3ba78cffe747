//! Why the engine did not do what it was asked. One enum per kind of request; the server turns
//! each variant into one answer.

use std::time::Duration;

use catena_job::{JobId, Status};
use catena_store::{CommitError, ReadError};

/// The store could not do its part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It has too much to do. Nothing happened.
    #[error("the venue is busy")]
    Busy,
    /// The disk is full. Nothing happened.
    #[error("the venue's disk is full")]
    Full,
    /// It takes no more writes, or the venue is shutting down.
    #[error("the venue is stopping: {0}")]
    Stopped(String),
    /// What is stored cannot be read.
    #[error("what is stored is damaged: {0}")]
    Damaged(String),
    /// Many changed the same thing at once, again and again. Nothing happened.
    #[error("too many changes at once")]
    Contended,
    /// One commit cannot hold it.
    #[error("too large to store: {0}")]
    TooLarge(String),
}

impl From<CommitError> for StoreError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Busy => StoreError::Busy,
            CommitError::Full => StoreError::Full,
            CommitError::Stopped { reason } => StoreError::Stopped(reason),
            CommitError::Damaged { reason } => StoreError::Damaged(reason),
            CommitError::TooLarge { reason } => StoreError::TooLarge(reason),
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

/// A reference that leads to no operation or asset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// Nothing is there.
    #[error("there is no operation {reference}")]
    Unknown {
        /// What was asked for.
        reference: String,
        /// What was perhaps meant.
        nearest: Vec<String>,
    },
    /// It is an asset, but not an operation.
    #[error("asset {reference} is not an operation")]
    NotAnOperation {
        /// What was asked for.
        reference: String,
    },
    /// It is an operation that this venue cannot run.
    #[error("operation {reference} cannot run here: {reason}")]
    Unusable {
        /// What was asked for.
        reference: String,
        /// Why.
        reason: String,
    },
    /// Not a reference in any form.
    #[error("{reference} is not a reference: {reason}")]
    Malformed {
        /// What was asked for.
        reference: String,
        /// What is wrong.
        reason: String,
    },
    /// The store could not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a request with an idempotency key was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdempotencyError {
    /// The key was used for another request.
    #[error("the idempotency key was used with another body")]
    Reused,
    /// A request with this key is being worked on.
    #[error("a request with this idempotency key is being worked on")]
    InFlight,
    /// The caller has too many keys.
    #[error("too many idempotency keys are held for you")]
    TooMany,
}

/// Why no job was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The reference leads nowhere.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The caller has as many live jobs as it may.
    #[error("{live} of your jobs have not ended; there is no room for more")]
    TooManyJobs {
        /// How many.
        live: usize,
    },
    /// The caller asks too often.
    #[error("too many requests")]
    RateLimited(RateLimited),
    /// The idempotency key does not serve.
    #[error(transparent)]
    Key(#[from] IdempotencyError),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The venue is shutting down.
    #[error("the venue is shutting down")]
    ShuttingDown,
    /// The store could not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A rate was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimited {
    /// When the next request may come.
    pub after: Duration,
    /// How many may come at once.
    pub burst: u32,
}

/// Why an operation that was to be run at once gave no output.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    /// Nothing was run.
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    /// The job ended otherwise than with a result, or has not ended.
    #[error("{}", .0.error)]
    Ended(Box<NoOutput>),
}

/// A run without an output.
#[derive(Debug, Clone)]
pub struct NoOutput {
    /// The job, if one was recorded.
    pub job: Option<JobId>,
    /// Where it stands.
    pub status: Status,
    /// What it says.
    pub error: String,
    /// A word for the failure, when the adapter gave one.
    pub code: Option<String>,
    /// Whether an earlier request with the same key made the job.
    pub is_replay: bool,
}

/// Why a job could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// There is none, or the caller may not know of it.
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// The store could not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a job was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// There is none, or the caller may not know of it.
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// It stands where this cannot be done.
    #[error("job {job} is {status}; it cannot {action} now")]
    Conflict {
        /// The job.
        job: JobId,
        /// Where it stands.
        status: Status,
        /// What was asked.
        action: &'static str,
    },
    /// It is a step of another job.
    #[error("job {job} is a step of job {root}")]
    SubJob {
        /// The job.
        job: JobId,
        /// The job that began it all.
        root: JobId,
    },
    /// It is not recorded, so this cannot be done with it.
    #[error("job {job} is private; it cannot {action}")]
    Private {
        /// The job.
        job: JobId,
        /// What was asked.
        action: &'static str,
    },
    /// Its history has no room for this.
    #[error("the history of job {0} is full")]
    HistoryFull(JobId),
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The store could not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a message was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no such job, or the caller may not know of it.
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// It has ended.
    #[error("job {job} has ended as {status}")]
    Ended {
        /// The job.
        job: JobId,
        /// How it ended.
        status: Status,
    },
    /// It is not recorded, so nothing can wait for it.
    #[error("job {0} is private; it takes no messages")]
    Private(JobId),
    /// The message is too large.
    #[error("the message has {bytes} bytes; the most is {max}")]
    TooLarge {
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        max: usize,
    },
    /// The queue is full.
    #[error("{waiting} messages wait for job {job}; there is no room for more")]
    QueueFull {
        /// The job.
        job: JobId,
        /// How many wait.
        waiting: u32,
    },
    /// It has credentials, and the step that waits for them is on another venue.
    #[error("credentials are not sent to other venues; {asking} at {venue} waits for them")]
    CredentialsStay {
        /// The job.
        job: JobId,
        /// The job on the other venue.
        asking: JobId,
        /// That venue's DID.
        venue: String,
    },
    /// The sender asks too often.
    #[error("too many requests")]
    RateLimited(RateLimited),
    /// The idempotency key does not serve.
    #[error(transparent)]
    Key(#[from] IdempotencyError),
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The store could not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an asset was not taken, or not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssetError {
    /// There is none.
    #[error("there is no asset {0}")]
    NotFound(String),
    /// The asset is there, but its content is not.
    #[error("asset {0} has no content here")]
    NoContent(String),
    /// Not a reference in any form.
    #[error("{0}")]
    Malformed(String),
    /// The metadata is not acceptable; every problem with its place as a JSON pointer.
    #[error("the metadata is not acceptable: {}", first(.0))]
    Invalid(Vec<(String, String)>),
    /// The content is not what the metadata says.
    #[error("the content has SHA-256 {found}, the metadata says {declared}")]
    WrongContent {
        /// What the metadata says.
        declared: String,
        /// What was sent.
        found: String,
    },
    /// The content is too large.
    #[error("the content has more than {max} bytes")]
    TooLarge {
        /// The most.
        max: u64,
    },
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The caller asks too often.
    #[error("too many requests")]
    RateLimited(RateLimited),
    /// The idempotency key does not serve.
    #[error(transparent)]
    Key(#[from] IdempotencyError),
    /// The store could not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a job was not run again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RerunError {
    /// The job cannot be seen, or its status does not allow a rerun.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The new job was not created.
    #[error(transparent)]
    Invoke(#[from] InvokeError),
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

fn first(problems: &[(String, String)]) -> String {
    match problems {
        [] => "unknown".to_owned(),
        [(place, problem)] => format!("{problem} at {place:?}"),
        [(place, problem), rest @ ..] => {
            format!("{problem} at {place:?}, and {} more", rest.len())
        }
    }
}

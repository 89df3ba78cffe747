//! What can be made durable, and what can stand in its way.
//!
//! A commit is a list of effects. All of them become durable together or none does; the answer
//! comes after they are. Each says what it relies on (a head, a fence, a root), and is refused
//! when that no longer holds.

use std::sync::Arc;

use catena_job::{Job, JobId, Record, RecordId};
use catena_value::{Value, ValueId};

use crate::store::{Idempotency, Message, RootKey};

/// Everything that becomes durable together.
#[derive(Debug, Clone, Default)]
pub struct Effects(pub Vec<Effect>);

impl Effects {
    /// One effect alone.
    pub fn one(effect: Effect) -> Self {
        Effects(vec![effect])
    }
}

impl From<Vec<Effect>> for Effects {
    fn from(effects: Vec<Effect>) -> Self {
        Effects(effects)
    }
}

/// One thing to make durable.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Appends records to a chain, and advances its head if nobody else has.
    Append {
        /// The job as it is after these records. Shared: whoever commits it usually shows it, too.
        job: Arc<Job>,
        /// The head before them; nothing for a new job.
        after: Option<RecordId>,
        /// The records, oldest first.
        records: Vec<Record>,
        /// The fence of the lease under which this was worked out. Refused when it is not the
        /// current one.
        fence: Option<u64>,
    },
    /// Forgets a job: its head, its records, what waits for it, its index entries.
    Delete {
        /// The job.
        job: JobId,
    },
    /// Keeps the last progress of a job, beside its chain.
    Progress {
        /// The job.
        job: JobId,
        /// What it reported.
        progress: Value,
    },
    /// Counts a change beside a job's chain that stands elsewhere, such as under a root; refused
    /// when there is no such job.
    Touch {
        /// The job.
        job: JobId,
    },
    /// Puts a message at the end of a job's queue.
    Send {
        /// The job.
        job: JobId,
        /// The message. One with an ID the job has had is refused as a duplicate.
        message: Message,
    },
    /// Changes nothing, and is refused unless so many messages wait for a job: whoever ends it
    /// says how many are dropped.
    Waiting {
        /// The job.
        job: JobId,
        /// How many must wait.
        count: u32,
    },
    /// Takes the first message of a job's queue, which must be this one.
    Take {
        /// The job.
        job: JobId,
        /// The message's number.
        number: u64,
    },
    /// Puts a job on a queue, or moves it there. Ends its lease.
    Offer {
        /// The job.
        job: JobId,
        /// Which queue.
        queue: String,
        /// Higher ones are claimed first.
        priority: u8,
        /// Not before this time.
        ready_at: i64,
    },
    /// Takes a job off the queue and ends its lease.
    Withdraw {
        /// The job.
        job: JobId,
    },
    /// Makes a lease last longer.
    Renew {
        /// The job.
        job: JobId,
        /// The lease's fence.
        fence: u64,
        /// Its new end.
        until: i64,
    },
    /// Replaces the value under a root, if it is still the one expected.
    Root {
        /// Which root.
        key: RootKey,
        /// The ID of the value that is there; nothing when there must be none.
        expected: Option<ValueId>,
        /// The new value; nothing removes it.
        value: Option<Value>,
    },
    /// Remembers what a request with an idempotency key was answered, unless the key is taken.
    Remember(Idempotency),
    /// Forgets idempotency keys that expired before this time, at most so many.
    Expire {
        /// The time.
        before: i64,
        /// The most to forget at once.
        limit: usize,
    },
    /// Keeps a small blob, or notes the length of one that is in a file.
    Blob {
        /// SHA-256 of its content.
        digest: [u8; 32],
        /// Its length.
        len: u64,
        /// The content, when it is small.
        content: Option<Arc<[u8]>>,
    },
    /// Forgets a blob.
    ForgetBlob {
        /// SHA-256 of its content.
        digest: [u8; 32],
    },
}

/// What a commit did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The places of new jobs in the order of commits, in the order of the effects.
    pub orders: Vec<u64>,
    /// The length of each queue that got a message, in the order of the effects.
    pub queue_depths: Vec<u32>,
    /// Idempotency keys forgotten.
    pub expired: u64,
}

/// Why nothing was made durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Somebody else appended first.
    #[error("job {job} has moved on")]
    HeadMoved {
        /// The job.
        job: JobId,
        /// The head that was expected.
        expected: Option<RecordId>,
        /// The head that is.
        found: Option<RecordId>,
    },
    /// There is no such job.
    #[error("there is no job {job}")]
    NoSuchJob {
        /// The job.
        job: JobId,
    },
    /// The job has ended: nothing can wait for it or be waited for.
    #[error("job {job} has ended")]
    Ended {
        /// The job.
        job: JobId,
    },
    /// The lease is no longer the one the work was done under.
    #[error("the lease of job {job} is no longer the one with fence {fence}")]
    Fenced {
        /// The job.
        job: JobId,
        /// The fence that was shown.
        fence: u64,
        /// The current one, if the job is leased.
        found: Option<u64>,
    },
    /// The job has had a message with this ID.
    #[error("job {job} has had message {message}")]
    DuplicateMessage {
        /// The job.
        job: JobId,
        /// The message's ID.
        message: String,
        /// How many wait.
        queue_depth: u32,
    },
    /// The job's message queue is full.
    #[error("{waiting} messages wait for job {job}; there is no room for more")]
    MessagesFull {
        /// The job.
        job: JobId,
        /// How many wait.
        waiting: u32,
    },
    /// Not as many messages wait as was expected.
    #[error("{waiting} messages wait for job {job}, not as many as was expected")]
    QueueMoved {
        /// The job.
        job: JobId,
        /// How many wait.
        waiting: u32,
    },
    /// The message is not the first of the queue.
    #[error("message {number} is not the next of job {job}")]
    NotNext {
        /// The job.
        job: JobId,
        /// The message's number.
        number: u64,
    },
    /// Somebody else changed the root first.
    #[error("root {key} has moved on")]
    RootMoved {
        /// The root.
        key: RootKey,
        /// The value that was expected.
        expected: Option<ValueId>,
        /// The value that is.
        found: Option<ValueId>,
    },
    /// A value refers to a cell that is not there.
    #[error("cell {id} is referred to but not held")]
    MissingCell {
        /// The cell.
        id: ValueId,
    },
    /// The idempotency key is taken.
    #[error("the idempotency key is taken")]
    KeyTaken(Box<Idempotency>),
    /// The caller has too many idempotency keys.
    #[error("{held} idempotency keys are held for this caller; there is no room for more")]
    KeysFull {
        /// How many.
        held: u64,
    },
    /// Too much for one commit.
    #[error("the commit is too large: {reason}")]
    TooLarge {
        /// What is too large.
        reason: String,
    },
    /// The store has more to do than it can hold. Nothing happened; try again later.
    #[error("the store is busy")]
    Busy,
    /// The disk is full. Nothing happened; what was accepted before is safe.
    #[error("the disk is full")]
    Full,
    /// A sync failed, or the store was closed: it takes no more writes until it is opened again.
    #[error("the store has stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
    /// What is stored cannot be read.
    #[error("what is stored cannot be read: {reason}")]
    Damaged {
        /// What is wrong.
        reason: String,
    },
}

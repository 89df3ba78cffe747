//! The effects that a commit makes durable, and why a commit can be refused.
//!
//! A commit is a list of effects. All of them become durable together or none does, and the commit
//! completes after they are. Each effect names what it relies on (a head, a fence, a root), and the
//! commit is refused if that has changed.

use std::sync::Arc;

use catena_job::{Job, JobId, Record, RecordId};
use catena_value::{Value, ValueId};

use crate::store::{Holder, Idempotency, Message, RootKey};

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

/// One change to make durable.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Appends records to a chain, and advances its head. Refused if the head has moved.
    Append {
        /// The job after these records. Shared, because the caller usually publishes it, too.
        job: Arc<Job>,
        /// The head before them; `None` for a new job.
        after: Option<RecordId>,
        /// The records, oldest first.
        records: Vec<Record>,
        /// What the commit relies on and changes about who runs the job.
        hold: Hold,
    },
    /// Changes who runs a job, without a record. Refused if the head has moved.
    SetHold {
        /// The job.
        job: JobId,
        /// Its current head.
        after: RecordId,
        /// The change.
        hold: Hold,
    },
    /// Refused if the head of a job is not this one: the commit relies on what another job says.
    CheckHead {
        /// The job.
        job: JobId,
        /// Its expected head.
        head: RecordId,
    },
    /// Counts new jobs below a root. Refused if the root would have more than `max` of them. The
    /// count is kept until the root is deleted.
    CountSubJobs {
        /// The root.
        root: JobId,
        /// The number of new jobs below it.
        count: u64,
        /// The largest number that it may have in total.
        max: u64,
    },
    /// Deletes a job: its head, its records, its messages and its index entries.
    Delete {
        /// The job.
        job: JobId,
    },
    /// Stores the last progress of a job, off-chain.
    SetProgress {
        /// The job.
        job: JobId,
        /// The reported progress.
        progress: Value,
    },
    /// Counts an off-chain change of a job that is stored in another place, such as under a root.
    /// Refused if there is no such job.
    Touch {
        /// The job.
        job: JobId,
    },
    /// Appends a message to a job's message queue.
    SendMessage {
        /// The job.
        job: JobId,
        /// The message. Refused as a duplicate if the job has received a message with the same ID.
        message: Message,
    },
    /// Changes nothing. Refused unless exactly this many messages wait for a job: a commit that ends
    /// the job reports how many are dropped.
    CheckMessageCount {
        /// The job.
        job: JobId,
        /// The expected number of messages.
        count: u32,
    },
    /// Removes the first message of a job's queue. Refused if it is another one.
    TakeMessage {
        /// The job.
        job: JobId,
        /// The message's number.
        number: u64,
    },
    /// Replaces the body of a message that waits for a job. Refused if no such message waits.
    ReplaceMessage {
        /// The job.
        job: JobId,
        /// The message with its number, its ID and its new body.
        message: Message,
    },
    /// Puts a job on a queue, or moves it there. A process that acquires the job removes it.
    Enqueue {
        /// The job.
        job: JobId,
        /// The queue's name.
        queue: String,
        /// Jobs with a higher priority are claimed first.
        priority: u8,
        /// The earliest time of a claim, as Unix time in ms.
        ready_at: i64,
    },
    /// Takes a job off the queue.
    Dequeue {
        /// The job.
        job: JobId,
    },
    /// Replaces the value of a root. Refused if its value is not the expected one.
    SetRoot {
        /// The root.
        key: RootKey,
        /// The ID of the current value; `None` if there must be none.
        expected: Option<ValueId>,
        /// The new value; `None` removes the root.
        value: Option<Value>,
    },
    /// Sets a root that does not exist yet. Changes nothing if it exists: right for values that their
    /// name determines, such as assets, so that it never conflicts.
    SetRootIfAbsent {
        /// The root.
        key: RootKey,
        /// Its value.
        value: Value,
    },
    /// Stores the response to a request with an idempotency key. Refused if the key is in use.
    StoreIdempotency(Idempotency),
    /// Deletes idempotency keys that expired before a time.
    ExpireIdempotency {
        /// The time, as Unix time in ms.
        before: i64,
        /// The largest number of keys to delete.
        limit: usize,
    },
    /// Stores a small blob, or the length of a blob that is in a file.
    StoreBlob {
        /// SHA-256 of its content.
        digest: [u8; 32],
        /// Its length in bytes.
        len: u64,
        /// The content, if it is small.
        content: Option<Arc<[u8]>>,
    },
    /// Deletes a blob's row.
    DeleteBlob {
        /// SHA-256 of its content.
        digest: [u8; 32],
    },
}

/// What a commit relies on and changes about who runs a job.
///
/// A job that is run has a holder and a fence. The fence grows with every new holder, so a commit
/// under an earlier fence comes too late and is refused. A job that ends has no holder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Hold {
    /// Relies on nothing and changes nothing: the commit is about the job, whoever runs it.
    #[default]
    Unchanged,
    /// Refused unless nobody holds the job and its fence is this one: the decision relies on nobody
    /// having started to run it.
    Vacant(u64),
    /// Refused unless the job is held under this fence.
    Under(u64),
    /// Makes a process the holder and takes the job off its queue. Refused unless `fence` is the
    /// current one plus one.
    Acquire {
        /// The new holder.
        holder: Holder,
        /// The new fence.
        fence: u64,
    },
    /// Makes another one the holder under the same fence. Refused unless the job is held under it.
    Transfer {
        /// The new holder.
        holder: Holder,
        /// The fence, which stays the same.
        fence: u64,
    },
    /// Makes the job held by nobody. Refused unless it is held under this fence.
    Release(u64),
    /// Makes the job held by nobody until one of its sub-jobs changes or a message arrives. Refused
    /// unless it is held under this fence.
    Park(u64),
}

/// The result of a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The positions of new jobs in the order of commits, in the order of the effects.
    pub orders: Vec<u64>,
    /// The length of each message queue after its message was added, in the order of the effects.
    pub queue_depths: Vec<u32>,
    /// The number of idempotency keys deleted.
    pub expired: u64,
    /// The changes of the numbers of live jobs, by owner key.
    pub(crate) live: Vec<([u8; 8], i64)>,
}

/// Why a commit was refused. None of its effects is durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Another commit appended to the chain first.
    #[error("job {job} has moved on")]
    HeadMoved {
        /// The job.
        job: JobId,
        /// The head that was expected.
        expected: Option<RecordId>,
        /// The current head.
        found: Option<RecordId>,
    },
    /// There is no such job.
    #[error("there is no job {job}")]
    NoSuchJob {
        /// The job.
        job: JobId,
    },
    /// The job has ended: it takes no messages and cannot be queued.
    #[error("job {job} has ended")]
    Ended {
        /// The job.
        job: JobId,
    },
    /// The job is no longer held under the fence under which the work was done.
    #[error("job {job} is no longer held under fence {fence}")]
    Fenced {
        /// The job.
        job: JobId,
        /// The fence of the commit.
        fence: u64,
        /// The current one, if the job is held.
        found: Option<u64>,
    },
    /// Somebody holds the job that nobody held when the commit was decided.
    #[error("job {job} is held by now")]
    HoldMoved {
        /// The job.
        job: JobId,
    },
    /// The job has already received a message with this ID.
    #[error("job {job} has already received message {message}")]
    DuplicateMessage {
        /// The job.
        job: JobId,
        /// The message's ID.
        message: String,
        /// The number of messages that wait.
        queue_depth: u32,
    },
    /// The job's message queue is full.
    #[error("{waiting} messages wait for job {job}, which is the limit")]
    MessagesFull {
        /// The job.
        job: JobId,
        /// The number of messages that wait.
        waiting: u32,
    },
    /// The number of waiting messages is not the expected one.
    #[error("{waiting} messages wait for job {job}, another number was expected")]
    QueueMoved {
        /// The job.
        job: JobId,
        /// The number of messages that wait.
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
    /// The root of a tree of jobs has too many sub-jobs.
    #[error("job {root} has {count} sub-jobs, and may have at most {max}")]
    TreeFull {
        /// The root.
        root: JobId,
        /// The number of sub-jobs that it has.
        count: u64,
        /// The largest number.
        max: u64,
    },
    /// Another commit changed the root first.
    #[error("root {key} has moved on")]
    RootMoved {
        /// The root.
        key: RootKey,
        /// The ID of the expected value.
        expected: Option<ValueId>,
        /// The ID of the current value.
        found: Option<ValueId>,
    },
    /// A value refers to a cell that is not stored.
    #[error("cell {id} is referred to but not stored")]
    MissingCell {
        /// The cell.
        id: ValueId,
    },
    /// The idempotency key is in use.
    #[error("the idempotency key is in use")]
    KeyTaken(Box<Idempotency>),
    /// The caller has too many idempotency keys.
    #[error("{held} idempotency keys are stored for this caller, which is the limit")]
    KeysFull {
        /// The number of keys.
        held: u64,
    },
    /// The commit exceeds a size limit.
    #[error("the commit is too large: {reason}")]
    TooLarge {
        /// What is too large.
        reason: String,
    },
    /// The commit queue is full. Nothing was changed; retry later.
    #[error("the store is busy")]
    Busy,
    /// The disk is full. Nothing was changed; what was accepted before is safe.
    #[error("the disk is full")]
    Full,
    /// A sync failed, or the store was closed: it accepts no writes until it is opened again.
    #[error("the store has stopped: {reason}")]
    Stopped {
        /// The reason.
        reason: String,
    },
    /// Stored data cannot be read.
    #[error("stored data cannot be read: {reason}")]
    Damaged {
        /// What is wrong.
        reason: String,
    },
}

//! The [`Store`] trait and the types of its results.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use catena_job::{Job, JobId, Record, Status};
use catena_value::{CellSource, LoadError, Value, ValueId, decode_branch};

use crate::effects::{CommitError, Effects, Receipt};
use crate::summary::Summary;

/// The future of a result. Boxed, because a store may be used as a trait object.
pub type StoreFuture<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Durable storage of jobs, messages, leases and values. One implementation per backend.
pub trait Store: Send + Sync + 'static {
    /// Makes effects durable together. The future resolves after they are. Commits about one job take
    /// effect in the order in which this function was called.
    fn commit(&self, effects: Effects) -> StoreFuture<'static, Receipt, CommitError>;

    /// Leases the first ready job of a queue to a worker. `now` and `until` are Unix times in ms.
    /// `None` if no job is ready.
    fn claim(
        &self,
        queue: &str,
        worker: &str,
        now: i64,
        until: i64,
    ) -> StoreFuture<'static, Option<Claim>, CommitError>;

    /// A job: its fold, its position in the order, and its off-chain state. `None` if there is no such
    /// job.
    fn job(&self, id: JobId) -> StoreFuture<'_, Option<StoredJob>, ReadError>;

    /// Records of a chain, from the index `from` on, oldest first. `None` if there is no such job.
    fn records(
        &self,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<RecordPage>, ReadError>;

    /// Jobs of one owner, in the order of their first commits.
    fn list(&self, query: &ListQuery) -> StoreFuture<'_, JobPage, ReadError>;

    /// The number of jobs of an owner that match a filter.
    fn count(&self, owner: &str, filter: &Filter) -> StoreFuture<'_, u64, ReadError>;

    /// Jobs of all owners, in the order of their IDs, after `after`.
    fn all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(JobId, Summary)>, ReadError>;

    /// Jobs of all owners that have not ended, in the order of their IDs, after `after`.
    fn live(&self, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<JobId>, ReadError>;

    /// Deadlines and ends of leases up to `until` (Unix time in ms), earliest first.
    fn due(&self, until: i64, limit: usize) -> StoreFuture<'_, Vec<Timer>, ReadError>;

    /// The newest jobs of an owner with this execution key.
    fn executions(
        &self,
        owner: &str,
        key: &str,
        limit: usize,
    ) -> StoreFuture<'_, Vec<JobId>, ReadError>;

    /// Messages that wait for a job, oldest first.
    fn messages(&self, id: JobId, limit: usize) -> StoreFuture<'_, Vec<Message>, ReadError>;

    /// The stored response to a request with this idempotency key. `None` if the key is not in use.
    fn find_idempotency(
        &self,
        owner: &str,
        endpoint: &str,
        key: &str,
    ) -> StoreFuture<'_, Option<Idempotency>, ReadError>;

    /// The value of a root, without loading its branches. `None` if there is no such root.
    fn root(&self, key: &RootKey) -> StoreFuture<'_, Option<Root>, ReadError>;

    /// The names of an owner's roots in one space, in order, after `after`.
    fn roots(
        &self,
        space: RootSpace,
        owner: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<String>, ReadError>;

    /// The content of a small blob, or the length of a blob that is in a file. `None` if there is no
    /// such blob.
    fn blob(&self, digest: &[u8; 32]) -> StoreFuture<'_, Option<StoredBlob>, ReadError>;

    /// Removes cells that nothing refers to any more, without blocking writers. Returns how many.
    fn collect(&self) -> StoreFuture<'_, u64, ReadError>;

    /// The source of the cells that values refer to.
    fn cells(&self) -> Arc<dyn CellSource + Send + Sync>;
}

/// Why a read failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Stored data is damaged.
    #[error("the stored data of {what} is damaged: {reason}")]
    Damaged {
        /// What the data belongs to.
        what: String,
        /// What is wrong.
        reason: String,
    },
    /// The store could not be read.
    #[error("the store cannot be read: {reason}")]
    Unavailable {
        /// The reason.
        reason: String,
    },
}

/// A job as it is stored.
#[derive(Debug, Clone)]
pub struct StoredJob {
    /// The fold of its chain. Large members may be branches: [`StoredJob::cells`] has them.
    pub job: Arc<Job>,
    /// Its position in the order of commits.
    pub order: u64,
    /// How often its off-chain state has changed.
    pub changes: u64,
    /// The number of messages that wait.
    pub queue_depth: u32,
    /// The last reported progress.
    pub progress: Option<Value>,
    /// The current lease.
    pub lease: Option<Claim>,
    /// The cells its members refer to.
    pub cells: JobCells,
}

/// A page of records of a chain.
#[derive(Debug, Clone)]
pub struct RecordPage {
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// The number of records of the chain.
    pub total: u64,
    /// The cells they refer to.
    pub cells: JobCells,
}

/// The cells of one job: those in its own rows, and all others through the store.
#[derive(Clone)]
pub struct JobCells {
    local: Arc<HashMap<ValueId, Box<[u8]>>>,
    shared: Arc<dyn CellSource + Send + Sync>,
}

impl JobCells {
    pub(crate) fn new(
        local: HashMap<ValueId, Box<[u8]>>,
        shared: Arc<dyn CellSource + Send + Sync>,
    ) -> Self {
        JobCells { local: Arc::new(local), shared }
    }
}

impl CellSource for JobCells {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        match self.local.get(id) {
            Some(bytes) => decode_branch(id, bytes),
            None => self.shared.load(id),
        }
    }
}

impl fmt::Debug for JobCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} local cells", self.local.len())
    }
}

/// A query for a page of jobs.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// The DID of the owner.
    pub owner: String,
    /// The filter.
    pub filter: Filter,
    /// The direction.
    pub order: ListOrder,
    /// Only jobs after this position in the order, in the direction of the list.
    pub after: Option<u64>,
    /// The page size.
    pub limit: usize,
}

/// A filter of an owner's jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All jobs.
    All,
    /// Jobs with this status.
    Status(Status),
    /// Jobs of this operation, as the caller named it.
    Op(String),
    /// Jobs with this tag.
    Tag(String),
}

/// The direction of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListOrder {
    /// First committed first.
    Oldest,
    /// Last committed first.
    Newest,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<ListedJob>,
    /// The position to continue after; `None` if this is the last page.
    pub next: Option<u64>,
}

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedJob {
    /// The job.
    pub id: JobId,
    /// Its position in the order of commits.
    pub order: u64,
    /// Its status.
    pub status: Status,
    /// The operation as the caller named it.
    pub op: String,
    /// When it was created, as Unix time in ms.
    pub created: i64,
    /// When its last record was made, as Unix time in ms.
    pub updated: i64,
}

/// A lease of a job by a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The job.
    pub job: JobId,
    /// Grows with every claim of the job. Results of an earlier lease have a smaller one.
    pub fence: u64,
    /// The worker's name.
    pub worker: String,
    /// When the lease ends, as Unix time in ms.
    pub until: i64,
}

/// A deadline or the end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// Unix time in ms.
    pub at: i64,
    /// The kind of timer.
    pub kind: TimerKind,
    /// The job.
    pub job: JobId,
}

/// What happens when a timer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TimerKind {
    /// The job times out.
    Deadline = 1,
    /// Its lease ends.
    LeaseEnd = 2,
}

impl TimerKind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [TimerKind::Deadline, TimerKind::LeaseEnd].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A message that waits for a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its number in the queue, assigned when it is added.
    pub number: u64,
    /// Its ID, unique within the job.
    pub id: String,
    /// The body, completely in memory.
    pub body: Value,
}

/// The stored response to a request with an idempotency key.
#[derive(Debug, Clone, PartialEq)]
pub struct Idempotency {
    /// The DID of the caller.
    pub owner: String,
    /// The endpoint, such as `POST /invoke`.
    pub endpoint: String,
    /// The key.
    pub key: String,
    /// SHA-256 of the request's body; the body itself is not stored.
    pub body_digest: [u8; 32],
    /// The response.
    pub answer: Value,
    /// When it expires, as Unix time in ms.
    pub expires: i64,
}

impl Eq for Idempotency {}

/// A blob as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// Its length in bytes.
    pub len: u64,
    /// Its content, when it is small; else it is in a file.
    pub content: Option<Arc<[u8]>>,
}

/// The namespaces of roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RootSpace {
    /// An asset's metadata, under its ID.
    Asset = 1,
    /// A user's workspace.
    Workspace = 2,
    /// A user's own operations.
    Operation = 3,
    /// An agent's record.
    Agent = 4,
    /// A secret, encrypted.
    Secret = 5,
    /// A scheduled invocation.
    Schedule = 6,
    /// Internal state of the venue.
    Venue = 7,
}

/// The key of a root: a named, mutable value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootKey {
    /// The namespace.
    pub space: RootSpace,
    /// The DID of the owner.
    pub owner: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} of {}", self.space, self.name, self.owner)
    }
}

/// The value of a root.
#[derive(Debug, Clone)]
pub struct Root {
    /// The value, its branches not loaded.
    pub value: Value,
    /// Its ID.
    pub id: ValueId,
}

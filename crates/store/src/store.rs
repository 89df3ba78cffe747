//! The trait, and what it answers.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use catena_job::{Job, JobId, Record, Status};
use catena_value::{CellSource, LoadError, Value, ValueId, decode_branch};

use crate::effects::{CommitError, Effects, Receipt};
use crate::summary::Summary;

/// What a store gives back: a future, because another store may have to ask somebody.
pub type Answer<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Durable memory. One implementation per place that data can live.
pub trait Store: Send + Sync + 'static {
    /// Makes effects durable together. The answer comes after they are; commits about one job
    /// take effect in the order in which they were handed in.
    fn commit(&self, effects: Effects) -> Answer<'static, Receipt, CommitError>;

    /// Gives the first job that is ready on a queue to a worker, until a time.
    fn claim(
        &self,
        queue: &str,
        worker: &str,
        now: i64,
        until: i64,
    ) -> Answer<'static, Option<Claim>, CommitError>;

    /// A job: its fold, its place in the order, and what stands beside its chain.
    fn job(&self, id: JobId) -> Answer<'_, Option<StoredJob>, ReadError>;

    /// Records of a chain, from an index on, oldest first. Nothing when there is no such job.
    fn records(
        &self,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> Answer<'_, Option<RecordPage>, ReadError>;

    /// Jobs of one owner, in the order of their first commits.
    fn list(&self, query: &ListQuery) -> Answer<'_, JobPage, ReadError>;

    /// How many jobs of an owner a list without an end would have.
    fn count(&self, owner: &str, filter: &Filter) -> Answer<'_, u64, ReadError>;

    /// All jobs, by ID, after one; whoever owns them.
    fn all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> Answer<'_, Vec<(JobId, Summary)>, ReadError>;

    /// Jobs that have not ended, by ID, after one; whoever owns them.
    fn live(&self, after: Option<JobId>, limit: usize) -> Answer<'_, Vec<JobId>, ReadError>;

    /// Deadlines and ends of leases up to a time, earliest first.
    fn due(&self, until: i64, limit: usize) -> Answer<'_, Vec<Timer>, ReadError>;

    /// The newest jobs of an owner with this execution key.
    fn executions(&self, owner: &str, key: &str, limit: usize)
    -> Answer<'_, Vec<JobId>, ReadError>;

    /// Messages that wait for a job, first ones first.
    fn messages(&self, id: JobId, limit: usize) -> Answer<'_, Vec<Message>, ReadError>;

    /// What a request with this idempotency key was answered.
    fn remembered(
        &self,
        owner: &str,
        endpoint: &str,
        key: &str,
    ) -> Answer<'_, Option<Idempotency>, ReadError>;

    /// The value under a root, its branches not loaded.
    fn root(&self, key: &RootKey) -> Answer<'_, Option<Root>, ReadError>;

    /// The names of an owner's roots in one space, in order, after one.
    fn roots(
        &self,
        space: RootSpace,
        owner: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Answer<'_, Vec<String>, ReadError>;

    /// The content of a small blob, or the length of one in a file.
    fn blob(&self, digest: &[u8; 32]) -> Answer<'_, Option<StoredBlob>, ReadError>;

    /// Removes cells that nothing refers to any more, without holding up writers. How many.
    fn collect(&self) -> Answer<'_, u64, ReadError>;

    /// Cells that values refer to.
    fn cells(&self) -> Arc<dyn CellSource + Send + Sync>;
}

/// Why something could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// What is stored is not what it should be.
    #[error("what is stored under {what} is damaged: {reason}")]
    Damaged {
        /// Where.
        what: String,
        /// What is wrong.
        reason: String,
    },
    /// The store could not be asked.
    #[error("the store cannot be read: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// A job as it is stored.
#[derive(Debug, Clone)]
pub struct StoredJob {
    /// The fold of its chain. Large members may be branches: [`StoredJob::cells`] has them.
    pub job: Arc<Job>,
    /// Its place in the order of commits.
    pub order: u64,
    /// How often something beside the chain changed.
    pub changes: u64,
    /// How many messages wait.
    pub queue_depth: u32,
    /// The last progress.
    pub progress: Option<Value>,
    /// Who runs it.
    pub lease: Option<Claim>,
    /// The cells its members refer to.
    pub cells: JobCells,
}

/// Records of a chain.
#[derive(Debug, Clone)]
pub struct RecordPage {
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// How many the chain has.
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

/// Which jobs to list.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// Whose.
    pub owner: String,
    /// Which of them.
    pub filter: Filter,
    /// In which direction.
    pub order: ListOrder,
    /// After this place in the order.
    pub after: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

/// Which jobs of an owner to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All.
    All,
    /// Those that stand here.
    Status(Status),
    /// Those of this operation, as the caller named it.
    Op(String),
    /// Those with this tag.
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
    /// Where the next page begins, when there may be one.
    pub next: Option<u64>,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedJob {
    /// The job.
    pub id: JobId,
    /// Its place in the order.
    pub order: u64,
    /// Where it stands.
    pub status: Status,
    /// The operation as the caller named it.
    pub op: String,
    /// When it was made.
    pub created: i64,
    /// When its last record was made.
    pub updated: i64,
}

/// A job given to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The job.
    pub job: JobId,
    /// Grows with every claim of the job. Late results show an older one.
    pub fence: u64,
    /// The worker.
    pub worker: String,
    /// When the lease ends.
    pub until: i64,
}

/// Something that is to happen at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// When.
    pub at: i64,
    /// What.
    pub kind: TimerKind,
    /// To which job.
    pub job: JobId,
}

/// What is to happen.
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
    /// Its place in the queue; assigned when it is put there.
    pub number: u64,
    /// Its ID, unique within the job.
    pub id: String,
    /// What it says, wholly in memory.
    pub body: Value,
}

/// What a request with an idempotency key was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Idempotency {
    /// Who asked.
    pub owner: String,
    /// Where.
    pub endpoint: String,
    /// The key.
    pub key: String,
    /// SHA-256 of the request's body; the body itself is not kept.
    pub body_digest: [u8; 32],
    /// What was answered.
    pub answer: Value,
    /// When it is forgotten.
    pub expires: i64,
}

impl Eq for Idempotency {}

/// A blob as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// Its length.
    pub len: u64,
    /// Its content, when it is small; else it is in a file.
    pub content: Option<Arc<[u8]>>,
}

/// What kind of thing a root is.
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
    /// Something of the venue's own.
    Venue = 7,
}

/// Names a value that changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootKey {
    /// What kind of thing it is.
    pub space: RootSpace,
    /// Whose it is.
    pub owner: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} of {}", self.space, self.name, self.owner)
    }
}

/// The value under a root.
#[derive(Debug, Clone)]
pub struct Root {
    /// The value, its branches not loaded.
    pub value: Value,
    /// Its ID.
    pub id: ValueId,
}

//! The [`Store`] trait and the types of its results.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use catena_job::{Job, JobId, Record, Status};
use catena_value::{CellSource, LoadError, Value, ValueId, decode_branch};
use tokio::sync::mpsc;

use crate::budget::RootBudget;
use crate::effects::{CommitError, Effects, Receipt};
use crate::summary::Summary;

/// The future of a result. Boxed, because a store may be used as a trait object.
pub type StoreFuture<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Durable storage of jobs, messages, leases and values. One implementation per backend.
pub trait Store: Send + Sync + 'static {
    /// Makes effects durable together. The future resolves after they are. Commits about one job take
    /// effect in the order in which this function was called.
    fn commit(&self, effects: Effects) -> StoreFuture<'static, Receipt, CommitError>;

    /// The jobs of a queue that are ready at `now` (Unix time in ms), most urgent first. Whoever
    /// acquires one first runs it.
    fn ready(&self, queue: &str, now: i64, limit: usize) -> StoreFuture<'_, ReadyJobs, ReadError>;

    /// All entries of a queue, most urgent first, up to `limit`.
    fn queue(&self, queue: &str, limit: usize) -> StoreFuture<'_, Vec<QueuedJob>, ReadError>;

    /// The names of all queues that have entries.
    fn queues(&self) -> StoreFuture<'_, Vec<String>, ReadError>;

    /// Registers a process, or renews its lease, until a time (Unix time in ms). Returns the processes
    /// and workers whose lease lasts at `now`, including this one.
    fn renew_lease(
        &self,
        process: &Holder,
        now: i64,
        until: i64,
    ) -> StoreFuture<'_, Vec<ProcessLease>, CommitError>;

    /// Renews the lease of a worker until a time (Unix time in ms). A worker is not a process that uses
    /// the store: it receives no hints.
    fn renew_worker_lease(&self, worker: &Holder, until: i64) -> StoreFuture<'_, (), CommitError>;

    /// Ends the lease of a process or a worker.
    fn end_lease(&self, process: &Holder) -> StoreFuture<'_, (), CommitError>;

    /// The processes and workers whose lease lasts at `now` (Unix time in ms).
    fn processes(&self, now: i64) -> StoreFuture<'_, Vec<ProcessLease>, ReadError>;

    /// Receives hints from other processes, once per registered process. A hint may be lost.
    fn hints(&self, process: &Holder) -> Option<mpsc::Receiver<Hint>>;

    /// Sends a hint to all other processes. It costs nothing if there are none.
    fn send_hint(&self, process: &Holder, hint: Hint);

    /// True if other processes are registered: their changes reach this one as hints only.
    fn has_peers(&self) -> bool;

    /// What a root may run at a time, one budget for all processes. The flag is true if nobody used it
    /// before: the caller counts what runs below the root, then says so with
    /// [`RootBudget::set_counted`]. It is kept as long as somebody uses it.
    fn root_budget(&self, root: JobId, max: usize) -> (Arc<RootBudget>, bool);

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

    /// Jobs of one owner or of all, in the order of their first commits.
    fn list(&self, query: &ListQuery) -> StoreFuture<'_, JobPage, ReadError>;

    /// The number of jobs of an owner, or of all owners if it is `None`, that match a filter.
    fn count(&self, owner: Option<&str>, filter: &Filter) -> StoreFuture<'_, u64, ReadError>;

    /// Where to begin to read a list so that few jobs are skipped until `offset` are passed. `after` and `limit`
    /// of the query are ignored.
    fn seek(&self, _query: &ListQuery, offset: u64) -> StoreFuture<'_, Seek, ReadError> {
        Box::pin(std::future::ready(Ok(Seek { after: None, skip: offset })))
    }

    /// The position of the newest change: every change up to it is visible. 0 if there is none.
    fn position(&self) -> StoreFuture<'_, u64, ReadError>;

    /// Changes of jobs after a position, in the order of commits.
    fn changes(&self, query: &ChangeQuery) -> StoreFuture<'_, ChangePage, ReadError>;

    /// Removes all but the newest [`CHANGES_MAX`](crate::limits::CHANGES_MAX) changes. Returns how
    /// many it removed.
    fn trim_changes(&self) -> StoreFuture<'_, u64, ReadError>;

    /// Jobs of all owners, in the order of their IDs, after `after`.
    fn all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(JobId, Summary)>, ReadError>;

    /// Jobs of all owners that have not ended, in the order of their IDs, after `after`.
    fn live(&self, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<LiveJob>, ReadError>;

    /// Counts the live jobs of every owner. A start does it once; from then on the numbers include
    /// every commit, of this process and of others.
    fn count_live(&self) -> StoreFuture<'static, (), CommitError>;

    /// The number of live jobs of an owner, by its [`owner_key`]. Sub-jobs do not count. A store that
    /// several machines share may count what others did a second later.
    fn live_count(&self, owner: [u8; 8]) -> usize;

    /// The number of live jobs of all owners, without sub-jobs.
    fn live_total(&self) -> usize;

    /// Deadlines up to `until` (Unix time in ms), earliest first, after `after`.
    fn due(
        &self,
        until: i64,
        after: Option<Timer>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Timer>, ReadError>;

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

    /// Returns the bytes that are stored for an owner, or 0 while they are not counted: rows of jobs,
    /// messages and roots, blobs, and cells that the owner's commits were the first to store. What a
    /// deletion leaves in cells is counted until they are collected.
    fn stored_bytes(&self, owner: &str) -> StoreFuture<'_, u64, ReadError>;

    /// Returns the bytes that are stored for all owners together, or 0 while they are not counted. A blob
    /// that several owners have is counted for each of them.
    fn stored_bytes_of_all(&self) -> StoreFuture<'_, u64, ReadError>;

    /// Returns the memory of what was committed and is not in its final place yet, in bytes. It is bounded.
    fn unsettled_bytes(&self) -> u64;

    /// Switches the counting of stored bytes on or off. Switching it on reads the whole store once.
    fn count_stored_bytes(&self, is_on: bool) -> StoreFuture<'_, (), CommitError>;

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
    /// Who runs it.
    pub hold: HoldState,
    /// When it may be started from its queue, as Unix time in ms. `None` if it is on no queue.
    pub ready_at: Option<i64>,
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
    /// The DID of the owner. `None` for all owners: a list of all with any filter reads every job
    /// that it passes.
    pub owner: Option<String>,
    /// The filter.
    pub filter: Filter,
    /// The direction.
    pub order: ListOrder,
    /// Only jobs after this position in the order, in the direction of the list.
    pub after: Option<u64>,
    /// The page size.
    pub limit: usize,
}

/// Where to begin to read a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seek {
    /// The position after which to begin, in the direction of the list. `None` for its first job.
    pub after: Option<u64>,
    /// How many jobs to skip from there.
    pub skip: u64,
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
    /// The DID of its owner.
    pub owner: String,
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

/// A query for changes of jobs.
#[derive(Debug, Clone)]
pub struct ChangeQuery {
    /// Only jobs of this owner. `None` for all owners.
    pub owner: Option<String>,
    /// Only sub-jobs of this job. `None` for jobs that are no sub-jobs.
    pub parent: Option<JobId>,
    /// Only changes after this position.
    pub after: u64,
    /// The largest number of rows to read.
    pub limit: usize,
}

/// Changes of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePage {
    /// The changes, in the order of commits: of several changes of a job, the last.
    pub changes: Vec<JobChange>,
    /// The position up to which the page has all changes: where the next page continues.
    pub until: u64,
    /// True if there are more changes.
    pub has_more: bool,
    /// True if changes after the position of the query were removed, so that the page lacks them.
    pub is_incomplete: bool,
}

/// A change of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobChange {
    /// The position of the change in the order of commits.
    pub position: u64,
    /// The job's ID.
    pub job: JobId,
    /// What happened.
    pub kind: ChangeKind,
    /// The job as it is now. `None` if it was deleted.
    pub listed: Option<ListedJob>,
}

/// What happened to a job. Part of the format: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ChangeKind {
    /// It was created.
    Created = 1,
    /// Records were appended.
    Changed = 2,
    /// It was deleted.
    Deleted = 3,
}

/// A process that runs jobs: one start of it, which its epoch identifies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The name of the process.
    pub process: Arc<str>,
    /// Differs with every start of the process.
    pub epoch: u64,
}

/// The first bytes of a hash of a holder: enough to compare one with those that are alive.
pub type HolderKey = [u8; 8];

/// How the names of holders that are workers begin. It is part of the data format.
const WORKER_PREFIX: &str = "worker/";

/// How the names of workers begin that are receivers of pushed jobs. The name of no other worker contains
/// a colon. It is part of the data format.
const RECEIVER_PREFIX: &str = "push:";

impl Holder {
    /// A worker: a process of its own that claims jobs from the queues of one owner. Its name is unique
    /// among the workers of that owner.
    pub fn worker(owner: &str, name: &str) -> Holder {
        Holder { process: format!("{WORKER_PREFIX}{owner}/{name}").into(), epoch: 0 }
    }

    /// The receiver of a job that the venue pushed and that accepted it. Unlike other workers it has no
    /// lease: it holds that one job until the job's time is up.
    pub fn receiver(owner: &str, job: JobId) -> Holder {
        Holder::worker(owner, &format!("{RECEIVER_PREFIX}{job}"))
    }

    /// Returns true if this is the receiver of a pushed job.
    pub fn is_receiver(&self) -> bool {
        let name = self.process.rsplit_once('/').map_or("", |(_, name)| name);
        self.is_worker() && name.starts_with(RECEIVER_PREFIX)
    }

    /// Returns true if this is a worker and not a process that uses the store.
    pub fn is_worker(&self) -> bool {
        self.process.starts_with(WORKER_PREFIX)
    }

    /// Returns true if this is a worker of an owner.
    pub fn is_worker_of(&self, owner: &str) -> bool {
        let rest = self.process.strip_prefix(WORKER_PREFIX);
        // The name of a worker contains no slash.
        rest.and_then(|rest| rest.rsplit_once('/')).is_some_and(|(of, _)| of == owner)
    }

    /// The key that indexes contain.
    pub fn key(&self) -> HolderKey {
        crate::keys::scope(&[b"holder", self.process.as_bytes(), &self.epoch.to_be_bytes()])
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.process, self.epoch)
    }
}

/// Who runs a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldState {
    /// Grows with every holder of the job. 0 if it never had one.
    pub fence: u64,
    /// The process that runs it. `None` if none does.
    pub holder: Option<Holder>,
    /// True if it is held by no process until one of its sub-jobs changes or a message arrives.
    pub is_parked: bool,
}

/// The lease of a process. Everything it holds depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessLease {
    /// The process.
    pub holder: Holder,
    /// When the lease ends, as Unix time in ms.
    pub until: i64,
}

/// Something that another process did. It saves a wait; nothing relies on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// A job was put on a queue.
    Queued {
        /// The name of the queue.
        queue: String,
    },
    /// A job changed.
    Changed {
        /// The job.
        job: JobId,
        /// Its parent job.
        parent: Option<JobId>,
    },
    /// A job was deleted.
    Deleted {
        /// The job.
        job: JobId,
    },
    /// A job reported progress.
    Progress {
        /// The job.
        job: JobId,
        /// The report.
        progress: Value,
    },
    /// The driver of an orchestration may start a step.
    Room {
        /// The orchestration.
        job: JobId,
    },
}

/// The ready jobs of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadyJobs {
    /// The jobs, most urgent first.
    pub jobs: Vec<JobId>,
    /// When the next job becomes ready, as Unix time in ms. `None` if there is none.
    pub next: Option<i64>,
}

/// An entry of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedJob {
    /// The job.
    pub job: JobId,
    /// Its operation, as the caller named it.
    pub op: String,
    /// Its priority.
    pub priority: u8,
    /// When it may be started, as Unix time in ms.
    pub ready_at: i64,
}

/// A job that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveJob {
    /// The job.
    pub job: JobId,
    /// Its status.
    pub status: Status,
    /// The key of its owner, see [`owner_key`].
    pub owner: [u8; 8],
    /// True if it is a sub-job.
    pub is_sub_job: bool,
    /// Who runs it.
    pub hold: LiveHold,
}

/// Who runs a job, as the index of live jobs says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveHold {
    /// Nobody, and nobody ever did.
    Never,
    /// Nobody: the last holder released it.
    Released,
    /// Nobody, until one of its sub-jobs changes or a message arrives.
    Parked,
    /// The holder with this key.
    By(HolderKey),
}

impl HoldState {
    /// The form of the index.
    pub fn to_live(&self) -> LiveHold {
        match &self.holder {
            Some(holder) => LiveHold::By(holder.key()),
            None if self.is_parked => LiveHold::Parked,
            None if self.fence > 0 => LiveHold::Released,
            None => LiveHold::Never,
        }
    }
}

/// The key by which [`LiveJob`] identifies an owner.
pub fn owner_key(owner: &str) -> [u8; 8] {
    crate::keys::owner_scope(owner)
}

/// A deadline.
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
    /// The lease of a single job ends, in data of format 1. Nothing follows from it.
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
    /// That a user has a blob: the name is the digest in hex. Its bytes count as those of the user.
    Blob = 8,
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

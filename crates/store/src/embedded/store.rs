//! The embedded store: how it is opened, and its implementation of [`Store`].

use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catena_job::JobId;
use catena_ledger::{
    BackupError, BackupReport, CounterSnapshot, Health, Ledger, OpenError, OpenReport, Options,
    RealDisk,
};
#[cfg(feature = "testing")]
use catena_ledger::{Disk, ManualLedger};
use catena_value::CellSource;
use tokio::sync::mpsc;

use super::cells::StoreCells;
use super::collect::CollectError;
use super::counts::ListCounts;
use super::driver::LedgerDriver;
use super::fronts::QueueFronts;
use super::in_use::InUseCells;
use super::known_ids::KnownIds;
use super::known_state::KnownState;
use super::live::LiveCounts;
use super::members::Members;
use super::recent::RecentJobs;
use super::sequence::CommitSequence;
use super::usage::{self, Usage};
use crate::budget::{Budgets, RootBudget};
use crate::effects::{CommitError, Effects, Receipt};
use crate::keys::TABLES;
use crate::store::{
    ChangePage, ChangeQuery, Filter, Hint, Holder, Idempotency, JobPage, ListQuery, LiveJob,
    Message, ProcessLease, QueuedJob, ReadError, ReadyJobs, RecordPage, Root, RootKey, RootSpace,
    Seek, Store, StoreFuture, StoredBlob, StoredJob, Timer,
};
use crate::summary::Summary;

/// A store in one folder.
pub struct EmbeddedStore {
    pub(super) driver: Arc<LedgerDriver>,
    pub(super) cells: Arc<StoreCells>,
    pub(super) in_use: InUseCells,
    pub(super) known_state: KnownState,
    pub(super) known_ids: Arc<KnownIds>,
    pub(super) sequence: CommitSequence,
    pub(super) counts: ListCounts,
    pub(super) recent: Arc<RecentJobs>,
    pub(super) usage: Usage,
    pub(super) live: LiveCounts,
    pub(super) fronts: QueueFronts,
    members: Members,
    budgets: Budgets,
    /// `None` on a simulated disk.
    folder: Option<PathBuf>,
}

impl EmbeddedStore {
    /// Opens the store in a folder, creating it if it is missing.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        let ledger = Ledger::open(folder, Options::new(TABLES))?;
        super::upgrade::list_jobs_of_all_owners(&ledger)?;
        let store = Self::from_driver(LedgerDriver::threaded(ledger));
        Ok(EmbeddedStore { folder: Some(folder.to_path_buf()), ..store })
    }

    fn from_driver(driver: LedgerDriver) -> Self {
        let driver = Arc::new(driver);
        let known_ids = Arc::<KnownIds>::default();
        let cells = Arc::new(StoreCells::new(Arc::clone(&driver), Arc::clone(&known_ids)));
        EmbeddedStore {
            driver,
            cells,
            in_use: InUseCells::default(),
            known_state: KnownState::default(),
            known_ids,
            sequence: CommitSequence::default(),
            counts: ListCounts::default(),
            recent: Arc::default(),
            usage: Usage::default(),
            live: LiveCounts::default(),
            fronts: QueueFronts::default(),
            members: Members::default(),
            budgets: Budgets::default(),
            folder: None,
        }
    }

    /// The report of opening the store.
    pub fn report(&self) -> &OpenReport {
        self.driver.reads().report()
    }

    /// Commits, syncs, entries, bytes, batch sizes and sync times since it was opened.
    pub fn counters(&self) -> CounterSnapshot {
        self.driver.reads().counters()
    }

    /// The size of its files in bytes: the journal and the index, without large blobs. 0 if they cannot be
    /// read. Lists the folder, which has a handful of files.
    pub fn disk_bytes(&self) -> u64 {
        let files = self.folder.as_ref().and_then(|folder| std::fs::read_dir(folder).ok());
        let files = files.into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
    }

    /// Whether it accepts writes.
    pub fn health(&self) -> Health {
        self.driver.reads().health()
    }

    /// Copies the store, as of this moment and while it runs, into an empty folder.
    pub fn backup(&self, destination: &Path) -> Result<BackupReport, BackupError> {
        let io_error =
            |source| BackupError::Io { folder: destination.display().to_string(), source };
        let disk = RealDisk::new(destination).map_err(io_error)?;
        self.driver.reads().backup_to(Arc::new(disk))
    }

    /// Completes everything that was submitted, flushes and closes. Reading still works.
    pub fn close(&self) -> Result<(), CommitError> {
        self.driver.close()
    }
}

/// What only tests, simulations and benchmarks need.
#[cfg(feature = "testing")]
impl EmbeddedStore {
    /// Opens the store on any disk, with any limits for the ledger below.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let ledger = Ledger::open_on(disk, options)?;
        super::upgrade::list_jobs_of_all_owners(&ledger)?;
        Ok(Self::from_driver(LedgerDriver::threaded(ledger)))
    }

    /// Opens the store without threads: the caller runs it with [`Self::step_commit`] and
    /// [`Self::step_flush`], so that a simulation can be repeated.
    pub fn open_manual(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        Ok(Self::from_driver(LedgerDriver::manual(ManualLedger::open(disk, options, None)?)))
    }

    /// The ledger's default limits for this store's tables.
    pub fn options() -> Options {
        Options::new(TABLES)
    }

    /// Commits one batch of what was submitted, on a store without threads. Returns whether
    /// something was completed.
    pub fn step_commit(&self) -> bool {
        self.driver.step_commit()
    }

    /// Flushes the overlay of a store without threads. Returns whether the flush succeeded.
    pub fn step_flush(&self) -> bool {
        self.driver.step_flush()
    }
}

impl Store for EmbeddedStore {
    fn commit(&self, effects: Effects) -> StoreFuture<'static, Receipt, CommitError> {
        super::death::or_commit(|| self.submit_commit(effects))
    }

    fn ready(&self, queue: &str, now: i64, limit: usize) -> StoreFuture<'_, ReadyJobs, ReadError> {
        Box::pin(ready(self.read_ready(queue, now, limit)))
    }

    fn queue(&self, queue: &str, limit: usize) -> StoreFuture<'_, Vec<QueuedJob>, ReadError> {
        Box::pin(ready(self.read_queue(queue, limit)))
    }

    fn renew_lease(
        &self,
        process: &Holder,
        now: i64,
        until: i64,
    ) -> StoreFuture<'_, Vec<ProcessLease>, CommitError> {
        Box::pin(ready(Ok(self.members.renew(process, now, until))))
    }

    fn end_lease(&self, process: &Holder) -> StoreFuture<'_, (), CommitError> {
        self.members.remove(process);
        Box::pin(ready(Ok(())))
    }

    fn queues(&self) -> StoreFuture<'_, Vec<String>, ReadError> {
        Box::pin(ready(self.read_queue_names()))
    }

    fn renew_worker_lease(&self, worker: &Holder, until: i64) -> StoreFuture<'_, (), CommitError> {
        self.members.renew_worker(worker, until);
        Box::pin(ready(Ok(())))
    }

    fn processes(&self, now: i64) -> StoreFuture<'_, Vec<ProcessLease>, ReadError> {
        Box::pin(ready(Ok(self.members.leases(now))))
    }

    fn hints(&self, process: &Holder) -> Option<mpsc::Receiver<Hint>> {
        self.members.take_hints(process)
    }

    fn send_hint(&self, process: &Holder, hint: Hint) {
        self.members.send_hint(process, &hint);
    }

    fn unsettled_bytes(&self) -> u64 {
        self.driver.reads().overlay_bytes() as u64
    }

    fn has_peers(&self) -> bool {
        self.members.has_peers()
    }

    fn root_budget(&self, root: JobId, max: usize) -> (Arc<RootBudget>, bool) {
        self.budgets.get(root, max)
    }

    fn job(&self, id: JobId) -> StoreFuture<'_, Option<StoredJob>, ReadError> {
        Box::pin(ready(self.read_job(id)))
    }

    fn records(
        &self,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<RecordPage>, ReadError> {
        Box::pin(ready(self.read_records(id, from, limit)))
    }

    fn list(&self, query: &ListQuery) -> StoreFuture<'_, JobPage, ReadError> {
        Box::pin(ready(self.read_list(query)))
    }

    fn position(&self) -> StoreFuture<'_, u64, ReadError> {
        Box::pin(ready(self.read_position()))
    }

    fn changes(&self, query: &ChangeQuery) -> StoreFuture<'_, ChangePage, ReadError> {
        Box::pin(ready(self.read_changes(query)))
    }

    fn trim_changes(&self) -> StoreFuture<'_, u64, ReadError> {
        Box::pin(self.remove_old_changes())
    }

    fn count(&self, owner: Option<&str>, filter: &Filter) -> StoreFuture<'_, u64, ReadError> {
        Box::pin(ready(self.read_count(owner, filter)))
    }

    fn seek(&self, query: &ListQuery, offset: u64) -> StoreFuture<'_, Seek, ReadError> {
        Box::pin(ready(self.read_seek(query, offset)))
    }

    fn all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(JobId, Summary)>, ReadError> {
        Box::pin(ready(self.read_all(after, limit)))
    }

    fn collect(&self) -> StoreFuture<'_, u64, ReadError> {
        Box::pin(async {
            match EmbeddedStore::collect(self).await {
                Ok(report) => Ok(report.removed),
                Err(CollectError::AlreadyRunning) => Ok(0),
                Err(CollectError::Read(error)) => Err(error),
                Err(CollectError::Commit(error)) => {
                    Err(ReadError::Unavailable { reason: error.to_string() })
                }
            }
        })
    }

    fn live(&self, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<LiveJob>, ReadError> {
        Box::pin(ready(self.read_live(after, limit)))
    }

    fn count_live(&self) -> StoreFuture<'static, (), CommitError> {
        Box::pin(self.count_live_jobs())
    }

    fn live_count(&self, owner: [u8; 8]) -> usize {
        self.live.owned_by(owner)
    }

    fn live_total(&self) -> usize {
        self.live.total()
    }

    fn due(
        &self,
        until: i64,
        after: Option<Timer>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Timer>, ReadError> {
        Box::pin(ready(self.read_due(until, after, limit)))
    }

    fn executions(
        &self,
        owner: &str,
        key: &str,
        limit: usize,
    ) -> StoreFuture<'_, Vec<JobId>, ReadError> {
        Box::pin(ready(self.read_executions(owner, key, limit)))
    }

    fn messages(&self, id: JobId, limit: usize) -> StoreFuture<'_, Vec<Message>, ReadError> {
        Box::pin(ready(self.read_messages(id, limit)))
    }

    fn find_idempotency(
        &self,
        owner: &str,
        endpoint: &str,
        key: &str,
    ) -> StoreFuture<'_, Option<Idempotency>, ReadError> {
        Box::pin(ready(self.read_idempotency_entry(owner, endpoint, key)))
    }

    fn root(&self, key: &RootKey) -> StoreFuture<'_, Option<Root>, ReadError> {
        Box::pin(ready(self.read_root(key)))
    }

    fn roots(
        &self,
        space: RootSpace,
        owner: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<String>, ReadError> {
        Box::pin(ready(self.read_roots(space, owner, after, limit)))
    }

    fn blob(&self, digest: &[u8; 32]) -> StoreFuture<'_, Option<StoredBlob>, ReadError> {
        Box::pin(ready(self.read_blob(digest)))
    }

    fn stored_bytes(&self, owner: &str) -> StoreFuture<'_, u64, ReadError> {
        Box::pin(ready(self.read_stored_bytes(crate::keys::owner_scope(owner))))
    }

    fn stored_bytes_of_all(&self) -> StoreFuture<'_, u64, ReadError> {
        Box::pin(ready(self.read_stored_bytes(usage::ALL)))
    }

    fn count_stored_bytes(&self, is_on: bool) -> StoreFuture<'_, (), CommitError> {
        Box::pin(self.switch_counting(is_on))
    }

    fn cells(&self) -> Arc<dyn CellSource + Send + Sync> {
        self.cells.clone()
    }
}

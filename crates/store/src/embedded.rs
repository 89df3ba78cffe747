//! The store in one folder: no other process, safe against `kill -9` and power loss.
//!
//! Everything flows through the ledger's one committer. Encoding and hashing happen before, on the
//! caller's thread ([`prepare`](self)); what depends on what is stored, such as whether a head is
//! still the one expected or a cell is already held, is decided in the committer, in `apply`.
//! Reading goes straight to the ledger and never waits for a writer.

pub mod admin;
mod apply;
mod cells;
mod check;
mod collect;
mod engine;
mod folder;
mod order;
mod prepare;
mod read;
mod recent;
mod tally;

pub use catena_ledger as ledger;
pub use catena_ledger::{BackupReport, CounterSnapshot, Health, OpenError, OpenReport};
pub use check::{CheckReport, Problem};
pub use collect::{CollectError, CollectReport};
pub use folder::{CopyReport, DataFolder, FolderError};

use std::future::ready;
use std::path::Path;
use std::sync::Arc;

use catena_job::JobId;
use catena_ledger::{BackupError, Disk, Ledger, ManualLedger, Options, RealDisk, Tx};
use catena_value::CellSource;

use crate::effects::{CommitError, Effects, Receipt};
use crate::keys::TABLES;
use crate::store::{
    Answer, Claim, Filter, Idempotency, JobPage, ListQuery, Message, ReadError, RecordPage, Root,
    RootKey, RootSpace, Store, StoredBlob, StoredJob, Timer,
};
use crate::summary::Summary;
use cells::StoreCells;
use collect::Named;
use engine::Engine;
use order::Order;
use recent::Recent;
use tally::Tallies;

/// A store in one folder.
pub struct EmbeddedStore {
    engine: Arc<Engine>,
    cells: Arc<StoreCells>,
    named: Named,
    order: Order,
    tallies: Tallies,
    recent: Arc<Recent>,
}

impl EmbeddedStore {
    /// Opens the store in a folder, creating it if it is missing.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        Ok(Self::over(Engine::threaded(Ledger::open(folder, Self::options())?)))
    }

    /// Opens the store on any disk, with any limits for the ledger below.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        Ok(Self::over(Engine::threaded(Ledger::open_on(disk, options)?)))
    }

    /// Opens the store without threads: whoever holds it drives it with [`Self::step_commit`] and
    /// [`Self::step_flush`], so that a simulation can be repeated.
    pub fn open_manual(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        Ok(Self::over(Engine::manual(ManualLedger::open(disk, options, None)?)))
    }

    /// The ledger's limits for this store's tables.
    pub fn options() -> Options {
        Options::new(TABLES)
    }

    fn over(engine: Engine) -> Self {
        let engine = Arc::new(engine);
        let cells = Arc::new(StoreCells::new(Arc::clone(&engine)));
        EmbeddedStore {
            engine,
            cells,
            named: Named::default(),
            order: Order::default(),
            tallies: Tallies::default(),
            recent: Arc::default(),
        }
    }

    /// What opening found and did.
    pub fn report(&self) -> &OpenReport {
        self.engine.reads().report()
    }

    /// Commits, syncs, entries, bytes, batch sizes and sync times since it was opened.
    pub fn counters(&self) -> CounterSnapshot {
        self.engine.reads().counters()
    }

    /// Whether it takes writes.
    pub fn health(&self) -> Health {
        self.engine.reads().health()
    }

    /// Copies the store, as of this moment and while it runs, into an empty folder.
    pub fn backup(&self, destination: &Path) -> Result<BackupReport, BackupError> {
        let io = |source| BackupError::Io { folder: destination.display().to_string(), source };
        let disk = RealDisk::new(destination).map_err(io)?;
        self.engine.reads().backup_to(Arc::new(disk))
    }

    /// Answers everything that was handed in, flushes and closes. Reading still works.
    pub fn close(&self) -> Result<(), CommitError> {
        self.engine.close()
    }

    /// The bytes that effects on new jobs come to, encoded as a commit would: what a bare log is
    /// given when the store is compared with one.
    #[cfg(feature = "testing")]
    pub fn as_log_entry(effects: Effects) -> Result<Vec<u8>, CommitError> {
        prepare::as_log_entry(effects)
    }

    /// Commits one batch of what was handed in; only without threads.
    pub fn step_commit(&self) -> bool {
        self.engine.step_commit()
    }

    /// Flushes what there is; only without threads.
    pub fn step_flush(&self) -> bool {
        self.engine.step_flush()
    }
}

impl Store for EmbeddedStore {
    fn commit(&self, effects: Effects) -> Answer<'static, Receipt, CommitError> {
        let prepared = match prepare::prepare(effects) {
            Ok(prepared) => prepared,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        // Large values travel ahead in entries of their own. If the commit itself is refused they
        // are nobody's, and the collector takes them.
        for part in prepared.ahead {
            let named = self.named.clone();
            let sent = self.engine.submit(move |tx| apply::put_cells(tx, &part, &named));
            drop(sent);
        }
        let (named, order, mut effects) =
            (self.named.clone(), self.order.clone(), prepared.effects);
        let touched: Vec<JobId> = effects.iter().filter_map(prepare::Ready::touched).collect();
        let deletes = effects.iter().any(|effect| matches!(effect, prepare::Ready::Delete { .. }));
        let apply = move |tx: &mut Tx<'_>| {
            let receipt = apply::apply(tx, &mut effects, &named, &order)?;
            Ok((receipt, effects))
        };
        let order = self.order.clone();
        let recent = (!touched.is_empty()).then(|| Arc::clone(&self.recent));
        let tallies = deletes.then(|| self.tallies.clone());
        let then = move |(receipt, _): &(Receipt, Vec<prepare::Ready>)| {
            // What was read or counted before the commit could be read is wrong after it.
            if let Some(recent) = recent {
                recent.forget(&touched);
            }
            if let Some(tallies) = tallies {
                tallies.forget();
            }
            if !receipt.orders.is_empty() {
                order.is_durable();
            }
        };
        let answer = self.engine.submit_then(apply, then);
        Box::pin(async move {
            let (receipt, spent) = answer.await?;
            drop(spent);
            Ok(receipt)
        })
    }

    fn claim(
        &self,
        queue: &str,
        worker: &str,
        now: i64,
        until: i64,
    ) -> Answer<'static, Option<Claim>, CommitError> {
        let (queue, worker) = (queue.to_owned(), worker.to_owned());
        Box::pin(self.engine.submit(move |tx| apply::claim(tx, &queue, &worker, now, until)))
    }

    fn job(&self, id: JobId) -> Answer<'_, Option<StoredJob>, ReadError> {
        Box::pin(ready(self.read_job(id)))
    }

    fn records(
        &self,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> Answer<'_, Option<RecordPage>, ReadError> {
        Box::pin(ready(self.read_records(id, from, limit)))
    }

    fn list(&self, query: &ListQuery) -> Answer<'_, JobPage, ReadError> {
        Box::pin(ready(self.read_list(query)))
    }

    fn count(&self, owner: &str, filter: &Filter) -> Answer<'_, u64, ReadError> {
        Box::pin(ready(self.read_count(owner, filter)))
    }

    fn all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> Answer<'_, Vec<(JobId, Summary)>, ReadError> {
        Box::pin(ready(self.read_all(after, limit)))
    }

    fn collect(&self) -> Answer<'_, u64, ReadError> {
        Box::pin(async {
            match EmbeddedStore::collect(self).await {
                Ok(report) => Ok(report.removed),
                Err(CollectError::UnderWay) => Ok(0),
                Err(CollectError::Read(error)) => Err(error),
                Err(CollectError::Commit(error)) => {
                    Err(ReadError::Unavailable { reason: error.to_string() })
                }
            }
        })
    }

    fn live(&self, after: Option<JobId>, limit: usize) -> Answer<'_, Vec<JobId>, ReadError> {
        Box::pin(ready(self.read_live(after, limit)))
    }

    fn due(&self, until: i64, limit: usize) -> Answer<'_, Vec<Timer>, ReadError> {
        Box::pin(ready(self.read_due(until, limit)))
    }

    fn executions(
        &self,
        owner: &str,
        key: &str,
        limit: usize,
    ) -> Answer<'_, Vec<JobId>, ReadError> {
        Box::pin(ready(self.read_executions(owner, key, limit)))
    }

    fn messages(&self, id: JobId, limit: usize) -> Answer<'_, Vec<Message>, ReadError> {
        Box::pin(ready(self.read_messages(id, limit)))
    }

    fn remembered(
        &self,
        owner: &str,
        endpoint: &str,
        key: &str,
    ) -> Answer<'_, Option<Idempotency>, ReadError> {
        Box::pin(ready(self.read_remembered(owner, endpoint, key)))
    }

    fn root(&self, key: &RootKey) -> Answer<'_, Option<Root>, ReadError> {
        Box::pin(ready(self.read_root(key)))
    }

    fn roots(
        &self,
        space: RootSpace,
        owner: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Answer<'_, Vec<String>, ReadError> {
        Box::pin(ready(self.read_roots(space, owner, after, limit)))
    }

    fn blob(&self, digest: &[u8; 32]) -> Answer<'_, Option<StoredBlob>, ReadError> {
        Box::pin(ready(self.read_blob(digest)))
    }

    fn cells(&self) -> Arc<dyn CellSource + Send + Sync> {
        self.cells.clone()
    }
}

//! A ledger without threads, driven step by step.
//!
//! The simulator needs every run to be repeatable from its seed, so it calls the same steps the threads call, in an order
//! it chooses. Nothing here waits; a stalled step says so and returns.

use std::sync::Arc;

use crossbeam_channel::{Sender, TrySendError};

use crate::embedded::ledger::backup::{self, BackupReport};
use crate::embedded::ledger::committer::{CommitStep, Committer, Message, Observer};
use crate::embedded::ledger::counters::CounterSnapshot;
use crate::embedded::ledger::disk::Disk;
use crate::embedded::ledger::error::{
    BackupError, Failure, FlushError, OpenError, ReadError, SubmitError,
};
use crate::embedded::ledger::flusher::{FlushStep, Flusher};
use crate::embedded::ledger::folder::HeldFolder;
use crate::embedded::ledger::open::{self, OpenReport, Parts};
use crate::embedded::ledger::options::Options;
use crate::embedded::ledger::shared::{Health, RowPage, Shared};
use crate::embedded::ledger::tx::Tx;
use crate::embedded::ledger::types::{Direction, KeyRange, TableId, Value};
use crate::embedded::ledger::view::View;
use crate::embedded::ledger::work::Submission;

/// A ledger that does nothing by itself.
pub struct ManualLedger {
    shared: Arc<Shared>,
    committer: Committer,
    flusher: Flusher,
    queue: Sender<Message>,
    report: OpenReport,
    _folder: HeldFolder,
}

impl ManualLedger {
    /// Opens the ledger on `disk`.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        observer: Option<Box<dyn Observer>>,
    ) -> Result<Self, OpenError> {
        let Parts { shared, committer, flusher, queue, report, folder, .. } =
            open::open(disk, options, observer)?;
        Ok(Self { shared, committer, flusher, queue, report, _folder: folder })
    }

    /// What opening found and did.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Queues work. See [`crate::embedded::ledger::Ledger::try_submit`].
    pub fn try_submit<T, E, W, D>(&self, work: W, done: D) -> Result<(), SubmitError>
    where
        T: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        D: FnOnce(Result<T, Failure<E>>) + Send + 'static,
    {
        let unsent = match self.queue.try_send(Message::Work(Submission::new(work, done))) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => message,
        };
        if let Message::Work(submission) = unsent {
            submission.forget();
        }
        Err(SubmitError::Busy { queue_entries_max: self.shared.options.queue_entries_max })
    }

    /// Commits one batch of what is queued.
    pub fn step_commit(&mut self) -> CommitStep {
        self.committer.step()
    }

    /// Flushes what there is.
    pub fn step_flush(&self) -> Result<FlushStep, FlushError> {
        self.flusher.step()
    }

    /// A row, as of the last durable batch.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Value>, ReadError> {
        self.shared.get(None, table, key)
    }

    /// At most `limit` rows of a range, all as of one moment.
    pub fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, ReadError> {
        self.shared.range(None, table, range, direction, limit)
    }

    /// Everything as of this moment.
    pub fn view(&self) -> View {
        self.shared.view()
    }

    /// Whether writes are taken.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// The counters now.
    pub fn counters(&self) -> CounterSnapshot {
        self.shared.counters.snapshot()
    }

    /// Copies the ledger to an empty disk.
    pub fn backup_to(&self, destination: Arc<dyn Disk>) -> Result<BackupReport, BackupError> {
        backup::copy(&self.shared.view(), &self.shared.options, destination)
    }

    /// Flushes and closes, as a clean shutdown does.
    pub fn close(self) -> Result<(), FlushError> {
        let flushed = self.flusher.finish_all();
        self.shared.index.lock().close();
        flushed
    }
}

//! A ledger without threads, driven step by step. For tests and simulations only.
//!
//! The simulator needs every run to be repeatable from its seed, so it calls the same steps that the threads call, in an
//! order it chooses. Nothing here waits; a step that cannot go on returns [`CommitStep::Stalled`].

use std::ops::Deref;
use std::sync::Arc;

use crossbeam_channel::{Sender, TrySendError};

use crate::committer::{CommitStep, Committer, CommitterMessage, Observer};
use crate::disk::Disk;
use crate::error::{Failure, FlushError, OpenError, SubmitError};
use crate::flusher::{FlushStep, Flusher};
use crate::folder::FolderLock;
use crate::open::{self, Parts};
use crate::options::Options;
use crate::reads::Reads;
use crate::submission::{Submission, Transaction, closure_transaction};
use crate::tx::Tx;

/// A ledger that makes progress only when one of its steps is called.
pub struct ManualLedger {
    reads: Reads,
    committer: Committer,
    flusher: Flusher,
    queue: Sender<CommitterMessage>,
    _folder: FolderLock,
}

impl ManualLedger {
    /// Opens the ledger on `disk`, with an observer of batches if one is wanted.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        observer: Option<Box<dyn Observer>>,
    ) -> Result<Self, OpenError> {
        let Parts { shared, committer, flusher, queue, report, folder, .. } =
            open::open(disk, options, observer)?;
        let reads = Reads::new(shared, report);
        Ok(Self { reads, committer, flusher, queue, _folder: folder })
    }

    /// Queues work. See [`crate::Ledger::try_submit`].
    pub fn try_submit<T, E, W, D>(&self, work: W, done: D) -> Result<(), SubmitError>
    where
        T: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        D: FnOnce(Result<T, Failure<E>>) + Send + 'static,
    {
        self.try_submit_transaction(closure_transaction(work, done))
    }

    /// Queues a transaction. See [`crate::Ledger::try_submit_transaction`].
    pub fn try_submit_transaction(
        &self,
        transaction: Box<dyn Transaction>,
    ) -> Result<(), SubmitError> {
        let unsent =
            match self.queue.try_send(CommitterMessage::Submit(Submission::new(transaction))) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => message,
            };
        unsent.discard();
        Err(SubmitError::Busy { queue_entries_max: self.reads.shared.options.queue_entries_max })
    }

    /// Commits one batch of what is queued.
    pub fn step_commit(&mut self) -> CommitStep {
        self.committer.step()
    }

    /// Flushes the overlay into the index.
    pub fn step_flush(&self) -> Result<FlushStep, FlushError> {
        self.flusher.step()
    }

    /// Flushes and closes, as a clean shutdown does.
    pub fn close(self) -> Result<(), FlushError> {
        let flushed = self.flusher.finish_all();
        self.reads.shared.index.lock().close();
        flushed
    }
}

impl Deref for ManualLedger {
    type Target = Reads;

    fn deref(&self) -> &Reads {
        &self.reads
    }
}

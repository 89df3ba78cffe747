//! A ledger without threads, driven step by step.
//!
//! The simulator needs every run to be repeatable from its seed, so it calls the same steps the threads call, in an order
//! it chooses. Nothing here waits; a stalled step says so and returns.

use std::ops::Deref;
use std::sync::Arc;

use crossbeam_channel::{Sender, TrySendError};

use crate::committer::{CommitStep, Committer, Message, Observer};
use crate::disk::Disk;
use crate::error::{Failure, FlushError, OpenError, SubmitError};
use crate::flusher::{FlushStep, Flusher};
use crate::folder::HeldFolder;
use crate::open::{self, Parts};
use crate::options::Options;
use crate::reads::Reads;
use crate::tx::Tx;
use crate::work::Submission;

/// A ledger that does nothing by itself.
pub struct ManualLedger {
    reads: Reads,
    committer: Committer,
    flusher: Flusher,
    queue: Sender<Message>,
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
        let unsent = match self.queue.try_send(Message::Work(Submission::new(work, done))) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => message,
        };
        if let Message::Work(submission) = unsent {
            submission.forget();
        }
        Err(SubmitError::Busy { queue_entries_max: self.reads.shared.options.queue_entries_max })
    }

    /// Commits one batch of what is queued.
    pub fn step_commit(&mut self) -> CommitStep {
        self.committer.step()
    }

    /// Flushes what there is.
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

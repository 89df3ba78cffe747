//! The committer: takes what is queued, makes it durable with one sync, completes it, repeats.
//!
//! There is one committer, so the order in which it runs transactions is the order of history. It never waits for more
//! work: while a sync runs, the next batch gathers in the queue. Publishing comes after the sync and before the
//! completions, so that no reader sees what is not durable, and every writer can read what it has been acknowledged.
//! Completions run on the committer's thread and must be short.
//!
//! The steps are plain functions which never wait: the thread in [`crate::handle`] and the single-threaded simulator call
//! the same ones.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use crate::counters::Counters;
use crate::disk::is_out_of_space;
use crate::error::LedgerError;
use crate::flusher::FlushRequest;
use crate::index::ApplyError;
use crate::journal::{Creation, JournalWriter, Room};
use crate::options::Mode;
use crate::shared::Shared;
use crate::submission::{Submission, WorkOutcome};
use crate::tx::{StagedBatch, Tx};
use crate::types::Write;
use crate::value::gather;

/// A message to the committer.
pub(crate) enum CommitterMessage {
    /// A transaction to commit.
    Submit(Submission),
    /// Finish what was submitted before, then end.
    Stop,
}

impl CommitterMessage {
    /// Drops a message that could not be sent, without completing its transaction.
    pub fn discard(self) {
        if let CommitterMessage::Submit(submission) = self {
            submission.discard();
        }
    }
}

/// The result of one commit step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStep {
    /// Nothing was queued.
    Idle,
    /// A batch of this many entries was completed.
    Answered(usize),
    /// Work is queued, but the flusher must make room first.
    Stalled,
    /// The committer has stopped, as requested.
    Stopped,
}

/// Observes every batch before it is written, and may add rows to the same frame. Only tests install one.
///
/// An observed batch is not durable yet: if it cannot be made durable, the next one comes with the same sequence. An
/// observer that keeps state in memory updates it in [`Observer::on_durable`], never before.
pub trait Observer: Send {
    /// Called with the writes of a batch, in order. An error refuses the entire batch.
    fn on_batch(&mut self, sequence: u64, writes: &[Write], tx: &mut Tx<'_>) -> Result<(), String>;

    /// Called when the last observed batch is durable, before its entries are completed.
    fn on_durable(&mut self, _sequence: u64) {}
}

/// The only writer of the ledger.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    journal: JournalWriter,
    queue: Receiver<CommitterMessage>,
    /// Submissions taken from the queue that have not run yet.
    received: VecDeque<Submission>,
    flush_requests: Sender<FlushRequest>,
    observer: Option<Box<dyn Observer>>,
    next_sequence: u64,
    stopping: bool,
    /// An empty batch, kept for its memory.
    spare: Option<Batch>,
}

/// An entry that ran, and the error that is already known to be its outcome.
type Entry = (Submission, Result<(), LedgerError>);

/// Whether transactions of a batch may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WritePolicy {
    /// Writes are accepted.
    Accept,
    /// Writes are refused: the disk is full.
    Refuse,
}

/// A batch that ran but is not durable yet.
struct Batch {
    entries: Vec<Entry>,
    staged: StagedBatch,
}

impl Committer {
    pub fn new(
        shared: Arc<Shared>,
        queue: Receiver<CommitterMessage>,
        flush_requests: Sender<FlushRequest>,
        observer: Option<Box<dyn Observer>>,
    ) -> Self {
        let disk = shared.disk.clone();
        let pool = shared.pool.clone();
        let journal = JournalWriter::new(disk, pool, shared.counters.clone(), &shared.options);
        let next_sequence = shared.overlay.read().sequence + 1;
        Self {
            shared,
            journal,
            queue,
            received: VecDeque::new(),
            flush_requests,
            observer,
            next_sequence,
            stopping: false,
            spare: None,
        }
    }

    /// Waits for a message. For the committer thread only.
    pub fn wait_for_work(&mut self) {
        match self.queue.recv() {
            Ok(message) => self.receive(message),
            Err(_) => self.stopping = true,
        }
    }

    /// Commits one batch of what is queued, if there is room for it.
    pub fn step(&mut self) -> CommitStep {
        if !self.fetch_submission() {
            return if self.stopping { CommitStep::Stopped } else { CommitStep::Idle };
        }
        if let Some(reason) = self.shared.poison_reason() {
            return self.fail_all(LedgerError::Poisoned { reason });
        }
        if self.ensure_room() {
            self.commit_batch()
        } else if self.shared.poison_reason().is_some() {
            self.step()
        } else if self.shared.is_full() {
            self.refuse_batch()
        } else {
            self.stall()
        }
    }

    fn stall(&self) -> CommitStep {
        Counters::add(&self.shared.counters.stalls, 1);
        self.request_flush();
        CommitStep::Stalled
    }

    /// Takes a submission from the queue unless one is there already. Returns `false` if nothing is queued.
    fn fetch_submission(&mut self) -> bool {
        if self.received.is_empty()
            && !self.stopping
            && let Ok(message) = self.queue.try_recv()
        {
            self.receive(message);
        }
        !self.received.is_empty()
    }

    fn receive(&mut self, message: CommitterMessage) {
        match message {
            CommitterMessage::Submit(submission) => self.received.push_back(submission),
            CommitterMessage::Stop => self.stopping = true,
        }
    }

    /// Makes room for a batch: memory below its limit, and a segment of the journal for the largest frame. Returns `false`
    /// if there is none.
    fn ensure_room(&mut self) -> bool {
        if self.shared.options.mode() == Mode::Direct {
            return true;
        }
        if self.shared.overlay.read().bytes() >= self.shared.options.overlay_bytes_max {
            return false;
        }
        // While the disk is known to be full, creating segments is left to the flusher: every attempt writes until it fails.
        let creation =
            if self.shared.is_full() { Creation::LeftToFlusher } else { Creation::Allowed };
        match self.journal.ensure_room(self.shared.options.frame_bytes_max(), creation) {
            Room::Ready => true,
            Room::AtLimit => false,
            Room::Failed(error) if is_out_of_space(&error) => false,
            Room::Failed(error) => {
                self.shared.poison(format!("could not prepare a journal segment: {error}"));
                false
            }
        }
    }

    fn commit_batch(&mut self) -> CommitStep {
        let mut batch = self.run_batch(WritePolicy::Accept);
        let durability = self.make_durable(&mut batch);
        self.complete_batch(batch, durability)
    }

    /// Runs what is queued although there is no room: transactions that only read succeed, those that write are refused.
    fn refuse_batch(&mut self) -> CommitStep {
        let batch = self.run_batch(WritePolicy::Refuse);
        self.complete_batch(batch, Ok(()))
    }

    fn run_batch(&mut self, policy: WritePolicy) -> Batch {
        let mut batch = self.spare.take().unwrap_or_else(|| Batch::new(&self.shared));
        let entries_max = self.shared.options.batch_entries_max;
        let bytes_max = self.shared.options.batch_bytes_max;
        while batch.entries.len() < entries_max
            && batch.staged.payload_bytes() < bytes_max
            && self.fetch_submission()
        {
            let Some(submission) = self.received.pop_front() else { break };
            batch.run(submission, &self.shared, policy);
        }
        batch
    }

    fn make_durable(&mut self, batch: &mut Batch) -> Result<(), LedgerError> {
        batch.staged.write_gathered();
        if batch.staged.log().is_empty() {
            return Ok(());
        }
        let sequence = self.next_sequence;
        self.observe(&mut batch.staged, sequence)?;
        self.write(batch, sequence)?;
        self.next_sequence += 1;
        self.shared.counters.add_batch(batch.entries.len(), batch.staged.log().len());
        self.publish(batch, sequence);
        if let Some(observer) = &mut self.observer {
            observer.on_durable(sequence);
        }
        Ok(())
    }

    fn observe(&mut self, staged: &mut StagedBatch, sequence: u64) -> Result<(), LedgerError> {
        let Some(observer) = &mut self.observer else { return Ok(()) };
        let writes = staged.log().to_vec();
        let mut tx = Tx::new(&self.shared, staged);
        let observed = observer.on_batch(sequence, &writes, &mut tx);
        observed.map_err(|reason| LedgerError::Observer { reason: reason.into() })?;
        tx.take_error().map_or(Ok(()), Err)
    }

    fn write(&mut self, batch: &Batch, sequence: u64) -> Result<(), LedgerError> {
        match self.shared.options.mode() {
            Mode::Journal => {
                let appended = self.journal.append(sequence, batch.staged.log());
                appended.map_err(|error| self.poison_error(&error))
            }
            Mode::Direct => self.write_direct(batch, sequence),
        }
    }

    fn write_direct(&self, batch: &Batch, sequence: u64) -> Result<(), LedgerError> {
        let started = Instant::now();
        let mut index = self.shared.index.lock();
        match index.apply(batch.staged.rows(), sequence) {
            Ok(_) => {
                self.shared.full.store(false, Ordering::Release);
                self.shared.counters.add_sync(started.elapsed());
                let published = self.shared.publish_index(&index, sequence);
                published.map_err(|error| self.poison_error(&error))
            }
            Err(ApplyError::Full(_)) => {
                self.shared.full.store(true, Ordering::Release);
                self.shared.refresh_index(&index);
                Err(LedgerError::Full)
            }
            Err(ApplyError::Failed(error)) => {
                self.shared.refresh_index(&index);
                Err(self.poison_error(&error))
            }
        }
    }

    fn poison_error(&self, error: &dyn std::error::Error) -> LedgerError {
        LedgerError::Poisoned { reason: self.shared.poison(crate::error::error_chain(error)) }
    }

    fn publish(&self, batch: &mut Batch, sequence: u64) {
        if self.shared.options.mode() == Mode::Direct {
            return;
        }
        let writes = batch.staged.log_mut();
        gather(|visit| {
            writes.iter_mut().filter_map(|write| write.slot.value_mut()).for_each(visit);
        });
        let active_bytes = {
            let mut overlay = self.shared.overlay.write();
            overlay.active.absorb(writes);
            overlay.sequence = sequence;
            overlay.active.bytes()
        };
        if active_bytes >= self.shared.options.flush_bytes {
            self.request_flush();
        }
    }

    fn complete_batch(
        &mut self,
        mut batch: Batch,
        durability: Result<(), LedgerError>,
    ) -> CommitStep {
        let count = batch.entries.len();
        let durable =
            batch.entries.iter().filter(|(_, own)| durability.is_ok() && own.is_ok()).count();
        Counters::add(&self.shared.counters.entries, durable as u64);
        for (submission, own) in batch.entries.drain(..) {
            submission.complete(durability.clone().and(own));
        }
        batch.staged.clear();
        self.spare = Some(batch);
        CommitStep::Answered(count)
    }

    fn fail_all(&mut self, error: LedgerError) -> CommitStep {
        let mut count = 0;
        while self.fetch_submission() {
            while let Some(submission) = self.received.pop_front() {
                submission.complete(Err(error.clone()));
                count += 1;
            }
        }
        CommitStep::Answered(count)
    }

    fn request_flush(&self) {
        // A full channel means that a request is already waiting.
        let _ = self.flush_requests.try_send(FlushRequest);
    }
}

impl Batch {
    fn new(shared: &Shared) -> Self {
        let stores_rows = shared.options.mode() == Mode::Direct;
        let staged = StagedBatch::new(shared.table_slots(), stores_rows);
        Self { entries: Vec::new(), staged }
    }

    fn run(&mut self, mut submission: Submission, shared: &Shared, policy: WritePolicy) {
        let savepoint = self.staged.savepoint();
        let mut tx = Tx::new(shared, &mut self.staged);
        let ran = catch_unwind(AssertUnwindSafe(|| submission.run(&mut tx)));
        let outcome = match (ran, tx.take_error()) {
            (Err(_), _) => Err(LedgerError::Panicked),
            (Ok(_), Some(error)) => Err(error),
            (Ok(WorkOutcome::Accepted), None)
                if policy == WritePolicy::Refuse && self.staged.has_writes_since(savepoint) =>
            {
                Counters::add(&shared.counters.refused_full, 1);
                Err(LedgerError::Full)
            }
            (Ok(WorkOutcome::Accepted), None) => Ok(()),
            (Ok(WorkOutcome::Refused), None) => {
                self.staged.roll_back(savepoint);
                Ok(())
            }
        };
        if outcome.is_err() {
            self.staged.roll_back(savepoint);
            submission.on_rollback();
        }
        self.entries.push((submission, outcome));
    }
}

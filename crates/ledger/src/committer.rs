//! The committer: takes what is queued, makes it durable with one sync, answers everyone, repeats.
//!
//! There is one, so the order in which it runs work is the order of history. It never lingers for more work: while a sync
//! runs the next batch gathers by itself. Publishing comes after the sync and before the answers, so nobody reads what is
//! not durable and everybody reads what they were told is. Answers run on the committer's thread and must be short.
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
use crate::error::CommitError;
use crate::flusher::Nudge;
use crate::index::ApplyError;
use crate::journal::{Creation, JournalWriter, Room};
use crate::options::Mode;
use crate::shared::Shared;
use crate::tx::{Staged, Tx};
use crate::types::Write;
use crate::value::gather;
use crate::work::{Ran, Submission};

/// What travels to the committer.
pub(crate) enum Message {
    /// Something to commit.
    Work(Submission),
    /// Finish what came before and end.
    Stop,
}

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStep {
    /// Nothing was queued.
    Idle,
    /// A batch of this many entries was answered.
    Answered(usize),
    /// Work is queued, but the flusher must make room first.
    Stalled,
    /// The committer was told to stop, and has.
    Stopped,
}

/// Sees every batch before it is written, and may add rows to the same frame.
///
/// A batch that was seen is not yet history: if it cannot be made durable, the next one comes with the same sequence. An
/// observer that keeps state in memory moves it on in [`Observer::on_durable`], never before.
pub trait Observer: Send {
    /// Called with the writes of a batch, in order. An error refuses the whole batch.
    fn on_batch(&mut self, sequence: u64, writes: &[Write], tx: &mut Tx<'_>) -> Result<(), String>;

    /// Called when the batch last seen is durable, before anyone is answered.
    fn on_durable(&mut self, _sequence: u64) {}
}

/// The one writer of the ledger.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    journal: JournalWriter,
    queue: Receiver<Message>,
    ahead: VecDeque<Submission>,
    nudge: Sender<Nudge>,
    observer: Option<Box<dyn Observer>>,
    next_sequence: u64,
    stopping: bool,
    /// An empty batch, kept for its memory.
    spare: Option<Batch>,
}

/// An entry that ran, and what is already known about its end.
type Entry = (Submission, Result<(), CommitError>);

/// A batch that ran but is not durable yet.
struct Batch {
    entries: Vec<Entry>,
    staged: Staged,
}

impl Committer {
    pub fn new(
        shared: Arc<Shared>,
        queue: Receiver<Message>,
        nudge: Sender<Nudge>,
        observer: Option<Box<dyn Observer>>,
    ) -> Self {
        let (disk, pool) = (shared.disk.clone(), shared.pool.clone());
        let journal = JournalWriter::new(disk, pool, shared.counters.clone(), &shared.options);
        let next_sequence = shared.overlay.read().sequence + 1;
        let ahead = VecDeque::new();
        let (stopping, spare) = (false, None);
        Self { shared, journal, queue, ahead, nudge, observer, next_sequence, stopping, spare }
    }

    /// Waits for something to do. For the thread only.
    pub fn wait_for_work(&mut self) {
        match self.queue.recv() {
            Ok(message) => self.take(message),
            Err(_) => self.stopping = true,
        }
    }

    /// Commits one batch of what is queued, if there is room for it.
    pub fn step(&mut self) -> CommitStep {
        if !self.fetch() {
            return if self.stopping { CommitStep::Stopped } else { CommitStep::Idle };
        }
        if let Some(reason) = self.shared.poisoned() {
            return self.answer_all(CommitError::Poisoned { reason });
        }
        match self.has_room() {
            true => self.commit_batch(),
            false if self.shared.poisoned().is_some() => self.step(),
            false if self.shared.is_full() => self.refuse_batch(),
            false => self.stall(),
        }
    }

    fn stall(&self) -> CommitStep {
        Counters::add(&self.shared.counters.stalls, 1);
        self.nudge_flusher();
        CommitStep::Stalled
    }

    /// Makes sure at least one submission is ahead; `false` if nothing is queued.
    fn fetch(&mut self) -> bool {
        if self.ahead.is_empty()
            && !self.stopping
            && let Ok(message) = self.queue.try_recv()
        {
            self.take(message);
        }
        !self.ahead.is_empty()
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Work(submission) => self.ahead.push_back(submission),
            Message::Stop => self.stopping = true,
        }
    }

    /// Whether a batch may be started: memory below its limit, and a place in the journal for the largest frame.
    fn has_room(&mut self) -> bool {
        if self.shared.options.mode == Mode::Direct {
            return true;
        }
        if self.shared.overlay.read().bytes() >= self.shared.options.overlay_bytes_max {
            return false;
        }
        // While the disk is known to be full, making segments is left to the flusher: every attempt writes until it fails.
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
        let mut batch = self.run_batch(false);
        let verdict = self.make_durable(&mut batch);
        self.answer(batch, verdict)
    }

    /// Runs what is queued although there is no room: work that only reads is answered, work that writes is refused.
    fn refuse_batch(&mut self) -> CommitStep {
        let batch = self.run_batch(true);
        self.answer(batch, Ok(()))
    }

    fn run_batch(&mut self, refuse_writes: bool) -> Batch {
        let mut batch = self.spare.take().unwrap_or_else(|| Batch::new(&self.shared));
        let (entries_max, bytes_max) =
            (self.shared.options.batch_entries_max, self.shared.options.batch_bytes_max);
        while batch.entries.len() < entries_max
            && batch.staged.payload_bytes() < bytes_max
            && self.fetch()
        {
            let Some(submission) = self.ahead.pop_front() else { break };
            batch.run(submission, &self.shared, refuse_writes);
        }
        batch
    }

    fn make_durable(&mut self, batch: &mut Batch) -> Result<(), CommitError> {
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

    fn observe(&mut self, staged: &mut Staged, sequence: u64) -> Result<(), CommitError> {
        let Some(observer) = &mut self.observer else { return Ok(()) };
        let writes = staged.log().to_vec();
        let mut tx = Tx::new(&self.shared, staged);
        let observed = observer.on_batch(sequence, &writes, &mut tx);
        observed.map_err(|reason| CommitError::Observer { reason: reason.into() })?;
        tx.fault().map_or(Ok(()), Err)
    }

    fn write(&mut self, batch: &Batch, sequence: u64) -> Result<(), CommitError> {
        match self.shared.options.mode {
            Mode::Journal => {
                let appended = self.journal.append(sequence, batch.staged.log());
                appended.map_err(|error| self.poisoned_by(&error))
            }
            Mode::Direct => self.write_direct(batch, sequence),
        }
    }

    fn write_direct(&self, batch: &Batch, sequence: u64) -> Result<(), CommitError> {
        let started = Instant::now();
        let mut index = self.shared.index.lock();
        match index.apply(batch.staged.rows(), sequence) {
            Ok(_) => {
                self.shared.full.store(false, Ordering::Release);
                self.shared.counters.add_sync(started.elapsed());
                let shown = self.shared.show_index(&index, sequence);
                shown.map_err(|error| self.poisoned_by(&error))
            }
            Err(ApplyError::Full(_)) => {
                self.shared.full.store(true, Ordering::Release);
                self.shared.refresh_index(&index);
                Err(CommitError::Full)
            }
            Err(ApplyError::Failed(error)) => {
                self.shared.refresh_index(&index);
                Err(self.poisoned_by(&error))
            }
        }
    }

    fn poisoned_by(&self, error: &dyn std::error::Error) -> CommitError {
        CommitError::Poisoned { reason: self.shared.poison(crate::error::chain(error)) }
    }

    fn publish(&self, batch: &mut Batch, sequence: u64) {
        if self.shared.options.mode == Mode::Direct {
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
            self.nudge_flusher();
        }
    }

    fn answer(&mut self, mut batch: Batch, verdict: Result<(), CommitError>) -> CommitStep {
        let count = batch.entries.len();
        let durable =
            batch.entries.iter().filter(|(_, own)| verdict.is_ok() && own.is_ok()).count();
        Counters::add(&self.shared.counters.entries, durable as u64);
        for (submission, own) in batch.entries.drain(..) {
            submission.answer(verdict.clone().and(own));
        }
        batch.staged.clear();
        self.spare = Some(batch);
        CommitStep::Answered(count)
    }

    fn answer_all(&mut self, error: CommitError) -> CommitStep {
        let mut count = 0;
        while self.fetch() {
            while let Some(submission) = self.ahead.pop_front() {
                submission.answer(Err(error.clone()));
                count += 1;
            }
        }
        CommitStep::Answered(count)
    }

    fn nudge_flusher(&self) {
        // A full channel means that a nudge is already waiting.
        let _ = self.nudge.try_send(Nudge);
    }
}

impl Batch {
    fn new(shared: &Shared) -> Self {
        let stores_rows = shared.options.mode == Mode::Direct;
        let staged = Staged::new(shared.table_slots(), stores_rows);
        Self { entries: Vec::new(), staged }
    }

    fn run(&mut self, mut submission: Submission, shared: &Shared, refuse_writes: bool) {
        let mark = self.staged.mark();
        let mut tx = Tx::new(shared, &mut self.staged);
        let ran = catch_unwind(AssertUnwindSafe(|| submission.run(&mut tx)));
        let verdict = match (ran, tx.fault()) {
            (Err(_), _) => Err(CommitError::Panicked),
            (Ok(_), Some(fault)) => Err(fault),
            (Ok(Ran::Accepted), None) if refuse_writes && self.staged.wrote_since(mark) => {
                Counters::add(&shared.counters.refused_full, 1);
                Err(CommitError::Full)
            }
            (Ok(Ran::Accepted), None) => Ok(()),
            (Ok(Ran::Refused), None) => {
                self.staged.roll_back(mark);
                Ok(())
            }
        };
        if verdict.is_err() {
            self.staged.roll_back(mark);
        }
        self.entries.push((submission, verdict));
    }
}

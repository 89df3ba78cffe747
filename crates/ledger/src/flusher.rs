//! The flusher: moves rows from the overlay into the index, and keeps free segments ready.
//!
//! Everything slow that is not a commit happens here, off the commit path: index transactions, freeing segments, making
//! new ones. A flush that meets a full disk keeps its rows in the overlay and in the journal and is taken up again at the
//! next step; a flush that fails in any other way stops the ledger, because nobody can say what the index holds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam_channel::Sender;

use crate::counters::Counters;
use crate::disk::is_out_of_space;
use crate::error::{FlushError, IndexError, chain};
use crate::index::{Applied, ApplyError, Index};
use crate::journal::Room;
use crate::options::Mode;
use crate::overlay::Flushing;
use crate::shared::Shared;

/// A wish that the flusher look now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nudge;

/// A sign that the flusher has done something the committer may be waiting for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress;

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushStep {
    /// There was nothing to flush.
    Idle,
    /// A generation went into the index.
    Flushed,
}

/// The one that writes the index.
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    progress: Sender<Progress>,
}

impl Flusher {
    pub fn new(shared: Arc<Shared>, progress: Sender<Progress>) -> Self {
        Self { shared, progress }
    }

    /// Flushes what there is, frees segments and prepares spares.
    pub fn step(&self) -> Result<FlushStep, FlushError> {
        if let Some(reason) = self.shared.poisoned() {
            return Err(FlushError::Poisoned { reason });
        }
        let flushed = self.flush();
        self.recycle();
        let result = flushed.and_then(|step| self.prepare_spares().map(|()| step));
        if !matches!(result, Err(FlushError::Poisoned { .. })) {
            self.shared.full.store(result.is_err(), Ordering::Release);
        }
        // A full channel means that the committer has not even seen the last sign.
        let _ = self.progress.try_send(Progress);
        result
    }

    /// Flushes until nothing is left, for a clean shutdown.
    pub fn finish_all(&self) -> Result<(), FlushError> {
        while self.step()? == FlushStep::Flushed {}
        Ok(())
    }

    fn flush(&self) -> Result<FlushStep, FlushError> {
        let slots = self.shared.table_slots();
        let Some(flushing) = self.shared.overlay.write().begin_flush(slots) else {
            return Ok(FlushStep::Idle);
        };
        let started = Instant::now();
        let mut index = self.shared.index.lock();
        let outcome = index.apply(&flushing.rows, flushing.sequence);
        drop(flushing);
        match outcome {
            Ok(applied) => self.finish(&index, applied, started),
            Err(ApplyError::Full(_)) => {
                Counters::add(&self.shared.counters.flushes_full, 1);
                self.shared.refresh_index(&index);
                Err(FlushError::Full)
            }
            Err(ApplyError::Failed(error)) => {
                self.shared.refresh_index(&index);
                Err(self.poison(chain(&error)))
            }
        }
    }

    fn finish(
        &self,
        index: &Index,
        applied: Applied,
        started: Instant,
    ) -> Result<FlushStep, FlushError> {
        let snapshot = index.snapshot().map_err(|error| self.poison(chain(&error)))?;
        let flushed = {
            let mut overlay = self.shared.overlay.write();
            overlay.index = snapshot;
            overlay.flushing.take()
        };
        self.keep_memory(flushed);
        self.count(applied);
        self.shared.counters.add_flush(started.elapsed());
        Ok(FlushStep::Flushed)
    }

    /// Empties a generation that nobody reads any more and keeps its memory for the next one. The emptying is the slow part,
    /// so it happens without the lock.
    fn keep_memory(&self, flushed: Option<Arc<Flushing>>) {
        if let Some(Flushing { mut rows, .. }) = flushed.and_then(Arc::into_inner) {
            rows.clear();
            self.shared.overlay.write().spare = Some(rows);
        }
    }

    /// Frees segments at every step, not only after a flush: a segment may have been sealed since.
    fn recycle(&self) {
        let indexed = self.shared.index.lock().sequence();
        self.shared.pool.recycle(indexed);
    }

    fn count(&self, applied: Applied) {
        let counters = &self.shared.counters;
        Counters::add(&counters.flush_rows_put, applied.put);
        Counters::add(&counters.flush_rows_removed, applied.removed);
        Counters::add(&counters.flush_rows_skipped, applied.skipped);
    }

    /// Keeps the promised number of spares. A full disk is a problem only when not a single one is left.
    pub fn prepare_spares(&self) -> Result<(), FlushError> {
        let options = &self.shared.options;
        if options.mode == Mode::Direct {
            return Ok(());
        }
        match self.shared.pool.prepare(self.shared.disk.as_ref(), options.spare_segments) {
            Room::Ready | Room::AtLimit => Ok(()),
            Room::Failed(error) if !is_out_of_space(&error) => {
                Err(self.poison(format!("could not prepare a journal segment: {error}")))
            }
            Room::Failed(_) if self.shared.pool.free() > 0 => Ok(()),
            Room::Failed(_) => Err(FlushError::Full),
        }
    }

    fn poison(&self, reason: String) -> FlushError {
        FlushError::Poisoned { reason: self.shared.poison(reason) }
    }
}

impl Shared {
    /// Shows readers an index that now holds the batch `sequence`.
    pub(crate) fn show_index(&self, index: &Index, sequence: u64) -> Result<(), IndexError> {
        let snapshot = index.snapshot()?;
        let mut overlay = self.overlay.write();
        overlay.index = snapshot;
        overlay.sequence = sequence;
        Ok(())
    }

    /// Shows readers the index as it is now. If it cannot be read, they keep what they have.
    pub(crate) fn refresh_index(&self, index: &Index) {
        Counters::add(&self.counters.index_reopens, 1);
        if let Ok(snapshot) = index.snapshot() {
            self.overlay.write().index = snapshot;
        }
    }
}

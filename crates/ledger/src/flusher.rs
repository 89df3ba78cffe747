//! The flusher: moves rows from the overlay into the index, and keeps free segments ready.
//!
//! Everything slow that is not a commit happens here, off the commit path: index transactions, freeing segments, creating
//! new ones. A flush that finds the disk full keeps its rows in the overlay and in the journal and is repeated at the next
//! step; a flush that fails in any other way stops the ledger, because the content of the index is then unknown.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam_channel::Sender;

use crate::counters::Counters;
use crate::disk::is_out_of_space;
use crate::error::{FlushError, IndexError, error_chain};
use crate::index::{Applied, ApplyError, Index};
use crate::journal::Room;
use crate::options::Mode;
use crate::overlay::Flushing;
use crate::shared::Shared;

/// A request that the flusher run a step now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlushRequest;

/// A signal that the flusher has done something the committer may be waiting for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlushProgress;

/// The result of one flush step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushStep {
    /// There was nothing to flush.
    Idle,
    /// A generation was written to the index.
    Flushed,
}

/// The writer of the index.
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    progress: Sender<FlushProgress>,
}

impl Flusher {
    pub fn new(shared: Arc<Shared>, progress: Sender<FlushProgress>) -> Self {
        Self { shared, progress }
    }

    /// Flushes the overlay, frees segments and prepares spares.
    pub fn step(&self) -> Result<FlushStep, FlushError> {
        if let Some(reason) = self.shared.poison_reason() {
            return Err(FlushError::Poisoned { reason });
        }
        let flushed = self.flush();
        self.recycle();
        let result = flushed.and_then(|step| self.prepare_spares().map(|()| step));
        if !matches!(result, Err(FlushError::Poisoned { .. })) {
            self.shared.full.store(result.is_err(), Ordering::Release);
        }
        // A full channel means that the committer has not seen the last signal yet.
        let _ = self.progress.try_send(FlushProgress);
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
            Ok(applied) => self.publish_flush(&index, applied, started),
            Err(ApplyError::Full(_)) => {
                Counters::add(&self.shared.counters.flushes_full, 1);
                self.shared.refresh_index(&index);
                Err(FlushError::Full)
            }
            Err(ApplyError::Failed(error)) => {
                self.shared.refresh_index(&index);
                Err(self.poison(error_chain(&error)))
            }
        }
    }

    fn publish_flush(
        &self,
        index: &Index,
        applied: Applied,
        started: Instant,
    ) -> Result<FlushStep, FlushError> {
        let snapshot = index.snapshot().map_err(|error| self.poison(error_chain(&error)))?;
        let flushed = {
            let mut overlay = self.shared.overlay.write();
            overlay.index = snapshot;
            overlay.flushing.take()
        };
        self.reuse_memory(flushed);
        self.count_rows(applied);
        self.shared.counters.add_flush(started.elapsed());
        Ok(FlushStep::Flushed)
    }

    /// Empties a generation that no reader holds any more and keeps its memory for the next one. Emptying is the slow part,
    /// so it happens without the lock.
    fn reuse_memory(&self, flushed: Option<Arc<Flushing>>) {
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

    fn count_rows(&self, applied: Applied) {
        let counters = &self.shared.counters;
        Counters::add(&counters.flush_rows_put, applied.put);
        Counters::add(&counters.flush_rows_removed, applied.removed);
        Counters::add(&counters.flush_rows_skipped, applied.skipped);
    }

    /// Prepares the configured number of spare segments. A full disk is an error only if no segment is free.
    pub fn prepare_spares(&self) -> Result<(), FlushError> {
        let options = &self.shared.options;
        if options.mode() == Mode::Direct {
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
    /// Publishes the index, which now holds the batch `sequence`, to readers.
    pub(crate) fn publish_index(&self, index: &Index, sequence: u64) -> Result<(), IndexError> {
        let snapshot = index.snapshot()?;
        let mut overlay = self.overlay.write();
        overlay.index = snapshot;
        overlay.sequence = sequence;
        Ok(())
    }

    /// Publishes the index as it is now. If it cannot be read, readers keep the snapshot they have.
    pub(crate) fn refresh_index(&self, index: &Index) {
        Counters::add(&self.counters.index_reopens, 1);
        if let Ok(snapshot) = index.snapshot() {
            self.overlay.write().index = snapshot;
        }
    }
}

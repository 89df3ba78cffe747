//! The state that the committer, the flusher and every reader share, and how reading works.
//!
//! Reads never wait for the disk while holding the overlay's lock: they take what they need from the overlay, keep a
//! reference to the index snapshot of the same moment, release the lock, and only then read the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::counters::Counters;
use crate::disk::Disk;
use crate::error::{IndexError, RowReadError};
use crate::index::{Index, IndexSnapshot};
use crate::journal::Pool;
use crate::limits::READ_ATTEMPTS_MAX;
use crate::merge::{self, Layer, Merged, MergedSlots};
use crate::options::Options;
use crate::overlay::{Generation, Overlay};
use crate::types::{Direction, Key, KeyRange, RowBytes, Slot, TableId};
use crate::view::View;

/// Rows of a range, in order.
pub type RowPage = Vec<(Key, RowBytes)>;

/// The state behind every handle of one open ledger.
#[derive(Debug)]
pub struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) counters: Arc<Counters>,
    pub(crate) overlay: RwLock<Overlay>,
    pub(crate) index: Mutex<Index>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) full: AtomicBool,
    poison: RwLock<Option<Arc<str>>>,
}

/// The result of one attempt to read.
enum Attempt<T> {
    /// The overlay had the answer.
    FromOverlay(Result<T, RowReadError>),
    /// The index was read through this snapshot.
    FromIndex(Result<T, RowReadError>, Arc<IndexSnapshot>),
}

/// Whether the ledger accepts writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Writes are accepted.
    Good,
    /// The disk is full: what was accepted is safe; writes are refused once the journal has no room left.
    Full,
    /// A sync or a journal write failed. Writes are refused until a restart.
    Poisoned {
        /// What failed.
        reason: Arc<str>,
    },
}

impl Shared {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        options: Options,
        index: Index,
        pool: Pool,
        replayed: (Generation, u64),
    ) -> Result<Self, IndexError> {
        let snapshot = index.snapshot()?;
        let overlay = Overlay {
            active: replayed.0,
            flushing: None,
            index: snapshot,
            sequence: replayed.1,
            spare: None,
        };
        Ok(Self {
            disk,
            options,
            counters: Arc::default(),
            overlay: RwLock::new(overlay),
            index: Mutex::new(index),
            pool: Arc::new(pool),
            full: AtomicBool::new(false),
            poison: RwLock::new(None),
        })
    }

    /// Makes the ledger refuse writes until it is reopened, and returns the reason. The first reason is kept.
    pub(crate) fn poison(&self, reason: String) -> Arc<str> {
        self.poison.write().get_or_insert_with(|| reason.into()).clone()
    }

    /// Why the ledger refuses writes; `None` if it accepts them.
    pub(crate) fn poison_reason(&self) -> Option<Arc<str>> {
        self.poison.read().clone()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    pub(crate) fn health(&self) -> Health {
        match self.poison_reason() {
            Some(reason) => Health::Poisoned { reason },
            None if self.is_full() => Health::Full,
            None => Health::Good,
        }
    }

    pub(crate) fn table_slots(&self) -> usize {
        self.options.table_slots()
    }

    pub(crate) fn is_declared(&self, table: TableId) -> bool {
        self.options.tables.iter().any(|declared| declared.id == table)
    }

    /// A row, as of the last durable batch, or as of `staged` on top of it.
    pub(crate) fn get(
        &self,
        staged: Option<&Generation>,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<RowBytes>, RowReadError> {
        if let Some(slot) = staged.and_then(|staged| staged.get(table, key)) {
            return Ok(slot.clone().value());
        }
        self.read(|| {
            let overlay = self.overlay.read();
            if let Some(slot) = overlay.get(table, key) {
                return Attempt::FromOverlay(Ok(slot.clone().value()));
            }
            let index = overlay.index.clone();
            drop(overlay);
            Attempt::FromIndex(index.get(table, key), index)
        })
    }

    /// At most `limit` rows of a range, all as of one moment.
    pub(crate) fn range(
        &self,
        staged: Option<&Generation>,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, RowReadError> {
        self.read(|| {
            let overlay = self.overlay.read();
            let generations = staged.into_iter().chain(overlay.generations());
            let layers = generations.map(|rows| layer(rows, table, range, direction)).collect();
            let above = merge::copy_up_to_limit(MergedSlots::new(layers, direction), limit);
            let index = overlay.index.clone();
            drop(overlay);
            let page = above.and_then(|above| {
                let above: Layer<'_> = Box::new(above.into_iter().map(Ok));
                let below = index.range(table, range, direction)?;
                Merged::new(vec![above, below], direction).take(limit).collect()
            });
            Attempt::FromIndex(page, index)
        })
    }

    /// Reads, and reads again if the index was closed and reopened in the meantime, as it is after a flush that met a
    /// full disk.
    fn read<T>(&self, attempt: impl Fn() -> Attempt<T>) -> Result<T, RowReadError> {
        for _ in 1..READ_ATTEMPTS_MAX {
            match attempt() {
                Attempt::FromIndex(Err(RowReadError::Index(_)), index)
                    if self.was_reopened(&index) => {}
                Attempt::FromOverlay(result) | Attempt::FromIndex(result, _) => return result,
            }
        }
        match attempt() {
            Attempt::FromOverlay(result) | Attempt::FromIndex(result, _) => result,
        }
    }

    /// Whether the current snapshot is no longer this one. Waits for a flush in progress, which may be about to replace
    /// it.
    fn was_reopened(&self, stale: &Arc<IndexSnapshot>) -> bool {
        let _flushing = self.index.lock();
        !Arc::ptr_eq(&self.overlay.read().index, stale)
    }

    /// Everything as of this moment, for long scans.
    pub(crate) fn view(&self) -> View {
        let overlay = self.overlay.read();
        View::new(
            overlay.active.clone(),
            overlay.flushing.clone(),
            overlay.index.clone(),
            overlay.sequence,
        )
    }
}

/// One generation as a layer of a merge.
pub(crate) fn layer<'a>(
    rows: &'a Generation,
    table: TableId,
    range: &KeyRange,
    direction: Direction,
) -> Layer<'a> {
    let own = |(key, slot): (&Key, &Slot)| Ok((key.clone(), slot.clone()));
    Box::new(rows.range(table, range, direction).map(own))
}

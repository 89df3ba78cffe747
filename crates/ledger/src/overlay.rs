//! The overlay: rows which are durable in the journal but not yet in the index.
//!
//! There are two generations. The *active* one takes every published batch; when a flush begins it becomes the *flushing*
//! one, which never changes again and is removed when the index holds its rows. The index snapshot is under the same lock
//! and is replaced in the same step in which the flushing generation is removed: a reader that takes the three together
//! sees one moment, and no row can be missed between them.

use std::sync::Arc;

use crate::index::IndexSnapshot;
use crate::rows::{SetSlot, TableRows};
use crate::types::{Direction, Key, KeyRange, Slot, TableId, Write};

/// The memory that one row takes beyond its bytes: its entries in the map and in the list of keys. An estimate, for the
/// limits only.
const ROW_OVERHEAD_BYTES: usize = 96;

/// Rows per table: a batch being staged, or one generation of the overlay.
#[derive(Debug, Clone, Default)]
pub struct Generation {
    tables: Vec<TableRows>,
    bytes: usize,
    rows: usize,
}

impl Generation {
    /// An empty generation for table ids below `slots`.
    pub fn new(slots: usize) -> Self {
        Self { tables: vec![TableRows::default(); slots], bytes: 0, rows: 0 }
    }

    /// Whether no table has a row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The estimated memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the slot of a key and returns the previous one. A new row that is deleted leaves no slot.
    pub fn insert(&mut self, table: TableId, key: Key, slot: Slot) -> Option<Slot> {
        let key_bytes = key.len();
        let bytes = row_bytes(key_bytes, &slot);
        match self.tables[usize::from(table.0)].set(key, slot) {
            SetSlot::Added => {
                self.bytes += bytes;
                self.rows += 1;
                None
            }
            SetSlot::Replaced(old) => {
                self.bytes = self.bytes + bytes - row_bytes(key_bytes, &old);
                Some(old)
            }
            SetSlot::Vanished(old) => {
                self.bytes -= row_bytes(key_bytes, &old);
                self.rows -= 1;
                Some(old)
            }
        }
    }

    /// Restores the earlier state of a key; `None` means that this generation did not have it.
    pub fn restore(&mut self, table: TableId, key: Key, slot: Option<Slot>) {
        match slot {
            Some(slot) => {
                self.insert(table, key, slot);
            }
            None => self.remove(table, &key),
        }
    }

    fn remove(&mut self, table: TableId, key: &[u8]) {
        if let Some(old) = self.tables[usize::from(table.0)].remove(key) {
            self.bytes -= row_bytes(key.len(), &old);
            self.rows -= 1;
        }
    }

    /// The state of a key in this generation.
    pub fn get(&self, table: TableId, key: &[u8]) -> Option<&Slot> {
        self.tables.get(usize::from(table.0))?.get(key)
    }

    /// The rows of a range, in order.
    pub fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
    ) -> impl Iterator<Item = (&Key, &Slot)> + use<'_> {
        let rows = self.tables.get(usize::from(table.0));
        rows.map(|rows| rows.range(range.clone(), direction)).into_iter().flatten()
    }

    /// One table's rows, in key order, for the flush.
    pub fn table(&self, table: TableId) -> Vec<(&Key, &Slot)> {
        self.tables[usize::from(table.0)].sorted()
    }

    /// Moves writes into the generation, in order: a later one for the same row wins. The list is left empty.
    pub fn absorb(&mut self, writes: &mut Vec<Write>) {
        for write in writes.drain(..) {
            self.insert(write.table, write.key, write.slot);
        }
    }

    /// Removes every row but keeps the memory for reuse.
    pub fn clear(&mut self) {
        self.tables.iter_mut().for_each(TableRows::clear);
        self.bytes = 0;
        self.rows = 0;
    }
}

fn row_bytes(key_bytes: usize, slot: &Slot) -> usize {
    ROW_OVERHEAD_BYTES + key_bytes + slot.value_len()
}

/// Both generations, the index below them, and the last batch they hold.
#[derive(Debug)]
pub struct Overlay {
    /// Takes every published batch.
    pub active: Generation,
    /// Being written to the index.
    pub flushing: Option<Arc<Flushing>>,
    /// The index as of the last flush.
    pub index: Arc<IndexSnapshot>,
    /// The sequence of the last published batch.
    pub sequence: u64,
    /// An empty generation that was flushed, kept for its memory.
    pub spare: Option<Generation>,
}

/// A generation on its way into the index.
#[derive(Debug)]
pub struct Flushing {
    /// The rows.
    pub rows: Generation,
    /// The last batch they contain.
    pub sequence: u64,
}

impl Overlay {
    /// The estimated memory of both generations in bytes.
    pub fn bytes(&self) -> usize {
        self.active.bytes() + self.flushing.as_ref().map_or(0, |flushing| flushing.rows.bytes())
    }

    /// The state of a key in the newest generation that has it.
    pub fn get(&self, table: TableId, key: &[u8]) -> Option<&Slot> {
        let flushing = || self.flushing.as_ref().and_then(|flushing| flushing.rows.get(table, key));
        self.active.get(table, key).or_else(flushing)
    }

    /// The generations, newest first.
    pub fn generations(&self) -> impl Iterator<Item = &Generation> {
        std::iter::once(&self.active).chain(self.flushing.as_ref().map(|flushing| &flushing.rows))
    }

    /// Begins a flush: the active generation becomes the flushing one. A flush that failed earlier is repeated instead.
    pub fn begin_flush(&mut self, slots: usize) -> Option<Arc<Flushing>> {
        if self.flushing.is_none() && !self.active.is_empty() {
            let empty = self.spare.take().unwrap_or_else(|| Generation::new(slots));
            let rows = std::mem::replace(&mut self.active, empty);
            self.flushing = Some(Arc::new(Flushing { rows, sequence: self.sequence }));
        }
        self.flushing.clone()
    }
}

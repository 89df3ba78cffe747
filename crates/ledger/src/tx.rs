//! What a transaction sees while it runs in the committer: everything committed before it, and its own writes.
//!
//! A batch is staged as a log of its writes in order, and as rows that can be looked up. Each entry's writes can be rolled
//! back until the next entry begins, so that a failing entry leaves no trace while the others of its batch go on. Nothing
//! staged is visible to readers before it is durable.

use std::fmt;

use crate::error::{LedgerError, RowReadError};
use crate::layout::{ENTRY_HEADER_BYTES, entry_bytes};
use crate::limits::KEY_BYTES_MAX;
use crate::overlay::Generation;
use crate::shared::{RowPage, Shared};
use crate::types::{Direction, Key, KeyRange, RowBytes, Slot, TableId, Write};

/// The writes of the batch being gathered.
#[derive(Debug)]
pub(crate) struct StagedBatch {
    rows: Generation,
    log: Vec<Write>,
    undo: Vec<Undo>,
    /// Rows that gather pieces of several entries, at most one per table.
    gathered: Vec<GatheredRow>,
    /// The gathered row of each piece, and its length before it.
    gathered_undo: Vec<(usize, usize)>,
    payload_bytes: usize,
    /// Whether the rows must be complete, because they are stored instead of the log.
    stores_rows: bool,
}

/// A row that gathers pieces of the entries of a batch.
#[derive(Debug)]
struct GatheredRow {
    table: TableId,
    key: Key,
    value: Vec<u8>,
}

/// How a write is rolled back.
#[derive(Debug)]
enum Undo {
    /// The row's state before the write; `None` if the batch did not have the row.
    Row(Option<Slot>),
    /// The write is only in the log.
    Unread,
}

/// The state of the batch when an entry began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Savepoint {
    writes: usize,
    pieces: usize,
    payload_bytes: usize,
}

impl StagedBatch {
    pub fn new(slots: usize, stores_rows: bool) -> Self {
        Self {
            rows: Generation::new(slots),
            log: Vec::new(),
            undo: Vec::new(),
            gathered: Vec::new(),
            gathered_undo: Vec::new(),
            payload_bytes: 0,
            stores_rows,
        }
    }

    /// The writes so far, in order.
    pub fn log(&self) -> &[Write] {
        &self.log
    }

    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    pub fn rows(&self) -> &Generation {
        &self.rows
    }

    /// The writes, for moving them out.
    pub fn log_mut(&mut self) -> &mut Vec<Write> {
        &mut self.log
    }

    /// Empties the batch but keeps its memory for the next one.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.log.clear();
        self.undo.clear();
        self.gathered.clear();
        self.gathered_undo.clear();
        self.payload_bytes = 0;
    }

    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            writes: self.log.len(),
            pieces: self.gathered_undo.len(),
            payload_bytes: self.payload_bytes,
        }
    }

    pub fn has_writes_since(&self, savepoint: Savepoint) -> bool {
        self.log.len() > savepoint.writes || self.gathered_undo.len() > savepoint.pieces
    }

    /// Rolls back every write since `savepoint`, newest first.
    pub fn roll_back(&mut self, savepoint: Savepoint) {
        while self.log.len() > savepoint.writes {
            if let (Some(write), Some(Undo::Row(old))) = (self.log.pop(), self.undo.pop()) {
                self.rows.restore(write.table, write.key, old);
            }
        }
        while self.gathered_undo.len() > savepoint.pieces {
            match self.gathered_undo.pop() {
                // The row was begun by this piece, and rows that were begun later are gone already.
                Some((_, 0)) => drop(self.gathered.pop()),
                Some((row, length)) => self.gathered[row].value.truncate(length),
                None => break,
            }
        }
        self.payload_bytes = savepoint.payload_bytes;
    }

    /// Adds a piece to the gathered row of its table. The row has the key of its first piece.
    fn gather(&mut self, table: TableId, key: Key, piece: &[u8]) {
        let known = self.gathered.iter().position(|row| row.table == table);
        let at = known.unwrap_or(self.gathered.len());
        if known.is_none() {
            self.payload_bytes += entry_bytes(key.len(), &Slot::Deleted);
            self.gathered.push(GatheredRow { table, key, value: Vec::new() });
        }
        let row = &mut self.gathered[at];
        self.gathered_undo.push((at, row.value.len()));
        row.value.extend_from_slice(piece);
        self.payload_bytes += piece.len();
    }

    /// Turns gathered rows into writes of the batch, which is complete.
    pub fn write_gathered(&mut self) {
        let payload_bytes = self.payload_bytes;
        for GatheredRow { table, key, value } in std::mem::take(&mut self.gathered) {
            self.write_unread(Write { table, key, slot: Slot::Put(value.into()) });
        }
        self.gathered_undo.clear();
        self.payload_bytes = payload_bytes;
    }

    fn write(&mut self, write: Write) {
        self.payload_bytes += entry_bytes(write.key.len(), &write.slot);
        let old = self.rows.insert(write.table, write.key.clone(), write.slot.clone());
        self.undo.push(Undo::Row(old));
        self.log.push(write);
    }

    /// Like [`StagedBatch::write`], for a row that no transaction reads: it need not be found by lookups.
    fn write_unread(&mut self, write: Write) {
        if self.stores_rows {
            return self.write(write);
        }
        self.payload_bytes += entry_bytes(write.key.len(), &write.slot);
        self.undo.push(Undo::Unread);
        self.log.push(write);
    }
}

/// The transaction handle of one entry.
pub struct Tx<'a> {
    shared: &'a Shared,
    staged: &'a mut StagedBatch,
    began: Savepoint,
    error: Option<LedgerError>,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(shared: &'a Shared, staged: &'a mut StagedBatch) -> Self {
        let began = staged.savepoint();
        Self { shared, staged, began, error: None }
    }

    /// A row, with the effect of everything before this entry and of the entry itself.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<RowBytes>, RowReadError> {
        self.shared.get(Some(self.staged.rows()), table, key)
    }

    /// At most `limit` rows of a range, with the same visibility as [`Tx::get`].
    pub fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, RowReadError> {
        self.shared.range(Some(self.staged.rows()), table, range, direction, limit)
    }

    /// Sets a row. A write that cannot be stored fails the entry after its work has ended.
    pub fn put(&mut self, table: TableId, key: impl Into<Key>, value: impl Into<RowBytes>) {
        self.write(Write { table, key: key.into(), slot: Slot::Put(value.into()) });
    }

    /// Sets a row that is known not to exist. If it is deleted before the next flush, the index never learns of it.
    pub fn put_new(&mut self, table: TableId, key: impl Into<Key>, value: impl Into<RowBytes>) {
        self.write(Write { table, key: key.into(), slot: Slot::New(value.into()) });
    }

    /// Writes a row of a table that no transaction ever reads, such as a list that only users read.
    pub fn write_unread(&mut self, table: TableId, key: impl Into<Key>, slot: Slot) {
        let write = Write { table, key: key.into(), slot };
        self.write_with(write, StagedBatch::write_unread);
    }

    /// Adds a piece to the row that gathers those of all entries of this batch for one table, which no
    /// transaction of the batch reads. The row is written with the batch, under the key of its first piece:
    /// a table that only grows costs one row per batch instead of one per entry.
    pub fn gather(&mut self, table: TableId, key: impl Into<Key>, piece: &[u8]) {
        let key = key.into();
        if self.error.is_some() {
            return;
        }
        match self.check(table, key.len(), piece.len()) {
            Ok(()) => self.staged.gather(table, key, piece),
            Err(error) => self.error = Some(error),
        }
    }

    /// Removes a row, if it is there.
    pub fn delete(&mut self, table: TableId, key: impl Into<Key>) {
        self.write(Write { table, key: key.into(), slot: Slot::Deleted });
    }

    /// Takes the first error of the entry's writes, if there was one.
    pub(crate) fn take_error(&mut self) -> Option<LedgerError> {
        self.error.take()
    }

    fn write(&mut self, write: Write) {
        self.write_with(write, StagedBatch::write);
    }

    fn write_with(&mut self, write: Write, stage: impl FnOnce(&mut StagedBatch, Write)) {
        if self.error.is_some() {
            return;
        }
        match self.check(write.table, write.key.len(), write.slot.value_len()) {
            Ok(()) => stage(self.staged, write),
            Err(error) => self.error = Some(error),
        }
    }

    fn check(
        &self,
        table: TableId,
        key_bytes: usize,
        value_bytes: usize,
    ) -> Result<(), LedgerError> {
        if !self.shared.is_declared(table) {
            return Err(LedgerError::UnknownTable(table));
        }
        if key_bytes > KEY_BYTES_MAX {
            return Err(LedgerError::KeyTooLong {
                table,
                bytes: key_bytes,
                bytes_max: KEY_BYTES_MAX,
            });
        }
        let before = self.staged.payload_bytes() - self.began.payload_bytes;
        let bytes = before + ENTRY_HEADER_BYTES + key_bytes + value_bytes;
        let bytes_max = self.shared.options.entry_bytes_max;
        if bytes > bytes_max {
            return Err(LedgerError::EntryTooLarge { bytes, bytes_max });
        }
        Ok(())
    }
}

impl fmt::Debug for Tx<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tx")
            .field("writes", &self.staged.log().len())
            .finish_non_exhaustive()
    }
}

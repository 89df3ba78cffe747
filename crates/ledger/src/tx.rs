//! What work sees while it runs in the committer: reads over everything before it, and writes of its own.
//!
//! A batch is staged in order of its writes, and as rows that can be found. Each entry's writes can be taken back until the next entry begins, which is how
//! work that fails leaves no trace while its neighbours go on. Nothing staged is visible to readers before it is durable.

use std::fmt;

use crate::error::{CommitError, ReadError};
use crate::journal::entry_bytes;
use crate::overlay::Generation;
use crate::shared::{RowPage, Shared};
use crate::types::{Direction, KEY_BYTES_MAX, Key, KeyRange, Slot, TableId, Value, Write};

/// The writes of the batch being gathered.
#[derive(Debug)]
pub(crate) struct Staged {
    rows: Generation,
    log: Vec<Write>,
    undo: Vec<Undo>,
    payload_bytes: usize,
    /// Whether the rows must be complete, because they are what is stored.
    stores_rows: bool,
}

/// How a write is taken back.
#[derive(Debug)]
enum Undo {
    /// The row held this before.
    Row(Option<Slot>),
    /// It is in the log alone.
    Unread,
}

/// Where an entry began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    writes: usize,
    payload_bytes: usize,
}

impl Staged {
    pub fn new(slots: usize, stores_rows: bool) -> Self {
        let (log, undo) = (Vec::new(), Vec::new());
        Self { rows: Generation::new(slots), log, undo, payload_bytes: 0, stores_rows }
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

    /// The writes, for whoever takes them out.
    pub fn log_mut(&mut self) -> &mut Vec<Write> {
        &mut self.log
    }

    /// Forgets everything but keeps its memory for the next batch.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.log.clear();
        self.undo.clear();
        self.payload_bytes = 0;
    }

    pub fn mark(&self) -> Mark {
        Mark { writes: self.log.len(), payload_bytes: self.payload_bytes }
    }

    pub fn wrote_since(&self, mark: Mark) -> bool {
        self.log.len() > mark.writes
    }

    /// Takes back every write since `mark`, newest first.
    pub fn roll_back(&mut self, mark: Mark) {
        while self.log.len() > mark.writes {
            if let (Some(write), Some(Undo::Row(old))) = (self.log.pop(), self.undo.pop()) {
                self.rows.restore(write.table, write.key, old);
            }
        }
        self.payload_bytes = mark.payload_bytes;
    }

    fn write(&mut self, write: Write) {
        self.payload_bytes += entry_bytes(write.key.len(), &write.slot);
        let old = self.rows.insert(write.table, write.key.clone(), write.slot.clone());
        self.undo.push(Undo::Row(old));
        self.log.push(write);
    }

    /// The same for a row that nothing in this batch reads: it need not be found.
    fn write_unread(&mut self, write: Write) {
        if self.stores_rows {
            return self.write(write);
        }
        self.payload_bytes += entry_bytes(write.key.len(), &write.slot);
        self.undo.push(Undo::Unread);
        self.log.push(write);
    }
}

/// The hands of one entry's work.
pub struct Tx<'a> {
    shared: &'a Shared,
    staged: &'a mut Staged,
    began: Mark,
    fault: Option<CommitError>,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(shared: &'a Shared, staged: &'a mut Staged) -> Self {
        let began = staged.mark();
        Self { shared, staged, began, fault: None }
    }

    /// A row, with the effect of everything before this entry and of the entry itself.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Value>, ReadError> {
        self.shared.get(Some(self.staged.rows()), table, key)
    }

    /// At most `limit` rows of a range, with the same sight as [`Tx::get`].
    pub fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, ReadError> {
        self.shared.range(Some(self.staged.rows()), table, range, direction, limit)
    }

    /// Sets a row. A write that cannot be stored fails the whole entry when its work has ended.
    pub fn put(&mut self, table: TableId, key: impl Into<Key>, value: impl Into<Value>) {
        self.write(Write { table, key: key.into(), slot: Slot::Put(value.into()) });
    }

    /// Sets a row of a table that no work ever reads, such as an index for people.
    pub fn put_unread(&mut self, table: TableId, key: impl Into<Key>, value: impl Into<Value>) {
        let write = Write { table, key: key.into(), slot: Slot::Put(value.into()) };
        self.write_with(write, Staged::write_unread);
    }

    /// Removes a row, if it is there.
    pub fn delete(&mut self, table: TableId, key: impl Into<Key>) {
        self.write(Write { table, key: key.into(), slot: Slot::Deleted });
    }

    /// What was wrong with the entry's writes, if anything.
    pub(crate) fn fault(&mut self) -> Option<CommitError> {
        self.fault.take()
    }

    fn write(&mut self, write: Write) {
        self.write_with(write, Staged::write);
    }

    fn write_with(&mut self, write: Write, stage: impl FnOnce(&mut Staged, Write)) {
        if self.fault.is_some() {
            return;
        }
        match self.check(&write) {
            Ok(()) => stage(self.staged, write),
            Err(fault) => self.fault = Some(fault),
        }
    }

    fn check(&self, write: &Write) -> Result<(), CommitError> {
        if !self.shared.is_declared(write.table) {
            return Err(CommitError::UnknownTable(write.table));
        }
        if write.key.len() > KEY_BYTES_MAX {
            let (table, bytes) = (write.table, write.key.len());
            return Err(CommitError::KeyTooLong { table, bytes, bytes_max: KEY_BYTES_MAX });
        }
        let before = self.staged.payload_bytes() - self.began.payload_bytes;
        let bytes = before + entry_bytes(write.key.len(), &write.slot);
        let bytes_max = self.shared.options.entry_bytes_max;
        if bytes > bytes_max {
            return Err(CommitError::EntryTooLarge { bytes, bytes_max });
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

//! The index at one moment, for readers.
//!
//! Holds the tables of one read transaction open, so that a lookup is one tree descent and nothing else. It keeps the
//! pages of its moment from being reused, therefore the ledger replaces its snapshot at every flush.

use std::sync::OnceLock;

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable};

use super::{redb_error, redb_table, table_slot};
use crate::error::{IndexError, RowReadError};
use crate::merge::Layer;
use crate::types::{Direction, Key, KeyRange, RowBytes, Slot, Table, TableId};

type RedbTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// One table, and its last key once it has been needed.
///
/// Most keys grow with time, and a writer looks up a row before it creates it: the last key answers that without a tree
/// descent.
struct OpenTable {
    rows: RedbTable,
    last: OnceLock<Option<Key>>,
}

/// All tables of the index at one moment.
pub struct IndexSnapshot {
    tables: Vec<Option<OpenTable>>,
}

impl IndexSnapshot {
    pub(super) fn new(transaction: &ReadTransaction, tables: &[Table]) -> Result<Self, IndexError> {
        let slots = tables.iter().map(|table| table_slot(table.id) + 1).max().unwrap_or(0);
        let mut open: Vec<Option<OpenTable>> = (0..slots).map(|_| None).collect();
        for table in tables {
            let rows =
                transaction.open_table(redb_table(table)).map_err(redb_error("opening a table"))?;
            open[table_slot(table.id)] = Some(OpenTable { rows, last: OnceLock::new() });
        }
        Ok(Self { tables: open })
    }

    /// A row's value.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<RowBytes>, RowReadError> {
        let table = self.table(table)?;
        if table.comes_after_last_key(key)? {
            return Ok(None);
        }
        let found = table.rows.get(key).map_err(redb_error("reading a row"))?;
        Ok(found.map(|guard| RowBytes::from(guard.value())))
    }

    /// The rows of a range, in order.
    pub fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Layer<'static>, RowReadError> {
        let rows = &self.table(table)?.rows;
        if range.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let rows = rows.range::<&[u8]>(range.as_bytes()).map_err(redb_error("reading a range"))?;
        let rows: Layer<'static> = match direction {
            Direction::Forward => Box::new(rows.map(|row| row.map(own).map_err(range_error))),
            Direction::Backward => {
                Box::new(rows.rev().map(|row| row.map(own).map_err(range_error)))
            }
        };
        Ok(rows)
    }

    fn table(&self, table: TableId) -> Result<&OpenTable, RowReadError> {
        self.tables
            .get(table_slot(table))
            .and_then(Option::as_ref)
            .ok_or(RowReadError::UnknownTable(table))
    }
}

impl OpenTable {
    /// Whether a key comes after every key of the table.
    fn comes_after_last_key(&self, key: &[u8]) -> Result<bool, RowReadError> {
        let last = match self.last.get() {
            Some(last) => last,
            None => {
                let row = self.rows.last().map_err(redb_error("reading the last row"))?;
                self.last.get_or_init(|| row.map(|(key, _)| Key::from(key.value())))
            }
        };
        Ok(last.as_ref().is_none_or(|last| key > &last[..]))
    }
}

type Guard<'a> = redb::AccessGuard<'a, &'static [u8]>;

fn own((key, value): (Guard<'_>, Guard<'_>)) -> (Key, Slot) {
    (Key::from(key.value()), Slot::Put(RowBytes::from(value.value())))
}

fn range_error(error: redb::StorageError) -> RowReadError {
    redb_error("reading a range")(error).into()
}

impl std::fmt::Debug for IndexSnapshot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("IndexSnapshot").finish_non_exhaustive()
    }
}

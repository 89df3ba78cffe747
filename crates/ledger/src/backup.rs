//! Backup: a consistent copy of a running ledger.
//!
//! The copy is made from a view, so writers are not disturbed and the copy shows one moment. The format stamp is written
//! last: a copy that was interrupted is not a ledger and is refused at open.

use std::sync::Arc;

use crate::disk::Disk;
use crate::error::BackupError;
use crate::folder;
use crate::index::Index;
use crate::options::Options;
use crate::overlay::Generation;
use crate::types::{Direction, KeyRange, Slot, TableId};
use crate::view::View;

/// Bytes copied in one index transaction: large enough to be fast, small enough to hold in memory.
const COPY_BYTES: usize = 8 << 20;

/// The page cache of the copy while it is written.
const COPY_CACHE_BYTES: usize = 32 << 20;

/// The sequence of a copy that is not complete yet.
const UNFINISHED: u64 = 0;

/// What a backup contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// The sequence of the last batch in the copy.
    pub sequence: u64,
    /// Rows copied.
    pub rows: u64,
    /// Bytes of keys and values copied.
    pub bytes: u64,
}

/// Copies a view into an empty folder.
pub(crate) fn copy(
    view: &View,
    options: &Options,
    disk: Arc<dyn Disk>,
) -> Result<BackupReport, BackupError> {
    let io_error = |source| BackupError::Io { folder: disk.describe(), source };
    if !disk.list().map_err(io_error)?.is_empty() {
        return Err(BackupError::NotEmpty { folder: disk.describe() });
    }
    let mut copy = BackupWriter {
        index: Index::open(disk.clone(), &options.tables, COPY_CACHE_BYTES)?,
        chunk: Generation::new(options.table_slots()),
        slots: options.table_slots(),
        report: BackupReport { sequence: view.sequence(), ..BackupReport::default() },
    };
    for table in &options.tables {
        copy.copy_table(view, table.id)?;
    }
    let report = copy.finish()?;
    folder::write_stamp(disk.as_ref()).map_err(io_error)?;
    Ok(report)
}

/// A copy being written.
struct BackupWriter {
    index: Index,
    chunk: Generation,
    slots: usize,
    report: BackupReport,
}

impl BackupWriter {
    fn copy_table(&mut self, view: &View, table: TableId) -> Result<(), BackupError> {
        for row in view.range(table, &KeyRange::all(), Direction::Forward)? {
            let (key, value) = row?;
            self.report.rows += 1;
            self.report.bytes += (key.len() + value.len()) as u64;
            self.chunk.insert(table, key, Slot::Put(value));
            if self.chunk.bytes() >= COPY_BYTES {
                self.write(UNFINISHED)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, sequence: u64) -> Result<(), BackupError> {
        let chunk = std::mem::replace(&mut self.chunk, Generation::new(self.slots));
        Ok(self.index.copy_in(&chunk, sequence)?)
    }

    fn finish(mut self) -> Result<BackupReport, BackupError> {
        self.write(self.report.sequence)?;
        self.index.close();
        Ok(self.report)
    }
}

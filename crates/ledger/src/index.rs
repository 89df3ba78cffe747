//! The index: every row that was flushed, in one redb file.
//!
//! One redb table per ledger table, and the sequence of the last batch in the same transaction, so that a restart knows
//! where the journal continues. Every transaction uses quick repair: the time of reopening after a crash must not grow
//! with history. A transaction that failed is never continued: the index is closed and opened again, and the content of
//! the file decides what happened. Nothing outside this module sees redb.
//!
//! After a failed sync the system may hold pages as clean although the disk lacks them, and a later process would trust
//! them. Such a failure therefore leaves a marker file in the folder; the next open rewrites the entire file in place,
//! which makes every page dirty and the following sync meaningful.

mod backend;
mod snapshot;

use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;
use std::vec;

use redb::{
    CursorError, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition,
    TableHandle, WriteTransaction,
};

use crate::disk::{Disk, is_out_of_space, temporary_name};
use crate::error::IndexError;
use crate::overlay::Generation;
use crate::types::{Key, RowBytes, Slot, Table, TableId};
use backend::{Backend, FailureLog, FirstFailure};
pub use snapshot::IndexSnapshot;

/// The index's file name.
pub const INDEX_FILE: &str = "index.redb";

/// A marker: present if the index file on disk may differ from its pages in the system's cache.
const SUSPECT_FILE: &str = "index.suspect";

/// The index file is rewritten in pieces of this size.
const REWRITE_BYTES: usize = 1 << 20;

pub(crate) type RedbRows = TableDefinition<'static, &'static [u8], &'static [u8]>;
const META: TableDefinition<'static, &'static str, u64> = TableDefinition::new("catena.meta");
const META_SEQUENCE: &str = "sequence";

/// The index file, with what is needed to reopen it.
#[derive(Debug)]
pub struct Index {
    disk: Arc<dyn Disk>,
    tables: Vec<Table>,
    cache_bytes: usize,
    open: Option<Open>,
    sequence: u64,
}

#[derive(Debug)]
struct Open {
    database: Database,
    failures: FailureLog,
}

/// The number of rows that a flush changed in the index.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Rows inserted or replaced.
    pub put: u64,
    /// Rows removed.
    pub removed: u64,
    /// Deletions of rows the index never held.
    pub skipped: u64,
}

/// Why rows did not reach the index.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The disk is full. The same rows may be applied again later.
    #[error("the disk is full")]
    Full(#[source] IndexError),
    /// The index cannot be trusted to be durable any more.
    #[error("the index failed")]
    Failed(#[source] IndexError),
}

impl ApplyError {
    /// Classifies an error of opening the index: only lack of space is temporary.
    fn from_open_error(error: IndexError) -> Self {
        if is_full(&error) { ApplyError::Full(error) } else { ApplyError::Failed(error) }
    }
}

fn is_full(error: &IndexError) -> bool {
    match error {
        IndexError::Io { source, .. } => is_out_of_space(source),
        IndexError::Engine { source, .. } => {
            matches!(&**source, redb::Error::Io(cause) if is_out_of_space(cause))
        }
        IndexError::Closed => false,
    }
}

impl Index {
    /// Opens the index, creating it atomically if it is missing.
    pub fn open(
        disk: Arc<dyn Disk>,
        tables: &[Table],
        cache_bytes: usize,
    ) -> Result<Self, IndexError> {
        let names = disk.list().map_err(io_error("list the folder of"))?;
        if !names.iter().any(|name| name == INDEX_FILE) {
            create(disk.as_ref(), tables)?;
        }
        let mut index =
            Self { disk, tables: tables.to_vec(), cache_bytes, open: None, sequence: 0 };
        if names.iter().any(|name| name == SUSPECT_FILE) {
            index.rewrite()?;
        }
        index.reopen()?;
        Ok(index)
    }

    /// Rewrites every byte of the file, then removes the marker.
    fn rewrite(&self) -> Result<(), IndexError> {
        let file = self.disk.open(INDEX_FILE).map_err(io_error("open"))?;
        let len = file.size().map_err(io_error("measure"))?;
        let mut piece = vec![0; REWRITE_BYTES];
        for offset in (0..len).step_by(REWRITE_BYTES) {
            let piece = &mut piece[..REWRITE_BYTES.min((len - offset) as usize)];
            file.read_at(offset, piece).map_err(io_error("read"))?;
            file.write_at(offset, piece).map_err(io_error("rewrite"))?;
        }
        file.sync_all().map_err(io_error("sync"))?;
        self.disk.remove(SUSPECT_FILE).map_err(io_error("unmark"))?;
        self.disk.sync_dir().map_err(io_error("sync the folder of"))
    }

    /// Leaves the marker that the file must not be trusted as it is. Errors are ignored: the disk is failing already.
    fn mark_suspect(&self) {
        let _ = self.disk.create(SUSPECT_FILE).and_then(|_| self.disk.sync_dir());
    }

    /// The sequence of the last batch whose rows the index holds.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A snapshot of the index for readers.
    pub fn snapshot(&self) -> Result<Arc<IndexSnapshot>, IndexError> {
        let open = self.open.as_ref().ok_or(IndexError::Closed)?;
        let transaction = open.database.begin_read().map_err(redb_error("beginning a read"))?;
        IndexSnapshot::new(&transaction, &self.tables).map(Arc::new)
    }

    /// Applies rows and the sequence they bring the index to, in one durable transaction.
    pub fn apply(&mut self, rows: &Generation, sequence: u64) -> Result<Applied, ApplyError> {
        if self.open.is_none() {
            self.reopen().map_err(ApplyError::from_open_error)?;
        }
        if self.sequence >= sequence {
            return Ok(Applied::default());
        }
        match self.try_apply(rows, sequence) {
            Ok(applied) => {
                self.sequence = sequence;
                Ok(applied)
            }
            Err(error) => self.recover(error, sequence),
        }
    }

    /// Closes the file. No snapshot may be held when the folder is opened by another process.
    pub fn close(&mut self) {
        let Some(Open { database, failures }) = self.open.take() else { return };
        drop(database);
        if failures.first_failure() == Some(FirstFailure::Other) {
            self.mark_suspect();
        }
    }

    /// Writes one piece of a copy. A failed copy is discarded, so nothing is recovered here.
    pub fn copy_in(&self, rows: &Generation, sequence: u64) -> Result<(), IndexError> {
        self.try_apply(rows, sequence).map(|_| ())
    }

    fn try_apply(&self, rows: &Generation, sequence: u64) -> Result<Applied, IndexError> {
        let open = self.open.as_ref().ok_or(IndexError::Closed)?;
        let transaction = begin(&open.database)?;
        let mut applied = Applied::default();
        for table in &self.tables {
            apply_table(&transaction, table, rows, &mut applied)?;
        }
        store_sequence(&transaction, sequence)?;
        transaction.commit().map_err(redb_error("committing"))?;
        Ok(applied)
    }

    /// Reopens the file after a failure to find out what happened. The ledger goes on only after a lack of space.
    fn recover(&mut self, error: IndexError, sequence: u64) -> Result<Applied, ApplyError> {
        let failure = self.open.as_ref().and_then(|open| open.failures.first_failure());
        self.open = None;
        if failure != Some(FirstFailure::OutOfSpace) {
            self.mark_suspect();
            // For readers only: the ledger accepts no more writes.
            let _ = self.reopen();
            return Err(ApplyError::Failed(error));
        }
        let reopened = self.reopen();
        match reopened {
            Ok(()) if self.sequence >= sequence => Ok(Applied::default()),
            Ok(()) => Err(ApplyError::Full(error)),
            Err(reopening) => Err(ApplyError::from_open_error(reopening)),
        }
    }

    /// Opens the file again and reads its sequence. The sync comes first: nothing may be trusted that is only in the
    /// system's cache.
    fn reopen(&mut self) -> Result<(), IndexError> {
        let reopened = self.try_reopen();
        if reopened.as_ref().is_err_and(|error| !is_full(error)) {
            self.mark_suspect();
        }
        reopened
    }

    fn try_reopen(&mut self) -> Result<(), IndexError> {
        let file = self.disk.open(INDEX_FILE).map_err(io_error("open"))?;
        file.sync_data().map_err(io_error("sync"))?;
        let failures = FailureLog::default();
        let mut builder = Database::builder();
        builder.set_cache_size(self.cache_bytes);
        let backend = Backend::new(file, failures.clone());
        let database = builder.create_with_backend(backend).map_err(redb_error("opening"))?;
        add_missing_tables(&database, &self.tables)?;
        self.sequence = load_sequence(&database)?;
        self.open = Some(Open { database, failures });
        Ok(())
    }
}

/// Creates an empty index with all its tables, under a temporary name until it is durable.
fn create(disk: &dyn Disk, tables: &[Table]) -> Result<(), IndexError> {
    let temporary = temporary_name(INDEX_FILE);
    let file = disk.create(&temporary).map_err(io_error("create"))?;
    let backend = Backend::new(file.clone(), FailureLog::default());
    let database =
        Database::builder().create_with_backend(backend).map_err(redb_error("creating"))?;
    add_missing_tables(&database, tables)?;
    drop(database);
    file.sync_all().map_err(io_error("sync"))?;
    disk.rename(&temporary, INDEX_FILE).map_err(io_error("rename"))?;
    disk.sync_dir().map_err(io_error("sync the folder of"))
}

fn begin(database: &Database) -> Result<WriteTransaction, IndexError> {
    let mut transaction = database.begin_write().map_err(redb_error("beginning a write"))?;
    transaction.set_durability(Durability::Immediate).map_err(redb_error("setting durability"))?;
    transaction.set_quick_repair(true);
    Ok(transaction)
}

fn add_missing_tables(database: &Database, tables: &[Table]) -> Result<(), IndexError> {
    let existing = table_names(database)?;
    let missing: Vec<_> =
        tables.iter().filter(|table| !existing.iter().any(|name| name == table.name)).collect();
    if missing.is_empty() && existing.iter().any(|name| name == META.name()) {
        return Ok(());
    }
    let transaction = begin(database)?;
    for table in missing {
        transaction.open_table(redb_table(table)).map_err(redb_error("creating a table"))?;
    }
    transaction.open_table(META).map_err(redb_error("creating a table"))?;
    transaction.commit().map_err(redb_error("committing"))
}

fn table_names(database: &Database) -> Result<Vec<String>, IndexError> {
    let transaction = database.begin_read().map_err(redb_error("beginning a read"))?;
    let tables = transaction.list_tables().map_err(redb_error("listing tables"))?;
    Ok(tables.map(|table| table.name().to_owned()).collect())
}

fn load_sequence(database: &Database) -> Result<u64, IndexError> {
    let transaction = database.begin_read().map_err(redb_error("beginning a read"))?;
    let meta = transaction.open_table(META).map_err(redb_error("opening a table"))?;
    let stored = meta.get(META_SEQUENCE).map_err(redb_error("reading the sequence"))?;
    Ok(stored.map_or(0, |guard| guard.value()))
}

fn store_sequence(transaction: &WriteTransaction, sequence: u64) -> Result<(), IndexError> {
    let mut meta = transaction.open_table(META).map_err(redb_error("opening a table"))?;
    meta.insert(META_SEQUENCE, sequence).map_err(redb_error("writing the sequence"))?;
    Ok(())
}

fn apply_table(
    transaction: &WriteTransaction,
    table: &Table,
    rows: &Generation,
    applied: &mut Applied,
) -> Result<(), IndexError> {
    let mut changes = rows.table(table.id).into_iter().peekable();
    if changes.peek().is_none() {
        return Ok(());
    }
    let mut target =
        transaction.open_table(redb_table(table)).map_err(redb_error("opening a table"))?;
    while let Some((key, slot)) = changes.next() {
        match slot {
            Slot::Put(value) | Slot::New(value) => {
                applied.put += put_run(&mut target, key, value, &mut changes)?;
            }
            Slot::Deleted if remove_if_present(&mut target, key)? => applied.removed += 1,
            Slot::Deleted => applied.skipped += 1,
        }
    }
    Ok(())
}

type WritableTable<'a> = redb::Table<'a, &'static [u8], &'static [u8]>;
type PendingRows<'a> = Peekable<vec::IntoIter<(&'a Key, &'a Slot)>>;

/// Inserts a row and all following rows that fall into the same gap between rows of the index. Keys mostly grow with time,
/// so a flush is a few long runs, and a run costs a fraction of as many single inserts. Returns the number of rows.
fn put_run(
    target: &mut WritableTable<'_>,
    key: &Key,
    value: &RowBytes,
    changes: &mut PendingRows<'_>,
) -> Result<u64, IndexError> {
    let mut put = 0;
    let mut cursor =
        target.lower_bound_mut(Bound::Included(&key[..])).map_err(redb_error("seeking a row"))?;
    let is_new = inserted_into_gap(cursor.insert_before(&key[..], &value[..]))?;
    while is_new && let Some((key, Slot::Put(value) | Slot::New(value))) = changes.peek() {
        if !inserted_into_gap(cursor.insert_before(&key[..], &value[..]))? {
            break;
        }
        changes.next();
        put += 1;
    }
    cursor.close().map_err(redb_error("writing rows"))?;
    if !is_new {
        target.insert(&key[..], &value[..]).map_err(redb_error("writing a row"))?;
    }
    Ok(put + 1)
}

/// Whether a row was inserted into the gap. It was not if the index already has the row, or another one in between.
fn inserted_into_gap(inserted: Result<(), CursorError>) -> Result<bool, IndexError> {
    match inserted {
        Ok(()) => Ok(true),
        Err(CursorError::UnorderedKey) => Ok(false),
        Err(error) => Err(redb_error("writing rows")(error)),
    }
}

/// Removes a row and returns whether it was there. Looks it up first, because removing a missing row may still rewrite
/// pages.
fn remove_if_present(target: &mut WritableTable<'_>, key: &Key) -> Result<bool, IndexError> {
    if target.get(&key[..]).map_err(redb_error("reading a row"))?.is_none() {
        return Ok(false);
    }
    target.remove(&key[..]).map_err(redb_error("removing a row"))?;
    Ok(true)
}

/// The redb table of a ledger table.
pub(crate) fn redb_table(table: &Table) -> RedbRows {
    TableDefinition::new(table.name)
}

/// Wraps an error of the index library.
pub(crate) fn redb_error<E: Into<redb::Error>>(
    action: &'static str,
) -> impl FnOnce(E) -> IndexError {
    move |error| IndexError::Engine { action, source: Box::new(error.into()) }
}

fn io_error(action: &'static str) -> impl FnOnce(std::io::Error) -> IndexError {
    move |source| IndexError::Io { action, source }
}

/// The index of a table in per-table arrays.
pub(crate) fn table_slot(table: TableId) -> usize {
    usize::from(table.0)
}

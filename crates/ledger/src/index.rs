//! The index: every row that was flushed, in one redb file.
//!
//! One redb table per ledger table, and the sequence of the last batch in the same transaction, so that a restart knows
//! where the journal takes over. Every transaction uses quick repair: reopening after a crash must not cost time in
//! proportion to history. A transaction that met an error is never continued: the index is closed and opened again, and
//! what the file then says is what happened. Nothing outside this module sees redb.
//!
//! After a failed sync the system may hold pages as clean although the disk lacks them, and a later process would believe
//! them. Such a failure therefore leaves a mark in the folder; the next open writes the whole file again in place, which
//! makes every page dirty and the sync after it honest.

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
use crate::types::{Key, Slot, Table, TableId, Value};
use backend::{Backend, FirstFailure, Health};
pub use snapshot::IndexSnapshot;

/// The index's file name.
pub const INDEX_FILE: &str = "index.redb";

/// Present when the index file may differ from what the system shows of it.
const SUSPECT_FILE: &str = "index.suspect";

/// The file is written again in pieces of this size.
const REWRITE_BYTES: usize = 1 << 20;

pub(crate) type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;
const META: TableDefinition<'static, &'static str, u64> = TableDefinition::new("catena.meta");
const META_SEQUENCE: &str = "sequence";

/// The index file and what is needed to open it again.
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
    health: Health,
}

/// What a flush did to the index.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Rows put.
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
    /// Sorts an error of opening: lack of space passes, nothing else does.
    fn of(error: IndexError) -> Self {
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
    /// Opens the index, creating it whole or not at all.
    pub fn open(
        disk: Arc<dyn Disk>,
        tables: &[Table],
        cache_bytes: usize,
    ) -> Result<Self, IndexError> {
        let names = disk.list().map_err(io("list the folder of"))?;
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

    /// Writes every byte of the file again, then takes the mark away.
    fn rewrite(&self) -> Result<(), IndexError> {
        let file = self.disk.open(INDEX_FILE).map_err(io("open"))?;
        let len = file.len().map_err(io("measure"))?;
        let mut piece = vec![0; REWRITE_BYTES];
        for offset in (0..len).step_by(REWRITE_BYTES) {
            let piece = &mut piece[..REWRITE_BYTES.min((len - offset) as usize)];
            file.read_at(offset, piece).map_err(io("read"))?;
            file.write_at(offset, piece).map_err(io("rewrite"))?;
        }
        file.sync_all().map_err(io("sync"))?;
        self.disk.remove(SUSPECT_FILE).map_err(io("unmark"))?;
        self.disk.sync_dir().map_err(io("sync the folder of"))
    }

    /// Notes that the file must not be believed as it is. The disk is failing, so this is the best that can be done.
    fn mark_suspect(&self) {
        let _ = self.disk.create(SUSPECT_FILE).and_then(|_| self.disk.sync_dir());
    }

    /// The last batch whose rows the index holds.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The index as it is now, for readers.
    pub fn snapshot(&self) -> Result<Arc<IndexSnapshot>, IndexError> {
        let open = self.open.as_ref().ok_or(IndexError::Closed)?;
        let transaction = open.database.begin_read().map_err(engine("beginning a read"))?;
        IndexSnapshot::new(&transaction, &self.tables).map(Arc::new)
    }

    /// Applies rows and the sequence they bring the index to, in one durable transaction.
    pub fn apply(&mut self, rows: &Generation, sequence: u64) -> Result<Applied, ApplyError> {
        if self.open.is_none() {
            self.reopen().map_err(ApplyError::of)?;
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

    /// Closes the file. Nothing else may hold the index when the folder is handed on.
    pub fn close(&mut self) {
        let Some(Open { database, health }) = self.open.take() else { return };
        drop(database);
        if health.first_failure() == Some(FirstFailure::Other) {
            self.mark_suspect();
        }
    }

    /// Writes one piece of a copy. A copy that fails is thrown away, so nothing is recovered here.
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
        transaction.commit().map_err(engine("committing"))?;
        Ok(applied)
    }

    /// After a failure: asks the file what happened. Only lack of space lets the ledger go on.
    fn recover(&mut self, error: IndexError, sequence: u64) -> Result<Applied, ApplyError> {
        let failure = self.open.as_ref().and_then(|open| open.health.first_failure());
        self.open = None;
        if failure != Some(FirstFailure::OutOfSpace) {
            self.mark_suspect();
            // For readers only: the ledger takes no more writes.
            let _ = self.reopen();
            return Err(ApplyError::Failed(error));
        }
        let reopened = self.reopen();
        match reopened {
            Ok(()) if self.sequence >= sequence => Ok(Applied::default()),
            Ok(()) => Err(ApplyError::Full(error)),
            Err(reopening) => Err(ApplyError::of(reopening)),
        }
    }

    /// Opens the file again and reads where it stands. The sync comes first: nothing may be believed that is only in
    /// the system's cache.
    fn reopen(&mut self) -> Result<(), IndexError> {
        let reopened = self.try_reopen();
        if reopened.as_ref().is_err_and(|error| !is_full(error)) {
            self.mark_suspect();
        }
        reopened
    }

    fn try_reopen(&mut self) -> Result<(), IndexError> {
        let file = self.disk.open(INDEX_FILE).map_err(io("open"))?;
        file.sync_data().map_err(io("sync"))?;
        let health = Health::default();
        let mut builder = Database::builder();
        builder.set_cache_size(self.cache_bytes);
        let backend = Backend::new(file, health.clone());
        let database = builder.create_with_backend(backend).map_err(engine("opening"))?;
        add_missing_tables(&database, &self.tables)?;
        self.sequence = load_sequence(&database)?;
        self.open = Some(Open { database, health });
        Ok(())
    }
}

/// Makes an empty index with all its tables, under a temporary name until it is durable.
fn create(disk: &dyn Disk, tables: &[Table]) -> Result<(), IndexError> {
    let temporary = temporary_name(INDEX_FILE);
    let file = disk.create(&temporary).map_err(io("create"))?;
    let backend = Backend::new(file.clone(), Health::default());
    let database = Database::builder().create_with_backend(backend).map_err(engine("creating"))?;
    add_missing_tables(&database, tables)?;
    drop(database);
    file.sync_all().map_err(io("sync"))?;
    disk.rename(&temporary, INDEX_FILE).map_err(io("rename"))?;
    disk.sync_dir().map_err(io("sync the folder of"))
}

fn begin(database: &Database) -> Result<WriteTransaction, IndexError> {
    let mut transaction = database.begin_write().map_err(engine("beginning a write"))?;
    transaction.set_durability(Durability::Immediate).map_err(engine("setting durability"))?;
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
        transaction.open_table(rows_of(table)).map_err(engine("creating a table"))?;
    }
    transaction.open_table(META).map_err(engine("creating a table"))?;
    transaction.commit().map_err(engine("committing"))
}

fn table_names(database: &Database) -> Result<Vec<String>, IndexError> {
    let transaction = database.begin_read().map_err(engine("beginning a read"))?;
    let tables = transaction.list_tables().map_err(engine("listing tables"))?;
    Ok(tables.map(|table| table.name().to_owned()).collect())
}

fn load_sequence(database: &Database) -> Result<u64, IndexError> {
    let transaction = database.begin_read().map_err(engine("beginning a read"))?;
    let meta = transaction.open_table(META).map_err(engine("opening a table"))?;
    let stored = meta.get(META_SEQUENCE).map_err(engine("reading the sequence"))?;
    Ok(stored.map_or(0, |guard| guard.value()))
}

fn store_sequence(transaction: &WriteTransaction, sequence: u64) -> Result<(), IndexError> {
    let mut meta = transaction.open_table(META).map_err(engine("opening a table"))?;
    meta.insert(META_SEQUENCE, sequence).map_err(engine("writing the sequence"))?;
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
    let mut target = transaction.open_table(rows_of(table)).map_err(engine("opening a table"))?;
    while let Some((key, slot)) = changes.next() {
        match slot {
            Slot::Put(value) => applied.put += put_run(&mut target, key, value, &mut changes)?,
            Slot::Deleted if remove(&mut target, key)? => applied.removed += 1,
            Slot::Deleted => applied.skipped += 1,
        }
    }
    Ok(())
}

type Target<'a> = redb::Table<'a, &'static [u8], &'static [u8]>;
type Changes<'a> = Peekable<vec::IntoIter<(&'a Key, &'a Slot)>>;

/// Puts a row, and with it all rows behind it that fall into the same gap between rows of the index. Keys mostly grow with
/// time, so a flush is a few long runs, and a run costs a fraction of as many single inserts. Returns the rows put.
fn put_run(
    target: &mut Target<'_>,
    key: &Key,
    value: &Value,
    changes: &mut Changes<'_>,
) -> Result<u64, IndexError> {
    let mut put = 0;
    let mut cursor =
        target.lower_bound_mut(Bound::Included(&key[..])).map_err(engine("seeking a row"))?;
    let is_new = fits(cursor.insert_before(&key[..], &value[..]))?;
    while is_new && let Some((key, Slot::Put(value))) = changes.peek() {
        if !fits(cursor.insert_before(&key[..], &value[..]))? {
            break;
        }
        changes.next();
        put += 1;
    }
    cursor.close().map_err(engine("writing rows"))?;
    if !is_new {
        target.insert(&key[..], &value[..]).map_err(engine("writing a row"))?;
    }
    Ok(put + 1)
}

/// Whether a row went into the gap; it does not if the index has the row already, or another one in between.
fn fits(inserted: Result<(), CursorError>) -> Result<bool, IndexError> {
    match inserted {
        Ok(()) => Ok(true),
        Err(CursorError::UnorderedKey) => Ok(false),
        Err(error) => Err(engine("writing rows")(error)),
    }
}

/// Removes a row if it is there. Asks first, because removing what is not there may still rewrite pages.
fn remove(target: &mut Target<'_>, key: &Key) -> Result<bool, IndexError> {
    if target.get(&key[..]).map_err(engine("reading a row"))?.is_none() {
        return Ok(false);
    }
    target.remove(&key[..]).map_err(engine("removing a row"))?;
    Ok(true)
}

/// The redb table of a ledger table.
pub(crate) fn rows_of(table: &Table) -> Rows {
    TableDefinition::new(table.name)
}

/// Wraps an error of the index library.
pub(crate) fn engine<E: Into<redb::Error>>(action: &'static str) -> impl FnOnce(E) -> IndexError {
    move |error| IndexError::Engine { action, source: Box::new(error.into()) }
}

fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> IndexError {
    move |source| IndexError::Io { action, source }
}

/// The position of a table in per-table arrays.
pub(crate) fn slot_of(table: TableId) -> usize {
    usize::from(table.0)
}

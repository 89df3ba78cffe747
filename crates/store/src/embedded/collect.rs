//! The collector: removes cells that nothing refers to any more.
//!
//! It looks at the store as of one moment and marks every cell that can be reached from jobs,
//! roots and messages. What is not marked it proposes, in small commits, to the committer, which
//! removes a cell only if no commit since that moment has named it. So writers never wait for the
//! collector, and a crash at any point leaves at worst some cells for the next time.

use std::collections::HashSet;
use std::sync::Arc;

use catena_value::{ValueId, branches, decode, decode_branch};
use parking_lot::Mutex;

use super::EmbeddedStore;
use super::engine::unavailable;
use super::read::damaged;
use crate::bytes::Damaged;
use crate::effects::CommitError;
use crate::keys::{self, CELLS, CHUNKS, JOBS, ROOTS};
use crate::limits::COLLECT_BATCH;
use crate::row::{JobRow, LocalCells, read_chunk, references};
use crate::store::ReadError;
use catena_job::{JobId, Record};
use catena_ledger::{Direction, KeyRange, TableId, Tx, View};

/// Cells that commits have named while a collection is under way.
#[derive(Clone, Default)]
pub(super) struct Named(Arc<Mutex<Option<HashSet<ValueId>>>>);

impl Named {
    pub(super) fn add(&self, id: &ValueId) {
        if let Some(named) = self.0.lock().as_mut() {
            named.insert(*id);
        }
    }

    fn contains(&self, id: &ValueId) -> bool {
        self.0.lock().as_ref().is_none_or(|named| named.contains(id))
    }

    /// Begins to listen; false when somebody else already does.
    fn begin(&self) -> bool {
        let mut named = self.0.lock();
        let is_free = named.is_none();
        if is_free {
            *named = Some(HashSet::new());
        }
        is_free
    }

    fn end(&self) {
        *self.0.lock() = None;
    }
}

/// What a collection did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectReport {
    /// Cells that something refers to.
    pub reachable: u64,
    /// Cells that were removed.
    pub removed: u64,
    /// Cells that looked unreferenced but were named meanwhile.
    pub kept: u64,
}

/// Why a collection stopped. What it removed until then is removed.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Another collection is under way.
    #[error("a collection is under way already")]
    UnderWay,
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A removal could not be made durable.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl EmbeddedStore {
    /// Removes cells that nothing refers to.
    pub async fn collect(&self) -> Result<CollectReport, CollectError> {
        if !self.named.begin() {
            return Err(CollectError::UnderWay);
        }
        let collected = self.mark_and_sweep().await;
        self.named.end();
        collected
    }

    async fn mark_and_sweep(&self) -> Result<CollectReport, CollectError> {
        let engine = Arc::clone(&self.engine);
        let propose = move || -> Result<(Vec<ValueId>, u64), ReadError> {
            let view = engine.view();
            let marked = mark(&view)?;
            Ok((unmarked(&view, &marked)?, marked.len() as u64))
        };
        // It reads the whole store: not on a thread that serves others, where there are such.
        let (proposals, reachable) = match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime.spawn_blocking(propose).await.unwrap_or_else(|error| {
                Err(ReadError::Unavailable { reason: error.to_string() })
            })?,
            Err(_) => propose()?,
        };
        let mut report = CollectReport { reachable, ..Default::default() };
        for batch in proposals.chunks(COLLECT_BATCH) {
            let (batch, named) = (batch.to_vec(), self.named.clone());
            let removed = self.engine.submit(move |tx| remove(tx, &batch, &named)).await?;
            report.removed += removed.0;
            report.kept += removed.1;
        }
        Ok(report)
    }
}

/// Removes those that nobody has named; runs in the committer.
fn remove(tx: &mut Tx<'_>, cells: &[ValueId], named: &Named) -> Result<(u64, u64), CommitError> {
    let (mut removed, mut kept) = (0, 0);
    for id in cells {
        if named.contains(id) {
            kept += 1;
        } else {
            tx.delete(CELLS, *id.as_bytes());
            removed += 1;
        }
    }
    Ok((removed, kept))
}

/// Every shared cell that something refers to.
pub(super) fn mark(view: &View) -> Result<HashSet<ValueId>, ReadError> {
    let mut marked = HashSet::new();
    for_each_row(view, JOBS, |key, row| {
        let id: [u8; 16] = key.try_into().map_err(|_| damaged("jobs")(Damaged("job ID")))?;
        let id = JobId::from_bytes(id);
        let row = JobRow::read(row).map_err(damaged(id))?;
        let (job, cells) = row.job(id).map_err(damaged(id))?;
        let parts = job.to_parts();
        let held = parts.held.and_then(|outcome| outcome.output);
        let values = parts.fields.iter().map(|(_, value)| value).chain(held.as_ref());
        let refers: Vec<ValueId> = values.flat_map(references).collect();
        mark_all(view, refers, &cells, &mut marked)?;
        mark_records(view, row.open_records().map_err(damaged(id))?, &mut marked)
    })?;
    for_each_row(view, CHUNKS, |_, row| {
        mark_records(view, read_chunk(row).map_err(damaged("a chunk"))?, &mut marked)
    })?;
    for_each_row(view, ROOTS, |_, row| {
        let value = decode(row).map_err(|_| damaged("a root")(Damaged("value in its form")))?;
        mark_all(view, branches(&value), &LocalCells::new(), &mut marked)
    })?;
    Ok(marked)
}

fn mark_records(
    view: &View,
    (records, cells): (Vec<Record>, LocalCells),
    marked: &mut HashSet<ValueId>,
) -> Result<(), ReadError> {
    let refers = records.iter().flat_map(|record| branches(&record.to_value())).collect();
    mark_all(view, refers, &cells, marked)
}

/// Marks these cells and everything below them. Cells in the job's own rows are walked through
/// but not marked: they go when the job goes.
fn mark_all(
    view: &View,
    mut waiting: Vec<ValueId>,
    local: &LocalCells,
    marked: &mut HashSet<ValueId>,
) -> Result<(), ReadError> {
    while let Some(id) = waiting.pop() {
        if marked.contains(&id) {
            continue;
        }
        let malformed = |_| damaged(id)(Damaged("cell in its form"));
        if let Some(bytes) = local.get(&id) {
            waiting.extend(branches(&decode_branch(&id, bytes).map_err(malformed)?));
            continue;
        }
        let row = view.get(CELLS, keys::cell(&id)).map_err(unavailable)?;
        // A dangling reference is for the check to report, not for the collector.
        let Some(bytes) = row else { continue };
        marked.insert(id);
        waiting.extend(branches(&decode_branch(&id, &bytes).map_err(malformed)?));
    }
    Ok(())
}

fn unmarked(view: &View, marked: &HashSet<ValueId>) -> Result<Vec<ValueId>, ReadError> {
    let mut found = Vec::new();
    for_each_row(view, CELLS, |key, _| {
        let id: [u8; 32] = key.try_into().map_err(|_| damaged("cells")(Damaged("cell ID")))?;
        let id = ValueId::from_bytes(id);
        if !marked.contains(&id) {
            found.push(id);
        }
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn for_each_row(
    view: &View,
    table: TableId,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let rows = view.range(table, &KeyRange::all(), Direction::Forward).map_err(unavailable)?;
    for row in rows {
        let (key, value) = row.map_err(unavailable)?;
        visit(&key, &value)?;
    }
    Ok(())
}

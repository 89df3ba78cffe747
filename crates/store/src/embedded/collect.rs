//! Garbage collection: removes cells that nothing refers to any more.
//!
//! The collector looks at the store as of one moment and marks every cell that is reachable from
//! jobs, roots and messages. It proposes the unmarked ones, in small commits, to the committer, which
//! removes a cell only if no commit since that moment has referred to it. So writers never wait for
//! the collector, and a crash at any point leaves at worst some cells for the next collection.

use std::collections::HashMap;
use std::sync::Arc;

use catena_value::{ValueId, branches, decode, decode_branch};

use super::driver::{for_each_row, unavailable_error};
use super::in_use::InUseCells;
use super::known_state::KnownState;
use super::rows::damaged_error;
use super::store::EmbeddedStore;
use super::usage::{root_owner, usage_error};
use crate::bytes::DamagedRow;
use crate::effects::CommitError;
use crate::keys::{self, CELLS, CHUNKS, JOBS, ROOTS};
use crate::limits::COLLECT_BATCH;
use crate::row::{JobRow, LocalCells, read_chunk, references};
use crate::store::ReadError;
use catena_job::{JobId, Record};
use catena_ledger::{Tx, View};

/// The result of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectReport {
    /// Cells that something refers to.
    pub reachable: u64,
    /// Cells that were removed.
    pub removed: u64,
    /// Cells that looked unreferenced but were referred to by a commit meanwhile.
    pub kept: u64,
}

/// Why a collection stopped. What it removed until then is removed.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Another collection is running.
    #[error("a collection is already running")]
    AlreadyRunning,
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
        if !self.in_use.begin() {
            return Err(CollectError::AlreadyRunning);
        }
        let collected = self.mark_and_sweep().await;
        self.in_use.end();
        collected
    }

    async fn mark_and_sweep(&self) -> Result<CollectReport, CollectError> {
        let driver = Arc::clone(&self.driver);
        let counts_bytes = self.usage.charges().is_on();
        let propose = move || -> Result<Proposal, ReadError> {
            let view = driver.view();
            let marked = mark_by_owner(&view)?;
            let usage_error =
                if counts_bytes { usage_error(&view, &marked)? } else { HashMap::new() };
            let cells = unmarked(&view, &marked)?;
            Ok(Proposal { cells, reachable: marked.len() as u64, usage_error })
        };
        // It reads the entire store, so it must not run on a thread of an async runtime.
        let proposal = match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime.spawn_blocking(propose).await.unwrap_or_else(|error| {
                Err(ReadError::Unavailable { reason: error.to_string() })
            })?,
            Err(_) => propose()?,
        };
        let mut report = CollectReport { reachable: proposal.reachable, ..Default::default() };
        for batch in proposal.cells.chunks(COLLECT_BATCH) {
            let batch = batch.to_vec();
            let in_use = self.in_use.clone();
            let known = self.known_state.clone();
            let swept = self.driver.submit(move |tx| sweep(tx, &batch, &in_use, &known)).await?;
            report.removed += swept.removed;
            report.kept += swept.kept;
        }
        self.correct_usage(proposal.usage_error, false).await?;
        Ok(report)
    }
}

/// What a look at the whole store found.
struct Proposal {
    /// Cells that nothing refers to.
    cells: Vec<ValueId>,
    /// The number of cells that something refers to.
    reachable: u64,
    /// By how much the counted bytes of each owner were wrong, because of what deletions left.
    usage_error: HashMap<[u8; 8], i64>,
}

/// The number of cells that one commit of the collector removed and kept.
struct Swept {
    removed: u64,
    kept: u64,
}

/// Removes the cells that no commit has referred to; runs in the committer.
fn sweep(
    tx: &mut Tx<'_>,
    cells: &[ValueId],
    in_use: &InUseCells,
    known: &KnownState,
) -> Result<Swept, CommitError> {
    let mut swept = Swept { removed: 0, kept: 0 };
    for id in cells {
        if in_use.contains(id) {
            swept.kept += 1;
        } else {
            known.remove_cell(id);
            tx.delete(CELLS, *id.as_bytes());
            swept.removed += 1;
        }
    }
    Ok(swept)
}

/// Every shared cell that something refers to.
pub(super) type Marked = HashMap<ValueId, [u8; 8]>;

/// Marks every shared cell that something refers to with the owner of what was found to refer to it first.
pub(super) fn mark_by_owner(view: &View) -> Result<Marked, ReadError> {
    let mut marked = Marked::new();
    let mut owners = HashMap::new();
    for_each_row(view, JOBS, |key, row| {
        let id: [u8; 16] =
            key.try_into().map_err(|_| damaged_error("jobs")(DamagedRow("job ID")))?;
        let id = JobId::from_bytes(id);
        let row = JobRow::read(row).map_err(damaged_error(id))?;
        let owner = keys::owner_scope(&row.summary.owner);
        owners.insert(id, owner);
        let (job, cells) = row.job(id).map_err(damaged_error(id))?;
        let parts = job.to_parts();
        let held = parts.held.and_then(|outcome| outcome.output);
        let values = parts.fields.iter().map(|(_, value)| value).chain(held.as_ref());
        let referred: Vec<ValueId> = values.flat_map(references).collect();
        mark_all(view, referred, &cells, owner, &mut marked)?;
        mark_records(view, row.open_records().map_err(damaged_error(id))?, owner, &mut marked)
    })?;
    for_each_row(view, CHUNKS, |key, row| {
        let job = key.get(..16).and_then(|id| id.try_into().ok()).map(JobId::from_bytes);
        let owner = job.and_then(|job| owners.get(&job)).copied().unwrap_or_default();
        mark_records(view, read_chunk(row).map_err(damaged_error("a chunk"))?, owner, &mut marked)
    })?;
    for_each_row(view, ROOTS, |key, row| {
        let (space, owner, _) = keys::parse_root_key(key).unwrap_or_default();
        let owner = root_owner(space, owner, row);
        let value =
            decode(row).map_err(|_| damaged_error("a root")(DamagedRow("value in its form")))?;
        mark_all(view, branches(&value), &LocalCells::new(), owner, &mut marked)
    })?;
    Ok(marked)
}

fn mark_records(
    view: &View,
    (records, cells): (Vec<Record>, LocalCells),
    owner: [u8; 8],
    marked: &mut Marked,
) -> Result<(), ReadError> {
    let referred = records.iter().flat_map(|record| branches(&record.to_value())).collect();
    mark_all(view, referred, &cells, owner, marked)
}

/// Marks these cells and everything below them. Cells in the job's own rows are followed but not
/// marked: they are removed with the job.
fn mark_all(
    view: &View,
    mut waiting: Vec<ValueId>,
    local: &LocalCells,
    owner: [u8; 8],
    marked: &mut Marked,
) -> Result<(), ReadError> {
    while let Some(id) = waiting.pop() {
        if marked.contains_key(&id) {
            continue;
        }
        let malformed_error = |_| damaged_error(id)(DamagedRow("cell in its form"));
        if let Some(bytes) = local.get(&id) {
            waiting.extend(branches(&decode_branch(&id, bytes).map_err(malformed_error)?));
            continue;
        }
        let row = view.get(CELLS, keys::cell_key(&id)).map_err(unavailable_error)?;
        // A dangling reference is reported by the check, not by the collector.
        let Some(bytes) = row else { continue };
        marked.insert(id, owner);
        waiting.extend(branches(&decode_branch(&id, &bytes).map_err(malformed_error)?));
    }
    Ok(())
}

fn unmarked(view: &View, marked: &Marked) -> Result<Vec<ValueId>, ReadError> {
    let mut found = Vec::new();
    for_each_row(view, CELLS, |key, _| {
        let id: [u8; 32] =
            key.try_into().map_err(|_| damaged_error("cells")(DamagedRow("cell ID")))?;
        let id = ValueId::from_bytes(id);
        if !marked.contains_key(&id) {
            found.push(id);
        }
        Ok(())
    })?;
    Ok(found)
}

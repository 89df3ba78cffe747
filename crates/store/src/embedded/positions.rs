//! Tables in the order of commits, whose rows hold the entries of one batch of commits.
//!
//! An entry is a position followed by a fixed number of bytes. The key of a row is the position of
//! its first entry, rows do not overlap, and entries are in order, so an entry is found in the last
//! row whose key is not greater than its position. One row per batch instead of one per job is what
//! makes these tables nearly free when many jobs are committed together.

use std::ops::Bound;

use catena_job::JobId;
use catena_ledger::{Direction, Key, KeyRange, RowPage, TableId, Tx};

use super::rows::damaged_error;
use super::store::EmbeddedStore;
use crate::bytes::DamagedRow;
use crate::effects::CommitError;
use crate::keys::{CHANGE_BYTES, CHANGES, EVERYONE, LISTED_BYTES, listed_entry};
use crate::limits::POSITION_ROWS_MAX;
use crate::store::ReadError;

/// One entry: its position and what follows.
#[derive(Debug, Clone)]
pub(super) struct PositionEntry {
    pub(super) position: u64,
    pub(super) value: Vec<u8>,
}

/// Part of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct PositionRange {
    /// Only entries after this position.
    pub(super) after: u64,
    /// Only entries before this position.
    pub(super) before: u64,
}

impl PositionRange {
    pub(super) const ALL: PositionRange = PositionRange { after: 0, before: u64::MAX };

    fn contains(self, position: u64) -> bool {
        self.after < position && position < self.before
    }
}

/// The number of bytes of an entry, with its position.
fn entry_bytes(table: TableId) -> usize {
    if table == CHANGES { CHANGE_BYTES } else { LISTED_BYTES }
}

/// The entries of a row, in order.
pub(super) fn entries(
    table: TableId,
    row: &[u8],
) -> Result<impl DoubleEndedIterator<Item = (u64, &[u8])>, DamagedRow> {
    let bytes = entry_bytes(table);
    if row.is_empty() || !row.len().is_multiple_of(bytes) {
        return Err(DamagedRow("row of positions"));
    }
    Ok(row.chunks_exact(bytes).filter_map(|entry| {
        let (position, value) = entry.split_first_chunk()?;
        Some((u64::from_be_bytes(*position), value))
    }))
}

impl EmbeddedStore {
    /// The position of the last entry of a table, or 0.
    pub(super) fn last_position(&self, table: TableId) -> Result<u64, ReadError> {
        let rows = self.driver.range(table, &KeyRange::all(), Direction::Backward, 1)?;
        let Some((_, row)) = rows.first() else { return Ok(0) };
        let mut entries = entries(table, row).map_err(damaged_error("the order of commits"))?;
        Ok(entries.next_back().map_or(0, |(position, _)| position))
    }

    /// At most `limit` entries, in the given direction.
    pub(super) fn position_entries(
        &self,
        table: TableId,
        range: PositionRange,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<PositionEntry>, ReadError> {
        let mut found = Vec::new();
        self.visit_positions(table, range, direction, |position, value| {
            found.push(PositionEntry { position, value: value.to_vec() });
            found.len() < limit
        })?;
        Ok(found)
    }

    /// Calls `visit` with entries in the given direction until it returns false.
    pub(super) fn visit_positions(
        &self,
        table: TableId,
        range: PositionRange,
        direction: Direction,
        mut visit: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), ReadError> {
        let mut keys = self.rows_of(table, range)?;
        loop {
            let rows = self.driver.range(table, &keys, direction, POSITION_ROWS_MAX)?;
            for (_, row) in &rows {
                if !visit_row(table, row, range, direction, &mut visit)? {
                    return Ok(());
                }
            }
            let Some((last, _)) = rows.last().filter(|_| rows.len() == POSITION_ROWS_MAX) else {
                return Ok(());
            };
            match direction {
                Direction::Forward => keys.lower = Bound::Excluded(last.clone()),
                Direction::Backward => keys.upper = Bound::Excluded(last.clone()),
            }
        }
    }

    /// The keys of all rows that may have entries of a range.
    fn rows_of(&self, table: TableId, range: PositionRange) -> Result<KeyRange, ReadError> {
        let up_to = row_range_up_to(range.after);
        let first: RowPage = self.driver.range(table, &up_to, Direction::Backward, 1)?;
        let lower = first.into_iter().next().map(|(key, _)| Bound::Included(key));
        Ok(KeyRange {
            lower: lower.unwrap_or(Bound::Unbounded),
            upper: Bound::Excluded(range.before.to_be_bytes().as_slice().into()),
        })
    }
}

fn visit_row(
    table: TableId,
    row: &[u8],
    range: PositionRange,
    direction: Direction,
    visit: &mut impl FnMut(u64, &[u8]) -> bool,
) -> Result<bool, ReadError> {
    let mut entries = entries(table, row).map_err(damaged_error("the order of commits"))?;
    let mut next = || match direction {
        Direction::Forward => entries.next(),
        Direction::Backward => entries.next_back(),
    };
    while let Some((position, value)) = next() {
        if range.contains(position) && !visit(position, value) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes a job from the list of all owners. A job that the same batch of commits created remains in
/// it; readers pass over jobs that no longer exist.
pub(super) fn unlist(tx: &mut Tx<'_>, job: JobId, order: u64) -> Result<(), CommitError> {
    let rows = tx.range(EVERYONE, &row_range_up_to(order), Direction::Backward, 1)?;
    let Some((key, row)) = rows.into_iter().next() else { return Ok(()) };
    let own = listed_entry(order, job);
    let others = row.chunks(LISTED_BYTES).filter(|entry| **entry != own);
    let others: Vec<u8> = others.flatten().copied().collect();
    match others.len() {
        0 => tx.delete(EVERYONE, key),
        length if length == row.len() => {}
        _ => tx.put(EVERYONE, key, others),
    }
    Ok(())
}

/// The rows whose first entry is not after a position.
fn row_range_up_to(position: u64) -> KeyRange {
    let key: Key = position.to_be_bytes().as_slice().into();
    KeyRange { lower: Bound::Unbounded, upper: Bound::Included(key) }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::{Effect, Effects};
    use crate::store::{Filter, ListOrder, ListQuery, Store as _};
    use crate::testing::jobs::{echo, job_id};

    fn everyone(order: ListOrder, limit: usize) -> ListQuery {
        ListQuery { owner: None, filter: Filter::All, order, after: None, limit }
    }

    /// All jobs, read by pages of three.
    async fn listed(store: &EmbeddedStore, order: ListOrder) -> Vec<JobId> {
        let mut query = everyone(order, 3);
        let mut found = Vec::new();
        loop {
            let page = store.list(&query).await.unwrap();
            found.extend(page.jobs.iter().map(|job| job.id));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return found,
            }
        }
    }

    #[tokio::test]
    async fn jobs_that_share_a_row_are_listed_counted_and_deleted_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(folder.path()).unwrap();
        let mut ids: Vec<JobId> = (1..=40).map(job_id).collect();
        let commits: Vec<_> =
            ids.iter().map(|id| store.commit(Effects::one(echo(*id, "did:a").effect()))).collect();
        for commit in commits {
            commit.await.unwrap();
        }
        let rows = store.driver.range(EVERYONE, &KeyRange::all(), Direction::Forward, 99).unwrap();
        assert!(rows.len() < ids.len(), "commits of one batch share a row");
        for deleted in [ids[0], ids[39], ids[20], ids[21]] {
            store.commit(Effects::one(Effect::Delete { job: deleted })).await.unwrap();
            ids.retain(|id| *id != deleted);
            assert_eq!(listed(&store, ListOrder::Oldest).await, ids);
            assert_eq!(store.count(None, &Filter::All).await.unwrap(), ids.len() as u64);
        }
        let newest: Vec<JobId> = ids.iter().rev().copied().collect();
        assert_eq!(listed(&store, ListOrder::Newest).await, newest);
        let report = store.check().unwrap();
        assert!(report.is_good(), "{report:?}");
        store.rebuild().await.unwrap();
        assert_eq!(listed(&store, ListOrder::Oldest).await, ids);
        assert!(store.check().unwrap().is_good());
        for id in ids {
            store.commit(Effects::one(Effect::Delete { job: id })).await.unwrap();
        }
        assert!(listed(&store, ListOrder::Oldest).await.is_empty());
        let rows = store.driver.range(EVERYONE, &KeyRange::all(), Direction::Forward, 99).unwrap();
        assert!(rows.is_empty(), "nothing is left of deleted jobs");
    }
}

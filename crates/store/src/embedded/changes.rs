//! The changes of all jobs, in the order of commits.
//!
//! The creation of a job that is no sub-job is found in the lists, by the job's position. All other
//! changes have an entry of [`CHANGES`]: a job that begins and ends in one commit, as most do, needs
//! none.
//!
//! Commits become visible in their order. So a reader first asks for the newest position, and then
//! finds everything up to it in both tables.

use std::collections::HashMap;
use std::ops::Bound;

use catena_job::JobId;

use super::positions::{PositionEntry, PositionRange, entries};
use super::rows::damaged_error;
use super::store::EmbeddedStore;
use crate::bytes::FieldReader;
use crate::keys::*;
use crate::limits::{CHANGES_MAX, PAGE_ROWS_MAX, POSITION_ROWS_MAX, REBUILD_BATCH};
use crate::store::{ChangeKind, ChangePage, ChangeQuery, JobChange, ListedJob, ReadError};
use catena_ledger::{Direction, Key, KeyRange, RowBytes, Tx};

/// The position of the last change that was removed.
const TRIMMED: &[u8] = b"changes trimmed";

impl EmbeddedStore {
    pub(super) fn read_position(&self) -> Result<u64, ReadError> {
        Ok(u64::max(self.last_position(CHANGES)?, self.last_position(EVERYONE)?))
    }

    pub(super) fn read_changes(&self, query: &ChangeQuery) -> Result<ChangePage, ReadError> {
        let last = self.read_position()?.max(query.after);
        let limit = query.limit.clamp(1, PAGE_ROWS_MAX);
        let range = PositionRange { after: query.after, before: last.saturating_add(1) };
        let created = match query.parent {
            Some(_) => Vec::new(),
            None => self.read_created(query.owner.as_deref(), range, limit)?,
        };
        let changed = self.position_entries(CHANGES, range, Direction::Forward, limit)?;
        // A table whose page is full may have more before the end of the other one's page.
        let full = [&created, &changed].into_iter().filter(|entries| entries.len() == limit);
        let ends = full.filter_map(|entries| entries.last()).map(|entry| entry.position);
        let until = ends.min().unwrap_or(last);
        let mut page = ChangePage {
            changes: Vec::new(),
            until,
            has_more: until < last,
            is_incomplete: self.read_trimmed()? > query.after,
        };
        for PositionEntry { position, value } in &created {
            let position = *position;
            if position <= until {
                let listed = self.read_created_job(value, position, query)?;
                page.changes.extend(listed.map(|listed| JobChange {
                    position,
                    job: listed.id,
                    kind: ChangeKind::Created,
                    listed: Some(listed),
                }));
            }
        }
        self.add_changed(query, &changed, &mut page)?;
        page.changes.sort_unstable_by_key(|change| change.position);
        Ok(page)
    }

    /// The jobs that were created, from the list of the owner or of all owners.
    fn read_created(
        &self,
        owner: Option<&str>,
        range: PositionRange,
        limit: usize,
    ) -> Result<Vec<PositionEntry>, ReadError> {
        let Some(owner) = owner else {
            return self.position_entries(EVERYONE, range, Direction::Forward, limit);
        };
        let key = |position| list_key(owner_scope(owner), position).as_slice().into();
        let keys = KeyRange {
            lower: Bound::Excluded(key(range.after)),
            upper: Bound::Excluded(key(range.before)),
        };
        let rows = self.driver.range(LISTS, &keys, Direction::Forward, limit)?;
        let entry = |(key, value): (Key, RowBytes)| PositionEntry {
            position: super::read::order_from_key(&key),
            value: value.to_vec(),
        };
        Ok(rows.into_iter().map(entry).collect())
    }

    /// The job of a row of a list. `None` if it belongs to another owner or was deleted meanwhile.
    fn read_created_job(
        &self,
        value: &[u8],
        order: u64,
        query: &ChangeQuery,
    ) -> Result<Option<ListedJob>, ReadError> {
        match &query.owner {
            Some(owner) => {
                super::read::decode_list_entry(value, order, owner).map_err(damaged_error("a list"))
            }
            None => self.read_listed(super::read::job_id(value)?),
        }
    }

    /// Adds changes of jobs that match, the last of each job.
    fn add_changed(
        &self,
        query: &ChangeQuery,
        entries: &[PositionEntry],
        page: &mut ChangePage,
    ) -> Result<(), ReadError> {
        let owner = query.owner.as_deref().map(owner_scope);
        let mut newest: HashMap<JobId, (u64, ChangeKind)> = HashMap::new();
        for PositionEntry { position, value } in entries {
            let position = *position;
            let row = decode_change(value).map_err(damaged_error("a change"))?;
            let is_owned = owner.is_none_or(|owner| owner == row.owner);
            if position <= page.until && is_owned && row.parent == query.parent {
                newest.insert(row.job, (position, row.kind));
            }
        }
        page.changes.retain(|change| !newest.contains_key(&change.job));
        for (job, (position, kind)) in newest {
            let listed = self.read_listed(job)?;
            // A later page has its deletion.
            if listed.is_none() && kind != ChangeKind::Deleted {
                continue;
            }
            // Rows are found by a hash of the owner.
            let is_owned = match (&query.owner, &listed) {
                (Some(owner), Some(listed)) => *owner == listed.owner,
                _ => true,
            };
            if is_owned {
                page.changes.push(JobChange { position, job, kind, listed });
            }
        }
        Ok(())
    }

    /// The entry that a list shows of a job. `None` if there is no such job.
    pub(super) fn read_listed(&self, id: JobId) -> Result<Option<ListedJob>, ReadError> {
        let row = self.read_row(id)?;
        Ok(row.map(|row| ListedJob {
            id,
            owner: row.summary.owner,
            order: row.order,
            status: row.summary.status,
            op: row.summary.op,
            created: row.summary.created,
            updated: row.summary.updated,
        }))
    }

    fn read_trimmed(&self) -> Result<u64, ReadError> {
        match self.driver.get(META, TRIMMED)? {
            Some(row) => {
                FieldReader::new(&row).number("position").map_err(damaged_error("changes"))
            }
            None => Ok(0),
        }
    }

    /// Removes all but the newest changes. Returns how many rows it removed.
    pub(super) async fn remove_old_changes(&self) -> Result<u64, ReadError> {
        let Some(last) = self.last_superfluous_position()? else { return Ok(0) };
        let mut removed = 0;
        loop {
            let rows = self.driver.submit(move |tx| remove_changes(tx, last)).await;
            let rows =
                rows.map_err(|error| ReadError::Unavailable { reason: error.to_string() })?;
            removed += rows as u64;
            if rows < REBUILD_BATCH {
                return Ok(removed);
            }
        }
    }

    /// The position of the newest row of changes that is not kept. `None` if all are kept.
    fn last_superfluous_position(&self) -> Result<Option<u64>, ReadError> {
        let mut range = KeyRange::all();
        let mut kept = 0;
        loop {
            let rows =
                self.driver.range(CHANGES, &range, Direction::Backward, POSITION_ROWS_MAX)?;
            for (key, row) in &rows {
                if kept >= CHANGES_MAX {
                    return Ok(Some(super::read::order_from_key(key)));
                }
                kept += row.len() / CHANGE_BYTES;
            }
            let Some((key, _)) = rows.last().filter(|_| rows.len() == POSITION_ROWS_MAX) else {
                return Ok(None);
            };
            range.upper = Bound::Excluded(key.clone());
        }
    }
}

/// Removes some rows of changes that begin at a position or before. Returns how many.
fn remove_changes(tx: &mut Tx<'_>, last: u64) -> Result<usize, crate::effects::CommitError> {
    let range = KeyRange {
        lower: Bound::Unbounded,
        upper: Bound::Included(last.to_be_bytes().as_slice().into()),
    };
    let rows = tx.range(CHANGES, &range, Direction::Forward, REBUILD_BATCH)?;
    let count = rows.len();
    if let Some((_, row)) = rows.last() {
        let position = entries(CHANGES, row)?.next_back().map_or(last, |(position, _)| position);
        tx.put(META, TRIMMED, position.to_be_bytes());
    }
    rows.into_iter().for_each(|(key, _)| tx.delete(CHANGES, key));
    Ok(count)
}

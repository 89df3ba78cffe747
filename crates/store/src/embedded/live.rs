//! How many live jobs each owner has. Sub-jobs do not count.
//!
//! The numbers follow from the index of live jobs, so they are kept in memory. A count reads the index
//! in the committer, in order with all commits, and every commit that completes after it changes the
//! numbers: they are exact from then on, for all processes that use the store.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use catena_job::JobId;
use catena_ledger::{Direction, KeyRange, Tx};
use parking_lot::Mutex;

use super::store::EmbeddedStore;
use crate::bytes::DamagedRow;
use crate::effects::CommitError;
use crate::keys::{JOBS, LIVE, decode_live, live_job};
use crate::row::JobRow;
use crate::store::LiveJob;

/// Rows that are read at a time.
const PAGE_ROWS: usize = 4_096;

/// The first bytes of a hash of an owner's DID.
type OwnerKey = [u8; 8];

/// The numbers of live jobs.
#[derive(Clone, Default)]
pub(super) struct LiveCounts(Arc<Counts>);

#[derive(Default)]
struct Counts {
    by_owner: Mutex<HashMap<OwnerKey, i64>>,
    /// The sum, to be read without the lock: it is usually 0.
    total: AtomicI64,
}

impl LiveCounts {
    /// Adds what a commit changed.
    pub(super) fn add(&self, changes: &[(OwnerKey, i64)]) {
        if changes.is_empty() {
            return;
        }
        let mut by_owner = self.0.by_owner.lock();
        for (owner, change) in changes {
            let count = by_owner.entry(*owner).or_default();
            *count += change;
            if *count == 0 {
                by_owner.remove(owner);
            }
            self.0.total.fetch_add(*change, Ordering::Relaxed);
        }
    }

    fn set(&self, counts: HashMap<OwnerKey, i64>) {
        let mut by_owner = self.0.by_owner.lock();
        self.0.total.store(counts.values().sum(), Ordering::Relaxed);
        *by_owner = counts;
    }

    /// The number of live jobs of an owner.
    pub(super) fn owned_by(&self, owner: OwnerKey) -> usize {
        if self.total() == 0 {
            return 0;
        }
        // Before everything is counted, jobs may end that were not.
        let count = self.0.by_owner.lock().get(&owner).copied().unwrap_or(0);
        usize::try_from(count).unwrap_or(0)
    }

    /// The number of live jobs of all owners.
    pub(super) fn total(&self) -> usize {
        usize::try_from(self.0.total.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

impl EmbeddedStore {
    /// Counts the live jobs. The numbers are set when the count completes, in order with all commits.
    pub(super) fn count_live_jobs(
        &self,
    ) -> impl Future<Output = Result<(), CommitError>> + Send + 'static {
        let counts = self.live.clone();
        self.driver.submit_then(count, move |found| counts.set(found))
    }
}

/// Counts the entries of the index of live jobs, by owner.
fn count(tx: &mut Tx<'_>) -> Result<HashMap<OwnerKey, i64>, CommitError> {
    let mut counts: HashMap<OwnerKey, i64> = HashMap::new();
    let mut lower = Bound::Unbounded;
    loop {
        let range = KeyRange { lower, upper: Bound::Unbounded };
        let rows = tx.range(LIVE, &range, Direction::Forward, PAGE_ROWS)?;
        for (key, value) in &rows {
            if let Some(live) = live_entry(tx, key, value)?.filter(|live| !live.is_sub_job) {
                *counts.entry(live.owner).or_default() += 1;
            }
        }
        match rows.last() {
            Some((key, _)) if rows.len() == PAGE_ROWS => lower = Bound::Excluded(key.clone()),
            _ => return Ok(counts),
        }
    }
}

/// An entry of the index, of any format.
fn live_entry(tx: &Tx<'_>, key: &[u8], value: &[u8]) -> Result<Option<LiveJob>, CommitError> {
    let id = JobId::from_bytes(key.try_into().map_err(|_| DamagedRow("job"))?);
    if let Some(live) = decode_live(id, value)? {
        return Ok(Some(live));
    }
    let row = tx.get(JOBS, id.as_bytes())?;
    Ok(row.map(|row| JobRow::read(&row)).transpose()?.map(|row| live_job(id, &row)))
}

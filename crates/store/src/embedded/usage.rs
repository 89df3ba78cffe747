//! Bytes stored by owner.
//!
//! The bytes of an owner are those of the rows of its jobs, messages and roots, of the blobs that it has or
//! that its jobs hold, and of cells that its commits were the first to store. They are counted by the committer, in the
//! commits that change them, while counting is on: a venue without a quota does nothing for them.
//!
//! Cells are shared, so what a deletion frees is known only to the collector: it measures the whole store
//! as of one moment and corrects the counts by the difference to what they were at that moment. Counting
//! that is switched on begins the same way, with counts of zero.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use catena_ledger::{Tx, View};
use catena_value::{NoCells, Value, ValueId};

use super::collect::mark_by_owner;
use super::driver::{for_each_row, unavailable_error};
use super::rows::{blob_len, damaged_error};
use super::store::EmbeddedStore;
use crate::blob::HELD;
use crate::bytes::DamagedRow;
use crate::effects::CommitError;
use crate::keys::{self, BLOBS, CELLS, CHUNKS, JOBS, MESSAGES, META, ROOTS};
use crate::row::JobRow;
use crate::store::{ReadError, RootKey, RootSpace};

/// The first bytes of a hash of an owner's DID.
type OwnerKey = [u8; 8];

/// Present if the counts include everything that is stored, with the version of what is counted.
const COUNTED: &[u8] = b"usage";

/// The version of what is counted: since 2, files of jobs and the sum of all owners.
const COUNTED_VERSION: u64 = 2;

/// In place of an owner: the sum of all owners.
pub(super) const ALL: OwnerKey = [0xff; 8];

/// How the names of counts begin.
const PREFIX: &[u8] = b"usage ";

/// Whether stored bytes are counted.
#[derive(Clone, Default)]
pub(super) struct Usage(Arc<AtomicBool>);

/// What a commit changes in the counts. Empty while nothing is counted.
pub(super) struct Charges {
    is_on: bool,
    by_owner: Vec<(OwnerKey, i64)>,
}

impl Usage {
    pub(super) fn charges(&self) -> Charges {
        Charges { is_on: self.0.load(Ordering::Relaxed), by_owner: Vec::new() }
    }
}

impl Charges {
    /// Returns true if charges have an effect: what is needed only to compute them can be left out
    /// otherwise.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Charges an owner for bytes, or credits it.
    pub(super) fn add(&mut self, owner: OwnerKey, bytes: i64) {
        if !self.is_on || bytes == 0 {
            return;
        }
        for charged in [owner, ALL] {
            match self.by_owner.iter_mut().find(|(known, _)| *known == charged) {
                Some((_, total)) => *total = total.saturating_add(bytes),
                None => self.by_owner.push((charged, bytes)),
            }
        }
    }

    /// Writes the counts.
    pub(super) fn write(self, tx: &mut Tx<'_>) -> Result<(), CommitError> {
        for (owner, bytes) in self.by_owner {
            let name = name(owner);
            let held = tx.get(META, &name)?.map_or(Ok(0), |row| number(&row))?;
            match held.saturating_add_signed(bytes) {
                0 => tx.delete(META, name),
                total => tx.put(META, name, total.to_be_bytes()),
            }
        }
        Ok(())
    }
}

/// Returns a length as a charge.
pub(super) fn bytes(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// The owner to whom a root is charged: that of its key or, for the metadata of an asset and the file of a job,
/// which are in one list with all others, the `owner` in its value. `row` is the encoding of the value.
pub(super) fn root_owner(space: u8, owner: &str, row: &[u8]) -> OwnerKey {
    let names_owner = space == RootSpace::Asset as u8 || is_held_blob(space, owner);
    if names_owner
        && let Ok(value) = catena_value::decode(row)
        && let Some(Value::String(named)) = value.as_map().and_then(|map| map.field("owner"))
        && let Ok(named) = named.to_bytes(&NoCells)
        && let Ok(named) = std::str::from_utf8(&named)
    {
        return keys::owner_scope(named);
    }
    keys::owner_scope(owner)
}

/// Returns true if a root says that a job holds a blob.
fn is_held_blob(space: u8, owner: &str) -> bool {
    space == RootSpace::Venue as u8 && owner == HELD
}

/// The size in a root that says that a job holds a blob. Those of earlier versions have none.
fn held_bytes(row: &[u8]) -> u64 {
    let value = catena_value::decode(row).unwrap_or_default();
    let size = value.as_map().and_then(|map| map.field("bytes")?.as_i64());
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0)
}

/// The bytes of a root besides its cells: its row and, if it says that a user has a blob or a job holds one,
/// the blob.
pub(super) fn root_bytes(tx: &Tx<'_>, key: &RootKey, row: &[u8]) -> Result<i64, CommitError> {
    if is_held_blob(key.space as u8, &key.owner) {
        return Ok(bytes(row.len()).saturating_add_unsigned(held_bytes(row)));
    }
    let Some(digest) = blob_digest(key.space as u8, key.name.as_bytes()) else {
        return Ok(bytes(row.len()));
    };
    let blob = tx.get(BLOBS, &digest)?.map_or(Ok(0), |row| blob_len(&row))?;
    Ok(bytes(row.len()).saturating_add_unsigned(blob))
}

fn name(owner: OwnerKey) -> Vec<u8> {
    [PREFIX, &owner].concat()
}

fn number(row: &[u8]) -> Result<u64, DamagedRow> {
    Ok(u64::from_be_bytes(row.try_into().map_err(|_| DamagedRow("count of bytes"))?))
}

/// The digest in the name of a root that says that a user has a blob.
fn blob_digest(space: u8, name: &[u8]) -> Option<[u8; 32]> {
    if space != RootSpace::Blob as u8 || name.len() != 64 {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(name.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

impl EmbeddedStore {
    /// Returns the bytes that are stored for an owner or [`ALL`]; 0 while they are not counted.
    pub(super) fn read_stored_bytes(&self, owner: OwnerKey) -> Result<u64, ReadError> {
        match self.driver.get(META, &name(owner))? {
            Some(row) => number(&row).map_err(damaged_error("bytes of an owner")),
            None => Ok(0),
        }
    }

    /// Switches counting on or off. When it is switched on, everything that is stored is measured once.
    pub(super) async fn switch_counting(&self, is_on: bool) -> Result<(), CommitError> {
        let counted = self.driver.get(META, COUNTED).map_err(damaged_counts)?;
        self.usage.0.store(is_on, Ordering::Relaxed);
        if !is_on && counted.is_some() {
            return self.driver.submit(forget_counts).await;
        }
        let is_current = counted.is_some_and(|row| number(&row).ok() == Some(COUNTED_VERSION));
        if is_on && !is_current {
            // Commits that were submitted before are in the view: the first commit after the switch waits
            // behind them.
            self.driver.submit(|_| Ok(())).await?;
            let measured = self.measure_usage().await?;
            self.correct_usage(measured, true).await?;
        }
        Ok(())
    }

    /// Measures what is stored for each owner, and returns the difference to the counts as of the same
    /// moment.
    async fn measure_usage(&self) -> Result<HashMap<OwnerKey, i64>, CommitError> {
        let driver = Arc::clone(&self.driver);
        let measure = move || {
            let view = driver.view();
            let marked = mark_by_owner(&view)?;
            usage_error(&view, &marked)
        };
        let measured = match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime
                .spawn_blocking(measure)
                .await
                .unwrap_or_else(|error| Err(ReadError::Unavailable { reason: error.to_string() })),
            Err(_) => measure(),
        };
        measured.map_err(damaged_counts)
    }

    /// Adds differences to the counts.
    pub(super) async fn correct_usage(
        &self,
        differences: HashMap<OwnerKey, i64>,
        is_complete: bool,
    ) -> Result<(), CommitError> {
        let mut charges = self.usage.charges();
        if !charges.is_on {
            return Ok(());
        }
        charges.by_owner = differences.into_iter().filter(|(_, bytes)| *bytes != 0).collect();
        let work = move |tx: &mut Tx<'_>| {
            if is_complete {
                tx.put(META, COUNTED, COUNTED_VERSION.to_be_bytes());
            }
            std::mem::replace(&mut charges, Charges { is_on: false, by_owner: Vec::new() })
                .write(tx)
        };
        self.driver.submit(work).await
    }
}

fn damaged_counts(error: ReadError) -> CommitError {
    CommitError::Damaged { reason: error.to_string() }
}

/// Removes all counts: they are not kept up to date any more.
fn forget_counts(tx: &mut Tx<'_>) -> Result<(), CommitError> {
    let range = catena_ledger::KeyRange::prefix(PREFIX);
    loop {
        let rows = tx.range(META, &range, catena_ledger::Direction::Forward, 256)?;
        if rows.is_empty() {
            break;
        }
        for (key, _) in rows {
            tx.delete(META, key);
        }
    }
    tx.delete(META, COUNTED);
    Ok(())
}

/// Returns by how much the counts in a view differ from what it contains. `cells` says for whom each cell
/// is stored.
pub(super) fn usage_error(
    view: &View,
    cells: &HashMap<ValueId, OwnerKey>,
) -> Result<HashMap<OwnerKey, i64>, ReadError> {
    let mut usage: HashMap<OwnerKey, i64> = HashMap::new();
    let mut charge = |owner: OwnerKey, length: i64| {
        for charged in [owner, ALL] {
            let total = usage.entry(charged).or_default();
            *total = total.saturating_add(length);
        }
    };
    let mut owners = HashMap::new();
    for_each_row(view, JOBS, |key, row| {
        let read = JobRow::read(row).map_err(damaged_error("a job"))?;
        let owner = keys::owner_scope(&read.summary.owner);
        owners.insert(key.to_vec(), owner);
        charge(owner, bytes(row.len()));
        Ok(())
    })?;
    for table in [CHUNKS, MESSAGES] {
        for_each_row(view, table, |key, row| {
            if let Some(owner) = key.get(..16).and_then(|job| owners.get(job)) {
                charge(*owner, bytes(row.len()));
            }
            Ok(())
        })?;
    }
    drop(owners);
    for_each_row(view, ROOTS, |key, row| {
        let Some((space, owner, name)) = keys::parse_root_key(key) else { return Ok(()) };
        let blob = match blob_digest(space, name) {
            Some(digest) => view.get(BLOBS, &digest).map_err(unavailable_error)?,
            None => None,
        };
        let blob = blob.map_or(Ok(0), |row| blob_len(&row)).map_err(damaged_error("a blob"))?;
        let blob = if is_held_blob(space, owner) { held_bytes(row) } else { blob };
        let owner = root_owner(space, owner, row);
        charge(owner, bytes(row.len()).saturating_add_unsigned(blob));
        Ok(())
    })?;
    for_each_row(view, CELLS, |key, row| {
        let id: Option<[u8; 32]> = key.try_into().ok();
        if let Some(owner) = id.and_then(|id| cells.get(&ValueId::from_bytes(id))) {
            charge(*owner, bytes(row.len()));
        }
        Ok(())
    })?;
    for_each_row(view, META, |key, row| {
        let owner = key.strip_prefix(PREFIX).and_then(|owner| owner.try_into().ok());
        if let Some(owner) = owner {
            let counted = number(row).map_err(damaged_error("bytes of an owner"))?;
            let total = usage.entry(owner).or_default();
            *total = total.saturating_sub_unsigned(counted);
        }
        Ok(())
    })?;
    Ok(usage)
}

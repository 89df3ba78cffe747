//! Effects inside the committer: what they rely on is checked, then their rows are written.
//!
//! Commits run one at a time and in order, so what is read here is current. It must be fast: every
//! writer waits behind it.

use std::sync::Arc;

use catena_job::{JobId, RecordId};
use catena_value::{Encoded, ValueId};

use super::prepare::{PreparedAppend, PreparedBegin, PreparedEffect, PreparedRoot};
use crate::bytes::DamagedRow;
use crate::effects::{CommitError, Hold, Receipt};
use crate::embedded::in_use::InUseCells;
use crate::embedded::known_ids::KnownIds;
use crate::embedded::known_state::KnownState;
use crate::embedded::positions;
use crate::embedded::rows::{Lease, Sidecar, decode_idempotency, encode_blob};
use crate::embedded::sequence::CommitSequence;
use crate::embedded::usage::{self, Charges};
use crate::keys::{self, *};
use crate::limits::{IDEMPOTENCY_KEYS_MAX, MESSAGES_MAX, UNCHECKED_CELL_BYTES_MAX};
use crate::row::{JobRow, LocalCells, reachable};
use crate::store::{ChangeKind, HoldState, Idempotency, Message, RootKey, TimerKind};
use catena_ledger::{Direction, Key, KeyRange, RowBytes, RowReadError, Slot, TableId, Tx};

type ApplyResult<T> = Result<T, CommitError>;

impl From<RowReadError> for CommitError {
    fn from(error: RowReadError) -> Self {
        CommitError::Damaged { reason: error.to_string() }
    }
}

impl From<DamagedRow> for CommitError {
    fn from(error: DamagedRow) -> Self {
        CommitError::Damaged { reason: error.to_string() }
    }
}

/// What all commits share.
pub(super) struct Shared<'a> {
    pub(super) in_use: &'a InUseCells,
    pub(super) known_ids: &'a KnownIds,
    pub(super) known_state: &'a KnownState,
    pub(super) sequence: &'a CommitSequence,
}

/// Applies effects. The parts of new jobs stay in `effects`, so that the caller's thread frees them.
pub(super) fn apply(
    tx: &mut Tx<'_>,
    effects: &mut [PreparedEffect],
    shared: &Shared<'_>,
    mut charges: Charges,
) -> ApplyResult<Receipt> {
    let mut receipt = Receipt::default();
    let bill = &mut charges;
    for effect in effects {
        if let PreparedEffect::Begin(begin) = effect {
            receipt.orders.push(begin_job(tx, begin, shared, bill)?);
            receipt.live.extend(begin.facts.live_owner().map(|owner| (owner, 1)));
            continue;
        }
        match std::mem::replace(effect, PreparedEffect::Applied) {
            PreparedEffect::Begin(_) | PreparedEffect::Applied => {}
            PreparedEffect::Append(append) => {
                append_records(tx, *append, shared, &mut receipt, bill)?;
            }
            PreparedEffect::Delete { job } => {
                let facts = delete_job(tx, job, shared.sequence, bill)?;
                receipt.live.extend(facts.live_owner().map(|owner| (owner, -1)));
            }
            PreparedEffect::SetProgress { job, progress } => change_sidecar(tx, job, |sidecar| {
                sidecar.progress = Some(progress);
            })?,
            PreparedEffect::Touch { job } => change_sidecar(tx, job, |_| {})?,
            PreparedEffect::SendMessage { job, message, row } => {
                receipt.queue_depths.push(send_message(tx, job, &message, row, bill)?);
            }
            PreparedEffect::CheckMessageCount { job, count } => {
                check_message_count(tx, job, count)?;
            }
            PreparedEffect::TakeMessage { job, number } => take_message(tx, job, number, bill)?,
            PreparedEffect::ReplaceMessage { job, number, row } => {
                replace_message(tx, job, number, row, bill)?;
            }
            PreparedEffect::Enqueue { job, queue, priority, ready_at } => {
                enqueue(tx, job, queue, priority, ready_at)?;
            }
            PreparedEffect::Dequeue { job } => leave_queue(tx, job)?,
            PreparedEffect::SetHold { job, after, hold } => set_hold(tx, job, after, hold)?,
            PreparedEffect::CheckHead { job, head } => {
                check_append(job, Some(head), job_row(tx, job)?.as_ref())?;
            }
            PreparedEffect::CountSubJobs { root, count, max } => {
                count_sub_jobs(tx, root, count, max)?;
            }
            PreparedEffect::SetRoot { key, expected, value } => {
                let held = held_root(tx, &key, shared)?;
                if held != expected {
                    return Err(CommitError::RootMoved { key, expected, found: held });
                }
                set_root(tx, key, value, shared, bill)?;
            }
            PreparedEffect::SetRootIfAbsent { key, value } => {
                if tx.get(ROOTS, &keys::root_key(&key))?.is_none() {
                    set_root(tx, key, Some(value), shared, bill)?;
                }
            }
            PreparedEffect::StoreIdempotency { entry, row } => store_idempotency(tx, &entry, row)?,
            PreparedEffect::ExpireIdempotency { before, limit } => {
                receipt.expired += expire_idempotency(tx, before, limit)?;
            }
            PreparedEffect::StoreBlob { digest, len, content } => {
                tx.put(BLOBS, digest, encode_blob(len, content.as_deref()));
            }
            PreparedEffect::DeleteBlob { digest } => tx.delete(BLOBS, digest),
        }
    }
    charges.write(tx)?;
    Ok(receipt)
}

/// Stores cells of a commit that are not held yet. Returns the bytes of those that are new: stored now, or sent ahead.
///
/// If nobody is charged for them, small cells are written without being looked up: nearly all of them are new, and
/// rewriting the few that exist costs less than looking up all of them.
fn put_cells(
    tx: &mut Tx<'_>,
    cells: &[Encoded],
    shared: &Shared<'_>,
    charges: &Charges,
) -> ApplyResult<usize> {
    let mut new_bytes = 0;
    for cell in cells {
        let length = cell.bytes.as_slice().len();
        if charges.is_on() || length == 0 || length > UNCHECKED_CELL_BYTES_MAX {
            new_bytes += put_cell(tx, cell, shared.in_use)?;
        } else {
            shared.in_use.add(&cell.id);
            if !shared.known_state.has_cell(&cell.id) {
                tx.put(CELLS, *cell.id.as_bytes(), cell.bytes.as_slice());
            }
        }
        shared.known_state.add_cell(&cell.id);
    }
    Ok(new_bytes)
}

/// Stores cells that are sent ahead of their commit, if they are not held yet.
pub(super) fn put_cells_ahead(
    tx: &mut Tx<'_>,
    cells: &[Encoded],
    in_use: &InUseCells,
) -> ApplyResult<()> {
    cells.iter().try_for_each(|cell| put_cell(tx, cell, in_use).map(drop))
}

/// Stores a cell unless it is held. Returns its bytes if it is new: stored now, or sent ahead.
fn put_cell(tx: &mut Tx<'_>, cell: &Encoded, in_use: &InUseCells) -> ApplyResult<usize> {
    in_use.add(&cell.id);
    if let Some(held) = tx.get(CELLS, keys::cell_key(&cell.id))? {
        return Ok(if cell.bytes.is_empty() { held.len() } else { 0 });
    }
    // Its bytes were sent ahead and did not arrive.
    if cell.bytes.is_empty() {
        return Err(CommitError::MissingCell { id: cell.id });
    }
    tx.put(CELLS, *cell.id.as_bytes(), cell.bytes.as_slice());
    Ok(cell.bytes.as_slice().len())
}

fn job_row(tx: &Tx<'_>, job: JobId) -> ApplyResult<Option<JobRow>> {
    match tx.get(JOBS, job.as_bytes())? {
        Some(row) => Ok(Some(JobRow::read(&row)?)),
        None => Ok(None),
    }
}

/// A new job whose records fit its row.
fn begin_job(
    tx: &mut Tx<'_>,
    begin: &mut PreparedBegin,
    shared: &Shared<'_>,
    charges: &mut Charges,
) -> ApplyResult<u64> {
    check_append(begin.job, None, job_row(tx, begin.job)?.as_ref())?;
    let new_cells = put_cells(tx, &begin.shared, shared, charges)?;
    charges.add(begin.facts.owner(), usage::bytes(new_cells + begin.row.len()));
    check_needed(tx, None, begin.job, &begin.needed, shared)?;
    let order = shared.sequence.next_position(tx)?;
    match Arc::get_mut(&mut begin.row) {
        Some(row) => JobRow::set_order(row, order),
        None => return Err(DamagedRow("row of its own").into()),
    }
    tx.put_new(JOBS, *begin.job.as_bytes(), Arc::clone(&begin.row));
    begin.facts.visit_rows(order, &begin.hold, |table, key, value| {
        write_index(tx, table, key, Slot::New(value));
    });
    put_creation(tx, order, &begin.facts);
    Ok(order)
}

/// Records the creation of a job in the list of all owners or, of a sub-job, among the changes.
fn put_creation(tx: &mut Tx<'_>, order: u64, facts: &IndexFacts) {
    match facts.listed(order) {
        Some(entry) => tx.gather(EVERYONE, order.to_be_bytes(), &entry),
        None => put_change(tx, order, facts, ChangeKind::Created),
    }
}

/// Records a change of a job, for those who follow all jobs. The creation of a job that is no sub-job
/// is in the lists already.
fn put_change(tx: &mut Tx<'_>, position: u64, facts: &IndexFacts, kind: ChangeKind) {
    tx.gather(CHANGES, position.to_be_bytes(), &facts.change(position, kind));
}

/// Checks the head that an append continues.
fn check_append(job: JobId, after: Option<RecordId>, row: Option<&JobRow>) -> ApplyResult<()> {
    let found = row.map(|row| row.head);
    if found == after {
        Ok(())
    } else {
        Err(CommitError::HeadMoved { job, expected: after, found })
    }
}

/// Checks what a commit relies on about who runs a job, and changes it.
fn change_hold(tx: &mut Tx<'_>, job: JobId, state: &mut HoldState, hold: Hold) -> ApplyResult<()> {
    let found = state.holder.as_ref().map(|_| state.fence);
    let fenced = |fence| CommitError::Fenced { job, fence, found };
    match hold {
        Hold::Unchanged => {}
        Hold::Vacant(fence) if found.is_none() && state.fence == fence => {}
        Hold::Vacant(_) => return Err(CommitError::HoldMoved { job }),
        Hold::Under(fence) if found == Some(fence) => {}
        Hold::Transfer { holder, fence } if found == Some(fence) => state.holder = Some(holder),
        Hold::Release(fence) if found == Some(fence) => state.holder = None,
        Hold::Park(fence) if found == Some(fence) => {
            *state = HoldState { fence, holder: None, is_parked: true };
        }
        Hold::Acquire { holder, fence } if fence == state.fence + 1 => {
            *state = HoldState { fence, holder: Some(holder), is_parked: false };
            leave_queue(tx, job)?;
        }
        Hold::Under(fence)
        | Hold::Release(fence)
        | Hold::Park(fence)
        | Hold::Transfer { fence, .. }
        | Hold::Acquire { fence, .. } => return Err(fenced(fence)),
    }
    Ok(())
}

fn set_hold(tx: &mut Tx<'_>, job: JobId, after: RecordId, hold: Hold) -> ApplyResult<()> {
    let mut row = live_row(tx, job)?;
    check_append(job, Some(after), Some(&row))?;
    let old = IndexState::from_row(&row);
    change_hold(tx, job, &mut row.hold, hold)?;
    tx.put(JOBS, *job.as_bytes(), row.write());
    put_index_changes(tx, &IndexFacts::from_summary(job, &row.summary), &old, &row);
    // Clients see whether a job runs or waits.
    change_sidecar(tx, job, |_| {})
}

/// The row of a job that has not ended.
fn live_row(tx: &Tx<'_>, job: JobId) -> ApplyResult<JobRow> {
    let row = job_row(tx, job)?.ok_or(CommitError::NoSuchJob { job })?;
    if row.summary.is_live() { Ok(row) } else { Err(CommitError::Ended { job }) }
}

fn append_records(
    tx: &mut Tx<'_>,
    mut append: PreparedAppend,
    shared: &Shared<'_>,
    receipt: &mut Receipt,
    charges: &mut Charges,
) -> ApplyResult<()> {
    let id = append.job.id();
    let held = job_row(tx, id)?;
    check_append(id, append.after, held.as_ref())?;
    let new_cells = put_cells(tx, &append.packed.shared, shared, charges)?;
    charges.add(append.facts.owner(), usage::bytes(new_cells));
    let carried = check_needed(tx, held.as_ref(), id, &append.packed.needed, shared)?;
    append.packed.entries.append_cells(&carried);
    let was_live = held.as_ref().is_some_and(|row| row.summary.is_live());
    let is_live = append.summary.is_live();
    if was_live != is_live && append.summary.parent.is_none() {
        receipt.live.push((append.facts.owner(), if is_live { 1 } else { -1 }));
    }
    let row = match held {
        Some(row) => {
            let position = shared.sequence.next_position(tx)?;
            put_change(tx, position, &append.facts, ChangeKind::Changed);
            row
        }
        None => {
            let order = shared.sequence.next_position(tx)?;
            receipt.orders.push(order);
            put_creation(tx, order, &append.facts);
            JobRow::new(order, append.summary.clone(), append.job.head())
        }
    };
    continue_chain(tx, row, append, charges)
}

fn continue_chain(
    tx: &mut Tx<'_>,
    mut row: JobRow,
    append: PreparedAppend,
    charges: &mut Charges,
) -> ApplyResult<()> {
    let PreparedAppend { job, summary, facts, packed, hold, .. } = append;
    let id = job.id();
    // A summary whose owner, operation or tags differ is not expected; all its rows are compared.
    let is_same = row.count > 0 && row.summary.is_of_same_job(&summary);
    let old_state = IndexState::from_row(&row);
    let old = if row.count == 0 || is_same { Vec::new() } else { index_rows(id, &row) };
    change_hold(tx, id, &mut row.hold, hold)?;
    if let Some(sealed) = row.append(&job, summary, &packed.entries)? {
        charges.add(facts.owner(), usage::bytes(sealed.bytes.len()));
        tx.put(CHUNKS, chunk_key(id, sealed.first), sealed.bytes);
    }
    let written = row.write();
    if charges.is_on() {
        let before = tx.get(JOBS, id.as_bytes())?.map_or(0, |row| row.len());
        charges.add(facts.owner(), usage::bytes(written.len()) - usage::bytes(before));
    }
    tx.put(JOBS, *id.as_bytes(), written);
    if is_same {
        put_index_changes(tx, &facts, &old_state, &row);
    } else {
        put_index(tx, old, facts.rows(row.order, &row.hold));
    }
    if row.summary.is_live() { Ok(()) } else { end_job(tx, id, facts.owner(), charges) }
}

/// Checks that cells are held which records refer to without containing them. Returns those from the
/// job's own rows: they are appended with the records, so that each row and chunk can be read without
/// the others.
fn check_needed(
    tx: &Tx<'_>,
    row: Option<&JobRow>,
    job: JobId,
    needed: &[ValueId],
    shared: &Shared<'_>,
) -> ApplyResult<LocalCells> {
    if needed.is_empty() {
        return Ok(LocalCells::new());
    }
    let local = match row {
        Some(row) => row.job(job)?.1,
        None => LocalCells::new(),
    };
    let others: Vec<ValueId> =
        needed.iter().filter(|id| !local.contains_key(id)).copied().collect();
    check_held(tx, &others, shared)?;
    Ok(reachable(needed.to_vec(), &local)?)
}

/// Checks that shared cells are held, and records their use: the collector leaves them alone from now on.
fn check_held(tx: &Tx<'_>, ids: &[ValueId], shared: &Shared<'_>) -> ApplyResult<()> {
    if ids.is_empty() {
        return Ok(());
    }
    shared.in_use.add_all(ids);
    for id in shared.known_state.unknown_cells(ids) {
        if tx.get(CELLS, keys::cell_key(&id))?.is_none() {
            return Err(CommitError::MissingCell { id });
        }
        shared.known_state.add_cell(&id);
    }
    Ok(())
}

/// Writes the index rows that follow from what changed since an earlier state of the same job.
fn put_index_changes(tx: &mut Tx<'_>, facts: &IndexFacts, old: &IndexState, row: &JobRow) {
    let new = IndexState::from_row(row);
    facts.visit_changes(row.order, &row.summary.owner, old, &new, |table, key, slot| {
        write_index(tx, table, key, slot);
    });
}

/// Writes the changed rows of the indexes. The rows of a job follow from its state, so one that its former
/// state does not lead to does not exist.
fn put_index(tx: &mut Tx<'_>, old: Vec<IndexRow>, new: Vec<IndexRow>) {
    let find = |rows: &[IndexRow], (table, key, _): &IndexRow| {
        rows.iter().position(|(other, kept, _)| other == table && kept == key)
    };
    let is_gone: Vec<bool> = old.iter().map(|row| find(&new, row).is_none()).collect();
    for row in new {
        match find(&old, &row) {
            Some(at) if old[at].2 == row.2 => {}
            Some(_) => write_index(tx, row.0, row.1, Slot::Put(row.2)),
            None => write_index(tx, row.0, row.1, Slot::New(row.2)),
        }
    }
    for ((table, key, _), is_gone) in old.into_iter().zip(is_gone) {
        if is_gone {
            write_index(tx, table, key, Slot::Deleted);
        }
    }
}

fn write_index(tx: &mut Tx<'_>, table: TableId, key: Key, slot: Slot) {
    match (table, slot) {
        // Only users read lists; no commit does.
        (LISTS, slot) => tx.write_unread(table, key, slot),
        (_, Slot::Put(value)) => tx.put(table, key, value),
        (_, Slot::New(value)) => tx.put_new(table, key, value),
        (_, Slot::Deleted) => tx.delete(table, key),
    }
}

/// Removes what a job loses when it ends: its entry on a queue, and its messages.
fn end_job(tx: &mut Tx<'_>, job: JobId, owner: [u8; 8], charges: &mut Charges) -> ApplyResult<()> {
    leave_queue(tx, job)?;
    let Some(mut sidecar) = read_sidecar(tx, job)? else { return Ok(()) };
    if sidecar.next_message > 0 {
        charges.add(owner, -usage::bytes(delete_range(tx, MESSAGES, job)?));
        delete_range(tx, MESSAGE_IDS, job)?;
    }
    sidecar.queued = 0;
    sidecar.changes += 1;
    tx.put(SIDECARS, *job.as_bytes(), sidecar.encode());
    Ok(())
}

/// Removes every row of a table that begins with the job's ID. Returns the bytes of their values.
fn delete_range(tx: &mut Tx<'_>, table: TableId, job: JobId) -> ApplyResult<usize> {
    let range = KeyRange::prefix(job.as_bytes());
    let mut removed = 0;
    loop {
        let rows = tx.range(table, &range, Direction::Forward, 256)?;
        if rows.is_empty() {
            return Ok(removed);
        }
        for (key, row) in rows {
            removed += row.len();
            tx.delete(table, key);
        }
    }
}

fn delete_job(
    tx: &mut Tx<'_>,
    job: JobId,
    sequence: &CommitSequence,
    charges: &mut Charges,
) -> ApplyResult<IndexFacts> {
    let row = job_row(tx, job)?.ok_or(CommitError::NoSuchJob { job })?;
    let facts = IndexFacts::from_summary(job, &row.summary);
    for (table, key, _) in facts.rows(row.order, &row.hold) {
        tx.delete(table, key);
    }
    positions::unlist(tx, job, row.order)?;
    let position = sequence.next_position(tx)?;
    put_change(tx, position, &facts, ChangeKind::Deleted);
    leave_queue(tx, job)?;
    let mut removed = tx.get(JOBS, job.as_bytes())?.map_or(0, |row| row.len());
    for table in [CHUNKS, MESSAGES, MESSAGE_IDS] {
        removed += delete_range(tx, table, job)?;
    }
    charges.add(facts.owner(), -usage::bytes(removed));
    let total = keys::sub_jobs_name(job);
    if tx.get(META, &total)?.is_some() {
        tx.delete(META, total);
    }
    tx.delete(SIDECARS, *job.as_bytes());
    tx.delete(JOBS, *job.as_bytes());
    Ok(facts)
}

/// Counts new jobs below a root.
fn count_sub_jobs(tx: &mut Tx<'_>, root: JobId, count: u64, max: u64) -> ApplyResult<()> {
    let name = keys::sub_jobs_name(root);
    let held = read_number(tx, &name)?;
    let total = held.saturating_add(count);
    if total > max {
        return Err(CommitError::TreeFull { root, count: held, max });
    }
    tx.put(META, name, total.to_be_bytes());
    Ok(())
}

/// Returns a number of the table of numbers, or 0.
fn read_number(tx: &Tx<'_>, name: &[u8]) -> ApplyResult<u64> {
    match tx.get(META, name)? {
        Some(row) => Ok(u64::from_be_bytes(row[..].try_into().map_err(|_| DamagedRow("number"))?)),
        None => Ok(0),
    }
}

fn read_sidecar(tx: &Tx<'_>, job: JobId) -> ApplyResult<Option<Sidecar>> {
    match tx.get(SIDECARS, job.as_bytes())? {
        Some(row) => Ok(Some(Sidecar::decode(&row)?)),
        None => Ok(None),
    }
}

fn change_sidecar(
    tx: &mut Tx<'_>,
    job: JobId,
    change: impl FnOnce(&mut Sidecar),
) -> ApplyResult<()> {
    if tx.get(JOBS, job.as_bytes())?.is_none() {
        return Err(CommitError::NoSuchJob { job });
    }
    let mut sidecar = read_sidecar(tx, job)?.unwrap_or_default();
    change(&mut sidecar);
    sidecar.changes += 1;
    tx.put(SIDECARS, *job.as_bytes(), sidecar.encode());
    Ok(())
}

fn send_message(
    tx: &mut Tx<'_>,
    job: JobId,
    message: &Message,
    row: Vec<u8>,
    charges: &mut Charges,
) -> ApplyResult<u32> {
    let held = live_row(tx, job)?;
    if charges.is_on() {
        charges.add(keys::owner_scope(&held.summary.owner), usage::bytes(row.len()));
    }
    let sidecar = read_sidecar(tx, job)?.unwrap_or_default();
    let id_key = message_id_key(job, &message.id);
    if tx.get(MESSAGE_IDS, &id_key)?.is_some() {
        return Err(CommitError::DuplicateMessage {
            job,
            message: message.id.clone(),
            queue_depth: sidecar.queued,
        });
    }
    if sidecar.queued >= MESSAGES_MAX {
        return Err(CommitError::MessagesFull { job, waiting: sidecar.queued });
    }
    let number = sidecar.next_message;
    change_sidecar(tx, job, |sidecar| {
        sidecar.next_message += 1;
        sidecar.queued += 1;
    })?;
    tx.put(MESSAGES, keys::message_key(job, number), row);
    tx.put(MESSAGE_IDS, id_key, Vec::new());
    Ok(sidecar.queued + 1)
}

fn check_message_count(tx: &Tx<'_>, job: JobId, count: u32) -> ApplyResult<()> {
    let waiting = read_sidecar(tx, job)?.map_or(0, |sidecar| sidecar.queued);
    if waiting == count { Ok(()) } else { Err(CommitError::QueueMoved { job, waiting }) }
}

fn take_message(
    tx: &mut Tx<'_>,
    job: JobId,
    number: u64,
    charges: &mut Charges,
) -> ApplyResult<()> {
    let range = KeyRange::prefix(job.as_bytes());
    let first = tx.range(MESSAGES, &range, Direction::Forward, 1)?;
    let key = keys::message_key(job, number);
    if first.first().is_none_or(|(first, _)| first[..] != key[..]) {
        return Err(CommitError::NotNext { job, number });
    }
    if let (true, Some((_, row)), Some(held)) = (charges.is_on(), first.first(), job_row(tx, job)?)
    {
        charges.add(keys::owner_scope(&held.summary.owner), -usage::bytes(row.len()));
    }
    tx.delete(MESSAGES, key);
    change_sidecar(tx, job, |sidecar| sidecar.queued = sidecar.queued.saturating_sub(1))
}

fn replace_message(
    tx: &mut Tx<'_>,
    job: JobId,
    number: u64,
    row: Vec<u8>,
    charges: &mut Charges,
) -> ApplyResult<()> {
    let key = keys::message_key(job, number);
    let Some(replaced) = tx.get(MESSAGES, &key)? else {
        return Err(CommitError::NotNext { job, number });
    };
    if let (true, Some(held)) = (charges.is_on(), job_row(tx, job)?) {
        let grown = usage::bytes(row.len()) - usage::bytes(replaced.len());
        charges.add(keys::owner_scope(&held.summary.owner), grown);
    }
    tx.put(MESSAGES, key, row);
    Ok(())
}

fn read_lease(tx: &Tx<'_>, job: JobId) -> ApplyResult<Option<Lease>> {
    match tx.get(LEASES, job.as_bytes())? {
        Some(row) => Ok(Some(Lease::decode(&row)?)),
        None => Ok(None),
    }
}

/// Takes a job off its queue. A row of format 1 may contain a lease, which ends with it.
fn leave_queue(tx: &mut Tx<'_>, job: JobId) -> ApplyResult<()> {
    leave_queue_if_queued(tx, job).map(drop)
}

/// Takes a job off its queue. Returns false if it was on none.
fn leave_queue_if_queued(tx: &mut Tx<'_>, job: JobId) -> ApplyResult<bool> {
    let Some(lease) = read_lease(tx, job)? else { return Ok(false) };
    if let Some((_, until)) = lease.holder {
        tx.delete(TIMERS, timer_key(until, TimerKind::LeaseEnd, job));
    }
    if let Some(queue_key) = lease.queue_key {
        tx.delete(QUEUE, queue_key);
    }
    tx.delete(LEASES, *job.as_bytes());
    Ok(true)
}

fn enqueue(
    tx: &mut Tx<'_>,
    job: JobId,
    queue: String,
    priority: u8,
    ready_at: i64,
) -> ApplyResult<()> {
    let row = live_row(tx, job)?;
    let was_queued = leave_queue_if_queued(tx, job)?;
    let key = queue_key(&queue, priority, ready_at, row.order).to_vec();
    let mut value = job.as_bytes().to_vec();
    value.extend_from_slice(queue.as_bytes());
    let queued = [
        (QUEUE, Key::from(key.as_slice()), RowBytes::from(value)),
        (
            LEASES,
            Key::from(*job.as_bytes()),
            Lease { queue_key: Some(key), ..Lease::default() }.encode().into(),
        ),
    ];
    for (table, key, value) in queued {
        if was_queued {
            tx.put(table, key, value);
        } else {
            tx.put_new(table, key, value);
        }
    }
    Ok(())
}

/// The ID of the value that a root has.
fn held_root(tx: &Tx<'_>, key: &RootKey, shared: &Shared<'_>) -> ApplyResult<Option<ValueId>> {
    let row = keys::root_key(key);
    if let Some(known) = shared.known_state.root(&row) {
        return Ok(known);
    }
    let held = tx.get(ROOTS, &row)?;
    Ok(held.map(|held| shared.known_ids.id_of(&held)))
}

fn set_root(
    tx: &mut Tx<'_>,
    key: RootKey,
    value: Option<PreparedRoot>,
    shared: &Shared<'_>,
    charges: &mut Charges,
) -> ApplyResult<()> {
    let row = keys::root_key(&key);
    if charges.is_on()
        && let Some(held) = tx.get(ROOTS, &row)?
    {
        let owner = usage::root_owner(key.space as u8, &key.owner, &held);
        charges.add(owner, -usage::root_bytes(tx, &key, &held)?);
    }
    shared.known_state.set_root(&row, value.as_ref().map(|root| root.id));
    match value {
        Some(root) => {
            let new_cells = put_cells(tx, &root.cells, shared, charges)?;
            if charges.is_on() {
                let owner = usage::root_owner(key.space as u8, &key.owner, &root.encoding);
                let row_bytes = usage::root_bytes(tx, &key, &root.encoding)?;
                charges.add(owner, usage::bytes(new_cells) + row_bytes);
            }
            check_held(tx, &root.needed, shared)?;
            tx.put(ROOTS, row, root.encoding);
        }
        None => tx.delete(ROOTS, row),
    }
    Ok(())
}

fn store_idempotency(tx: &mut Tx<'_>, entry: &Idempotency, row: Vec<u8>) -> ApplyResult<()> {
    let key = keys::idempotency_key(&entry.owner, &entry.endpoint, &entry.key);
    if let Some(held) = tx.get(IDEMPOTENCY, &key)? {
        return Err(CommitError::KeyTaken(Box::new(decode_idempotency(&held)?)));
    }
    let held = change_key_count(tx, &key, 1)?;
    if held >= IDEMPOTENCY_KEYS_MAX {
        return Err(CommitError::KeysFull { held });
    }
    tx.put(EXPIRY, keys::expiry_key(entry.expires, &key), Vec::new());
    tx.put(IDEMPOTENCY, key, row);
    Ok(())
}

/// Changes the number of keys that an owner holds. Returns the previous number.
fn change_key_count(tx: &mut Tx<'_>, key: &[u8], change: i64) -> ApplyResult<u64> {
    let mut name = b"keys ".to_vec();
    name.extend_from_slice(&key[..8]);
    let held = read_number(tx, &name)?;
    tx.put(META, name, held.saturating_add_signed(change).to_be_bytes());
    Ok(held)
}

fn expire_idempotency(tx: &mut Tx<'_>, before: i64, limit: usize) -> ApplyResult<u64> {
    let range = KeyRange::between(Vec::new(), time_key(before).to_vec());
    let rows = tx.range(EXPIRY, &range, Direction::Forward, limit)?;
    for (key, _) in &rows {
        let idempotency = key.get(8..).ok_or(DamagedRow("expiry"))?;
        change_key_count(tx, idempotency, -1)?;
        tx.delete(IDEMPOTENCY, idempotency);
        tx.delete(EXPIRY, key.clone());
    }
    Ok(rows.len() as u64)
}

//! Effects inside the committer: what they rely on is checked, then their rows are written.
//!
//! Runs alone and in order, so what it reads here is what is. It must be quick: every writer waits
//! behind it.

use std::sync::Arc;

use catena_job::{JobId, RecordId};
use catena_value::{Encoded, ValueId};

use super::collect::Named;
use super::order::Order;
use super::prepare::{Ready, ReadyAppend, ReadyBegin, ReadyRoot};
use super::read::{Beside, Lease, read_idempotency};
use crate::bytes::{Damaged, put_count};
use crate::effects::{CommitError, Receipt};
use crate::keys::{self, *};
use crate::limits::{IDEMPOTENCY_KEYS_MAX, MESSAGES_MAX};
use crate::row::{JobRow, LocalCells, reachable};
use crate::store::{Claim, Idempotency, Message, RootKey, TimerKind};
use catena_ledger::{Direction, KeyRange, ReadError as LedgerReadError, Tx};

type Step<T> = Result<T, CommitError>;

impl From<LedgerReadError> for CommitError {
    fn from(error: LedgerReadError) -> Self {
        CommitError::Damaged { reason: error.to_string() }
    }
}

impl From<Damaged> for CommitError {
    fn from(error: Damaged) -> Self {
        CommitError::Damaged { reason: error.to_string() }
    }
}

/// Applies effects. What a new job was made of stays in `effects`, so that the caller frees it.
pub(super) fn apply(
    tx: &mut Tx<'_>,
    effects: &mut [Ready],
    named: &Named,
    order: &Order,
) -> Step<Receipt> {
    let mut receipt = Receipt::default();
    for effect in effects {
        if let Ready::Begin(begin) = effect {
            receipt.orders.push(begin_job(tx, begin, named, order)?);
            continue;
        }
        match std::mem::replace(effect, Ready::Applied) {
            Ready::Begin(_) | Ready::Applied => {}
            Ready::Append(append) => append_records(tx, *append, named, order, &mut receipt)?,
            Ready::Delete { job } => delete(tx, job)?,
            Ready::Progress { job, progress } => change_beside(tx, job, |beside| {
                beside.progress = Some(progress);
            })?,
            Ready::Touch { job } => change_beside(tx, job, |_| {})?,
            Ready::Send { job, message, row } => {
                receipt.queue_depths.push(send(tx, job, &message, row)?);
            }
            Ready::Waiting { job, count } => check_waiting(tx, job, count)?,
            Ready::Take { job, number } => take(tx, job, number)?,
            Ready::Offer { job, queue, priority, ready_at } => {
                offer(tx, job, queue, priority, ready_at)?;
            }
            Ready::Withdraw { job } => withdraw(tx, job)?,
            Ready::Renew { job, fence, until } => renew(tx, job, fence, until)?,
            Ready::Root { key, expected, value } => put_root(tx, key, expected, value, named)?,
            Ready::Remember { entry, row } => remember(tx, &entry, row)?,
            Ready::Expire { before, limit } => receipt.expired += expire(tx, before, limit)?,
            Ready::Blob { digest, len, content } => {
                let mut row = Vec::new();
                put_count(len, &mut row);
                row.push(u8::from(content.is_some()));
                row.extend_from_slice(content.as_deref().unwrap_or(&[]));
                tx.put(BLOBS, digest, row);
            }
            Ready::ForgetBlob { digest } => tx.delete(BLOBS, digest),
        }
    }
    Ok(receipt)
}

/// Stores cells that are not held yet.
pub(super) fn put_cells(tx: &mut Tx<'_>, cells: &[Encoded], named: &Named) -> Step<()> {
    for cell in cells {
        named.add(&cell.id);
        let is_held = tx.get(CELLS, keys::cell(&cell.id))?.is_some();
        match is_held {
            true => {}
            // Its bytes travelled ahead and did not arrive.
            false if cell.bytes.is_empty() => return Err(CommitError::MissingCell { id: cell.id }),
            false => tx.put(CELLS, *cell.id.as_bytes(), cell.bytes.as_slice()),
        }
    }
    Ok(())
}

fn job_row(tx: &Tx<'_>, job: JobId) -> Step<Option<JobRow>> {
    match tx.get(JOBS, job.as_bytes())? {
        Some(row) => Ok(Some(JobRow::read(&row)?)),
        None => Ok(None),
    }
}

/// A new job whose records fit its row.
fn begin_job(tx: &mut Tx<'_>, begin: &mut ReadyBegin, named: &Named, order: &Order) -> Step<u64> {
    check_append(tx, begin.job, begin.fence, None, None)?;
    put_cells(tx, &begin.shared, named)?;
    check_needed(tx, None, begin.job, &begin.needed, named)?;
    let order = order.next(tx)?;
    match Arc::get_mut(&mut begin.row) {
        Some(row) => JobRow::set_order(row, order),
        None => return Err(Damaged("row of its own").into()),
    }
    tx.put(JOBS, *begin.job.as_bytes(), Arc::clone(&begin.row));
    begin.facts.each(order, |table, key, value| match table {
        // Lists are for people; no commit looks at one.
        LISTS => tx.put_unread(table, key, value),
        _ => tx.put(table, key, value),
    });
    Ok(order)
}

/// Checks what an append relies on, and returns the row it goes on from.
fn check_append(
    tx: &Tx<'_>,
    job: JobId,
    fence: Option<u64>,
    after: Option<RecordId>,
    row: Option<&JobRow>,
) -> Step<()> {
    if let Some(fence) = fence {
        check_fence(tx, job, fence)?;
    }
    let found = match row {
        Some(row) => Some(row.head),
        None => job_row(tx, job)?.map(|row| row.head),
    };
    match found == after {
        true => Ok(()),
        false => Err(CommitError::HeadMoved { job, expected: after, found }),
    }
}

/// The row of a job that still lives.
fn live_row(tx: &Tx<'_>, job: JobId) -> Step<JobRow> {
    let row = job_row(tx, job)?.ok_or(CommitError::NoSuchJob { job })?;
    if row.summary.is_live() { Ok(row) } else { Err(CommitError::Ended { job }) }
}

fn append_records(
    tx: &mut Tx<'_>,
    mut append: ReadyAppend,
    named: &Named,
    order: &Order,
    receipt: &mut Receipt,
) -> Step<()> {
    let id = append.job.id();
    let held = job_row(tx, id)?;
    check_append(tx, id, append.fence, append.after, held.as_ref())?;
    put_cells(tx, &append.packed.shared, named)?;
    let carried = check_needed(tx, held.as_ref(), id, &append.packed.needed, named)?;
    append.packed.entries.carry(&carried);
    let row = match held {
        Some(row) => row,
        None => {
            let order = order.next(tx)?;
            receipt.orders.push(order);
            JobRow::new(order, append.summary.clone(), append.job.head())
        }
    };
    continue_chain(tx, row, append)
}

fn continue_chain(tx: &mut Tx<'_>, mut row: JobRow, append: ReadyAppend) -> Step<()> {
    let ReadyAppend { job, summary, facts, packed, .. } = append;
    let id = job.id();
    let old = match row.count {
        0 => Vec::new(),
        _ => index_rows(id, row.order, &row.summary),
    };
    if let Some(sealed) = row.append(&job, summary, &packed.entries)? {
        tx.put(CHUNKS, chunk(id, sealed.first), sealed.bytes);
    }
    tx.put(JOBS, *id.as_bytes(), row.write());
    put_index(tx, old, facts.rows(row.order));
    if row.summary.is_live() { Ok(()) } else { end(tx, id) }
}

/// Cells that records refer to without bringing them must be held. Those that lie in the job's
/// own rows are returned: the records take them along, so that each can be read with what is
/// stored beside it.
fn check_needed(
    tx: &Tx<'_>,
    row: Option<&JobRow>,
    job: JobId,
    needed: &[ValueId],
    named: &Named,
) -> Step<LocalCells> {
    if needed.is_empty() {
        return Ok(LocalCells::new());
    }
    let local = match row {
        Some(row) => row.job(job)?.1,
        None => LocalCells::new(),
    };
    for id in needed.iter().filter(|id| !local.contains_key(id)) {
        check_held(tx, id, named)?;
    }
    Ok(reachable(needed.to_vec(), &local)?)
}

/// Whether a shared cell is held; from now on the collector leaves it alone.
fn check_held(tx: &Tx<'_>, id: &ValueId, named: &Named) -> Step<()> {
    named.add(id);
    match tx.get(CELLS, keys::cell(id))? {
        Some(_) => Ok(()),
        None => Err(CommitError::MissingCell { id: *id }),
    }
}

/// Writes what changed in the indexes.
fn put_index(tx: &mut Tx<'_>, old: Vec<IndexRow>, new: Vec<IndexRow>) {
    for (table, key, _) in &old {
        if !new.iter().any(|(other, kept, _)| other == table && kept == key) {
            tx.delete(*table, key.clone());
        }
    }
    for row in new {
        if !old.contains(&row) {
            tx.put(row.0, row.1, row.2);
        }
    }
}

/// What goes away when a job ends: its lease, its place on a queue, its messages.
fn end(tx: &mut Tx<'_>, job: JobId) -> Step<()> {
    end_lease(tx, job)?;
    let Some(mut beside) = read_beside(tx, job)? else { return Ok(()) };
    if beside.next_message > 0 {
        delete_range(tx, MESSAGES, job)?;
        delete_range(tx, MESSAGE_IDS, job)?;
    }
    beside.queued = 0;
    beside.changes += 1;
    tx.put(BESIDE, *job.as_bytes(), beside.write());
    Ok(())
}

/// Removes every row of a table that begins with the job's ID.
fn delete_range(tx: &mut Tx<'_>, table: catena_ledger::TableId, job: JobId) -> Step<()> {
    let range = KeyRange::prefix(job.as_bytes());
    loop {
        let rows = tx.range(table, &range, Direction::Forward, 256)?;
        if rows.is_empty() {
            return Ok(());
        }
        for (key, _) in rows {
            tx.delete(table, key);
        }
    }
}

fn delete(tx: &mut Tx<'_>, job: JobId) -> Step<()> {
    let row = job_row(tx, job)?.ok_or(CommitError::NoSuchJob { job })?;
    for (table, key, _) in index_rows(job, row.order, &row.summary) {
        tx.delete(table, key);
    }
    end_lease(tx, job)?;
    for table in [CHUNKS, MESSAGES, MESSAGE_IDS] {
        delete_range(tx, table, job)?;
    }
    tx.delete(BESIDE, *job.as_bytes());
    tx.delete(JOBS, *job.as_bytes());
    Ok(())
}

fn read_beside(tx: &Tx<'_>, job: JobId) -> Step<Option<Beside>> {
    match tx.get(BESIDE, job.as_bytes())? {
        Some(row) => Ok(Some(Beside::read(&row)?)),
        None => Ok(None),
    }
}

fn change_beside(tx: &mut Tx<'_>, job: JobId, change: impl FnOnce(&mut Beside)) -> Step<()> {
    if tx.get(JOBS, job.as_bytes())?.is_none() {
        return Err(CommitError::NoSuchJob { job });
    }
    let mut beside = read_beside(tx, job)?.unwrap_or_default();
    change(&mut beside);
    beside.changes += 1;
    tx.put(BESIDE, *job.as_bytes(), beside.write());
    Ok(())
}

fn send(tx: &mut Tx<'_>, job: JobId, message: &Message, row: Vec<u8>) -> Step<u32> {
    live_row(tx, job)?;
    let beside = read_beside(tx, job)?.unwrap_or_default();
    let id_key = message_id(job, &message.id);
    if tx.get(MESSAGE_IDS, &id_key)?.is_some() {
        let (message, queue_depth) = (message.id.clone(), beside.queued);
        return Err(CommitError::DuplicateMessage { job, message, queue_depth });
    }
    if beside.queued >= MESSAGES_MAX {
        return Err(CommitError::MessagesFull { job, waiting: beside.queued });
    }
    let number = beside.next_message;
    change_beside(tx, job, |beside| {
        beside.next_message += 1;
        beside.queued += 1;
    })?;
    tx.put(MESSAGES, keys::message(job, number), row);
    tx.put(MESSAGE_IDS, id_key, Vec::new());
    Ok(beside.queued + 1)
}

fn check_waiting(tx: &Tx<'_>, job: JobId, count: u32) -> Step<()> {
    let waiting = read_beside(tx, job)?.map_or(0, |beside| beside.queued);
    match waiting == count {
        true => Ok(()),
        false => Err(CommitError::QueueMoved { job, waiting }),
    }
}

fn take(tx: &mut Tx<'_>, job: JobId, number: u64) -> Step<()> {
    let range = KeyRange::prefix(job.as_bytes());
    let first = tx.range(MESSAGES, &range, Direction::Forward, 1)?;
    let key = keys::message(job, number);
    if first.first().is_none_or(|(first, _)| first[..] != key[..]) {
        return Err(CommitError::NotNext { job, number });
    }
    tx.delete(MESSAGES, key);
    change_beside(tx, job, |beside| beside.queued = beside.queued.saturating_sub(1))
}

fn read_lease(tx: &Tx<'_>, job: JobId) -> Step<Option<Lease>> {
    match tx.get(LEASES, job.as_bytes())? {
        Some(row) => Ok(Some(Lease::read(&row)?)),
        None => Ok(None),
    }
}

fn check_fence(tx: &Tx<'_>, job: JobId, fence: u64) -> Step<Lease> {
    let lease = read_lease(tx, job)?;
    let found = lease.as_ref().and_then(|lease| lease.holder.as_ref().map(|_| lease.fence));
    match lease {
        Some(lease) if found == Some(fence) => Ok(lease),
        _ => Err(CommitError::Fenced { job, fence, found }),
    }
}

/// Takes a job off its queue or from its worker; the fence stays, so that late results show.
fn release(tx: &mut Tx<'_>, job: JobId) -> Step<Option<Lease>> {
    let Some(mut lease) = read_lease(tx, job)? else { return Ok(None) };
    if let Some((_, until)) = lease.holder.take() {
        tx.delete(TIMERS, timer(until, TimerKind::LeaseEnd, job));
    }
    if let Some(place) = lease.place.take() {
        tx.delete(QUEUE, place);
    }
    Ok(Some(lease))
}

fn end_lease(tx: &mut Tx<'_>, job: JobId) -> Step<()> {
    if release(tx, job)?.is_some() {
        tx.delete(LEASES, *job.as_bytes());
    }
    Ok(())
}

fn offer(tx: &mut Tx<'_>, job: JobId, queue: String, priority: u8, ready_at: i64) -> Step<()> {
    let row = live_row(tx, job)?;
    let mut lease = release(tx, job)?.unwrap_or_default();
    let place = queued(&queue, priority, ready_at, row.order).to_vec();
    let mut value = job.as_bytes().to_vec();
    value.extend_from_slice(queue.as_bytes());
    tx.put(QUEUE, place.as_slice(), value);
    lease.place = Some(place);
    tx.put(LEASES, *job.as_bytes(), lease.write());
    Ok(())
}

fn withdraw(tx: &mut Tx<'_>, job: JobId) -> Step<()> {
    if let Some(lease) = release(tx, job)? {
        tx.put(LEASES, *job.as_bytes(), lease.write());
    }
    Ok(())
}

fn renew(tx: &mut Tx<'_>, job: JobId, fence: u64, until: i64) -> Step<()> {
    let mut lease = check_fence(tx, job, fence)?;
    if let Some((_, end)) = &mut lease.holder {
        tx.delete(TIMERS, timer(*end, TimerKind::LeaseEnd, job));
        *end = until;
        tx.put(TIMERS, timer(until, TimerKind::LeaseEnd, job), Vec::new());
    }
    tx.put(LEASES, *job.as_bytes(), lease.write());
    Ok(())
}

/// Gives the first job that is ready to a worker.
pub(super) fn claim(
    tx: &mut Tx<'_>,
    queue: &str,
    worker: &str,
    now: i64,
    until: i64,
) -> Step<Option<Claim>> {
    let scope = queue_scope(queue);
    // One look per priority that is in use: within one, the earliest ready comes first.
    let mut from = scope.to_vec();
    loop {
        let upper = KeyRange::prefix(&scope).upper;
        let range = KeyRange { lower: std::ops::Bound::Included(from.as_slice().into()), upper };
        let rows = tx.range(QUEUE, &range, Direction::Forward, 1)?;
        let Some((key, value)) = rows.into_iter().next() else { return Ok(None) };
        let is_ready = key.len() == 25 && key[9..17] <= time(now)[..];
        if is_ready && value.get(16..) == Some(queue.as_bytes()) {
            let id: [u8; 16] = value[..16].try_into().map_err(|_| Damaged("queued job"))?;
            return lease(tx, JobId::from_bytes(id), worker, until).map(Some);
        }
        if key.len() != 25 || key[8] == u8::MAX {
            return Ok(None);
        }
        from = scope.to_vec();
        from.push(key[8] + 1);
    }
}

fn lease(tx: &mut Tx<'_>, job: JobId, worker: &str, until: i64) -> Step<Claim> {
    let mut lease = release(tx, job)?.unwrap_or_default();
    lease.fence += 1;
    lease.holder = Some((worker.to_owned(), until));
    tx.put(LEASES, *job.as_bytes(), lease.write());
    tx.put(TIMERS, timer(until, TimerKind::LeaseEnd, job), Vec::new());
    Ok(Claim { job, fence: lease.fence, worker: worker.to_owned(), until })
}

fn put_root(
    tx: &mut Tx<'_>,
    key: RootKey,
    expected: Option<ValueId>,
    value: Option<ReadyRoot>,
    named: &Named,
) -> Step<()> {
    let row = keys::root(&key);
    let found = tx.get(ROOTS, &row)?.map(|held| ValueId::of_encoding(&held));
    if found != expected {
        return Err(CommitError::RootMoved { key, expected, found });
    }
    match value {
        Some(root) => {
            put_cells(tx, &root.cells, named)?;
            root.needed.iter().try_for_each(|id| check_held(tx, id, named))?;
            tx.put(ROOTS, row, root.encoding);
        }
        None => tx.delete(ROOTS, row),
    }
    Ok(())
}

fn remember(tx: &mut Tx<'_>, entry: &Idempotency, row: Vec<u8>) -> Step<()> {
    let key = keys::idempotency(&entry.owner, &entry.endpoint, &entry.key);
    if let Some(held) = tx.get(IDEMPOTENCY, &key)? {
        return Err(CommitError::KeyTaken(Box::new(read_idempotency(&held)?)));
    }
    let held = count_keys(tx, &key, 1)?;
    if held >= IDEMPOTENCY_KEYS_MAX {
        return Err(CommitError::KeysFull { held });
    }
    tx.put(EXPIRY, keys::expiry(entry.expires, &key), Vec::new());
    tx.put(IDEMPOTENCY, key, row);
    Ok(())
}

/// Changes the number of keys an owner holds; returns what it was.
fn count_keys(tx: &mut Tx<'_>, key: &[u8], change: i64) -> Step<u64> {
    let mut name = b"keys ".to_vec();
    name.extend_from_slice(&key[..8]);
    let held = match tx.get(META, &name)? {
        Some(row) => u64::from_be_bytes(row[..].try_into().map_err(|_| Damaged("key count"))?),
        None => 0,
    };
    tx.put(META, name, held.saturating_add_signed(change).to_be_bytes());
    Ok(held)
}

fn expire(tx: &mut Tx<'_>, before: i64, limit: usize) -> Step<u64> {
    let range = KeyRange::between(Vec::new(), time(before).to_vec());
    let rows = tx.range(EXPIRY, &range, Direction::Forward, limit)?;
    for (key, _) in &rows {
        let idempotency = key.get(8..).ok_or(Damaged("expiry"))?;
        count_keys(tx, idempotency, -1)?;
        tx.delete(IDEMPOTENCY, idempotency);
        tx.delete(EXPIRY, key.clone());
    }
    Ok(rows.len() as u64)
}

//! Every table and every key of the store.
//!
//! Numbers and names are part of the stored format: the number of a removed table is never reused. Keys
//! are fixed in width where they can be, numbers big-endian, so that their order is the order of
//! what they mean.

use std::cell::RefCell;
use std::hash::BuildHasher as _;

use catena_job::{JobId, Status};
use catena_value::ValueId;
use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};

use crate::bytes::{DamagedRow, FieldReader, put_bytes, put_time};
use crate::row::JobRow;
use crate::store::{ChangeKind, HoldState, LiveHold, LiveJob, RootKey, TimerKind};
use crate::summary::{Summary, status_byte, status_from_byte};
use catena_ledger::{Key, RowBytes, Slot, Table, TableId};

/// Declares the tables once: their constants and their list.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $text:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: TableId = TableId($id);)*
        pub(crate) const TABLES: &[Table] = &[$(Table { id: $name, name: $text }),*];
    };
}

tables! {
    /// Primary. Job ID → the job's row: summary, head, open records.
    JOBS = 1, "jobs";
    /// Primary. Job ID, index of the first record → records that no longer fit the row.
    CHUNKS = 2, "chunks";
    /// Primary. Value ID → encoded cell, stored once.
    CELLS = 3, "cells";
    /// Primary. Space, owner, name → the root cell of an agent, a workspace, an asset…
    ROOTS = 4, "roots";
    /// Primary. Job ID → its off-chain state: changes, progress, message counters. The stored name is
    /// part of the format.
    SIDECARS = 5, "beside";
    /// Primary. Job ID, number → a waiting message.
    MESSAGES = 6, "messages";
    /// Primary. Job ID, hash of the message ID → empty: messages that a job has received.
    MESSAGE_IDS = 7, "message_ids";
    /// Primary. Owner, hash of endpoint and key → the stored response.
    IDEMPOTENCY = 8, "idempotency";
    /// Primary. Job ID → its entry on a queue. The stored name is part of the format: rows of format 1
    /// also contain a lease.
    LEASES = 9, "leases";
    /// Primary. Queue, priority, ready time, order → job ID.
    QUEUE = 10, "queue";
    /// Primary. Digest → a small blob, or the length of one in a file.
    BLOBS = 11, "blobs";
    /// Primary. Name → one number.
    META = 12, "meta";
    /// Primary. Position of the first entry → position, job, owner, kind and parent of each: changes of
    /// jobs after their first commit, and all changes of sub-jobs. The oldest are removed.
    CHANGES = 13, "changes";
    /// Index. Scope, order → job ID and the entry that a list shows.
    LISTS = 20, "lists";
    /// Index. Job ID → status, owner and holder: jobs that have not ended. Empty in rows of format 1.
    LIVE = 21, "live";
    /// Index. Time, kind, job ID → empty: deadlines.
    TIMERS = 22, "timers";
    /// Index. Owner and execution key, order → job ID.
    EXECUTIONS = 23, "executions";
    /// Index. Time, idempotency key → empty: when the key expires.
    EXPIRY = 24, "expiry";
    /// Index. Order of the first entry → order and job ID of each: the jobs of all owners, without
    /// sub-jobs.
    EVERYONE = 25, "everyone";
}

/// The tables that can be dropped and rebuilt.
pub(crate) const INDEXES: [TableId; 6] = [LISTS, LIVE, TIMERS, EXECUTIONS, EXPIRY, EVERYONE];

/// The first eight bytes of a hash of these parts. Rows found by it are checked against the parts
/// themselves, so a collision costs a lookup and nothing else.
pub(crate) fn scope(parts: &[&[u8]]) -> [u8; 8] {
    SCOPES.with_borrow_mut(|scopes| scopes.find(parts))
}

/// Scopes cached on each thread.
const CACHED_SCOPES: usize = 512;

thread_local! {
    /// A job needs a dozen scopes, and most jobs have the same owner, operation and queue as others:
    /// this saves hashing.
    static SCOPES: RefCell<ScopeCache> = RefCell::default();
}

/// What was hashed, and the scope.
type CachedScope = (Box<[u8]>, [u8; 8]);

struct ScopeCache {
    /// What is hashed: every part after its length.
    hashed: Vec<u8>,
    slots: Vec<Option<CachedScope>>,
    slot_hash: RandomState,
}

impl Default for ScopeCache {
    fn default() -> Self {
        ScopeCache {
            hashed: Vec::new(),
            slots: vec![None; CACHED_SCOPES],
            slot_hash: RandomState::default(),
        }
    }
}

impl ScopeCache {
    fn find(&mut self, parts: &[&[u8]]) -> [u8; 8] {
        self.hashed.clear();
        for part in parts {
            self.hashed.extend_from_slice(&(part.len() as u64).to_be_bytes());
            self.hashed.extend_from_slice(part);
        }
        let slot = self.slot_hash.hash_one(self.hashed.as_slice()) as usize % CACHED_SCOPES;
        match &mut self.slots[slot] {
            Some((hashed, scope)) if **hashed == *self.hashed => *scope,
            slot => {
                let mut scope = [0; 8];
                scope.copy_from_slice(&Sha256::digest(&self.hashed)[..8]);
                *slot = Some((self.hashed.as_slice().into(), scope));
                scope
            }
        }
    }
}

pub(crate) fn owner_scope(owner: &str) -> [u8; 8] {
    scope(&[b"owner", owner.as_bytes()])
}

pub(crate) fn status_scope(owner: &str, status: Status) -> [u8; 8] {
    scope(&[b"status", owner.as_bytes(), &[status_byte(status)]])
}

pub(crate) fn op_scope(owner: &str, op: &str) -> [u8; 8] {
    scope(&[b"op", owner.as_bytes(), op.as_bytes()])
}

pub(crate) fn tag_scope(owner: &str, tag: &str) -> [u8; 8] {
    scope(&[b"tag", owner.as_bytes(), tag.as_bytes()])
}

pub(crate) fn execution_scope(owner: &str, key: &str) -> [u8; 8] {
    scope(&[b"execution", owner.as_bytes(), key.as_bytes()])
}

pub(crate) fn list_key(scope: [u8; 8], order: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scope);
    key[8..].copy_from_slice(&order.to_be_bytes());
    key
}

pub(crate) fn chunk_key(job: JobId, first: u64) -> [u8; 24] {
    numbered_key(job, first)
}

pub(crate) fn message_key(job: JobId, number: u64) -> [u8; 24] {
    numbered_key(job, number)
}

fn numbered_key(job: JobId, number: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(job.as_bytes());
    key[16..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn message_id_key(job: JobId, id: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(job.as_bytes());
    key[16..].copy_from_slice(&Sha256::digest(id.as_bytes())[..16]);
    key
}

/// The owner comes first, so that a caller's keys are adjacent and can be counted.
pub(crate) fn idempotency_key(owner: &str, endpoint: &str, key: &str) -> [u8; 24] {
    let mut hash = Sha256::new();
    for part in [owner, endpoint, key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut row = [0; 24];
    row[..8].copy_from_slice(&owner_scope(owner));
    row[8..].copy_from_slice(&hash.finalize()[..16]);
    row
}

/// The name of the number of jobs below a root.
pub(crate) fn sub_jobs_name(root: JobId) -> Vec<u8> {
    [b"sub-jobs ", root.as_bytes().as_slice()].concat()
}

pub(crate) fn expiry_key(at: i64, idempotency: &[u8]) -> Vec<u8> {
    let mut key = time_key(at).to_vec();
    key.extend_from_slice(idempotency);
    key
}

pub(crate) fn timer_key(at: i64, kind: TimerKind, job: JobId) -> [u8; 25] {
    let mut key = [0; 25];
    key[..8].copy_from_slice(&time_key(at));
    key[8] = kind as u8;
    key[9..].copy_from_slice(job.as_bytes());
    key
}

/// A time in ms as it is stored in keys: never negative.
pub(crate) fn time_key(at: i64) -> [u8; 8] {
    (at.max(0) as u64).to_be_bytes()
}

/// Sorted by descending priority, then by the time at which jobs become ready, then by order.
pub(crate) fn queue_key(queue: &str, priority: u8, ready_at: i64, order: u64) -> [u8; 25] {
    let mut key = [0; 25];
    key[..8].copy_from_slice(&queue_scope(queue));
    key[8] = u8::MAX - priority;
    key[9..17].copy_from_slice(&time_key(ready_at));
    key[17..].copy_from_slice(&order.to_be_bytes());
    key
}

/// When the job of an entry may be started, as Unix time in ms.
pub(crate) fn queue_ready_at(key: &[u8]) -> Result<i64, DamagedRow> {
    let time = key.get(9..17).and_then(|time| time.try_into().ok());
    let time = time.map(u64::from_be_bytes).and_then(|time| i64::try_from(time).ok());
    time.ok_or(DamagedRow("ready time"))
}

pub(crate) fn queue_scope(queue: &str) -> [u8; 8] {
    scope(&[b"queue", queue.as_bytes()])
}

pub(crate) fn root_key(key: &RootKey) -> Vec<u8> {
    let mut row = root_prefix(key.space as u8, &key.owner);
    row.extend_from_slice(key.name.as_bytes());
    row
}

/// The space, the owner and the name of a root. `None` if the key is no key of a root.
pub(crate) fn parse_root_key(key: &[u8]) -> Option<(u8, &str, &[u8])> {
    let (space, rest) = key.split_first()?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some((*space, std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
}

/// Everything of one owner in one space. A zero byte cannot occur in an owner's name.
pub(crate) fn root_prefix(space: u8, owner: &str) -> Vec<u8> {
    let mut prefix = vec![space];
    prefix.extend_from_slice(owner.as_bytes());
    prefix.push(0);
    prefix
}

pub(crate) fn cell_key(id: &ValueId) -> &[u8] {
    id.as_bytes()
}

/// One row of an index.
pub(crate) type IndexRow = (TableId, Key, RowBytes);

/// The index rows of a job: a pure function of its summary. All hashing is done when this is built;
/// the job's position in the order of commits is added later.
#[derive(Debug, Clone)]
pub(crate) struct IndexFacts {
    job: JobId,
    owner: [u8; 8],
    parent: Option<JobId>,
    lists: Option<ListEntries>,
    execution: Option<[u8; 8]>,
    live: Option<LiveFacts>,
    deadline: Option<i64>,
}

/// What the index of live jobs says of a job, without its holder.
#[derive(Debug, Clone, Copy)]
struct LiveFacts {
    status: Status,
    owner: [u8; 8],
    is_sub_job: bool,
}

impl IndexFacts {
    pub(crate) fn from_summary(job: JobId, summary: &Summary) -> Self {
        let key = summary.execution_key.as_deref();
        let is_live = summary.is_live();
        let owner = owner_scope(&summary.owner);
        IndexFacts {
            job,
            owner,
            parent: summary.parent.as_ref().map(|parent| parent.job),
            lists: ListEntries::from_summary(job, summary, owner),
            execution: key.map(|key| execution_scope(&summary.owner, key)),
            live: is_live.then(|| LiveFacts {
                status: summary.status,
                owner,
                is_sub_job: summary.parent.is_some(),
            }),
            deadline: summary.deadline.filter(|_| is_live),
        }
    }

    /// The key of the job's owner.
    pub(crate) fn owner(&self) -> [u8; 8] {
        self.owner
    }

    /// The key of the owner if the job is live and counts among those of its owner.
    pub(crate) fn live_owner(&self) -> Option<[u8; 8]> {
        self.live.filter(|live| !live.is_sub_job).map(|live| live.owner)
    }

    /// Calls `visit` with every index row of the job.
    pub(crate) fn visit_rows(
        &self,
        order: u64,
        hold: &HoldState,
        mut visit: impl FnMut(TableId, Key, RowBytes),
    ) {
        let id = *self.job.as_bytes();
        if let Some(lists) = &self.lists {
            visit(LISTS, Key::from(list_key(lists.owner, order)), lists.owner_entry.clone());
            for scope in [lists.op].iter().chain(&lists.status).chain(&lists.tags) {
                visit(LISTS, Key::from(list_key(*scope, order)), RowBytes::from(id));
            }
        }
        if let Some(live) = self.live {
            visit(LIVE, Key::from(id), encode_live(live, hold.to_live()));
        }
        if let Some(deadline) = self.deadline {
            visit(
                TIMERS,
                timer_key(deadline, TimerKind::Deadline, self.job).into(),
                RowBytes::from([]),
            );
        }
        if let Some(scope) = self.execution {
            visit(EXECUTIONS, Key::from(list_key(scope, order)), RowBytes::from(id));
        }
    }

    /// Calls `visit` with every index row that has changed since the job was in an earlier state.
    pub(crate) fn visit_changes(
        &self,
        order: u64,
        owner: &str,
        old: &IndexState,
        new: &IndexState,
        mut visit: impl FnMut(TableId, Key, Slot),
    ) {
        let id = *self.job.as_bytes();
        if let Some(lists) = &self.lists {
            if (old.status, old.updated) != (new.status, new.updated) {
                let entry = Slot::Put(lists.owner_entry.clone());
                visit(LISTS, list_key(lists.owner, order).into(), entry);
            }
            if old.status != new.status {
                if let Some(scope) = lists.status {
                    visit(LISTS, list_key(scope, order).into(), Slot::New(id.into()));
                }
                if let Some(scope) = status_list(owner, old.status) {
                    visit(LISTS, list_key(scope, order).into(), Slot::Deleted);
                }
            }
        }
        match self.live {
            Some(live) if (old.status, old.hold) != (new.status, new.hold) => {
                visit(LIVE, id.into(), Slot::Put(encode_live(live, new.hold)));
            }
            None if !old.status.is_terminal() => visit(LIVE, id.into(), Slot::Deleted),
            _ => {}
        }
        if old.deadline != new.deadline {
            let key = |at| Key::from(timer_key(at, TimerKind::Deadline, self.job));
            if let Some(deadline) = new.deadline {
                visit(TIMERS, key(deadline), Slot::New(RowBytes::from([])));
            }
            if let Some(deadline) = old.deadline {
                visit(TIMERS, key(deadline), Slot::Deleted);
            }
        }
    }

    /// The entry of [`EVERYONE`] for the job. `None` if it is a sub-job.
    pub(crate) fn listed(&self, order: u64) -> Option<[u8; LISTED_BYTES]> {
        self.lists.is_some().then(|| listed_entry(order, self.job))
    }

    /// The entry of [`CHANGES`] for a change of the job.
    pub(crate) fn change(&self, position: u64, kind: ChangeKind) -> [u8; CHANGE_BYTES] {
        let mut entry = [0; CHANGE_BYTES];
        entry[..8].copy_from_slice(&position.to_be_bytes());
        entry[8..24].copy_from_slice(self.job.as_bytes());
        entry[24..32].copy_from_slice(&self.owner);
        entry[32] = kind as u8;
        if let Some(parent) = &self.parent {
            entry[32] |= HAS_PARENT;
            entry[33..].copy_from_slice(parent.as_bytes());
        }
        entry
    }

    /// All index rows of the job, except its entry in [`EVERYONE`], which shares a row with others.
    pub(crate) fn rows(&self, order: u64, hold: &HoldState) -> Vec<IndexRow> {
        let mut rows = Vec::new();
        self.visit_rows(order, hold, |table, key, value| rows.push((table, key, value)));
        rows
    }
}

/// The lists that contain a job, by their scopes.
#[derive(Debug, Clone)]
struct ListEntries {
    owner: [u8; 8],
    /// The entry of the owner's list; the other lists hold only the job's ID.
    owner_entry: RowBytes,
    op: [u8; 8],
    /// `None` if the job is COMPLETE.
    status: Option<[u8; 8]>,
    tags: Vec<[u8; 8]>,
}

impl ListEntries {
    /// `None` for sub-jobs: they are found through their parents, and lists show what callers
    /// invoked. Nearly every job ends up COMPLETE, so the owner's own list serves as the list of
    /// those.
    fn from_summary(job: JobId, summary: &Summary, owner_scope: [u8; 8]) -> Option<Self> {
        if summary.parent.is_some() {
            return None;
        }
        let owner = summary.owner.as_str();
        Some(ListEntries {
            owner: owner_scope,
            owner_entry: encode_owner_entry(job, summary, owner_check(owner)),
            op: op_scope(owner, &summary.op),
            status: status_list(owner, summary.status),
            tags: summary.tags.iter().map(|tag| tag_scope(owner, tag)).collect(),
        })
    }
}

/// The list of an owner's jobs of a status. `None` for COMPLETE.
fn status_list(owner: &str, status: Status) -> Option<[u8; 8]> {
    (status != Status::Complete).then(|| status_scope(owner, status))
}

/// The state of a job as far as its index rows depend on it and later records can change it.
pub(crate) struct IndexState {
    status: Status,
    updated: i64,
    deadline: Option<i64>,
    hold: LiveHold,
}

impl IndexState {
    pub(crate) fn from_row(row: &JobRow) -> Self {
        let Summary { status, updated, deadline, .. } = row.summary;
        let deadline = deadline.filter(|_| row.summary.is_live());
        IndexState { status, updated, deadline, hold: row.hold.to_live() }
    }
}

/// All index rows of a job.
pub(crate) fn index_rows(job: JobId, row: &JobRow) -> Vec<IndexRow> {
    IndexFacts::from_summary(job, &row.summary).rows(row.order, &row.hold)
}

/// The bytes of an entry of [`EVERYONE`].
pub(crate) const LISTED_BYTES: usize = 24;

/// The bytes of an entry of [`CHANGES`].
pub(crate) const CHANGE_BYTES: usize = 49;

/// The bit of an entry's kind which says that the job has a parent.
const HAS_PARENT: u8 = 0x80;

/// The entry of [`EVERYONE`] for a job.
pub(crate) fn listed_entry(order: u64, job: JobId) -> [u8; LISTED_BYTES] {
    let mut entry = [0; LISTED_BYTES];
    entry[..8].copy_from_slice(&order.to_be_bytes());
    entry[8..].copy_from_slice(job.as_bytes());
    entry
}

/// A decoded entry of [`CHANGES`].
pub(crate) struct ChangeRow {
    pub(crate) job: JobId,
    pub(crate) owner: [u8; 8],
    pub(crate) kind: ChangeKind,
    pub(crate) parent: Option<JobId>,
}

/// Decodes an entry of [`CHANGES`] without its position.
pub(crate) fn decode_change(value: &[u8]) -> Result<ChangeRow, DamagedRow> {
    let mut fields = FieldReader::new(value);
    let job = JobId::from_bytes(fields.array("job")?);
    let owner = fields.array("owner")?;
    let kind = fields.byte("kind")?;
    let has_parent = kind & HAS_PARENT != 0;
    let kind = match kind & !HAS_PARENT {
        1 => ChangeKind::Created,
        2 => ChangeKind::Changed,
        3 => ChangeKind::Deleted,
        _ => return Err(DamagedRow("kind")),
    };
    let parent = JobId::from_bytes(fields.array("parent")?);
    Ok(ChangeRow { job, owner, kind, parent: has_parent.then_some(parent) })
}

/// The flags of an entry in the index of live jobs. At most one of the last three is set.
const SUB_JOB: u8 = 1;
const HELD: u8 = 2;
const PARKED: u8 = 4;
const RELEASED: u8 = 8;

fn encode_live(live: LiveFacts, hold: LiveHold) -> RowBytes {
    let mut value = Vec::with_capacity(18);
    let flag = match hold {
        LiveHold::Never => 0,
        LiveHold::Released => RELEASED,
        LiveHold::Parked => PARKED,
        LiveHold::By(_) => HELD,
    };
    value.push(status_byte(live.status));
    value.push(flag | if live.is_sub_job { SUB_JOB } else { 0 });
    value.extend_from_slice(&live.owner);
    if let LiveHold::By(key) = hold {
        value.extend_from_slice(&key);
    }
    value.into()
}

/// Decodes an entry of the index of live jobs. `None` if it is one of format 1, which is empty.
pub(crate) fn decode_live(job: JobId, value: &[u8]) -> Result<Option<LiveJob>, DamagedRow> {
    if value.is_empty() {
        return Ok(None);
    }
    let mut fields = FieldReader::new(value);
    let status = status_from_byte(fields.byte("status")?)?;
    let flags = fields.byte("flags")?;
    let owner = fields.array("owner")?;
    let hold = match flags & !SUB_JOB {
        0 => LiveHold::Never,
        RELEASED => LiveHold::Released,
        PARKED => LiveHold::Parked,
        HELD => LiveHold::By(fields.array("holder")?),
        _ => return Err(DamagedRow("flags")),
    };
    Ok(Some(LiveJob { job, status, owner, is_sub_job: flags & SUB_JOB != 0, hold }))
}

/// The entry of the index of live jobs that a row leads to.
pub(crate) fn live_job(job: JobId, row: &JobRow) -> LiveJob {
    LiveJob {
        job,
        status: row.summary.status,
        owner: owner_scope(&row.summary.owner),
        is_sub_job: row.summary.parent.is_some(),
        hold: row.hold.to_live(),
    }
}

/// Encodes the entry of the owner's list, which is shown without reading the job.
fn encode_owner_entry(job: JobId, summary: &Summary, owner_check: [u8; 8]) -> RowBytes {
    let mut value = Vec::with_capacity(48 + summary.op.len());
    value.extend_from_slice(job.as_bytes());
    value.extend_from_slice(&owner_check);
    value.push(status_byte(summary.status));
    put_time(summary.created, &mut value);
    put_time(summary.updated, &mut value);
    put_bytes(summary.op.as_bytes(), &mut value);
    value.into()
}

/// A second hash, which distinguishes owners whose scopes collide.
pub(crate) fn owner_check(owner: &str) -> [u8; 8] {
    scope(&[b"owner check", owner.as_bytes()])
}

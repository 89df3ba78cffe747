//! Every table and every key, in one place.
//!
//! Numbers and names are part of the stored format: a table that goes away keeps its number. Keys
//! are fixed in width where they can be, numbers big-endian, so that their order is the order of
//! what they mean.

use std::cell::RefCell;
use std::hash::BuildHasher as _;

use catena_job::{JobId, Status};
use catena_value::ValueId;
use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};

use crate::bytes::{put_run, put_time};
use crate::store::{RootKey, TimerKind};
use crate::summary::{Summary, status_byte};
use catena_ledger::{Key, Table, TableId, Value as Row};

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
    /// Primary. Job ID → what stands beside its chain: changes, progress, message counters.
    BESIDE = 5, "beside";
    /// Primary. Job ID, number → a waiting message.
    MESSAGES = 6, "messages";
    /// Primary. Job ID, hash of the message ID → nothing: messages a job has had.
    MESSAGE_IDS = 7, "message_ids";
    /// Primary. Owner, hash of endpoint and key → what was answered.
    IDEMPOTENCY = 8, "idempotency";
    /// Primary. Job ID → who may run it, until when, with which fence.
    LEASES = 9, "leases";
    /// Primary. Queue, priority, ready time, order → job ID.
    QUEUE = 10, "queue";
    /// Primary. Digest → a small blob, or the length of one in a file.
    BLOBS = 11, "blobs";
    /// Primary. Name → one number.
    META = 12, "meta";
    /// Index. Scope, order → job ID and what a list shows.
    LISTS = 20, "lists";
    /// Index. Job ID → nothing: jobs that have not ended.
    LIVE = 21, "live";
    /// Index. Time, kind, job ID → nothing: deadlines and ends of leases.
    TIMERS = 22, "timers";
    /// Index. Owner and execution key, order → job ID.
    EXECUTIONS = 23, "executions";
    /// Index. Time, idempotency key → nothing: when it is forgotten.
    EXPIRY = 24, "expiry";
}

/// The tables that can be dropped and made anew.
pub(crate) const INDEXES: [TableId; 5] = [LISTS, LIVE, TIMERS, EXECUTIONS, EXPIRY];

/// The first eight bytes of a hash of these parts. Rows found by it are checked against the parts
/// themselves, so a collision costs a look and nothing else.
pub(crate) fn scope(parts: &[&[u8]]) -> [u8; 8] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut scope = [0; 8];
    scope.copy_from_slice(&hash.finalize()[..8]);
    scope
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

pub(crate) fn ordered(scope: [u8; 8], order: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scope);
    key[8..].copy_from_slice(&order.to_be_bytes());
    key
}

pub(crate) fn chunk(job: JobId, first: u64) -> [u8; 24] {
    numbered(job, first)
}

pub(crate) fn message(job: JobId, number: u64) -> [u8; 24] {
    numbered(job, number)
}

fn numbered(job: JobId, number: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(job.as_bytes());
    key[16..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn message_id(job: JobId, id: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(job.as_bytes());
    key[16..].copy_from_slice(&Sha256::digest(id.as_bytes())[..16]);
    key
}

/// Owner first, so that a caller's keys lie together and can be counted.
pub(crate) fn idempotency(owner: &str, endpoint: &str, key: &str) -> [u8; 24] {
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

pub(crate) fn expiry(at: i64, idempotency: &[u8]) -> Vec<u8> {
    let mut key = time(at).to_vec();
    key.extend_from_slice(idempotency);
    key
}

pub(crate) fn timer(at: i64, kind: TimerKind, job: JobId) -> [u8; 25] {
    let mut key = [0; 25];
    key[..8].copy_from_slice(&time(at));
    key[8] = kind as u8;
    key[9..].copy_from_slice(job.as_bytes());
    key
}

/// A time as it stands in keys: never negative.
pub(crate) fn time(at: i64) -> [u8; 8] {
    (at.max(0) as u64).to_be_bytes()
}

/// Higher priorities first, then by the time they became ready, then by order.
pub(crate) fn queued(queue: &str, priority: u8, ready_at: i64, order: u64) -> [u8; 25] {
    let mut key = [0; 25];
    key[..8].copy_from_slice(&queue_scope(queue));
    key[8] = u8::MAX - priority;
    key[9..17].copy_from_slice(&time(ready_at));
    key[17..].copy_from_slice(&order.to_be_bytes());
    key
}

pub(crate) fn queue_scope(queue: &str) -> [u8; 8] {
    scope(&[b"queue", queue.as_bytes()])
}

pub(crate) fn root(key: &RootKey) -> Vec<u8> {
    let mut row = root_prefix(key.space as u8, &key.owner);
    row.extend_from_slice(key.name.as_bytes());
    row
}

/// Everything of one owner in one space. A zero byte cannot occur in an owner's name.
pub(crate) fn root_prefix(space: u8, owner: &str) -> Vec<u8> {
    let mut prefix = vec![space];
    prefix.extend_from_slice(owner.as_bytes());
    prefix.push(0);
    prefix
}

pub(crate) fn cell(id: &ValueId) -> &[u8] {
    id.as_bytes()
}

/// One row of an index.
pub(crate) type IndexRow = (TableId, Key, Row);

/// What the indexes are to hold of a job: a pure function of its summary. Everything that costs
/// hashing is done when this is made; where the job stands in the order is added later.
#[derive(Debug, Clone)]
pub(crate) struct IndexFacts {
    job: JobId,
    lists: Option<Lists>,
    execution: Option<[u8; 8]>,
    is_live: bool,
    deadline: Option<i64>,
}

impl IndexFacts {
    pub(crate) fn of(job: JobId, summary: &Summary) -> Self {
        let key = summary.execution_key.as_deref();
        let is_live = summary.is_live();
        IndexFacts {
            job,
            lists: Lists::of(job, summary),
            execution: key.map(|key| execution_scope(&summary.owner, key)),
            is_live,
            deadline: summary.deadline.filter(|_| is_live),
        }
    }

    /// Gives every index row of the job.
    pub(crate) fn each(&self, order: u64, mut give: impl FnMut(TableId, Key, Row)) {
        let id = *self.job.as_bytes();
        if let Some(lists) = &self.lists {
            give(LISTS, Key::from(ordered(lists.owner, order)), lists.shown.clone());
            for scope in [lists.op].iter().chain(&lists.others) {
                give(LISTS, Key::from(ordered(*scope, order)), Row::from(id));
            }
        }
        if self.is_live {
            give(LIVE, Key::from(id), Row::from([]));
        }
        if let Some(deadline) = self.deadline {
            give(TIMERS, timer(deadline, TimerKind::Deadline, self.job).into(), Row::from([]));
        }
        if let Some(scope) = self.execution {
            give(EXECUTIONS, Key::from(ordered(scope, order)), Row::from(id));
        }
    }

    /// Every index row of the job.
    pub(crate) fn rows(&self, order: u64) -> Vec<IndexRow> {
        let mut rows = Vec::new();
        self.each(order, |table, key, value| rows.push((table, key, value)));
        rows
    }
}

/// The lists a job is on, by their scopes.
#[derive(Debug, Clone)]
struct Lists {
    owner: [u8; 8],
    /// What the owner's list shows; the others hold the job's ID alone.
    shown: Row,
    op: [u8; 8],
    others: Vec<[u8; 8]>,
}

impl Lists {
    /// Sub-jobs are on none: they are found through their parents, and lists show what callers
    /// asked for. Nearly every job ends up COMPLETE, so the owner's own list serves as the list of
    /// those.
    fn of(job: JobId, summary: &Summary) -> Option<Self> {
        if summary.parent.is_some() {
            return None;
        }
        let owner = summary.owner.as_str();
        let scopes = Scopes::of(owner, &summary.op);
        let status =
            (summary.status != Status::Complete).then(|| status_scope(owner, summary.status));
        let tags = summary.tags.iter().map(|tag| tag_scope(owner, tag));
        Some(Lists {
            owner: scopes.owner,
            shown: shown(job, summary, scopes.check),
            op: scopes.op,
            others: status.into_iter().chain(tags).collect(),
        })
    }
}

/// The scopes that every job of an owner and operation has.
#[derive(Clone, Copy)]
struct Scopes {
    owner: [u8; 8],
    check: [u8; 8],
    op: [u8; 8],
}

/// Scopes, and of which owner and operation they are.
type KnownScopes = Option<(String, String, Scopes)>;

/// Places for known scopes on each thread.
const KNOWN_SCOPES: usize = 256;

thread_local! {
    /// Jobs come in swarms of the same owners and operations: this saves hashing.
    static SCOPES: RefCell<Vec<KnownScopes>> = RefCell::new(vec![None; KNOWN_SCOPES]);
    static SCOPES_HASH: RandomState = RandomState::default();
}

impl Scopes {
    fn of(owner: &str, op: &str) -> Self {
        let place = SCOPES_HASH.with(|hash| hash.hash_one((owner, op))) as usize % KNOWN_SCOPES;
        SCOPES.with_borrow_mut(|known| match &known[place] {
            Some((its_owner, its_op, scopes)) if its_owner == owner && its_op == op => *scopes,
            _ => {
                let scopes = Scopes {
                    owner: owner_scope(owner),
                    check: owner_check(owner),
                    op: op_scope(owner, op),
                };
                known[place] = Some((owner.to_owned(), op.to_owned(), scopes));
                scopes
            }
        })
    }
}

/// Every index row that a job has.
pub(crate) fn index_rows(job: JobId, order: u64, summary: &Summary) -> Vec<IndexRow> {
    IndexFacts::of(job, summary).rows(order)
}

/// What a list shows without reading the job.
fn shown(job: JobId, summary: &Summary, owner_check: [u8; 8]) -> Row {
    let mut value = Vec::with_capacity(48 + summary.op.len());
    value.extend_from_slice(job.as_bytes());
    value.extend_from_slice(&owner_check);
    value.push(status_byte(summary.status));
    put_time(summary.created, &mut value);
    put_time(summary.updated, &mut value);
    put_run(summary.op.as_bytes(), &mut value);
    value.into()
}

/// Tells owners apart whose scopes collide.
pub(crate) fn owner_check(owner: &str) -> [u8; 8] {
    scope(&[b"owner check", owner.as_bytes()])
}

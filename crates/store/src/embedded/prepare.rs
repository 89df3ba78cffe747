//! What can be done before the committer: encoding, hashing, measuring.

use std::sync::Arc;

use catena_job::{Job, JobId, RecordId};
use catena_value::{Encoded, Survey, ValueId, encode, survey};

use crate::bytes::{put_run, put_time};
use crate::effects::{CommitError, Effect, Effects};
use crate::keys::IndexFacts;
use crate::limits::AHEAD_BYTES;
use crate::row::{JobRow, NewRow, PackedRecords, pack};
use crate::store::{Idempotency, Message, RootKey};
use crate::summary::Summary;

/// Effects ready for the committer.
pub(super) struct Prepared {
    /// Cells that travel ahead, in parts.
    pub(super) ahead: Vec<Vec<Encoded>>,
    pub(super) effects: Vec<Ready>,
}

/// An effect with everything encoded.
pub(super) enum Ready {
    Begin(Box<ReadyBegin>),
    Append(Box<ReadyAppend>),
    Delete {
        job: JobId,
    },
    Progress {
        job: JobId,
        progress: Vec<u8>,
    },
    Touch {
        job: JobId,
    },
    Send {
        job: JobId,
        message: Message,
        row: Vec<u8>,
    },
    Waiting {
        job: JobId,
        count: u32,
    },
    Take {
        job: JobId,
        number: u64,
    },
    Offer {
        job: JobId,
        queue: String,
        priority: u8,
        ready_at: i64,
    },
    Withdraw {
        job: JobId,
    },
    Renew {
        job: JobId,
        fence: u64,
        until: i64,
    },
    Root {
        key: RootKey,
        expected: Option<ValueId>,
        value: Option<ReadyRoot>,
    },
    Remember {
        entry: Idempotency,
        row: Vec<u8>,
    },
    Expire {
        before: i64,
        limit: usize,
    },
    Blob {
        digest: [u8; 32],
        len: u64,
        content: Option<Arc<[u8]>>,
    },
    ForgetBlob {
        digest: [u8; 32],
    },
    /// One that was applied and is spent.
    Applied,
}

impl Ready {
    /// The job that is deleted, or of which something beside the chain changes.
    pub(super) fn touched(&self) -> Option<JobId> {
        match self {
            Ready::Delete { job }
            | Ready::Progress { job, .. }
            | Ready::Touch { job }
            | Ready::Send { job, .. }
            | Ready::Take { job, .. } => Some(*job),
            _ => None,
        }
    }
}

/// A new job, ready but for its place in the order. Nothing else of it goes to the committer, and
/// this goes back from there, so that nothing of it has to be freed there: memory is cheapest to
/// free on the thread that allocated it.
pub(super) struct ReadyBegin {
    pub(super) job: JobId,
    pub(super) fence: Option<u64>,
    pub(super) row: Arc<Vec<u8>>,
    pub(super) facts: IndexFacts,
    pub(super) shared: Vec<Encoded>,
    pub(super) needed: Vec<ValueId>,
}

/// Records that go on with a chain, or begin one that does not fit a row.
pub(super) struct ReadyAppend {
    pub(super) job: Arc<Job>,
    pub(super) after: Option<RecordId>,
    pub(super) fence: Option<u64>,
    pub(super) summary: Summary,
    pub(super) facts: IndexFacts,
    pub(super) packed: PackedRecords,
}

pub(super) struct ReadyRoot {
    pub(super) encoding: Vec<u8>,
    pub(super) cells: Vec<Encoded>,
    /// Cells it refers to without bringing them: what it shares with the value before.
    pub(super) needed: Vec<ValueId>,
}

pub(super) fn prepare(effects: Effects) -> Result<Prepared, CommitError> {
    let mut prepared = Prepared { ahead: Vec::new(), effects: Vec::with_capacity(effects.0.len()) };
    for effect in effects.0 {
        let mut ready = ready(effect)?;
        let cells = match &mut ready {
            Ready::Begin(begin) => &mut begin.shared,
            Ready::Append(append) => &mut append.packed.shared,
            Ready::Root { value: Some(root), .. } => &mut root.cells,
            _ => &mut Vec::new(),
        };
        send_ahead(cells, &mut prepared.ahead);
        prepared.effects.push(ready);
    }
    Ok(prepared)
}

/// Moves cells that are too many for the commit itself into parts of their own.
fn send_ahead(cells: &mut [Encoded], ahead: &mut Vec<Vec<Encoded>>) {
    let total: usize = cells.iter().map(|cell| cell.bytes.len()).sum();
    if total <= AHEAD_BYTES {
        return;
    }
    let (mut part, mut size) = (Vec::new(), 0);
    for cell in cells.iter() {
        size += cell.bytes.len();
        part.push(cell.clone());
        if size > AHEAD_BYTES {
            ahead.push(std::mem::take(&mut part));
            size = 0;
        }
    }
    ahead.push(part);
    // Only their names stay, so that the commit can see that they arrived.
    cells.iter_mut().for_each(|cell| cell.bytes = Vec::new());
}

fn ready(effect: Effect) -> Result<Ready, CommitError> {
    Ok(match effect {
        Effect::Append { job, after, records, fence } => {
            let damaged = |reason: &str| CommitError::Damaged { reason: reason.to_owned() };
            if records.last().map(|record| record.id()) != Some(job.head()) {
                return Err(damaged("the job is not what these records lead to"));
            }
            if job.due().is_some() {
                return Err(damaged("a held outcome must be in the commit that resumes its job"));
            }
            let summary = Summary::of(&job);
            let facts = IndexFacts::of(job.id(), &summary);
            let packed = match after {
                Some(_) => pack(&records),
                None => match JobRow::of_new(&job, &summary, &records) {
                    Ok(NewRow { bytes, shared, needed }) => {
                        let (job, row) = (job.id(), Arc::new(bytes));
                        let begin = ReadyBegin { job, fence, row, facts, shared, needed };
                        return Ok(Ready::Begin(Box::new(begin)));
                    }
                    Err(packed) => packed,
                },
            };
            let append = ReadyAppend { job, after, fence, summary, facts, packed };
            Ready::Append(Box::new(append))
        }
        Effect::Delete { job } => Ready::Delete { job },
        Effect::Progress { job, progress } => {
            Ready::Progress { job, progress: catena_value::encode_message(&progress) }
        }
        Effect::Touch { job } => Ready::Touch { job },
        Effect::Send { job, message } => {
            let mut row = Vec::new();
            put_run(message.id.as_bytes(), &mut row);
            row.extend_from_slice(&catena_value::encode_message(&message.body));
            Ready::Send { job, message, row }
        }
        Effect::Waiting { job, count } => Ready::Waiting { job, count },
        Effect::Take { job, number } => Ready::Take { job, number },
        Effect::Offer { job, queue, priority, ready_at } => {
            Ready::Offer { job, queue, priority, ready_at }
        }
        Effect::Withdraw { job } => Ready::Withdraw { job },
        Effect::Renew { job, fence, until } => Ready::Renew { job, fence, until },
        Effect::Root { key, expected, value } => {
            if key.owner.contains('\0') || key.name.is_empty() {
                let reason = format!("root {key} has no usable name");
                return Err(CommitError::TooLarge { reason });
            }
            let value = value.map(|value| {
                let Survey { cells, unloaded } = survey(&value, |_| false);
                ReadyRoot { encoding: encode(&value), cells, needed: unloaded }
            });
            Ready::Root { key, expected, value }
        }
        Effect::Remember(entry) => {
            let mut row = Vec::new();
            put_time(entry.expires, &mut row);
            row.extend_from_slice(&entry.body_digest);
            for part in [&entry.owner, &entry.endpoint, &entry.key] {
                put_run(part.as_bytes(), &mut row);
            }
            row.extend_from_slice(&catena_value::encode_message(&entry.answer));
            Ready::Remember { entry, row }
        }
        Effect::Expire { before, limit } => Ready::Expire { before, limit },
        Effect::Blob { digest, len, content } => Ready::Blob { digest, len, content },
        Effect::ForgetBlob { digest } => Ready::ForgetBlob { digest },
    })
}

/// The bytes that effects on new jobs come to, as rows one after the other: what a log without
/// anything else would have to write.
#[cfg(feature = "testing")]
pub(super) fn as_log_entry(effects: Effects) -> Result<Vec<u8>, CommitError> {
    let mut entry = Vec::with_capacity(1_024);
    for ready in prepare(effects)?.effects {
        let Ready::Begin(begin) = ready else { continue };
        put_run(begin.job.as_bytes(), &mut entry);
        put_run(&begin.row, &mut entry);
        for (_, key, value) in begin.facts.rows(0) {
            put_run(&key, &mut entry);
            put_run(&value, &mut entry);
        }
    }
    Ok(entry)
}

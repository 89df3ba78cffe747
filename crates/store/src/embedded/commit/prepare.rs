//! Preparation of a commit on the caller's thread: encoding, hashing, measuring.

use std::sync::Arc;

use catena_job::{Job, JobId, RecordId};
use catena_value::{Encoded, Survey, Value, ValueId, encode, encode_message, survey};

#[cfg(feature = "testing")]
use crate::bytes::put_bytes;
use crate::effects::{CommitError, Effect, Effects, Hold};
use crate::embedded::fronts::{QueueKey, lowest_key};
use crate::embedded::rows::{encode_idempotency, encode_job_message};
use crate::keys::IndexFacts;
use crate::limits::AHEAD_BYTES;
use crate::row::{CommitCells, JobRow, NewRow, PackedRecords, pack_records};
use crate::store::{HoldState, Idempotency, Message, RootKey};
use crate::summary::Summary;

/// Effects that are ready for the committer.
pub(super) struct PreparedCommit {
    /// Cells that are sent ahead in entries of their own, grouped by entry.
    pub(super) ahead: Vec<Vec<Encoded>>,
    pub(super) effects: Vec<PreparedEffect>,
}

/// An effect whose values are encoded.
pub(super) enum PreparedEffect {
    Begin(Box<PreparedBegin>),
    Append(Box<PreparedAppend>),
    Delete {
        job: JobId,
    },
    SetProgress {
        job: JobId,
        progress: Vec<u8>,
    },
    Touch {
        job: JobId,
    },
    SendMessage {
        job: JobId,
        message: Message,
        row: Vec<u8>,
    },
    CheckMessageCount {
        job: JobId,
        count: u32,
    },
    TakeMessage {
        job: JobId,
        number: u64,
    },
    ReplaceMessage {
        job: JobId,
        number: u64,
        row: Vec<u8>,
    },
    Enqueue {
        job: JobId,
        queue: String,
        priority: u8,
        ready_at: i64,
    },
    Dequeue {
        job: JobId,
    },
    SetHold {
        job: JobId,
        after: RecordId,
        hold: Hold,
    },
    CheckHead {
        job: JobId,
        head: RecordId,
    },
    CountSubJobs {
        root: JobId,
        count: u64,
        max: u64,
    },
    SetRoot {
        key: RootKey,
        expected: Option<ValueId>,
        value: Option<PreparedRoot>,
    },
    SetRootIfAbsent {
        key: RootKey,
        value: PreparedRoot,
    },
    StoreIdempotency {
        entry: Idempotency,
        row: Vec<u8>,
    },
    ExpireIdempotency {
        before: i64,
        limit: usize,
    },
    StoreBlob {
        digest: [u8; 32],
        len: u64,
        content: Option<Arc<[u8]>>,
    },
    DeleteBlob {
        digest: [u8; 32],
    },
    /// The effect was applied; its parts have been moved out.
    Applied,
}

impl PreparedEffect {
    /// The job that is deleted, or whose off-chain state changes.
    pub(super) fn touched_job(&self) -> Option<JobId> {
        match self {
            PreparedEffect::Delete { job }
            | PreparedEffect::SetProgress { job, .. }
            | PreparedEffect::Touch { job }
            | PreparedEffect::SendMessage { job, .. }
            | PreparedEffect::TakeMessage { job, .. } => Some(*job),
            _ => None,
        }
    }

    /// The new value of a root.
    pub(super) fn new_root(&self) -> Option<&PreparedRoot> {
        match self {
            PreparedEffect::SetRoot { value, .. } => value.as_ref(),
            PreparedEffect::SetRootIfAbsent { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The lowest key that the entry can have which is added to a queue.
    pub(super) fn queue_key(&self) -> Option<QueueKey> {
        match self {
            PreparedEffect::Enqueue { queue, priority, ready_at, .. } => {
                Some(lowest_key(queue, *priority, *ready_at))
            }
            _ => None,
        }
    }
}

/// A new job, complete except for its position in the order of commits. Nothing else of it goes to
/// the committer, and this is returned from there, so that nothing has to be freed there: memory is
/// cheapest to free on the thread that allocated it.
pub(super) struct PreparedBegin {
    pub(super) job: JobId,
    pub(super) hold: HoldState,
    pub(super) row: Arc<Vec<u8>>,
    pub(super) facts: IndexFacts,
    pub(super) shared: Vec<Encoded>,
    pub(super) needed: Vec<ValueId>,
}

/// Records that continue a chain, or begin one that does not fit a row.
pub(super) struct PreparedAppend {
    pub(super) job: Arc<Job>,
    pub(super) after: Option<RecordId>,
    pub(super) hold: Hold,
    pub(super) summary: Summary,
    pub(super) facts: IndexFacts,
    pub(super) packed: PackedRecords,
}

/// The new value of a root.
pub(super) struct PreparedRoot {
    pub(super) id: ValueId,
    pub(super) encoding: Vec<u8>,
    pub(super) cells: Vec<Encoded>,
    /// Cells it refers to without containing them: what it shares with the previous value.
    pub(super) needed: Vec<ValueId>,
}

/// Encodes effects and separates the cells that are sent ahead.
pub(super) fn prepare(effects: Effects) -> Result<PreparedCommit, CommitError> {
    let mut prepared =
        PreparedCommit { ahead: Vec::new(), effects: Vec::with_capacity(effects.0.len()) };
    let mut room = AHEAD_BYTES;
    let mut stored = CommitCells::default();
    for effect in effects.0 {
        let mut prepared_effect = prepare_effect(effect, &mut stored)?;
        let cells = match &mut prepared_effect {
            PreparedEffect::Begin(begin) => &mut begin.shared,
            PreparedEffect::Append(append) => &mut append.packed.shared,
            PreparedEffect::SetRoot { value: Some(root), .. }
            | PreparedEffect::SetRootIfAbsent { value: root, .. } => &mut root.cells,
            _ => &mut Vec::new(),
        };
        split_off_large_cells(cells, &mut room, &mut prepared.ahead);
        prepared.effects.push(prepared_effect);
    }
    Ok(prepared)
}

/// Moves cells that do not fit the room that is left in the commit itself into groups that are sent ahead.
fn split_off_large_cells(cells: &mut [Encoded], room: &mut usize, ahead: &mut Vec<Vec<Encoded>>) {
    let total: usize = cells.iter().map(|cell| cell.bytes.len()).sum();
    if total <= *room {
        *room -= total;
        return;
    }
    let mut part = Vec::new();
    let mut size = 0;
    for cell in cells {
        // Only their IDs stay, so that the commit can check that they arrived.
        let bytes = std::mem::take(&mut cell.bytes);
        size += bytes.len();
        part.push(Encoded { id: cell.id, bytes });
        if size > AHEAD_BYTES {
            ahead.push(std::mem::take(&mut part));
            size = 0;
        }
    }
    ahead.push(part);
}

fn prepare_effect(effect: Effect, stored: &mut CommitCells) -> Result<PreparedEffect, CommitError> {
    Ok(match effect {
        Effect::Append { job, after, records, hold } => {
            let damaged_error = |reason: &str| CommitError::Damaged { reason: reason.to_owned() };
            if records.last().map(|record| record.id()) != Some(job.head()) {
                return Err(damaged_error("the job is not what these records lead to"));
            }
            if job.due().is_some() {
                return Err(damaged_error(
                    "a held outcome must be in the commit that resumes its job",
                ));
            }
            let summary = Summary::from_job(&job);
            let facts = IndexFacts::from_summary(job.id(), &summary);
            let packed = match after {
                Some(_) => pack_records(&records, stored),
                None => {
                    let state = new_hold(&job, &hold)?;
                    match JobRow::encode_new(&job, &summary, &state, &records, stored) {
                        Ok(NewRow { bytes, shared, needed }) => {
                            let begin = PreparedBegin {
                                job: job.id(),
                                hold: state,
                                row: Arc::new(bytes),
                                facts,
                                shared,
                                needed,
                            };
                            return Ok(PreparedEffect::Begin(Box::new(begin)));
                        }
                        Err(packed) => packed,
                    }
                }
            };
            let append = PreparedAppend { job, after, hold, summary, facts, packed };
            PreparedEffect::Append(Box::new(append))
        }
        Effect::Delete { job } => PreparedEffect::Delete { job },
        Effect::SetProgress { job, progress } => {
            PreparedEffect::SetProgress { job, progress: encode_message(&progress) }
        }
        Effect::Touch { job } => PreparedEffect::Touch { job },
        Effect::SendMessage { job, message } => {
            let row = encode_job_message(&message);
            PreparedEffect::SendMessage { job, message, row }
        }
        Effect::CheckMessageCount { job, count } => {
            PreparedEffect::CheckMessageCount { job, count }
        }
        Effect::TakeMessage { job, number } => PreparedEffect::TakeMessage { job, number },
        Effect::ReplaceMessage { job, message } => {
            let row = encode_job_message(&message);
            PreparedEffect::ReplaceMessage { job, number: message.number, row }
        }
        Effect::Enqueue { job, queue, priority, ready_at } => {
            PreparedEffect::Enqueue { job, queue, priority, ready_at }
        }
        Effect::Dequeue { job } => PreparedEffect::Dequeue { job },
        Effect::SetHold { job, after, hold } => PreparedEffect::SetHold { job, after, hold },
        Effect::CheckHead { job, head } => PreparedEffect::CheckHead { job, head },
        Effect::CountSubJobs { root, count, max } => {
            PreparedEffect::CountSubJobs { root, count, max }
        }
        Effect::SetRoot { key, expected, value } => {
            check_root_key(&key)?;
            let value = value.as_ref().map(|value| prepare_root(value, stored));
            PreparedEffect::SetRoot { key, expected, value }
        }
        Effect::SetRootIfAbsent { key, value } => {
            check_root_key(&key)?;
            PreparedEffect::SetRootIfAbsent { key, value: prepare_root(&value, stored) }
        }
        Effect::StoreIdempotency(entry) => {
            let row = encode_idempotency(&entry);
            PreparedEffect::StoreIdempotency { entry, row }
        }
        Effect::ExpireIdempotency { before, limit } => {
            PreparedEffect::ExpireIdempotency { before, limit }
        }
        Effect::StoreBlob { digest, len, content } => {
            PreparedEffect::StoreBlob { digest, len, content }
        }
        Effect::DeleteBlob { digest } => PreparedEffect::DeleteBlob { digest },
    })
}

fn check_root_key(key: &RootKey) -> Result<(), CommitError> {
    if key.owner.contains('\0') || key.name.is_empty() {
        let reason = format!("root {key} has no usable name");
        return Err(CommitError::TooLarge { reason });
    }
    Ok(())
}

fn prepare_root(value: &Value, stored: &CommitCells) -> PreparedRoot {
    let Survey { cells, unloaded } = survey(value, |id| stored.contains(id));
    PreparedRoot { id: value.id(), encoding: encode(value), cells, needed: unloaded }
}

/// Who runs a new job.
fn new_hold(job: &Job, hold: &Hold) -> Result<HoldState, CommitError> {
    match hold {
        Hold::Unchanged | Hold::Vacant(0) => Ok(HoldState::default()),
        Hold::Vacant(_) => Err(CommitError::HoldMoved { job: job.id() }),
        Hold::Acquire { holder, fence: 1 } => {
            Ok(HoldState { fence: 1, holder: Some(holder.clone()), is_parked: false })
        }
        Hold::Acquire { fence, .. }
        | Hold::Transfer { fence, .. }
        | Hold::Under(fence)
        | Hold::Release(fence)
        | Hold::Park(fence) => {
            Err(CommitError::Fenced { job: job.id(), fence: *fence, found: None })
        }
    }
}

/// The bytes of effects on new jobs, as rows one after the other: what a log without an index would
/// write.
#[cfg(feature = "testing")]
pub(super) fn encode_log_entry(effects: Effects) -> Result<Vec<u8>, CommitError> {
    let mut entry = Vec::with_capacity(1_024);
    for effect in prepare(effects)?.effects {
        let PreparedEffect::Begin(begin) = effect else { continue };
        put_bytes(begin.job.as_bytes(), &mut entry);
        put_bytes(&begin.row, &mut entry);
        for (_, key, value) in begin.facts.rows(0, &begin.hold) {
            put_bytes(&key, &mut entry);
            put_bytes(&value, &mut entry);
        }
        entry.extend(begin.facts.listed(0).into_iter().flatten());
    }
    Ok(entry)
}

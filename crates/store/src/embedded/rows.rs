//! The rows other than a job's own: how they are encoded and decoded.

use catena_job::JobId;
use catena_value::{decode_message, encode_message};

use crate::bytes::{DamagedRow, FieldReader, put_bytes, put_count, put_time};
use crate::store::{Idempotency, Message, ReadError, Timer, TimerKind};
use crate::summary::{optional, put_optional};

/// The off-chain state of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sidecar {
    /// How often the off-chain state has changed.
    pub(super) changes: u64,
    /// The number of the next message.
    pub(super) next_message: u64,
    /// How many messages wait.
    pub(super) queued: u32,
    /// The last progress, as a multi-cell message.
    pub(super) progress: Option<Vec<u8>>,
}

impl Sidecar {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        put_count(self.changes, &mut row);
        put_count(self.next_message, &mut row);
        put_count(u64::from(self.queued), &mut row);
        put_optional(self.progress.as_deref(), &mut row, put_bytes);
        row
    }

    pub(super) fn decode(row: &[u8]) -> Result<Self, DamagedRow> {
        let mut fields = FieldReader::new(row);
        Ok(Sidecar {
            changes: fields.count("changes")?,
            next_message: fields.count("next message")?,
            queued: u32::try_from(fields.count("queued")?).map_err(|_| DamagedRow("queued"))?,
            progress: optional(&mut fields, |fields| Ok(fields.bytes("progress")?.to_vec()))?,
        })
    }
}

/// A job's entry on a queue. Rows of format 1 may contain the lease of a single job, with its fence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) fence: u64,
    /// The worker, and the end of its lease as Unix time in ms.
    pub(super) holder: Option<(String, i64)>,
    /// The key of the job's row in the queue table.
    pub(super) queue_key: Option<Vec<u8>>,
}

impl Lease {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        put_count(self.fence, &mut row);
        put_optional(self.holder.as_ref(), &mut row, |(worker, until), row| {
            put_bytes(worker.as_bytes(), row);
            put_time(*until, row);
        });
        put_optional(self.queue_key.as_deref(), &mut row, put_bytes);
        row
    }

    pub(super) fn decode(row: &[u8]) -> Result<Self, DamagedRow> {
        let mut fields = FieldReader::new(row);
        Ok(Lease {
            fence: fields.count("fence")?,
            holder: optional(&mut fields, |fields| {
                Ok((fields.text("worker")?.to_owned(), fields.time("until")?))
            })?,
            queue_key: optional(&mut fields, |fields| Ok(fields.bytes("place")?.to_vec()))?,
        })
    }
}

pub(super) fn encode_idempotency(entry: &Idempotency) -> Vec<u8> {
    let mut row = Vec::new();
    put_time(entry.expires, &mut row);
    row.extend_from_slice(&entry.body_digest);
    for part in [&entry.owner, &entry.endpoint, &entry.key] {
        put_bytes(part.as_bytes(), &mut row);
    }
    row.extend_from_slice(&encode_message(&entry.answer));
    row
}

pub(super) fn decode_idempotency(row: &[u8]) -> Result<Idempotency, DamagedRow> {
    let mut fields = FieldReader::new(row);
    let expires = fields.time("expiry")?;
    let body_digest = fields.array("body digest")?;
    let owner = fields.text("owner")?.to_owned();
    let endpoint = fields.text("endpoint")?.to_owned();
    let key = fields.text("key")?.to_owned();
    let answer = decode_message(fields.rest()).map_err(|_| DamagedRow("answer in its form"))?;
    Ok(Idempotency { owner, endpoint, key, body_digest, answer, expires })
}

pub(super) fn encode_job_message(message: &Message) -> Vec<u8> {
    let mut row = Vec::new();
    put_bytes(message.id.as_bytes(), &mut row);
    row.extend_from_slice(&encode_message(&message.body));
    row
}

pub(super) fn decode_job_message(key: &[u8], row: &[u8]) -> Result<Message, DamagedRow> {
    let number = FieldReader::new(key.get(16..).unwrap_or(&[])).number("number")?;
    let mut fields = FieldReader::new(row);
    let id = fields.text("message ID")?.to_owned();
    let body = decode_message(fields.rest()).map_err(|_| DamagedRow("message in its form"))?;
    Ok(Message { number, id, body })
}

/// A blob's row: its length and, if it is small, its content.
pub(super) fn encode_blob(len: u64, content: Option<&[u8]>) -> Vec<u8> {
    let mut row = Vec::new();
    put_count(len, &mut row);
    row.push(u8::from(content.is_some()));
    row.extend_from_slice(content.unwrap_or(&[]));
    row
}

/// A blob's length in bytes and, unless it is in a file, its content.
pub(super) fn decode_blob(row: &[u8]) -> Result<(u64, Option<&[u8]>), DamagedRow> {
    let mut fields = FieldReader::new(row);
    let len = fields.count("length")?;
    let is_inline = fields.byte("place")? == 1;
    Ok((len, is_inline.then(|| fields.rest())))
}

/// A blob's length in bytes.
pub(super) fn blob_len(row: &[u8]) -> Result<u64, DamagedRow> {
    Ok(decode_blob(row)?.0)
}

pub(super) fn decode_timer(key: &[u8]) -> Result<Timer, DamagedRow> {
    let mut fields = FieldReader::new(key);
    let at = i64::try_from(fields.number("time")?).map_err(|_| DamagedRow("time"))?;
    let kind = TimerKind::from_byte(fields.byte("kind")?).ok_or(DamagedRow("kind"))?;
    Ok(Timer { at, kind, job: JobId::from_bytes(fields.array("job")?) })
}

/// Maps a damaged row to the error of a read, with what the row belongs to.
pub(super) fn damaged_error(what: impl ToString) -> impl FnOnce(DamagedRow) -> ReadError {
    move |error| ReadError::Damaged { what: what.to_string(), reason: error.to_string() }
}

//! The summary of a job that indexes are built from: a pure function of its fold.

use catena_job::record::{Link, Parent};
use catena_job::{Job, JobId, Status};
use catena_value::{NoCells, Value};

use crate::bytes::{DamagedRow, FieldReader, put_bytes, put_count, put_time};

/// The facts that lists and indexes are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The DID of the caller, who owns the job.
    pub owner: String,
    /// The operation as the caller named it.
    pub op: String,
    /// The job's status.
    pub status: Status,
    /// When the job was created, as Unix time in ms.
    pub created: i64,
    /// When its last record was made, as Unix time in ms.
    pub updated: i64,
    /// The parent job and the step, if the job is a step of another job.
    pub parent: Option<Parent>,
    /// When it times out unless it has ended, as Unix time in ms; `deadline` in the chain.
    pub deadline: Option<i64>,
    /// Identifies the computation of a contract job; `executionKey` in the chain.
    pub execution_key: Option<String>,
    /// The tags it is listed under; `tags` in the chain.
    pub tags: Vec<String>,
}

impl Summary {
    /// The summary of a job.
    pub fn from_job(job: &Job) -> Self {
        let text = |name: &str| job.field(name).and_then(Value::as_str).map(str::to_owned);
        Summary {
            owner: text("caller").unwrap_or_default(),
            op: text("op").unwrap_or_default(),
            status: job.status(),
            created: job.created(),
            updated: job.updated(),
            parent: job.parent().cloned(),
            deadline: job.field("deadline").and_then(Value::as_i64).filter(|at| *at >= 0),
            execution_key: text("executionKey"),
            tags: tags(job),
        }
    }

    /// Whether the job has not ended.
    pub fn is_live(&self) -> bool {
        !self.status.is_terminal()
    }

    /// Whether both have the same owner, operation, parent, execution key and tags, which the first record of a job states.
    pub(crate) fn is_of_same_job(&self, other: &Summary) -> bool {
        self.owner == other.owner
            && self.op == other.op
            && self.parent == other.parent
            && self.execution_key == other.execution_key
            && self.tags == other.tags
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(status_byte(self.status));
        put_time(self.created, out);
        put_time(self.updated, out);
        put_bytes(self.owner.as_bytes(), out);
        put_bytes(self.op.as_bytes(), out);
        put_optional(self.parent.as_ref(), out, |parent, out| {
            out.extend_from_slice(parent.job.as_bytes());
            put_link(parent.link, out);
        });
        put_optional(self.deadline, out, put_time);
        put_optional(self.execution_key.as_deref(), out, |key, out| put_bytes(key.as_bytes(), out));
        put_count(self.tags.len() as u64, out);
        self.tags.iter().for_each(|tag| put_bytes(tag.as_bytes(), out));
    }

    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<Self, DamagedRow> {
        let status = status_from_byte(fields.byte("status")?)?;
        let created = fields.time("created")?;
        let updated = fields.time("updated")?;
        let owner = fields.text("owner")?.to_owned();
        let op = fields.text("op")?.to_owned();
        let parent = optional(fields, |fields| {
            let job = JobId::from_bytes(fields.array("parent")?);
            Ok(Parent { job, link: read_link(fields)? })
        })?;
        let deadline = optional(fields, |fields| fields.time("deadline"))?;
        let execution_key =
            optional(fields, |fields| fields.text("execution key").map(str::to_owned))?;
        let mut tags = Vec::new();
        for _ in 0..fields.count("tags")? {
            tags.push(fields.text("tag")?.to_owned());
        }
        Ok(Summary { owner, op, status, created, updated, parent, deadline, execution_key, tags })
    }
}

/// Distinguishes the number of a call from the index of a step.
const CALL: u64 = 1 << 32;

pub(crate) fn put_link(link: Link, out: &mut Vec<u8>) {
    match link {
        Link::Step(step) => put_count(u64::from(step), out),
        Link::Call(call) => put_count(CALL | u64::from(call), out),
    }
}

pub(crate) fn read_link(fields: &mut FieldReader<'_>) -> Result<Link, DamagedRow> {
    let code = fields.count("step")?;
    let number = u32::try_from(code & !CALL).map_err(|_| DamagedRow("step"))?;
    Ok(if code & CALL == 0 { Link::Step(number) } else { Link::Call(number) })
}

fn tags(job: &Job) -> Vec<String> {
    let Some(Value::Vector(tags)) = job.field("tags") else { return Vec::new() };
    let text = |tag: Result<Value, _>| tag.ok().and_then(|tag| tag.as_str().map(str::to_owned));
    tags.iter(&NoCells).filter_map(text).collect()
}

pub(crate) fn put_optional<T>(
    value: Option<T>,
    out: &mut Vec<u8>,
    put: impl FnOnce(T, &mut Vec<u8>),
) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(value, out);
    }
}

pub(crate) fn optional<T>(
    fields: &mut FieldReader<'_>,
    read: impl FnOnce(&mut FieldReader<'_>) -> Result<T, DamagedRow>,
) -> Result<Option<T>, DamagedRow> {
    match fields.byte("presence")? {
        0 => Ok(None),
        1 => read(fields).map(Some),
        _ => Err(DamagedRow("presence")),
    }
}

/// The stored form of a status. Part of the format: never renumber.
pub(crate) fn status_byte(status: Status) -> u8 {
    match status {
        Status::Pending => 1,
        Status::Started => 2,
        Status::Complete => 3,
        Status::Failed => 4,
        Status::Cancelled => 5,
        Status::Rejected => 6,
        Status::Timeout => 7,
        Status::Paused => 8,
        Status::InputRequired => 9,
        Status::AuthRequired => 10,
    }
}

pub(crate) fn status_from_byte(byte: u8) -> Result<Status, DamagedRow> {
    let found = Status::ALL.into_iter().find(|status| status_byte(*status) == byte);
    found.ok_or(DamagedRow("status"))
}

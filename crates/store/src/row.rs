//! A job as bytes: its row, and the chunks that a long chain leaves behind.
//!
//! The row of a short chain holds all of it, so that reading a job is one look-up and a job that
//! begins and ends in one commit is one write. Once the records in the row are too many or too
//! long they move to a chunk of their own, and the row keeps the fold instead: appending then
//! costs the same however long the chain is.

use std::collections::{HashMap, HashSet};

use catena_job::chain::{Parts, StepState};
use catena_job::note::{Outcome, StepEnd, StepStart};
use catena_job::record::{Parent, is_skeleton};
use catena_job::{Job, JobId, Record, RecordId};
use catena_value::{
    CellSource, Encoded, LoadError, Map, NoCells, Value, ValueId, branches, decode, decode_branch,
    decode_slot, encode_slot,
};

use crate::bytes::{Damaged, Fields, put_count, put_run, put_time};
use crate::limits::{LOCAL_CELL_BYTES_MAX, ROW_BYTES_MAX, ROW_RECORDS_MAX};
use crate::summary::{Summary, optional, put_optional, status_byte, status_of};

/// The version of this layout, the first byte of every row.
const VERSION: u8 = 1;

/// Room for everything before the entries of an ordinary row.
const HEADER_BYTES: usize = 192;

/// Room for an ordinary record.
const RECORD_BYTES: usize = 320;

/// Cells that live in a job's rows.
pub(crate) type LocalCells = HashMap<ValueId, Box<[u8]>>;

/// Records, and the cells they bring, as they stand in a row or a chunk: a flag, a length, bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    records: u64,
}

const RECORD: u8 = 0;
const CELL: u8 = 1;

impl Entries {
    fn push(&mut self, flag: u8, bytes: &[u8]) {
        self.bytes.push(flag);
        put_run(bytes, &mut self.bytes);
        self.records += u64::from(flag == RECORD);
    }

    fn append(&mut self, other: &Entries) {
        self.bytes.extend_from_slice(&other.bytes);
        self.records += other.records;
    }

    /// Takes cells along that the records refer to.
    pub(crate) fn carry(&mut self, cells: &LocalCells) {
        cells.values().for_each(|cell| self.push(CELL, cell));
    }

    /// Whether a row has room for them.
    fn fit_a_row(&self) -> bool {
        self.fit_behind(0)
    }

    /// The same when so many of the bytes are not theirs.
    fn fit_behind(&self, bytes: usize) -> bool {
        self.records <= ROW_RECORDS_MAX && self.bytes.len() - bytes <= ROW_BYTES_MAX
    }
}

/// A job's row.
#[derive(Debug, Clone)]
pub(crate) struct JobRow {
    pub(crate) head: RecordId,
    pub(crate) order: u64,
    pub(crate) count: u64,
    pub(crate) summary: Summary,
    /// The fold, once records have left the row.
    fold: Option<Box<[u8]>>,
    /// The records that are still in the row.
    open: Entries,
}

/// The row of a new job.
pub(crate) struct NewRow {
    pub(crate) bytes: Vec<u8>,
    /// Cells of its records that are stored for everybody.
    pub(crate) shared: Vec<Encoded>,
    /// Cells they refer to without bringing them.
    pub(crate) needed: Vec<ValueId>,
}

/// Records that leave the row.
pub(crate) struct Sealed {
    /// The index of the first of them.
    pub(crate) first: u64,
    pub(crate) bytes: Vec<u8>,
}

impl JobRow {
    /// The row of a job that does not exist yet.
    pub(crate) fn new(order: u64, summary: Summary, head: RecordId) -> Self {
        JobRow { head, order, count: 0, summary, fold: None, open: Entries::default() }
    }

    /// The row of a new job but for its place in the order, with the records packed behind its
    /// header; only the records when they do not fit a row.
    pub(crate) fn of_new(
        job: &Job,
        summary: &Summary,
        records: &[Record],
    ) -> Result<NewRow, PackedRecords> {
        let count = records.len() as u64;
        let mut row = Vec::with_capacity(HEADER_BYTES + RECORD_BYTES * records.len());
        write_header(job.head(), 0, count, count, summary, None, &mut row);
        let header_bytes = row.len();
        let mut packed = pack_behind(row, records);
        if !packed.entries.fit_behind(header_bytes) {
            packed.entries.bytes.drain(..header_bytes);
            return Err(packed);
        }
        let PackedRecords { entries, shared, needed } = packed;
        Ok(NewRow { bytes: entries.bytes, shared, needed })
    }

    /// Adds records. `job` is the fold after them; what must move to a chunk is returned.
    pub(crate) fn append(
        &mut self,
        job: &Job,
        summary: Summary,
        entries: &Entries,
    ) -> Result<Option<Sealed>, Damaged> {
        let mut grown = self.open.clone();
        grown.append(entries);
        let seals = self.open.records > 0 && !grown.fit_a_row();
        let mut sealed = None;
        if seals || self.fold.is_some() {
            let mut local = self.local_cells()?;
            local.extend(read_entries(&entries.bytes, job.head())?.1);
            self.fold = Some(write_fold(job, &local)?.into());
        }
        if seals {
            let mut bytes = self.head.value_id().as_bytes().to_vec();
            bytes.append(&mut self.open.bytes);
            sealed = Some(Sealed { first: self.first_open(), bytes });
            grown = entries.clone();
        }
        self.open = grown;
        self.count += entries.records;
        self.head = job.head();
        self.summary = summary;
        Ok(sealed)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(HEADER_BYTES + self.open.bytes.len());
        let (open, fold) = (self.open.records, self.fold.as_deref());
        write_header(self.head, self.order, self.count, open, &self.summary, fold, &mut row);
        row.extend_from_slice(&self.open.bytes);
        row
    }

    /// Puts a job's place in the order into a row that was written without it.
    pub(crate) fn set_order(row: &mut [u8], order: u64) {
        const PLACE: std::ops::Range<usize> = 33..41;
        if let Some(place) = row.get_mut(PLACE) {
            place.copy_from_slice(&order.to_be_bytes());
        }
    }

    pub(crate) fn read(row: &[u8]) -> Result<Self, Damaged> {
        let mut fields = Fields::new(row);
        if fields.byte("version")? != VERSION {
            return Err(Damaged("row of a version this program reads"));
        }
        let head = record_id(&mut fields)?;
        let order = fields.number("order")?;
        let count = fields.count("count")?;
        let open_records = fields.count("open records")?;
        let summary = Summary::read(&mut fields)?;
        let fold = optional(&mut fields, |fields| Ok(fields.run("fold")?.into()))?;
        if open_records > count {
            return Err(Damaged("count of open records"));
        }
        let open = Entries { bytes: fields.rest().to_vec(), records: open_records };
        Ok(JobRow { head, order, count, summary, fold, open })
    }

    /// The index of the first record in the row.
    pub(crate) fn first_open(&self) -> u64 {
        self.count - self.open.records
    }

    /// The records in the row, and the cells that are there.
    pub(crate) fn open_records(&self) -> Result<(Vec<Record>, LocalCells), Damaged> {
        let (records, cells) = read_entries(&self.open.bytes, self.head)?;
        match records.len() as u64 == self.open.records {
            true => Ok((records, cells)),
            false => Err(Damaged("as many records as the row counts")),
        }
    }

    /// The job, from the fold or from all its records.
    pub(crate) fn job(&self, id: JobId) -> Result<(Job, LocalCells), Damaged> {
        let Some(fold) = &self.fold else {
            let (records, cells) = self.open_records()?;
            let job = Job::fold(&records).map_err(|_| Damaged("chain that follows its rules"))?;
            return Ok((job.ok_or(Damaged("records"))?, cells));
        };
        let (parts, mut cells) = read_fold(fold, id, self)?;
        // An outcome that is due is always in the same commit, so it is never between two rows.
        cells.extend(self.open_records()?.1);
        Ok((Job::from_parts(parts), cells))
    }

    pub(crate) fn is_folded(&self) -> bool {
        self.fold.is_some()
    }

    fn local_cells(&self) -> Result<LocalCells, Damaged> {
        let mut cells = self.open_records()?.1;
        if let Some(fold) = &self.fold {
            cells.extend(fold_cells(fold)?);
        }
        Ok(cells)
    }
}

/// Everything before the entries.
fn write_header(
    head: RecordId,
    order: u64,
    count: u64,
    open_records: u64,
    summary: &Summary,
    fold: Option<&[u8]>,
    row: &mut Vec<u8>,
) {
    row.push(VERSION);
    row.extend_from_slice(head.value_id().as_bytes());
    row.extend_from_slice(&order.to_be_bytes());
    put_count(count, row);
    put_count(open_records, row);
    summary.write(row);
    put_optional(fold, row, put_run);
}

/// The records of a chunk, its cells, and whether it is followed by the record `next`.
pub(crate) fn read_chunk(chunk: &[u8]) -> Result<(Vec<Record>, LocalCells), Damaged> {
    let mut fields = Fields::new(chunk);
    let last = record_id(&mut fields)?;
    read_entries(&chunk[32..], last)
}

/// The cells that stand beside records, as a source.
pub(crate) struct Beside<'a>(pub(crate) &'a LocalCells);

impl CellSource for Beside<'_> {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        match self.0.get(id) {
            Some(bytes) => decode_branch(id, bytes),
            None => NoCells.load(id),
        }
    }
}

/// Records and cells; IDs come from the links, the last one from outside.
fn read_entries(bytes: &[u8], last: RecordId) -> Result<(Vec<Record>, LocalCells), Damaged> {
    let mut fields = Fields::new(bytes);
    let mut maps: Vec<Map> = Vec::new();
    let mut cells = LocalCells::new();
    while !fields.is_empty() {
        let flag = fields.byte("entry")?;
        let run = fields.run("entry")?;
        match flag {
            RECORD => match decode(run) {
                Ok(Value::Map(map)) => maps.push(map),
                _ => return Err(Damaged("record that is a map")),
            },
            CELL => {
                cells.insert(ValueId::of_encoding(run), run.into());
            }
            _ => return Err(Damaged("entry of a known kind")),
        }
    }
    let mut records = Vec::with_capacity(maps.len());
    let mut id = last;
    while let Some(map) = maps.pop() {
        let record = Record::from_stored(map, id, &Beside(&cells));
        let record = record.map_err(|_| Damaged("record in its form"))?;
        id = record.prev().unwrap_or(id);
        records.push(record);
    }
    records.reverse();
    Ok((records, cells))
}

fn record_id(fields: &mut Fields<'_>) -> Result<RecordId, Damaged> {
    Ok(RecordId::new(ValueId::from_bytes(fields.array("record ID")?)))
}

fn write_fold(job: &Job, local: &LocalCells) -> Result<Vec<u8>, Damaged> {
    let parts = job.to_parts();
    let mut out = Vec::new();
    put_run(parts.venue.as_bytes(), &mut out);
    put_optional(parts.parent.as_ref(), &mut out, |parent, out| {
        out.extend_from_slice(parent.job.as_bytes());
        put_count(u64::from(parent.step), out);
    });
    out.extend_from_slice(parts.first.value_id().as_bytes());
    out.push(u8::from(parts.has_started));
    put_count(u64::from(parts.attempt), &mut out);
    put_optional(parts.held.as_ref(), &mut out, put_outcome);
    put_count(parts.steps.len() as u64, &mut out);
    parts.steps.iter().for_each(|step| put_step(step, &mut out));
    put_count(parts.fields.len() as u64, &mut out);
    for (key, value) in &parts.fields {
        put_run(&encode_slot(key), &mut out);
        put_run(&encode_slot(value), &mut out);
    }
    let held = parts.held.iter().filter_map(|outcome| outcome.output.as_ref());
    let values = parts.fields.iter().map(|(_, value)| value).chain(held);
    let cells = reachable(values.flat_map(references).collect(), local)?;
    put_count(cells.len() as u64, &mut out);
    cells.values().for_each(|cell| put_run(cell, &mut out));
    Ok(out)
}

/// What a member refers to: itself when it is a branch, else what it holds.
pub(crate) fn references(value: &Value) -> Vec<ValueId> {
    match value {
        Value::Unloaded(id) => vec![**id],
        other if catena_value::is_embedded(other) => branches(other),
        other => vec![other.id()],
    }
}

/// The local cells among these and everything below them. Others are stored for everybody.
pub(crate) fn reachable(
    mut waiting: Vec<ValueId>,
    local: &LocalCells,
) -> Result<LocalCells, Damaged> {
    let mut found = LocalCells::new();
    while let Some(id) = waiting.pop() {
        let Some(bytes) = local.get(&id).filter(|_| !found.contains_key(&id)) else { continue };
        found.insert(id, bytes.clone());
        let cell = decode_branch(&id, bytes).map_err(|_| Damaged("cell in its form"))?;
        waiting.extend(branches(&cell));
    }
    Ok(found)
}

fn put_outcome(outcome: &Outcome, out: &mut Vec<u8>) {
    out.push(status_byte(outcome.status));
    put_optional(outcome.output.as_ref(), out, |output, out| put_run(&encode_slot(output), out));
    put_optional(outcome.error.as_deref(), out, |error, out| put_run(error.as_bytes(), out));
    put_optional(outcome.message.as_deref(), out, |text, out| put_run(text.as_bytes(), out));
}

fn put_step(step: &StepState, out: &mut Vec<u8>) {
    put_count(u64::from(step.start.step), out);
    out.extend_from_slice(step.start.job.as_bytes());
    out.extend_from_slice(step.start.record.value_id().as_bytes());
    put_optional(step.start.venue.as_deref(), out, |venue, out| put_run(venue.as_bytes(), out));
    put_time(step.started_at, out);
    put_optional(step.end.as_ref(), out, |end, out| {
        out.push(status_byte(end.status));
        out.extend_from_slice(end.record.value_id().as_bytes());
        put_time(step.ended_at.unwrap_or(0), out);
    });
}

fn read_fold(fold: &[u8], id: JobId, row: &JobRow) -> Result<(Parts, LocalCells), Damaged> {
    let fields = &mut Fields::new(fold);
    let venue = fields.text("venue")?.to_owned();
    let parent = optional(fields, |fields| {
        let job = JobId::from_bytes(fields.array("parent")?);
        Ok(Parent { job, step: small(fields, "step")? })
    })?;
    let first = record_id(fields)?;
    let has_started = fields.byte("has started")? == 1;
    let attempt = small(fields, "attempt")?;
    let held = optional(fields, read_outcome)?;
    let mut steps = Vec::new();
    for _ in 0..fields.count("steps")? {
        steps.push(read_step(fields)?);
    }
    let mut members = Vec::new();
    for _ in 0..fields.count("members")? {
        members.push((read_slot(fields)?, read_slot(fields)?));
    }
    let cells = read_cells(fields)?;
    for (key, value) in &mut members {
        if is_skeleton(key) {
            let loaded = value.fully_loaded(&Beside(&cells));
            *value = loaded.map_err(|_| Damaged("member that the fold reads"))?;
        }
    }
    let parts = Parts {
        id,
        venue,
        parent,
        status: row.summary.status,
        head: row.head,
        first,
        count: row.count,
        created: row.summary.created,
        updated: row.summary.updated,
        has_started,
        attempt,
        held,
        steps,
        fields: members,
    };
    Ok((parts, cells))
}

/// Only the cells of a fold.
fn fold_cells(fold: &[u8]) -> Result<LocalCells, Damaged> {
    let fields = &mut Fields::new(fold);
    fields.text("venue")?;
    optional(fields, |fields| {
        fields.take(16, "parent")?;
        fields.count("step")
    })?;
    fields.take(33, "first record")?;
    fields.count("attempt")?;
    optional(fields, read_outcome)?;
    for _ in 0..fields.count("steps")? {
        read_step(fields)?;
    }
    for _ in 0..fields.count("members")? {
        fields.run("member")?;
        fields.run("member")?;
    }
    read_cells(fields)
}

fn read_cells(fields: &mut Fields<'_>) -> Result<LocalCells, Damaged> {
    let mut cells = LocalCells::new();
    for _ in 0..fields.count("cells")? {
        let cell = fields.run("cell")?;
        cells.insert(ValueId::of_encoding(cell), cell.into());
    }
    Ok(cells)
}

fn read_slot(fields: &mut Fields<'_>) -> Result<Value, Damaged> {
    decode_slot(fields.run("value")?).map_err(|_| Damaged("value in its form"))
}

fn read_outcome(fields: &mut Fields<'_>) -> Result<Outcome, Damaged> {
    Ok(Outcome {
        status: status_of(fields.byte("status")?)?,
        output: optional(fields, read_slot)?,
        error: optional(fields, |fields| Ok(fields.text("error")?.to_owned()))?,
        message: optional(fields, |fields| Ok(fields.text("message")?.to_owned()))?,
    })
}

fn read_step(fields: &mut Fields<'_>) -> Result<StepState, Damaged> {
    let step = small(fields, "step")?;
    let job = JobId::from_bytes(fields.array("step job")?);
    let record = record_id(fields)?;
    let venue = optional(fields, |fields| Ok(fields.text("venue")?.to_owned()))?;
    let started_at = fields.time("start")?;
    let end = optional(fields, |fields| {
        let status = status_of(fields.byte("status")?)?;
        let record = record_id(fields)?;
        Ok((StepEnd { step, status, record }, fields.time("end")?))
    })?;
    let (end, ended_at) = end.map_or((None, None), |(end, at)| (Some(end), Some(at)));
    let start = StepStart { step, job, record, venue };
    Ok(StepState { start, end, started_at, ended_at })
}

fn small(fields: &mut Fields<'_>, what: &'static str) -> Result<u32, Damaged> {
    u32::try_from(fields.count(what)?).map_err(|_| Damaged(what))
}

/// New records as bytes, and the cells of theirs that are stored for everybody.
pub(crate) struct PackedRecords {
    pub(crate) entries: Entries,
    pub(crate) shared: Vec<Encoded>,
    /// Cells they refer to without bringing them.
    pub(crate) needed: Vec<ValueId>,
}

/// The cells of a record's members, of those that the fold reads or of all others.
fn cells_of(record: &Record, skeleton: bool) -> HashSet<ValueId> {
    let mut found = HashSet::new();
    for (key, value) in record.fields().fields() {
        if is_skeleton(key) == skeleton && !catena_value::is_embedded(value) {
            found.insert(value.id());
        }
        if is_skeleton(key) == skeleton {
            found.extend(catena_value::survey(value, |_| false).cells.iter().map(|cell| cell.id));
        }
    }
    found
}

/// Encodes records. What a record brings along stays in the row while it is short; more is stored
/// once for everybody.
pub(crate) fn pack(records: &[Record]) -> PackedRecords {
    pack_behind(Vec::with_capacity(RECORD_BYTES * records.len()), records)
}

/// The same behind what is there already.
fn pack_behind(bytes: Vec<u8>, records: &[Record]) -> PackedRecords {
    let entries = Entries { bytes, records: 0 };
    let mut packed = PackedRecords { entries, shared: Vec::new(), needed: Vec::new() };
    for record in records {
        let survey = catena_value::survey(&record.to_value(), |_| false);
        let size: usize = survey.cells.iter().map(|cell| cell.bytes.len()).sum();
        if size <= LOCAL_CELL_BYTES_MAX {
            survey.cells.iter().for_each(|cell| packed.entries.push(CELL, &cell.bytes));
        } else {
            let (skeleton, large) = (cells_of(record, true), cells_of(record, false));
            for cell in survey.cells {
                if skeleton.contains(&cell.id) || !large.contains(&cell.id) {
                    packed.entries.push(CELL, &cell.bytes);
                }
                if large.contains(&cell.id) {
                    packed.shared.push(cell);
                }
            }
        }
        packed.needed.extend(survey.unloaded);
        packed.entries.push(RECORD, &record.encoding());
    }
    packed
}

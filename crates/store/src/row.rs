//! A job as bytes: its row, and the chunks of a long chain.
//!
//! The row of a short chain holds all of its records, so that reading a job is one lookup and a job
//! that begins and ends in one commit is one write. Once the records in the row are too many or too
//! long, they move to a chunk of their own, and the row stores the fold instead: the cost of an append
//! then does not depend on the length of the chain.

use std::collections::{HashMap, HashSet};

use catena_job::chain::{CallState, LastFailure, Parts, StepState};
use catena_job::note::{CallEnd, CallStart, Outcome, StepEnd, StepStart};
use catena_job::record::{Parent, is_skeleton};
use catena_job::{Job, JobId, Record, RecordId};
use catena_value::{
    CellSource, Encoded, LoadError, Map, NoCells, Value, ValueId, branches, decode, decode_branch,
    decode_slot, encode_slot,
};

use crate::bytes::{DamagedRow, FieldReader, put_bytes, put_count, put_time};
use crate::limits::{LOCAL_CELL_BYTES_MAX, ROW_BYTES_MAX, ROW_RECORDS_MAX};
use crate::store::{HoldState, Holder};
use crate::summary::{
    Summary, optional, put_link, put_optional, read_link, status_byte, status_from_byte,
};

/// The version of the layout, the first byte of every row.
const VERSION: u8 = 1;

/// The version of a row that also says who runs the job.
const VERSION_HELD: u8 = 2;

/// Capacity reserved for everything before the entries of a typical row.
const HEADER_BYTES: usize = 192;

/// Capacity reserved for a typical record.
const RECORD_BYTES: usize = 320;

/// Cells that are stored in a job's own rows.
pub(crate) type LocalCells = HashMap<ValueId, Box<[u8]>>;

/// Records and their cells as they are stored in a row or a chunk: a flag, a length, the bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordEntries {
    bytes: Vec<u8>,
    records: u64,
}

const RECORD: u8 = 0;
const CELL: u8 = 1;

impl RecordEntries {
    fn push(&mut self, flag: u8, bytes: &[u8]) {
        self.bytes.push(flag);
        put_bytes(bytes, &mut self.bytes);
        self.records += u64::from(flag == RECORD);
    }

    fn append(&mut self, other: &RecordEntries) {
        self.bytes.extend_from_slice(&other.bytes);
        self.records += other.records;
    }

    /// Appends cells that the records refer to.
    pub(crate) fn append_cells(&mut self, cells: &LocalCells) {
        cells.values().for_each(|cell| self.push(CELL, cell));
    }

    /// Whether these entries and others fit in a row together.
    fn fits_with(&self, others: &RecordEntries) -> bool {
        self.records + others.records <= ROW_RECORDS_MAX
            && self.bytes.len() + others.bytes.len() <= ROW_BYTES_MAX
    }

    /// Whether the entries fit in a row if the first `bytes` bytes do not count.
    fn fits_after(&self, bytes: usize) -> bool {
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
    /// Who runs the job. Empty once it has ended.
    pub(crate) hold: HoldState,
    /// The fold, once records have left the row.
    fold: Option<Box<[u8]>>,
    /// The records that are still in the row.
    open: RecordEntries,
}

/// The row of a new job.
pub(crate) struct NewRow {
    pub(crate) bytes: Vec<u8>,
    /// Cells of its records that are stored in the shared table.
    pub(crate) shared: Vec<Encoded>,
    /// Cells that the records refer to without containing them.
    pub(crate) needed: Vec<ValueId>,
}

/// Records that move from the row to a chunk.
pub(crate) struct SealedChunk {
    /// The index of the first of them.
    pub(crate) first: u64,
    pub(crate) bytes: Vec<u8>,
}

impl JobRow {
    /// The row of a job that does not exist yet.
    pub(crate) fn new(order: u64, summary: Summary, head: RecordId) -> Self {
        let hold = HoldState::default();
        JobRow { head, order, count: 0, summary, hold, fold: None, open: RecordEntries::default() }
    }

    /// The row of a new job without its position in the order, with the records packed after its
    /// header. `Err` with the records alone if they do not fit in a row.
    pub(crate) fn encode_new(
        job: &Job,
        summary: &Summary,
        hold: &HoldState,
        records: &[Record],
        stored: &mut CommitCells,
    ) -> Result<NewRow, PackedRecords> {
        let count = records.len() as u64;
        let mut row = Vec::with_capacity(HEADER_BYTES + RECORD_BYTES * records.len());
        write_header(job.head(), 0, (count, count), summary, hold, None, &mut row);
        let header_bytes = row.len();
        let mut packed = pack_records_after(row, records, stored);
        if !packed.entries.fits_after(header_bytes) {
            packed.entries.bytes.drain(..header_bytes);
            return Err(packed);
        }
        let PackedRecords { entries, shared, needed } = packed;
        Ok(NewRow { bytes: entries.bytes, shared, needed })
    }

    /// Appends records. `job` is the fold after them. Returns the records that must move to a chunk.
    pub(crate) fn append(
        &mut self,
        job: &Job,
        summary: Summary,
        entries: &RecordEntries,
    ) -> Result<Option<SealedChunk>, DamagedRow> {
        let seals = self.open.records > 0 && !self.open.fits_with(entries);
        let mut sealed = None;
        if seals || self.fold.is_some() {
            let mut local = self.local_cells()?;
            local.extend(read_entries(&entries.bytes, job.head())?.1);
            self.fold = Some(write_fold(job, &local)?.into());
        }
        if seals {
            let mut bytes = self.head.value_id().as_bytes().to_vec();
            bytes.append(&mut self.open.bytes);
            sealed = Some(SealedChunk { first: self.first_open(), bytes });
            self.open = entries.clone();
        } else {
            self.open.append(entries);
        }
        self.count += entries.records;
        self.head = job.head();
        self.summary = summary;
        if !self.summary.is_live() {
            self.hold = HoldState::default();
        }
        Ok(sealed)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(HEADER_BYTES + self.open.bytes.len());
        let counts = (self.count, self.open.records);
        let fold = self.fold.as_deref();
        write_header(self.head, self.order, counts, &self.summary, &self.hold, fold, &mut row);
        row.extend_from_slice(&self.open.bytes);
        row
    }

    /// Sets a job's position in the order in a row that was encoded without it.
    pub(crate) fn set_order(row: &mut [u8], order: u64) {
        const ORDER_FIELD: std::ops::Range<usize> = 33..41;
        if let Some(field) = row.get_mut(ORDER_FIELD) {
            field.copy_from_slice(&order.to_be_bytes());
        }
    }

    pub(crate) fn read(row: &[u8]) -> Result<Self, DamagedRow> {
        let mut fields = FieldReader::new(row);
        let version = fields.byte("version")?;
        if !matches!(version, VERSION | VERSION_HELD) {
            return Err(DamagedRow("row of a version this program reads"));
        }
        let head = record_id(&mut fields)?;
        let order = fields.number("order")?;
        let count = fields.count("count")?;
        let open_records = fields.count("open records")?;
        let summary = Summary::read(&mut fields)?;
        let hold =
            if version == VERSION_HELD { read_hold(&mut fields)? } else { HoldState::default() };
        let fold = optional(&mut fields, |fields| Ok(fields.bytes("fold")?.into()))?;
        if open_records > count {
            return Err(DamagedRow("count of open records"));
        }
        let open = RecordEntries { bytes: fields.rest().to_vec(), records: open_records };
        Ok(JobRow { head, order, count, summary, hold, fold, open })
    }

    /// The index of the first record in the row.
    pub(crate) fn first_open(&self) -> u64 {
        self.count - self.open.records
    }

    /// The records in the row, and the cells in it.
    pub(crate) fn open_records(&self) -> Result<(Vec<Record>, LocalCells), DamagedRow> {
        let (records, cells) = read_entries(&self.open.bytes, self.head)?;
        if records.len() as u64 != self.open.records {
            return Err(DamagedRow("as many records as the row counts"));
        }
        Ok((records, cells))
    }

    /// The job, from the fold or from all its records.
    pub(crate) fn job(&self, id: JobId) -> Result<(Job, LocalCells), DamagedRow> {
        let Some(fold) = &self.fold else {
            let (records, cells) = self.open_records()?;
            let job =
                Job::fold(&records).map_err(|_| DamagedRow("chain that follows its rules"))?;
            return Ok((job.ok_or(DamagedRow("records"))?, cells));
        };
        let (parts, mut cells) = read_fold(fold, id, self)?;
        // A due outcome is always in the same commit, so it is never split across two rows.
        cells.extend(self.open_records()?.1);
        Ok((Job::from_parts(parts), cells))
    }

    pub(crate) fn is_folded(&self) -> bool {
        self.fold.is_some()
    }

    fn local_cells(&self) -> Result<LocalCells, DamagedRow> {
        let mut cells = self.open_records()?.1;
        if let Some(fold) = &self.fold {
            cells.extend(fold_cells(fold)?);
        }
        Ok(cells)
    }
}

/// Encodes everything before the entries. The counts are those of all records and of those in the
/// row.
fn write_header(
    head: RecordId,
    order: u64,
    (count, open_records): (u64, u64),
    summary: &Summary,
    hold: &HoldState,
    fold: Option<&[u8]>,
    row: &mut Vec<u8>,
) {
    let says_hold = hold.fence > 0 && summary.is_live();
    row.push(if says_hold { VERSION_HELD } else { VERSION });
    row.extend_from_slice(head.value_id().as_bytes());
    row.extend_from_slice(&order.to_be_bytes());
    put_count(count, row);
    put_count(open_records, row);
    summary.write(row);
    if says_hold {
        write_hold(hold, row);
    }
    put_optional(fold, row, put_bytes);
}

/// What a row says after the fence.
const UNHELD: u8 = 0;
const HELD: u8 = 1;
const PARKED: u8 = 2;

fn write_hold(hold: &HoldState, row: &mut Vec<u8>) {
    put_count(hold.fence, row);
    match &hold.holder {
        Some(holder) => {
            row.push(HELD);
            put_bytes(holder.process.as_bytes(), row);
            row.extend_from_slice(&holder.epoch.to_be_bytes());
        }
        None => row.push(if hold.is_parked { PARKED } else { UNHELD }),
    }
}

fn read_hold(fields: &mut FieldReader<'_>) -> Result<HoldState, DamagedRow> {
    let fence = fields.count("fence")?;
    let mut hold = HoldState { fence, ..HoldState::default() };
    match fields.byte("hold")? {
        UNHELD => {}
        PARKED => hold.is_parked = true,
        HELD => {
            let process = fields.text("process")?.into();
            hold.holder = Some(Holder { process, epoch: fields.number("epoch")? });
        }
        _ => return Err(DamagedRow("hold")),
    }
    Ok(hold)
}

/// The records of a chunk, and its cells.
pub(crate) fn read_chunk(chunk: &[u8]) -> Result<(Vec<Record>, LocalCells), DamagedRow> {
    let mut fields = FieldReader::new(chunk);
    let last = record_id(&mut fields)?;
    read_entries(&chunk[32..], last)
}

/// The cells that are stored with records, as a source of cells.
pub(crate) struct RecordCells<'a>(pub(crate) &'a LocalCells);

impl CellSource for RecordCells<'_> {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        match self.0.get(id) {
            Some(bytes) => decode_branch(id, bytes),
            None => NoCells.load(id),
        }
    }
}

/// Decodes records and cells. IDs come from the links between the records; the last one is given.
fn read_entries(bytes: &[u8], last: RecordId) -> Result<(Vec<Record>, LocalCells), DamagedRow> {
    let mut fields = FieldReader::new(bytes);
    let mut maps: Vec<Map> = Vec::new();
    let mut cells = LocalCells::new();
    while !fields.is_empty() {
        let flag = fields.byte("entry")?;
        let run = fields.bytes("entry")?;
        match flag {
            RECORD => match decode(run) {
                Ok(Value::Map(map)) => maps.push(map),
                _ => return Err(DamagedRow("record that is a map")),
            },
            CELL => {
                cells.insert(ValueId::of_encoding(run), run.into());
            }
            _ => return Err(DamagedRow("entry of a known kind")),
        }
    }
    let mut records = Vec::with_capacity(maps.len());
    let mut id = last;
    while let Some(map) = maps.pop() {
        let record = Record::from_stored(map, id, &RecordCells(&cells));
        let record = record.map_err(|_| DamagedRow("record in its form"))?;
        id = record.prev().unwrap_or(id);
        records.push(record);
    }
    records.reverse();
    Ok((records, cells))
}

fn record_id(fields: &mut FieldReader<'_>) -> Result<RecordId, DamagedRow> {
    Ok(RecordId::new(ValueId::from_bytes(fields.array("record ID")?)))
}

fn write_fold(job: &Job, local: &LocalCells) -> Result<Vec<u8>, DamagedRow> {
    let parts = job.to_parts();
    let mut out = Vec::new();
    put_bytes(parts.venue.as_bytes(), &mut out);
    put_optional(parts.parent.as_ref(), &mut out, |parent, out| {
        out.extend_from_slice(parent.job.as_bytes());
        put_link(parent.link, out);
    });
    out.extend_from_slice(parts.first.value_id().as_bytes());
    out.push(u8::from(parts.has_started));
    put_count(u64::from(parts.attempt), &mut out);
    put_optional(parts.held.as_ref(), &mut out, put_outcome);
    put_count(parts.steps.len() as u64, &mut out);
    parts.steps.iter().for_each(|step| put_step(step, &mut out));
    put_count(parts.fields.len() as u64, &mut out);
    for (key, value) in &parts.fields {
        put_bytes(&encode_slot(key), &mut out);
        put_bytes(&encode_slot(value), &mut out);
    }
    let held = parts.held.iter().flat_map(|outcome| [&outcome.output, &outcome.execution]);
    let held = held.filter_map(Option::as_ref);
    let values = parts.fields.iter().map(|(_, value)| value).chain(held);
    let cells = reachable(values.flat_map(references).collect(), local)?;
    put_count(cells.len() as u64, &mut out);
    cells.values().for_each(|cell| put_bytes(cell, &mut out));
    put_counts(&parts, &mut out);
    Ok(out)
}

/// Encodes the parts that format 1 does not have. They come last, and are absent in its folds.
fn put_counts(parts: &Parts, out: &mut Vec<u8>) {
    put_count(u64::from(parts.failures), out);
    put_count(u64::from(parts.interruptions), out);
    put_optional(parts.last_failure.as_ref(), out, |failure, out| {
        put_bytes(failure.reason.as_bytes(), out);
        put_optional(failure.code.as_deref(), out, |code, out| put_bytes(code.as_bytes(), out));
    });
    put_count(parts.calls.len() as u64, out);
    for call in &parts.calls {
        put_bytes(call.start.key.as_bytes(), out);
        put_bytes(call.start.op.as_bytes(), out);
        out.extend_from_slice(call.start.job.as_bytes());
        out.extend_from_slice(call.start.record.value_id().as_bytes());
        out.push(u8::from(call.start.is_detached));
        put_time(call.started_at, out);
        put_optional(call.end.as_ref(), out, |end, out| {
            out.push(status_byte(end.status));
            out.extend_from_slice(end.record.value_id().as_bytes());
            put_time(call.ended_at.unwrap_or(0), out);
        });
    }
}

fn read_counts(fields: &mut FieldReader<'_>, parts: &mut Parts) -> Result<(), DamagedRow> {
    if fields.is_empty() {
        parts.failures = parts.attempt.saturating_sub(1);
        return Ok(());
    }
    parts.failures = small(fields, "failures")?;
    parts.interruptions = small(fields, "interruptions")?;
    parts.last_failure = optional(fields, |fields| {
        let reason = fields.text("reason")?.to_owned();
        let code = optional(fields, |fields| Ok(fields.text("code")?.to_owned()))?;
        Ok(LastFailure { reason, code })
    })?;
    for call in 0..small(fields, "calls")? {
        let start = CallStart {
            call,
            key: fields.text("key")?.to_owned(),
            op: fields.text("op")?.to_owned(),
            job: JobId::from_bytes(fields.array("called job")?),
            record: record_id(fields)?,
            is_detached: fields.byte("detached")? == 1,
        };
        let started_at = fields.time("started")?;
        let end = optional(fields, |fields| {
            let status = status_from_byte(fields.byte("status")?)?;
            Ok((CallEnd { call, status, record: record_id(fields)? }, fields.time("ended")?))
        })?;
        let (end, ended_at) = end.unzip();
        parts.calls.push(CallState { start, end, started_at, ended_at });
    }
    Ok(())
}

/// The cells that a member refers to: itself if it is a branch, otherwise those it contains.
pub(crate) fn references(value: &Value) -> Vec<ValueId> {
    match value {
        Value::Unloaded(id) => vec![**id],
        other if catena_value::is_embedded(other) => branches(other),
        other => vec![other.id()],
    }
}

/// The local cells among these and everything below them. Other cells are in the shared table.
pub(crate) fn reachable(
    mut waiting: Vec<ValueId>,
    local: &LocalCells,
) -> Result<LocalCells, DamagedRow> {
    let mut found = LocalCells::new();
    while let Some(id) = waiting.pop() {
        let Some(bytes) = local.get(&id).filter(|_| !found.contains_key(&id)) else { continue };
        found.insert(id, bytes.clone());
        let cell = decode_branch(&id, bytes).map_err(|_| DamagedRow("cell in its form"))?;
        waiting.extend(branches(&cell));
    }
    Ok(found)
}

/// Marks an outcome that is followed by what an executor says about the execution.
const OUTCOME_HAS_EXECUTION: u8 = 0x80;

fn put_outcome(outcome: &Outcome, out: &mut Vec<u8>) {
    // Outcomes without an execution have the form that they always had.
    let flag = if outcome.execution.is_some() { OUTCOME_HAS_EXECUTION } else { 0 };
    out.push(status_byte(outcome.status) | flag);
    put_optional(outcome.output.as_ref(), out, |output, out| put_bytes(&encode_slot(output), out));
    put_optional(outcome.error.as_deref(), out, |error, out| put_bytes(error.as_bytes(), out));
    put_optional(outcome.message.as_deref(), out, |text, out| put_bytes(text.as_bytes(), out));
    if let Some(execution) = &outcome.execution {
        put_bytes(&encode_slot(execution), out);
    }
}

fn put_step(step: &StepState, out: &mut Vec<u8>) {
    put_count(u64::from(step.start.step), out);
    out.extend_from_slice(step.start.job.as_bytes());
    out.extend_from_slice(step.start.record.value_id().as_bytes());
    put_optional(step.start.venue.as_deref(), out, |venue, out| put_bytes(venue.as_bytes(), out));
    put_time(step.started_at, out);
    put_optional(step.end.as_ref(), out, |end, out| {
        out.push(status_byte(end.status));
        out.extend_from_slice(end.record.value_id().as_bytes());
        put_time(step.ended_at.unwrap_or(0), out);
    });
}

fn read_fold(fold: &[u8], id: JobId, row: &JobRow) -> Result<(Parts, LocalCells), DamagedRow> {
    let fields = &mut FieldReader::new(fold);
    let venue = fields.text("venue")?.to_owned();
    let parent = optional(fields, |fields| {
        let job = JobId::from_bytes(fields.array("parent")?);
        Ok(Parent { job, link: read_link(fields)? })
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
            let loaded = value.fully_loaded(&RecordCells(&cells));
            *value = loaded.map_err(|_| DamagedRow("member that the fold reads"))?;
        }
    }
    let mut parts = Parts {
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
        failures: 0,
        interruptions: 0,
        last_failure: None,
        held,
        steps,
        calls: Vec::new(),
        fields: members,
    };
    read_counts(fields, &mut parts)?;
    Ok((parts, cells))
}

/// Only the cells of a fold.
fn fold_cells(fold: &[u8]) -> Result<LocalCells, DamagedRow> {
    let fields = &mut FieldReader::new(fold);
    fields.text("venue")?;
    optional(fields, |fields| {
        fields.take_bytes(16, "parent")?;
        fields.count("step")
    })?;
    fields.take_bytes(33, "first record")?;
    fields.count("attempt")?;
    optional(fields, read_outcome)?;
    for _ in 0..fields.count("steps")? {
        read_step(fields)?;
    }
    for _ in 0..fields.count("members")? {
        fields.bytes("member")?;
        fields.bytes("member")?;
    }
    read_cells(fields)
}

fn read_cells(fields: &mut FieldReader<'_>) -> Result<LocalCells, DamagedRow> {
    let mut cells = LocalCells::new();
    for _ in 0..fields.count("cells")? {
        let cell = fields.bytes("cell")?;
        cells.insert(ValueId::of_encoding(cell), cell.into());
    }
    Ok(cells)
}

fn read_slot(fields: &mut FieldReader<'_>) -> Result<Value, DamagedRow> {
    decode_slot(fields.bytes("value")?).map_err(|_| DamagedRow("value in its form"))
}

fn read_outcome(fields: &mut FieldReader<'_>) -> Result<Outcome, DamagedRow> {
    let byte = fields.byte("status")?;
    let has_execution = byte & OUTCOME_HAS_EXECUTION != 0;
    Ok(Outcome {
        status: status_from_byte(byte & !OUTCOME_HAS_EXECUTION)?,
        output: optional(fields, read_slot)?,
        error: optional(fields, |fields| Ok(fields.text("error")?.to_owned()))?,
        message: optional(fields, |fields| Ok(fields.text("message")?.to_owned()))?,
        execution: if has_execution { Some(read_slot(fields)?) } else { None },
    })
}

fn read_step(fields: &mut FieldReader<'_>) -> Result<StepState, DamagedRow> {
    let step = small(fields, "step")?;
    let job = JobId::from_bytes(fields.array("step job")?);
    let record = record_id(fields)?;
    let venue = optional(fields, |fields| Ok(fields.text("venue")?.to_owned()))?;
    let started_at = fields.time("start")?;
    let end = optional(fields, |fields| {
        let status = status_from_byte(fields.byte("status")?)?;
        let record = record_id(fields)?;
        Ok((StepEnd { step, status, record }, fields.time("end")?))
    })?;
    let (end, ended_at) = end.map_or((None, None), |(end, at)| (Some(end), Some(at)));
    let start = StepStart { step, job, record, venue };
    Ok(StepState { start, end, started_at, ended_at })
}

fn small(fields: &mut FieldReader<'_>, what: &'static str) -> Result<u32, DamagedRow> {
    u32::try_from(fields.count(what)?).map_err(|_| DamagedRow(what))
}

/// New records as bytes, and those of their cells that are stored in the shared table.
pub(crate) struct PackedRecords {
    pub(crate) entries: RecordEntries,
    pub(crate) shared: Vec<Encoded>,
    /// Cells that the records refer to without containing them.
    pub(crate) needed: Vec<ValueId>,
}

/// The cells of a record's members: of those that the fold reads if `skeleton`, otherwise of all others.
fn cells_of(record: &Record, skeleton: bool) -> HashSet<ValueId> {
    let mut found = HashSet::new();
    for (key, value) in record.fields().fields() {
        if is_skeleton(key) == skeleton && !catena_value::is_embedded(value) {
            found.insert(value.id());
        }
        if is_skeleton(key) == skeleton {
            found.extend(catena_value::cell_ids(value));
        }
    }
    found
}

/// The cells that a commit stores in the shared table, so that a large value of which several of its effects consist
/// is encoded once.
#[derive(Debug, Default)]
pub(crate) struct CommitCells(HashSet<ValueId>);

impl CommitCells {
    pub(crate) fn contains(&self, id: &ValueId) -> bool {
        self.0.contains(id)
    }

    pub(crate) fn add(&mut self, cells: &[Encoded]) {
        self.0.extend(cells.iter().map(|cell| cell.id));
    }
}

/// Encodes records. The cells of a record stay in the row while they are short; longer ones are stored
/// once in the shared table.
pub(crate) fn pack_records(records: &[Record], stored: &mut CommitCells) -> PackedRecords {
    pack_records_after(Vec::with_capacity(RECORD_BYTES * records.len()), records, stored)
}

/// Like [`pack_records`], after the bytes that are there already.
fn pack_records_after(
    bytes: Vec<u8>,
    records: &[Record],
    stored: &mut CommitCells,
) -> PackedRecords {
    let entries = RecordEntries { bytes, records: 0 };
    let mut packed = PackedRecords { entries, shared: Vec::new(), needed: Vec::new() };
    for record in records {
        // What the fold reads is always in the row.
        let local = if stored.0.is_empty() { HashSet::new() } else { cells_of(record, true) };
        let is_stored = |id: &ValueId| stored.contains(id) && !local.contains(id);
        let survey = catena_value::survey(&record.to_value(), is_stored);
        let size: usize = survey.cells.iter().map(|cell| cell.bytes.len()).sum();
        if size <= LOCAL_CELL_BYTES_MAX {
            survey.cells.iter().for_each(|cell| packed.entries.push(CELL, &cell.bytes));
        } else {
            let skeleton = cells_of(record, true);
            let large = cells_of(record, false);
            let first = packed.shared.len();
            for cell in survey.cells {
                if skeleton.contains(&cell.id) || !large.contains(&cell.id) {
                    packed.entries.push(CELL, &cell.bytes);
                }
                if large.contains(&cell.id) {
                    packed.shared.push(cell);
                }
            }
            stored.add(&packed.shared[first..]);
        }
        packed.needed.extend(survey.unloaded);
        packed.entries.push(RECORD, &record.encoding());
    }
    packed
}

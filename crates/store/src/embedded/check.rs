//! Verification of an entire store: every chain, every index entry, every reference; and rebuilding
//! the indexes.

use std::collections::{HashMap, HashSet};

use catena_job::verify::{self, Verifier};
use catena_job::{Job, JobId, Record};
use catena_value::{ValueId, branches, decode, decode_branch};

use super::driver::{for_each_row, unavailable_error};
use super::positions::entries;
use super::rows::{Lease, damaged_error, decode_idempotency};
use super::store::EmbeddedStore;
use crate::bytes::{DamagedRow, FieldReader};
use crate::effects::CommitError;
use crate::keys::{self, *};
use crate::limits::{PROBLEMS_MAX, REBUILD_BATCH};
use crate::row::{JobRow, LocalCells, RecordCells, read_chunk};
use crate::store::{ReadError, TimerKind};
use crate::summary::Summary;
use catena_ledger::{Direction, KeyRange, TableId, Tx, View};

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Number of jobs whose chains were verified.
    pub jobs: u64,
    /// Number of records in those chains.
    pub records: u64,
    /// Number of cells whose bytes were checked.
    pub cells: u64,
    /// Number of expected index entries that were found.
    pub index_entries: u64,
    /// Number of root values.
    pub roots: u64,
    /// The first problems, up to [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
    /// Number of all problems.
    pub problems_total: u64,
}

impl CheckReport {
    /// Whether no problem was found.
    pub fn is_good(&self) -> bool {
        self.problems_total == 0
    }

    fn add_problem(&mut self, what: impl ToString, reason: impl ToString) {
        self.add(Problem { what: what.to_string(), reason: reason.to_string() });
    }

    pub(super) fn add(&mut self, problem: Problem) {
        self.problems_total += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// A problem that a check found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct Problem {
    /// What the problem concerns, such as a job or an index.
    pub what: String,
    /// What is wrong.
    pub reason: String,
}

impl EmbeddedStore {
    /// Checks everything as of this moment, while readers and writers go on.
    pub fn check(&self) -> Result<CheckReport, ReadError> {
        let view = self.driver.view();
        let mut report = CheckReport::default();
        let mut expected = ExpectedRows::default();
        check_cells(&view, &mut report)?;
        check_jobs(&view, &mut report, &mut expected)?;
        check_chunks(&view, &mut report)?;
        check_roots(&view, &mut report)?;
        check_keys(&view, &mut report, &mut expected)?;
        check_indexes(&view, &mut report, &expected)?;
        Ok(report)
    }

    /// Drops all indexes and rebuilds them from primary data. No other writer may be active meanwhile.
    pub async fn rebuild(&self) -> Result<u64, CommitError> {
        for table in INDEXES {
            while self.driver.submit(move |tx| delete_rows(tx, table)).await? {}
        }
        let rows = {
            let view = self.driver.view();
            let mut rows = Vec::new();
            let collected = for_each_row(&view, JOBS, |key, row| {
                let (id, row) = job_row(key, row)?;
                let facts = IndexFacts::from_summary(id, &row.summary);
                rows.extend(facts.rows(row.order, &row.hold));
                rows.extend(facts.listed(row.order).map(|entry| {
                    (EVERYONE, row.order.to_be_bytes().into(), entry.as_slice().into())
                }));
                Ok(())
            });
            let collected = collected.and_then(|()| lease_and_expiry_rows(&view, &mut rows));
            collected.map_err(|error| CommitError::Damaged { reason: error.to_string() })?;
            rows
        };
        let total = rows.len() as u64;
        for batch in rows.chunks(REBUILD_BATCH) {
            let batch = batch.to_vec();
            let put = move |tx: &mut Tx<'_>| {
                batch.into_iter().for_each(|(table, key, value)| tx.put(table, key, value));
                Ok(())
            };
            self.driver.submit(put).await?;
        }
        Ok(total)
    }
}

/// Deletes some rows of a table. Returns whether more may be left.
fn delete_rows(tx: &mut Tx<'_>, table: TableId) -> Result<bool, CommitError> {
    let rows = tx.range(table, &KeyRange::all(), Direction::Forward, REBUILD_BATCH)?;
    let is_full = rows.len() == REBUILD_BATCH;
    rows.into_iter().for_each(|(key, _)| tx.delete(table, key));
    Ok(is_full)
}

fn job_row(key: &[u8], row: &[u8]) -> Result<(JobId, JobRow), ReadError> {
    let id: [u8; 16] = key.try_into().map_err(|_| damaged_error("jobs")(DamagedRow("job ID")))?;
    let id = JobId::from_bytes(id);
    Ok((id, JobRow::read(row).map_err(damaged_error(id))?))
}

/// Index rows that follow from leases of format 1 and from idempotency keys.
fn lease_and_expiry_rows(view: &View, rows: &mut Vec<IndexRow>) -> Result<(), ReadError> {
    for_each_row(view, LEASES, |key, row| {
        let lease = Lease::decode(row).map_err(damaged_error("a lease"))?;
        let id: [u8; 16] =
            key.try_into().map_err(|_| damaged_error("leases")(DamagedRow("job ID")))?;
        if let Some((_, until)) = lease.holder {
            let key = timer_key(until, TimerKind::LeaseEnd, JobId::from_bytes(id));
            rows.push((TIMERS, key.into(), [].into()));
        }
        Ok(())
    })?;
    for_each_row(view, IDEMPOTENCY, |key, row| {
        let entry = decode_idempotency(row).map_err(damaged_error("an idempotency key"))?;
        rows.push((EXPIRY, keys::expiry_key(entry.expires, key).into(), [].into()));
        Ok(())
    })
}

/// What the indexes should contain.
#[derive(Default)]
struct ExpectedRows {
    /// The number of rows of each index, by table ID.
    counts: HashMap<u8, u64>,
    /// The entries of the list of all owners.
    listed: HashSet<[u8; LISTED_BYTES]>,
}

impl ExpectedRows {
    /// Checks that one index row is there.
    fn check_row(
        &mut self,
        view: &View,
        report: &mut CheckReport,
        (table, key, value): &IndexRow,
    ) -> Result<(), ReadError> {
        *self.counts.entry(table.0).or_default() += 1;
        match view.get(*table, key).map_err(unavailable_error)? {
            Some(found) if found[..] == value[..] => report.index_entries += 1,
            // Written in format 1, in which the index of live jobs has only keys.
            Some(found) if *table == LIVE && found.is_empty() => report.index_entries += 1,
            Some(_) => report.add_problem(index_name(*table), "an entry has another value"),
            None => report.add_problem(index_name(*table), "an entry is missing"),
        }
        Ok(())
    }
}

fn index_name(table: TableId) -> String {
    let known = TABLES.iter().find(|known| known.id == table);
    format!("index {}", known.map_or("unknown", |known| known.name))
}

fn check_cells(view: &View, report: &mut CheckReport) -> Result<(), ReadError> {
    for_each_row(view, CELLS, |key, bytes| {
        let Ok(id) = <[u8; 32]>::try_from(key) else {
            report.add_problem("cells", "a key is no cell ID");
            return Ok(());
        };
        let id = ValueId::from_bytes(id);
        report.cells += 1;
        match decode_branch(&id, bytes) {
            Ok(cell) => check_held(view, &branches(&cell), &LocalCells::new(), &id, report),
            Err(error) => {
                report.add_problem(id, error);
                Ok(())
            }
        }
    })
}

/// Checks that every one of these cells is held.
fn check_held(
    view: &View,
    cells: &[ValueId],
    local: &LocalCells,
    what: &dyn ToString,
    report: &mut CheckReport,
) -> Result<(), ReadError> {
    for id in cells {
        let is_held = local.contains_key(id)
            || view.get(CELLS, keys::cell_key(id)).map_err(unavailable_error)?.is_some();
        if !is_held {
            report.add_problem(what.to_string(), format!("refers to cell {id}, which is not held"));
        }
    }
    Ok(())
}

fn check_jobs(
    view: &View,
    report: &mut CheckReport,
    expected: &mut ExpectedRows,
) -> Result<(), ReadError> {
    let mut orders = HashSet::new();
    for_each_row(view, JOBS, |key, bytes| {
        report.jobs += 1;
        let (id, row) = match job_row(key, bytes) {
            Ok(found) => found,
            Err(error) => {
                report.add_problem("jobs", error);
                return Ok(());
            }
        };
        if !orders.insert(row.order) {
            report.add_problem(id, format!("position {} in the order is used twice", row.order));
        }
        let facts = IndexFacts::from_summary(id, &row.summary);
        for index in facts.rows(row.order, &row.hold) {
            expected.check_row(view, report, &index)?;
        }
        expected.listed.extend(facts.listed(row.order));
        if let Err(error) = check_chain(view, id, &row, report) {
            report.add_problem(id, error);
        }
        Ok(())
    })
}

/// Verifies a chain: every ID is recomputed, every rule applied, every cell looked up.
fn check_chain(
    view: &View,
    id: JobId,
    row: &JobRow,
    report: &mut CheckReport,
) -> Result<(), ReadError> {
    let mut verifier = Verifier::default();
    let mut next = 0;
    let range = KeyRange::prefix(id.as_bytes());
    for found in view.range(CHUNKS, &range, Direction::Forward).map_err(unavailable_error)? {
        let (key, chunk) = found.map_err(unavailable_error)?;
        let first = FieldReader::new(key.get(16..).unwrap_or(&[]))
            .number("chunk")
            .map_err(damaged_error(id))?;
        if first != next {
            report.add_problem(id, format!("record {next} should begin a chunk, found {first}"));
            return Ok(());
        }
        let chunk = read_chunk(&chunk).map_err(damaged_error(id))?;
        next += chunk.0.len() as u64;
        check_records(view, id, chunk, &mut verifier, report)?;
    }
    let open = row.open_records().map_err(damaged_error(id))?;
    check_records(view, id, open, &mut verifier, report)?;
    let expected = verify::Expected { job: Some(id), head: Some(row.head), venue: None };
    match verifier.finish(&expected) {
        Ok(job) => check_row(id, row, &job, report),
        Err(fault) => report.add_problem(id, fault),
    }
    Ok(())
}

fn check_records(
    view: &View,
    id: JobId,
    (records, cells): (Vec<Record>, LocalCells),
    verifier: &mut Verifier,
    report: &mut CheckReport,
) -> Result<(), ReadError> {
    for record in records {
        report.records += 1;
        check_held(view, &branches(&record.to_value()), &cells, &id, report)?;
        let entry = catena_job::history::Entry {
            id: record.id().to_string(),
            record: decode_again(&record, &cells),
            signature: None,
        };
        if let Err(fault) = verifier.push(entry) {
            report.add_problem(id, fault);
        }
    }
    Ok(())
}

/// The record's map, decoded again so that no cached encoding is trusted. Members that the fold reads
/// may be in separate cells and are read from those again.
fn decode_again(record: &Record, cells: &LocalCells) -> catena_value::Map {
    let read = match decode(&catena_value::encode(&record.to_value())) {
        Ok(catena_value::Value::Map(map)) => {
            Record::from_stored(map, record.id(), &RecordCells(cells))
        }
        _ => return record.fields().clone(),
    };
    read.map_or_else(|_| record.fields().clone(), |read| read.fields().clone())
}

/// Checks that the row agrees with the chain.
fn check_row(id: JobId, row: &JobRow, job: &Job, report: &mut CheckReport) {
    if row.count != job.count() {
        report.add_problem(id, format!("the row counts {} records of {}", row.count, job.count()));
    }
    if row.summary != Summary::from_job(job) {
        report.add_problem(id, "the summary is not that of the chain");
    }
    if row.is_folded() {
        match row.job(id) {
            Ok((folded, _)) if folded.to_value() == job.to_value() => {}
            Ok(_) => report.add_problem(id, "the fold in the row is not that of the chain"),
            Err(error) => report.add_problem(id, error),
        }
    }
}

fn check_chunks(view: &View, report: &mut CheckReport) -> Result<(), ReadError> {
    let mut last: Option<[u8; 16]> = None;
    for_each_row(view, CHUNKS, |key, _| {
        let job: Option<[u8; 16]> = key.get(..16).and_then(|id| id.try_into().ok());
        if let Some(job) = job.filter(|job| Some(*job) != last) {
            last = Some(job);
            if view.get(JOBS, &job).map_err(unavailable_error)?.is_none() {
                report.add_problem(JobId::from_bytes(job), "has chunks but no row");
            }
        }
        Ok(())
    })
}

fn check_roots(view: &View, report: &mut CheckReport) -> Result<(), ReadError> {
    for_each_row(view, ROOTS, |key, bytes| {
        report.roots += 1;
        let name = String::from_utf8_lossy(key.get(1..).unwrap_or(&[])).replace('\0', " ");
        match decode(bytes) {
            Ok(value) => check_held(view, &branches(&value), &LocalCells::new(), &name, report),
            Err(error) => {
                report.add_problem(name, error);
                Ok(())
            }
        }
    })
}

/// Checks the index rows of leases and idempotency keys.
fn check_keys(
    view: &View,
    report: &mut CheckReport,
    expected: &mut ExpectedRows,
) -> Result<(), ReadError> {
    let mut rows = Vec::new();
    lease_and_expiry_rows(view, &mut rows)?;
    rows.iter().try_for_each(|row| expected.check_row(view, report, row))
}

/// Checks that the indexes hold nothing else.
fn check_indexes(
    view: &View,
    report: &mut CheckReport,
    expected: &ExpectedRows,
) -> Result<(), ReadError> {
    check_listed(view, report, &expected.listed)?;
    for table in INDEXES.into_iter().filter(|table| *table != EVERYONE) {
        let mut found = 0;
        for_each_row(view, table, |_, _| {
            found += 1;
            Ok(())
        })?;
        let wanted = expected.counts.get(&table.0).copied().unwrap_or(0);
        if found != wanted {
            report.add_problem(
                index_name(table),
                format!("has {found} entries, should have {wanted}"),
            );
        }
    }
    Ok(())
}

/// Checks that the list of all owners has every job once. Entries of jobs that no longer exist are
/// passed over, as readers do.
fn check_listed(
    view: &View,
    report: &mut CheckReport,
    expected: &HashSet<[u8; LISTED_BYTES]>,
) -> Result<(), ReadError> {
    let mut found = HashSet::new();
    let mut last = 0;
    for_each_row(view, EVERYONE, |_, row| {
        for (position, _) in entries(EVERYONE, row).map_err(damaged_error("everyone"))? {
            if position <= last {
                report.add_problem(index_name(EVERYONE), "entries are not in order");
            }
            last = position;
        }
        let known =
            row.as_chunks::<LISTED_BYTES>().0.iter().filter(|entry| expected.contains(*entry));
        found.extend(known.copied());
        Ok(())
    })?;
    report.index_entries += found.len() as u64;
    if found.len() != expected.len() {
        let missing = expected.len() - found.len();
        report.add_problem(index_name(EVERYONE), format!("{missing} entries are missing"));
    }
    Ok(())
}

//! Reading: rows to what the store answers.

use std::ops::Bound;
use std::sync::Arc;

use catena_job::{JobId, Record, Status};
use catena_value::{ValueId, decode, decode_message};

use super::EmbeddedStore;
use super::collect::for_each_row;
use super::recent::Made;
use super::tally::Tally;
use crate::blob::Digest;
use crate::bytes::{Damaged, Fields, put_count, put_run, put_time};
use crate::keys::*;
use crate::limits::{PAGE_LOOKED_AT_MAX, PAGE_ROWS_MAX};
use crate::row::{JobRow, LocalCells, read_chunk};
use crate::store::{
    Claim, Filter, Idempotency, JobCells, JobPage, ListOrder, ListQuery, ListedJob, Message,
    ReadError, RecordPage, Root, RootKey, RootSpace, StoredBlob, StoredJob, Timer, TimerKind,
};
use crate::summary::{Summary, optional, put_optional, status_of};
use catena_ledger::{Direction, KeyRange, Value as Row};

/// What stands beside a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) changes: u64,
    pub(super) next_message: u64,
    pub(super) queued: u32,
    /// A multi-cell message.
    pub(super) progress: Option<Vec<u8>>,
}

impl Beside {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut row = Vec::new();
        put_count(self.changes, &mut row);
        put_count(self.next_message, &mut row);
        put_count(u64::from(self.queued), &mut row);
        put_optional(self.progress.as_deref(), &mut row, put_run);
        row
    }

    pub(super) fn read(row: &[u8]) -> Result<Self, Damaged> {
        let mut fields = Fields::new(row);
        Ok(Beside {
            changes: fields.count("changes")?,
            next_message: fields.count("next message")?,
            queued: u32::try_from(fields.count("queued")?).map_err(|_| Damaged("queued"))?,
            progress: optional(&mut fields, |fields| Ok(fields.run("progress")?.to_vec()))?,
        })
    }
}

/// Who may run a job, or where it waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) fence: u64,
    /// The worker and the end of its lease.
    pub(super) holder: Option<(String, i64)>,
    /// The key of its place on a queue.
    pub(super) place: Option<Vec<u8>>,
}

impl Lease {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut row = Vec::new();
        put_count(self.fence, &mut row);
        put_optional(self.holder.as_ref(), &mut row, |(worker, until), row| {
            put_run(worker.as_bytes(), row);
            put_time(*until, row);
        });
        put_optional(self.place.as_deref(), &mut row, put_run);
        row
    }

    pub(super) fn read(row: &[u8]) -> Result<Self, Damaged> {
        let mut fields = Fields::new(row);
        Ok(Lease {
            fence: fields.count("fence")?,
            holder: optional(&mut fields, |fields| {
                Ok((fields.text("worker")?.to_owned(), fields.time("until")?))
            })?,
            place: optional(&mut fields, |fields| Ok(fields.run("place")?.to_vec()))?,
        })
    }
}

pub(super) fn read_idempotency(row: &[u8]) -> Result<Idempotency, Damaged> {
    let mut fields = Fields::new(row);
    let expires = fields.time("expiry")?;
    let body_digest = fields.array("body digest")?;
    let owner = fields.text("owner")?.to_owned();
    let endpoint = fields.text("endpoint")?.to_owned();
    let key = fields.text("key")?.to_owned();
    let answer = decode_message(fields.rest()).map_err(|_| Damaged("answer in its form"))?;
    Ok(Idempotency { owner, endpoint, key, body_digest, answer, expires })
}

/// A row that is damaged, with what it is the row of.
pub(super) fn damaged(what: impl ToString) -> impl FnOnce(Damaged) -> ReadError {
    move |error| ReadError::Damaged { what: what.to_string(), reason: error.to_string() }
}

impl EmbeddedStore {
    pub(super) fn read_row(&self, id: JobId) -> Result<Option<JobRow>, ReadError> {
        match self.engine.get(JOBS, id.as_bytes())? {
            Some(row) => JobRow::read(&row).map(Some).map_err(damaged(id)),
            None => Ok(None),
        }
    }

    pub(super) fn read_job(&self, id: JobId) -> Result<Option<StoredJob>, ReadError> {
        if let Some(ended) = self.recent.ended(id) {
            return Ok(Some(ended));
        }
        let epoch = self.recent.epoch();
        let Some(row) = self.engine.get(JOBS, id.as_bytes())? else { return Ok(None) };
        let known = self.recent.made(id, &row);
        let is_known = known.is_some();
        let Made { job, cells, order } = match known {
            Some(made) => made,
            None => self.make(id, &row)?,
        };
        let beside = match self.engine.get(BESIDE, id.as_bytes())? {
            Some(row) => Beside::read(&row).map_err(damaged(id))?,
            None => Beside::default(),
        };
        let progress = match &beside.progress {
            Some(message) => Some(
                decode_message(message)
                    .map_err(|_| damaged(id)(Damaged("progress in its form")))?,
            ),
            None => None,
        };
        let lease = match !job.status().is_terminal() {
            true => self.read_lease(id)?,
            false => None,
        };
        let (changes, queue_depth) = (beside.changes, beside.queued);
        let stored = StoredJob { job, order, changes, queue_depth, progress, lease, cells };
        if !is_known && self.recent.is_asked_again(id) {
            self.recent.keep(id, row, &stored, epoch);
        }
        Ok(Some(stored))
    }

    /// The job of a row.
    fn make(&self, id: JobId, row: &Row) -> Result<Made, ReadError> {
        let read = JobRow::read(row).map_err(damaged(id))?;
        let (job, cells) = read.job(id).map_err(damaged(id))?;
        Ok(Made { job: Arc::new(job), cells: self.job_cells(cells), order: read.order })
    }

    fn job_cells(&self, local: LocalCells) -> JobCells {
        JobCells::new(local, self.cells.clone())
    }

    fn read_lease(&self, id: JobId) -> Result<Option<Claim>, ReadError> {
        let Some(row) = self.engine.get(LEASES, id.as_bytes())? else { return Ok(None) };
        let lease = Lease::read(&row).map_err(damaged(id))?;
        let fence = lease.fence;
        Ok(lease.holder.map(|(worker, until)| Claim { job: id, fence, worker, until }))
    }

    pub(super) fn read_records(
        &self,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> Result<Option<RecordPage>, ReadError> {
        let Some(row) = self.read_row(id)? else { return Ok(None) };
        let limit = limit.min(PAGE_ROWS_MAX) as u64;
        let until = from.saturating_add(limit).min(row.count);
        let mut page = Page { from, until, records: Vec::new(), cells: LocalCells::new() };
        if from < row.first_open() {
            self.read_chunks(id, &mut page)?;
        }
        if until > row.first_open() {
            let open = row.open_records().map_err(damaged(id))?;
            page.take(row.first_open(), open);
        }
        let Page { records, cells, .. } = page;
        Ok(Some(RecordPage { records, total: row.count, cells: self.job_cells(cells) }))
    }

    fn read_chunks(&self, id: JobId, page: &mut Page) -> Result<(), ReadError> {
        // The chunk that holds `from` is the last one that begins at or before it.
        let before = KeyRange {
            lower: Bound::Included(chunk(id, 0).as_slice().into()),
            upper: Bound::Included(chunk(id, page.from).as_slice().into()),
        };
        let first = self.engine.range(CHUNKS, &before, Direction::Backward, 1)?;
        let Some((mut key, _)) = first.into_iter().next() else { return Ok(()) };
        loop {
            let range = KeyRange {
                lower: Bound::Included(key.clone()),
                upper: Bound::Excluded(chunk(id, page.until).as_slice().into()),
            };
            let rows = self.engine.range(CHUNKS, &range, Direction::Forward, 64)?;
            let is_last = rows.len() < 64;
            for (row_key, row) in rows {
                let mut fields = Fields::new(row_key.get(16..).unwrap_or(&[]));
                let first = fields.number("chunk").map_err(damaged(id))?;
                page.take(first, read_chunk(&row).map_err(damaged(id))?);
                key = row_key.iter().copied().chain([0]).collect();
            }
            if is_last {
                return Ok(());
            }
        }
    }

    pub(super) fn read_list(&self, query: &ListQuery) -> Result<JobPage, ReadError> {
        let owner = query.owner.as_str();
        let scope = match &query.filter {
            Filter::All => owner_scope(owner),
            // Nearly all jobs are, so the owner's list is the list of those.
            Filter::Status(Status::Complete) => owner_scope(owner),
            Filter::Status(status) => status_scope(owner, *status),
            Filter::Op(op) => op_scope(owner, op),
            Filter::Tag(tag) => tag_scope(owner, tag),
        };
        let limit = query.limit.clamp(1, PAGE_ROWS_MAX);
        let mut page = JobPage { jobs: Vec::new(), next: None };
        let mut after = query.after;
        let mut looked_at = 0;
        while page.jobs.len() < limit {
            let range = list_range(scope, after, query.order);
            let direction = match query.order {
                ListOrder::Oldest => Direction::Forward,
                ListOrder::Newest => Direction::Backward,
            };
            let wanted = limit - page.jobs.len() + 1;
            let rows = self.engine.range(LISTS, &range, direction, wanted)?;
            let (is_last, found) = (rows.len() < wanted, rows.len());
            for (key, value) in rows {
                if page.jobs.len() == limit {
                    page.next = after;
                    return Ok(page);
                }
                after = Some(order_of(&key));
                page.jobs.extend(self.listed(&key, &value, query)?);
            }
            looked_at += found;
            if is_last {
                return Ok(page);
            }
            if looked_at >= PAGE_LOOKED_AT_MAX {
                page.next = after;
                return Ok(page);
            }
        }
        page.next = after;
        Ok(page)
    }

    /// How many lines a list has. Those that stay in a list for good are counted once.
    pub(super) fn read_count(&self, owner: &str, filter: &Filter) -> Result<u64, ReadError> {
        let scope = match filter {
            Filter::All => owner_scope(owner),
            Filter::Op(op) => op_scope(owner, op),
            Filter::Tag(tag) => tag_scope(owner, tag),
            Filter::Status(_) => return self.count_lines(owner, filter, &mut Tally::default()),
        };
        let (mut tally, epoch) = self.tallies.get(scope);
        let rows = self.count_lines(owner, filter, &mut tally)?;
        self.tallies.keep(scope, tally, epoch);
        Ok(rows)
    }

    fn count_lines(
        &self,
        owner: &str,
        filter: &Filter,
        tally: &mut Tally,
    ) -> Result<u64, ReadError> {
        let mut query = ListQuery {
            owner: owner.to_owned(),
            filter: filter.clone(),
            order: ListOrder::Oldest,
            after: tally.last,
            limit: PAGE_ROWS_MAX,
        };
        loop {
            let page = self.read_list(&query)?;
            tally.rows += page.jobs.len() as u64;
            tally.last = page.jobs.last().map(|job| job.order).or(tally.last);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(tally.rows),
            }
        }
    }

    pub(super) fn read_all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<(JobId, Summary)>, ReadError> {
        let lower = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_bytes()[..].into()));
        let range = KeyRange { lower, upper: Bound::Unbounded };
        let rows = self.engine.range(JOBS, &range, Direction::Forward, limit.min(PAGE_ROWS_MAX))?;
        let mut jobs = Vec::with_capacity(rows.len());
        for (key, row) in &rows {
            let id = job_id(key)?;
            jobs.push((id, JobRow::read(row).map_err(damaged(id))?.summary));
        }
        Ok(jobs)
    }

    /// One line of a list, if it is of what was asked for: from the row itself, or from the job
    /// it names. Rows are found by a hash, so another owner's may lie between them.
    fn listed(
        &self,
        key: &[u8],
        value: &[u8],
        query: &ListQuery,
    ) -> Result<Option<ListedJob>, ReadError> {
        let order = order_of(key);
        if value.len() > 16 {
            let job = read_listed(value, order, &query.owner).map_err(damaged("a list"))?;
            return Ok(job.filter(|job| match &query.filter {
                Filter::Status(status) => job.status == *status,
                _ => true,
            }));
        }
        let id = job_id(value)?;
        let row = self.read_row(id)?.filter(|row| matches(&row.summary, query));
        Ok(row.map(|row| ListedJob {
            id,
            order,
            status: row.summary.status,
            op: row.summary.op,
            created: row.summary.created,
            updated: row.summary.updated,
        }))
    }

    pub(super) fn read_live(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<JobId>, ReadError> {
        let lower = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_bytes()[..].into()));
        let range = KeyRange { lower, upper: Bound::Unbounded };
        let rows = self.engine.range(LIVE, &range, Direction::Forward, limit.min(PAGE_ROWS_MAX))?;
        rows.iter().map(|(key, _)| job_id(key)).collect()
    }

    pub(super) fn read_due(&self, until: i64, limit: usize) -> Result<Vec<Timer>, ReadError> {
        let upper = Bound::Excluded(time(until.saturating_add(1))[..].into());
        let range = KeyRange { lower: Bound::Unbounded, upper };
        let rows =
            self.engine.range(TIMERS, &range, Direction::Forward, limit.min(PAGE_ROWS_MAX))?;
        rows.iter().map(|(key, _)| read_timer(key).map_err(damaged("a timer"))).collect()
    }

    pub(super) fn read_executions(
        &self,
        owner: &str,
        key: &str,
        limit: usize,
    ) -> Result<Vec<JobId>, ReadError> {
        let range = KeyRange::prefix(&execution_scope(owner, key));
        let limit = limit.min(PAGE_ROWS_MAX);
        let rows = self.engine.range(EXECUTIONS, &range, Direction::Backward, limit)?;
        let mut found = Vec::new();
        for (_, value) in rows {
            let id = job_id(&value)?;
            let Some(row) = self.read_row(id)? else { continue };
            // Another key with the same hash would be listed here too.
            if row.summary.owner == owner && row.summary.execution_key.as_deref() == Some(key) {
                found.push(id);
            }
        }
        Ok(found)
    }

    pub(super) fn read_messages(&self, id: JobId, limit: usize) -> Result<Vec<Message>, ReadError> {
        let range = KeyRange::prefix(id.as_bytes());
        let limit = limit.min(PAGE_ROWS_MAX);
        let rows = self.engine.range(MESSAGES, &range, Direction::Forward, limit)?;
        rows.iter().map(|(key, row)| read_message(key, row).map_err(damaged(id))).collect()
    }

    pub(super) fn read_remembered(
        &self,
        owner: &str,
        endpoint: &str,
        key: &str,
    ) -> Result<Option<Idempotency>, ReadError> {
        let row = self.engine.get(IDEMPOTENCY, &idempotency(owner, endpoint, key))?;
        row.map(|row| read_idempotency(&row).map_err(damaged("an idempotency key"))).transpose()
    }

    pub(super) fn read_root(&self, key: &RootKey) -> Result<Option<Root>, ReadError> {
        let Some(row) = self.engine.get(ROOTS, &root(key))? else { return Ok(None) };
        let value = decode(&row).map_err(|error| ReadError::Damaged {
            what: key.to_string(),
            reason: error.to_string(),
        })?;
        Ok(Some(Root { value, id: ValueId::of_encoding(&row) }))
    }

    pub(super) fn read_roots(
        &self,
        space: RootSpace,
        owner: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, ReadError> {
        let prefix = root_prefix(space as u8, owner);
        let KeyRange { lower, upper } = KeyRange::prefix(&prefix);
        let lower = match after {
            Some(name) => Bound::Excluded(
                prefix.iter().chain(name.as_bytes()).copied().collect::<Vec<_>>().into(),
            ),
            None => lower,
        };
        let range = KeyRange { lower, upper };
        let rows =
            self.engine.range(ROOTS, &range, Direction::Forward, limit.min(PAGE_ROWS_MAX))?;
        let name = |key: &[u8]| String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        Ok(rows.iter().map(|(key, _)| name(key)).collect())
    }

    /// The blobs whose content is in files, as of this moment.
    pub(super) fn blobs_in_files(&self) -> Result<Vec<Digest>, ReadError> {
        let mut found = Vec::new();
        for_each_row(&self.engine.view(), BLOBS, |key, row| {
            let (_, is_here) = blob_place(&mut Fields::new(row)).map_err(damaged("a blob"))?;
            let digest = key.try_into().map_err(|_| damaged("blobs")(Damaged("digest")))?;
            if !is_here {
                found.push(Digest::from_bytes(digest));
            }
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn read_blob(&self, digest: &[u8; 32]) -> Result<Option<StoredBlob>, ReadError> {
        let Some(row) = self.engine.get(BLOBS, digest)? else { return Ok(None) };
        let mut fields = Fields::new(&row);
        let (len, is_here) = blob_place(&mut fields).map_err(damaged("a blob"))?;
        Ok(Some(StoredBlob { len, content: is_here.then(|| fields.rest().into()) }))
    }
}

/// The length of a blob, and whether its content follows.
fn blob_place(fields: &mut Fields<'_>) -> Result<(u64, bool), Damaged> {
    let len = fields.count("length")?;
    Ok((len, fields.byte("place")? == 1))
}

/// Records gathered for a page.
struct Page {
    from: u64,
    until: u64,
    records: Vec<Record>,
    cells: LocalCells,
}

impl Page {
    /// Takes what lies on the page of records that begin at `first`.
    fn take(&mut self, first: u64, (records, cells): (Vec<Record>, LocalCells)) {
        let wanted = (first..).zip(records).filter(|(at, _)| (self.from..self.until).contains(at));
        self.records.extend(wanted.map(|(_, record)| record));
        self.cells.extend(cells);
    }
}

fn list_range(scope: [u8; 8], after: Option<u64>, order: ListOrder) -> KeyRange {
    let KeyRange { lower, upper } = KeyRange::prefix(&scope);
    let Some(after) = after else { return KeyRange { lower, upper } };
    let place = ordered(scope, after).as_slice().into();
    match order {
        ListOrder::Oldest => KeyRange { lower: Bound::Excluded(place), upper },
        ListOrder::Newest => KeyRange { lower, upper: Bound::Excluded(place) },
    }
}

fn order_of(key: &[u8]) -> u64 {
    key.get(8..16).and_then(|order| order.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// Whether a row that was found by a hash is what was asked for.
fn matches(summary: &Summary, query: &ListQuery) -> bool {
    summary.owner == query.owner
        && match &query.filter {
            Filter::All => true,
            Filter::Status(status) => summary.status == *status,
            Filter::Op(op) => summary.op == *op,
            Filter::Tag(tag) => summary.tags.contains(tag),
        }
}

/// A line that holds all a list shows; nothing when it is another owner's.
fn read_listed(value: &[u8], order: u64, owner: &str) -> Result<Option<ListedJob>, Damaged> {
    let mut fields = Fields::new(value);
    let id = JobId::from_bytes(fields.array("job")?);
    if fields.array("owner")? != owner_check(owner) {
        return Ok(None);
    }
    let status = status_of(fields.byte("status")?)?;
    let (created, updated) = (fields.time("created")?, fields.time("updated")?);
    let op = fields.text("op")?.to_owned();
    Ok(Some(ListedJob { id, order, status, op, created, updated }))
}

fn job_id(bytes: &[u8]) -> Result<JobId, ReadError> {
    let id = bytes.get(..16).and_then(|id| id.try_into().ok()).map(JobId::from_bytes);
    id.ok_or_else(|| damaged("an index")(Damaged("job ID")))
}

pub(super) fn read_timer(key: &[u8]) -> Result<Timer, Damaged> {
    let mut fields = Fields::new(key);
    let at = i64::try_from(fields.number("time")?).map_err(|_| Damaged("time"))?;
    let kind = TimerKind::from_byte(fields.byte("kind")?).ok_or(Damaged("kind"))?;
    Ok(Timer { at, kind, job: JobId::from_bytes(fields.array("job")?) })
}

fn read_message(key: &[u8], row: &[u8]) -> Result<Message, Damaged> {
    let number = Fields::new(key.get(16..).unwrap_or(&[])).number("number")?;
    let mut fields = Fields::new(row);
    let id = fields.text("message ID")?.to_owned();
    let body = decode_message(fields.rest()).map_err(|_| Damaged("message in its form"))?;
    Ok(Message { number, id, body })
}

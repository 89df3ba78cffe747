//! Reading: from rows to the results of [`crate::Store`].

use std::ops::Bound;
use std::sync::Arc;

use catena_job::{JobId, Record, Status};
use catena_value::{decode, decode_message};

use super::counts::ListCount;
use super::driver::for_each_row;
use super::positions::{PositionEntry, PositionRange};
use super::recent::DecodedJob;
use super::rows::{
    Lease, Sidecar, damaged_error, decode_blob, decode_idempotency, decode_job_message,
    decode_timer,
};
use super::store::EmbeddedStore;
use crate::blob::Digest;
use crate::bytes::{DamagedRow, FieldReader};
use crate::keys::*;
use crate::limits::{PAGE_ROWS_MAX, PAGE_SCANNED_MAX};
use crate::row::{JobRow, LocalCells, read_chunk};
use crate::store::{
    Filter, Idempotency, JobCells, JobPage, ListOrder, ListQuery, ListedJob, LiveJob, Message,
    QueuedJob, ReadError, ReadyJobs, RecordPage, Root, RootKey, RootSpace, Seek, StoredBlob,
    StoredJob, Timer,
};
use crate::summary::{Summary, status_from_byte};
use catena_ledger::{Direction, Key, KeyRange, RowBytes};

impl EmbeddedStore {
    pub(super) fn read_row(&self, id: JobId) -> Result<Option<JobRow>, ReadError> {
        match self.driver.get(JOBS, id.as_bytes())? {
            Some(row) => JobRow::read(&row).map(Some).map_err(damaged_error(id)),
            None => Ok(None),
        }
    }

    pub(super) fn read_job(&self, id: JobId) -> Result<Option<StoredJob>, ReadError> {
        if let Some(ended) = self.recent.get_ended(id) {
            return Ok(Some(ended));
        }
        let epoch = self.recent.epoch();
        let Some(row) = self.driver.get(JOBS, id.as_bytes())? else { return Ok(None) };
        let known = self.recent.get_decoded(id, &row);
        let is_known = known.is_some();
        let DecodedJob { job, cells, order, hold } = match known {
            Some(made) => made,
            None => self.decode_job(id, &row)?,
        };
        let sidecar = match self.driver.get(SIDECARS, id.as_bytes())? {
            Some(row) => Sidecar::decode(&row).map_err(damaged_error(id))?,
            None => Sidecar::default(),
        };
        let progress = match &sidecar.progress {
            Some(message) => Some(
                decode_message(message)
                    .map_err(|_| damaged_error(id)(DamagedRow("progress in its form")))?,
            ),
            None => None,
        };
        let ready_at = if job.status().is_terminal() { None } else { self.read_ready_at(id)? };
        let stored = StoredJob {
            job,
            order,
            changes: sidecar.changes,
            queue_depth: sidecar.queued,
            progress,
            hold,
            ready_at,
            cells,
        };
        if !is_known && self.recent.note_request(id) {
            self.recent.insert(id, row, &stored, epoch);
        }
        Ok(Some(stored))
    }

    /// Decodes the job of a row.
    fn decode_job(&self, id: JobId, row: &RowBytes) -> Result<DecodedJob, ReadError> {
        let read = JobRow::read(row).map_err(damaged_error(id))?;
        let (job, cells) = read.job(id).map_err(damaged_error(id))?;
        let cells = self.job_cells(cells);
        Ok(DecodedJob { job: Arc::new(job), cells, order: read.order, hold: read.hold })
    }

    fn job_cells(&self, local: LocalCells) -> JobCells {
        JobCells::new(local, self.cells.clone())
    }

    /// When a queued job may be started.
    fn read_ready_at(&self, id: JobId) -> Result<Option<i64>, ReadError> {
        let Some(row) = self.driver.get(LEASES, id.as_bytes())? else { return Ok(None) };
        let lease = Lease::decode(&row).map_err(damaged_error(id))?;
        match lease.queue_key {
            Some(key) => queue_ready_at(&key).map(Some).map_err(damaged_error(id)),
            None => Ok(None),
        }
    }

    /// The ready jobs of a queue. One range per priority in use: within one, the earliest ready job
    /// comes first.
    pub(super) fn read_ready(
        &self,
        queue: &str,
        now: i64,
        limit: usize,
    ) -> Result<ReadyJobs, ReadError> {
        let limit = limit.min(PAGE_ROWS_MAX);
        let mut found = ReadyJobs::default();
        self.scan_queue(queue, now, limit, |key, job| {
            let ready_at = queue_ready_at(key).map_err(damaged_error("a queue"))?;
            if ready_at <= now {
                found.jobs.push(job);
            } else {
                found.next = Some(found.next.map_or(ready_at, |next| next.min(ready_at)));
            }
            Ok(found.jobs.len() < limit)
        })?;
        Ok(found)
    }

    /// Visits the ready jobs of each priority and the first that is not ready, until `visit` returns
    /// false.
    fn scan_queue(
        &self,
        queue: &str,
        now: i64,
        limit: usize,
        mut visit: impl FnMut(&[u8], JobId) -> Result<bool, ReadError>,
    ) -> Result<(), ReadError> {
        let scope = queue_scope(queue);
        let upper = KeyRange::prefix(&scope).upper;
        let front = self.fronts.read(scope);
        let mut lower = Bound::Included(front.first[..].into());
        let mut is_first = true;
        loop {
            let range = KeyRange { lower, upper: upper.clone() };
            let rows = self.driver.range(QUEUE, &range, Direction::Forward, limit.max(1))?;
            if std::mem::take(&mut is_first) {
                front.found(rows.first().map(|(key, _)| &key[..]));
            }
            let mut next: Option<Vec<u8>> = None;
            for (key, value) in &rows {
                if value.get(16..) != Some(queue.as_bytes()) {
                    continue;
                }
                if !visit(key, job_id(value.get(..16).unwrap_or(&[]))?)? {
                    return Ok(());
                }
                if queue_ready_at(key).map_err(damaged_error("a queue"))? > now {
                    // Nothing else of this priority is ready.
                    if key[8] == u8::MAX {
                        return Ok(());
                    }
                    next = Some([&scope[..], &[key[8] + 1]].concat());
                    break;
                }
            }
            lower = match (next, rows.last()) {
                (Some(next), _) => Bound::Included(next.as_slice().into()),
                (None, Some((last, _))) if rows.len() == limit.max(1) => {
                    Bound::Excluded(last[..].into())
                }
                _ => return Ok(()),
            };
        }
    }

    /// The names of the queues that have entries: one row of each queue is read.
    pub(super) fn read_queue_names(&self) -> Result<Vec<String>, ReadError> {
        let mut names = Vec::new();
        let mut lower = Bound::Unbounded;
        loop {
            let range = KeyRange { lower, upper: Bound::Unbounded };
            let rows = self.driver.range(QUEUE, &range, Direction::Forward, 1)?;
            let Some((key, value)) = rows.first() else { return Ok(names) };
            let name = value.get(16..).and_then(|name| std::str::from_utf8(name).ok());
            names.extend(name.map(str::to_owned));
            lower = match KeyRange::prefix(key.get(..8).unwrap_or(key)).upper {
                Bound::Excluded(next) => Bound::Included(next),
                _ => return Ok(names),
            };
        }
    }

    pub(super) fn read_queue(
        &self,
        queue: &str,
        limit: usize,
    ) -> Result<Vec<QueuedJob>, ReadError> {
        let range = KeyRange::prefix(&queue_scope(queue));
        let limit = limit.min(PAGE_ROWS_MAX);
        let rows = self.driver.range(QUEUE, &range, Direction::Forward, limit)?;
        let mut found = Vec::with_capacity(rows.len());
        for (key, value) in rows {
            let job = job_id(value.get(..16).unwrap_or(&[]))?;
            let Some(row) = self.read_row(job)? else { continue };
            found.push(QueuedJob {
                job,
                op: row.summary.op,
                priority: u8::MAX - key[8],
                ready_at: queue_ready_at(&key).map_err(damaged_error("a queue"))?,
            });
        }
        Ok(found)
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
        let mut page =
            RecordPageBuilder { from, until, records: Vec::new(), cells: LocalCells::new() };
        if from < row.first_open() {
            self.read_chunks(id, &mut page)?;
        }
        if until > row.first_open() {
            let open = row.open_records().map_err(damaged_error(id))?;
            page.add_records(row.first_open(), open);
        }
        let RecordPageBuilder { records, cells, .. } = page;
        Ok(Some(RecordPage { records, total: row.count, cells: self.job_cells(cells) }))
    }

    fn read_chunks(&self, id: JobId, page: &mut RecordPageBuilder) -> Result<(), ReadError> {
        // The chunk with record `from` is the last one that begins at or before it.
        let before = KeyRange {
            lower: Bound::Included(chunk_key(id, 0).as_slice().into()),
            upper: Bound::Included(chunk_key(id, page.from).as_slice().into()),
        };
        let first = self.driver.range(CHUNKS, &before, Direction::Backward, 1)?;
        let Some((mut key, _)) = first.into_iter().next() else { return Ok(()) };
        loop {
            let range = KeyRange {
                lower: Bound::Included(key.clone()),
                upper: Bound::Excluded(chunk_key(id, page.until).as_slice().into()),
            };
            let rows = self.driver.range(CHUNKS, &range, Direction::Forward, 64)?;
            let is_last = rows.len() < 64;
            for (row_key, row) in rows {
                let mut fields = FieldReader::new(row_key.get(16..).unwrap_or(&[]));
                let first = fields.number("chunk").map_err(damaged_error(id))?;
                page.add_records(first, read_chunk(&row).map_err(damaged_error(id))?);
                key = row_key.iter().copied().chain([0]).collect();
            }
            if is_last {
                return Ok(());
            }
        }
    }

    pub(super) fn read_list(&self, query: &ListQuery) -> Result<JobPage, ReadError> {
        let limit = query.limit.clamp(1, PAGE_ROWS_MAX);
        let mut page = JobPage { jobs: Vec::new(), next: None };
        let mut after = query.after;
        let mut scanned = 0;
        while page.jobs.len() < limit {
            let wanted = limit - page.jobs.len() + 1;
            let entries = self.list_entries(query, after, wanted)?;
            let found = entries.len();
            let is_last = found < wanted;
            for PositionEntry { position, value } in entries {
                if page.jobs.len() == limit {
                    page.next = after;
                    return Ok(page);
                }
                after = Some(position);
                page.jobs.extend(self.read_list_entry(position, &value, query)?);
            }
            scanned += found;
            if is_last {
                return Ok(page);
            }
            if scanned >= PAGE_SCANNED_MAX {
                page.next = after;
                return Ok(page);
            }
        }
        page.next = after;
        Ok(page)
    }

    /// At most `limit` entries of a list after a position, in the order of the query.
    fn list_entries(
        &self,
        query: &ListQuery,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PositionEntry>, ReadError> {
        let direction = match query.order {
            ListOrder::Oldest => Direction::Forward,
            ListOrder::Newest => Direction::Backward,
        };
        let Some(owner) = &query.owner else {
            let mut range = PositionRange::ALL;
            match (query.order, after) {
                (ListOrder::Oldest, Some(after)) => range.after = after,
                (ListOrder::Newest, Some(after)) => range.before = after,
                (_, None) => {}
            }
            return self.position_entries(EVERYONE, range, direction, limit);
        };
        let range = list_range(&list_scope(owner, &query.filter), after, query.order);
        let rows = self.driver.range(LISTS, &range, direction, limit)?;
        let entry = |(key, value): (Key, RowBytes)| PositionEntry {
            position: order_from_key(&key),
            value: value.to_vec(),
        };
        Ok(rows.into_iter().map(entry).collect())
    }

    /// How many entries a list has. Entries of lists that only grow are counted once.
    pub(super) fn read_count(
        &self,
        owner: Option<&str>,
        filter: &Filter,
    ) -> Result<u64, ReadError> {
        match self.counted(owner, filter)? {
            Some(count) => Ok(count.rows),
            None => self.count_entries(owner, filter, &mut ListCount::default()),
        }
    }

    /// Where to begin to read a list so that few rows are skipped until `offset` are passed.
    pub(super) fn read_seek(&self, query: &ListQuery, offset: u64) -> Result<Seek, ReadError> {
        let count = self.counted(query.owner.as_deref(), &query.filter)?;
        let linear = Seek { after: None, skip: offset };
        Ok(count.map_or(linear, |count| count.seek(query.order, offset)))
    }

    /// The count of a list that only grows. `None` for others.
    fn counted(
        &self,
        owner: Option<&str>,
        filter: &Filter,
    ) -> Result<Option<ListCount>, ReadError> {
        let scope = match (owner, filter) {
            (Some(owner), Filter::All) => owner_scope(owner),
            (Some(owner), Filter::Op(op)) => op_scope(owner, op),
            (Some(owner), Filter::Tag(tag)) => tag_scope(owner, tag),
            (None, Filter::All) => EVERYONE_SCOPE,
            (_, Filter::Status(_)) | (None, _) => return Ok(None),
        };
        let (mut count, epoch) = self.counts.get(scope);
        let before = count.rows;
        self.count_entries(owner, filter, &mut count)?;
        if count.rows > before {
            self.counts.insert(scope, count.clone(), epoch);
        }
        Ok(Some(count))
    }

    fn count_entries(
        &self,
        owner: Option<&str>,
        filter: &Filter,
        count: &mut ListCount,
    ) -> Result<u64, ReadError> {
        if (owner, filter) == (None, &Filter::All) {
            return self.count_everyone(count);
        }
        let mut query = ListQuery {
            owner: owner.map(str::to_owned),
            filter: filter.clone(),
            order: ListOrder::Oldest,
            after: count.last,
            limit: PAGE_ROWS_MAX,
        };
        loop {
            let page = self.read_list(&query)?;
            page.jobs.iter().for_each(|job| count.add(job.order));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(count.rows),
            }
        }
    }

    /// How many jobs all owners have. No job is read.
    fn count_everyone(&self, count: &mut ListCount) -> Result<u64, ReadError> {
        let range = PositionRange { after: count.last.unwrap_or(0), ..PositionRange::ALL };
        self.visit_positions(EVERYONE, range, Direction::Forward, |position, _| {
            count.add(position);
            true
        })?;
        Ok(count.rows)
    }

    pub(super) fn read_all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<(JobId, Summary)>, ReadError> {
        let lower = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_bytes()[..].into()));
        let range = KeyRange { lower, upper: Bound::Unbounded };
        let rows = self.driver.range(JOBS, &range, Direction::Forward, limit.min(PAGE_ROWS_MAX))?;
        let mut jobs = Vec::with_capacity(rows.len());
        for (key, row) in &rows {
            let id = job_id(key)?;
            jobs.push((id, JobRow::read(row).map_err(damaged_error(id))?.summary));
        }
        Ok(jobs)
    }

    /// One entry of a list, if it matches the query: from the row itself, or from the job that it
    /// names. Rows are found by a hash, so rows of another owner may lie between them.
    fn read_list_entry(
        &self,
        order: u64,
        value: &[u8],
        query: &ListQuery,
    ) -> Result<Option<ListedJob>, ReadError> {
        if let Some(owner) = query.owner.as_deref().filter(|_| value.len() > 16) {
            let job = decode_list_entry(value, order, owner).map_err(damaged_error("a list"))?;
            return Ok(job.filter(|job| match &query.filter {
                Filter::Status(status) => job.status == *status,
                _ => true,
            }));
        }
        let id = job_id(value)?;
        let row = self.read_row(id)?.filter(|row| matches(&row.summary, query));
        Ok(row.map(|row| ListedJob {
            id,
            owner: row.summary.owner,
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
    ) -> Result<Vec<LiveJob>, ReadError> {
        let lower = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_bytes()[..].into()));
        let range = KeyRange { lower, upper: Bound::Unbounded };
        let rows = self.driver.range(LIVE, &range, Direction::Forward, limit.min(PAGE_ROWS_MAX))?;
        let mut found = Vec::with_capacity(rows.len());
        for (key, value) in &rows {
            let id = job_id(key)?;
            match decode_live(id, value).map_err(damaged_error("a live job"))? {
                Some(live) => found.push(live),
                None => found.extend(self.read_row(id)?.map(|row| live_job(id, &row))),
            }
        }
        Ok(found)
    }

    pub(super) fn read_due(
        &self,
        until: i64,
        after: Option<Timer>,
        limit: usize,
    ) -> Result<Vec<Timer>, ReadError> {
        let upper = Bound::Excluded(time_key(until.saturating_add(1))[..].into());
        let after = after.map(|timer| timer_key(timer.at, timer.kind, timer.job));
        let lower = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key[..].into()));
        let range = KeyRange { lower, upper };
        let rows =
            self.driver.range(TIMERS, &range, Direction::Forward, limit.min(PAGE_ROWS_MAX))?;
        rows.iter().map(|(key, _)| decode_timer(key).map_err(damaged_error("a timer"))).collect()
    }

    pub(super) fn read_executions(
        &self,
        owner: &str,
        key: &str,
        limit: usize,
    ) -> Result<Vec<JobId>, ReadError> {
        let range = KeyRange::prefix(&execution_scope(owner, key));
        let limit = limit.min(PAGE_ROWS_MAX);
        let rows = self.driver.range(EXECUTIONS, &range, Direction::Backward, limit)?;
        let mut found = Vec::new();
        for (_, value) in rows {
            let id = job_id(&value)?;
            let Some(row) = self.read_row(id)? else { continue };
            // Another key with the same hash would be found here too.
            if row.summary.owner == owner && row.summary.execution_key.as_deref() == Some(key) {
                found.push(id);
            }
        }
        Ok(found)
    }

    pub(super) fn read_messages(&self, id: JobId, limit: usize) -> Result<Vec<Message>, ReadError> {
        let range = KeyRange::prefix(id.as_bytes());
        let limit = limit.min(PAGE_ROWS_MAX);
        let rows = self.driver.range(MESSAGES, &range, Direction::Forward, limit)?;
        rows.iter()
            .map(|(key, row)| decode_job_message(key, row).map_err(damaged_error(id)))
            .collect()
    }

    pub(super) fn read_idempotency_entry(
        &self,
        owner: &str,
        endpoint: &str,
        key: &str,
    ) -> Result<Option<Idempotency>, ReadError> {
        let row = self.driver.get(IDEMPOTENCY, &idempotency_key(owner, endpoint, key))?;
        row.map(|row| decode_idempotency(&row).map_err(damaged_error("an idempotency key")))
            .transpose()
    }

    pub(super) fn read_root(&self, key: &RootKey) -> Result<Option<Root>, ReadError> {
        let Some(row) = self.driver.get(ROOTS, &root_key(key))? else { return Ok(None) };
        let value = decode(&row).map_err(|error| ReadError::Damaged {
            what: key.to_string(),
            reason: error.to_string(),
        })?;
        Ok(Some(Root { value, id: self.known_ids.id_of(&row) }))
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
            self.driver.range(ROOTS, &range, Direction::Forward, limit.min(PAGE_ROWS_MAX))?;
        let name = |key: &[u8]| String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        Ok(rows.iter().map(|(key, _)| name(key)).collect())
    }

    /// The blobs whose content is in files, as of this moment.
    pub(super) fn blobs_in_files(&self) -> Result<Vec<Digest>, ReadError> {
        let mut found = Vec::new();
        for_each_row(&self.driver.view(), BLOBS, |key, row| {
            let (_, content) = decode_blob(row).map_err(damaged_error("a blob"))?;
            let digest =
                key.try_into().map_err(|_| damaged_error("blobs")(DamagedRow("digest")))?;
            if content.is_none() {
                found.push(Digest::from_bytes(digest));
            }
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn read_blob(&self, digest: &[u8; 32]) -> Result<Option<StoredBlob>, ReadError> {
        let Some(row) = self.driver.get(BLOBS, digest)? else { return Ok(None) };
        let (len, content) = decode_blob(&row).map_err(damaged_error("a blob"))?;
        Ok(Some(StoredBlob { len, content: content.map(Into::into) }))
    }
}

/// A page of records while it is built.
struct RecordPageBuilder {
    from: u64,
    until: u64,
    records: Vec<Record>,
    cells: LocalCells,
}

impl RecordPageBuilder {
    /// Adds those records that belong to the page. The first of `records` has the index `first`.
    fn add_records(&mut self, first: u64, (records, cells): (Vec<Record>, LocalCells)) {
        let wanted = (first..).zip(records).filter(|(at, _)| (self.from..self.until).contains(at));
        self.records.extend(wanted.map(|(_, record)| record));
        self.cells.extend(cells);
    }
}

/// The key under which the number of all jobs is cached, next to those of single lists.
const EVERYONE_SCOPE: [u8; 8] = *b"everyone";

/// The prefix of the keys of a list.
fn list_scope(owner: &str, filter: &Filter) -> [u8; 8] {
    match filter {
        Filter::All => owner_scope(owner),
        // Nearly all jobs end up COMPLETE, so the owner's list serves as the list of those.
        Filter::Status(Status::Complete) => owner_scope(owner),
        Filter::Status(status) => status_scope(owner, *status),
        Filter::Op(op) => op_scope(owner, op),
        Filter::Tag(tag) => tag_scope(owner, tag),
    }
}

fn list_range(prefix: &[u8], after: Option<u64>, order: ListOrder) -> KeyRange {
    let KeyRange { lower, upper } = KeyRange::prefix(prefix);
    let Some(after) = after else { return KeyRange { lower, upper } };
    let key = prefix.iter().copied().chain(after.to_be_bytes()).collect();
    match order {
        ListOrder::Oldest => KeyRange { lower: Bound::Excluded(key), upper },
        ListOrder::Newest => KeyRange { lower, upper: Bound::Excluded(key) },
    }
}

pub(super) fn order_from_key(key: &[u8]) -> u64 {
    key.last_chunk().map_or(0, |order| u64::from_be_bytes(*order))
}

/// Whether a row that was found by a hash matches the query.
fn matches(summary: &Summary, query: &ListQuery) -> bool {
    summary.parent.is_none()
        && query.owner.as_ref().is_none_or(|owner| summary.owner == *owner)
        && match &query.filter {
            Filter::All => true,
            Filter::Status(status) => summary.status == *status,
            Filter::Op(op) => summary.op == *op,
            Filter::Tag(tag) => summary.tags.contains(tag),
        }
}

/// Decodes an entry that holds everything a list shows. `None` if it belongs to another owner.
pub(super) fn decode_list_entry(
    value: &[u8],
    order: u64,
    owner: &str,
) -> Result<Option<ListedJob>, DamagedRow> {
    let mut fields = FieldReader::new(value);
    let id = JobId::from_bytes(fields.array("job")?);
    if fields.array("owner")? != owner_check(owner) {
        return Ok(None);
    }
    let status = status_from_byte(fields.byte("status")?)?;
    let created = fields.time("created")?;
    let updated = fields.time("updated")?;
    let op = fields.text("op")?.to_owned();
    let owner = owner.to_owned();
    Ok(Some(ListedJob { id, owner, order, status, op, created, updated }))
}

pub(super) fn job_id(bytes: &[u8]) -> Result<JobId, ReadError> {
    let id = bytes.get(..16).and_then(|id| id.try_into().ok()).map(JobId::from_bytes);
    id.ok_or_else(|| damaged_error("an index")(DamagedRow("job ID")))
}

//! Lists of jobs.
//!
//! A list of the store has one filter. If a query combines filters, or has a canvas status that
//! corresponds to several statuses, one or more lists are scanned in parallel and jobs that do not
//! match are skipped.

use std::collections::{HashSet, VecDeque};

use catena_job::vocabulary::{CanvasStatus, Phase, State};
use catena_job::{JobId, Status};
use catena_store::limits::LIST_MARK_STEP;
use catena_store::{Filter, ListOrder, ListQuery, ListedJob, LiveHold, LiveJob, Seek};
use catena_value::{NoCells, Value};

use crate::error::StoreError;
use crate::jobs::{Current, check_visible};
use crate::limits::{CREATION_DISORDER_MAX_MS, LIST_EXAMINED_MAX, PAGE_MAX};
use crate::requests::{Caller, JobFilter, JobList, ListJobs, contains};
use crate::views::Views;

/// A query for jobs in the vocabulary of the canvas API.
#[derive(Debug, Clone)]
pub struct CanvasQuery {
    /// The owner's DID. `None` for the caller's own jobs; other owners need an admin.
    pub owner: Option<String>,
    /// Only jobs of this operation, as the caller wrote the reference.
    pub op: Option<String>,
    /// Only jobs with this status.
    pub status: Option<CanvasStatus>,
    /// The sort order.
    pub order: ListOrder,
    /// The number of jobs to skip.
    pub offset: u64,
    /// The page size.
    pub limit: usize,
}

/// A part of a list.
#[derive(Clone, Copy)]
struct Page {
    order: ListOrder,
    /// The position to continue after.
    after: Option<u64>,
    /// True if `after` comes from the caller, who does not need the number of all jobs.
    has_cursor: bool,
    offset: u64,
    limit: usize,
    /// Jobs to examine beyond a full page, or with a cursor.
    examined_max: usize,
}

/// What the jobs of a list that is scanned must be like.
enum Condition<'a> {
    Grid(&'a JobFilter),
    Canvas { status: Option<CanvasStatus>, held: HashSet<JobId> },
}

impl Condition<'_> {
    /// Returns true if neither this job nor any that follows can match, because of their times.
    fn is_past(&self, job: &ListedJob, order: ListOrder) -> bool {
        let Condition::Grid(filter) = self else { return false };
        match order {
            ListOrder::Oldest => filter
                .until
                .is_some_and(|until| job.created >= until.saturating_add(CREATION_DISORDER_MAX_MS)),
            ListOrder::Newest => filter
                .since
                .is_some_and(|since| job.created < since.saturating_sub(CREATION_DISORDER_MAX_MS)),
        }
    }
}

impl Views {
    /// Lists jobs by their canvas status.
    pub(crate) async fn list_canvas(
        &self,
        caller: &Caller,
        query: &CanvasQuery,
    ) -> Result<JobList, StoreError> {
        let owner = query.owner.as_deref().unwrap_or(&caller.did);
        if !caller.may_touch(owner) {
            return Ok(JobList::empty());
        }
        let is_simple = match query.status {
            None => true,
            Some(status) => {
                query.op.is_none()
                    && matches!(status, CanvasStatus::Completed | CanvasStatus::Cancelled)
            }
        };
        if is_simple {
            let filter = JobFilter {
                owner: Some(owner.to_owned()),
                status: query.status.and_then(|status| status.grid().first().copied()),
                op: query.op.clone(),
                ..JobFilter::default()
            };
            let CanvasQuery { order, offset, limit, .. } = *query;
            return self
                .list(caller, &ListJobs { filter, order, after: None, offset, limit })
                .await;
        }
        let filters = match (&query.op, query.status) {
            (Some(op), _) => vec![Filter::Op(op.clone())],
            (None, Some(status)) => status.grid().iter().copied().map(Filter::Status).collect(),
            (None, None) => vec![Filter::All],
        };
        let page = Page {
            order: query.order,
            after: None,
            has_cursor: false,
            offset: query.offset,
            limit: query.limit,
            // The canvas API has no way to say that there may be more.
            examined_max: usize::MAX,
        };
        let held = match query.status {
            Some(CanvasStatus::Pending | CanvasStatus::Processing) => self.held_jobs().await?,
            _ => HashSet::new(),
        };
        let condition = Condition::Canvas { status: query.status, held };
        self.scan(Some(owner), filters, page, &condition).await
    }

    /// Lists jobs of the caller, or of others if the caller may see them.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        query: &ListJobs,
    ) -> Result<JobList, StoreError> {
        let filter = &query.filter;
        if !filter.is_allowed(caller) {
            return Ok(JobList::empty());
        }
        let ListJobs { order, after, offset, limit, .. } = *query;
        let has_cursor = after.is_some();
        let examined_max = LIST_EXAMINED_MAX;
        let mut page = Page { order, after, has_cursor, offset, limit, examined_max };
        if filter.parent.is_some() {
            return self.list_sub_jobs(caller, filter, page).await;
        }
        let owner = filter.owner_for(caller);
        let list = shortest_list(filter);
        if is_one_list(filter, &list) && owner.is_some() | (list == Filter::All) {
            return self.page_of(owner, list, page).await;
        }
        if !has_cursor {
            page.after = self.first_position(owner, filter, order).await?;
        }
        let condition = Condition::Grid(filter);
        let mut found = self.scan(owner, vec![list], page, &condition).await?;
        found.is_at_least |= has_cursor;
        Ok(found)
    }

    /// Returns the jobs that match a filter, oldest first, at most `limit`.
    pub(crate) async fn select(
        &self,
        caller: &Caller,
        filter: JobFilter,
        limit: usize,
    ) -> Result<Vec<JobId>, StoreError> {
        let mut query = ListJobs { filter, ..ListJobs::all(ListOrder::Oldest, 0, PAGE_MAX) };
        let mut found = Vec::new();
        loop {
            let page = self.list(caller, &query).await?;
            found.extend(page.jobs.iter().map(|job| job.id));
            if page.next.is_none() || found.len() >= limit {
                found.truncate(limit);
                return Ok(found);
            }
            query.after = page.next;
        }
    }

    async fn meets(&self, condition: &Condition<'_>, job: &ListedJob) -> Result<bool, StoreError> {
        match condition {
            Condition::Grid(filter) => self.matches(filter, job).await,
            Condition::Canvas { status, held } => {
                let found = canvas_status(job.status, held.contains(&job.id));
                Ok(status.is_none_or(|status| status == found))
            }
        }
    }

    /// Returns true if an entry of the list that a filter is scanned in matches it.
    pub(crate) async fn matches(
        &self,
        filter: &JobFilter,
        job: &ListedJob,
    ) -> Result<bool, StoreError> {
        if !filter.matches_entry(job) {
            return Ok(false);
        }
        match &filter.text {
            Some(text) if !filter.matches_text(job) => self.contains_text(job.id, text).await,
            _ => Ok(true),
        }
    }

    /// Returns true if a tag or the error of a job contains a text.
    async fn contains_text(&self, job: JobId, text: &str) -> Result<bool, StoreError> {
        let Some(current) = self.jobs.current(job).await? else { return Ok(false) };
        let error = current.job.field("error").and_then(Value::to_text);
        Ok(error.is_some_and(|error| contains(&error, text))
            || tags_of(&current).iter().any(|tag| contains(tag, text)))
    }

    /// Returns true if a job has a tag.
    pub(crate) async fn carries_tag(&self, job: JobId, tag: &str) -> Result<bool, StoreError> {
        let current = self.jobs.current(job).await?;
        Ok(current.is_some_and(|current| tags_of(&current).iter().any(|own| own == tag)))
    }

    /// Lists the sub-jobs of a job on this venue: its steps, then its calls.
    async fn list_sub_jobs(
        &self,
        caller: &Caller,
        filter: &JobFilter,
        page: Page,
    ) -> Result<JobList, StoreError> {
        let mut found = JobList::empty();
        let Some(parent) = filter.parent else { return Ok(found) };
        let Some(parent) = self.jobs.current(parent).await? else { return Ok(found) };
        if check_visible(caller, &parent.job).is_err() {
            return Ok(found);
        }
        let steps = parent.job.steps().values().filter(|step| step.start.venue.is_none());
        let mut jobs: Vec<JobId> = steps.map(|step| step.start.job).collect();
        jobs.extend(parent.job.calls().iter().map(|call| call.start.job));
        if page.order == ListOrder::Newest {
            jobs.reverse();
        }
        // The cursor is the number of sub-jobs that were passed.
        let passed = page.after.unwrap_or(0);
        let limit = page.limit.min(PAGE_MAX);
        for (number, id) in (1..).zip(jobs).skip(usize::try_from(passed).unwrap_or(usize::MAX)) {
            let Some(current) = self.jobs.current(id).await? else { continue };
            let job = listed(&current);
            let is_tagged = match &filter.tag {
                Some(tag) => tags_of(&current).iter().any(|own| own == tag),
                None => true,
            };
            if !is_tagged || !self.matches(filter, &job).await? {
                continue;
            }
            found.total += 1;
            if found.total > page.offset && found.jobs.len() < limit {
                found.jobs.push(ListedJob { order: number, ..job });
            } else if found.jobs.len() == limit && found.next.is_none() {
                found.next = found.jobs.last().map(|job| job.order);
            }
        }
        found.is_at_least = page.after.is_some();
        Ok(found)
    }

    /// Returns the position before the first job of a list that can match the times of a filter.
    async fn first_position(
        &self,
        owner: Option<&str>,
        filter: &JobFilter,
        order: ListOrder,
    ) -> Result<Option<u64>, StoreError> {
        let time = match order {
            ListOrder::Oldest => filter.since.map(|at| at.saturating_sub(CREATION_DISORDER_MAX_MS)),
            ListOrder::Newest => filter.until.map(|at| at.saturating_add(CREATION_DISORDER_MAX_MS)),
        };
        let Some(time) = time else { return Ok(None) };
        // Jobs up to `low` were created before the time, those after `high` were not.
        let mut low = 0;
        let mut high = self.jobs.store.position().await?;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let query = ListQuery {
                owner: owner.map(str::to_owned),
                filter: Filter::All,
                order: ListOrder::Oldest,
                after: Some(middle),
                limit: 1,
            };
            match self.jobs.store.list(&query).await?.jobs.first() {
                Some(job) if job.created < time => low = job.order.min(high),
                _ => high = middle,
            }
        }
        Ok(Some(match order {
            ListOrder::Oldest => low,
            ListOrder::Newest => high.saturating_add(1),
        }))
    }

    /// Returns a page of one list of the store.
    async fn page_of(
        &self,
        owner: Option<&str>,
        filter: Filter,
        page: Page,
    ) -> Result<JobList, StoreError> {
        let mut found = JobList::empty();
        found.total = self.jobs.store.count(owner, &filter).await?;
        let limit = page.limit.min(PAGE_MAX);
        if limit == 0 || page.offset >= found.total {
            return Ok(found);
        }
        // Pages are read by position. Those far from the ends of a list begin near a position that is remembered.
        let Seek { after, mut skip } = match page.after {
            None if page.offset >= LIST_MARK_STEP => {
                let query = ListQuery {
                    owner: owner.map(str::to_owned),
                    filter: filter.clone(),
                    order: page.order,
                    after: None,
                    limit: 0,
                };
                self.jobs.store.seek(&query, page.offset).await?
            }
            after => Seek { after, skip: page.offset },
        };
        let mut list = Scan::new(filter, after);
        while found.jobs.len() < limit && !list.is_at_end {
            let missing = limit - found.jobs.len();
            let wanted = usize::try_from(skip).unwrap_or(PAGE_MAX).saturating_add(missing);
            self.read_page(owner, page.order, &mut list, wanted.min(PAGE_MAX)).await?;
            let passed = skip.min(list.jobs.len() as u64);
            skip -= passed;
            list.jobs.drain(..usize::try_from(passed).unwrap_or(usize::MAX));
            found.jobs.extend(list.jobs.drain(..).take(missing));
        }
        if !list.is_at_end {
            found.next = found.jobs.last().map(|job| job.order);
        }
        Ok(found)
    }

    /// Returns a page of the jobs in several lists of the store that match. With a cursor, it ends
    /// when the page is full or many jobs were examined; without one, it is full if there are enough,
    /// and those that match are counted within bounds.
    async fn scan(
        &self,
        owner: Option<&str>,
        filters: Vec<Filter>,
        page: Page,
        condition: &Condition<'_>,
    ) -> Result<JobList, StoreError> {
        let mut lists: Vec<Scan> =
            filters.into_iter().map(|filter| Scan::new(filter, page.after)).collect();
        let mut found = JobList::empty();
        let limit = page.limit.min(PAGE_MAX);
        // The last job that was examined before the page was full.
        let mut last = None;
        let mut examined = 0;
        while let Some(job) = self.next(owner, page.order, &mut lists).await? {
            if condition.is_past(&job, page.order) {
                return Ok(found);
            }
            let is_full = found.jobs.len() == limit;
            let is_many = examined >= page.examined_max;
            if is_full && (is_many || page.has_cursor) || is_many && page.has_cursor {
                found.is_at_least = true;
                found.next = found.next.or(last);
                return Ok(found);
            }
            examined += 1;
            if !is_full {
                last = Some(job.order);
            }
            if !self.meets(condition, &job).await? {
                continue;
            }
            found.total += 1;
            if is_full {
                found.next = found.next.or(last);
            } else if found.total > page.offset {
                found.jobs.push(job);
            }
        }
        Ok(found)
    }

    /// Returns the next job of several lists.
    async fn next(
        &self,
        owner: Option<&str>,
        order: ListOrder,
        lists: &mut [Scan],
    ) -> Result<Option<ListedJob>, StoreError> {
        for list in lists.iter_mut() {
            while list.jobs.is_empty() && !list.is_at_end {
                self.read_page(owner, order, list, PAGE_MAX).await?;
            }
        }
        let place = |list: &&mut Scan| list.jobs.front().map(|job| job.order);
        let waiting = lists.iter_mut().filter(|list| !list.jobs.is_empty());
        let next = match order {
            ListOrder::Oldest => waiting.min_by_key(place),
            ListOrder::Newest => waiting.max_by_key(place),
        };
        Ok(next.and_then(|list| list.jobs.pop_front()))
    }

    async fn read_page(
        &self,
        owner: Option<&str>,
        order: ListOrder,
        list: &mut Scan,
        limit: usize,
    ) -> Result<(), StoreError> {
        let query = ListQuery {
            owner: owner.map(str::to_owned),
            filter: list.filter.clone(),
            order,
            after: list.after,
            limit,
        };
        let page = self.jobs.store.list(&query).await?;
        list.jobs.extend(page.jobs);
        list.is_at_end = page.next.is_none();
        list.after = page.next;
        // A long list must not delay other tasks.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Returns the jobs that a process holds.
    async fn held_jobs(&self) -> Result<HashSet<JobId>, StoreError> {
        let mut held = HashSet::new();
        let mut after = None;
        loop {
            let page = self.jobs.store.live(after, PAGE_MAX).await?;
            let Some(last) = page.last() else { return Ok(held) };
            after = Some(last.job);
            let is_held = |live: &&LiveJob| matches!(live.hold, LiveHold::By(_));
            held.extend(page.iter().filter(is_held).map(|live| live.job));
        }
    }
}

fn canvas_status(status: Status, is_held: bool) -> CanvasStatus {
    let runs = status == Status::Started && is_held;
    let phase = if runs { Phase::Leased } else { Phase::Queued };
    State { status, phase, has_started: true }.canvas()
}

/// Returns the list of the store that is scanned for a filter. The entry of a list does not contain
/// tags, so a list by tag comes first.
fn shortest_list(filter: &JobFilter) -> Filter {
    match (&filter.tag, &filter.op, filter.status) {
        (Some(tag), ..) => Filter::Tag(tag.clone()),
        // Most jobs end up COMPLETE, and few have any other status for long.
        (None, Some(op), None | Some(Status::Complete)) => Filter::Op(op.clone()),
        (None, _, Some(status)) => Filter::Status(status),
        (None, None, None) => Filter::All,
    }
}

/// Returns true if a list of the store contains exactly the jobs that match.
fn is_one_list(filter: &JobFilter, list: &Filter) -> bool {
    let members = [filter.tag.is_some(), filter.op.is_some(), filter.status.is_some()];
    let count = members.into_iter().filter(|is_present| *is_present).count();
    // The list of COMPLETE jobs is found by passing all others.
    let is_counted = !matches!(list, Filter::Status(_));
    count <= 1
        && is_counted
        && filter.since.is_none()
        && filter.until.is_none()
        && filter.text.is_none()
}

/// Returns the entry of a list for a job.
fn listed(current: &Current) -> ListedJob {
    let job = &current.job;
    ListedJob {
        id: job.id(),
        owner: current.text("caller").to_owned(),
        order: 0,
        status: job.status(),
        op: current.text("op").to_owned(),
        created: job.created(),
        updated: job.updated(),
    }
}

fn tags_of(current: &Current) -> Vec<String> {
    let Some(Value::Vector(tags)) = current.job.field("tags") else { return Vec::new() };
    let text = |tag: Result<Value, _>| tag.ok().and_then(|tag| tag.as_str().map(str::to_owned));
    tags.iter(&NoCells).filter_map(text).collect()
}

/// A list that is being scanned.
struct Scan {
    filter: Filter,
    jobs: VecDeque<ListedJob>,
    after: Option<u64>,
    is_at_end: bool,
}

impl Scan {
    fn new(filter: Filter, after: Option<u64>) -> Self {
        Scan { filter, jobs: VecDeque::new(), after, is_at_end: false }
    }
}

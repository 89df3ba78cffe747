//! Lists of jobs.
//!
//! A list of the store has one filter. If a query combines filters, or has a canvas status that
//! corresponds to several statuses, one or more lists are scanned in parallel and jobs that do not
//! match are skipped.

use std::collections::{HashSet, VecDeque};

use catena_job::vocabulary::{CanvasStatus, Phase, State};
use catena_job::{JobId, Status};
use catena_store::{Filter, ListOrder, ListQuery, ListedJob, LiveHold, LiveJob};

use crate::error::StoreError;
use crate::limits::PAGE_MAX;
use crate::requests::{Caller, JobList, ListJobs, Role};
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
    offset: u64,
    limit: usize,
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
            return Ok(JobList { jobs: Vec::new(), total: 0 });
        }
        let is_simple = match query.status {
            None => true,
            Some(status) => {
                query.op.is_none()
                    && matches!(status, CanvasStatus::Completed | CanvasStatus::Cancelled)
            }
        };
        if is_simple {
            let list = ListJobs {
                owner: Some(owner.to_owned()),
                status: query.status.and_then(|status| status.grid().first().copied()),
                op: query.op.clone(),
                tag: None,
                order: query.order,
                offset: query.offset,
                limit: query.limit,
            };
            return self.list(caller, &list).await;
        }
        let filters = match (&query.op, query.status) {
            (Some(op), _) => vec![Filter::Op(op.clone())],
            (None, Some(status)) => status.grid().iter().copied().map(Filter::Status).collect(),
            (None, None) => vec![Filter::All],
        };
        let page = Page { order: query.order, offset: query.offset, limit: query.limit };
        let held = match query.status {
            Some(CanvasStatus::Pending | CanvasStatus::Processing) => self.held_jobs().await?,
            _ => HashSet::new(),
        };
        let matches = |job: &ListedJob| {
            let found = canvas_status(job.status, held.contains(&job.id));
            query.status.is_none_or(|status| status == found)
        };
        self.scan(owner, filters, page, matches).await
    }

    /// Lists jobs of the caller, or of another owner if an admin asks.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        query: &ListJobs,
    ) -> Result<JobList, StoreError> {
        let owner = match (&query.owner, caller.role) {
            (Some(owner), Role::Admin) => owner,
            _ => &*caller.did,
        };
        let page = Page { order: query.order, offset: query.offset, limit: query.limit };
        let status = query.status.map(Filter::Status);
        let op = query.op.clone().map(Filter::Op);
        let tag = query.tag.clone().map(Filter::Tag);
        let matches = |job: &ListedJob| {
            query.status.is_none_or(|status| job.status == status)
                && query.op.as_ref().is_none_or(|op| job.op == *op)
        };
        match (tag, op, status) {
            (None, None, None) => self.page_of(owner, Filter::All, page).await,
            (Some(one), None, None) | (None, Some(one), None) | (None, None, Some(one)) => {
                self.page_of(owner, one, page).await
            }
            // A list entry does not contain the tags, so the list by tag is scanned.
            (Some(tag), ..) => self.scan(owner, vec![tag], page, matches).await,
            (None, Some(op), Some(status)) => {
                let ops = self.jobs.store.count(owner, &op).await?;
                let statuses = self.jobs.store.count(owner, &status).await?;
                let shorter = if ops <= statuses { op } else { status };
                self.scan(owner, vec![shorter], page, matches).await
            }
        }
    }

    /// Returns a page of one list of the store.
    async fn page_of(
        &self,
        owner: &str,
        filter: Filter,
        page: Page,
    ) -> Result<JobList, StoreError> {
        let total = self.jobs.store.count(owner, &filter).await?;
        let mut found = JobList { jobs: Vec::new(), total };
        let limit = page.limit.min(PAGE_MAX);
        if limit == 0 || page.offset >= total {
            return Ok(found);
        }
        let mut list = Scan::new(filter);
        // Pages are read by position, and the jobs before the offset are skipped.
        let mut skip = page.offset;
        while found.jobs.len() < limit && !list.is_at_end {
            self.read_page(owner, page.order, &mut list).await?;
            let passed = skip.min(list.jobs.len() as u64);
            skip -= passed;
            list.jobs.drain(..usize::try_from(passed).unwrap_or(usize::MAX));
            let wanted = list.jobs.drain(..).take(limit - found.jobs.len());
            found.jobs.extend(wanted);
        }
        Ok(found)
    }

    /// Returns a page of the jobs in several lists of the store that match.
    async fn scan(
        &self,
        owner: &str,
        filters: Vec<Filter>,
        page: Page,
        matches: impl Fn(&ListedJob) -> bool,
    ) -> Result<JobList, StoreError> {
        let mut lists: Vec<Scan> = filters.into_iter().map(Scan::new).collect();
        let mut found = JobList { jobs: Vec::new(), total: 0 };
        let limit = page.limit.min(PAGE_MAX);
        while let Some(job) = self.next(owner, page.order, &mut lists).await? {
            if !matches(&job) {
                continue;
            }
            found.total += 1;
            if found.total > page.offset && found.jobs.len() < limit {
                found.jobs.push(job);
            }
        }
        Ok(found)
    }

    /// Returns the next job of several lists.
    async fn next(
        &self,
        owner: &str,
        order: ListOrder,
        lists: &mut [Scan],
    ) -> Result<Option<ListedJob>, StoreError> {
        for list in lists.iter_mut() {
            while list.jobs.is_empty() && !list.is_at_end {
                self.read_page(owner, order, list).await?;
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
        owner: &str,
        order: ListOrder,
        list: &mut Scan,
    ) -> Result<(), StoreError> {
        let query = ListQuery {
            owner: owner.to_owned(),
            filter: list.filter.clone(),
            order,
            after: list.after,
            limit: PAGE_MAX,
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

/// A list that is being scanned.
struct Scan {
    filter: Filter,
    jobs: VecDeque<ListedJob>,
    after: Option<u64>,
    is_at_end: bool,
}

impl Scan {
    fn new(filter: Filter) -> Self {
        Scan { filter, jobs: VecDeque::new(), after: None, is_at_end: false }
    }
}

//! Lists of jobs.
//!
//! Lists of the store have one filter each. Filters may come together, and a word of the canvas
//! door stands for several statuses: then one list, or several side by side, are walked, and what
//! does not fit is passed over.

use std::collections::VecDeque;

use catena_job::vocabulary::{CanvasStatus, State};
use catena_job::{JobId, Status};
use catena_store::{Filter, ListOrder, ListQuery, ListedJob};

use crate::caller::{Caller, Role};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::limits::PAGE_MAX;
use crate::request::{JobList, ListJobs};

/// Which jobs to list.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Whose; the caller's own when not said. Somebody else's are seen by admins alone.
    pub owner: Option<String>,
    /// Only those of this operation, as its caller named it.
    pub op: Option<String>,
    /// Only those that are called so.
    pub status: Option<CanvasStatus>,
    /// The direction.
    pub order: ListOrder,
    /// How many to leave out at the beginning.
    pub offset: u64,
    /// At most so many.
    pub limit: usize,
}

/// Which part of a list.
#[derive(Clone, Copy)]
struct Page {
    order: ListOrder,
    offset: u64,
    limit: usize,
}

impl Engine {
    /// Jobs of one owner, by what the canvas door calls them.
    pub async fn select(
        &self,
        caller: &Caller,
        selection: &Selection,
    ) -> Result<JobList, StoreError> {
        let owner = selection.owner.as_deref().unwrap_or(&caller.did);
        if !caller.may_touch(owner) {
            return Ok(JobList { jobs: Vec::new(), total: 0 });
        }
        let is_simple = match selection.status {
            None => true,
            Some(status) => {
                selection.op.is_none()
                    && matches!(status, CanvasStatus::Completed | CanvasStatus::Cancelled)
            }
        };
        if is_simple {
            let query = ListJobs {
                owner: Some(owner.to_owned()),
                status: selection.status.and_then(|status| status.grid().first().copied()),
                op: selection.op.clone(),
                tag: None,
                order: selection.order,
                offset: selection.offset,
                limit: selection.limit,
            };
            return self.jobs(caller, &query).await;
        }
        let filters = match (&selection.op, selection.status) {
            (Some(op), _) => vec![Filter::Op(op.clone())],
            (None, Some(status)) => status.grid().iter().copied().map(Filter::Status).collect(),
            (None, None) => vec![Filter::All],
        };
        let page =
            Page { order: selection.order, offset: selection.offset, limit: selection.limit };
        let fits =
            |job: &ListedJob| selection.status.is_none_or(|status| self.is_called(job, status));
        self.walk(owner, filters, page, fits).await
    }

    /// Jobs of the caller, or of somebody else when an admin asks.
    pub async fn jobs(&self, caller: &Caller, query: &ListJobs) -> Result<JobList, StoreError> {
        let owner = match (&query.owner, caller.role) {
            (Some(owner), Role::Admin) => owner,
            _ => &*caller.did,
        };
        let page = Page { order: query.order, offset: query.offset, limit: query.limit };
        let status = query.status.map(Filter::Status);
        let op = query.op.clone().map(Filter::Op);
        let tag = query.tag.clone().map(Filter::Tag);
        let fits = |job: &ListedJob| {
            query.status.is_none_or(|status| job.status == status)
                && query.op.as_ref().is_none_or(|op| job.op == *op)
        };
        match (tag, op, status) {
            (None, None, None) => self.page_of(owner, Filter::All, page).await,
            (Some(one), None, None) | (None, Some(one), None) | (None, None, Some(one)) => {
                self.page_of(owner, one, page).await
            }
            // A line does not tell its tags, so theirs is the list that is walked.
            (Some(tag), ..) => self.walk(owner, vec![tag], page, fits).await,
            (None, Some(op), Some(status)) => {
                let ops = self.0.store.count(owner, &op).await?;
                let shorter = match ops <= self.0.store.count(owner, &status).await? {
                    true => op,
                    false => status,
                };
                self.walk(owner, vec![shorter], page, fits).await
            }
        }
    }

    /// A page of one list of the store.
    async fn page_of(
        &self,
        owner: &str,
        filter: Filter,
        page: Page,
    ) -> Result<JobList, StoreError> {
        let total = self.0.store.count(owner, &filter).await?;
        let mut found = JobList { jobs: Vec::new(), total };
        let limit = page.limit.min(PAGE_MAX);
        if limit == 0 || page.offset >= total {
            return Ok(found);
        }
        let mut list = Walk::new(filter);
        // Pages are followed by place, and what the offset leaves out is passed over.
        let mut skip = page.offset;
        while found.jobs.len() < limit && !list.is_at_end {
            self.read_on(owner, page.order, &mut list).await?;
            let passed = skip.min(list.jobs.len() as u64);
            skip -= passed;
            list.jobs.drain(..usize::try_from(passed).unwrap_or(usize::MAX));
            let wanted = list.jobs.drain(..).take(limit - found.jobs.len());
            found.jobs.extend(wanted);
        }
        Ok(found)
    }

    /// A page of what fits in several lists of the store.
    async fn walk(
        &self,
        owner: &str,
        filters: Vec<Filter>,
        page: Page,
        fits: impl Fn(&ListedJob) -> bool,
    ) -> Result<JobList, StoreError> {
        let mut lists: Vec<Walk> = filters.into_iter().map(Walk::new).collect();
        let mut found = JobList { jobs: Vec::new(), total: 0 };
        let limit = page.limit.min(PAGE_MAX);
        while let Some(job) = self.next(owner, page.order, &mut lists).await? {
            if !fits(&job) {
                continue;
            }
            found.total += 1;
            if found.total > page.offset && found.jobs.len() < limit {
                found.jobs.push(job);
            }
        }
        Ok(found)
    }

    /// The next job of several lists.
    async fn next(
        &self,
        owner: &str,
        order: ListOrder,
        lists: &mut [Walk],
    ) -> Result<Option<ListedJob>, StoreError> {
        for list in lists.iter_mut() {
            while list.jobs.is_empty() && !list.is_at_end {
                self.read_on(owner, order, list).await?;
            }
        }
        let place = |list: &&mut Walk| list.jobs.front().map(|job| job.order);
        let waiting = lists.iter_mut().filter(|list| !list.jobs.is_empty());
        let next = match order {
            ListOrder::Oldest => waiting.min_by_key(place),
            ListOrder::Newest => waiting.max_by_key(place),
        };
        Ok(next.and_then(|list| list.jobs.pop_front()))
    }

    async fn read_on(
        &self,
        owner: &str,
        order: ListOrder,
        list: &mut Walk,
    ) -> Result<(), StoreError> {
        let query = ListQuery {
            owner: owner.to_owned(),
            filter: list.filter.clone(),
            order,
            after: list.after,
            limit: PAGE_MAX,
        };
        let page = self.0.store.list(&query).await?;
        list.jobs.extend(page.jobs);
        list.is_at_end = page.next.is_none();
        list.after = page.next;
        // A long list is no reason for others to wait.
        tokio::task::yield_now().await;
        Ok(())
    }

    fn is_called(&self, job: &ListedJob, status: CanvasStatus) -> bool {
        self.canvas_status(job.id, job.status) == status
    }

    /// What the canvas door calls a job that stands there.
    pub fn canvas_status(&self, id: JobId, status: Status) -> CanvasStatus {
        let phase = self.phase_of(id, status);
        State { status, phase, has_started: true }.canvas()
    }
}

/// A list that is being walked.
struct Walk {
    filter: Filter,
    jobs: VecDeque<ListedJob>,
    after: Option<u64>,
    is_at_end: bool,
}

impl Walk {
    fn new(filter: Filter) -> Self {
        Walk { filter, jobs: VecDeque::new(), after: None, is_at_end: false }
    }
}

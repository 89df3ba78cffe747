//! Follows a job: every record in order, read from the durable chain, and progress.

use std::sync::Arc;

use catena_job::{Job, JobId};
use catena_store::JobCells;
use catena_value::Value;

use crate::error::{JobError, StoreError};
use crate::jobs::{Current, Watch, check_visible};
use crate::requests::Caller;
use crate::views::Views;
use crate::views::steps::Moment;

/// Records that are read at a time.
const READ_BATCH: usize = 64;

/// Who follows a job.
#[derive(Debug, Clone, Copy)]
pub enum Reader<'a> {
    /// A caller that must be allowed to see the job.
    Caller(&'a Caller),
    /// Anyone who knows the job's ID.
    Bearer,
}

/// An event of a job.
#[derive(Debug, Clone)]
pub enum JobEvent {
    /// A record was appended.
    Record {
        /// The record's index in the chain.
        index: u64,
        /// The job as of this record.
        job: Box<Job>,
        /// Where the cells of its large members are.
        cells: JobCells,
        /// One entry per step. `None` if the job is not an orchestration.
        steps: Option<Value>,
    },
    /// Progress was reported.
    Progress(Value),
}

/// A follower of one job. It holds the job as of the last record it returned, and reads the next
/// records from the store after they were announced: a slow follower slows nothing else.
#[derive(Debug)]
pub struct Follow {
    views: Arc<Views>,
    id: JobId,
    watch: Watch,
    /// The job as of the last record that was returned.
    job: Option<Box<Job>>,
    /// The index of the first record to return.
    first: u64,
    /// Records that were read but not returned.
    read: std::collections::VecDeque<catena_job::Record>,
    cells: Option<JobCells>,
    /// The number of progress reports that were returned.
    progress: u64,
    /// True if `job` is current and has not been returned.
    has_current: bool,
    /// True if the chain has been read to its end. Announcements are checked only then.
    is_at_end: bool,
    /// True if the job had ended and nothing was left to return when this follower was made.
    is_over: bool,
}

impl Views {
    /// Follows a job from its current record on, or from the record after `after` on.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        reader: Reader<'_>,
        id: JobId,
        after: Option<u64>,
    ) -> Result<Follow, JobError> {
        let watch = self.jobs.watchers.watch(id);
        let Some(current) = self.jobs.current(id).await? else {
            return Err(match reader {
                Reader::Caller(caller) => self.missing(caller, id).await,
                Reader::Bearer => JobError::NotFound(id),
            });
        };
        if let Reader::Caller(caller) = reader {
            check_visible(caller, &current.job)?;
        }
        let count = current.job.count();
        let first = after.map_or(count - 1, |after| after.saturating_add(1));
        let mut follow = Follow {
            views: Arc::clone(self),
            id,
            watch,
            job: None,
            first,
            read: Default::default(),
            cells: None,
            progress: 0,
            has_current: first + 1 == count,
            is_at_end: false,
            is_over: first >= count && current.job.status().is_terminal(),
        };
        follow.progress = follow.watch.latest().progress.map_or(0, |(number, _)| number);
        // Most followers start with the current record and need not read the chain.
        if follow.has_current {
            follow.cells = current.cells;
            follow.job = Some(Box::new(Arc::unwrap_or_clone(current.job)));
        }
        Ok(follow)
    }
}

impl Follow {
    /// Returns true if there is nothing to follow: the job has ended, and all of its records are
    /// before the first one to return.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the next event. `None` after the record that ends the job, if the job is deleted, or
    /// if the venue stops.
    pub async fn next(&mut self) -> Result<Option<JobEvent>, StoreError> {
        loop {
            if let Some(event) = self.next_record().await? {
                return Ok(Some(event));
            }
            if self.job.as_ref().is_some_and(|job| job.status().is_terminal()) {
                return Ok(None);
            }
            let update = self.watch.latest();
            if update.is_deleted {
                return Ok(None);
            }
            let has_more = match (&update.view, &self.job) {
                (Some(view), Some(job)) => view.job.count() > job.count(),
                (Some(_), None) => true,
                (None, _) => false,
            };
            if has_more {
                self.is_at_end = false;
                continue;
            }
            if let Some((number, progress)) = update.progress.filter(|(n, _)| *n > self.progress) {
                self.progress = number;
                return Ok(Some(JobEvent::Progress(progress)));
            }
            if self.views.runtime.is_stopping() {
                return Ok(None);
            }
            tokio::select! {
                () = self.watch.changed() => {}
                () = self.views.runtime.stopping() => return Ok(None),
            }
        }
    }

    /// Returns the next record of the chain, if there is one.
    async fn next_record(&mut self) -> Result<Option<JobEvent>, StoreError> {
        if self.is_at_end {
            return Ok(None);
        }
        if std::mem::take(&mut self.has_current) {
            return self.record_event(Moment::Present).await;
        }
        loop {
            if self.read.is_empty() {
                self.read_records().await?;
            }
            let Some(record) = self.read.pop_front() else {
                self.is_at_end = true;
                return Ok(None);
            };
            let damaged = |error: catena_job::chain::ChainError| {
                StoreError::Damaged(format!("job {}: {error}", self.id))
            };
            match &mut self.job {
                Some(job) => job.follow(&record).map_err(damaged)?,
                None => {
                    self.job = Some(Box::new(Job::from_first_record(&record).map_err(damaged)?));
                }
            }
            if self.job.as_ref().is_some_and(|job| job.count() > self.first) {
                return self.record_event(Moment::LastRecord).await;
            }
        }
    }

    async fn record_event(&self, moment: Moment) -> Result<Option<JobEvent>, StoreError> {
        let (Some(job), Some(cells)) = (self.job.clone(), self.cells.clone()) else {
            return Ok(None);
        };
        // No record follows the end of a job, but its steps may end after it.
        let moment = if job.status().is_terminal() { Moment::Present } else { moment };
        let current = Current {
            cells: Some(cells.clone()),
            ..Current::from_job(Arc::new((*job).clone()), 0)
        };
        let steps = self.views.steps_of(&current, moment).await?.map(|steps| steps.entries);
        Ok(Some(JobEvent::Record { index: job.count() - 1, job, cells, steps }))
    }

    async fn read_records(&mut self) -> Result<(), StoreError> {
        let from = self.job.as_ref().map_or(0, |job| job.count());
        let page = self.views.jobs.store.records(self.id, from, READ_BATCH).await?;
        if let Some(page) = page {
            self.read = page.records.into();
            self.cells = Some(page.cells);
        }
        Ok(())
    }
}

//! Following a job: everything that happens to it, in order, out of the durable chain.

use std::sync::Arc;

use catena_job::{Job, JobId};
use catena_store::JobCells;
use catena_value::Value;

use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::{JobError, StoreError};
use crate::hub::Watch;

/// Records that are read at once.
const READ_AT_ONCE: usize = 64;

/// Who wants to follow.
#[derive(Debug, Clone, Copy)]
pub enum Reader<'a> {
    /// Somebody who must be allowed to see the job.
    Caller(&'a Caller),
    /// Anybody who knows its ID.
    Bearer,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum JobEvent {
    /// A record was appended.
    Record {
        /// Its index in the chain.
        index: u64,
        /// The job as of this record.
        job: Box<Job>,
        /// The cells of its large members.
        cells: JobCells,
        /// One entry per step, when it is an orchestration.
        steps: Option<Value>,
    },
    /// Progress was reported.
    Progress(Value),
}

/// A follower of one job. It holds the job as of the last record it gave, and reads the next ones
/// from the store when it is told that there are some: a slow follower slows nobody.
#[derive(Debug)]
pub struct Follow {
    engine: Engine,
    id: JobId,
    watch: Watch,
    /// The job as of the last record that was given.
    job: Option<Box<Job>>,
    /// The index of the first record to give.
    first: u64,
    /// Records that were read but not given.
    read: std::collections::VecDeque<catena_job::Record>,
    cells: Option<JobCells>,
    /// How many reports of progress were given.
    progress: u64,
    /// Whether the job is the current one and has not been given.
    has_current: bool,
    /// What is announced is not looked at before the chain has been read to its end.
    is_at_end: bool,
}

impl Engine {
    /// Everything that happens to a job from now on, the current record first; or from after a
    /// record on.
    pub async fn follow(
        &self,
        reader: Reader<'_>,
        id: JobId,
        after: Option<u64>,
    ) -> Result<Follow, JobError> {
        let watch = self.0.hub.watch(id);
        let current = self.current(id).await?.ok_or(JobError::NotFound(id))?;
        if let Reader::Caller(caller) = reader {
            self.visible(caller, &current.job)?;
        }
        let count = current.job.count();
        let first = after.map_or(count - 1, |after| after.saturating_add(1));
        let mut follow = Follow {
            engine: self.clone(),
            id,
            watch,
            job: None,
            first,
            read: Default::default(),
            cells: None,
            progress: 0,
            has_current: first + 1 == count,
            is_at_end: false,
        };
        follow.progress = follow.watch.news().progress.map_or(0, |(number, _)| number);
        // Most begin with the current record: no need to read the chain.
        if follow.has_current {
            follow.cells = current.cells;
            follow.job = Some(Box::new(Arc::unwrap_or_clone(current.job)));
        }
        Ok(follow)
    }
}

impl Follow {
    /// The next thing that happened; nothing after the record that ends the job, when the job is
    /// deleted, or when the venue stops.
    pub async fn next(&mut self) -> Result<Option<JobEvent>, StoreError> {
        loop {
            if let Some(happening) = self.given().await? {
                return Ok(Some(happening));
            }
            if self.job.as_ref().is_some_and(|job| job.status().is_terminal()) {
                return Ok(None);
            }
            let news = self.watch.news();
            if news.is_gone {
                return Ok(None);
            }
            let has_more = match (&news.view, &self.job) {
                (Some(view), Some(job)) => view.job.count() > job.count(),
                (Some(_), None) => true,
                (None, _) => false,
            };
            if has_more {
                self.is_at_end = false;
                continue;
            }
            if let Some((number, progress)) = news.progress.filter(|(n, _)| *n > self.progress) {
                self.progress = number;
                return Ok(Some(JobEvent::Progress(progress)));
            }
            if self.engine.is_stopping() {
                return Ok(None);
            }
            tokio::select! {
                () = self.watch.changed() => {}
                () = self.engine.stopping() => return Ok(None),
            }
        }
    }

    /// The next record of the chain, if there is one.
    async fn given(&mut self) -> Result<Option<JobEvent>, StoreError> {
        if self.is_at_end {
            return Ok(None);
        }
        if std::mem::take(&mut self.has_current) {
            return self.happening().await;
        }
        loop {
            if self.read.is_empty() {
                self.read_on().await?;
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
                None => self.job = Some(Box::new(Job::first(&record).map_err(damaged)?)),
            }
            if self.job.as_ref().is_some_and(|job| job.count() > self.first) {
                return self.happening().await;
            }
        }
    }

    async fn happening(&self) -> Result<Option<JobEvent>, StoreError> {
        let (Some(job), Some(cells)) = (self.job.clone(), self.cells.clone()) else {
            return Ok(None);
        };
        let steps = self.engine.steps_of(&job).await?;
        Ok(Some(JobEvent::Record { index: job.count() - 1, job, cells, steps }))
    }

    async fn read_on(&mut self) -> Result<(), StoreError> {
        let from = self.job.as_ref().map_or(0, |job| job.count());
        let page = self.engine.0.store.records(self.id, from, READ_AT_ONCE).await?;
        if let Some(page) = page {
            self.read = page.records.into();
            self.cells = Some(page.cells);
        }
        Ok(())
    }
}

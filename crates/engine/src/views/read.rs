//! Reads single jobs.

use std::time::Duration;

use catena_job::{Job, JobId, Status};

use crate::error::{JobError, StoreError};
use crate::jobs::{Current, Tombstone, check_visible};
use crate::limits::{PAGE_MAX, WAIT_MAX};
use crate::requests::{Caller, HistoryPage, JobView};
use crate::views::Views;
use crate::views::steps::Moment;

impl Views {
    /// Returns a job.
    pub(crate) async fn job(&self, caller: &Caller, id: JobId) -> Result<JobView, JobError> {
        let view = self.job_without_steps(caller, id).await?;
        Ok(self.with_steps(view).await?)
    }

    async fn job_without_steps(&self, caller: &Caller, id: JobId) -> Result<JobView, JobError> {
        if let Some(private) = self.execution.private.get(id) {
            let view = private.view();
            return check_visible(caller, &view.job).map(|()| view);
        }
        let Some(current) = self.jobs.current(id).await? else {
            return Err(self.missing(caller, id).await);
        };
        check_visible(caller, &current.job)?;
        Ok(self.view(current))
    }

    /// Returns a job once it has ended, or as it is after `time`.
    pub(crate) async fn wait(
        &self,
        caller: &Caller,
        id: JobId,
        time: Duration,
    ) -> Result<JobView, JobError> {
        let mut watch = self.jobs.watchers.watch(id);
        let view = self.job_without_steps(caller, id).await?;
        let time = time.min(WAIT_MAX);
        let view = self.jobs.watch_until(view, &mut watch, time, Status::is_terminal).await;
        Ok(self.with_steps(view).await?)
    }

    /// Returns a job as soon as it differs from what the caller knows, or as it is after `time`.
    /// Changes outside the chain count too: progress and the message queue.
    pub(crate) async fn wait_for_change(
        &self,
        caller: &Caller,
        id: JobId,
        time: Duration,
        is_known: impl Fn(&JobView) -> bool,
    ) -> Result<JobView, JobError> {
        let mut watch = self.jobs.watchers.watch(id);
        let mut timer = self.runtime.env.sleep(time.min(WAIT_MAX));
        let mut stopping = Box::pin(self.runtime.stopping());
        loop {
            // What is announced from here on leads to another read.
            watch.latest();
            let view = self.job(caller, id).await?;
            if view.status().is_terminal() || !is_known(&view) {
                return Ok(view);
            }
            tokio::select! {
                () = watch.changed() => {}
                () = &mut timer => return Ok(view),
                () = &mut stopping => return Ok(view),
            }
        }
    }

    /// Returns a page of a job's records.
    pub(crate) async fn history(
        &self,
        caller: &Caller,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> Result<HistoryPage, JobError> {
        let Some(current) = self.jobs.current(id).await? else {
            return Err(self.missing(caller, id).await);
        };
        check_visible(caller, &current.job)?;
        let page = self.jobs.store.records(id, from, limit.min(PAGE_MAX)).await;
        let page = page.map_err(StoreError::from)?.ok_or(JobError::NotFound(id))?;
        let is_last = from.saturating_add(page.records.len() as u64) >= page.total;
        let signature = if is_last { self.jobs.signature(&current.job).await? } else { None };
        Ok(HistoryPage { records: page.records, total: page.total, cells: page.cells, signature })
    }

    /// Returns the end of what a job has logged: that of its run here, or that in its last record.
    pub(crate) async fn log(&self, caller: &Caller, id: JobId) -> Result<String, JobError> {
        let Some(current) = self.jobs.current(id).await? else {
            return Err(self.missing(caller, id).await);
        };
        check_visible(caller, &current.job)?;
        let recorded = current.member("log")?;
        let recorded = recorded.and_then(|log| Some(log.to_text()?.into_owned()));
        let run = self.execution.registry.get(id);
        Ok(recorded.or_else(|| run?.logged()).unwrap_or_default())
    }

    /// Returns why there is no job with this ID: for those who could see it, because it was deleted.
    pub(super) async fn missing(&self, caller: &Caller, id: JobId) -> JobError {
        match self.jobs.tombstone(id).await {
            Ok(Some(tombstone)) if caller.may_touch(&tombstone.owner) => {
                let Tombstone { job, head, by, at, .. } = tombstone;
                JobError::Deleted { job, head, by, at }
            }
            Ok(_) => JobError::NotFound(id),
            Err(error) => error.into(),
        }
    }

    /// Adds the steps to a view that has none, if the job is an orchestration.
    pub(crate) async fn with_steps(&self, mut view: JobView) -> Result<JobView, StoreError> {
        if view.steps.is_some() || self.has_no_steps(&view.job) {
            return Ok(view);
        }
        let current = Current {
            job: std::sync::Arc::clone(&view.job),
            cells: view.cells.clone(),
            queue_depth: view.queue_depth,
            progress: None,
            changes: view.changes,
            hold: catena_store::HoldState::default(),
            ready_at: view.ready_at,
        };
        if let Some(steps) = self.steps_of(&current, Moment::Present).await? {
            view.steps = Some(steps.entries);
            // The entity tag changes with the steps.
            view.changes += steps.changes;
        }
        Ok(view)
    }

    /// Returns the view of a job as it was read, without steps.
    pub(crate) fn view(&self, current: Current) -> JobView {
        JobView::from(current)
    }

    /// Returns true if the definition of a job is known to have no steps, without reading it.
    pub(super) fn has_no_steps(&self, job: &Job) -> bool {
        let id = job.field("operation").and_then(catena_value::Value::as_str).unwrap_or_default();
        self.operations.has_no_steps(id)
    }
}

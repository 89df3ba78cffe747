//! Reads single jobs.

use std::time::Duration;

use catena_job::{Job, JobId, Status};

use crate::error::{JobError, StoreError};
use crate::jobs::{Current, check_visible};
use crate::limits::{PAGE_MAX, WAIT_MAX};
use crate::requests::{Caller, HistoryPage, JobView};
use crate::views::Views;

impl Views {
    /// Returns a job.
    pub(crate) async fn job(&self, caller: &Caller, id: JobId) -> Result<JobView, JobError> {
        if let Some(private) = self.execution.private.get(id) {
            let view = private.view();
            return check_visible(caller, &view.job).map(|()| view);
        }
        let current = self.jobs.current(id).await?.ok_or(JobError::NotFound(id))?;
        check_visible(caller, &current.job)?;
        Ok(self.with_steps(self.view(current)).await?)
    }

    /// Returns a job once it has ended, or as it is after `time`.
    pub(crate) async fn wait(
        &self,
        caller: &Caller,
        id: JobId,
        time: Duration,
    ) -> Result<JobView, JobError> {
        let mut watch = self.jobs.watchers.watch(id);
        let view = self.job(caller, id).await?;
        let time = time.min(WAIT_MAX);
        let view = self.jobs.watch_until(view, &mut watch, time, Status::is_terminal).await;
        Ok(self.complete(view).await?)
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
        let current = self.jobs.current(id).await?.ok_or(JobError::NotFound(id))?;
        check_visible(caller, &current.job)?;
        let page = self.jobs.store.records(id, from, limit.min(PAGE_MAX)).await;
        let page = page.map_err(StoreError::from)?.ok_or(JobError::NotFound(id))?;
        Ok(HistoryPage { records: page.records, total: page.total, cells: page.cells })
    }

    /// Adds the steps to the view of a job after a commit.
    pub(crate) async fn complete(&self, view: JobView) -> Result<JobView, StoreError> {
        self.with_steps(view).await
    }

    /// Adds the steps to a view, if the job is an orchestration.
    pub(crate) async fn with_steps(&self, mut view: JobView) -> Result<JobView, StoreError> {
        view.steps = self.steps_of(&view.job).await?;
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

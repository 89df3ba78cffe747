//! What people see of jobs. Reading changes nothing and makes no job.

use std::time::Duration;

use catena_job::vocabulary::Phase;
use catena_job::{Job, JobId, Status};

use crate::caller::Caller;
use crate::change::Current;
use crate::engine::Engine;
use crate::error::{JobError, StoreError};
use crate::limits::{PAGE_MAX, WAIT_MAX};
use crate::request::{HistoryPage, JobView};

impl Engine {
    /// A job.
    pub async fn job(&self, caller: &Caller, id: JobId) -> Result<JobView, JobError> {
        if let Some(private) = self.0.private.get(id) {
            let view = private.view();
            return self.visible(caller, &view.job).map(|()| view);
        }
        let current = self.current(id).await?.ok_or(JobError::NotFound(id))?;
        self.visible(caller, &current.job)?;
        Ok(self.with_steps(self.view(current)).await?)
    }

    /// A job after it ended, or after a time.
    pub async fn wait(
        &self,
        caller: &Caller,
        id: JobId,
        time: Duration,
    ) -> Result<JobView, JobError> {
        let mut watch = self.0.hub.watch(id);
        let view = self.job(caller, id).await?;
        let time = time.min(WAIT_MAX);
        let view = self.watch_until(view, &mut watch, time, Status::is_terminal).await;
        Ok(self.with_steps(self.phased(view)).await?)
    }

    /// A job as soon as it is not one that the caller knows, or after a time. What stands beside
    /// the chain counts too: progress and the queue of messages.
    pub async fn wait_for_change(
        &self,
        caller: &Caller,
        id: JobId,
        time: Duration,
        is_known: impl Fn(&JobView) -> bool,
    ) -> Result<JobView, JobError> {
        let mut watch = self.0.hub.watch(id);
        let mut timer = self.0.env.sleep(time.min(WAIT_MAX));
        let mut stopping = Box::pin(self.stopping());
        loop {
            // What is announced from here on makes us read again.
            watch.news();
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

    /// Records of a job.
    pub async fn history(
        &self,
        caller: &Caller,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> Result<HistoryPage, JobError> {
        let current = self.current(id).await?.ok_or(JobError::NotFound(id))?;
        self.visible(caller, &current.job)?;
        let page = self.0.store.records(id, from, limit.min(PAGE_MAX)).await;
        let page = page.map_err(StoreError::from)?.ok_or(JobError::NotFound(id))?;
        Ok(HistoryPage { records: page.records, total: page.total, cells: page.cells })
    }

    /// Whether somebody may see a job; if not, there is none for them.
    pub(crate) fn visible(&self, caller: &Caller, job: &Job) -> Result<(), JobError> {
        let owner = job.field("caller").and_then(catena_value::Value::as_str).unwrap_or_default();
        match caller.may_touch(owner) {
            true => Ok(()),
            false => Err(JobError::NotFound(job.id())),
        }
    }

    /// A view with its steps, when it is an orchestration.
    pub(crate) async fn with_steps(&self, mut view: JobView) -> Result<JobView, StoreError> {
        view.steps = self.steps_of(&view.job).await?;
        Ok(view)
    }

    /// The view of a job as it was read.
    pub(crate) fn view(&self, current: Current) -> JobView {
        let phase = self.phase(&current.job);
        let is_in_chain = current.job.field("progress").is_some();
        JobView {
            job: current.job,
            cells: current.cells,
            changes: current.changes,
            queue_depth: current.queue_depth,
            // At the end the chain carries the last progress.
            progress: if is_in_chain { None } else { current.progress },
            steps: None,
            phase,
        }
    }

    /// Whether a job is being run, as far as this process knows.
    pub(crate) fn phase(&self, job: &Job) -> Phase {
        self.phase_of(job.id(), job.status())
    }

    pub(crate) fn phase_of(&self, job: JobId, status: Status) -> Phase {
        match status == Status::Started && self.0.running.get(job).is_some() {
            true => Phase::Leased,
            false => Phase::Queued,
        }
    }
}

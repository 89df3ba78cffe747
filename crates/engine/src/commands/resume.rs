//! Resumes a paused job where it stopped.

use std::sync::Arc;

use catena_job::{JobId, Status};

use crate::commands::Commands;
use crate::error::ControlError;
use crate::execution::{ControlAction, open_sub_jobs};
use crate::jobs::Current;
use crate::requests::{Caller, JobView};

impl Commands {
    /// Resumes a paused job, with everything below it.
    pub(crate) async fn resume(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
    ) -> Result<JobView, ControlError> {
        self.execution.check_recorded(caller, id, "be resumed")?;
        let check = move |current: &Current| match current.job.status() {
            Status::Paused => Ok(true),
            status => Err(ControlError::Conflict { job: id, status, action: "be resumed" }),
        };
        match self.control(caller, id, ControlAction::Resume, check).await {
            Err(ControlError::Conflict { job, status, action }) => {
                Err(match self.paused_sub_job(id).await? {
                    Some(step) => ControlError::StepPaused { job, status, step },
                    None => ControlError::Conflict { job, status, action },
                })
            }
            resumed => resumed,
        }
    }

    /// Returns a paused sub-job of a job that itself is not paused.
    async fn paused_sub_job(&self, id: JobId) -> Result<Option<JobId>, ControlError> {
        let Some(current) = self.jobs.current(id).await? else { return Ok(None) };
        if current.job.status().is_terminal() {
            return Ok(None);
        }
        for step in open_sub_jobs(&current.job) {
            let sub_job = self.jobs.current(step).await?;
            if sub_job.is_some_and(|sub_job| sub_job.job.status() == Status::Paused) {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }
}

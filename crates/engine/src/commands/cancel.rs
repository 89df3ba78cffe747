//! Cancels a job.

use std::sync::Arc;

use catena_job::JobId;
use catena_job::state::Event;

use crate::commands::Commands;
use crate::error::ControlError;
use crate::jobs::{Changed, Current, check_control, is_live};
use crate::limits::REASON_BYTES_MAX;
use crate::requests::{Caller, JobView};

impl Commands {
    /// Cancels a job and its sub-jobs. A job that has ended is returned unchanged.
    pub(crate) async fn cancel(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
        reason: Option<String>,
    ) -> Result<JobView, ControlError> {
        if reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            let text = format!("a reason must have at most {REASON_BYTES_MAX} bytes");
            return Err(ControlError::Invalid(text));
        }
        let error = match reason {
            Some(reason) if !reason.is_empty() => format!("Job cancelled: {reason}"),
            _ => "Job cancelled".to_owned(),
        };
        if let Some(private) = self.execution.private.get(id) {
            return self.execution.cancel_private(caller, id, &private, &error);
        }
        let commands = Arc::clone(self);
        let caller = caller.clone();
        let cancelling = async move { commands.cancel_recorded(&caller, id, error).await };
        self.runtime.finish_even_if_dropped(cancelling).await
    }

    async fn cancel_recorded(
        &self,
        caller: &Caller,
        id: JobId,
        error: String,
    ) -> Result<JobView, ControlError> {
        let event = Event::Cancelled { error };
        let by = Some(caller.did.to_string());
        let may =
            |current: &Current| check_control(caller, current).map(|()| is_live(&current.job));
        match self.execution.end(id, &event, by, may).await? {
            Changed::Done(view) => Ok(self.views.complete(view).await?),
            Changed::Unchanged(current) => {
                Ok(self.views.with_steps(self.views.view(*current)).await?)
            }
            Changed::Gone => Err(ControlError::NotFound(id)),
        }
    }
}

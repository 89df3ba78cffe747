//! Cancels a job.

use std::sync::Arc;

use catena_job::JobId;
use catena_job::state::Event;

use crate::commands::Commands;
use crate::error::ControlError;
use crate::execution::ControlAction;
use crate::jobs::is_live;
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
        let action = ControlAction::End(Event::Cancelled { error });
        self.control(caller, id, action, |current| Ok(is_live(&current.job))).await
    }
}

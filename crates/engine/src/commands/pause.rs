//! Pauses a job.

use std::sync::Arc;

use catena_job::{JobId, Status};

use crate::commands::Commands;
use crate::error::ControlError;
use crate::execution::{ControlAction, ControlRequest};
use crate::jobs::{Changed, Current, check_control};
use crate::requests::{Caller, JobView};

impl Commands {
    /// Pauses a job: nothing new starts until it is resumed.
    pub(crate) async fn pause(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
    ) -> Result<JobView, ControlError> {
        self.pause_if(caller, id, |from| !from.is_terminal() && from != Status::Paused).await
    }

    /// Pauses a job if `may` accepts its status at the time of the commit.
    pub(crate) async fn pause_if(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
        may: impl Fn(Status) -> bool + Send + Sync + 'static,
    ) -> Result<JobView, ControlError> {
        self.execution.check_recorded(caller, id, "be paused")?;
        let check = move |current: &Current| match current.job.status() {
            status if may(status) => Ok(true),
            status => Err(ControlError::Conflict { job: id, status, action: "be paused" }),
        };
        self.control(caller, id, ControlAction::Pause, check).await
    }

    /// Carries out a request of a caller on a job and everything below it, even if the caller
    /// disconnects.
    pub(super) async fn control(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
        action: ControlAction,
        check: impl Fn(&Current) -> Result<bool, ControlError> + Send + Sync + 'static,
    ) -> Result<JobView, ControlError> {
        let commands = Arc::clone(self);
        let caller = caller.clone();
        let controlling = async move {
            let request = ControlRequest { action, by: Some(caller.did.to_string()) };
            let may = |current: &Current| {
                check_control(&caller, current)?;
                check(current)
            };
            match commands.execution.control(id, &request, may).await? {
                Changed::Done(view) => Ok(commands.views.with_steps(view).await?),
                Changed::Unchanged(current) => {
                    Ok(commands.views.with_steps(commands.views.view(*current)).await?)
                }
                Changed::Gone => Err(ControlError::NotFound(id)),
            }
        };
        self.runtime.finish_even_if_dropped(controlling).await
    }
}

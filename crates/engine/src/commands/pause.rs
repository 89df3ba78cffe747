//! Pauses a job.

use std::sync::Arc;

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use catena_store::Effect;
use catena_value::Value;

use crate::commands::Commands;
use crate::error::ControlError;
use crate::execution::{TurnPosition, open_children, paused_member};
use crate::jobs::{Changed, Current, Draft, check_control, control_error, deadline};
use crate::operations::Signal;
use crate::requests::{Caller, JobView};
use crate::runtime::Task;

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
        let commands = Arc::clone(self);
        let caller = caller.clone();
        let pausing = async move { commands.pause_recorded(&caller, id, &may).await };
        self.runtime.finish_even_if_dropped(pausing).await
    }

    async fn pause_recorded(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
        may: &(impl Fn(Status) -> bool + Sync),
    ) -> Result<JobView, ControlError> {
        self.execution.check_recorded(id, "be paused")?;
        // The run is signalled first: it must have no effect once the record says PAUSED.
        let handle = self.execution.registry.get(id);
        if let Some(handle) = &handle {
            let current = self.jobs.current(id).await?.ok_or(ControlError::NotFound(id))?;
            if current.job.status() == Status::Started && caller.may_touch(current.text("caller")) {
                handle.signal(Signal::Pause);
            }
        }
        let env = &*self.runtime.env;
        let progress = handle.as_ref().and_then(|handle| handle.progress.newest(env));
        let decide = |current: &Current| self.draft_pause(caller, current, may, progress.as_ref());
        let changed = self.jobs.change(id, None, decide).await;
        let is_paused = matches!(&changed, Ok(Changed::Done(_)))
            || matches!(&changed, Err(ControlError::Conflict { status: Status::Paused, .. }));
        if let (false, Some(handle)) = (is_paused, handle) {
            handle.signal(Signal::Go);
        }
        match changed? {
            Changed::Done(view) => {
                // A run that started after the first signal is signalled now.
                if let Some(handle) = self.execution.registry.get(id) {
                    handle.signal(Signal::Pause);
                }
                self.signal_children(&view.job, Signal::Pause).await;
                Ok(self.views.complete(view).await?)
            }
            Changed::Unchanged(current) => Ok(self.views.view(*current)),
            Changed::Gone => Err(ControlError::NotFound(id)),
        }
    }

    fn draft_pause(
        &self,
        caller: &Caller,
        current: &Current,
        may: &impl Fn(Status) -> bool,
        progress: Option<&Value>,
    ) -> Result<Option<Draft>, ControlError> {
        let id = current.job.id();
        let from = current.job.status();
        check_control(caller, current)?;
        if !may(from) {
            return Err(ControlError::Conflict { job: id, status: from, action: "be paused" });
        }
        let now = self.runtime.now();
        let turn = if from == Status::Started { TurnPosition::Open } else { TurnPosition::Ended };
        let left_ms = match from {
            Status::Started => current.number("deadline").map(|at| at.saturating_sub(now).max(1)),
            _ => None,
        };
        let trigger = current.job.field("trigger").filter(|_| from == Status::Started);
        let mut change = Change::new(Event::Paused, now);
        change.by = Some(caller.did.to_string());
        change.extra.push(("paused", paused_member(from, turn, left_ms, trigger)));
        change.extra.push(("deadline", deadline(now, self.runtime.limits.interactive)));
        let mut current = current.clone();
        let is_new_progress = progress.is_some();
        current.progress = progress.cloned().or(current.progress);
        let mut draft = current.draft();
        draft.append(change).map_err(|error| control_error(id, error))?;
        if is_new_progress {
            draft.save_progress();
        }
        if from == Status::Pending {
            draft.add(Effect::Dequeue { job: id });
        }
        Ok(Some(draft))
    }

    /// Pauses or resumes the open sub-jobs of a job.
    pub(super) fn signal_children(self: &Arc<Self>, job: &Job, signal: Signal) -> Task {
        let children = open_children(job);
        let commands = Arc::clone(self);
        Box::pin(async move {
            let caller = commands.jobs.venue_caller();
            let changes = children.iter().map(async |child| {
                // A sub-job whose status does not allow the change is left as it is.
                match signal {
                    Signal::Pause => drop(commands.pause(&caller, *child).await),
                    _ => drop(commands.resume(&caller, *child).await),
                }
            });
            futures_util::future::join_all(changes).await;
        })
    }
}

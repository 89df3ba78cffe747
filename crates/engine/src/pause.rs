//! Suspends a job.

use catena_job::chain::{AppendError, Change};
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::Effect;
use catena_value::Value;

use crate::caller::Caller;
use crate::change::{Changed, Current, Draft};
use crate::control::Signal;
use crate::engine::Engine;
use crate::error::ControlError;
use crate::request::JobView;
use crate::run::{TurnState, paused, unwritten};
use crate::submit::deadline;

impl Engine {
    /// Suspends a job: nothing new is begun until it is resumed.
    pub async fn pause(&self, caller: &Caller, id: JobId) -> Result<JobView, ControlError> {
        self.pause_if(caller, id, |from| !from.is_terminal() && from != Status::Paused).await
    }

    /// Suspends a job, if it stands where it may be; decided on what it is when it is suspended.
    pub async fn pause_if(
        &self,
        caller: &Caller,
        id: JobId,
        may: impl Fn(Status) -> bool + Send + Sync + 'static,
    ) -> Result<JobView, ControlError> {
        let (engine, caller) = (self.clone(), caller.clone());
        self.surely(async move { engine.pause_now(&caller, id, &may).await }).await
    }

    async fn pause_now(
        &self,
        caller: &Caller,
        id: JobId,
        may: &(impl Fn(Status) -> bool + Sync),
    ) -> Result<JobView, ControlError> {
        self.check_recorded(id, "pause")?;
        // The work is told first: nothing may leave once the record says PAUSED.
        let reins = self.0.running.get(id);
        if let Some(reins) = &reins {
            let current = self.current(id).await?.ok_or(ControlError::NotFound(id))?;
            if current.job.status() == Status::Started && caller.may_touch(current.text("caller")) {
                reins.signal(Signal::Pause);
            }
        }
        let progress = reins.as_ref().and_then(|reins| reins.progress.newest(self));
        let decide = |current: &Current| self.pausing(caller, current, may, progress.as_ref());
        let changed = self.change(id, None, decide).await;
        let is_paused = matches!(&changed, Ok(Changed::Done(_)))
            || matches!(&changed, Err(ControlError::Conflict { status: Status::Paused, .. }));
        if let (false, Some(reins)) = (is_paused, reins) {
            reins.signal(Signal::Go);
        }
        match changed? {
            Changed::Done(view) => {
                // A run that began after we looked is told now.
                if let Some(reins) = self.0.running.get(id) {
                    reins.signal(Signal::Pause);
                }
                self.hold_children(&view.job, Signal::Pause).await;
                Ok(self.with_steps(self.phased(view)).await?)
            }
            Changed::Left(current) => Ok(self.view(*current)),
            Changed::Missing => Err(ControlError::NotFound(id)),
        }
    }

    fn pausing(
        &self,
        caller: &Caller,
        current: &Current,
        may: &impl Fn(Status) -> bool,
        progress: Option<&Value>,
    ) -> Result<Option<Draft>, ControlError> {
        let (id, from) = (current.job.id(), current.job.status());
        may_control(caller, current)?;
        if !may(from) {
            return Err(ControlError::Conflict { job: id, status: from, action: "pause" });
        }
        let now = self.now();
        let turn = if from == Status::Started { TurnState::Open } else { TurnState::Ended };
        let left = match from {
            Status::Started => current.number("deadline").map(|at| at.saturating_sub(now).max(1)),
            _ => None,
        };
        let trigger = current.job.field("trigger").filter(|_| from == Status::Started);
        let mut change = Change::new(Event::Paused, now);
        change.by = Some(caller.did.to_string());
        change.extra.push(("paused", paused(from, turn, left, trigger)));
        change.extra.push(("deadline", deadline(now, self.0.limits.interactive)));
        let mut current = current.clone();
        let is_news = progress.is_some();
        current.progress = progress.cloned().or(current.progress);
        let mut draft = current.draft();
        draft.append(change).map_err(|error| uncontrolled(id, error))?;
        if is_news {
            draft.keep_progress();
        }
        if from == Status::Pending {
            draft.with(Effect::Withdraw { job: id });
        }
        Ok(Some(draft))
    }

    pub(crate) fn check_recorded(
        &self,
        job: JobId,
        action: &'static str,
    ) -> Result<(), ControlError> {
        match self.0.private.get(job) {
            Some(_) => Err(ControlError::Private { job, action }),
            None => Ok(()),
        }
    }
}

/// Whether somebody may control a job; if not, there is none for them.
pub(crate) fn may_control(caller: &Caller, current: &Current) -> Result<(), ControlError> {
    match caller.may_touch(current.text("caller")) {
        true => Ok(()),
        false => Err(ControlError::NotFound(current.job.id())),
    }
}

pub(crate) fn uncontrolled(job: JobId, error: AppendError) -> ControlError {
    match error {
        AppendError::HistoryFull => ControlError::HistoryFull(job),
        error => ControlError::Store(unwritten(error)),
    }
}

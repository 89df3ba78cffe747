//! Ends a job because somebody wants it to, or because its time is up.

use catena_job::JobId;
use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{Job, Status};

use crate::caller::Caller;
use crate::change::{Changed, is_live};
use crate::control::Signal;
use crate::engine::Engine;
use crate::error::{ControlError, StoreError};
use crate::limits::REASON_BYTES_MAX;
use crate::pause::{may_control, uncontrolled};
use crate::request::JobView;

impl Engine {
    /// Ends a job. One that has ended is given as it is.
    pub async fn cancel(
        &self,
        caller: &Caller,
        id: JobId,
        reason: Option<String>,
    ) -> Result<JobView, ControlError> {
        if reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            let text = format!("a reason has at most {REASON_BYTES_MAX} bytes");
            return Err(ControlError::Invalid(text));
        }
        let error = match reason {
            Some(reason) if !reason.is_empty() => format!("Job cancelled: {reason}"),
            _ => "Job cancelled".to_owned(),
        };
        if let Some(private) = self.0.private.get(id) {
            return self.cancel_private(caller, id, &private, &error);
        }
        let (engine, caller) = (self.clone(), caller.clone());
        self.surely(async move { engine.cancel_now(&caller, id, error).await }).await
    }

    async fn cancel_now(
        &self,
        caller: &Caller,
        id: JobId,
        error: String,
    ) -> Result<JobView, ControlError> {
        let event = Event::Cancelled { error };
        let by = Some(caller.did.to_string());
        let changed = self.end(id, &event, by, |current| {
            may_control(caller, current).map(|()| is_live(&current.job))
        });
        match changed.await? {
            Changed::Done(view) => Ok(self.with_steps(self.phased(view)).await?),
            Changed::Left(current) => Ok(self.with_steps(self.view(*current)).await?),
            Changed::Missing => Err(ControlError::NotFound(id)),
        }
    }

    /// Ends a job that has run for too long.
    pub(crate) async fn expire_now(&self, id: JobId, error: &str) -> Result<(), ControlError> {
        let event = Event::Expired { error: error.to_owned() };
        self.end(id, &event, None, |current| Ok(is_live(&current.job))).await.map(drop)
    }

    /// Ends a job whose time is up, if it still is.
    pub(crate) async fn expire(&self, id: JobId) -> Result<bool, ControlError> {
        let now = self.now();
        let Some(current) = self.current(id).await? else { return Ok(false) };
        let event = Event::Expired { error: overdue(&current.job) };
        let is_due = |job: &Job, deadline: Option<i64>| {
            is_live(job) && deadline.is_some_and(|deadline| deadline <= now)
        };
        let changed = self
            .end(id, &event, None, |current| Ok(is_due(&current.job, current.number("deadline"))))
            .await?;
        Ok(matches!(changed, Changed::Done(_)))
    }

    /// Ends a job from outside, if `may` says so: what runs is held still, then the record is
    /// made, then the work is stopped.
    async fn end(
        &self,
        id: JobId,
        event: &Event,
        by: Option<String>,
        may: impl Fn(&crate::change::Current) -> Result<bool, ControlError>,
    ) -> Result<Changed, ControlError> {
        let reins = self.0.running.get(id);
        if let Some(reins) = &reins {
            let current = self.current(id).await?.ok_or(ControlError::NotFound(id))?;
            if may(&current)? && current.job.status() == Status::Started {
                reins.signal(Signal::Pause);
            }
        }
        let progress = reins.as_ref().and_then(|reins| reins.progress.newest(self));
        let changed = self
            .change(id, None, |current| {
                if !may(current)? {
                    return Ok(None);
                }
                let mut current = current.clone();
                current.progress = progress.clone().or(current.progress);
                let mut change = Change::new(event.clone(), self.now());
                change.by = by.clone();
                let mut draft = current.draft();
                draft.append(change).map_err(|error| uncontrolled(id, error))?;
                Ok(Some(draft))
            })
            .await;
        match &changed {
            Ok(Changed::Done(view)) => {
                if let Some(reins) = self.0.running.get(id) {
                    reins.signal(Signal::Stop);
                }
                let reason = format!("the job that it is a step of is {}", view.status());
                self.end_children(&view.job, &reason).await;
                self.give_up_unfollowed(&view.job).await;
            }
            _ => {
                let paused = self.current(id).await.ok().flatten();
                let is_paused = paused.is_some_and(|job| job.job.status() == Status::Paused);
                if let (Some(reins), false) = (reins, is_paused) {
                    reins.signal(Signal::Go);
                }
            }
        }
        changed
    }

    /// A view with the phase that the job is in.
    pub(crate) fn phased(&self, mut view: JobView) -> JobView {
        view.phase = self.phase(&view.job);
        view
    }
}

/// What a job says whose time is up.
fn overdue(job: &Job) -> String {
    match job.status() {
        Status::Paused => "the job was paused for too long".to_owned(),
        Status::InputRequired => "the job waited for input for too long".to_owned(),
        Status::AuthRequired => "the job waited for authorisation for too long".to_owned(),
        _ => "the operation ran longer than its limit".to_owned(),
    }
}

impl From<ControlError> for StoreError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Store(trouble) => trouble,
            other => StoreError::Damaged(other.to_string()),
        }
    }
}

//! Ends a job from outside, with its sub-jobs: it was cancelled, or its time is up.

use std::sync::Arc;

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};

use crate::error::ControlError;
use crate::execution::Execution;
use crate::jobs::{Changed, Current, control_error, is_live};
use crate::operations::Signal;
use crate::runtime::Task;

impl Execution {
    /// Ends a job if `may` allows it. A running turn is paused first, then the record is committed,
    /// then the turn is stopped and the sub-jobs are ended.
    pub(crate) async fn end(
        self: &Arc<Self>,
        id: JobId,
        event: &Event,
        by: Option<String>,
        may: impl Fn(&Current) -> Result<bool, ControlError>,
    ) -> Result<Changed, ControlError> {
        let handle = self.registry.get(id);
        if let Some(handle) = &handle {
            let current = self.jobs.current(id).await?.ok_or(ControlError::NotFound(id))?;
            if may(&current)? && current.job.status() == Status::Started {
                handle.signal(Signal::Pause);
            }
        }
        let env = &*self.runtime.env;
        let progress = handle.as_ref().and_then(|handle| handle.progress.newest(env));
        let decide = |current: &Current| {
            if !may(current)? {
                return Ok(None);
            }
            let mut current = current.clone();
            current.progress = progress.clone().or(current.progress);
            let mut change = Change::new(event.clone(), self.runtime.now());
            change.by = by.clone();
            let mut draft = current.draft();
            draft.append(change).map_err(|error| control_error(id, error))?;
            Ok(Some(draft))
        };
        let changed = self.jobs.change(id, None, decide).await;
        match &changed {
            Ok(Changed::Done(view)) => {
                if let Some(handle) = self.registry.get(id) {
                    handle.signal(Signal::Stop);
                }
                let reason = format!("the parent job is {}", view.status());
                self.cancel_children(&view.job, &reason).await;
                if let Some(plans) = self.plan_runner() {
                    plans.cancel_unfollowed(Arc::clone(&view.job)).await;
                }
            }
            _ => {
                let current = self.jobs.current(id).await.ok().flatten();
                let is_paused =
                    current.is_some_and(|current| current.job.status() == Status::Paused);
                if let (Some(handle), false) = (handle, is_paused) {
                    handle.signal(Signal::Go);
                }
            }
        }
        changed
    }

    /// Ends a job with a timeout, unless it has ended.
    pub(crate) async fn expire_now(
        self: &Arc<Self>,
        id: JobId,
        error: &str,
    ) -> Result<(), ControlError> {
        let event = Event::Expired { error: error.to_owned() };
        self.end(id, &event, None, |current| Ok(is_live(&current.job))).await.map(drop)
    }

    /// Ends a job whose deadline has passed. Returns false if it has ended or its deadline is later
    /// by now.
    pub(crate) async fn expire(self: &Arc<Self>, id: JobId) -> Result<bool, ControlError> {
        let now = self.runtime.now();
        let Some(current) = self.jobs.current(id).await? else { return Ok(false) };
        let event = Event::Expired { error: overdue_error(&current.job) };
        let is_due = |current: &Current| {
            let deadline = current.number("deadline");
            Ok(is_live(&current.job) && deadline.is_some_and(|deadline| deadline <= now))
        };
        let changed = self.end(id, &event, None, is_due).await?;
        Ok(matches!(changed, Changed::Done(_)))
    }

    /// Cancels the open sub-jobs of a job that has ended, and theirs.
    pub(crate) fn cancel_children(self: &Arc<Self>, job: &Job, reason: &str) -> Task {
        let parent = job.id();
        let children = open_children(job);
        let execution = Arc::clone(self);
        let event = Event::Cancelled { error: format!("Job cancelled: {reason}") };
        Box::pin(async move {
            let by = execution.jobs.did.to_string();
            let cancels = children.iter().map(|child| {
                let may = |current: &Current| Ok(is_live(&current.job));
                execution.end(*child, &event, Some(by.clone()), may)
            });
            drop(futures_util::future::join_all(cancels).await);
            if !children.is_empty() {
                execution.jobs.touch(parent).await;
            }
        })
    }
}

/// Returns the sub-jobs of a job that have started here and, by its chain, not ended.
pub(crate) fn open_children(job: &Job) -> Vec<JobId> {
    let is_open =
        |step: &&catena_job::chain::StepState| step.end.is_none() && step.start.venue.is_none();
    job.steps().values().filter(is_open).map(|step| step.start.job).collect()
}

/// Returns the error text of a job whose deadline has passed.
fn overdue_error(job: &Job) -> String {
    match job.status() {
        Status::Paused => "the job was paused for too long".to_owned(),
        Status::InputRequired => "the job waited for input for too long".to_owned(),
        Status::AuthRequired => "the job waited for authorisation for too long".to_owned(),
        _ => "the operation ran longer than its limit".to_owned(),
    }
}

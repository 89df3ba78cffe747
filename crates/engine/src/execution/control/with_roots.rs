//! Cancels jobs, and sends them messages, in the commit that changes roots: the run of an agent that is
//! terminated is cancelled, and the job whose question is answered gets a message. A job that paused itself
//! because of a root continues after the commit that changed it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use catena_job::state::Event;
use catena_job::{JobId, Status};
use futures_util::future::BoxFuture;

use super::{ControlAction, ControlRequest, Descent, FollowUp, PendingControl};
use crate::error::{ControlError, StoreError};
use crate::execution::{Descend, Execution, PausedTurn};
use crate::jobs::{CancelJobs, Current, Draft, is_bound, is_live};
use crate::requests::JobView;

impl CancelJobs for Execution {
    fn cancel_drafts<'a>(
        &'a self,
        cancels: Vec<(JobId, String)>,
        except: &'a [JobId],
    ) -> BoxFuture<'a, Result<Vec<Draft>, StoreError>> {
        Box::pin(async move {
            let mut drafts = Vec::new();
            for (job, reason) in cancels {
                drafts.extend(self.cancel_tree_drafts(job, &reason, except).await?);
            }
            Ok(drafts)
        })
    }

    fn stop(self: Arc<Self>, jobs: &[JobView]) {
        for view in jobs {
            self.follow_up(view, FollowUp::Stop);
            // Sub-jobs that did not fit into the commit.
            let execution = Arc::clone(&self);
            let id = view.job.id();
            self.runtime.spawn(async move { execution.carry_out(id).await });
        }
    }

    fn wake_jobs(self: Arc<Self>, jobs: Vec<JobId>) {
        for id in jobs {
            let execution = Arc::clone(&self);
            self.runtime.counters.messages.fetch_add(1, Ordering::Relaxed);
            self.runtime.spawn(async move {
                execution.jobs.watchers.announce_off_chain(id);
                if let Ok(Some(current)) = execution.jobs.current(id).await {
                    execution.jobs.hint_changed(&current.job);
                }
                execution.resume_bound(id).await;
                execution.wake(id).await;
            });
        }
    }
}

impl Execution {
    /// Resumes a bound job that paused itself, if what it is bound to has changed since. The next turn is not told
    /// that somebody resumed the job, because nobody did.
    pub(crate) async fn resume_bound(self: &Arc<Self>, id: JobId) {
        if let Err(error) = self.try_resume_bound(id).await {
            tracing::error!(job = %id, %error, "cannot resume a job that paused itself");
        }
    }

    async fn try_resume_bound(self: &Arc<Self>, id: JobId) -> Result<(), ControlError> {
        let Some(current) = self.jobs.current(id).await? else { return Ok(()) };
        let is_stopping = self.runtime.is_stopping();
        if is_stopping || !has_paused_itself(&current) || !self.jobs.resumes_bound(&current).await?
        {
            return Ok(());
        }
        let request = ControlRequest { action: ControlAction::Resume, by: None };
        match self.control(id, &request, |current| Ok(has_paused_itself(current))).await {
            // Somebody paused the job that it is a step of.
            Ok(_) | Err(ControlError::ParentPaused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the changes that cancel a job and everything below it. If there is more below it than
    /// fits into one commit, the rest is cancelled afterwards.
    async fn cancel_tree_drafts(
        &self,
        job: JobId,
        reason: &str,
        except: &[JobId],
    ) -> Result<Vec<Draft>, StoreError> {
        let Some(root) = self.jobs.current(job).await? else { return Ok(Vec::new()) };
        if !is_live(&root.job) || except.contains(&job) {
            return Ok(Vec::new());
        }
        let event = Event::Cancelled { error: format!("Job cancelled: {reason}") };
        let action = ControlAction::End(event.clone());
        let mut change = self.end_change(&root, &event, None, None).map_err(control_failure)?;
        let tree =
            self.read_tree(&root, Descend::Detached, self.runtime.limits.tree_commit_max).await?;
        if !tree.is_complete {
            let earlier = self.jobs.pending_control(job).await?;
            let pending = PendingControl::new(change.draft.job(), &action);
            change.draft.add(pending.store(earlier.as_ref()));
            return Ok(vec![change.draft]);
        }
        let alive = self.alive_holders().await?;
        let descent = Descent::new(&action, change.draft.job().head());
        let mut drafts = vec![change.draft];
        for current in tree.below.iter().filter(|below| !except.contains(&below.job.id())) {
            let change = self.sub_job_change(current, &descent, &alive).await;
            drafts.extend(change.map_err(control_failure)?.map(|change| change.draft));
        }
        Ok(drafts)
    }
}

/// Returns true if a turn of a bound job paused the job. Whoever else pauses one notes when.
fn has_paused_itself(current: &Current) -> bool {
    let is_own = |paused: PausedTurn| paused.turn == "ended" && paused.since.is_none();
    current.job.status() == Status::Paused
        && is_bound(&current.job)
        && PausedTurn::from_job(current).is_some_and(is_own)
}

fn control_failure(error: ControlError) -> StoreError {
    match error {
        ControlError::Store(error) => error,
        error => StoreError::Damaged(error.to_string()),
    }
}

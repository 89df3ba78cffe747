//! Cancels jobs, and sends them messages, in the commit that changes roots: the run of an agent that is
//! terminated is cancelled, and the job whose question is answered gets a message.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use catena_job::JobId;
use catena_job::state::Event;
use futures_util::future::BoxFuture;

use super::{ControlAction, Descent, FollowUp, PendingControl};
use crate::error::{ControlError, StoreError};
use crate::execution::{Descend, Execution};
use crate::jobs::{CancelJobs, Draft, is_live};
use crate::limits::TREE_COMMIT_MAX;
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
                execution.wake(id).await;
            });
        }
    }
}

impl Execution {
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
        let tree = self.read_tree(&root, Descend::Detached, TREE_COMMIT_MAX).await?;
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

fn control_failure(error: ControlError) -> StoreError {
    match error {
        ControlError::Store(error) => error,
        error => StoreError::Damaged(error.to_string()),
    }
}

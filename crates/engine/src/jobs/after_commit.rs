//! What follows from a commit: watchers, counters, quotas, deadlines and drivers are notified.

use catena_job::{Job, JobId, Status};
use catena_store::{Effect, Effects, Hint};
use catena_value::Value;

use crate::jobs::{Committed, Current, Jobs, unless_overtaken};
use crate::requests::JobView;
use crate::runtime::{CountedChange, Task};

/// Receives what concerns the driver of an orchestration. The orchestrations, which rank above this
/// folder, implement it.
pub(crate) trait DriverEvents: Send + Sync {
    /// A sub-job changed. If its parent has no driver in this process, one is started here unless
    /// another process drives it.
    fn child_changed(&self, parent: JobId, child: &JobView);

    /// A message was queued for a job that this process may drive.
    fn message_queued(&self, job: JobId);

    /// Returns true if a job has a driver in this process.
    fn is_driven(&self, job: JobId) -> bool;

    /// Returns the open sub-jobs of all drivers in this process.
    fn open_children(&self) -> Vec<JobId>;
}

impl Jobs {
    /// Announces a commit.
    pub(super) fn announce(&self, committed: &Committed) {
        for child in &committed.children {
            self.announce_job(child, true);
        }
        if committed.is_off_chain {
            self.watchers.announce_off_chain(committed.view.job.id());
        } else {
            self.announce_job(&committed.view, committed.is_new);
        }
    }

    fn announce_job(&self, view: &JobView, is_new: bool) {
        let job = &view.job;
        let ends = job.status().is_terminal();
        self.runtime.counters.count_job(is_new, ends.then(|| job.status()));
        self.runtime.stats.count(&CountedChange {
            job: job.id(),
            owner: owner(job),
            status: job.status(),
            is_new,
            is_start: job.has_started() && (is_new || job.count() == 2 && !ends),
            created: job.created(),
            updated: job.updated(),
        });
        log_failure(job);
        if let Some(deadline) = job.field("deadline").and_then(Value::as_i64).filter(|_| !ends) {
            self.runtime.deadlines.wake_by(deadline);
        }
        if let Some(parent) = job.parent() {
            self.drivers.child_changed(parent.job, view);
            // The steps of the parent are part of what its watchers see.
            self.watchers.announce_off_chain(parent.job);
        }
        self.watchers.announce(view);
        self.changes.send();
        self.hint_changed(job);
    }

    /// Tells other processes that a job changed.
    pub(crate) fn hint_changed(&self, job: &Job) {
        if self.store.has_peers() {
            let parent = job.parent().map(|parent| parent.job);
            self.store.send_hint(&self.process, Hint::Changed { job: job.id(), parent });
        }
    }

    /// Announces a job that another process changed.
    pub(crate) fn announce_current(&self, current: Current) {
        let view = JobView::from(current);
        if let Some(parent) = view.job.parent().filter(|parent| self.is_driven(parent.job)) {
            self.drivers.child_changed(parent.job, &view);
        }
        self.drivers.message_queued(view.job.id());
        self.watchers.announce(&view);
    }

    /// Returns true if a job has a driver in this process.
    pub(crate) fn is_driven(&self, job: JobId) -> bool {
        self.drivers.is_driven(job)
    }

    /// Returns the open sub-jobs of all drivers in this process.
    pub(crate) fn open_children_of_drivers(&self) -> Vec<JobId> {
        self.drivers.open_children()
    }

    /// Notifies the driver of a job, if it has one here, that a message was queued.
    pub(crate) fn notify_driver(&self, job: JobId) {
        self.drivers.message_queued(job);
    }

    /// Changes the entity tag of a job because its steps changed: its own chain may have ended.
    pub(crate) fn touch(&self, job: JobId) -> Task {
        let committing = self.store.commit(Effects(vec![Effect::Touch { job }]));
        Box::pin(async move {
            // A deleted job has no entity tag.
            if let Err(error) = unless_overtaken(committing.await) {
                tracing::warn!(%job, %error, "could not update the entity tag after a step changed");
            }
        })
    }
}

/// Logs a job that ended as FAILED or TIMEOUT, without any of its contents.
fn log_failure(job: &Job) {
    if matches!(job.status(), Status::Failed | Status::Timeout) {
        let code = job.field("errorCode").and_then(Value::as_str);
        let op = job.field("op").and_then(Value::as_str).unwrap_or_default();
        tracing::info!(
            target: "catena::audit",
            job = %job.id(), status = %job.status(), code, op, caller = owner(job), "a job failed"
        );
    }
}

fn owner(job: &Job) -> &str {
    job.field("caller").and_then(Value::as_str).unwrap_or_default()
}

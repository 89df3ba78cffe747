//! Orchestrations that only wait: they cost no memory, and are driven again when something happens.
//!
//! A driver parks its job when nothing has happened for a while, or when nothing can happen before
//! somebody acts. The process in which a sub-job changes then drives the parent, unless another one
//! does.

use std::sync::Arc;

use catena_job::{JobId, Status};
use catena_store::Hold;

use crate::error::{ResolveError, StoreError};
use crate::execution::{Run, RunSpec, open_sub_jobs};
use crate::jobs::{
    Current, is_live, recorded_limit, time_until, unless_overtaken, waits_for_message,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::Cause;
use crate::orchestration::Orchestration;
use crate::orchestration::driver::OrchestrationDriver;

/// The result of an attempt to become the holder of an orchestration.
enum Acquired {
    Run(Box<Run>),
    Conflict,
    /// It has ended, is driven already, or cannot run here.
    No,
}

impl Orchestration {
    /// Drives the parent of a sub-job that changed, unless a process does.
    pub(super) async fn drive_parent(self: Arc<Self>, parent: JobId) {
        let current = match self.jobs.current(parent).await {
            Ok(Some(current)) => current,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(job = %parent, %error, "cannot read the parent of a sub-job");
                return;
            }
        };
        if is_live(&current.job) {
            self.drive_job(parent).await;
        } else {
            // Its chain has ended, and its steps have changed.
            self.jobs.touch(parent).await;
        }
    }

    /// Drives an orchestration, unless a process does.
    pub(super) async fn drive_job(self: Arc<Self>, job: JobId) {
        for _ in 0..CONTENTION_TRIES_MAX {
            if self.drivers.contains(job) {
                return self.jobs.notify_driver(job);
            }
            match self.acquire_job(job).await {
                Ok(Acquired::Run(run)) => {
                    let execution = Arc::clone(&self.execution);
                    return self.runtime.spawn_task(run.execute(execution));
                }
                Ok(Acquired::No) => return,
                Ok(Acquired::Conflict) => {}
                Err(error) => {
                    tracing::error!(%job, %error, "an orchestration cannot be driven");
                    return;
                }
            }
        }
    }

    async fn acquire_job(&self, job: JobId) -> Result<Acquired, StoreError> {
        let Some(current) = self.jobs.current(job).await? else { return Ok(Acquired::No) };
        if !is_live(&current.job) || self.runtime.is_stopping() || current.ready_at.is_some() {
            return Ok(Acquired::No);
        }
        if let Some(holder) = &current.hold.holder {
            let alive = self.execution.alive_holders().await?;
            let is_own = *holder == self.jobs.process;
            let runs_here = self.execution.registry.get(job).is_some();
            if alive.contains(&holder.key()) && (!is_own || runs_here) {
                return Ok(Acquired::No);
            }
        }
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error),
            Err(_) => return Ok(Acquired::No),
        };
        if operation.plan().is_none() {
            self.execution.continue_caller(job).await?;
            return Ok(Acquired::No);
        }
        if !current.job.has_started() {
            return Ok(Acquired::No);
        }
        let input = self.jobs.input_of(&current).await?;
        let mut draft = current.draft();
        let guard = self.execution.acquire(&mut draft);
        if unless_overtaken(self.jobs.commit(draft).await)?.is_none() {
            return Ok(Acquired::Conflict);
        }
        let limit = recorded_limit(&self.runtime.limits, &current.job, &operation);
        let spec = RunSpec {
            time_left: time_until(current.number("deadline"), self.runtime.now(), limit),
            input,
            caller: self.jobs.owner_of(&current.job),
            operation,
            cause: Cause::Retry,
        };
        let run = Run::new(current.job, current.cells, spec, guard);
        Ok(Acquired::Run(Box::new(run)))
    }

    /// Drives a parked orchestration if something happened that its chain does not say: a process
    /// may have stopped right after it parked the job, or right after the job above it had ended.
    pub(crate) async fn check_parked(self: &Arc<Self>, job: JobId) -> Result<(), StoreError> {
        let Some(current) = self.jobs.current(job).await? else { return Ok(()) };
        if !is_live(&current.job)
            || !current.hold.is_parked
            || self.execution.cancel_orphan(&current.job).await?
        {
            return Ok(());
        }
        if self.needs_driver(&current).await? {
            Arc::clone(self).drive_job(job).await;
        }
        Ok(())
    }

    async fn needs_driver(&self, parent: &Current) -> Result<bool, StoreError> {
        let status = parent.job.status();
        let mut has_running = false;
        let mut has_asking = false;
        for id in open_sub_jobs(&parent.job) {
            let Some(child) = self.jobs.current(id).await? else { return Ok(true) };
            let child_status = child.job.status();
            if child_status.is_terminal() {
                return Ok(true);
            }
            has_asking |= waits_for_message(child_status);
            has_running |= matches!(child_status, Status::Pending | Status::Started);
        }
        Ok(match status {
            Status::Started => !has_running || has_asking,
            Status::InputRequired | Status::AuthRequired => !has_asking || parent.queue_depth > 0,
            _ => false,
        })
    }
}

impl OrchestrationDriver {
    /// Parks the orchestration. Returns the driver if it must go on.
    pub(super) async fn park(
        mut self,
        orchestration: &Arc<Orchestration>,
    ) -> Result<Option<OrchestrationDriver>, StoreError> {
        let job = self.run.job.id();
        let mut draft = self.current().draft();
        draft.set_hold(Hold::Park(self.run.guard.handle.fence));
        if unless_overtaken(orchestration.jobs.commit(draft).await)?.is_none() {
            self.is_stale = true;
            return Ok(Some(self));
        }
        let has_events = self.subscription.end();
        let next = self.state.budget.leave(job);
        orchestration.notify_room(next);
        drop(self);
        if has_events {
            let driving = Arc::clone(orchestration);
            orchestration.runtime.spawn(async move { driving.drive_job(job).await });
        } else if orchestration.jobs.store.has_peers() {
            orchestration.check_parked(job).await?;
        }
        Ok(None)
    }
}

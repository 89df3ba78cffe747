//! Deletes a job and its sub-jobs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catena_job::JobId;
use catena_job::contract::ENV_VERSION;
use catena_job::state::Event;
use catena_store::{CommitError, Effect, Effects, Hint};

use crate::commands::Commands;
use crate::error::{ControlError, StoreError};
use crate::execution::{Descend, PendingControl};
use crate::jobs::{CommitFailure, Current, Tombstone, check_control, is_live};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::requests::Caller;

/// Jobs that are deleted in one commit.
const DELETE_BATCH: usize = 256;

impl Commands {
    /// Deletes a job and its sub-jobs. A job that has not ended is cancelled first. Assets that it
    /// produced are kept.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
    ) -> Result<(), ControlError> {
        let commands = Arc::clone(self);
        let caller = caller.clone();
        let deleting = async move { commands.delete_recorded(&caller, id).await };
        self.runtime.finish_even_if_dropped(deleting).await
    }

    async fn delete_recorded(
        self: &Arc<Self>,
        caller: &Caller,
        id: JobId,
    ) -> Result<(), ControlError> {
        self.execution.check_recorded(caller, id, "be deleted")?;
        let current = self.jobs.current(id).await?.ok_or(ControlError::NotFound(id))?;
        check_control(caller, &current)?;
        if let Some(parent) = current.job.parent() {
            let root = self.root_of(parent.job).await?;
            return Err(ControlError::SubJob { job: id, root });
        }
        if !current.job.status().is_terminal() {
            self.cancel(caller, id, Some("it is being deleted".to_owned())).await?;
        }
        self.end_remaining(id).await?;
        self.delete_tree(id, Some(&caller.did)).await?;
        Ok(())
    }

    /// Ends what still runs below a job that has ended: steps that its failure left running, and
    /// detached calls.
    async fn end_remaining(&self, id: JobId) -> Result<(), ControlError> {
        let Some(root) = self.jobs.current(id).await? else { return Ok(()) };
        let error = "Job cancelled: its root is being deleted".to_owned();
        let event = Event::Cancelled { error };
        let by = self.jobs.did.to_string();
        for current in self.execution.read_tree(&root, Descend::All, usize::MAX).await?.below {
            let may = |current: &Current| Ok(is_live(&current.job));
            self.execution.end(current.job.id(), &event, Some(by.clone()), may).await?;
        }
        Ok(())
    }

    /// Returns the root of the tree that a job belongs to.
    async fn root_of(&self, job: JobId) -> Result<JobId, StoreError> {
        let mut job = job;
        while let Some(current) = self.jobs.current(job).await? {
            match current.job.parent() {
                Some(parent) => job = parent.job,
                None => break,
            }
        }
        Ok(job)
    }

    /// Deletes a job that has ended and everything below it, leaves first, so that a crash leaves no
    /// job without its parent. The root leaves a tombstone if somebody deletes it: `by`. What does not
    /// fit into one commit is recorded first, and the next start of a process completes it.
    pub(crate) async fn delete_tree(
        &self,
        root: JobId,
        by: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut tree = vec![root];
        let mut tombstone = Vec::new();
        let mut orchestrations = HashSet::new();
        let mut signatures = HashMap::new();
        let mut executed = Vec::new();
        let mut next = 0;
        while let Some(job) = tree.get(next).copied() {
            next += 1;
            let Some(current) = self.jobs.current(job).await? else { continue };
            if let Some(by) = by.filter(|_| job == root) {
                tombstone = Tombstone::new(&current.job, by, self.runtime.now()).store();
            }
            if !self.operations.has_no_steps(current.text("operation")) {
                orchestrations.insert(job);
            }
            if current.job.field(ENV_VERSION).is_some() {
                executed.push(job);
            }
            if let Some(effect) = self.jobs.remove_signature(&current.job).await? {
                signatures.insert(job, effect);
            }
            let steps = current.job.steps().values();
            tree.extend(steps.filter(|step| step.start.venue.is_none()).map(|step| step.start.job));
            tree.extend(current.job.calls().iter().map(|call| call.start.job));
        }
        tree.reverse();
        if tree.len() > DELETE_BATCH {
            self.record_deletion(root, by).await?;
        }
        for batch in tree.chunks(DELETE_BATCH) {
            let mut effects = Vec::with_capacity(batch.len());
            for job in batch {
                effects.push(Effect::Delete { job: *job });
                effects.extend(signatures.get(job).cloned());
                if orchestrations.contains(job) {
                    effects.extend(self.jobs.delete_remote_steps(*job).await?);
                }
                if *job == root {
                    effects.extend(tombstone.iter().cloned());
                }
            }
            let committed = self.jobs.store.commit(Effects(effects)).await;
            match committed.map_err(CommitFailure::from) {
                Ok(_) => {}
                // Some are deleted already, or a step has changed: delete them one by one.
                Err(CommitFailure::Gone | CommitFailure::Conflict) => {
                    self.delete_each(batch, root, &tombstone).await?;
                }
                Err(CommitFailure::Busy(error) | CommitFailure::Fatal(error)) => return Err(error),
            }
        }
        for job in executed {
            // What is left is found by the collector.
            if let Err(error) = self.operations.remove_files_of(job).await {
                tracing::warn!(%job, %error, "cannot remove the files of a deleted job");
            }
        }
        if let Some(pending) = self.jobs.pending_control(root).await? {
            self.execution.finish_pending(&pending).await?;
        }
        for job in &tree {
            self.jobs.watchers.announce_deleted(*job);
            self.jobs.store.send_hint(&self.jobs.process, Hint::Deleted { job: *job });
        }
        self.jobs.changes.send();
        self.jobs.has_garbage.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Records that a tree is to be deleted, whatever happens to this process.
    async fn record_deletion(&self, root: JobId, by: Option<&str>) -> Result<(), StoreError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let earlier = self.jobs.pending_control(root).await?;
            let Some(current) = self.jobs.current(root).await? else { return Ok(()) };
            let pending = PendingControl::delete(&current.job, by).store(earlier.as_ref());
            match self.jobs.store.commit(Effects::one(pending)).await {
                Ok(_) => return Ok(()),
                Err(CommitError::RootMoved { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Contended)
    }

    async fn delete_each(
        &self,
        jobs: &[JobId],
        root: JobId,
        tombstone: &[Effect],
    ) -> Result<(), StoreError> {
        for job in jobs {
            let more = if *job == root { tombstone } else { &[] };
            self.delete_one(*job, more).await?;
        }
        Ok(())
    }

    async fn delete_one(&self, job: JobId, more: &[Effect]) -> Result<(), StoreError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let mut effects = vec![Effect::Delete { job }];
            if let Some(current) = self.jobs.current(job).await? {
                effects.extend(self.jobs.remove_signature(&current.job).await?);
            }
            effects.extend(more.iter().cloned());
            effects.extend(self.jobs.delete_remote_steps(job).await?);
            let committed = self.jobs.store.commit(Effects(effects)).await;
            match committed.map_err(CommitFailure::from) {
                Ok(_) | Err(CommitFailure::Gone) => return Ok(()),
                Err(CommitFailure::Conflict) => {}
                Err(CommitFailure::Busy(error) | CommitFailure::Fatal(error)) => return Err(error),
            }
        }
        Err(StoreError::Contended)
    }
}

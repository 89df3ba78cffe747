//! Forgets a job and its sub-jobs.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use catena_job::JobId;
use catena_store::{CommitError, Effect, Effects};

use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::{ControlError, StoreError};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::pause::may_control;

/// Jobs deleted in one commit.
const DELETE_BATCH: usize = 256;

impl Engine {
    /// Forgets a job and its sub-jobs, after cancelling it if need be. What it produced stays.
    pub async fn delete(&self, caller: &Caller, id: JobId) -> Result<(), ControlError> {
        let (engine, caller) = (self.clone(), caller.clone());
        self.surely(async move { engine.delete_now(&caller, id).await }).await
    }

    async fn delete_now(&self, caller: &Caller, id: JobId) -> Result<(), ControlError> {
        self.check_recorded(id, "be deleted")?;
        let current = self.current(id).await?.ok_or(ControlError::NotFound(id))?;
        may_control(caller, &current)?;
        if let Some(parent) = current.job.parent() {
            let root = self.root_of(parent.job).await?;
            return Err(ControlError::SubJob { job: id, root });
        }
        if !current.job.status().is_terminal() {
            self.cancel(caller, id, Some("it is being deleted".to_owned())).await?;
        }
        self.delete_tree(id).await?;
        Ok(())
    }

    /// The job that has no parent, above this one.
    async fn root_of(&self, job: JobId) -> Result<JobId, StoreError> {
        let mut job = job;
        while let Some(current) = self.current(job).await? {
            match current.job.parent() {
                Some(parent) => job = parent.job,
                None => break,
            }
        }
        Ok(job)
    }

    /// Deletes a job that has ended and everything below it, the leaves first, so that a crash
    /// leaves no job without its parent.
    pub(crate) async fn delete_tree(&self, root: JobId) -> Result<(), StoreError> {
        let mut tree = vec![root];
        let mut orchestrations = HashSet::new();
        let mut at = 0;
        while let Some(job) = tree.get(at).copied() {
            at += 1;
            let Some(current) = self.current(job).await? else { continue };
            if !self.0.catalogue.is_plain(current.text("operation")) {
                orchestrations.insert(job);
            }
            let steps = current.job.steps().values();
            tree.extend(steps.filter(|step| step.start.venue.is_none()).map(|step| step.start.job));
        }
        tree.reverse();
        for batch in tree.chunks(DELETE_BATCH) {
            let mut effects = Vec::with_capacity(batch.len());
            for job in batch {
                effects.push(Effect::Delete { job: *job });
                if orchestrations.contains(job) {
                    effects.extend(self.forget_elsewhere(*job).await?);
                }
            }
            match self.0.store.commit(Effects(effects)).await {
                Ok(_) => {}
                // Some are gone already, or something was learnt of a step: one by one, then.
                Err(CommitError::NoSuchJob { .. } | CommitError::RootMoved { .. }) => {
                    self.delete_each(batch).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        for job in &tree {
            self.0.hub.announce_gone(*job);
        }
        self.0.has_garbage.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn delete_each(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        for job in jobs {
            self.delete_one(*job).await?;
        }
        Ok(())
    }

    async fn delete_one(&self, job: JobId) -> Result<(), StoreError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let mut effects = vec![Effect::Delete { job }];
            effects.extend(self.forget_elsewhere(job).await?);
            match self.0.store.commit(Effects(effects)).await {
                Ok(_) | Err(CommitError::NoSuchJob { .. }) => return Ok(()),
                Err(CommitError::RootMoved { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Contended)
    }
}

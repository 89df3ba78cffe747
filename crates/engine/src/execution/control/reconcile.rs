//! The reconciler: carries out below a job the request that is pending there.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use catena_job::{JobId, Status};
use catena_store::{CommitError, Effects, HolderKey};

use super::{Attempt, ControlAction, Descend, Descent, PendingControl, open_sub_jobs};
use crate::error::{ControlError, StoreError};
use crate::execution::Execution;
use crate::jobs::Current;
use crate::limits::{CONTENTION_TRIES_MAX, RECONCILE_BATCH};

/// How long to wait before a request is carried out again that could not be.
const RECONCILE_DELAY: Duration = Duration::from_secs(1);

impl Execution {
    /// Carries out the request that is pending below a job. It is durable: what cannot be carried out
    /// now is carried out later.
    pub(crate) async fn carry_out(self: &Arc<Self>, id: JobId) {
        if let Err(error) = self.reconcile(id).await {
            tracing::warn!(job = %id, %error, "a control request is not carried out completely yet");
            let execution = Arc::clone(self);
            self.runtime.spawn(async move { execution.reconcile_later(id).await });
        }
    }

    /// Carries out a pending request, however often it takes.
    async fn reconcile_later(self: Arc<Self>, id: JobId) {
        loop {
            self.runtime.env.sleep(RECONCILE_DELAY).await;
            match self.reconcile(id).await {
                Ok(()) => return,
                Err(_) if self.runtime.is_stopping() => return,
                Err(error) => {
                    tracing::error!(job = %id, %error, "cannot carry out a control request");
                }
            }
        }
    }

    /// Carries out what was requested of the sub-jobs of a job and is not done yet. It is safe to
    /// repeat, and safe to interrupt.
    async fn reconcile(self: &Arc<Self>, id: JobId) -> Result<(), ControlError> {
        let pending = self.jobs.pending_control(id).await?;
        let Some(pending) = pending.filter(|pending| !pending.is_deletion()) else {
            return Ok(());
        };
        let Some(root) = self.jobs.current(id).await? else {
            return Ok(self.finish_pending(&pending).await?);
        };
        let action = pending.action(&root);
        let alive = self.alive_holders().await?;
        let descend = match root.job.status() {
            Status::Cancelled | Status::Timeout => Descend::Detached,
            _ => Descend::All,
        };
        let mut descent = Descent::new(&action, pending.control);
        let mut passes = 0;
        while !self.reconcile_tree(&root, descend, &mut descent, &pending, &alive).await? {
            passes += 1;
            if passes == CONTENTION_TRIES_MAX {
                return Err(StoreError::Contended.into());
            }
        }
        if matches!(action, ControlAction::Resume) {
            self.resume_self_paused(id, &alive).await?;
        }
        Ok(self.finish_pending(&pending).await?)
    }

    /// Changes the jobs below a job as they are now. Returns false if one of them changed meanwhile: it may have
    /// started sub-jobs that were not there when the tree was read.
    async fn reconcile_tree(
        self: &Arc<Self>,
        root: &Current,
        descend: Descend,
        descent: &mut Descent<'_>,
        pending: &PendingControl,
        alive: &HashSet<HolderKey>,
    ) -> Result<bool, ControlError> {
        let tree = self.read_tree(root, descend, usize::MAX).await?;
        let mut is_unchanged = true;
        for batch in tree.below.chunks(RECONCILE_BATCH) {
            if self.reconcile_batch(batch, descent, pending, alive).await? {
                continue;
            }
            is_unchanged = false;
            for current in batch {
                self.reconcile_job(current.job.id(), descent, pending, alive).await?;
            }
        }
        Ok(is_unchanged)
    }

    /// Resumes orchestrations that paused themselves because a step was still paused when they were
    /// resumed: no step of theirs is paused any more.
    async fn resume_self_paused(
        self: &Arc<Self>,
        id: JobId,
        alive: &HashSet<HolderKey>,
    ) -> Result<(), ControlError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let Some(root) = self.jobs.current(id).await? else { return Ok(()) };
            let tree = self.read_tree(&root, Descend::Open, usize::MAX).await?;
            let is_paused = |current: &&Current| current.job.status() == Status::Paused;
            let jobs = || std::iter::once(&root).chain(&tree.below);
            let mut paused: HashSet<JobId> =
                jobs().filter(is_paused).map(|current| current.job.id()).collect();
            let mut changes = Vec::new();
            // Sub-jobs before their parents, whose only paused step may be one of them.
            for current in tree.below.iter().rev().chain([&root]).filter(is_paused) {
                let open = open_sub_jobs(&current.job);
                let is_by_itself = current.job.field("by").is_none() && !open.is_empty();
                if !is_by_itself || open.iter().any(|step| paused.contains(step)) {
                    continue;
                }
                match self.resume_change(current, Some(&self.jobs.did), None, alive).await {
                    Ok(change) => changes.push(change),
                    // Its operation is not available: it stays paused.
                    Err(ControlError::Invalid(_)) => continue,
                    Err(error) => return Err(error),
                }
                paused.remove(&current.job.id());
            }
            if changes.is_empty() {
                return Ok(());
            }
            // Once more after a commit, too: a driver may have paused before it saw this one.
            self.commit_changes(changes).await?;
        }
        Err(StoreError::Contended.into())
    }

    /// Changes jobs in one commit. Returns false if one of them has changed meanwhile.
    async fn reconcile_batch(
        self: &Arc<Self>,
        batch: &[Current],
        descent: &mut Descent<'_>,
        pending: &PendingControl,
        alive: &HashSet<HolderKey>,
    ) -> Result<bool, ControlError> {
        let mut decided = descent.clone();
        let mut changes = Vec::new();
        for current in batch {
            if descent.is_overruled(current, pending) {
                continue;
            }
            let change = self.sub_job_change(current, &decided, alive).await?;
            change.iter().for_each(|change| decided.note(change));
            changes.extend(change);
        }
        if changes.is_empty() {
            return Ok(true);
        }
        let is_done = matches!(self.commit_changes(changes).await?, Attempt::Done(_));
        if is_done {
            *descent = decided;
        }
        Ok(is_done)
    }

    async fn reconcile_job(
        self: &Arc<Self>,
        id: JobId,
        descent: &mut Descent<'_>,
        pending: &PendingControl,
        alive: &HashSet<HolderKey>,
    ) -> Result<(), ControlError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let Some(current) = self.jobs.current(id).await? else { return Ok(()) };
            if self.reconcile_batch(&[current], descent, pending, alive).await? {
                return Ok(());
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Forgets a request that has been carried out.
    pub(crate) async fn finish_pending(&self, pending: &PendingControl) -> Result<(), StoreError> {
        match self.jobs.store.commit(Effects::one(pending.clear())).await {
            // A later request has replaced it.
            Ok(_) | Err(CommitError::RootMoved { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

//! The reconciler: carries out below a job the request that is pending there.
//!
//! Each of its commits is refused once another request has replaced the pending one, so it never
//! undoes what was requested later.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use catena_job::{JobId, Status};
use catena_store::{CommitError, Effects, HolderKey};
use futures_util::StreamExt as _;

use super::{
    Attempt, ControlAction, Descend, Descent, FollowUp, JobChange, PendingControl, open_sub_jobs,
};
use crate::error::{ControlError, StoreError};
use crate::execution::Execution;
use crate::jobs::Current;
use crate::limits::{
    CONTENTION_TRIES_MAX, RECONCILE_BATCH, RECONCILE_CONCURRENCY_MAX, RECONCILE_TRIES_MAX,
};
use crate::runtime::Task;

/// How long to wait before a request is carried out again that could not be.
const RECONCILE_DELAY: Duration = Duration::from_secs(1);

/// What became of an attempt to change jobs below a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reconciled {
    /// They are as the request says.
    Done,
    /// At least one of them has changed since it was read: it may have started sub-jobs.
    Conflict,
    /// Another request has replaced the one that was carried out.
    Replaced,
}

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

    fn carry_out_task(self: Arc<Self>, id: JobId) -> Task {
        Box::pin(async move { self.carry_out(id).await })
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
        for _ in 0..CONTENTION_TRIES_MAX {
            let pending = self.jobs.pending_control(id).await?;
            let Some(pending) = pending.filter(|pending| !pending.is_deletion()) else {
                return Ok(());
            };
            if self.reconcile_pending(&pending).await? != Reconciled::Replaced {
                return Ok(());
            }
        }
        Err(StoreError::Contended.into())
    }

    async fn reconcile_pending(
        self: &Arc<Self>,
        pending: &PendingControl,
    ) -> Result<Reconciled, ControlError> {
        let root = self.jobs.current(pending.job).await?;
        let Some(root) = root.filter(|root| !pending.is_over(root)) else {
            self.finish_pending(pending).await?;
            return Ok(Reconciled::Done);
        };
        let action = pending.action(&root);
        let alive = self.alive_holders().await?;
        let descend = match root.job.status() {
            Status::Cancelled | Status::Timeout => Descend::Detached,
            _ => Descend::All,
        };
        let mut descent = Descent::new(&action, pending.control);
        for _ in 0..CONTENTION_TRIES_MAX {
            match self.reconcile_tree(&root, descend, &mut descent, pending, &alive).await? {
                Reconciled::Done => {
                    if matches!(action, ControlAction::Resume) {
                        self.resume_self_paused(pending, &alive).await?;
                    }
                    self.finish_pending(pending).await?;
                    return Ok(Reconciled::Done);
                }
                Reconciled::Conflict => {}
                Reconciled::Replaced => return Ok(Reconciled::Replaced),
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Changes the jobs below a job as they are now.
    async fn reconcile_tree(
        self: &Arc<Self>,
        root: &Current,
        descend: Descend,
        descent: &mut Descent<'_>,
        pending: &PendingControl,
        alive: &HashSet<HolderKey>,
    ) -> Result<Reconciled, ControlError> {
        let tree = self.read_tree(root, descend, usize::MAX).await?;
        if matches!(descent.action, ControlAction::Resume) {
            // An earlier attempt at this request may have ended them.
            for ended in &tree.ended {
                if self.cancels_sub_jobs(&ended.job).await {
                    descent.note_end(&ended.job);
                }
            }
        }
        let mut reconciled = Reconciled::Done;
        for batch in tree.below.chunks(RECONCILE_BATCH) {
            match self.reconcile_batch(batch, descent, pending, alive).await? {
                Reconciled::Done => {}
                Reconciled::Conflict => reconciled = Reconciled::Conflict,
                Reconciled::Replaced => return Ok(Reconciled::Replaced),
            }
        }
        Ok(reconciled)
    }

    /// Changes jobs in one commit or, if they change too quickly for that, each in one of its own.
    async fn reconcile_batch(
        self: &Arc<Self>,
        batch: &[Current],
        descent: &mut Descent<'_>,
        pending: &PendingControl,
        alive: &HashSet<HolderKey>,
    ) -> Result<Reconciled, ControlError> {
        let mut reconciled = self.reconcile_jobs(batch, descent, pending, alive).await?;
        for _ in 1..RECONCILE_TRIES_MAX {
            if reconciled != Reconciled::Conflict {
                return Ok(reconciled);
            }
            let batch = self.read_again(batch).await?;
            reconciled = match self.reconcile_jobs(&batch, descent, pending, alive).await? {
                Reconciled::Done => return Ok(Reconciled::Conflict),
                other => other,
            };
        }
        if reconciled == Reconciled::Conflict {
            reconciled = self.reconcile_each(batch, descent, pending, alive).await?;
        }
        Ok(reconciled)
    }

    async fn read_again(&self, batch: &[Current]) -> Result<Vec<Current>, StoreError> {
        let mut read = Vec::with_capacity(batch.len());
        for current in batch {
            read.extend(self.jobs.current(current.job.id()).await?);
        }
        Ok(read)
    }

    /// Changes jobs each in one commit. Of those that end, none depends on another, so their commits
    /// share syncs.
    async fn reconcile_each(
        self: &Arc<Self>,
        batch: &[Current],
        descent: &mut Descent<'_>,
        pending: &PendingControl,
        alive: &HashSet<HolderKey>,
    ) -> Result<Reconciled, ControlError> {
        let ids = batch.iter().map(|current| current.job.id());
        if !matches!(descent.action, ControlAction::End(_)) {
            for id in ids {
                if self.reconcile_job(id, descent, pending, alive).await? == Reconciled::Replaced {
                    return Ok(Reconciled::Replaced);
                }
            }
            return Ok(Reconciled::Conflict);
        }
        let mut ending = Vec::with_capacity(batch.len());
        for id in ids {
            let mut descent = descent.clone();
            ending.push(async move { self.reconcile_job(id, &mut descent, pending, alive).await });
        }
        let ending = futures_util::stream::iter(ending);
        let mut ended = ending.buffer_unordered(RECONCILE_CONCURRENCY_MAX);
        while let Some(reconciled) = ended.next().await {
            if reconciled? == Reconciled::Replaced {
                return Ok(Reconciled::Replaced);
            }
        }
        Ok(Reconciled::Conflict)
    }

    async fn reconcile_job(
        self: &Arc<Self>,
        id: JobId,
        descent: &mut Descent<'_>,
        pending: &PendingControl,
        alive: &HashSet<HolderKey>,
    ) -> Result<Reconciled, ControlError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let Some(current) = self.jobs.current(id).await? else { return Ok(Reconciled::Done) };
            match self.reconcile_jobs(&[current], descent, pending, alive).await? {
                Reconciled::Conflict => {}
                reconciled => return Ok(reconciled),
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Changes jobs in one commit.
    async fn reconcile_jobs(
        self: &Arc<Self>,
        jobs: &[Current],
        descent: &mut Descent<'_>,
        pending: &PendingControl,
        alive: &HashSet<HolderKey>,
    ) -> Result<Reconciled, ControlError> {
        let mut decided = descent.clone();
        let mut changes = Vec::new();
        let mut ended = Vec::new();
        let mut replaces = false;
        for current in jobs {
            if descent.is_overruled(current, pending) {
                continue;
            }
            let Some(mut change) = self.sub_job_change(current, &decided, alive).await? else {
                continue;
            };
            decided.note(&change);
            if change.ends_sub_jobs {
                // Once the job above it has noted its end, nobody finds its sub-jobs from there.
                self.control_sub_jobs(&mut change.draft).await?;
                ended.push(current.job.id());
            } else {
                replaces |= self.replace_pending(&mut change).await?;
            }
            changes.push(change);
        }
        let Some(first) = changes.first_mut() else { return Ok(Reconciled::Done) };
        first.draft.add(pending.check());
        if matches!(descent.action, ControlAction::End(_)) {
            changes.iter().for_each(|change| self.stop_before_commit(change));
        }
        match self.commit_changes(changes).await? {
            Attempt::Done(_) => *descent = decided,
            Attempt::Conflict if self.check_replaced(pending).await? => {
                return Ok(Reconciled::Replaced);
            }
            Attempt::Conflict => return Ok(Reconciled::Conflict),
        }
        for id in ended {
            self.runtime.spawn_task(Arc::clone(self).carry_out_task(id));
        }
        // What was pending below them may have changed others since these were read.
        Ok(if replaces { Reconciled::Conflict } else { Reconciled::Done })
    }

    /// Stops work in this process before the record that ends its job is committed. Work that goes on
    /// may change its job meanwhile, and then nothing is committed.
    fn stop_before_commit(&self, change: &JobChange) {
        let id = change.draft.job().id();
        // The tasks of a driver cancel the remote steps that they follow once its job has ended.
        if !matches!(change.follow_up, FollowUp::Stop) || self.jobs.is_driven(id) {
            return;
        }
        for handle in self.registry.runs_of(id).iter().filter(|handle| !handle.is_remote()) {
            handle.stop();
        }
    }

    /// Returns true if another request has replaced a pending one.
    async fn check_replaced(&self, pending: &PendingControl) -> Result<bool, StoreError> {
        let found = self.jobs.pending_control(pending.job).await?;
        Ok(found.is_none_or(|found| !found.is_same(pending)))
    }

    /// Resumes orchestrations that paused themselves because a step was still paused when they were
    /// resumed: no step of theirs is paused any more.
    async fn resume_self_paused(
        self: &Arc<Self>,
        pending: &PendingControl,
        alive: &HashSet<HolderKey>,
    ) -> Result<(), ControlError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            let Some(root) = self.jobs.current(pending.job).await? else { return Ok(()) };
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
                    Ok(mut change) => {
                        if current.job.id() != pending.job {
                            self.replace_pending(&mut change).await?;
                        }
                        changes.push(change);
                    }
                    // Its operation is not available: it stays paused.
                    Err(ControlError::Invalid(_)) => continue,
                    Err(error) => return Err(error),
                }
                paused.remove(&current.job.id());
            }
            let Some(first) = changes.first_mut() else { return Ok(()) };
            first.draft.add(pending.check());
            // Once more after a commit, too: a driver may have paused before it saw this one.
            let attempted = self.commit_changes(changes).await?;
            if matches!(attempted, Attempt::Conflict) && self.check_replaced(pending).await? {
                return Ok(());
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Forgets a request that has been carried out.
    pub(crate) async fn finish_pending(&self, pending: &PendingControl) -> Result<(), StoreError> {
        match self.jobs.store.commit(Effects::one(pending.clear())).await {
            // A later request has replaced it, and whoever made that carries it out.
            Ok(_) | Err(CommitError::RootMoved { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

//! Control requests: pause, resume and end a job together with everything below it.
//!
//! A request is decided on the job that it names and, in the same commit, on its open local
//! sub-jobs. If the tree is too large for one commit, or changes too quickly, the job's own record
//! is committed first, with a [`PendingControl`] that the reconciler carries out afterwards.
//!
//! The process that receives a request commits it, whichever process runs the job. Work in this
//! process is signalled before the commit; other processes learn of it from a hint or their next
//! check.

mod draft;
mod freeze;
mod lost;
mod pending;
mod reconcile;
mod resume;
mod tree;
mod with_roots;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use catena_job::state::Event;
use catena_job::{Job, JobId, RecordId, Status};
use catena_store::{Effect, HolderKey};

use crate::error::{ControlError, StoreError};
use crate::execution::{Execution, PausedTurn};
use crate::jobs::{Changed, CommitFailure, Current, Draft, is_live};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::requests::JobView;

/// Why a job ends that waited for an executor for too long.
const QUEUE_EXPIRED: &str = "queue_expired";

pub(crate) use draft::{is_resumed_by_notice, overdue_error};
pub(crate) use pending::PendingControl;
pub(crate) use resume::{Continuation, is_unclaimed};
use tree::attached_sub_jobs;
pub(crate) use tree::{Descend, TreePosition, open_sub_jobs};

/// Attempts to change a tree in one commit. A tree whose jobs change faster than it can be read is
/// changed root first.
const TREE_TRIES: usize = 4;

/// What is requested of a job and everything below it.
#[derive(Debug, Clone)]
pub(crate) enum ControlAction {
    /// Nothing new starts, and running work is suspended.
    Pause,
    /// Everything continues where it stopped.
    Resume,
    /// The job ends with this event, and its sub-jobs are cancelled.
    End(Event),
}

/// A request, and who made it.
#[derive(Debug, Clone)]
pub(crate) struct ControlRequest {
    pub(crate) action: ControlAction,
    /// The DID of the caller. `None` if the venue itself acts.
    pub(crate) by: Option<String>,
}

/// A change of one job of a tree, and what follows from it.
pub(super) struct JobChange {
    pub(super) draft: Draft,
    pub(super) follow_up: FollowUp,
    /// True if a resume ends the job, and its sub-jobs are cancelled instead of resumed.
    pub(super) ends_sub_jobs: bool,
}

/// What this process does once a change is durable.
#[derive(Debug, Clone)]
pub(super) enum FollowUp {
    /// Suspends the work.
    Suspend,
    /// Stops the work for good.
    Stop,
    /// Continues as a resume does.
    Continue(Continuation),
}

/// A request on its way down a tree, parents before their sub-jobs.
#[derive(Debug, Clone)]
pub(super) struct Descent<'a> {
    action: &'a ControlAction,
    /// The record of the job that the request names.
    control: RecordId,
    /// The sub-jobs of jobs that a resume has ended, with the status and the record of that end.
    ended: HashMap<JobId, (Status, RecordId)>,
}

impl<'a> Descent<'a> {
    fn new(action: &'a ControlAction, control: RecordId) -> Descent<'a> {
        Descent { action, control, ended: HashMap::new() }
    }

    /// Takes note of a change, for the sub-jobs of the job.
    fn note(&mut self, change: &JobChange) {
        let job = change.draft.job();
        let above = self.ended_above(job);
        if change.ends_sub_jobs || above.is_some() {
            let (status, record) = above.unwrap_or((job.status(), job.head()));
            let below = attached_sub_jobs(job);
            self.ended.extend(below.into_iter().map(|id| (id, (status, record))));
        }
    }

    /// Takes note of a job that ended before, for its sub-jobs.
    fn note_end(&mut self, job: &Job) {
        let end = (job.status(), job.head());
        self.ended.extend(attached_sub_jobs(job).into_iter().map(|id| (id, end)));
    }

    /// Returns the end of the job above, if this request was a resume and ended it.
    fn ended_above(&self, job: &Job) -> Option<(Status, RecordId)> {
        self.ended.get(&job.id()).copied()
    }

    /// Returns true if a job was paused after the resume that is being carried out: that pause is
    /// not undone.
    fn is_overruled(&self, current: &Current, pending: &PendingControl) -> bool {
        let since = PausedTurn::from_job(current).and_then(|paused| paused.since);
        let is_later = since.is_some_and(|since| since > pending.at);
        is_later
            && matches!(self.action, ControlAction::Resume)
            && self.ended_above(&current.job).is_none()
    }
}

/// The result of one attempt to commit a request.
enum Attempt {
    Done(Changed),
    Conflict,
}

impl Execution {
    /// Carries out a request on a job and everything below it. `may` decides on the current job
    /// whether the request applies.
    pub(crate) async fn control(
        self: &Arc<Self>,
        id: JobId,
        request: &ControlRequest,
        may: impl Fn(&Current) -> Result<bool, ControlError>,
    ) -> Result<Changed, ControlError> {
        let mut signalled = HashSet::new();
        let changed = self.try_control(id, request, &may, &mut signalled).await;
        if !matches!(&changed, Ok(Changed::Done(_))) {
            self.undo_signals(signalled).await;
        }
        changed
    }

    async fn try_control(
        self: &Arc<Self>,
        id: JobId,
        request: &ControlRequest,
        may: &impl Fn(&Current) -> Result<bool, ControlError>,
        signalled: &mut HashSet<JobId>,
    ) -> Result<Changed, ControlError> {
        for attempt in 0..CONTENTION_TRIES_MAX {
            let Some(mut root) = self.jobs.current(id).await? else { return Ok(Changed::Gone) };
            if !may(&root)? {
                return Ok(Changed::Unchanged(Box::new(root)));
            }
            self.suspend_before_commit(&mut root, request, signalled);
            let descend = match request.action {
                ControlAction::End(_) => Descend::Detached,
                ControlAction::Pause | ControlAction::Resume => Descend::Open,
            };
            let tree = self.read_tree(&root, descend, self.runtime.limits.tree_commit_max).await?;
            let is_whole = tree.is_complete && attempt < TREE_TRIES;
            let attempted = if is_whole {
                self.control_whole(&root, tree.below, request, signalled).await?
            } else {
                self.control_root_first(&root, request).await?
            };
            if let Attempt::Done(changed) = attempted {
                return Ok(changed);
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Commits the change of a job and of everything below it.
    async fn control_whole(
        self: &Arc<Self>,
        root: &Current,
        below: Vec<Current>,
        request: &ControlRequest,
        signalled: &mut HashSet<JobId>,
    ) -> Result<Attempt, ControlError> {
        let alive = self.alive_holders().await?;
        let (mut change, above) = self.root_change(root, request, &alive).await?;
        let mut replaces = self.replace_pending(&mut change).await?;
        let mut unchanged = Vec::new();
        let mut descent = Descent::new(&request.action, change.draft.job().head());
        descent.note(&change);
        let mut changes = vec![change];
        changes.extend(above);
        for mut current in below {
            self.suspend_before_commit(&mut current, request, signalled);
            let Some(mut change) = self.sub_job_change(&current, &descent, &alive).await? else {
                let (job, head) = (current.job.id(), current.job.head());
                unchanged.push(Effect::CheckHead { job, head });
                continue;
            };
            descent.note(&change);
            replaces |= self.replace_pending(&mut change).await?;
            changes.push(change);
        }
        if let Some(root) = changes.first_mut().filter(|_| replaces) {
            // Until this is committed, what was pending may change them.
            unchanged.into_iter().for_each(|check| root.draft.add(check));
        }
        self.commit_changes(changes).await
    }

    /// Commits the change of a job alone, with the request that is carried out on everything below
    /// it afterwards.
    async fn control_root_first(
        self: &Arc<Self>,
        root: &Current,
        request: &ControlRequest,
    ) -> Result<Attempt, ControlError> {
        let alive = self.alive_holders().await?;
        let id = root.job.id();
        let (mut change, above) = self.root_change(root, request, &alive).await?;
        let earlier = self.jobs.pending_control(id).await?;
        let pending = if change.ends_sub_jobs {
            PendingControl::cancel(change.draft.job())
        } else {
            PendingControl::new(change.draft.job(), &request.action)
        };
        change.draft.add(pending.store(earlier.as_ref()));
        let changes = std::iter::once(change).chain(above).collect();
        let attempted = self.commit_changes(changes).await?;
        if matches!(attempted, Attempt::Done(_)) {
            self.carry_out(id).await;
        }
        Ok(attempted)
    }

    /// Adds to the change of a job that what is pending below it is not carried out any more: this
    /// request comes later. Returns false if nothing is pending.
    async fn replace_pending(&self, change: &mut JobChange) -> Result<bool, StoreError> {
        if open_sub_jobs(change.draft.job()).is_empty() {
            return Ok(false);
        }
        let pending = self.jobs.pending_control(change.draft.job().id()).await?;
        pending.iter().for_each(|pending| change.draft.add(pending.clear()));
        Ok(pending.is_some())
    }

    /// Returns the change of the job that a request names, and the changes of jobs above it that
    /// follow from it.
    async fn root_change(
        &self,
        root: &Current,
        request: &ControlRequest,
        alive: &HashSet<HolderKey>,
    ) -> Result<(JobChange, Vec<JobChange>), ControlError> {
        let by = request.by.as_deref();
        match &request.action {
            ControlAction::Pause => Ok((self.pause_change(root, by, None)?, Vec::new())),
            ControlAction::End(event) => Ok((self.end_change(root, event, by, None)?, Vec::new())),
            ControlAction::Resume => {
                let mut change = self.resume_change(root, by, None, alive).await?;
                let control = change.draft.job().head();
                let mut above = Vec::new();
                for ancestor in self.ancestors_of(&root.job).await? {
                    let (job, head) = (ancestor.job.id(), ancestor.job.head());
                    if ancestor.job.status() != Status::Paused {
                        change.draft.add(Effect::CheckHead { job, head });
                        continue;
                    }
                    // Without a name, it was paused only because nothing below it could run. If its
                    // resume ends it, what is below it cannot continue.
                    let refused = ControlError::ParentPaused { job: root.job.id(), parent: job };
                    if ancestor.job.field("by").is_some() {
                        return Err(refused);
                    }
                    let mut resumed =
                        self.resume_change(&ancestor, by, Some(control), alive).await?;
                    if resumed.ends_sub_jobs {
                        return Err(refused);
                    }
                    self.replace_pending(&mut resumed).await?;
                    above.push(resumed);
                }
                Ok((change, above))
            }
        }
    }

    /// Returns the change of a job below the one that a request names. `None` if there is nothing
    /// to change.
    pub(super) async fn sub_job_change(
        &self,
        current: &Current,
        descent: &Descent<'_>,
        alive: &HashSet<HolderKey>,
    ) -> Result<Option<JobChange>, ControlError> {
        let by = self.jobs.did.to_string();
        let by = Some(by.as_str());
        let status = current.job.status();
        if !is_live(&current.job) {
            return Ok(None);
        }
        let (ended, control) = match (descent.ended_above(&current.job), descent.action) {
            (Some((status, control)), _) => (Some(status), control),
            (None, ControlAction::End(event)) => {
                (Some(draft::ended_status(event)), descent.control)
            }
            (None, _) => (None, descent.control),
        };
        if let Some(ended) = ended {
            let error = format!("Job cancelled: the parent job is {ended}");
            let event = Event::Cancelled { error };
            return self.end_change(current, &event, by, Some(control)).map(Some);
        }
        match descent.action {
            ControlAction::Pause if status != Status::Paused => {
                self.pause_change(current, by, Some(control)).map(Some)
            }
            ControlAction::Resume if status == Status::Paused => {
                match self.resume_change(current, by, Some(control), alive).await {
                    Ok(change) => Ok(Some(change)),
                    // Its operation is not available: it stays paused.
                    Err(ControlError::Invalid(_)) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            _ => Ok(None),
        }
    }

    /// Commits changes together and does what follows from them.
    async fn commit_changes(
        self: &Arc<Self>,
        changes: Vec<JobChange>,
    ) -> Result<Attempt, ControlError> {
        let (drafts, follow_ups): (Vec<_>, Vec<_>) =
            changes.into_iter().map(|change| (change.draft, change.follow_up)).unzip();
        match self.jobs.commit_all(drafts).await.map_err(CommitFailure::from) {
            Ok(views) => {
                let mut changed = views.into_iter().zip(follow_ups);
                let Some((root, follow_up)) = changed.next() else { return Ok(Attempt::Conflict) };
                self.follow_up(&root, follow_up);
                for (view, follow_up) in changed {
                    self.follow_up(&view, follow_up);
                }
                Ok(Attempt::Done(Changed::Done(root)))
            }
            // One of them is gone or changed hands: read them again.
            Err(CommitFailure::Conflict | CommitFailure::Gone) => Ok(Attempt::Conflict),
            Err(CommitFailure::Busy(error) | CommitFailure::Fatal(error)) => Err(error.into()),
        }
    }

    /// Does what follows from a durable change of one job.
    pub(super) fn follow_up(self: &Arc<Self>, view: &JobView, follow_up: FollowUp) {
        let id = view.job.id();
        match follow_up {
            FollowUp::Suspend => {
                for handle in self.registry.runs_of(id) {
                    handle.pause(&*self.runtime.env);
                }
                if let Some(handle) = self.registry.get(id) {
                    let owner = view.job.field("caller").and_then(|owner| owner.as_str());
                    self.freeze(id, owner.unwrap_or_default(), handle);
                }
            }
            FollowUp::Stop => {
                // The tasks of a driver cancel the remote steps that they follow.
                let is_driven = self.jobs.is_driven(id);
                if let Some(plans) = self.plan_runner().filter(|_| !is_driven) {
                    self.runtime.spawn(plans.cancel_unfollowed(Arc::clone(&view.job)));
                }
                for handle in self.registry.runs_of(id) {
                    handle.stop();
                }
            }
            FollowUp::Continue(continuation) => self.continue_job(view, continuation),
        }
    }

    /// Suspends running work before the record says so: it must have no effect once it does. What it
    /// reported last becomes part of the record.
    fn suspend_before_commit(
        &self,
        current: &mut Current,
        request: &ControlRequest,
        signalled: &mut HashSet<JobId>,
    ) {
        let suspends = !matches!(request.action, ControlAction::Resume);
        let id = current.job.id();
        let Some(handle) = self.registry.get(id).filter(|_| suspends) else { return };
        // Of work in another process, only a pause is announced: that it ends is said when it has.
        let is_announced = !handle.is_remote() || matches!(request.action, ControlAction::Pause);
        if current.job.status() == Status::Started && is_announced {
            handle.pause(&*self.runtime.env);
            signalled.insert(id);
        }
        let newest = handle.progress.newest(&*self.runtime.env);
        current.progress = newest.or(current.progress.take());
    }

    /// Resumes work that was suspended for a request that was not carried out.
    async fn undo_signals(self: &Arc<Self>, signalled: HashSet<JobId>) {
        for id in signalled {
            let current = self.jobs.current(id).await.ok().flatten();
            let is_paused = current.is_some_and(|current| current.job.status() == Status::Paused);
            if let (Some(handle), false) = (self.registry.get(id), is_paused) {
                handle.resume(&self.runtime, &self.slots.permits);
            }
        }
    }

    /// Returns the keys of the processes that are alive.
    pub(crate) async fn alive_holders(&self) -> Result<HashSet<HolderKey>, StoreError> {
        let leases = self.jobs.store.processes(self.runtime.now()).await?;
        let mut alive: HashSet<HolderKey> = leases.iter().map(|lease| lease.holder.key()).collect();
        alive.insert(self.jobs.process.key());
        Ok(alive)
    }

    /// Ends a job from outside, with its sub-jobs, if `may` allows it.
    pub(crate) async fn end(
        self: &Arc<Self>,
        id: JobId,
        event: &Event,
        by: Option<String>,
        may: impl Fn(&Current) -> Result<bool, ControlError>,
    ) -> Result<Changed, ControlError> {
        let request = ControlRequest { action: ControlAction::End(event.clone()), by };
        self.control(id, &request, may).await
    }

    /// Ends a job whose deadline has passed. Returns false if it has ended or its deadline is later
    /// by now.
    pub(crate) async fn expire(self: &Arc<Self>, id: JobId) -> Result<bool, ControlError> {
        let now = self.runtime.now();
        let Some(current) = self.jobs.current(id).await? else { return Ok(false) };
        let event = if is_unclaimed(&current) {
            // Its time limit counts execution only.
            Event::Cancelled { error: QUEUE_EXPIRED.to_owned() }
        } else {
            Event::Expired { error: overdue_error(&current.job) }
        };
        let is_due = |current: &Current| {
            let deadline = current.number("deadline");
            Ok(is_live(&current.job) && deadline.is_some_and(|deadline| deadline <= now))
        };
        let changed = self.end(id, &event, None, is_due).await?;
        Ok(matches!(changed, Changed::Done(_)))
    }
}

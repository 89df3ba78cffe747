//! The one way to change a job.
//!
//! A change is decided on the current job and committed on the condition that the job has not
//! changed. If it has, the job is read and the decision is made again: no decision rests on
//! something that is no longer true, and no lock is held.

use catena_job::JobId;
use catena_store::{CommitError, Effect, Effects};
use futures_util::future::Either;

use crate::error::StoreError;
use crate::jobs::{CommitFailure, Current, Draft, Jobs};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::requests::JobView;

/// What a commit changed.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The job after the change.
    pub(crate) view: JobView,
    /// The sub-jobs that were created with it.
    pub(crate) children: Vec<JobView>,
    /// True if the job was created.
    pub(crate) is_new: bool,
    /// True if no record was appended to the job itself.
    pub(crate) is_off_chain: bool,
}

/// The result of [`Jobs::change`].
#[derive(Debug)]
pub(crate) enum Changed {
    /// The change is durable.
    Done(JobView),
    /// The decision was to leave the job as it is.
    Unchanged(Box<Current>),
    /// There is no such job, or it belongs to another holder by now.
    Gone,
}

impl Jobs {
    /// Reads a job.
    pub(crate) async fn current(&self, id: JobId) -> Result<Option<Current>, StoreError> {
        Ok(self.store.job(id).await?.map(Current::from))
    }

    /// Changes a job. `decide` receives the current job and is called again after a conflict.
    /// `known` is the job as the caller believes it to be, which saves a read.
    pub(crate) async fn change<E: From<StoreError>>(
        &self,
        id: JobId,
        known: Option<Current>,
        mut decide: impl FnMut(&Current) -> Result<Option<Draft>, E>,
    ) -> Result<Changed, E> {
        let mut known = known;
        for _ in 0..CONTENTION_TRIES_MAX {
            let current = match known.take() {
                Some(current) => current,
                None => match self.current(id).await? {
                    Some(current) => current,
                    None => return Ok(Changed::Gone),
                },
            };
            let Some(draft) = decide(&current)? else {
                return Ok(Changed::Unchanged(Box::new(current)));
            };
            match self.commit(draft).await.map_err(CommitFailure::from) {
                Ok(committed) => return Ok(Changed::Done(committed.view)),
                Err(CommitFailure::Gone) => return Ok(Changed::Gone),
                Err(CommitFailure::Conflict) => {}
                Err(CommitFailure::Busy(error) | CommitFailure::Fatal(error)) => {
                    return Err(error.into());
                }
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Commits a draft and announces the change.
    pub(crate) fn commit(
        &self,
        draft: Draft,
    ) -> impl Future<Output = Result<Committed, CommitError>> + use<'_> {
        self.commit_tree(draft, Vec::new())
    }

    /// Commits a draft together with new sub-jobs and announces the change. The commit is submitted
    /// before the returned future is polled, so that the wait holds only what it returns.
    pub(crate) fn commit_tree(
        &self,
        mut draft: Draft,
        children: Vec<Draft>,
    ) -> impl Future<Output = Result<Committed, CommitError>> + use<'_> {
        if draft.needs_cleanup() || draft.needs_release() {
            return Either::Left(Box::pin(async move {
                if draft.needs_cleanup() {
                    self.clean_up(&mut draft).await;
                }
                let committed = if draft.needs_release() {
                    self.append_released(draft, children).await?
                } else {
                    self.append(draft, children).await?
                };
                self.announce(&committed);
                Ok(committed)
            }));
        }
        let appending = self.append(draft, children);
        Either::Right(async move {
            let committed = appending.await?;
            self.announce(&committed);
            Ok(committed)
        })
    }

    /// Commits changes of several jobs together and announces them. Returns the jobs in the same
    /// order.
    pub(crate) async fn commit_all(&self, drafts: Vec<Draft>) -> Result<Vec<JobView>, CommitError> {
        let committed = self.commit_with(drafts, Vec::new()).await?;
        Ok(committed.into_iter().map(|committed| committed.view).collect())
    }

    /// The same, together with other effects. Returns what became of each job.
    pub(crate) async fn commit_with(
        &self,
        mut drafts: Vec<Draft>,
        effects: Vec<Effect>,
    ) -> Result<Vec<Committed>, CommitError> {
        for draft in &mut drafts {
            if draft.needs_cleanup() {
                self.clean_up(draft).await;
            }
        }
        let changed = if drafts.iter().any(Draft::needs_release) {
            self.append_all_released(drafts, effects).await?
        } else {
            self.append_all(drafts, effects).await?
        };
        changed.iter().for_each(|committed| self.announce(committed));
        Ok(changed)
    }

    /// Appends the records of several jobs in one commit.
    pub(super) async fn append_all(
        &self,
        drafts: Vec<Draft>,
        mut effects: Vec<Effect>,
    ) -> Result<Vec<Committed>, CommitError> {
        effects.reserve(2 * drafts.len());
        let mut changed = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let is_new = draft.is_new();
            let is_off_chain = draft.is_off_chain();
            let (more, view) = draft.into_parts();
            effects.extend(more);
            changed.push(Committed { view, children: Vec::new(), is_new, is_off_chain });
        }
        self.store.commit(Effects(effects)).await?;
        Ok(changed)
    }

    /// Appends the records of a job and of its new sub-jobs in one commit.
    pub(super) fn append(
        &self,
        draft: Draft,
        children: Vec<Draft>,
    ) -> impl Future<Output = Result<Committed, CommitError>> + use<> {
        let is_new = draft.is_new();
        let is_off_chain = draft.is_off_chain();
        let (mut effects, view) = draft.into_parts();
        let mut child_views = Vec::with_capacity(children.len());
        for child in children {
            let (more, child) = child.into_parts();
            effects.extend(more);
            child_views.push(child);
        }
        let committing = self.store.commit(Effects(effects));
        async move {
            committing.await?;
            Ok(Committed { view, children: child_views, is_new, is_off_chain })
        }
    }

    /// Adds to the change that ends a job: its secrets are erased, and its open remote steps are
    /// marked for cancellation.
    async fn clean_up(&self, draft: &mut Draft) {
        self.erase_secrets(draft).await;
        if draft.may_await_calls() {
            match self.awaited(draft.job().id()).await {
                Ok(awaited) => awaited.iter().for_each(|awaited| draft.add(awaited.clear())),
                Err(error) => tracing::warn!(%error, "cannot read what a job waits for"),
            }
        }
        if draft.cancels_remote_steps() {
            let cancels = self.pending_cancels(draft.job()).await;
            cancels.into_iter().for_each(|effect| draft.add(effect));
        }
    }
}

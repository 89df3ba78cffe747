//! Changes of users' roots: one commit for a job and what it changes.
//!
//! A change is computed from the current roots of one user and committed on the condition that none
//! of them has changed. Changes that arrive while a commit of the same user is in flight wait in a
//! queue and become the next commit together, each computed from the result of the one before, so
//! writers in one process never compete with each other. The next commit is computed while the one
//! before it is in flight, from the roots as that one will leave them, and nobody hears of it before
//! that one has succeeded. Another process may still come first; then the whole batch is computed
//! again from what is stored.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use catena_job::JobId;
use catena_job::chain::AppendError;
use catena_store::{CommitError, Effect, Message};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::jobs::binding::read_failure;
use crate::jobs::{Committed, Draft, Jobs, Secrecy};
use crate::limits::{CONTENTION_TRIES_MAX, ROOT_BATCH_MAX, ROOT_QUEUE_MAX};
use crate::operations::{
    Cells, FutureRoots, InlineCells, RootId, Roots, SentMessage, definition_effects,
};
use crate::requests::{Caller, JobView};

/// A change of a user's roots, with the job that makes it, if any.
pub(crate) trait RootWork: Send {
    /// Returns the roots that the change uses.
    fn roots(&self) -> &[RootId];

    /// Returns true if the change must be computed on a compute thread.
    fn needs_compute_thread(&self) -> bool;

    /// Computes the change from the current roots. Returns the change of the job, if there is any. It
    /// is called again after a conflict. If it fails, nothing is changed.
    fn apply(&mut self, roots: &mut Roots) -> Result<Option<Draft>, RootFailure>;
}

/// Why roots were not changed.
#[derive(Debug)]
pub(crate) enum RootFailure {
    /// The commit was refused.
    Commit(Box<CommitError>),
    /// The job cannot be recorded.
    Append(AppendError),
    /// The store or the venue failed.
    Store(StoreError),
}

impl From<StoreError> for RootFailure {
    fn from(error: StoreError) -> Self {
        RootFailure::Store(error)
    }
}

impl From<AppendError> for RootFailure {
    fn from(error: AppendError) -> Self {
        RootFailure::Append(error)
    }
}

/// Cancels jobs, and sends messages to them, together with a change of roots. The execution, which ranks above this folder,
/// implements it.
pub(crate) trait CancelJobs: Send + Sync {
    /// Returns the changes that cancel jobs and everything below them, except the jobs in `except`, which
    /// the same commit changes already.
    fn cancel_drafts<'a>(
        &'a self,
        cancels: Vec<(JobId, String)>,
        except: &'a [JobId],
    ) -> BoxFuture<'a, Result<Vec<Draft>, StoreError>>;

    /// Stops the work of jobs whose cancellation is durable.
    fn stop(self: Arc<Self>, jobs: &[JobView]);

    /// Lets jobs consume messages that are durable.
    fn wake_jobs(self: Arc<Self>, jobs: Vec<JobId>);
}

/// The changes of roots.
pub(crate) struct RootChanges {
    jobs: Arc<Jobs>,
    /// The changes that wait for a commit, by owner. An owner has an entry while a task commits for it.
    queues: Mutex<HashMap<Arc<str>, Vec<Waiting>>>,
}

/// A change that waits, and where its result goes.
struct Waiting {
    work: Box<dyn RootWork>,
    reply: oneshot::Sender<Result<Option<JobView>, RootFailure>>,
}

impl Waiting {
    fn answer(self, result: Result<Option<JobView>, RootFailure>) {
        // Whoever asked may have stopped waiting; the change is committed all the same.
        drop(self.reply.send(result));
    }
}

/// Removes the queue of an owner when its task ends, however it ends.
struct QueueGuard {
    changes: Arc<RootChanges>,
    owner: Arc<str>,
    is_empty: bool,
}

impl QueueGuard {
    /// Returns the changes of the next commit. `None` if none wait; then the queue is removed.
    fn next_batch(&mut self) -> Option<Vec<Waiting>> {
        let mut queues = self.changes.queues.lock();
        let next = first_batch(&mut queues, &self.owner);
        if next.is_none() {
            queues.remove(&self.owner);
            self.is_empty = true;
        }
        next
    }

    /// Returns the changes of the next commit. `None` if none wait.
    fn take_batch(&self) -> Option<Vec<Waiting>> {
        first_batch(&mut self.changes.queues.lock(), &self.owner)
    }
}

fn first_batch(
    queues: &mut HashMap<Arc<str>, Vec<Waiting>>,
    owner: &Arc<str>,
) -> Option<Vec<Waiting>> {
    let waiting = queues.get_mut(owner).filter(|waiting| !waiting.is_empty())?;
    let count = waiting.len().min(ROOT_BATCH_MAX);
    Some(waiting.drain(..count).collect())
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        if !self.is_empty {
            self.changes.queues.lock().remove(&self.owner);
        }
    }
}

/// A batch after its changes were computed.
struct Computed {
    batch: Vec<Waiting>,
    roots: Roots,
    /// What became of each change, in the order of the batch.
    results: Vec<Result<Option<Draft>, RootFailure>>,
}

impl Computed {
    /// Answers changes that failed. Returns the others, with the changes of their jobs.
    fn answer_failed(self) -> (Vec<Waiting>, Roots, Vec<Option<Draft>>) {
        let mut rest = Vec::with_capacity(self.batch.len());
        let mut drafts = Vec::with_capacity(self.batch.len());
        for (waiting, result) in self.batch.into_iter().zip(self.results) {
            match result {
                Ok(draft) => {
                    drafts.push(draft);
                    rest.push(waiting);
                }
                Err(failure) => waiting.answer(Err(failure)),
            }
        }
        (rest, self.roots, drafts)
    }
}

impl RootChanges {
    pub(crate) fn new(jobs: Arc<Jobs>) -> Arc<Self> {
        Arc::new(RootChanges { jobs, queues: Mutex::default() })
    }

    /// Sets what cancels jobs.
    pub(crate) fn set_canceller(&self, canceller: Weak<dyn CancelJobs>) {
        let _ = self.jobs.canceller.set(canceller);
    }

    /// Changes roots of a user. Returns the job that changed with them, if there is one.
    pub(crate) async fn change(
        self: &Arc<Self>,
        owner: &Arc<str>,
        work: Box<dyn RootWork>,
    ) -> Result<Option<JobView>, RootFailure> {
        let (reply, answer) = oneshot::channel();
        if let Some(first) = self.enqueue_root_work(owner, Waiting { work, reply })? {
            let guard =
                QueueGuard { changes: Arc::clone(self), owner: Arc::clone(owner), is_empty: false };
            self.jobs.runtime.spawn(drain(guard, first));
        }
        let stopped = || RootFailure::Store(StoreError::Stopped("the venue is stopping".into()));
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Queues a change. Returns it if no task commits for its owner yet.
    fn enqueue_root_work(
        &self,
        owner: &Arc<str>,
        waiting: Waiting,
    ) -> Result<Option<Waiting>, StoreError> {
        let mut queues = self.queues.lock();
        match queues.get_mut(owner) {
            Some(queue) if queue.len() >= ROOT_QUEUE_MAX => Err(StoreError::Busy),
            Some(queue) => {
                queue.push(waiting);
                Ok(None)
            }
            None => {
                queues.insert(Arc::clone(owner), Vec::new());
                Ok(Some(waiting))
            }
        }
    }

    /// Commits changes together and answers them. If the commit is refused for a reason that only
    /// one of them may have caused, each half is committed on its own. Returns true if the first
    /// commit succeeded, so that what was computed from its result holds.
    async fn commit_root_changes(&self, owner: &str, computed: Computed) -> bool {
        let mut notifies = true;
        let mut computed = Some(computed);
        let mut batch = Vec::new();
        for tries in 0..CONTENTION_TRIES_MAX {
            let again = match computed.take() {
                Some(first) => first,
                None => match self.compute_root_changes(owner, &mut batch, None).await {
                    Ok(again) => again,
                    Err(error) => {
                        answer_all(batch, &RootFailure::Store(error));
                        return false;
                    }
                },
            };
            let (rest, mut roots, drafts) = again.answer_failed();
            if !notifies {
                roots.drop_notices();
            }
            batch = rest;
            if batch.is_empty() {
                return tries == 0;
            }
            let own: Vec<JobId> = drafts.iter().flatten().map(|draft| draft.job().id()).collect();
            match self.commit_roots(owner, roots, drafts, &own).await {
                Ok(views) => {
                    for (waiting, view) in batch.into_iter().zip(views) {
                        waiting.answer(Ok(view));
                    }
                    return tries == 0;
                }
                Err(CommitError::RootMoved { .. }) => {}
                Err(CommitError::MessagesFull { .. }) if notifies => notifies = false,
                // A job that is cancelled with the change has changed meanwhile.
                Err(error) if changed_job(&error).is_some_and(|job| !own.contains(&job)) => {}
                Err(error) if batch.len() > 1 && !is_about_store(&error) => {
                    let second = batch.split_off(batch.len() / 2);
                    Box::pin(self.compute_and_commit(owner, batch)).await;
                    Box::pin(self.compute_and_commit(owner, second)).await;
                    return false;
                }
                Err(error) => {
                    answer_all(batch, &RootFailure::Commit(Box::new(error)));
                    return false;
                }
            }
        }
        answer_all(batch, &RootFailure::Store(StoreError::Contended));
        false
    }

    /// Computes changes from what is stored, commits them and answers them.
    async fn compute_and_commit(&self, owner: &str, mut batch: Vec<Waiting>) {
        match self.compute_root_changes(owner, &mut batch, None).await {
            Ok(computed) => drop(self.commit_root_changes(owner, computed).await),
            Err(error) => answer_all(batch, &RootFailure::Store(error)),
        }
    }

    /// Computes changes from the stored roots, or from those that a commit in flight leaves: on this thread
    /// as long as little has to be loaded, the rest on a compute thread.
    async fn compute_root_changes(
        &self,
        owner: &str,
        batch: &mut Vec<Waiting>,
        future: Option<&FutureRoots>,
    ) -> Result<Computed, StoreError> {
        let ids: BTreeSet<RootId> =
            batch.iter().flat_map(|waiting| waiting.work.roots()).cloned().collect();
        let cells = InlineCells::new(self.jobs.store.cells());
        let mut roots = self.read_roots(owner, cells.clone(), &ids, future).await?;
        let mut results = Vec::with_capacity(batch.len());
        if !batch.iter().any(|waiting| waiting.work.needs_compute_thread()) {
            for waiting in batch.iter_mut() {
                let savepoint = roots.savepoint();
                let result = apply(&mut *waiting.work, &mut roots);
                if cells.is_exhausted() {
                    roots.restore(savepoint);
                    break;
                }
                results.push(result);
            }
        }
        let mut taken = std::mem::take(batch);
        if results.len() == taken.len() {
            return Ok(Computed { batch: taken, roots, results });
        }
        roots.set_cells(self.jobs.store.cells());
        let work = move || {
            let rest = taken[results.len()..].iter_mut();
            results.extend(rest.map(|waiting| apply(&mut *waiting.work, &mut roots)));
            Computed { batch: taken, roots, results }
        };
        // If there is no result, the changes were dropped, and those that wait are told so.
        self.jobs.runtime.compute.run(owner, work).await.map_err(|_| StoreError::Busy)
    }

    async fn read_roots(
        &self,
        owner: &str,
        cells: Cells,
        ids: &BTreeSet<RootId>,
        future: Option<&FutureRoots>,
    ) -> Result<Roots, StoreError> {
        let mut stored = Vec::with_capacity(ids.len());
        for id in ids.iter().filter(|id| !future.is_some_and(|future| future.has_root(id))) {
            stored.push((id.clone(), self.jobs.store.root(&id.key(owner)).await?));
        }
        let mut roots = Roots::new(owner, self.jobs.runtime.now(), cells, stored);
        if let Some(future) = future {
            ids.iter().for_each(|id| roots.add_future(future, id));
        }
        Ok(roots)
    }

    /// Commits new roots together with the changes of jobs. Returns the jobs.
    async fn commit_roots(
        &self,
        owner: &str,
        mut roots: Roots,
        drafts: Vec<Option<Draft>>,
        own: &[JobId],
    ) -> Result<Vec<Option<JobView>>, CommitError> {
        let has_job: Vec<bool> = drafts.iter().map(Option::is_some).collect();
        let cancelled = self.cancel_with(&mut roots, own).await?;
        let (receivers, sent) = self.jobs.send_with(&mut roots).map_err(read_failure)?;
        self.jobs.read_schedules(&mut roots).await.map_err(read_failure)?;
        let now = roots.now();
        let has_offers = roots.has_offers();
        let has_schedules = roots.has_schedules();
        let (mut effects, assets) = roots.into_effects();
        if !effects.is_empty() {
            // Cells of the previous values may be referred to by nothing now.
            self.jobs.has_garbage.store(true, Ordering::Relaxed);
        }
        effects.extend(sent);
        for metadata in assets {
            effects.extend(definition_effects(owner, &metadata, now));
        }
        let drafts: Vec<Draft> = drafts.into_iter().flatten().chain(cancelled).collect();
        if effects.is_empty() && drafts.is_empty() {
            return Ok(has_job.into_iter().map(|_| None).collect());
        }
        let committed = self.jobs.commit_with(drafts, effects).await?;
        if has_offers {
            self.jobs.notify_offered();
        }
        if has_schedules {
            self.jobs.schedule_changed.notify_one();
        }
        let mut views = committed.into_iter().map(|Committed { view, .. }| view);
        let own = has_job.into_iter().map(|has_job| if has_job { views.next() } else { None });
        let own = own.collect();
        let cancelled: Vec<JobView> = views.collect();
        if let Some(canceller) = self.jobs.canceller().filter(|_| !cancelled.is_empty()) {
            canceller.stop(&cancelled);
        }
        self.jobs.wake_receivers(receivers);
        Ok(own)
    }

    /// Returns the changes of the jobs that a change of roots cancels. What those are bound to is
    /// released in the same roots.
    async fn cancel_with(
        &self,
        roots: &mut Roots,
        own: &[JobId],
    ) -> Result<Vec<Draft>, CommitError> {
        let cancels = roots.take_cancels();
        let Some(canceller) = self.jobs.canceller().filter(|_| !cancels.is_empty()) else {
            return Ok(Vec::new());
        };
        let drafts = canceller.cancel_drafts(cancels, own).await;
        let mut drafts = drafts.map_err(read_failure)?;
        for draft in drafts.iter_mut().filter(|draft| draft.needs_release()) {
            self.jobs.release_into(draft, roots).await.map_err(read_failure)?;
        }
        Ok(drafts)
    }
}

impl Jobs {
    /// Returns the jobs that get messages with a change of roots, and the effects that send them.
    pub(super) fn send_with(
        &self,
        roots: &mut Roots,
    ) -> Result<(Vec<JobId>, Vec<Effect>), StoreError> {
        let mut receivers = roots.take_unnotified();
        let mut effects = Vec::new();
        for SentMessage { job, from, id, message, .. } in roots.take_messages() {
            let sender = Caller::known(&from);
            let body = self.seal_message(job, &sender, message, Secrecy::Credentials)?;
            effects.push(Effect::SendMessage { job, message: Message { number: 0, id, body } });
            receivers.push(job);
        }
        Ok((receivers, effects))
    }

    /// Reads the schedules that a change of roots replaces or removes.
    pub(super) async fn read_schedules(&self, roots: &mut Roots) -> Result<(), StoreError> {
        for id in roots.unread_schedules() {
            let stored = self.store.root(&id.key(roots.owner())).await?;
            roots.add_stored(id, stored);
        }
        Ok(())
    }

    /// Lets jobs consume messages that are durable.
    pub(crate) fn wake_receivers(&self, receivers: Vec<JobId>) {
        if let Some(canceller) = self.canceller().filter(|_| !receivers.is_empty()) {
            canceller.wake_jobs(receivers);
        }
    }

    fn canceller(&self) -> Option<Arc<dyn CancelJobs>> {
        self.canceller.get()?.upgrade()
    }
}

/// Commits for one owner until no changes wait.
async fn drain(mut guard: QueueGuard, first: Waiting) {
    let changes = Arc::clone(&guard.changes);
    let owner = Arc::clone(&guard.owner);
    let mut batch = vec![first];
    loop {
        let mut computed = match changes.compute_root_changes(&owner, &mut batch, None).await {
            Ok(computed) => Some(computed),
            Err(error) => {
                answer_all(std::mem::take(&mut batch), &RootFailure::Store(error));
                None
            }
        };
        while let Some(ready) = computed.take() {
            computed = commit_and_look_ahead(&mut guard, &changes, &owner, ready).await;
        }
        match guard.next_batch() {
            Some(next) => batch = next,
            None => return,
        }
    }
}

/// Commits a batch and, if more changes wait, computes the next one meanwhile. Returns it if it holds.
async fn commit_and_look_ahead(
    guard: &mut QueueGuard,
    changes: &Arc<RootChanges>,
    owner: &Arc<str>,
    computed: Computed,
) -> Option<Computed> {
    let ahead =
        computed.roots.after_commit().and_then(|future| Some((guard.take_batch()?, future)));
    let Some((mut batch, future)) = ahead else {
        changes.commit_root_changes(owner, computed).await;
        return None;
    };
    let (reply, outcome) = oneshot::channel();
    let (committing, for_owner) = (Arc::clone(changes), Arc::clone(owner));
    changes.jobs.runtime.spawn(async move {
        let _ = reply.send(committing.commit_root_changes(&for_owner, computed).await);
    });
    let next = changes.compute_root_changes(owner, &mut batch, Some(&future)).await;
    // Nothing that depends on a commit is committed, or answered, unless that commit succeeded.
    let is_committed = outcome.await.unwrap_or(false);
    match next {
        Ok(next) if is_committed => Some(next),
        Ok(next) => {
            changes.compute_and_commit(owner, next.batch).await;
            None
        }
        Err(error) => {
            answer_all(batch, &RootFailure::Store(error));
            None
        }
    }
}

/// Computes one change. Undoes it if it fails.
fn apply(work: &mut dyn RootWork, roots: &mut Roots) -> Result<Option<Draft>, RootFailure> {
    let savepoint = roots.savepoint();
    let applied = catch_unwind(AssertUnwindSafe(|| work.apply(roots)));
    let applied = applied.unwrap_or_else(|_| {
        let text = "a change of roots panicked; this is a bug".to_owned();
        Err(RootFailure::Store(StoreError::Damaged(text)))
    });
    if applied.is_err() {
        roots.restore(savepoint);
    }
    applied
}

fn answer_all(batch: Vec<Waiting>, failure: &RootFailure) {
    for waiting in batch {
        let failure = match failure {
            RootFailure::Commit(error) => RootFailure::Commit(error.clone()),
            RootFailure::Store(error) => RootFailure::Store(error.clone()),
            RootFailure::Append(error) => {
                RootFailure::Store(StoreError::Damaged(error.to_string()))
            }
        };
        waiting.answer(Err(failure));
    }
}

/// Returns the job whose change made a commit impossible.
fn changed_job(error: &CommitError) -> Option<JobId> {
    match error {
        CommitError::HeadMoved { job, .. }
        | CommitError::NoSuchJob { job }
        | CommitError::Ended { job }
        | CommitError::HoldMoved { job }
        | CommitError::QueueMoved { job, .. } => Some(*job),
        _ => None,
    }
}

/// Returns true if a commit was refused because of the state of the store, not of what it contains.
fn is_about_store(error: &CommitError) -> bool {
    matches!(
        error,
        CommitError::Busy
            | CommitError::Full
            | CommitError::Stopped { .. }
            | CommitError::Damaged { .. }
    )
}

//! Jobs that are bound to roots: what their start and their end change there, in the same commit.

use std::sync::Arc;

use catena_job::{Job, JobId, Status};
use catena_store::{CommitError, Effect, Hint, RootKey};
use catena_value::Value;

use crate::error::StoreError;
use crate::jobs::secrets::has_secret_input;
use crate::jobs::{Committed, Current, Draft, Jobs};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::{
    Adapter, BOUND, BoundEnd, BoundJob, BoundStart, EndedCall, Operation, QUEUE, Roots,
};

/// Returns true if a job is bound to roots.
pub(crate) fn is_bound(job: &Job) -> bool {
    job.field(BOUND).is_some()
}

/// Maps the failure to read something that a commit needs.
pub(super) fn read_failure(error: StoreError) -> CommitError {
    match error {
        StoreError::Busy | StoreError::Contended => CommitError::Busy,
        StoreError::Full => CommitError::Full,
        StoreError::Stopped(reason) => CommitError::Stopped { reason },
        quota @ StoreError::QuotaExceeded { .. } => {
            CommitError::TooLarge { reason: quota.to_string() }
        }
        StoreError::Damaged(reason) | StoreError::TooLarge(reason) => {
            CommitError::Damaged { reason }
        }
    }
}

/// The effects of a change of roots, and the keys of these roots.
pub(crate) struct Released {
    pub(crate) effects: Vec<Effect>,
    keys: Vec<RootKey>,
    /// The jobs that get messages.
    pub(crate) receivers: Vec<JobId>,
    has_offers: bool,
    has_schedules: bool,
}

impl Released {
    async fn new(jobs: &Jobs, mut roots: Roots, notifies: bool) -> Result<Released, StoreError> {
        if !notifies {
            roots.drop_notices();
        }
        jobs.read_schedules(&mut roots).await?;
        let (receivers, sent) = jobs.send_with(&mut roots)?;
        let has_offers = roots.has_offers();
        let has_schedules = roots.has_schedules();
        let (mut effects, _) = roots.into_effects();
        let keys = effects.iter().filter_map(|effect| match effect {
            Effect::SetRoot { key, .. } => Some(key.clone()),
            _ => None,
        });
        let keys = keys.collect();
        effects.extend(sent);
        Ok(Released { keys, effects, receivers, has_offers, has_schedules })
    }

    /// Returns true if a commit was refused because one of the roots has changed.
    fn is_overtaken(&self, error: &CommitError) -> bool {
        matches!(error, CommitError::RootMoved { key, .. } if self.keys.contains(key))
    }
}

impl Jobs {
    /// Returns the adapter of a bound job, and the name of what it is bound to.
    fn binding_of(&self, job: &Job) -> Result<(Arc<dyn Adapter>, String), StoreError> {
        let text = job.field(BOUND).and_then(Value::to_text).unwrap_or_default();
        let missing = || StoreError::Damaged(format!("`{text}` names no adapter of this venue"));
        let (adapter, name) = text.split_once('/').ok_or_else(missing)?;
        let adapter = self.adapters.get(adapter).ok_or_else(missing)?;
        Ok((Arc::clone(adapter), name.to_owned()))
    }

    /// Reads the roots that a bound job changes, as far as they are not read yet.
    async fn add_bound_roots(
        &self,
        adapter: &dyn Adapter,
        name: &str,
        roots: &mut Roots,
    ) -> Result<(), StoreError> {
        for id in adapter.bound_roots(name) {
            if !roots.has_root(&id) {
                let stored = self.store.root(&id.key(roots.owner())).await?;
                roots.add_stored(id, stored);
            }
        }
        Ok(())
    }

    /// Changes roots as the end of a bound job requires.
    pub(super) async fn release_into(
        &self,
        draft: &mut Draft,
        roots: &mut Roots,
    ) -> Result<(), StoreError> {
        let (adapter, name) = self.binding_of(draft.job())?;
        self.add_bound_roots(&*adapter, &name, roots).await?;
        let job = draft.job();
        let calls = if job.status() == Status::Complete {
            self.ended_calls(job).await?
        } else {
            Vec::new()
        };
        let error = job.field("error").and_then(Value::to_text);
        let code = job.field("errorCode").and_then(Value::to_text);
        let (error, code) = (error.as_deref(), code.as_deref());
        let end = BoundEnd { status: job.status(), error, code, calls };
        let owner = roots.owner().to_owned();
        let bound = BoundJob { id: job.id(), name: &name, owner: &owner };
        let changed = adapter.end_bound(bound, &end, roots);
        changed.map_err(|failure| StoreError::Damaged(failure.error))?;
        draft.mark_released();
        Ok(())
    }

    /// Returns the outputs of the calls of a job.
    async fn ended_calls(&self, job: &Job) -> Result<Vec<EndedCall>, StoreError> {
        let mut calls = Vec::new();
        for call in job.calls() {
            let key = call.start.key.clone();
            let called = self.current(call.start.job).await?;
            let output = match &called {
                Some(called) => called.member("output")?,
                None => None,
            };
            let redacted_input = match &called {
                Some(called) if has_secret_input(&called.job) => called.member("input")?,
                _ => None,
            };
            calls.push(EndedCall { key, output, redacted_input });
        }
        Ok(calls)
    }

    /// Returns the changes of roots that follow from the ends of bound jobs of one owner.
    async fn release(
        &self,
        drafts: &mut [Draft],
        notifies: bool,
    ) -> Result<Vec<Released>, CommitError> {
        let mut by_owner: Vec<Roots> = Vec::new();
        for draft in drafts.iter_mut().filter(|draft| draft.needs_release()) {
            let owner = draft.job().field("caller").and_then(Value::as_str).unwrap_or_default();
            let position = by_owner.iter().position(|roots| roots.owner() == owner);
            let roots = match position.and_then(|position| by_owner.get_mut(position)) {
                Some(roots) => roots,
                None => {
                    let cells = self.store.cells();
                    by_owner.push(Roots::new(owner, self.runtime.now(), cells, []));
                    let Some(roots) = by_owner.last_mut() else { continue };
                    roots
                }
            };
            self.release_into(draft, roots).await.map_err(read_failure)?;
        }
        let mut released = Vec::with_capacity(by_owner.len());
        for roots in by_owner {
            released.push(Released::new(self, roots, notifies).await.map_err(read_failure)?);
        }
        Ok(released)
    }

    /// Appends the records of several jobs, of which some are bound to roots, in one commit.
    pub(super) async fn append_all_released(
        &self,
        drafts: Vec<Draft>,
        effects: Vec<Effect>,
    ) -> Result<Vec<Committed>, CommitError> {
        let mut notifies = true;
        for _ in 0..CONTENTION_TRIES_MAX {
            let mut drafts = drafts.clone();
            let mut effects = effects.clone();
            let released = self.release(&mut drafts, notifies).await?;
            effects.extend(released.iter().flat_map(|released| released.effects.clone()));
            match self.append_all(drafts, effects).await {
                Err(error) if released.iter().any(|released| released.is_overtaken(&error)) => {}
                Err(CommitError::MessagesFull { .. }) if notifies => notifies = false,
                done => return done.inspect(|_| self.notify_released(released)),
            }
        }
        Err(CommitError::Busy)
    }

    /// Appends the record that ends a bound job. Its calls and steps have ended before.
    pub(super) async fn append_released(
        &self,
        draft: Draft,
        children: Vec<Draft>,
    ) -> Result<Committed, CommitError> {
        let mut notifies = true;
        for _ in 0..CONTENTION_TRIES_MAX {
            let mut draft = draft.clone();
            let released = self.release(std::slice::from_mut(&mut draft), notifies).await?;
            let effects = released.iter().flat_map(|released| released.effects.clone());
            effects.for_each(|effect| draft.add(effect));
            match self.append(draft, children.clone()).await {
                Err(error) if released.iter().any(|released| released.is_overtaken(&error)) => {}
                Err(CommitError::MessagesFull { .. }) if notifies => notifies = false,
                done => return done.inspect(|_| self.notify_released(released)),
            }
        }
        Err(CommitError::Busy)
    }

    fn notify_released(&self, released: Vec<Released>) {
        self.has_garbage.store(true, std::sync::atomic::Ordering::Relaxed);
        if released.iter().any(|released| released.has_offers) {
            self.notify_offered();
        }
        if released.iter().any(|released| released.has_schedules) {
            self.schedule_changed.notify_one();
        }
        self.wake_receivers(released.into_iter().flat_map(|released| released.receivers).collect());
    }

    /// Notifies whoever starts queued jobs that a bound job was offered.
    pub(super) fn notify_offered(&self) {
        self.queued.notify_one();
        if self.store.has_peers() {
            self.store.send_hint(&self.process, Hint::Queued { queue: QUEUE.to_owned() });
        }
    }

    /// Returns true if a bound job that paused itself is to look again at what it is bound to.
    pub(crate) async fn resumes_bound(&self, current: &Current) -> Result<bool, StoreError> {
        let (adapter, name) = self.binding_of(&current.job)?;
        let owner = current.text("caller");
        let mut roots = Roots::new(owner, self.runtime.now(), self.store.cells(), []);
        self.add_bound_roots(&*adapter, &name, &mut roots).await?;
        let job = BoundJob { id: current.job.id(), name: &name, owner };
        Ok(adapter.resumes_bound(job, &roots))
    }

    /// Decides whether a bound job starts. Returns the decision, and what must be committed with it.
    pub(crate) async fn decide_start(
        &self,
        current: &Current,
        operation: &Operation,
        notifies: bool,
    ) -> Result<(BoundStart, Released), StoreError> {
        let (adapter, name) = self.binding_of(&current.job)?;
        let input = current.member("input")?.unwrap_or_default();
        let owner = current.text("caller");
        let mut roots = Roots::new(owner, self.runtime.now(), self.store.cells(), []);
        self.add_bound_roots(&*adapter, &name, &mut roots).await?;
        let job = BoundJob { id: current.job.id(), name: &name, owner };
        let savepoint = roots.savepoint();
        let start = match adapter.start_bound(job, operation, &input, &mut roots) {
            Ok(start) => start,
            Err(failure) => {
                roots.restore(savepoint);
                BoundStart::Fail(failure)
            }
        };
        Ok((start, Released::new(self, roots, notifies).await?))
    }
}

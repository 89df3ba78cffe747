//! A store without threads: what is submitted is committed before the call returns.
//!
//! It never waits for another thread, so a test with a paused clock does not see time pass. It can
//! also die at a given commit, as if its process had been killed there, and a test can refuse or
//! delay commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use catena_job::JobId;
use catena_value::CellSource;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::budget::RootBudget;
use crate::effects::{CommitError, Effects, Receipt};
use crate::embedded::EmbeddedStore;
use crate::store::*;
use crate::summary::Summary;

/// The commit at which the process of a store is killed: from then on nothing is answered.
pub struct Death {
    /// The commits that are still answered.
    left: AtomicU64,
    is_last_durable: bool,
    has_died: watch::Sender<bool>,
}

impl Death {
    /// The commit after `commits` others is not answered. If `is_last_durable` is true, it reaches the
    /// disk all the same.
    pub fn after(commits: u64, is_last_durable: bool) -> Self {
        let has_died = watch::Sender::new(false);
        Death { left: AtomicU64::new(commits), is_last_durable, has_died }
    }

    /// Changes the commit at which the process is killed: the one after `commits` others from now on.
    pub fn postpone(&self, commits: u64) {
        self.left.store(commits, Ordering::Relaxed);
    }

    /// Waits until the process is dead.
    pub async fn died(&self) {
        // The sender is part of this value.
        let _ = self.has_died.subscribe().wait_for(|has_died| *has_died).await;
    }
}

/// What becomes of a commit that a test has seen.
pub enum Verdict {
    /// It is committed.
    Commit,
    /// It is refused for this reason.
    Refuse(CommitError),
    /// It is committed once this is notified.
    Delay(Arc<Notify>),
}

/// Decides about each commit. It must not use the store.
type Interceptor = Box<dyn FnMut(&Effects) -> Verdict + Send>;

/// An embedded store that was opened without threads.
pub struct SteppedStore {
    store: Arc<EmbeddedStore>,
    death: Option<Arc<Death>>,
    refuses_leases: AtomicBool,
    interceptor: Mutex<Option<Interceptor>>,
}

impl SteppedStore {
    /// A store that answers everything.
    pub fn new(store: EmbeddedStore) -> Self {
        SteppedStore {
            store: Arc::new(store),
            death: None,
            refuses_leases: AtomicBool::new(false),
            interceptor: Mutex::new(None),
        }
    }

    /// A store whose process is killed.
    pub fn dying(store: EmbeddedStore, death: Arc<Death>) -> Self {
        SteppedStore { death: Some(death), ..SteppedStore::new(store) }
    }

    /// Refuses to renew leases from now on, or accepts it again.
    pub fn refuse_leases(&self, refuses: bool) {
        self.refuses_leases.store(refuses, Ordering::Relaxed);
    }

    /// Lets a test decide about each commit from now on.
    pub fn intercept(&self, decide: impl FnMut(&Effects) -> Verdict + Send + 'static) {
        *self.interceptor.lock() = Some(Box::new(decide));
    }

    /// Returns true if a commit must not be answered, and makes it durable if it is to be.
    fn dies_at(&self, effects: &mut Effects) -> bool {
        let Some(death) = &self.death else { return false };
        if *death.has_died.borrow() {
            return true;
        }
        let left = death.left.load(Ordering::Relaxed);
        death.left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left > 0 {
            return false;
        }
        if death.is_last_durable {
            let effects = std::mem::take(&mut effects.0);
            drop(self.step(self.store.commit(Effects(effects))));
        }
        death.has_died.send_replace(true);
        true
    }

    fn step<T, E>(&self, answer: StoreFuture<'static, T, E>) -> StoreFuture<'static, T, E> {
        while self.store.step_commit() {}
        answer
    }
}

impl Store for SteppedStore {
    fn commit(&self, mut effects: Effects) -> StoreFuture<'static, Receipt, CommitError> {
        if self.dies_at(&mut effects) {
            return Box::pin(std::future::pending());
        }
        let verdict = self.interceptor.lock().as_mut().map(|decide| decide(&effects));
        match verdict.unwrap_or(Verdict::Commit) {
            Verdict::Commit => self.step(self.store.commit(effects)),
            Verdict::Refuse(error) => Box::pin(std::future::ready(Err(error))),
            Verdict::Delay(until) => {
                let store = Arc::clone(&self.store);
                Box::pin(async move {
                    until.notified().await;
                    let answer = store.commit(effects);
                    while store.step_commit() {}
                    answer.await
                })
            }
        }
    }

    fn unsettled_bytes(&self) -> u64 {
        self.store.unsettled_bytes()
    }

    fn ready(&self, queue: &str, now: i64, limit: usize) -> StoreFuture<'_, ReadyJobs, ReadError> {
        self.store.ready(queue, now, limit)
    }

    fn queue(&self, queue: &str, limit: usize) -> StoreFuture<'_, Vec<QueuedJob>, ReadError> {
        self.store.queue(queue, limit)
    }

    fn queues(&self) -> StoreFuture<'_, Vec<String>, ReadError> {
        self.store.queues()
    }

    fn renew_worker_lease(&self, worker: &Holder, until: i64) -> StoreFuture<'_, (), CommitError> {
        self.store.renew_worker_lease(worker, until)
    }

    fn renew_lease(
        &self,
        process: &Holder,
        now: i64,
        until: i64,
    ) -> StoreFuture<'_, Vec<ProcessLease>, CommitError> {
        if self.refuses_leases.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(CommitError::Busy)));
        }
        self.store.renew_lease(process, now, until)
    }

    fn end_lease(&self, process: &Holder) -> StoreFuture<'_, (), CommitError> {
        self.store.end_lease(process)
    }

    fn processes(&self, now: i64) -> StoreFuture<'_, Vec<ProcessLease>, ReadError> {
        self.store.processes(now)
    }

    fn hints(&self, process: &Holder) -> Option<tokio::sync::mpsc::Receiver<Hint>> {
        self.store.hints(process)
    }

    fn send_hint(&self, process: &Holder, hint: Hint) {
        self.store.send_hint(process, hint);
    }

    fn has_peers(&self) -> bool {
        self.store.has_peers()
    }

    fn root_budget(&self, root: JobId, max: usize) -> (Arc<RootBudget>, bool) {
        self.store.root_budget(root, max)
    }

    fn job(&self, id: JobId) -> StoreFuture<'_, Option<StoredJob>, ReadError> {
        self.store.job(id)
    }

    fn records(
        &self,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<RecordPage>, ReadError> {
        self.store.records(id, from, limit)
    }

    fn list(&self, query: &ListQuery) -> StoreFuture<'_, JobPage, ReadError> {
        self.store.list(query)
    }

    fn position(&self) -> StoreFuture<'_, u64, ReadError> {
        self.store.position()
    }

    fn changes(&self, query: &ChangeQuery) -> StoreFuture<'_, ChangePage, ReadError> {
        self.store.changes(query)
    }

    fn trim_changes(&self) -> StoreFuture<'_, u64, ReadError> {
        self.store.trim_changes()
    }

    fn count(&self, owner: Option<&str>, filter: &Filter) -> StoreFuture<'_, u64, ReadError> {
        self.store.count(owner, filter)
    }

    fn seek(&self, query: &ListQuery, offset: u64) -> StoreFuture<'_, Seek, ReadError> {
        self.store.seek(query, offset)
    }

    fn all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(JobId, Summary)>, ReadError> {
        self.store.all(after, limit)
    }

    fn live(&self, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<LiveJob>, ReadError> {
        self.store.live(after, limit)
    }

    fn count_live(&self) -> StoreFuture<'static, (), CommitError> {
        self.step(self.store.count_live())
    }

    fn live_count(&self, owner: [u8; 8]) -> usize {
        self.store.live_count(owner)
    }

    fn live_total(&self) -> usize {
        self.store.live_total()
    }

    fn due(
        &self,
        until: i64,
        after: Option<Timer>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Timer>, ReadError> {
        self.store.due(until, after, limit)
    }

    fn executions(
        &self,
        owner: &str,
        key: &str,
        limit: usize,
    ) -> StoreFuture<'_, Vec<JobId>, ReadError> {
        self.store.executions(owner, key, limit)
    }

    fn messages(&self, id: JobId, limit: usize) -> StoreFuture<'_, Vec<Message>, ReadError> {
        self.store.messages(id, limit)
    }

    fn find_idempotency(
        &self,
        owner: &str,
        endpoint: &str,
        key: &str,
    ) -> StoreFuture<'_, Option<Idempotency>, ReadError> {
        let found = self.store.find_idempotency(owner, endpoint, key);
        Box::pin(async move {
            let found = found.await;
            // Another process may commit between this read and what follows from it.
            tokio::task::yield_now().await;
            found
        })
    }

    fn root(&self, key: &RootKey) -> StoreFuture<'_, Option<Root>, ReadError> {
        self.store.root(key)
    }

    fn roots(
        &self,
        space: RootSpace,
        owner: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<String>, ReadError> {
        self.store.roots(space, owner, after, limit)
    }

    fn blob(&self, digest: &[u8; 32]) -> StoreFuture<'_, Option<StoredBlob>, ReadError> {
        self.store.blob(digest)
    }

    fn collect(&self) -> StoreFuture<'_, u64, ReadError> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn stored_bytes(&self, owner: &str) -> StoreFuture<'_, u64, ReadError> {
        self.store.stored_bytes(owner)
    }

    fn stored_bytes_of_all(&self) -> StoreFuture<'_, u64, ReadError> {
        self.store.stored_bytes_of_all()
    }

    fn count_stored_bytes(&self, is_on: bool) -> StoreFuture<'_, (), CommitError> {
        self.store.count_stored_bytes(is_on)
    }

    fn cells(&self) -> Arc<dyn CellSource + Send + Sync> {
        self.store.cells()
    }
}

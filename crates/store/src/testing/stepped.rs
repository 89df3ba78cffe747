//! A store without threads: what is submitted is committed before the call returns.
//!
//! It never waits for another thread, so a test with a paused clock does not see time pass.

use std::sync::Arc;

use catena_job::JobId;
use catena_value::CellSource;

use crate::effects::{CommitError, Effects, Receipt};
use crate::embedded::EmbeddedStore;
use crate::store::*;
use crate::summary::Summary;

/// An embedded store that was opened without threads.
pub struct SteppedStore(pub EmbeddedStore);

impl SteppedStore {
    fn step<T, E>(&self, answer: StoreFuture<'static, T, E>) -> StoreFuture<'static, T, E> {
        while self.0.step_commit() {}
        answer
    }
}

impl Store for SteppedStore {
    fn commit(&self, effects: Effects) -> StoreFuture<'static, Receipt, CommitError> {
        self.step(self.0.commit(effects))
    }

    fn ready(&self, queue: &str, now: i64, limit: usize) -> StoreFuture<'_, ReadyJobs, ReadError> {
        self.0.ready(queue, now, limit)
    }

    fn queue(&self, queue: &str, limit: usize) -> StoreFuture<'_, Vec<QueuedJob>, ReadError> {
        self.0.queue(queue, limit)
    }

    fn renew_lease(
        &self,
        process: &Holder,
        now: i64,
        until: i64,
    ) -> StoreFuture<'_, Vec<ProcessLease>, CommitError> {
        self.0.renew_lease(process, now, until)
    }

    fn end_lease(&self, process: &Holder) -> StoreFuture<'_, (), CommitError> {
        self.0.end_lease(process)
    }

    fn processes(&self, now: i64) -> StoreFuture<'_, Vec<ProcessLease>, ReadError> {
        self.0.processes(now)
    }

    fn hints(&self, process: &Holder) -> Option<tokio::sync::mpsc::Receiver<Hint>> {
        self.0.hints(process)
    }

    fn send_hint(&self, process: &Holder, hint: Hint) {
        self.0.send_hint(process, hint);
    }

    fn has_peers(&self) -> bool {
        self.0.has_peers()
    }

    fn job(&self, id: JobId) -> StoreFuture<'_, Option<StoredJob>, ReadError> {
        self.0.job(id)
    }

    fn records(
        &self,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<RecordPage>, ReadError> {
        self.0.records(id, from, limit)
    }

    fn list(&self, query: &ListQuery) -> StoreFuture<'_, JobPage, ReadError> {
        self.0.list(query)
    }

    fn count(&self, owner: &str, filter: &Filter) -> StoreFuture<'_, u64, ReadError> {
        self.0.count(owner, filter)
    }

    fn all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(JobId, Summary)>, ReadError> {
        self.0.all(after, limit)
    }

    fn live(&self, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<LiveJob>, ReadError> {
        self.0.live(after, limit)
    }

    fn due(
        &self,
        until: i64,
        after: Option<Timer>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Timer>, ReadError> {
        self.0.due(until, after, limit)
    }

    fn executions(
        &self,
        owner: &str,
        key: &str,
        limit: usize,
    ) -> StoreFuture<'_, Vec<JobId>, ReadError> {
        self.0.executions(owner, key, limit)
    }

    fn messages(&self, id: JobId, limit: usize) -> StoreFuture<'_, Vec<Message>, ReadError> {
        self.0.messages(id, limit)
    }

    fn find_idempotency(
        &self,
        owner: &str,
        endpoint: &str,
        key: &str,
    ) -> StoreFuture<'_, Option<Idempotency>, ReadError> {
        self.0.find_idempotency(owner, endpoint, key)
    }

    fn root(&self, key: &RootKey) -> StoreFuture<'_, Option<Root>, ReadError> {
        self.0.root(key)
    }

    fn roots(
        &self,
        space: RootSpace,
        owner: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<String>, ReadError> {
        self.0.roots(space, owner, after, limit)
    }

    fn blob(&self, digest: &[u8; 32]) -> StoreFuture<'_, Option<StoredBlob>, ReadError> {
        self.0.blob(digest)
    }

    fn collect(&self) -> StoreFuture<'_, u64, ReadError> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn cells(&self) -> Arc<dyn CellSource + Send + Sync> {
        self.0.cells()
    }
}

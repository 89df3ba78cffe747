//! A store without threads: what is handed in is committed before the call returns.
//!
//! Time stands still while it works, so a test with a paused clock sees no waiting for a disk.

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
    fn step<T, E>(&self, answer: Answer<'static, T, E>) -> Answer<'static, T, E> {
        while self.0.step_commit() {}
        answer
    }
}

impl Store for SteppedStore {
    fn commit(&self, effects: Effects) -> Answer<'static, Receipt, CommitError> {
        self.step(self.0.commit(effects))
    }

    fn claim(
        &self,
        queue: &str,
        worker: &str,
        now: i64,
        until: i64,
    ) -> Answer<'static, Option<Claim>, CommitError> {
        self.step(self.0.claim(queue, worker, now, until))
    }

    fn job(&self, id: JobId) -> Answer<'_, Option<StoredJob>, ReadError> {
        self.0.job(id)
    }

    fn records(
        &self,
        id: JobId,
        from: u64,
        limit: usize,
    ) -> Answer<'_, Option<RecordPage>, ReadError> {
        self.0.records(id, from, limit)
    }

    fn list(&self, query: &ListQuery) -> Answer<'_, JobPage, ReadError> {
        self.0.list(query)
    }

    fn count(&self, owner: &str, filter: &Filter) -> Answer<'_, u64, ReadError> {
        self.0.count(owner, filter)
    }

    fn all(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> Answer<'_, Vec<(JobId, Summary)>, ReadError> {
        self.0.all(after, limit)
    }

    fn live(&self, after: Option<JobId>, limit: usize) -> Answer<'_, Vec<JobId>, ReadError> {
        self.0.live(after, limit)
    }

    fn due(&self, until: i64, limit: usize) -> Answer<'_, Vec<Timer>, ReadError> {
        self.0.due(until, limit)
    }

    fn executions(
        &self,
        owner: &str,
        key: &str,
        limit: usize,
    ) -> Answer<'_, Vec<JobId>, ReadError> {
        self.0.executions(owner, key, limit)
    }

    fn messages(&self, id: JobId, limit: usize) -> Answer<'_, Vec<Message>, ReadError> {
        self.0.messages(id, limit)
    }

    fn remembered(
        &self,
        owner: &str,
        endpoint: &str,
        key: &str,
    ) -> Answer<'_, Option<Idempotency>, ReadError> {
        self.0.remembered(owner, endpoint, key)
    }

    fn root(&self, key: &RootKey) -> Answer<'_, Option<Root>, ReadError> {
        self.0.root(key)
    }

    fn roots(
        &self,
        space: RootSpace,
        owner: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Answer<'_, Vec<String>, ReadError> {
        self.0.roots(space, owner, after, limit)
    }

    fn blob(&self, digest: &[u8; 32]) -> Answer<'_, Option<StoredBlob>, ReadError> {
        self.0.blob(digest)
    }

    fn collect(&self) -> Answer<'_, u64, ReadError> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn cells(&self) -> Arc<dyn CellSource + Send + Sync> {
        self.0.cells()
    }
}

//! What the façade offers for executors: environments, the jobs that they hold, and blobs.

use std::sync::Arc;

use catena_job::JobId;
use catena_store::Holder;
use catena_store::blob::{Digest, Download};

use super::{Components, Engine};
use crate::error::{InvokeError, StoreError, WorkerError};
use crate::operations::{BlobUpload, Environment, Environments};
use crate::requests::{
    AnnouncedExecutor, Caller, ConnectedExecutor, JobView, Role, SubmitOnce, Submitted,
};

impl Engine {
    /// Creates a job, or returns an earlier one with the same key that is good enough.
    pub async fn submit_once(&self, request: SubmitOnce) -> Result<Submitted, InvokeError> {
        self.0.commands.submit_once(request).await
    }

    /// Returns the environments that are known.
    pub fn environments(&self) -> &Arc<Environments> {
        &self.0.operations.environments
    }

    /// Notes which environments an executor has, or why it has none.
    pub async fn announce(
        &self,
        executor: AnnouncedExecutor,
        environments: Vec<Environment>,
    ) -> Result<(), StoreError> {
        let Components { operations, jobs, execution, runtime, .. } = &*self.0;
        let holder = Holder::worker(&jobs.did, &executor.worker);
        let unavailable = executor.unavailable.clone();
        // Who sees the executor must already be able to use what it has, or be told why it has nothing.
        operations.environments.announce(&*jobs.store, environments, unavailable).await?;
        execution.workers.announce(&holder, executor, runtime.now());
        Ok(())
    }

    /// Returns the executors that are connected, by name. Admins see how many jobs each of them runs, others
    /// how many of their own.
    pub fn executors(&self, caller: &Caller) -> Vec<ConnectedExecutor> {
        let Components { execution, runtime, .. } = &*self.0;
        let owner = (caller.role != Role::Admin).then_some(&*caller.did);
        execution.workers.executors(owner, (runtime.now(), runtime.limits.worker_lease))
    }

    /// Returns true if an executor with this version of an environment is connected.
    pub fn has_executor(&self, version: &str) -> bool {
        let Components { execution, runtime, .. } = &*self.0;
        execution.workers.has_executor(version, runtime.now())
    }

    /// Returns a job that a worker of the caller holds under a fence.
    pub async fn held_job(
        &self,
        caller: &Caller,
        job: JobId,
        fence: u64,
    ) -> Result<JobView, WorkerError> {
        self.0.commands.held_job(caller, job, fence).await
    }

    /// Starts an upload of at most `max` bytes.
    pub async fn begin_blob(&self, max: u64) -> Result<BlobUpload, StoreError> {
        self.0.operations.begin_blob(max).await
    }

    /// Opens a blob, whoever has uploaded it. The caller of this decides who may read it.
    pub async fn open_blob(&self, digest: Digest) -> Result<Option<Download>, StoreError> {
        self.0.operations.open_blob(digest).await
    }

    /// Records that a user has a blob.
    pub async fn add_blob_owner(&self, owner: &str, digest: Digest) -> Result<(), StoreError> {
        self.0.operations.add_blob_owner(owner, digest).await
    }

    /// Returns true if a user may read a blob: it is the user's own, or a job of the user has it as a file.
    pub async fn may_read_blob(&self, owner: &str, digest: Digest) -> Result<bool, StoreError> {
        if self.owns_blob(owner, digest).await? {
            return Ok(true);
        }
        for job in self.0.operations.jobs_with_file(digest).await? {
            let current = self.0.jobs.current(job).await?;
            let caller = current.as_ref().and_then(|current| current.job.field("caller")?.as_str());
            if caller == Some(owner) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if a user has uploaded a blob.
    pub async fn owns_blob(&self, owner: &str, digest: Digest) -> Result<bool, StoreError> {
        self.0.operations.owns_blob(owner, digest).await
    }
}

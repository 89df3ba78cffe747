//! What adapters can reach of the engine.

use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_store::ListOrder;
use catena_value::ValueId;

use super::Components;
use crate::error::{AssetError, ControlError, InvokeError, JobError, RerunError, StoreError};
use crate::operations::{Failure, Host, HostReply, Keyring, ListAssets, Operation, RootId, Roots};
use crate::requests::{
    CallRequest, Caller, HistoryPage, IdempotencyKey, Invoke, Invoked, JobFilter, JobView,
    ListJobs, NewSchedule, RerunScope, Scheduled,
};
use crate::runtime::Env;

fn store_failure(error: StoreError) -> Failure {
    Failure::transient("store", error.to_string())
}

impl Host for Components {
    fn env(&self) -> &Arc<dyn Env> {
        &self.runtime.env
    }

    fn is_ready(&self) -> bool {
        !self.runtime.is_stopping()
    }

    fn invoke(&self, request: Invoke) -> HostReply<Invoked, InvokeError> {
        let commands = Arc::clone(&self.commands);
        Box::pin(async move { commands.invoke(request).await })
    }

    fn operations(&self) -> Vec<(String, Arc<Operation>)> {
        let entries = self.operations.entries();
        entries.into_iter().map(|entry| (entry.path, entry.operation)).collect()
    }

    fn adapters(&self) -> Vec<(&'static str, &'static str)> {
        self.operations.adapters()
    }

    fn asset(&self, caller: &Caller, reference: &str) -> HostReply<Option<Arc<str>>, Failure> {
        let operations = Arc::clone(&self.operations);
        let caller = caller.clone();
        let reference = reference.to_owned();
        Box::pin(async move {
            match operations.asset(&caller, &reference).await {
                Ok(asset) => Ok(Some(asset.text)),
                Err(AssetError::Store(error)) => {
                    Err(Failure::transient("store", error.to_string()))
                }
                Err(_) => Ok(None),
            }
        })
    }

    fn own_assets(
        &self,
        caller: &Caller,
        offset: u64,
        limit: usize,
    ) -> HostReply<(Vec<ValueId>, u64), Failure> {
        let operations = Arc::clone(&self.operations);
        let caller = caller.clone();
        Box::pin(async move {
            let query = ListAssets { kind: None, own: true, offset, limit };
            let listed = operations.assets(&caller, query).await.map_err(store_failure)?;
            Ok((listed.0.into_iter().map(|asset| asset.id).collect(), listed.1))
        })
    }

    fn own_jobs(
        &self,
        caller: &Caller,
        offset: u64,
        limit: usize,
    ) -> HostReply<(Vec<JobId>, u64), Failure> {
        let views = Arc::clone(&self.views);
        let caller = caller.clone();
        Box::pin(async move {
            let query = ListJobs::all(ListOrder::Oldest, offset, limit);
            let list = views.list(&caller, &query).await.map_err(store_failure)?;
            Ok((list.jobs.into_iter().map(|job| job.id).collect(), list.total))
        })
    }

    fn read_roots_of(&self, owner: &str, roots: Vec<RootId>) -> HostReply<Roots, Failure> {
        let operations = Arc::clone(&self.operations);
        let owner = owner.to_owned();
        Box::pin(async move { operations.read_roots(&owner, roots).await })
    }

    fn read_roots(&self, caller: &Caller, roots: Vec<RootId>) -> HostReply<Roots, Failure> {
        let operations = Arc::clone(&self.operations);
        let owner = caller.did.clone();
        Box::pin(async move { operations.read_roots(&owner, roots).await })
    }

    fn history(
        &self,
        caller: &Caller,
        job: JobId,
        from: u64,
        limit: usize,
    ) -> HostReply<HistoryPage, JobError> {
        let views = Arc::clone(&self.views);
        let caller = caller.clone();
        Box::pin(async move { views.history(&caller, job, from, limit).await })
    }

    fn call(&self, request: CallRequest) -> HostReply<JobView, Failure> {
        let commands = Arc::clone(&self.commands);
        Box::pin(async move { commands.call(request).await })
    }

    fn job(&self, caller: &Caller, job: JobId) -> HostReply<JobView, JobError> {
        let views = Arc::clone(&self.views);
        let caller = caller.clone();
        Box::pin(async move { views.job(&caller, job).await })
    }

    fn wait(&self, caller: &Caller, job: JobId, time: Duration) -> HostReply<JobView, JobError> {
        let views = Arc::clone(&self.views);
        let caller = caller.clone();
        Box::pin(async move { views.wait(&caller, job, time).await })
    }

    fn cancel(
        &self,
        caller: &Caller,
        job: JobId,
        reason: Option<String>,
    ) -> HostReply<JobView, ControlError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        Box::pin(async move { commands.cancel(&caller, job, reason).await })
    }

    fn pause(&self, caller: &Caller, job: JobId) -> HostReply<JobView, ControlError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        Box::pin(async move { commands.pause(&caller, job).await })
    }

    fn resume(&self, caller: &Caller, job: JobId) -> HostReply<JobView, ControlError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        Box::pin(async move { commands.resume(&caller, job).await })
    }

    fn delete(&self, caller: &Caller, job: JobId) -> HostReply<(), ControlError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        Box::pin(async move { commands.delete(&caller, job).await })
    }

    fn rerun(
        &self,
        caller: &Caller,
        job: JobId,
        key: Option<IdempotencyKey>,
    ) -> HostReply<Invoked, RerunError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        Box::pin(async move { commands.rerun(&caller, job, RerunScope::Unfinished, key).await })
    }

    fn select(
        &self,
        caller: &Caller,
        filter: JobFilter,
        limit: usize,
    ) -> HostReply<Vec<JobId>, StoreError> {
        let views = Arc::clone(&self.views);
        let caller = caller.clone();
        Box::pin(async move { views.select(&caller, filter, limit).await })
    }

    fn schedule(&self, caller: &Caller, request: NewSchedule) -> HostReply<Scheduled, InvokeError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        Box::pin(async move { commands.schedule(&caller, request).await })
    }

    fn unschedule(&self, caller: &Caller, handle: &str) -> HostReply<bool, InvokeError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        let handle = handle.to_owned();
        Box::pin(async move { commands.unschedule(&caller, &handle).await })
    }

    fn pause_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> HostReply<Option<Scheduled>, InvokeError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        let handle = handle.to_owned();
        Box::pin(async move { commands.pause_schedule(&caller, &handle).await })
    }

    fn resume_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> HostReply<Option<Scheduled>, InvokeError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        let handle = handle.to_owned();
        Box::pin(async move { commands.resume_schedule(&caller, &handle).await })
    }

    fn scheduled(
        &self,
        caller: &Caller,
        owner: Option<&str>,
    ) -> HostReply<Vec<Scheduled>, InvokeError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        let owner = owner.map(str::to_owned);
        Box::pin(async move { commands.scheduled(&caller, owner.as_deref()).await })
    }

    fn trigger(&self, caller: &Caller, handle: &str) -> HostReply<Option<JobId>, InvokeError> {
        let commands = Arc::clone(&self.commands);
        let caller = caller.clone();
        let handle = handle.to_owned();
        Box::pin(async move { commands.trigger(&caller, &handle).await })
    }

    fn keyring(&self) -> &dyn Keyring {
        &*self.execution
    }
}

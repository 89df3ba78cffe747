//! The engine: a façade over its components, how they are put together, and how it stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use catena_auth::{KeyPair, SealKey};
use catena_job::{JobId, Status};
use catena_store::Store;
use catena_store::blob::Blobs;
use catena_value::{Value, ValueId};

use crate::background::{Background, RecoverySummary};
use crate::commands::Commands;
use crate::error::{
    AssetError, ControlError, InvokeError, JobError, RerunError, ResolveError, RunError, SendError,
    StartError, StoreError,
};
use crate::execution::Execution;
use crate::jobs::{JOB_SECRETS_PURPOSE, Jobs};
use crate::limits::Limits;
use crate::operations::{
    Adapter, Asset, CatalogueEntry, Content, ContentUpload, Failure, Host, HostReply, ListAssets,
    ListedAsset, Operation, Operations,
};
use crate::orchestration::{Drivers, Orchestration, Orchestrator};
use crate::requests::{
    Admission, CallRequest, Caller, Did, HistoryPage, IdempotencyKey, IdempotencyKeys, Invoke,
    Invoked, JobList, JobView, ListJobs, MessageReceipt, NewSchedule, RerunScope, RunOutput,
    Scheduled,
};
use crate::runtime::{Env, Runtime};
use crate::views::{CanvasQuery, Follow, Health, JobSummary, Reader, Views};

/// How long runs that are stopped may take to end.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// How often a shutdown checks whether runs have ended.
const STOP_POLL: Duration = Duration::from_millis(10);

/// What an engine is made of.
pub struct Setup {
    /// The durable store.
    pub store: Arc<dyn Store>,
    /// The content of assets.
    pub blobs: Blobs,
    /// Time, randomness and tasks.
    pub env: Arc<dyn Env>,
    /// The venue's DID.
    pub did: String,
    /// The venue's key, which signs.
    pub key: KeyPair,
    /// The key that encrypts secrets at rest. If it is missing, one is derived from the venue's key.
    pub secrets_key: Option<[u8; 32]>,
    /// The operator's limits.
    pub limits: Limits,
    /// The adapters that execute operations.
    pub adapters: Vec<Arc<dyn Adapter>>,
    /// Assets that every venue has: metadata, and content if any.
    pub assets: Vec<(Value, Option<&'static [u8]>)>,
}

/// A running engine. It is cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Components>);

/// The components, lowest first. Each is built from those before it.
struct Components {
    runtime: Arc<Runtime>,
    operations: Arc<Operations>,
    jobs: Arc<Jobs>,
    execution: Arc<Execution>,
    views: Arc<Views>,
    commands: Arc<Commands>,
    background: Arc<Background>,
}

/// Counters of the engine: totals since it started, and current numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Jobs created.
    pub invoked: u64,
    /// Jobs ended, by status, in the order COMPLETE, FAILED, CANCELLED, REJECTED, TIMEOUT.
    pub ended: [u64; 5],
    /// Jobs that run in this process now.
    pub running: u64,
    /// Jobs that are queued now, as far as this process knows.
    pub queued: u64,
    /// Messages accepted.
    pub messages: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Watches of jobs now.
    pub watchers: u64,
}

impl Engine {
    /// Builds the components, finds the jobs that were live, and starts the background tasks. The
    /// engine accepts work when this returns; recovery continues, see [`Engine::recovered`].
    pub async fn start(setup: Setup) -> Result<Engine, StartError> {
        let did: Did = setup.did.into();
        let identity_key = setup.key.seal_key(JOB_SECRETS_PURPOSE);
        let seal_key = match &setup.secrets_key {
            Some(key) => SealKey::derive(key, JOB_SECRETS_PURPOSE).with_older(identity_key),
            None => identity_key,
        };
        let runtime = Runtime::new(setup.env, setup.limits);
        let admission = Arc::new(Admission::new(Arc::clone(&runtime)));
        let keys = IdempotencyKeys::new(Arc::clone(&runtime), Arc::clone(&setup.store));
        let mut adapters = setup.adapters;
        adapters.push(Arc::new(Orchestrator));
        let operations = Operations::new(
            Arc::clone(&runtime),
            Arc::clone(&setup.store),
            setup.blobs,
            did.clone(),
            Arc::clone(&admission),
            Arc::new(keys),
            adapters,
        );
        let operations = Arc::new(operations.map_err(|problems| {
            let (location, problem) = problems.into_iter().next().unwrap_or_default();
            StartError::Definition(format!("{location}: {problem}"))
        })?);
        let drivers: Arc<Drivers> = Arc::default();
        let events = Arc::clone(&drivers) as Arc<dyn crate::jobs::DriverEvents>;
        let jobs = Jobs::new(Arc::clone(&runtime), setup.store, did, seal_key, admission, events);
        let jobs = Arc::new(jobs);
        let execution =
            Execution::new(Arc::clone(&runtime), Arc::clone(&operations), Arc::clone(&jobs));
        let views = Views::new(Arc::clone(&execution));
        let orchestration = Orchestration::new(Arc::clone(&views), drivers, setup.key);
        let commands = Commands::new(orchestration);
        let background = Background::new(Arc::clone(&commands));
        let components = Arc::new(Components {
            runtime,
            operations,
            jobs,
            execution,
            views,
            commands,
            background,
        });
        let host: Arc<dyn Host> = Arc::clone(&components) as Arc<dyn Host>;
        components.execution.set_host(Arc::downgrade(&host));
        components.operations.store_own_assets(setup.assets).await?;
        components.jobs.reseal_secrets().await?;
        components.background.start().await?;
        Ok(Engine(components))
    }

    /// Stops accepting work and waits up to `grace` for runs to end. Runs that have not ended then
    /// are stopped without a record and left to recovery.
    pub async fn shutdown(&self, grace: Duration) {
        let execution = &self.0.execution;
        self.0.runtime.begin_stop();
        execution.store_progress().await;
        self.wait_for_runs(grace).await;
        execution.store_progress().await;
        let held = execution.registry.all();
        for (_, handle) in &held {
            handle.stop();
        }
        self.0.background.give_back().await;
        drop(held);
        self.wait_for_runs(STOP_GRACE).await;
        // Other processes need not wait for the end of the lease.
        let jobs = &self.0.jobs;
        if let Err(error) = jobs.store.end_lease(&jobs.process).await {
            tracing::warn!(%error, "cannot end the lease of this process");
        }
    }

    /// Returns when nothing runs, or after `time`.
    async fn wait_for_runs(&self, time: Duration) {
        let env = &self.0.runtime.env;
        let until = env.monotonic() + time;
        while self.0.execution.registry.count() > 0 {
            let left = until.saturating_sub(env.monotonic());
            if left.is_zero() {
                return;
            }
            env.sleep(left.min(STOP_POLL)).await;
        }
    }

    /// Returns the venue's DID.
    pub fn did(&self) -> &str {
        &self.0.jobs.did
    }

    /// Returns the operator's limits.
    pub fn limits(&self) -> &Limits {
        &self.0.runtime.limits
    }

    /// Returns the environment.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.0.runtime.env
    }

    /// Returns true unless the engine is shutting down. It accepts work during recovery.
    pub fn is_ready(&self) -> bool {
        !self.0.runtime.is_stopping()
    }

    /// Returns once the engine has started to shut down. Streams must end then.
    pub async fn stopping(&self) {
        self.0.runtime.stopping().await;
    }

    /// Returns what recovery has done so far.
    pub fn recovery(&self) -> RecoverySummary {
        self.0.background.recovery.borrow().clone()
    }

    /// Returns what recovery did, once it is done or the engine stops.
    pub async fn recovered(&self) -> RecoverySummary {
        let mut recovery = self.0.background.recovery.subscribe();
        tokio::select! {
            _ = recovery.wait_for(RecoverySummary::is_done) => {}
            () = self.stopping() => {}
        }
        self.recovery()
    }

    /// Returns the counters.
    pub async fn counters(&self) -> Counters {
        let Components { runtime, jobs, execution, views, .. } = &*self.0;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            invoked: load(&runtime.counters.invoked),
            ended: std::array::from_fn(|at| load(&runtime.counters.ended[at])),
            running: execution.registry.count() as u64,
            queued: views.queued_count().await.unwrap_or(0),
            messages: load(&runtime.counters.messages),
            retries: load(&runtime.counters.retries),
            watchers: jobs.watchers.count(),
        }
    }

    /// Returns the health of this process.
    pub async fn health(&self) -> Result<Health, StoreError> {
        self.0.views.health().await
    }
}

/// Operations and assets.
impl Engine {
    /// Returns the operations of all adapters, ordered by path.
    pub fn operations(&self) -> Vec<CatalogueEntry> {
        self.0.operations.entries()
    }

    /// Returns the operations of one adapter. `None` if there is no such adapter.
    pub fn adapter_operations(&self, adapter: &str) -> Option<Vec<CatalogueEntry>> {
        self.0.operations.entries_of(adapter)
    }

    /// Returns the name and description of each adapter.
    pub fn adapters(&self) -> Vec<(&'static str, &'static str)> {
        self.0.operations.adapters()
    }

    /// Resolves a reference to an operation.
    pub async fn resolve(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<Arc<Operation>, ResolveError> {
        self.0.operations.resolve(caller, reference).await
    }

    /// Registers an asset. Returns its ID, and true if an earlier request with the same idempotency
    /// key registered it.
    pub async fn register(
        &self,
        caller: &Caller,
        text: &str,
        key: Option<IdempotencyKey>,
    ) -> Result<(ValueId, bool), AssetError> {
        self.0.operations.register(caller, text, key).await
    }

    /// Returns the asset that a reference names.
    pub async fn asset(&self, caller: &Caller, reference: &str) -> Result<Asset, AssetError> {
        self.0.operations.asset(caller, reference).await
    }

    /// Returns a page of assets, ordered by ID, and the number of assets on all pages.
    pub async fn assets(
        &self,
        caller: &Caller,
        query: ListAssets,
    ) -> Result<(Vec<ListedAsset>, u64), StoreError> {
        self.0.operations.assets(caller, query).await
    }

    /// Returns the number of assets.
    pub async fn asset_count(&self) -> Result<u64, StoreError> {
        self.0.operations.asset_count().await
    }

    /// Returns an asset's content.
    pub async fn content(&self, caller: &Caller, reference: &str) -> Result<Content, AssetError> {
        self.0.operations.content(caller, reference).await
    }

    /// Starts an upload of an asset's content.
    pub async fn put_content(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<ContentUpload, AssetError> {
        self.0.operations.put_content(caller, reference).await
    }
}

/// Views of jobs.
impl Engine {
    /// Returns a job.
    pub async fn job(&self, caller: &Caller, job: JobId) -> Result<JobView, JobError> {
        self.0.views.job(caller, job).await
    }

    /// Returns a job once it has ended, or as it is after `time`.
    pub async fn wait(
        &self,
        caller: &Caller,
        job: JobId,
        time: Duration,
    ) -> Result<JobView, JobError> {
        self.0.views.wait(caller, job, time).await
    }

    /// Returns a job as soon as `is_known` does not accept it, or as it is after `time`. Changes
    /// outside the chain count too: progress and the message queue.
    pub async fn wait_for_change(
        &self,
        caller: &Caller,
        job: JobId,
        time: Duration,
        is_known: impl Fn(&JobView) -> bool,
    ) -> Result<JobView, JobError> {
        self.0.views.wait_for_change(caller, job, time, is_known).await
    }

    /// Returns a page of a job's records.
    pub async fn history(
        &self,
        caller: &Caller,
        job: JobId,
        from: u64,
        limit: usize,
    ) -> Result<HistoryPage, JobError> {
        self.0.views.history(caller, job, from, limit).await
    }

    /// Follows a job from its current record on, or from the record after `after` on.
    pub async fn follow(
        &self,
        reader: Reader<'_>,
        job: JobId,
        after: Option<u64>,
    ) -> Result<Follow, JobError> {
        self.0.views.follow(reader, job, after).await
    }

    /// Returns the summary of a job.
    pub async fn summary(&self, caller: &Caller, job: JobId) -> Result<JobSummary, JobError> {
        self.0.views.summary(caller, job).await
    }

    /// Returns the summary of a job whose view was returned before.
    pub async fn summarize(&self, view: JobView) -> Result<JobSummary, StoreError> {
        self.0.views.summarize(view).await
    }

    /// Lists jobs of the caller, or of another owner if an admin asks.
    pub async fn jobs(&self, caller: &Caller, query: &ListJobs) -> Result<JobList, StoreError> {
        self.0.views.list(caller, query).await
    }

    /// Lists jobs by their canvas status.
    pub async fn canvas_jobs(
        &self,
        caller: &Caller,
        query: &CanvasQuery,
    ) -> Result<JobList, StoreError> {
        self.0.views.list_canvas(caller, query).await
    }
}

/// Commands.
impl Engine {
    /// Invokes an operation as a job. Waits for its end for the grace period, or as requested.
    pub async fn invoke(&self, request: Invoke) -> Result<Invoked, InvokeError> {
        self.0.commands.invoke(request).await
    }

    /// Runs an operation and returns its bare output. A read-only operation creates no job.
    pub async fn run(&self, request: Invoke) -> Result<RunOutput, RunError> {
        self.0.commands.run(request).await
    }

    /// Runs a job that has ended again. An orchestration can be run from a step on.
    pub async fn rerun(
        &self,
        caller: &Caller,
        job: JobId,
        scope: impl Into<RerunScope>,
        key: Option<IdempotencyKey>,
    ) -> Result<Invoked, RerunError> {
        self.0.commands.rerun(caller, job, scope.into(), key).await
    }

    /// Pauses a job: nothing new starts until it is resumed.
    pub async fn pause(&self, caller: &Caller, job: JobId) -> Result<JobView, ControlError> {
        self.0.commands.pause(caller, job).await
    }

    /// Pauses a job if `may` accepts its status at the time of the commit.
    pub async fn pause_if(
        &self,
        caller: &Caller,
        job: JobId,
        may: impl Fn(Status) -> bool + Send + Sync + 'static,
    ) -> Result<JobView, ControlError> {
        self.0.commands.pause_if(caller, job, may).await
    }

    /// Resumes a paused job.
    pub async fn resume(&self, caller: &Caller, job: JobId) -> Result<JobView, ControlError> {
        self.0.commands.resume(caller, job).await
    }

    /// Cancels a job and its sub-jobs. A job that has ended is returned unchanged.
    pub async fn cancel(
        &self,
        caller: &Caller,
        job: JobId,
        reason: Option<String>,
    ) -> Result<JobView, ControlError> {
        self.0.commands.cancel(caller, job, reason).await
    }

    /// Deletes a job and its sub-jobs. A job that has not ended is cancelled first. Assets that it
    /// produced are kept.
    pub async fn delete(&self, caller: &Caller, job: JobId) -> Result<(), ControlError> {
        self.0.commands.delete(caller, job).await
    }

    /// Sends a message to a job.
    pub async fn send(
        &self,
        caller: &Caller,
        job: JobId,
        message: Value,
        key: Option<IdempotencyKey>,
    ) -> Result<MessageReceipt, SendError> {
        self.0.commands.send(caller, job, message, key).await
    }

    /// Schedules an operation on the caller's authority.
    pub async fn schedule(
        &self,
        caller: &Caller,
        request: NewSchedule,
    ) -> Result<Scheduled, InvokeError> {
        self.0.commands.schedule(caller, request).await
    }

    /// Removes a schedule. Returns false if the caller has none with this handle.
    pub async fn unschedule(&self, caller: &Caller, handle: &str) -> Result<bool, InvokeError> {
        self.0.commands.unschedule(caller, handle).await
    }

    /// Pauses a schedule. Returns `None` if the caller has none with this handle.
    pub async fn pause_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<Scheduled>, InvokeError> {
        self.0.commands.pause_schedule(caller, handle).await
    }

    /// Resumes a schedule that is paused or was set aside. Returns `None` if the caller has none with
    /// this handle.
    pub async fn resume_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<Scheduled>, InvokeError> {
        self.0.commands.resume_schedule(caller, handle).await
    }

    /// Returns schedules, ordered by time: those of the caller, those of another owner or, for the
    /// owner `*`, all.
    pub async fn scheduled(
        &self,
        caller: &Caller,
        owner: Option<&str>,
    ) -> Result<Vec<Scheduled>, InvokeError> {
        self.0.commands.scheduled(caller, owner).await
    }

    /// Starts a run of a schedule now, in addition to those at its times. Returns `None` if the
    /// caller has none with this handle.
    pub async fn trigger(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<JobId>, InvokeError> {
        self.0.commands.trigger(caller, handle).await
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "engine of {}", self.0.jobs.did)
    }
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
}

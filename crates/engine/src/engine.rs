//! The engine: a façade over its components, how they are put together, and how it stops.

mod executors;
mod host;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use catena_auth::KeyPair;
use catena_job::{JobId, RecordId, Status};
use catena_store::Store;
use catena_store::blob::Blobs;
use catena_value::{Value, ValueId};

use crate::background::{Background, RecoverySummary};
use crate::commands::{Commands, NamedOperation};
use crate::error::{
    AssetError, ChangeError, ControlError, ImportError, InvokeError, JobError, RerunError,
    ResolveError, RunError, SendError, StartError, StoreError, WorkerError,
};
use crate::execution::Execution;
use crate::jobs::{JOB_SECRETS_PURPOSE, Jobs, Tombstone, seal_key};
use crate::limits::Limits;
use crate::operations::{
    Adapter, Asset, CatalogueEntry, Content, ContentUpload, Failure, Host, ListAssets, ListedAsset,
    Operation, Operations, RootId, Roots,
};
use crate::operations::{NameEntry, Sharing};
use crate::orchestration::{Drivers, Orchestration, Orchestrator};
use crate::requests::{
    Admission, Beat, BeatReply, Caller, Claim, Claimed, Did, EndTurn, Ended, HistoryPage,
    IdempotencyKey, IdempotencyKeys, ImportedHistory, Invoke, Invoked, JobFilter, JobList, JobView,
    ListJobs, MessageReceipt, NewSchedule, RerunScope, RunOutput, Scheduled, WorkerCall,
};
use crate::runtime::{Aborts, Counters, Env, Reservation, Runtime};
use crate::views::{
    CanvasQuery, Events, Follow, Health, HourStats, JobSummary, Reader, RecordSearch, Views,
};

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
    /// The key that encrypted them before, if a rotation was interrupted: they are encrypted again.
    pub previous_secrets_key: Option<[u8; 32]>,
    /// The operator's limits.
    pub limits: Limits,
    /// The adapters that execute operations.
    pub adapters: Vec<Arc<dyn Adapter>>,
    /// Assets that every venue has: metadata, and content if any.
    pub assets: Vec<(Value, Option<&'static [u8]>)>,
    /// The DIDs of admins: their jobs run with their authority, also after a restart.
    pub admins: Vec<String>,
    /// What is known of the aborts of earlier processes.
    pub aborts: Aborts,
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

impl Engine {
    /// Builds the components, finds the jobs that were live, and starts the background tasks. The
    /// engine accepts work when this returns; recovery continues, see [`Engine::recovered`].
    pub async fn start(setup: Setup) -> Result<Engine, StartError> {
        let did: Did = setup.did.into();
        let identity_key = setup.key.seal_key(JOB_SECRETS_PURPOSE);
        let previous = setup.previous_secrets_key.as_ref();
        let has_previous_key = previous.is_some();
        let seal_key = seal_key(setup.secrets_key, previous, identity_key);
        let runtime = Runtime::new(setup.env, setup.limits);
        let store = Arc::clone(&setup.store);
        runtime.memory.count_store(move || store.unsettled_bytes());
        let admission = Arc::new(Admission::new(Arc::clone(&runtime), Arc::clone(&setup.store)));
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
            adapters.clone(),
        );
        let mut operations = operations.map_err(|problems| {
            let (location, problem) = problems.into_iter().next().unwrap_or_default();
            StartError::Definition(format!("{location}: {problem}"))
        })?;
        operations.key_did = setup.key.did();
        operations.signer = Some(setup.key.clone());
        let operations = Arc::new(operations);
        let drivers: Arc<Drivers> = Arc::default();
        let events = Arc::clone(&drivers) as Arc<dyn crate::jobs::DriverEvents>;
        let mut jobs = Jobs::new(Arc::clone(&runtime), setup.store, did, seal_key, events);
        jobs.admins = setup.admins;
        jobs.set_adapters(&adapters);
        jobs.environments = Arc::clone(&operations.environments);
        let jobs = Arc::new(jobs);
        let execution =
            Execution::new(Arc::clone(&runtime), Arc::clone(&operations), Arc::clone(&jobs));
        let views = Views::new(Arc::clone(&execution));
        let orchestration = Orchestration::new(Arc::clone(&views), drivers, setup.key);
        let commands = Commands::new(orchestration);
        let background = Background::new(Arc::clone(&commands), setup.aborts);
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
        components.operations.environments.load(&*components.jobs.store).await?;
        components.jobs.reseal_secrets().await?;
        components.jobs.reseal_user_secrets().await?;
        if has_previous_key {
            components.jobs.reseal_messages().await?;
        }
        components.background.start().await?;
        Ok(Engine(components))
    }

    /// Stops accepting work. Runs that have not ended after `grace` are left to recovery.
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

    /// Returns how many bytes requests and runs have reserved.
    pub fn memory_held(&self) -> u64 {
        self.0.runtime.memory.held()
    }

    /// Returns a reservation of memory for a caller, of nothing yet.
    pub fn reserve_memory(&self, caller: &Caller) -> Reservation {
        self.0.runtime.memory.open(caller.did.text())
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

    /// Returns the jobs that are suspected of aborting the process, and how often it did.
    pub fn suspects(&self) -> HashMap<JobId, u32> {
        self.0.background.suspects.all()
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

    /// Returns the statistics of the last hour: of all jobs to an admin, of their own jobs to others.
    pub async fn stats(&self, caller: &Caller) -> Result<HourStats, StoreError> {
        self.0.views.stats(caller).await
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

    /// Returns true if a reference names an operation of an adapter, which every caller can list.
    pub fn is_listed_operation(&self, reference: &str) -> bool {
        self.0.operations.is_listed(reference)
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

    /// Registers an asset. Returns its ID, and true if an earlier equal request registered it.
    pub async fn register(
        &self,
        caller: &Caller,
        text: &str,
        key: Option<IdempotencyKey>,
    ) -> Result<(ValueId, bool), AssetError> {
        self.0.operations.register(caller, text, key).await
    }

    /// Makes a definition, if any, the newest version of a name, and changes who may use the name.
    pub async fn put_name(
        &self,
        caller: &Caller,
        name: &str,
        definition: Option<&str>,
        shared: Option<Sharing>,
    ) -> Result<NamedOperation, AssetError> {
        self.0.commands.put_name(caller, name, definition, shared).await
    }

    /// Removes a name of the caller. Returns false if there is no such name.
    pub async fn remove_name(&self, caller: &Caller, name: &str) -> Result<bool, AssetError> {
        self.0.commands.remove_name(caller, name).await
    }

    /// Returns the names of the caller, in order.
    pub async fn names(&self, caller: &Caller) -> Result<Vec<(String, NameEntry)>, StoreError> {
        self.0.operations.names(&caller.did).await
    }

    /// Returns the asset that a reference names.
    pub async fn asset(&self, caller: &Caller, reference: &str) -> Result<Asset, AssetError> {
        self.0.operations.asset(caller, reference).await
    }

    /// Removes an asset. Only an admin may.
    pub async fn remove_asset(
        &self,
        caller: &Caller,
        reference: &str,
    ) -> Result<ValueId, AssetError> {
        self.0.operations.remove_asset(caller, reference).await
    }

    /// Checks that an owner may store more.
    pub async fn check_stored_bytes(&self, owner: &str) -> Result<(), StoreError> {
        self.0.operations.check_stored_bytes(owner).await
    }

    /// Returns a page of assets, ordered by ID, and the number of assets on all pages.
    pub async fn assets(
        &self,
        caller: &Caller,
        query: ListAssets,
    ) -> Result<(Vec<ListedAsset>, u64), StoreError> {
        self.0.operations.assets(caller, query).await
    }

    /// Returns the IDs of the first `limit` prompts that the caller registered, in their order.
    pub async fn prompts(&self, caller: &Caller, limit: usize) -> Result<Vec<ValueId>, StoreError> {
        self.0.operations.prompts(caller, limit).await
    }

    /// Returns the metadata of a prompt. `None` if it is none any more.
    pub async fn prompt(&self, caller: &Caller, id: &ValueId) -> Result<Option<Value>, StoreError> {
        self.0.operations.prompt(caller, id).await
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

/// Roots of users.
impl Engine {
    /// Changes roots of a caller in one commit, without a job. `change` computes the new values from
    /// the current ones; it may be called again, and what it changed is undone if it fails.
    pub async fn change_roots<T: Send + 'static>(
        &self,
        caller: &Caller,
        roots: Vec<RootId>,
        change: impl FnMut(&mut Roots) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, ChangeError> {
        self.0.commands.change_roots(caller, roots, change).await
    }

    /// Imports the history in a document and those of its sub-jobs, for reading.
    pub async fn import_history(
        &self,
        caller: &Caller,
        document: Value,
    ) -> Result<Vec<ImportedHistory>, ImportError> {
        self.0.commands.import_history(caller, document).await
    }

    /// Removes an imported history. Returns false if there is none.
    pub async fn remove_history(
        &self,
        caller: &Caller,
        venue: &str,
        job: JobId,
    ) -> Result<bool, ImportError> {
        self.0.commands.remove_history(caller, venue, job).await
    }

    /// Returns roots of a caller as they are stored, to be read.
    pub async fn roots(&self, caller: &Caller, roots: Vec<RootId>) -> Result<Roots, StoreError> {
        self.0.operations.load_all_roots(&caller.did, roots).await
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

    /// Returns a job as soon as `is_known` does not accept it, or as it is after `time`.
    pub async fn wait_for_change(
        &self,
        caller: &Caller,
        job: JobId,
        time: Duration,
        is_known: impl Fn(&JobView) -> bool,
    ) -> Result<JobView, JobError> {
        self.0.views.wait_for_change(caller, job, time, is_known).await
    }

    /// Returns the end of what a job has logged.
    pub async fn log(&self, caller: &Caller, job: JobId) -> Result<String, JobError> {
        self.0.views.log(caller, job).await
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

    /// Searches the caller's jobs for a record, newest first, from the position `after` on.
    pub async fn find_record(
        &self,
        caller: &Caller,
        record: RecordId,
        after: Option<u64>,
    ) -> Result<RecordSearch, StoreError> {
        self.0.views.find_record(caller, record, after).await
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

    /// Follows the jobs that match a filter, from now on or from a position on. `None` if the caller
    /// may not see them.
    pub async fn events(
        &self,
        caller: &Caller,
        filter: &JobFilter,
        after: Option<u64>,
    ) -> Result<Option<Events>, StoreError> {
        self.0.views.events(caller, filter, after).await
    }

    /// Lists what is left of deleted jobs of the caller, of another owner or, for the owner `*`, of all,
    /// in the order of their IDs, after `after`. The caller must be allowed to.
    pub async fn tombstones(
        &self,
        caller: &Caller,
        owner: Option<&str>,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Tombstone>, StoreError> {
        self.0.jobs.tombstones(caller, owner, after, limit).await
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

    /// Ends the turns that a worker has finished and gives it jobs, as soon as there are some.
    pub async fn claim(&self, claim: Claim) -> Result<Claimed, WorkerError> {
        self.0.commands.claim(claim).await
    }

    /// Renews the lease of a worker and returns the signals for its jobs, as soon as there is one.
    pub async fn beat(&self, beat: Beat) -> Result<BeatReply, WorkerError> {
        self.0.commands.beat(beat).await
    }

    /// Ends a turn of a worker.
    pub async fn end_turn(&self, caller: &Caller, turn: EndTurn) -> Result<Ended, WorkerError> {
        self.0.commands.end_turn(caller, turn).await
    }

    /// Makes a call for a job that a worker holds. Returns the called job, once it has ended or as it is
    /// after a time.
    pub async fn worker_call(&self, call: WorkerCall) -> Result<JobView, WorkerError> {
        self.0.commands.worker_call(call).await
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

    /// Deletes a job and its sub-jobs. A job that has not ended is cancelled first.
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

    /// Resumes a schedule. Returns `None` if the caller has none with this handle.
    pub async fn resume_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> Result<Option<Scheduled>, InvokeError> {
        self.0.commands.resume_schedule(caller, handle).await
    }

    /// Returns schedules of the caller, of another owner or, for `*`, of all, ordered by time.
    pub async fn scheduled(
        &self,
        caller: &Caller,
        owner: Option<&str>,
    ) -> Result<Vec<Scheduled>, InvokeError> {
        self.0.commands.scheduled(caller, owner).await
    }

    /// Starts a run of a schedule now. Returns `None` if the caller has none with this handle.
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

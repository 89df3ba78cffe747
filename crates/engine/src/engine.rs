//! The engine as a whole: what it is made of, how it starts and stops.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use catena_auth::{KeyPair, SealKey};
use catena_job::JobId;
use catena_store::Store;
use catena_store::blob::Blobs;
use catena_value::Value;
use tokio::sync::{Notify, Semaphore, watch};

use crate::adapter::Adapter;
use crate::admission::Admission;
use crate::caller::Did;
use crate::catalogue::Catalogue;
use crate::control::{RunControl, Signal};
use crate::counts::{Alarms, Counts};
use crate::duties;
use crate::env::{Env, Task};
use crate::error::StoreError;
use crate::federation::Identity;
use crate::hub::Hub;
use crate::idempotency::InFlight;
use crate::limits::Limits;
use crate::orchestration::Orchestrator;
use crate::orchestration::weaver::Weavers;
use crate::private::PrivateJobs;
use crate::recovery::{Leftover, RecoverySummary};
use crate::running::Running;
use crate::sealed;
use crate::waiting::Waiting;

/// What an engine is made of.
pub struct Setup {
    /// Durable memory.
    pub store: Arc<dyn Store>,
    /// Content of assets.
    pub blobs: Blobs,
    /// The world.
    pub env: Arc<dyn Env>,
    /// The venue's DID.
    pub did: String,
    /// The venue's key: it signs, and what is sealed is sealed with a key derived from it.
    pub key: KeyPair,
    /// Bounds that the operator set.
    pub limits: Limits,
    /// What carries operations out.
    pub adapters: Vec<Arc<dyn Adapter>>,
    /// Assets that every venue has: metadata, and content if any.
    pub assets: Vec<(Value, Option<&'static [u8]>)>,
}

/// A running engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) blobs: Blobs,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) did: Did,
    pub(crate) seal_key: SealKey,
    /// How this venue names itself to others.
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) catalogue: Catalogue,
    pub(crate) hub: Arc<Hub>,
    pub(crate) running: Arc<Running>,
    pub(crate) private: PrivateJobs,
    pub(crate) weavers: Weavers,
    pub(crate) admission: Admission,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) counts: Counts,
    pub(crate) alarms: Alarms,
    /// A place for every job that may run in this process at a time.
    pub(crate) slots: Arc<Semaphore>,
    /// Something was put on the queue.
    pub(crate) queued: Notify,
    /// Something was scheduled earlier than what was known.
    pub(crate) scheduled: Notify,
    /// Something was deleted.
    pub(crate) has_garbage: AtomicBool,
    /// A word that this process is known by to the store.
    pub(crate) worker: String,
    /// The control of turns that nobody can hold.
    pub(crate) free: RunControl,
    _free: watch::Sender<Signal>,
    stopping: watch::Sender<bool>,
    pub(crate) recovery: watch::Sender<RecoverySummary>,
    /// Jobs of the life before that nobody here has changed.
    pub(crate) leftover: Leftover,
    /// What waits on the queue.
    pub(crate) waiting: Waiting,
    /// When this process last showed that it lives.
    pub(crate) heartbeat: AtomicI64,
}

/// What the engine counts, since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Jobs made.
    pub invoked: u64,
    /// Jobs that ended, by status, in the order COMPLETE, FAILED, CANCELLED, REJECTED, TIMEOUT.
    pub ended: [u64; 5],
    /// Jobs that run in this process now.
    pub running: u64,
    /// Jobs that wait for their turn, as far as this process knows.
    pub queued: u64,
    /// Messages taken in.
    pub messages: u64,
    /// Tries after the first.
    pub retries: u64,
    /// Those who watch a job now.
    pub watchers: u64,
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A definition of an adapter or a demo asset is wrong.
    #[error("a definition of this venue's own is wrong: {0}")]
    Definition(String),
    /// The store could not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How long turns that are dropped may take to go.
const DROP_TIME_MAX: Duration = Duration::from_millis(500);

impl Engine {
    /// Opens the catalogue, finds what was live, and begins the duties. It takes new work when this
    /// returns; what was live is recovered meanwhile, see [`Engine::recovered`].
    pub async fn start(setup: Setup) -> Result<Engine, StartError> {
        let definition = |problems: Vec<(String, String)>| {
            let (place, problem) = problems.into_iter().next().unwrap_or_default();
            StartError::Definition(format!("{place}: {problem}"))
        };
        let mut adapters = setup.adapters;
        adapters.push(Arc::new(Orchestrator));
        let catalogue = Catalogue::new(adapters).map_err(definition)?;
        let (signal, free) = watch::channel(Signal::Go);
        let mut worker = [0; 8];
        setup.env.random(&mut worker);
        let engine = Engine(Arc::new(Inner {
            store: setup.store,
            blobs: setup.blobs,
            free: RunControl::new(free, Arc::clone(&setup.env), Arc::default()),
            _free: signal,
            did: setup.did.into(),
            seal_key: setup.key.seal_key(sealed::PURPOSE),
            identity: Identity::new(Arc::new(setup.key), Arc::clone(&setup.env)),
            slots: Arc::new(Semaphore::new(setup.limits.running_max)),
            limits: setup.limits,
            catalogue,
            hub: Arc::default(),
            running: Arc::default(),
            private: PrivateJobs::default(),
            weavers: Weavers::default(),
            admission: Admission::default(),
            in_flight: Arc::default(),
            counts: Counts::default(),
            alarms: Alarms::default(),
            queued: Notify::new(),
            scheduled: Notify::new(),
            has_garbage: AtomicBool::new(false),
            worker: format!("venue-{:016x}", u64::from_be_bytes(worker)),
            env: setup.env,
            stopping: watch::Sender::new(false),
            recovery: watch::Sender::new(RecoverySummary::default()),
            leftover: Leftover::default(),
            waiting: Waiting::default(),
            heartbeat: AtomicI64::new(0),
        }));
        engine.keep_own_assets(setup.assets).await?;
        let live = duties::recover::find(&engine).await?;
        duties::begin(&engine, live);
        Ok(engine)
    }

    /// The venue's DID.
    pub fn did(&self) -> &str {
        &self.0.did
    }

    /// The bounds.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The world.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.0.env
    }

    /// What recovery has done so far.
    pub fn recovery(&self) -> RecoverySummary {
        self.0.recovery.borrow().clone()
    }

    /// Returns when recovery is done, with what it did; or when the engine stops.
    pub async fn recovered(&self) -> RecoverySummary {
        let mut recovery = self.0.recovery.subscribe();
        tokio::select! {
            _ = recovery.wait_for(RecoverySummary::is_done) => {}
            () = self.stopping() => {}
        }
        self.recovery()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        let counts = &self.0.counts;
        let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            invoked: load(&counts.invoked),
            ended: std::array::from_fn(|at| load(&counts.ended[at])),
            running: self.0.running.count() as u64,
            queued: self.0.waiting.count(),
            messages: load(&counts.messages),
            retries: load(&counts.retries),
            watchers: self.0.hub.watchers(),
        }
    }

    /// Whether it takes work: it is not shutting down. It does so while recovery is under way.
    pub fn is_ready(&self) -> bool {
        !self.is_stopping()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.0.stopping.borrow()
    }

    /// Returns when the engine began to shut down: streams close then.
    pub async fn stopping(&self) {
        let mut stopping = self.0.stopping.subscribe();
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Stops taking work, and lets what runs come to an end for a time. What then still runs is
    /// dropped and left to recovery: nothing of it is written down.
    pub async fn shutdown(&self, grace: Duration) {
        self.0.stopping.send_replace(true);
        self.keep_progress().await;
        self.all_ended(grace).await;
        self.keep_progress().await;
        self.release_leases().await;
        for (_, reins) in self.0.running.all() {
            reins.signal(Signal::Stop);
        }
        self.all_ended(DROP_TIME_MAX).await;
    }

    /// Returns when nothing runs any more, or after a time.
    async fn all_ended(&self, time: Duration) {
        let until = self.0.env.monotonic() + time;
        while self.0.running.count() > 0 {
            let left = until.saturating_sub(self.0.env.monotonic());
            if left.is_zero() {
                return;
            }
            self.0.env.sleep(left.min(Duration::from_millis(10))).await;
        }
    }

    /// A new job ID.
    pub(crate) fn new_id(&self) -> JobId {
        let mut random = [0; 10];
        self.0.env.random(&mut random);
        JobId::new(u64::try_from(self.now()).unwrap_or(0), random)
    }

    pub(crate) fn now(&self) -> i64 {
        self.0.env.now()
    }

    /// Does something to its end even when whoever asked for it goes away meanwhile: a change of a
    /// job must not stay half done. Nothing begins before it is awaited.
    pub(crate) fn surely<T: 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Surely<T> {
        Surely { work: Some(Box::pin(work)), has_begun: false, engine: self.clone() }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task: Task = Box::pin(task);
        self.0.env.spawn(task);
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "engine of {}", self.0.did)
    }
}

/// Work that somebody waits for. When they stop waiting in the middle, it goes on by itself.
pub(crate) struct Surely<T: 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    has_begun: bool,
    engine: Engine,
}

impl<T> Future for Surely<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.has_begun = true;
        let Some(work) = &mut self.work else { return Poll::Pending };
        let result = ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(result)
    }
}

impl<T> Drop for Surely<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take().filter(|_| self.has_begun) {
            self.engine.spawn(async move { drop(work.await) });
        }
    }
}

//! The engine as a whole: what it is made of, and everything that can be asked of it.

use std::sync::Arc;
use std::time::Duration;

use catena_auth::KeyPair;
use catena_job::JobId;
use catena_store::Store;
use catena_store::blob::Blobs;
use catena_value::Value;

use crate::adapter::Adapter;
use crate::caller::Caller;
use crate::env::Env;
use crate::error::*;
use crate::follow::{Follow, Reader};
use crate::limits::Limits;
use crate::request::*;

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

pub(crate) struct Inner {}

/// What recovery did when the venue started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoverySummary {
    /// Live jobs looked at.
    pub scanned: u64,
    /// Put back on the queue.
    pub requeued: u64,
    /// Failed.
    pub failed: u64,
    /// Left as they were.
    pub skipped: u64,
    /// How long it took.
    pub took: Duration,
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

impl Engine {
    /// Opens the catalogue, recovers what was running, and begins the duties.
    pub async fn start(setup: Setup) -> Result<Engine, StoreTrouble> { unimplemented!() }
    /// The venue's DID.
    pub fn did(&self) -> &str { unimplemented!() }
    /// The bounds.
    pub fn limits(&self) -> &Limits { unimplemented!() }
    /// The world.
    pub fn env(&self) -> &Arc<dyn Env> { unimplemented!() }
    /// What recovery did.
    pub fn recovery(&self) -> RecoverySummary { unimplemented!() }
    /// What was counted.
    pub fn counters(&self) -> Counters { unimplemented!() }
    /// Whether it takes work: it is started, not shutting down, and the store takes writes.
    pub fn is_ready(&self) -> bool { unimplemented!() }

    /// Makes a job of an operation. Waits for its end for a grace, or as long as asked.
    pub async fn invoke(&self, request: Invoke) -> Result<Invoked, InvokeError> { unimplemented!() }
    /// Carries out an operation and gives its bare output. Of a read-only operation it makes no
    /// job. `request.wait` bounds the wait ([`crate::limits::WAIT_MAX`] when not said).
    pub async fn run(&self, request: Invoke) -> Result<Ran, RunError> { unimplemented!() }

    /// A job.
    pub async fn job(&self, caller: &Caller, id: JobId) -> Result<JobView, JobError> { unimplemented!() }
    /// A job after it changed from what somebody knew, or ended, or a time passed.
    pub async fn wait(&self, caller: &Caller, id: JobId, time: Duration) -> Result<JobView, JobError> { unimplemented!() }
    /// Records of a job.
    pub async fn history(&self, caller: &Caller, id: JobId, from: u64, limit: usize) -> Result<HistoryPage, JobError> { unimplemented!() }
    /// Jobs of the caller.
    pub async fn jobs(&self, caller: &Caller, query: &ListJobs) -> Result<JobList, StoreTrouble> { unimplemented!() }
    /// Everything that happens to a job from now on, or from after a record on.
    pub async fn follow(&self, reader: Reader<'_>, id: JobId, after: Option<u64>) -> Result<Follow, JobError> { unimplemented!() }

    /// Suspends a job.
    pub async fn pause(&self, caller: &Caller, id: JobId) -> Result<JobView, ControlError> { unimplemented!() }
    /// Lets a paused job go on.
    pub async fn resume(&self, caller: &Caller, id: JobId) -> Result<JobView, ControlError> { unimplemented!() }
    /// Ends a job. One that has ended is given as it is.
    pub async fn cancel(&self, caller: &Caller, id: JobId, reason: Option<String>) -> Result<JobView, ControlError> { unimplemented!() }
    /// Forgets a job and its sub-jobs, after cancelling it if need be.
    pub async fn delete(&self, caller: &Caller, id: JobId) -> Result<(), ControlError> { unimplemented!() }
    /// Sends a job a message.
    pub async fn send(&self, caller: &Caller, id: JobId, message: Value, key: Option<IdempotencyKey>) -> Result<Sent, SendError> { unimplemented!() }

    /// Stops taking work, lets what runs come to an end for a time, and answers all who wait.
    pub async fn shutdown(&self, grace: Duration) { unimplemented!() }
    /// Returns when the engine began to shut down: streams close then.
    pub async fn stopping(&self) { unimplemented!() }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("engine")
    }
}

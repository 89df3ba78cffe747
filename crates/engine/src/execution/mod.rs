//! Execution: what runs in this process, and how a running job is controlled.
//!
//! A job that runs here has a [`RunHandle`] in the [`RunRegistry`] from before the commit that
//! makes it STARTED until after the commit that makes it wait or end, so that a pause or a cancel
//! always finds a run to signal. Orchestrations rank above this folder; a run whose operation is a
//! plan is handed to them through [`PlanRunner`].

mod end;
mod inbox;
mod private;
mod progress;
mod record;
mod registry;
mod run;

use std::sync::{Arc, OnceLock, Weak};

use catena_job::{Job, JobId};
use catena_store::{Effect, Effects};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::jobs::Jobs;
use crate::operations::{Call, Cause, Host, Operation, Operations, RunControl, Signal};
use crate::requests::Invoke;
use crate::runtime::{Runtime, Task};

pub(crate) use end::open_children;
pub(crate) use private::PrivateJobs;
pub(crate) use progress::step_progress;
pub(crate) use record::{TurnPosition, paused_member};
pub(crate) use registry::{RunGuard, RunHandle, RunRegistry};
pub(crate) use run::{Run, RunSpec, require_output};

/// The queue of jobs that this venue's own adapters run.
pub(crate) const QUEUE: &str = "venue";

/// The priority of jobs on it.
const PRIORITY: u8 = 0;

/// Runs jobs whose operation is a plan. The orchestrations, which rank above this folder, implement
/// it.
pub(crate) trait PlanRunner: Send + Sync {
    /// Continues an orchestration that no driver in this process runs.
    fn resume(self: Arc<Self>, run: Run) -> Task;

    /// Cancels the open remote steps of a job that has ended and has no driver in this process.
    fn cancel_unfollowed(self: Arc<Self>, job: Arc<Job>) -> Task;
}

/// What runs in this process.
pub(crate) struct Execution {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) registry: Arc<RunRegistry>,
    pub(crate) private: PrivateJobs,
    /// One permit for every job that may run in this process at a time.
    pub(crate) slots: Arc<Semaphore>,
    /// Notified when a job was queued.
    pub(crate) queued: Notify,
    /// The name of this process in the store.
    pub(crate) process: String,
    /// The control of turns that cannot be paused.
    pub(crate) unpaused: RunControl,
    _unpaused: watch::Sender<Signal>,
    host: OnceLock<Weak<dyn Host>>,
    plans: OnceLock<Weak<dyn PlanRunner>>,
}

impl Execution {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        operations: Arc<Operations>,
        jobs: Arc<Jobs>,
    ) -> Arc<Self> {
        let (sender, signal) = watch::channel(Signal::Go);
        let mut name = [0; 8];
        runtime.env.random(&mut name);
        Arc::new(Execution {
            operations,
            jobs,
            registry: Arc::default(),
            private: PrivateJobs::default(),
            slots: Arc::new(Semaphore::new(runtime.limits.running_max)),
            queued: Notify::new(),
            process: format!("venue-{:016x}", u64::from_be_bytes(name)),
            unpaused: RunControl::new(signal, Arc::clone(&runtime.env), Arc::default()),
            _unpaused: sender,
            host: OnceLock::new(),
            plans: OnceLock::new(),
            runtime,
        })
    }

    /// Sets what adapters can reach the venue through. It is a weak reference because the host owns
    /// this component.
    pub(crate) fn set_host(&self, host: Weak<dyn Host>) {
        let _ = self.host.set(host);
    }

    /// Sets what runs plans. It is a weak reference because that owns this component.
    pub(crate) fn set_plan_runner(&self, plans: Weak<dyn PlanRunner>) {
        let _ = self.plans.set(plans);
    }

    /// Returns the host of adapters. `None` if the engine was dropped.
    pub(crate) fn host(&self) -> Option<Arc<dyn Host>> {
        self.host.get()?.upgrade()
    }

    fn plan_runner(&self) -> Option<Arc<dyn PlanRunner>> {
        self.plans.get()?.upgrade()
    }

    /// Returns the call of a turn that cannot be paused. `None` if the engine was dropped.
    pub(crate) fn unpaused_call(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        job: Option<JobId>,
    ) -> Option<Call> {
        Some(Call {
            host: self.host()?,
            operation,
            caller: request.caller.clone(),
            job,
            input: request.input.clone(),
            cause: Cause::Start,
            attempt: 1,
            last_output: None,
            control: self.unpaused.clone(),
        })
    }

    /// Claims a slot, if one is free.
    pub(crate) fn try_claim_slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Notifies the claimers that a job was queued.
    pub(crate) fn notify_queued(&self, job: &Job) {
        if self.registry.get(job.id()).is_none() {
            self.jobs.queue_stats.add(job, PRIORITY, self.runtime.now());
        }
        self.queued.notify_one();
    }
}

/// Returns the effect that queues a job. `ready_at` is Unix time in ms.
pub(crate) fn offer(job: JobId, ready_at: i64) -> Effect {
    Effect::Enqueue { job, queue: QUEUE.to_owned(), priority: PRIORITY, ready_at }
}

impl Execution {
    /// Sets the end of the leases of all runs in this process, as Unix time in ms. A lease that
    /// belongs to another process by now is left to the fence: its outcome will be refused.
    pub(crate) async fn set_lease_end(&self, until: i64) {
        for (job, fence) in self.registry.leased() {
            let effect = Effect::RenewLease { job, fence, until };
            drop(self.jobs.store.commit(Effects::one(effect)).await);
        }
    }
}

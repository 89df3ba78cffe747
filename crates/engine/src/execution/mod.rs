//! Execution: what runs in this process, and how a running job is controlled.
//!
//! The store says which process holds a job. A job that runs here has a [`RunHandle`] in the
//! [`RunRegistry`] from before the commit that acquires it until after the commit that releases it,
//! so that a pause or a cancel always finds a run to signal. Orchestrations rank above this folder;
//! a run whose operation is a plan is handed to them through [`PlanRunner`].

mod calls;
mod cause;
mod control;
mod inbox;
mod peers;
mod private;
mod progress;
mod record;
mod registry;
mod run;

use std::sync::{Arc, OnceLock, Weak};

use catena_job::{Job, JobId};
use catena_store::Effect;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::jobs::{Draft, Jobs};
use crate::operations::{Call, Cause, Host, Operation, Operations, RunControl, Signal};
use crate::requests::Invoke;
use crate::runtime::{Runtime, Task};

pub(crate) use cause::next_cause;
pub(crate) use control::{ControlAction, ControlRequest, Descend, PendingControl, open_sub_jobs};
pub(crate) use private::PrivateJobs;
pub(crate) use progress::step_progress;
pub(crate) use record::{PausedTurn, paused_member};
pub(crate) use registry::{FrozenRuns, RunGuard, RunHandle, RunRegistry};
pub(crate) use run::{Run, RunSpec, require_output};

/// The queue of jobs that this venue's own adapters run.
pub(crate) const QUEUE: &str = "venue";

/// The priority of jobs on it.
const PRIORITY: u8 = 0;

/// Runs jobs whose operation is a plan. The orchestrations, which rank above this folder, implement
/// it.
pub(crate) trait PlanRunner: Send + Sync {
    /// Continues an orchestration that this process has acquired.
    fn resume(self: Arc<Self>, run: Run) -> Task;

    /// Makes sure that an orchestration that has something to do is driven by some process.
    fn drive(self: Arc<Self>, job: JobId) -> Task;

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
    pub(crate) frozen: FrozenRuns,
    /// One permit for every job that may run in this process at a time.
    pub(crate) slots: Arc<Semaphore>,
    /// Notified when a job was queued.
    pub(crate) queued: Notify,
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
        Arc::new(Execution {
            operations,
            jobs,
            registry: Arc::default(),
            private: PrivateJobs::default(),
            frozen: FrozenRuns::default(),
            slots: Arc::new(Semaphore::new(runtime.limits.running_max)),
            queued: Notify::new(),
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

    pub(crate) fn plan_runner(&self) -> Option<Arc<dyn PlanRunner>> {
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

    /// Makes this process the holder of a job with a draft that is not committed yet, and registers
    /// the run.
    pub(crate) fn acquire(&self, draft: &mut Draft) -> RunGuard {
        let fence = draft.acquire(&self.jobs.process);
        self.registry.register(draft.job().id(), fence)
    }

    /// Notifies the task that starts queued jobs, here and in other processes.
    pub(crate) fn notify_queued(&self) {
        self.queued.notify_one();
        self.jobs.store.send_hint(&self.jobs.process, catena_store::Hint::Queued);
    }
}

/// Returns the effect that queues a job. `ready_at` is Unix time in ms.
pub(crate) fn offer(job: JobId, ready_at: i64) -> Effect {
    Effect::Enqueue { job, queue: QUEUE.to_owned(), priority: PRIORITY, ready_at }
}

//! Execution: what runs in this process, and how a running job is controlled.
//!
//! The store says which process holds a job. A job that runs here has a [`RunHandle`] in the
//! [`RunRegistry`] from before the commit that acquires it until after the commit that releases it,
//! so that a pause or a cancel always finds a run to signal. Orchestrations rank above this folder;
//! a run whose operation is a plan is handed to them through [`PlanRunner`].

mod calls;
mod cause;
mod control;
pub(crate) mod finish;
mod inbox;
mod peers;
mod private;
mod progress;
mod record;
mod registry;
mod roots;
mod run;
mod secrets;
mod slots;
pub(crate) mod workers;

use std::sync::{Arc, OnceLock, Weak};

use catena_job::{Job, JobId};
use catena_store::{Effect, Hint};
use tokio::sync::Notify;

use crate::execution::workers::sessions::Workers;
use crate::jobs::{CancelJobs, Draft, Jobs, RootChanges};
use crate::operations::{
    Call, Cause, Host, Operation, Operations, PRIORITY, RunControl, SignalSender, head_start,
    lane_of,
};
use crate::requests::Invoke;
use crate::runtime::{Runtime, Task};

pub(crate) use crate::operations::QUEUE;
pub(crate) use calls::ask_like_call;
pub(crate) use cause::next_cause;
pub(crate) use control::{
    ControlAction, ControlRequest, Descend, PendingControl, TreePosition, is_resumed_by_notice,
    is_unclaimed, open_sub_jobs,
};
pub(crate) use private::PrivateJobs;
pub(crate) use progress::step_progress;
pub(crate) use record::{PausedTurn, TurnOutcome, paused_member};
pub(crate) use registry::{FrozenRuns, RunGuard, RunHandle, RunRegistry};
pub(crate) use run::{Run, RunSpec, require_output};
pub(crate) use slots::{RunSlot, Slots};

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
    pub(crate) roots: Arc<RootChanges>,
    pub(crate) registry: Arc<RunRegistry>,
    pub(crate) private: PrivateJobs,
    pub(crate) frozen: FrozenRuns,
    /// The jobs that workers hold, and the queues from which they claim.
    pub(crate) workers: Workers,
    /// How many jobs run in this process at a time.
    pub(crate) slots: Slots,
    /// The slots of jobs that control others.
    control_slots: Slots,
    /// Notified when a job was queued.
    pub(crate) queued: Arc<Notify>,
    /// The control of turns that cannot be paused.
    pub(crate) unpaused: RunControl,
    _unpaused: SignalSender,
    host: OnceLock<Weak<dyn Host>>,
    plans: OnceLock<Weak<dyn PlanRunner>>,
}

impl Execution {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        operations: Arc<Operations>,
        jobs: Arc<Jobs>,
    ) -> Arc<Self> {
        let sender = SignalSender::default();
        let signal = sender.subscribe();
        let execution = Arc::new(Execution {
            operations,
            roots: RootChanges::new(Arc::clone(&jobs)),
            queued: Arc::clone(&jobs.queued),
            jobs,
            registry: Arc::default(),
            private: PrivateJobs::default(),
            frozen: FrozenRuns::default(),
            workers: Workers::default(),
            slots: Slots::new(runtime.limits.running_max),
            control_slots: Slots::for_control(),
            unpaused: RunControl::new(signal, Arc::clone(&runtime.env), Arc::default()),
            _unpaused: sender,
            host: OnceLock::new(),
            plans: OnceLock::new(),
            runtime,
        });
        let own: Arc<dyn CancelJobs> = Arc::clone(&execution) as Arc<dyn CancelJobs>;
        execution.roots.set_canceller(Arc::downgrade(&own));
        execution
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
            depth: request.depth,
            input: request.input.clone(),
            cause: Cause::Start,
            attempt: 1,
            last_output: None,
            control: self.unpaused.clone(),
            prepared: None,
        })
    }

    /// Claims a slot for a job of this owner, if one is free that the owner may have and work may start.
    pub(crate) fn try_claim_slot(&self, owner: &str) -> Option<RunSlot> {
        if !self.runtime.gate.is_open() {
            return None;
        }
        self.slots.try_claim(owner)
    }

    /// Claims a slot for this job, which may be one that runs alone.
    pub(crate) fn try_claim_slot_of(
        &self,
        job: JobId,
        owner: &str,
        operation: &Operation,
    ) -> Option<RunSlot> {
        if !self.runtime.gate.lets_start(job) {
            return None;
        }
        self.try_claim_control_slot(owner, operation).or_else(|| self.slots.try_claim(owner))
    }

    /// Claims a slot that only jobs which control others may have. `None` for all other operations.
    pub(crate) fn try_claim_control_slot(
        &self,
        owner: &str,
        operation: &Operation,
    ) -> Option<RunSlot> {
        operation.controls_jobs().then(|| self.control_slots.try_claim(owner)).flatten()
    }

    /// Makes this process the holder of a job with a draft that is not committed yet, and registers
    /// the run.
    pub(crate) fn acquire(&self, draft: &mut Draft) -> RunGuard {
        let fence = draft.acquire(&self.jobs.process);
        self.registry.register(draft.job().id(), fence)
    }

    /// Notifies whoever starts queued jobs that one was queued, here and in other processes.
    pub(crate) fn notify_queued(&self, job: &Job) {
        let queue = lane_of(job);
        match &queue {
            Some(lane) => self.workers.queues.notify(lane),
            None => self.queued.notify_one(),
        }
        if self.jobs.store.has_peers() {
            let queue = queue.unwrap_or_else(|| QUEUE.to_owned());
            self.jobs.store.send_hint(&self.jobs.process, Hint::Queued { queue });
        }
    }
}

/// Returns the effect that queues a job that may run at once: for this venue, or for the workers of its
/// queue, where its priority gives it a head start.
pub(crate) fn offer_now(job: &Job, now: i64) -> Effect {
    offer(job, now.saturating_sub(head_start(job)))
}

/// Returns the effect that queues a job until a time. `ready_at` is Unix time in ms.
pub(crate) fn offer(job: &Job, ready_at: i64) -> Effect {
    let queue = lane_of(job).unwrap_or_else(|| QUEUE.to_owned());
    Effect::Enqueue { job: job.id(), queue, priority: PRIORITY, ready_at }
}

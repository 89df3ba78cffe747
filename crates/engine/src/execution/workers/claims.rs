//! Selecting jobs for a worker, and the runs of jobs that workers hold.

use std::sync::Arc;
use std::time::Duration;

use catena_job::{Job, JobId, Status};
use catena_store::{Effect, Effects, Holder};
use catena_value::Value;
use parking_lot::Mutex;

use super::queues::{Admission, Queue, Reservation, RunningSlot, Visit};
use super::sessions::{WorkerSession, WorkerSink};
use super::slots::OwnerSlot;
use crate::error::{ResolveError, StoreError};
use crate::execution::{Execution, RunGuard, RunHandle, offer};
use crate::jobs::{Current, milliseconds, unless_overtaken};
use crate::operations::{
    Operation, QUEUE_NAME, QueueOwner, QueueSpec, is_pushed, queue_owner, split_lane,
};
use crate::requests::Caller;

/// How long a job stays on the queue whose operation this process does not have.
const UNKNOWN_OPERATION_DELAY: Duration = Duration::from_secs(30);

/// A job to claim.
pub(crate) struct Picked {
    pub(crate) current: Current,
    pub(crate) operation: Arc<Operation>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) slot: RunningSlot,
    /// The slot of an executor.
    pub(crate) owner_slot: Option<OwnerSlot>,
    /// Prevents other claims of the job until the commit.
    pub(crate) reservation: Reservation,
}

impl Execution {
    /// Selects up to `max` jobs of a queue that may start now. Callers take turns. With `share`, none of
    /// them gets more slots of executors than that.
    pub(crate) async fn pick_jobs(
        &self,
        queue: &Arc<Queue>,
        max: usize,
        share: Option<usize>,
    ) -> Result<Vec<Picked>, StoreError> {
        let _selecting = queue.selecting.lock().await;
        let mut picked = Vec::new();
        let mut visits = queue.active(self.runtime.now());
        while picked.len() < max && visits > 0 {
            let now = self.runtime.now();
            let Some(visit) = queue.next_lane(now) else { break };
            let left = share.map_or(usize::MAX, |share| {
                let caller = split_lane(&visit.lane).map_or("", |(_, caller)| caller);
                share.saturating_sub(self.workers.slots.used_by(caller))
            });
            let turn = (max / visit.callers).max(1).min(max - picked.len()).min(left);
            let found = if turn == 0 {
                0
            } else {
                self.pick_from_lane(queue, &visit, turn, now, &mut picked).await?
            };
            // A lane that had something may have more; the others are visited first.
            visits = if found > 0 { queue.active(self.runtime.now()) } else { visits - 1 };
        }
        Ok(picked)
    }

    async fn pick_from_lane(
        &self,
        queue: &Arc<Queue>,
        visit: &Visit,
        share: usize,
        now: i64,
        picked: &mut Vec<Picked>,
    ) -> Result<usize, StoreError> {
        let ready = self.jobs.store.ready(&visit.lane, now, visit.reserved + share).await?;
        if ready.jobs.is_empty() {
            match ready.next {
                Some(at) => queue.defer(visit, at),
                None => queue.forget(visit),
            }
            return Ok(0);
        }
        let mut found = 0;
        for job in ready.jobs {
            if found == share {
                break;
            }
            let Some(reservation) = queue.reserve(&visit.lane, job) else { continue };
            let Some(current) = self.jobs.current(job).await? else { continue };
            let Some(operation) = self.operation_to_claim(&current).await? else { continue };
            let Some(spec) = operation.queue() else { continue };
            let (running_group, rate_group) = groups(spec, &current)?;
            match queue.admit(spec, (&running_group, &rate_group), now) {
                Admission::Admitted(slot) => {
                    let queue = Arc::clone(queue);
                    let owner_slot = self.owner_slot(spec, &current);
                    picked.push(Picked {
                        current,
                        operation,
                        queue,
                        slot,
                        owner_slot,
                        reservation,
                    });
                    found += 1;
                }
                Admission::Full => {
                    queue.block(visit, spec, &running_group);
                    break;
                }
                Admission::NotBefore(at) => {
                    queue.defer(visit, at);
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Counts the slot that a job uses, if executors run it.
    fn owner_slot(&self, spec: &QueueSpec, current: &Current) -> Option<OwnerSlot> {
        let is_executed = spec.owner == QueueOwner::Venue;
        is_executed.then(|| self.workers.slots.take(current.text("caller")))
    }

    /// Returns the operation of a queued job. `None` if this process does not have it: the job is
    /// offered again later.
    pub(crate) async fn operation_to_claim(
        &self,
        current: &Current,
    ) -> Result<Option<Arc<Operation>>, StoreError> {
        match self.operations.operation_of(&current.job).await {
            Ok(operation) => Ok(Some(operation)),
            Err(ResolveError::Store(error)) => Err(error),
            Err(reason) => {
                let job = current.job.id();
                tracing::warn!(%job, %reason, "a queued job has no operation at this venue");
                let later = self.runtime.now() + milliseconds(UNKNOWN_OPERATION_DELAY);
                let effects = Effects::one(offer(&current.job, later));
                unless_overtaken(self.jobs.store.commit(effects).await)?;
                Ok(None)
            }
        }
    }

    /// Takes a job off its queue that need not be there.
    pub(crate) async fn withdraw(&self, job: JobId) -> Result<(), StoreError> {
        let effects = Effects::one(Effect::Dequeue { job });
        unless_overtaken(self.jobs.store.commit(effects).await).map(drop)
    }

    /// Renews the lease of a worker. Returns when it ends, as Unix time in ms.
    pub(crate) async fn renew_worker_lease(&self, worker: &Holder) -> Result<i64, StoreError> {
        let now = self.runtime.now();
        let until = now + milliseconds(self.runtime.limits.worker_lease);
        let earlier = self.workers.leases.lock().insert(worker.key(), until);
        if earlier.is_none_or(|earlier| earlier <= now) {
            self.workers.begun.lock().push(worker.key());
        }
        self.jobs.store.renew_worker_lease(worker, until).await?;
        Ok(until)
    }

    /// Registers a job that a worker is about to hold under a fence.
    pub(crate) fn register_worker_run(
        &self,
        session: &WorkerSession,
        job: JobId,
        fence: u64,
        counted: (Arc<Queue>, String, Option<RunningSlot>, Option<OwnerSlot>),
    ) -> RunGuard {
        let (queue, group, slot, owner_slot) = counted;
        let sink = WorkerSink {
            worker: session.holder.key(),
            signalled: Arc::clone(&session.signalled),
            queue,
            group,
            slot: Mutex::new(slot),
            owner_slot: owner_slot.map(Mutex::new),
        };
        let guard = self.registry.register_with(job, fence, Some(Arc::new(sink)));
        // The clock of the job is its deadline in the store.
        guard.handle.leave_time_to_store();
        guard
    }

    /// Returns the handle of a job that a worker of this caller holds under a fence, as the store says.
    /// `None` if it does not: the request comes too late.
    pub(crate) async fn worker_run(
        self: &Arc<Self>,
        caller: &Caller,
        job: JobId,
        fence: u64,
    ) -> Result<Option<(Arc<WorkerSession>, Arc<RunHandle>)>, StoreError> {
        let Some(current) = self.jobs.current(job).await? else { return Ok(None) };
        self.adopt_worker_run(caller, &current, fence).await
    }

    /// Does the same for a job that was read already.
    pub(crate) async fn adopt_worker_run(
        self: &Arc<Self>,
        caller: &Caller,
        current: &Current,
        fence: u64,
    ) -> Result<Option<(Arc<WorkerSession>, Arc<RunHandle>)>, StoreError> {
        let holder = worker_of(current).filter(|holder| holder.is_worker_of(&caller.did));
        let Some(holder) = holder else { return Ok(None) };
        let is_current = current.hold.fence == fence && !current.job.status().is_terminal();
        let is_allowed = caller.held.is_none_or(|held| held.fence == fence);
        if !is_current || !is_allowed || !may_work_on(caller, &current.job) {
            return Ok(None);
        }
        let session = self.workers.session(&holder);
        if let Some(handle) = session.touch(current.job.id(), fence, self.runtime.now()) {
            return Ok(Some((session, handle)));
        }
        let handle = self.register_adopted(&session, current).await?;
        Ok(handle.map(|handle| (session, handle)))
    }

    /// Makes sure that a job that a worker holds has a run handle here, so that it is missed if the
    /// worker does not mention it.
    pub(crate) async fn track_worker_run(&self, current: &Current) -> Result<(), StoreError> {
        let Some(holder) = worker_of(current) else { return Ok(()) };
        let session = self.workers.session(&holder);
        let is_live = !current.job.status().is_terminal() && current.is_held();
        if is_live && !session.has(current.job.id(), current.hold.fence) {
            self.register_adopted(&session, current).await?;
        }
        Ok(())
    }

    /// Registers the run of a job that a worker got from an earlier start of this process, or from
    /// another one. The limit of its attempt is counted from now on.
    async fn register_adopted(
        &self,
        session: &WorkerSession,
        current: &Current,
    ) -> Result<Option<Arc<RunHandle>>, StoreError> {
        let (job, fence, now) = (current.job.id(), current.hold.fence, self.runtime.now());
        let Some(queue) = current.job.field(QUEUE_NAME).and_then(Value::as_str) else {
            return Ok(None);
        };
        let queue = self.workers.queues.get(queue);
        let operation = self.operations.operation_of(&current.job).await.ok();
        let spec = operation.as_ref().and_then(|operation| operation.queue());
        let group = match spec {
            Some(spec) => groups(spec, current)?.0,
            None => String::new(),
        };
        let owner_slot = spec.and_then(|spec| self.owner_slot(spec, current));
        let attempt = operation.and_then(|operation| operation.retry()?.timeout);
        let is_paused = current.job.status() == Status::Paused;
        let slot = (!is_paused).then(|| queue.count_running(&group));
        let counted = (queue, group, slot, owner_slot);
        let given = self.jobs.given_secrets(&current.job).await?;
        let guard = self.register_worker_run(session, job, fence, counted);
        given.iter().for_each(|secret| guard.handle.secrets.add(secret));
        if is_paused {
            guard.handle.pause(&*self.runtime.env);
        }
        let handle = Arc::clone(&guard.handle);
        let owner = current.text("caller");
        session.add((job, owner), guard, now, attempt.map(|limit| now + milliseconds(limit)));
        Ok(Some(handle))
    }
}

/// Returns the worker that runs a job: its holder, or the receiver of a job that this venue is sending.
/// `None` if no worker does.
pub(crate) fn worker_of(current: &Current) -> Option<Holder> {
    let holder = current.hold.holder.as_ref()?;
    if holder.is_worker() {
        return Some(holder.clone());
    }
    let owner = queue_owner(&current.job).filter(|_| is_pushed(&current.job))?;
    Some(Holder::receiver(owner, current.job.id()))
}

/// Returns true if a caller may run the jobs of the queue that a job is on.
pub(crate) fn may_work_on(caller: &Caller, job: &Job) -> bool {
    let queue = job.field(QUEUE_NAME).and_then(Value::as_str).unwrap_or_default();
    let (owner, name) = queue.rsplit_once('/').unwrap_or_default();
    let is_allowed = match caller.held {
        Some(held) => held.job == job.id(),
        None => caller.may_claim(name),
    };
    *caller.did == *owner && is_allowed
}

/// Returns what a job counts as for the limit and for the rate of its queue.
pub(crate) fn groups(spec: &QueueSpec, current: &Current) -> Result<(String, String), StoreError> {
    if spec.limit.is_none() && spec.rate.is_none() {
        return Ok(Default::default());
    }
    let input = current.member("input")?.unwrap_or_default();
    Ok((spec.running_group(&input), spec.rate_group(&input)))
}

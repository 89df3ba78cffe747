//! The workers that this process has heard of, and the jobs that they hold.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_store::{Holder, HolderKey, ProcessLease};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::queues::{Queue, Queues, RunningSlot};
use super::slots::{Announced, ExecutorSlots, OwnerSlot};
use crate::execution::registry::{RunGuard, RunHandle, SignalSink, half_of};
use crate::jobs::milliseconds;
use crate::operations::Signal;
use crate::requests::{AnnouncedExecutor, ConnectedExecutor, WorkerSignal};
use crate::runtime::{Env, Runtime};

/// How long the end of a lease is remembered: longer than the recovery of what the worker held takes.
const LEASE_REMEMBERED: Duration = Duration::from_secs(3_600);

/// The workers that this process has heard of, and the queues from which they claim.
#[derive(Default)]
pub(crate) struct Workers {
    pub(crate) queues: Queues,
    sessions: Mutex<HashMap<HolderKey, Arc<WorkerSession>>>,
    /// When the last known lease of each worker ends, as Unix time in ms.
    pub(super) leases: Mutex<HashMap<HolderKey, i64>>,
    /// The slots of executors.
    pub(super) slots: Arc<ExecutorSlots>,
    /// Workers whose lease has begun since the last check of leases: it may be over by the next one.
    pub(super) begun: Mutex<Vec<HolderKey>>,
}

/// What one worker holds, as far as this process knows.
pub(crate) struct WorkerSession {
    pub(crate) holder: Holder,
    jobs: Mutex<HashMap<JobId, WorkerJob>>,
    /// Notified when a job of the worker was signalled.
    pub(crate) signalled: Arc<Notify>,
}

/// A job that a worker holds.
pub(crate) struct WorkerJob {
    guard: RunGuard,
    /// Whose job it is.
    owner: String,
    /// When the worker last said that it has the job, as Unix time in ms.
    seen: i64,
    /// When the attempt exceeds its own limit, as Unix time in ms.
    attempt_until: Option<i64>,
    /// When progress was last stored, as monotonic time.
    progress_stored: Option<Duration>,
    /// What the worker was last told.
    told: Signal,
}

impl Workers {
    /// Returns what is known of a worker.
    pub(crate) fn session(&self, holder: &Holder) -> Arc<WorkerSession> {
        let mut sessions = self.sessions.lock();
        let session = sessions.entry(holder.key()).or_insert_with(|| {
            Arc::new(WorkerSession {
                holder: holder.clone(),
                jobs: Mutex::default(),
                signalled: Arc::default(),
            })
        });
        Arc::clone(session)
    }

    /// Notes what an executor says about itself.
    pub(crate) fn announce(&self, holder: &Holder, executor: AnnouncedExecutor, now: i64) {
        self.slots.announce(holder, executor, &self.leases.lock(), now);
    }

    /// Returns the executors that are connected, by name, with the number of jobs that they run: those of
    /// one owner if there is one. `lease` is the time for which a lease is renewed.
    pub(crate) fn executors(
        &self,
        owner: Option<&str>,
        (now, lease): (i64, Duration),
    ) -> Vec<ConnectedExecutor> {
        let leases = self.leases.lock().clone();
        let sessions = self.sessions.lock();
        let connected = self.slots.connected(&leases, now).into_iter();
        let described = connected.map(|(key, Announced { executor, at })| {
            let lease_until = leases.get(&key).copied();
            let renewed = lease_until.map_or(at, |until| until - milliseconds(lease));
            ConnectedExecutor {
                announced: executor,
                announced_at: at,
                heard_at: renewed.max(at),
                lease_until,
                running: sessions.get(&key).map_or(0, |session| session.count_running(owner)),
            }
        });
        described.collect()
    }

    /// Returns how many slots of executors one owner may use while others wait. `None` if no executor is
    /// known.
    pub(crate) fn share(&self, now: i64) -> Option<usize> {
        self.slots.share(&self.leases.lock(), now)
    }

    /// Returns the paused jobs that an executor must not keep: each has at most as many as slots, and at
    /// most half of them of one owner. `None` if no executor is known by this name.
    pub(crate) fn frozen_beyond(
        &self,
        worker: HolderKey,
        runtime: &Runtime,
    ) -> Option<Vec<(JobId, Arc<RunHandle>)>> {
        let slots = self.slots.slots_of(worker)?;
        let session = self.sessions.lock().get(&worker).cloned()?;
        Some(session.frozen_beyond(slots, &*runtime.env))
    }

    /// Returns what all executors must not keep.
    pub(crate) fn all_frozen_beyond(&self, runtime: &Runtime) -> Vec<(JobId, Arc<RunHandle>)> {
        let known = self.slots.known().into_iter();
        known.filter_map(|worker| self.frozen_beyond(worker, runtime)).flatten().collect()
    }

    /// Returns true if an executor with this version of an environment is connected.
    pub(crate) fn has_executor(&self, version: &str, now: i64) -> bool {
        self.slots.has_version(version, &self.leases.lock(), now)
    }

    /// Notes the leases of workers, which another process may have renewed.
    pub(crate) fn note_leases(&self, leases: &[ProcessLease]) {
        let mut known = self.leases.lock();
        for lease in leases.iter().filter(|lease| lease.holder.is_worker()) {
            known.insert(lease.holder.key(), lease.until);
        }
    }

    /// Takes the workers whose lease has begun since this was last called.
    pub(crate) fn take_begun(&self) -> Vec<HolderKey> {
        std::mem::take(&mut self.begun.lock())
    }

    /// Returns true if a worker was heard of since this process started.
    pub(crate) fn is_known(&self, worker: &Holder) -> bool {
        self.leases.lock().contains_key(&worker.key())
    }

    /// Returns the keys of the workers whose leases are known.
    pub(crate) fn keys(&self) -> HashSet<HolderKey> {
        self.leases.lock().keys().copied().collect()
    }

    /// Forgets workers whose lease has ended, and queues that nobody uses.
    pub(crate) fn remove_idle(&self, alive: &HashSet<HolderKey>, now: i64) {
        self.sessions.lock().retain(|key, session| {
            let is_held = session.holder.is_receiver() && session.is_working();
            alive.contains(key) || is_held || Arc::strong_count(session) > 1
        });
        // Recovery of its jobs may still be under way.
        let old = now - milliseconds(LEASE_REMEMBERED);
        self.leases.lock().retain(|_, until| *until > old);
        self.queues.remove_idle();
    }

    /// Takes the jobs that their workers have not mentioned since a time, with their fences: they have
    /// forgotten them, or never heard of them because the answer to a claim was lost. Receivers of
    /// pushed jobs need not mention them.
    pub(crate) fn take_unmentioned(&self, since: i64) -> Vec<(JobId, u64)> {
        let mut lost = Vec::new();
        for session in self.sessions.lock().values() {
            if !session.holder.is_receiver() {
                lost.extend(session.take_unmentioned(since));
            }
        }
        lost
    }

    /// Returns the jobs whose attempt has exceeded its own limit, with their fences.
    pub(crate) fn overdue(&self, now: i64) -> Vec<(JobId, u64)> {
        let mut overdue = Vec::new();
        for session in self.sessions.lock().values() {
            for (job, held) in session.jobs.lock().iter() {
                if held.attempt_until.is_some_and(|until| until <= now) {
                    overdue.push((*job, held.guard.handle.fence));
                }
            }
        }
        overdue
    }
}

impl WorkerSession {
    /// Adds a job that the worker holds.
    pub(crate) fn add(
        &self,
        job: (JobId, &str),
        guard: RunGuard,
        now: i64,
        attempt_until: Option<i64>,
    ) {
        let (job, owner) = job;
        let held = WorkerJob {
            guard,
            owner: owner.to_owned(),
            seen: now,
            attempt_until,
            progress_stored: None,
            told: Signal::Go,
        };
        self.jobs.lock().insert(job, held);
    }

    /// Returns how many jobs of the worker run: those of one owner if there is one.
    fn count_running(&self, owner: Option<&str>) -> usize {
        let is_counted = |held: &&WorkerJob| {
            held.guard.handle.signal() == Signal::Go
                && owner.is_none_or(|owner| held.owner == owner)
        };
        self.jobs.lock().values().filter(is_counted).count()
    }

    /// Returns the paused jobs that an executor with this number of slots does not keep: those beyond it,
    /// and those of one owner beyond half of it. The newest are kept.
    fn frozen_beyond(&self, slots: usize, env: &dyn Env) -> Vec<(JobId, Arc<RunHandle>)> {
        let jobs = self.jobs.lock();
        let mut frozen: Vec<(Duration, JobId, &WorkerJob)> = jobs
            .iter()
            .filter(|(_, held)| held.guard.handle.is_frozen())
            .map(|(job, held)| (held.guard.handle.paused_for(env).unwrap_or_default(), *job, held))
            .collect();
        frozen.sort_unstable_by_key(|(paused_for, job, _)| (*paused_for, *job));
        let mut kept: Vec<&str> = Vec::new();
        let mut released = Vec::new();
        for (_, job, held) in frozen {
            let of_owner = kept.iter().filter(|owner| **owner == held.owner).count();
            if kept.len() < slots && of_owner < half_of(slots) {
                kept.push(&held.owner);
            } else {
                released.push((job, Arc::clone(&held.guard.handle)));
            }
        }
        released
    }

    /// Removes a job that the worker no longer holds under a fence.
    pub(crate) fn remove(&self, job: JobId, fence: u64) {
        let mut jobs = self.jobs.lock();
        if jobs.get(&job).is_some_and(|held| held.guard.handle.fence <= fence) {
            jobs.remove(&job);
        }
    }

    /// Returns the handle of a job under a fence, and notes that the worker has it.
    pub(crate) fn touch(&self, job: JobId, fence: u64, now: i64) -> Option<Arc<RunHandle>> {
        let mut jobs = self.jobs.lock();
        let held = jobs.get_mut(&job).filter(|held| held.guard.handle.fence == fence)?;
        held.seen = now;
        Some(Arc::clone(&held.guard.handle))
    }

    /// Returns true if a job was signalled since the worker was last told.
    pub(crate) fn has_news(&self) -> bool {
        self.jobs.lock().values().any(|held| held.told != held.guard.handle.signal())
    }

    /// Returns what the worker must be told about its jobs, and notes that it was. Whether or not it
    /// mentioned them: it may have claimed them since. A pause of a job that it mentions is repeated,
    /// because an answer may be lost.
    pub(crate) fn take_signals(&self, mentioned: &HashSet<JobId>) -> Vec<(JobId, WorkerSignal)> {
        let mut told = Vec::new();
        self.jobs.lock().retain(|job, held| {
            let signal = held.guard.handle.signal();
            let was = std::mem::replace(&mut held.told, signal);
            match signal {
                Signal::Go if was != Signal::Go => told.push((*job, WorkerSignal::Go)),
                Signal::Pause if was != Signal::Pause || mentioned.contains(job) => {
                    told.push((*job, WorkerSignal::Pause));
                }
                Signal::Stop => told.push((*job, WorkerSignal::Stop)),
                Signal::Go | Signal::Pause => {}
            }
            signal != Signal::Stop
        });
        told
    }

    /// Tells the worker to stop a job that it no longer holds.
    pub(crate) fn stop(&self, job: JobId, fence: u64) {
        if let Some(held) =
            self.jobs.lock().get(&job).filter(|held| held.guard.handle.fence == fence)
        {
            held.guard.handle.stop();
        }
    }

    /// Takes the jobs that the worker has not mentioned since a time, with their fences.
    fn take_unmentioned(&self, since: i64) -> Vec<(JobId, u64)> {
        let mut lost = Vec::new();
        self.jobs.lock().retain(|job, held| {
            let is_lost = held.seen < since && held.guard.handle.signal() != Signal::Stop;
            if is_lost {
                lost.push((*job, held.guard.handle.fence));
            }
            !is_lost
        });
        lost
    }

    /// Returns true if the worker has a job that was not stopped.
    fn is_working(&self) -> bool {
        self.jobs.lock().values().any(|held| held.guard.handle.signal() != Signal::Stop)
    }

    /// Returns true if the worker is known to have a job under a fence.
    pub(super) fn has(&self, job: JobId, fence: u64) -> bool {
        self.jobs.lock().get(&job).is_some_and(|held| held.guard.handle.fence == fence)
    }

    /// Returns true, and notes the time, if progress of a job was not stored within an interval.
    pub(crate) fn should_store_progress(
        &self,
        job: JobId,
        now: Duration,
        interval: Duration,
    ) -> bool {
        let mut jobs = self.jobs.lock();
        let Some(held) = jobs.get_mut(&job) else { return false };
        let is_due = held.progress_stored.is_none_or(|stored| now >= stored + interval);
        if is_due {
            held.progress_stored = Some(now);
        }
        is_due
    }
}

/// Tells a worker what became of its job, and counts the job while it runs.
pub(super) struct WorkerSink {
    pub(super) worker: HolderKey,
    pub(super) signalled: Arc<Notify>,
    pub(super) queue: Arc<Queue>,
    pub(super) group: String,
    pub(super) slot: Mutex<Option<RunningSlot>>,
    /// The slot of an executor, if one runs the job.
    pub(super) owner_slot: Option<Mutex<OwnerSlot>>,
}

impl SignalSink for WorkerSink {
    fn signalled(&self, signal: Signal) {
        match signal {
            // A paused job does not count. One that is resumed counts again, whatever the limit.
            Signal::Go => {
                let slot = self.queue.count_running(&self.group);
                *self.slot.lock() = Some(slot);
                self.owner_slot.iter().for_each(|slot| slot.lock().count());
            }
            Signal::Pause | Signal::Stop => {
                drop(self.slot.lock().take());
                self.owner_slot.iter().for_each(|slot| slot.lock().discount());
            }
        }
        self.signalled.notify_waiters();
    }

    fn worker(&self) -> HolderKey {
        self.worker
    }
}

//! The runs of this process, and the handle by which each is controlled.
//!
//! The store decides which process runs a job, and under which fence. A run is registered before
//! the commit that acquires the job, so that a pause or a cancel that follows that commit always
//! finds a run to signal. If the commit is refused, the registration is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use catena_job::JobId;
use catena_store::HolderKey;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::execution::slots::RunSlot;
use crate::limits::LOG_BYTES_MAX;
use crate::operations::{
    ProgressMeter, ResolvedSecrets, RunControl, Signal, SignalReceiver, SignalSender,
};
use crate::runtime::{Env, Runtime};

/// Shards of the table, so that runs of different jobs rarely contend.
const SHARDS: usize = 32;

/// Receives the signals of a run that this process controls and another one carries out.
pub(crate) trait SignalSink: Send + Sync {
    /// The run was paused, resumed or stopped.
    fn signalled(&self, signal: Signal);

    /// Returns the worker that carries out the run.
    fn worker(&self) -> HolderKey;
}

/// Controls one run.
pub(crate) struct RunHandle {
    /// The fence under which this process holds the job. 0 if nothing is recorded of it.
    pub(crate) fence: u64,
    signal: SignalSender,
    /// Who else is told of signals.
    sink: Option<Arc<dyn SignalSink>>,
    /// The slot that the run occupies, unless it is paused.
    slot: Mutex<Slot>,
    /// Grows with every pause: a resume that waited for a slot finds out whether it still applies.
    pauses: AtomicU64,
    /// True if the run itself ends the job when its time is up; else the deadline in the store does.
    keeps_time: AtomicBool,
    /// When the run was paused, as monotonic time.
    paused_at: Mutex<Option<Duration>>,
    pub(crate) progress: Arc<ProgressMeter>,
    /// The end of what the run has logged.
    log: Mutex<String>,
    /// The secrets that its worker was given.
    pub(crate) secrets: ResolvedSecrets,
}

/// The slot of a run.
#[derive(Default)]
enum Slot {
    /// The run needs none.
    #[default]
    Unneeded,
    /// It occupies this one, until it is dropped.
    Occupied { slot: RunSlot },
    /// It gave its slot back when it was paused.
    Given,
}

impl RunHandle {
    fn new(fence: u64, sink: Option<Arc<dyn SignalSink>>) -> RunHandle {
        RunHandle {
            fence,
            sink,
            signal: SignalSender::default(),
            slot: Mutex::default(),
            pauses: AtomicU64::new(0),
            keeps_time: AtomicBool::new(true),
            paused_at: Mutex::default(),
            progress: Arc::default(),
            log: Mutex::default(),
            secrets: ResolvedSecrets::default(),
        }
    }

    /// Adds to the log of the run. Only its end is kept.
    pub(crate) fn log(&self, text: &str) {
        let text = &self.secrets.redact_text(text);
        let mut log = self.log.lock();
        // A report is a number of lines, whether or not the last one is terminated.
        if !log.is_empty() && !log.ends_with('\n') {
            log.push('\n');
        }
        log.push_str(text);
        if log.len() > LOG_BYTES_MAX {
            let start = log.ceil_char_boundary(log.len() - LOG_BYTES_MAX);
            log.drain(..start);
        }
    }

    /// Returns the end of what the run has logged. `None` if it is nothing.
    pub(crate) fn logged(&self) -> Option<String> {
        Some(self.log.lock().clone()).filter(|log| !log.is_empty())
    }

    /// Returns the control of a turn of this run.
    pub(crate) fn control(&self, env: &Arc<dyn Env>) -> RunControl {
        RunControl::new(self.subscribe(), Arc::clone(env), Arc::clone(&self.progress))
    }

    /// Leaves the end of the job's time to its deadline in the store, because its clock stops and
    /// starts with its steps.
    pub(crate) fn leave_time_to_store(&self) {
        self.keeps_time.store(false, Ordering::Relaxed);
    }

    /// Returns true if the run itself ends the job when its time is up.
    pub(crate) fn keeps_time(&self) -> bool {
        self.keeps_time.load(Ordering::Relaxed)
    }

    /// Makes the run occupy a slot.
    pub(crate) fn occupy(&self, slot: RunSlot) {
        let mut own = self.slot.lock();
        // A run that is paused already gives the slot back at once.
        *own = match self.signal.current() {
            Signal::Go => Slot::Occupied { slot },
            Signal::Pause => Slot::Given,
            Signal::Stop => Slot::Unneeded,
        };
    }

    /// Gives the slot back while the run waits for something that needs slots itself. A job that controls
    /// others keeps its slot, because its calls run on it.
    pub(crate) fn give_slot(&self) {
        if !self.shares_slot() {
            self.release_slot();
        }
    }

    /// Returns true if calls of the run need no slot of their own.
    pub(crate) fn shares_slot(&self) -> bool {
        matches!(&*self.slot.lock(), Slot::Occupied { slot } if slot.is_for_control())
    }

    fn release_slot(&self) {
        let mut slot = self.slot.lock();
        if matches!(*slot, Slot::Occupied { .. }) {
            *slot = Slot::Given;
        }
    }

    /// Occupies a slot again, as soon as there is one. A paused run gets one when it is resumed.
    pub(crate) async fn take_slot(&self, slots: &Arc<Semaphore>) {
        if !matches!(*self.slot.lock(), Slot::Given) || self.is_paused() {
            return;
        }
        if let Ok(slot) = Arc::clone(slots).acquire_owned().await {
            self.occupy(slot.into());
        }
    }

    /// Pauses the run. It occupies no slot until it is resumed.
    pub(crate) fn pause(&self, env: &dyn Env) {
        self.send(Signal::Pause);
        self.pauses.fetch_add(1, Ordering::SeqCst);
        self.paused_at.lock().get_or_insert_with(|| env.monotonic());
        self.release_slot();
    }

    /// Resumes the run as soon as there is a slot for it.
    pub(crate) fn resume(self: &Arc<Self>, runtime: &Runtime, slots: &Arc<Semaphore>) {
        if !matches!(*self.slot.lock(), Slot::Given) {
            return self.go();
        }
        if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
            self.go();
            return self.occupy(slot.into());
        }
        let pauses = self.pauses.load(Ordering::SeqCst);
        let handle = Arc::clone(self);
        let slots = Arc::clone(slots);
        runtime.spawn(async move {
            let stopped = handle.stopped();
            tokio::select! {
                () = stopped => {}
                slot = slots.acquire_owned() => {
                    let Ok(slot) = slot else { return };
                    if handle.pauses.load(Ordering::SeqCst) == pauses {
                        handle.go();
                        handle.occupy(slot.into());
                    }
                }
            }
        });
    }

    fn go(&self) {
        *self.paused_at.lock() = None;
        self.send(Signal::Go);
    }

    /// Stops the run for good. It releases nothing in the store.
    pub(crate) fn stop(&self) {
        self.send(Signal::Stop);
    }

    fn send(&self, signal: Signal) {
        let has_changed = self.signal.send(signal);
        if let Some(sink) = self.sink.as_ref().filter(|_| has_changed) {
            sink.signalled(signal);
        }
    }

    /// Returns true if another process carries out the run.
    pub(crate) fn is_remote(&self) -> bool {
        self.sink.is_some()
    }

    /// Returns the worker that carries out the run. `None` if this process does.
    pub(crate) fn worker(&self) -> Option<HolderKey> {
        self.sink.as_ref().map(|sink| sink.worker())
    }

    /// Returns what the run was last told.
    pub(crate) fn signal(&self) -> Signal {
        self.signal.current()
    }

    /// Returns true if the run is suspended and has not ended.
    pub(crate) fn is_frozen(&self) -> bool {
        self.is_paused()
    }

    fn is_paused(&self) -> bool {
        self.signal.current() == Signal::Pause
    }

    /// Returns how long the run has been paused. `None` if it is not.
    pub(crate) fn paused_for(&self, env: &dyn Env) -> Option<Duration> {
        let since = (*self.paused_at.lock())?;
        Some(env.monotonic().saturating_sub(since))
    }

    pub(crate) fn subscribe(&self) -> SignalReceiver {
        self.signal.subscribe()
    }

    /// Returns once the run was stopped.
    pub(crate) async fn stopped(&self) {
        self.subscribe().wait_for(|signal| signal == Signal::Stop).await;
    }
}

type Shard = Mutex<HashMap<JobId, Vec<Arc<RunHandle>>, RandomState>>;

/// The runs of this process.
pub(crate) struct RunRegistry {
    shards: [Shard; SHARDS],
}

impl Default for RunRegistry {
    fn default() -> Self {
        RunRegistry { shards: std::array::from_fn(|_| Shard::default()) }
    }
}

impl RunRegistry {
    fn shard(&self, job: JobId) -> &Shard {
        &self.shards[usize::from(job.as_bytes()[15]) % SHARDS]
    }

    /// Registers a run under a fence. A job may have several for a moment: one that was replaced and
    /// has not noticed it yet, and one whose commit is about to be refused.
    pub(crate) fn register(self: &Arc<Self>, job: JobId, fence: u64) -> RunGuard {
        self.register_with(job, fence, None)
    }

    /// Registers a run whose signals somebody else receives, too.
    pub(crate) fn register_with(
        self: &Arc<Self>,
        job: JobId,
        fence: u64,
        sink: Option<Arc<dyn SignalSink>>,
    ) -> RunGuard {
        let handle = Arc::new(RunHandle::new(fence, sink));
        self.shard(job).lock().entry(job).or_default().push(Arc::clone(&handle));
        RunGuard { registry: Arc::clone(self), job, handle }
    }

    /// Returns the newest run of a job. `None` if it does not run here.
    pub(crate) fn get(&self, job: JobId) -> Option<Arc<RunHandle>> {
        let runs = self.shard(job).lock();
        runs.get(&job)?.iter().max_by_key(|handle| handle.fence).cloned()
    }

    /// Returns all runs of a job.
    pub(crate) fn runs_of(&self, job: JobId) -> Vec<Arc<RunHandle>> {
        self.shard(job).lock().get(&job).cloned().unwrap_or_default()
    }

    /// Stops the runs of a job under earlier fences: the store has refused them already.
    pub(crate) fn stop_earlier(&self, job: JobId, fence: u64) {
        for handle in self.runs_of(job) {
            if handle.fence < fence {
                handle.stop();
            }
        }
    }

    /// Returns the number of runs.
    pub(crate) fn count(&self) -> usize {
        let runs = |shard: &Shard| shard.lock().values().map(Vec::len).sum::<usize>();
        self.shards.iter().map(runs).sum()
    }

    /// Returns all runs.
    pub(crate) fn all(&self) -> Vec<(JobId, Arc<RunHandle>)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            for (job, handles) in shard.lock().iter() {
                all.extend(handles.iter().map(|handle| (*job, Arc::clone(handle))));
            }
        }
        all
    }
}

/// The registration of a run. It ends when it is dropped.
pub(crate) struct RunGuard {
    registry: Arc<RunRegistry>,
    job: JobId,
    pub(crate) handle: Arc<RunHandle>,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let mut shard = self.registry.shard(self.job).lock();
        if let Some(handles) = shard.get_mut(&self.job) {
            handles.retain(|handle| !Arc::ptr_eq(handle, &self.handle));
            if handles.is_empty() {
                shard.remove(&self.job);
            }
        }
        // A resume that waits for a slot must not wait for a run that is gone, and whoever still has
        // the handle must not keep its slot.
        self.handle.stop();
        *self.handle.slot.lock() = Slot::Unneeded;
    }
}

/// Paused work that is kept in memory, so that a resume continues it instead of repeating it, oldest
/// first. It is bounded: at most as many runs as there are slots, at most half of them of one owner,
/// and each for at most [`crate::limits::FROZEN_MAX`]. Beyond that the oldest is released, and its
/// resume follows the operation's recovery rule. Each executor has such bounds of its own, see
/// [`Workers::frozen_beyond`](super::workers::sessions::Workers::frozen_beyond).
#[derive(Default)]
pub(crate) struct FrozenRuns(Mutex<VecDeque<FrozenRun>>);

pub(super) struct FrozenRun {
    pub(super) job: JobId,
    pub(super) owner: String,
    pub(super) handle: Arc<RunHandle>,
}

impl FrozenRuns {
    /// Adds a run that was paused, and returns the runs that must be released for it.
    pub(super) fn add(&self, run: FrozenRun, max: usize) -> Vec<FrozenRun> {
        let mut runs = self.0.lock();
        runs.retain(|known| known.handle.is_frozen() && known.job != run.job);
        let owner = run.owner.clone();
        runs.push_back(run);
        let mut released = Vec::new();
        let of_owner = runs.iter().filter(|run| run.owner == owner).count();
        let oldest = if runs.len() > max {
            Some(0)
        } else if of_owner > half_of(max) {
            runs.iter().position(|run| run.owner == owner)
        } else {
            None
        };
        released.extend(oldest.and_then(|at| runs.remove(at)));
        released
    }
}

/// Returns how many of a number of slots one owner may have while others want some.
pub(super) fn half_of(slots: usize) -> usize {
    (slots / 2).max(1)
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::runtime::PausedEnv;

    fn job() -> JobId {
        JobId::from_bytes([7; 16])
    }

    #[test]
    fn the_newest_run_of_a_job_is_the_one_with_the_highest_fence() {
        let registry: Arc<RunRegistry> = Arc::default();
        let first = registry.register(job(), 3);
        let second = registry.register(job(), 4);
        assert_eq!(registry.get(job()).unwrap().fence, 4);
        registry.stop_earlier(job(), 4);
        assert_eq!(first.handle.signal(), Signal::Stop);
        assert_eq!(second.handle.signal(), Signal::Go);
        drop(second);
        assert_eq!(registry.get(job()).unwrap().fence, 3);
        drop(first);
        assert_eq!(registry.count(), 0);
    }

    #[tokio::test]
    async fn a_stopped_run_stays_stopped() {
        let runtime = Runtime::new(Arc::new(PausedEnv::new()), Limits::default());
        let slots = Arc::new(Semaphore::new(1));
        let registry: Arc<RunRegistry> = Arc::default();
        let guard = registry.register(job(), 1);
        let signal = guard.handle.subscribe();
        guard.handle.pause(&*runtime.env);
        assert_eq!(signal.current(), Signal::Pause);
        guard.handle.stop();
        guard.handle.resume(&runtime, &slots);
        assert_eq!(signal.current(), Signal::Stop);
    }

    #[tokio::test]
    async fn a_paused_run_gives_its_slot_back_and_waits_for_one_to_continue() {
        let runtime = Runtime::new(Arc::new(PausedEnv::new()), Limits::default());
        let slots = Arc::new(Semaphore::new(1));
        let registry: Arc<RunRegistry> = Arc::default();
        let guard = registry.register(job(), 1);
        guard.handle.occupy(Arc::clone(&slots).try_acquire_owned().unwrap().into());
        assert_eq!(slots.available_permits(), 0);
        guard.handle.pause(&*runtime.env);
        let other = Arc::clone(&slots).try_acquire_owned().unwrap();
        guard.handle.resume(&runtime, &slots);
        let signal = guard.handle.subscribe();
        assert_eq!(signal.current(), Signal::Pause, "there is no slot");
        drop(other);
        signal.wait_for(|signal| signal == Signal::Go).await;
        assert_eq!(slots.available_permits(), 0);
        drop(guard);
        assert_eq!(slots.available_permits(), 1);
    }
}

//! The runs of this process, and the handle by which each is controlled.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use catena_job::JobId;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::operations::{ProgressMeter, RunControl, Signal};
use crate::runtime::Env;

/// Shards of the table, so that runs of different jobs rarely contend.
const SHARDS: usize = 32;

/// How often to check whether an idle claim was released, which takes about this long.
const IDLE_POLL: Duration = Duration::from_millis(1);

type Shard = Mutex<HashMap<JobId, Arc<RunHandle>>>;

/// How a running job is controlled.
pub(crate) struct RunHandle {
    signal: watch::Sender<Signal>,
    /// The fence of the lease it runs under, if it was claimed from the queue.
    pub(crate) fence: Option<u64>,
    /// What the turn reported.
    pub(crate) progress: Arc<ProgressMeter>,
    /// True while the holder only checks what there is to do and no turn runs.
    idle: AtomicBool,
}

impl RunHandle {
    /// Signals the turn. A turn that was stopped stays stopped.
    pub(crate) fn signal(&self, signal: Signal) {
        self.signal.send_if_modified(|current| {
            let changes = *current != signal && *current != Signal::Stop;
            if changes {
                *current = signal;
            }
            changes
        });
    }

    /// Marks an idle claim as a run.
    pub(crate) fn mark_running(&self) {
        self.idle.store(false, Ordering::SeqCst);
    }

    /// Marks the run as idle: its turn has ended and what it waits for is being recorded, so the
    /// claim no longer means that the job runs.
    pub(crate) fn mark_idle(&self) {
        self.idle.store(true, Ordering::SeqCst);
    }

    fn is_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst)
    }

    /// Returns once the turn is stopped.
    pub(crate) async fn stopped(&self) {
        let mut signal = self.signal.subscribe();
        let _ = signal.wait_for(|signal| *signal == Signal::Stop).await;
    }

    /// Returns a receiver of the signals.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Signal> {
        self.signal.subscribe()
    }

    /// Returns the control that the turn receives.
    pub(crate) fn control(&self, env: &Arc<dyn Env>) -> RunControl {
        RunControl::new(self.signal.subscribe(), Arc::clone(env), Arc::clone(&self.progress))
    }
}

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

    /// Claims a job for a run. `None` if this process has claimed it already.
    pub(crate) fn claim(self: &Arc<Self>, job: JobId, fence: Option<u64>) -> Option<RunGuard> {
        self.claim_as(job, fence, false)
    }

    /// Claims a job to check what there is to do. Until [`RunHandle::mark_running`] is called, the
    /// claim does not mean that the job runs.
    pub(crate) fn try_claim_idle(self: &Arc<Self>, job: JobId) -> Option<RunGuard> {
        self.claim_as(job, None, true)
    }

    /// Like [`RunRegistry::claim`], but waits for idle claims to be released.
    pub(crate) async fn claim_when_idle(
        self: &Arc<Self>,
        job: JobId,
        fence: Option<u64>,
        env: &Arc<dyn Env>,
    ) -> Option<RunGuard> {
        loop {
            if let Some(guard) = self.claim(job, fence) {
                return Some(guard);
            }
            if self.get(job).is_some_and(|handle| !handle.is_idle()) {
                return None;
            }
            env.sleep(IDLE_POLL).await;
        }
    }

    fn claim_as(self: &Arc<Self>, job: JobId, fence: Option<u64>, idle: bool) -> Option<RunGuard> {
        let mut shard = self.shard(job).lock();
        if shard.contains_key(&job) {
            return None;
        }
        let signal = watch::Sender::new(Signal::Go);
        let idle = AtomicBool::new(idle);
        let handle = Arc::new(RunHandle { signal, fence, progress: Arc::default(), idle });
        shard.insert(job, Arc::clone(&handle));
        Some(RunGuard { registry: Arc::clone(self), job, handle })
    }

    /// Returns the handle of a job. `None` if it does not run here.
    pub(crate) fn get(&self, job: JobId) -> Option<Arc<RunHandle>> {
        self.shard(job).lock().get(&job).cloned()
    }

    /// Returns the number of runs.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Returns all runs.
    pub(crate) fn all(&self) -> Vec<(JobId, Arc<RunHandle>)> {
        let runs = |shard: &Shard| -> Vec<(JobId, Arc<RunHandle>)> {
            shard.lock().iter().map(|(job, handle)| (*job, Arc::clone(handle))).collect()
        };
        self.shards.iter().flat_map(runs).collect()
    }

    /// Returns the runs that hold a lease, with their fences.
    pub(crate) fn leased(&self) -> Vec<(JobId, u64)> {
        let leased = |(job, handle): (JobId, Arc<RunHandle>)| Some((job, handle.fence?));
        self.all().into_iter().filter_map(leased).collect()
    }
}

/// A claim on a job in this process. It is released when it is dropped.
pub(crate) struct RunGuard {
    registry: Arc<RunRegistry>,
    job: JobId,
    pub(crate) handle: Arc<RunHandle>,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.registry.shard(self.job).lock().remove(&self.job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> JobId {
        JobId::from_bytes([7; 16])
    }

    #[test]
    fn a_job_has_one_claim_at_a_time() {
        let registry: Arc<RunRegistry> = Arc::default();
        let guard = registry.claim(job(), Some(3)).unwrap();
        assert!(registry.claim(job(), None).is_none());
        assert!(registry.try_claim_idle(job()).is_none());
        assert_eq!(registry.leased(), [(job(), 3)]);
        drop(guard);
        assert_eq!(registry.count(), 0);
        assert!(registry.claim(job(), None).is_some());
    }

    #[test]
    fn a_stopped_run_stays_stopped() {
        let registry: Arc<RunRegistry> = Arc::default();
        let guard = registry.claim(job(), None).unwrap();
        let signal = guard.handle.subscribe();
        guard.handle.signal(Signal::Pause);
        assert_eq!(*signal.borrow(), Signal::Pause);
        guard.handle.signal(Signal::Stop);
        guard.handle.signal(Signal::Go);
        assert_eq!(*signal.borrow(), Signal::Stop);
    }
}

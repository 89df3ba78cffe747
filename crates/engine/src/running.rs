//! What runs in this process: the reins of every turn that is being carried out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use catena_job::JobId;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::control::{RunControl, Signal};
use crate::env::Env;
use crate::progress::Progress;

const SHARDS: usize = 32;

/// About as long as a look takes; only whoever meets one waits for it.
const LOOK: Duration = Duration::from_millis(1);

type Shard = Mutex<HashMap<JobId, Arc<Reins>>>;

/// How a running job is held.
pub(crate) struct Reins {
    signal: watch::Sender<Signal>,
    /// The fence of the lease it runs under, when it was claimed from the queue.
    pub(crate) fence: Option<u64>,
    /// What the turn reported.
    pub(crate) progress: Arc<Progress>,
    /// Whether whoever has them only looks what there is to do, and runs nothing yet or no more.
    looks: AtomicBool,
}

impl Reins {
    /// Lets the turn go on, or not. A turn that was stopped stays stopped.
    pub(crate) fn signal(&self, signal: Signal) {
        self.signal.send_if_modified(|now| {
            let changes = *now != signal && *now != Signal::Stop;
            if changes {
                *now = signal;
            }
            changes
        });
    }

    /// A turn begins: whoever looked at the job now runs it.
    pub(crate) fn begin(&self) {
        self.looks.store(false, Ordering::SeqCst);
    }

    /// A turn has ended and what it asks for is being written down: nobody may conclude any more
    /// from the reins being taken that the job runs.
    pub(crate) fn park(&self) {
        self.looks.store(true, Ordering::SeqCst);
    }

    /// Returns when the turn is stopped.
    pub(crate) async fn stopped(&self) {
        let mut signal = self.signal.subscribe();
        let _ = signal.wait_for(|signal| *signal == Signal::Stop).await;
    }

    /// What the turn is told.
    pub(crate) fn watch(&self) -> watch::Receiver<Signal> {
        self.signal.subscribe()
    }

    /// What the turn gets.
    pub(crate) fn control(&self, env: &Arc<dyn Env>) -> RunControl {
        RunControl::new(self.signal.subscribe(), Arc::clone(env), Arc::clone(&self.progress))
    }
}

/// Everything that runs in this process.
pub(crate) struct Running {
    shards: [Shard; SHARDS],
}

impl Default for Running {
    fn default() -> Self {
        Running { shards: std::array::from_fn(|_| Shard::default()) }
    }
}

impl Running {
    fn shard(&self, job: JobId) -> &Shard {
        &self.shards[usize::from(job.as_bytes()[15]) % SHARDS]
    }

    /// Takes the reins of a job; nothing when somebody here has them already.
    pub(crate) fn take(self: &Arc<Self>, job: JobId, fence: Option<u64>) -> Option<Held> {
        self.take_as(job, fence, false)
    }

    /// The same, to look what there is to do. Until a turn [begins](Reins::begin), nobody may
    /// conclude from the reins being taken that the job runs.
    pub(crate) fn take_to_look(self: &Arc<Self>, job: JobId) -> Option<Held> {
        self.take_as(job, None, true)
    }

    /// The same as [`Running::take`], after those who only look have let go.
    pub(crate) async fn take_after_lookers(
        self: &Arc<Self>,
        job: JobId,
        fence: Option<u64>,
        env: &Arc<dyn Env>,
    ) -> Option<Held> {
        loop {
            if let Some(held) = self.take(job, fence) {
                return Some(held);
            }
            let is_looked_at = |reins: Arc<Reins>| reins.looks.load(Ordering::SeqCst);
            if self.get(job).is_some_and(|reins| !is_looked_at(reins)) {
                return None;
            }
            env.sleep(LOOK).await;
        }
    }

    fn take_as(self: &Arc<Self>, job: JobId, fence: Option<u64>, looks: bool) -> Option<Held> {
        let mut shard = self.shard(job).lock();
        if shard.contains_key(&job) {
            return None;
        }
        let signal = watch::Sender::new(Signal::Go);
        let looks = AtomicBool::new(looks);
        let reins = Arc::new(Reins { signal, fence, progress: Arc::default(), looks });
        shard.insert(job, Arc::clone(&reins));
        Some(Held { running: Arc::clone(self), job, reins })
    }

    /// The reins of a job, when it runs here.
    pub(crate) fn get(&self, job: JobId) -> Option<Arc<Reins>> {
        self.shard(job).lock().get(&job).cloned()
    }

    /// How many run.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// All that run.
    pub(crate) fn all(&self) -> Vec<(JobId, Arc<Reins>)> {
        let of = |shard: &Shard| -> Vec<(JobId, Arc<Reins>)> {
            shard.lock().iter().map(|(job, reins)| (*job, Arc::clone(reins))).collect()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// Those that run under a lease.
    pub(crate) fn leased(&self) -> Vec<(JobId, u64)> {
        let leased = |(job, reins): (JobId, Arc<Reins>)| Some((job, reins.fence?));
        self.all().into_iter().filter_map(leased).collect()
    }
}

/// The reins, for as long as the job runs.
pub(crate) struct Held {
    running: Arc<Running>,
    job: JobId,
    pub(crate) reins: Arc<Reins>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.running.shard(self.job).lock().remove(&self.job);
    }
}

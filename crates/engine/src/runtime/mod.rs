//! What every other folder builds on: the environment, the operator's limits, counters, and the
//! state of the process.
//!
//! `Runtime` is the lowest component of the engine. It knows nothing of jobs, operations or
//! requests, and it is the only way to the clock, to randomness and to tasks.

pub(crate) mod compute;
pub(crate) mod counters;
pub(crate) mod detach;
mod env;
mod memory;
mod on_thread;
mod start_gate;
mod stats;
mod suspects;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use catena_job::JobId;
use tokio::sync::watch;

use crate::limits::Limits;
use crate::runtime::compute::Compute;
use crate::runtime::counters::{DeadlineAlarm, EventCounters};
use crate::runtime::detach::DetachOnDrop;

pub use counters::Counters;
#[cfg(feature = "testing")]
pub use env::PausedEnv;
pub use env::{Env, SystemEnv, Task};
pub(crate) use memory::is_same_large;
pub use memory::{MemoryBudget, Reservation};
pub use on_thread::{ENTRY_WORDS, TABLE_WORDS, Work, track_work_in, tracked_work, work_on_threads};
pub(crate) use on_thread::{WorkOn, Working, current_work};
pub(crate) use start_gate::{Alone, Closed, StartGate};
pub(crate) use stats::{CountedChange, Stats};
pub use stats::{MinuteStats, Percentiles};
pub use suspects::Aborts;
pub(crate) use suspects::Suspects;

/// The environment of one engine process.
pub(crate) struct Runtime {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) limits: Limits,
    pub(crate) counters: EventCounters,
    /// What happened in the last hour.
    pub(crate) stats: Stats,
    /// Where work runs that would keep a thread of the runtime busy.
    pub(crate) compute: Compute,
    /// What requests and runs hold in memory.
    pub(crate) memory: Arc<MemoryBudget>,
    /// Whether work may start.
    pub(crate) gate: Arc<StartGate>,
    /// Wakes the background task that ends overdue jobs.
    pub(crate) deadlines: DeadlineAlarm,
    /// When this process last renewed its leases, as Unix time in ms.
    pub(crate) heartbeat: AtomicI64,
    stopping: watch::Sender<bool>,
}

impl Runtime {
    pub(crate) fn new(env: Arc<dyn Env>, limits: Limits) -> Arc<Self> {
        Arc::new(Runtime {
            compute: Compute::new(Arc::clone(&env)),
            memory: MemoryBudget::new(&limits),
            gate: StartGate::new(),
            env,
            limits,
            counters: EventCounters::default(),
            stats: Stats::default(),
            deadlines: DeadlineAlarm::default(),
            heartbeat: AtomicI64::new(0),
            stopping: watch::Sender::new(false),
        })
    }

    /// Returns Unix time in ms.
    pub(crate) fn now(&self) -> i64 {
        self.env.now()
    }

    /// Returns a new job ID.
    pub(crate) fn new_id(&self) -> JobId {
        let mut random = [0; 10];
        self.env.random(&mut random);
        JobId::new(u64::try_from(self.now()).unwrap_or(0), random)
    }

    /// Attributes a future to a job whenever it is polled, from now on.
    pub(crate) fn work_on<'a, T>(
        &self,
        job: JobId,
        work: impl Future<Output = T> + Send + 'a,
    ) -> WorkOn<'a, T> {
        on_thread::work_on(Work { job, since: self.now() }, work)
    }

    /// Spawns a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.env.spawn(Box::pin(task));
    }

    /// Spawns a task that is boxed already.
    pub(crate) fn spawn_task(&self, task: Task) {
        self.env.spawn(task);
    }

    /// Returns a future that is driven to its end even if the caller drops it halfway: a change of
    /// a job must not stay half done because a client disconnected. A future that was never polled
    /// does nothing.
    pub(crate) fn finish_even_if_dropped<T: 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> DetachOnDrop<T> {
        DetachOnDrop::new(Arc::clone(&self.env), work)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Marks the process as stopping: no new work is accepted, and streams end.
    pub(crate) fn begin_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Returns once the process has started to stop.
    pub(crate) async fn stopping(&self) {
        let mut stopping = self.stopping.subscribe();
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_runtime_needs_no_engine() {
        let runtime = Runtime::new(Arc::new(PausedEnv::new()), Limits::default());
        assert_eq!(runtime.now(), PausedEnv::BEGINNING);
        assert_ne!(runtime.new_id(), runtime.new_id());
        assert!(!runtime.is_stopping());
        runtime.begin_stop();
        runtime.stopping().await;
        assert!(runtime.is_stopping());
    }
}

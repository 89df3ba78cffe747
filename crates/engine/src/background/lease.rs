//! The lease of this process, and what other processes do.
//!
//! The lease belongs to the process, not to its jobs: one heartbeat renews it, and everything the
//! process holds depends on it. Whoever finds that another process has died recovers its jobs.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catena_store::HolderKey;

use crate::background::Background;
use crate::background::recover::Loss;
use crate::error::StoreError;
use crate::jobs::milliseconds;

/// How long a lease lasts.
const LEASE: Duration = Duration::from_secs(10);

/// How often the lease is renewed, and how long a lost notification can go unnoticed.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Renews the lease, repeatedly.
pub(super) async fn keep_lease(background: Arc<Background>) {
    let runtime = Arc::clone(&background.runtime);
    let mut known: HashSet<HolderKey> = HashSet::new();
    let mut renewed = runtime.env.monotonic();
    let mut has_ended = false;
    loop {
        match background.beat(&mut known).await {
            Ok(()) => renewed = runtime.env.monotonic(),
            Err(error) => tracing::error!(%error, "cannot renew the lease of this process"),
        }
        if runtime.env.monotonic().saturating_sub(renewed) >= LEASE {
            // Others take over what this process holds.
            background.stop_runs();
            has_ended = true;
        } else if has_ended {
            // The runs have stopped since the last time.
            let recovered = background.recover_own().await;
            has_ended = recovered.is_err();
            if let Err(error) = recovered {
                tracing::error!(%error, "cannot recover what this process held");
            }
        }
        background.execution.thaw_old().await;
        runtime.env.sleep(HEARTBEAT).await;
    }
}

/// Acts on the hints of other processes, one after the other.
pub(super) async fn receive_hints(background: Arc<Background>) {
    let process = &background.jobs.process;
    let Some(mut hints) = background.jobs.store.hints(process) else { return };
    while let Some(hint) = hints.recv().await {
        if let Err(error) = background.execution.receive_hint(hint).await {
            tracing::warn!(%error, "cannot act on a change in another process");
        }
    }
}

impl Background {
    /// Registers this process, so that what it holds counts as held.
    pub(super) async fn register(&self) -> Result<(), StoreError> {
        self.beat(&mut HashSet::new()).await
    }

    /// Stops the work of this process on all jobs.
    fn stop_runs(&self) {
        for (_, handle) in self.execution.registry.all() {
            if !handle.is_remote() {
                handle.stop();
            }
        }
    }

    /// Renews the lease, and acts on what other processes did meanwhile.
    async fn beat(&self, known: &mut HashSet<HolderKey>) -> Result<(), StoreError> {
        // Their leases may have ended since the last time.
        known.extend(self.execution.workers.take_begun());
        let now = self.runtime.now();
        let until = now + milliseconds(LEASE);
        let leases = self.jobs.store.renew_lease(&self.jobs.process, now, until).await?;
        self.runtime.heartbeat.store(now, Ordering::Relaxed);
        self.execution.workers.note_leases(&leases);
        let alive: HashSet<HolderKey> = leases.iter().map(|lease| lease.holder.key()).collect();
        let has_lost = known.iter().any(|key| !alive.contains(key));
        self.look_after_workers(&alive).await;
        *known = alive;
        if has_lost {
            tracing::warn!("a process or a worker was lost; recovering what it held");
        }
        if let (true, Some(background)) = (has_lost, self.own.upgrade()) {
            let live = self.find_live_jobs().await?;
            background.recover(live).await;
        }
        if has_lost || self.jobs.store.has_peers() {
            self.execution.check_jobs().await?;
        }
        if self.jobs.store.has_peers() {
            self.find_lanes().await?;
        }
        Ok(())
    }

    /// Finds the queues on which jobs wait for workers.
    pub(super) async fn find_lanes(&self) -> Result<(), StoreError> {
        for queue in self.jobs.store.queues().await? {
            self.execution.workers.queues.notify(&queue);
        }
        Ok(())
    }

    /// Recovers the jobs that workers have forgotten, ends attempts that take too long, and forgets
    /// workers that are gone.
    async fn look_after_workers(&self, alive: &HashSet<HolderKey>) {
        let workers = &self.execution.workers;
        let now = self.runtime.now();
        let since = now - milliseconds(self.runtime.limits.worker_lease);
        // With several processes, a worker may mention its jobs to another one only.
        let is_alone = !self.jobs.store.has_peers();
        let forgotten = if is_alone { workers.take_unmentioned(since) } else { Vec::new() };
        for (job, fence) in forgotten {
            tracing::warn!(%job, "a worker has not mentioned a job for a lease; recovering it");
            self.recover_job(job, Loss::WorkerForgot(fence)).await;
        }
        for (job, fence) in workers.overdue(now) {
            if let Err(error) = self.commands.end_overdue_attempt(job, fence).await {
                tracing::error!(%job, %error, "cannot end an attempt that took too long");
            }
        }
        workers.remove_idle(alive, now);
    }
}

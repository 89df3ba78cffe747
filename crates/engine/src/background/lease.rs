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
    loop {
        match background.beat(&mut known).await {
            Ok(()) => renewed = runtime.env.monotonic(),
            Err(error) => tracing::error!(%error, "cannot renew the lease of this process"),
        }
        if runtime.env.monotonic().saturating_sub(renewed) >= LEASE {
            // Others take over what this process holds.
            for (_, handle) in background.execution.registry.all() {
                handle.stop();
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

    /// Renews the lease, and acts on what other processes did meanwhile.
    async fn beat(&self, known: &mut HashSet<HolderKey>) -> Result<(), StoreError> {
        let now = self.runtime.now();
        let until = now + milliseconds(LEASE);
        let leases = self.jobs.store.renew_lease(&self.jobs.process, now, until).await?;
        self.runtime.heartbeat.store(now, Ordering::Relaxed);
        let alive: HashSet<HolderKey> = leases.iter().map(|lease| lease.holder.key()).collect();
        let has_lost = known.iter().any(|key| !alive.contains(key));
        *known = alive;
        if has_lost {
            tracing::warn!("another process has died; recovering what it held");
        }
        if has_lost || self.jobs.store.has_peers() {
            let live = self.find_live_jobs().await?;
            if let (true, Some(background)) = (has_lost, self.own.upgrade()) {
                background.recover(live).await;
            }
            self.execution.check_jobs().await?;
        }
        Ok(())
    }
}

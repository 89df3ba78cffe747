//! Ends jobs whose deadline has passed, renews leases, and removes expired idempotency keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catena_store::TimerKind;

use crate::background::Background;
use crate::background::claim::LEASE;
use crate::error::StoreError;
use crate::jobs::milliseconds;

/// Timers that are read at a time.
const DUE_BATCH: usize = 256;

/// How often deadlines are checked if there is none.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// How often leases are renewed.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);

/// How long to wait after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Ends overdue jobs, repeatedly.
pub(super) async fn end_overdue_jobs(background: Arc<Background>) {
    let runtime = &background.runtime;
    let mut keys_removed = Duration::ZERO;
    loop {
        let wait = match background.end_due().await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::error!(%error, "cannot read deadlines");
                RETRY_DELAY
            }
        };
        let now = runtime.env.monotonic();
        if now >= keys_removed + POLL_INTERVAL {
            keys_removed = now;
            if let Err(error) = background.operations.keys.remove_expired().await {
                tracing::warn!(%error, "cannot remove expired idempotency keys");
            }
        }
        tokio::select! {
            () = runtime.deadlines.earlier.notified() => {}
            () = runtime.env.sleep(wait) => {}
        }
    }
}

/// Renews the leases of this process, repeatedly.
pub(super) async fn renew_leases(background: Arc<Background>) {
    let runtime = &background.runtime;
    loop {
        runtime.heartbeat.store(runtime.now(), Ordering::Relaxed);
        runtime.env.sleep(RENEW_INTERVAL).await;
        background.execution.set_lease_end(runtime.now() + milliseconds(LEASE)).await;
    }
}

impl Background {
    /// Ends all overdue jobs and requeues jobs whose lease has ended. Returns the time until the
    /// next deadline.
    async fn end_due(&self) -> Result<Duration, StoreError> {
        loop {
            let now = self.runtime.now();
            let timers = self.jobs.store.due(now, DUE_BATCH).await?;
            let mut changed_any = false;
            for timer in &timers {
                let runs_here = self.execution.registry.get(timer.job).is_some();
                changed_any |= match timer.kind {
                    // A run in this process has its own clock, which stops during a pause.
                    TimerKind::Deadline | TimerKind::LeaseEnd if runs_here => false,
                    TimerKind::Deadline => {
                        self.execution.expire(timer.job).await.unwrap_or_else(|error| {
                            tracing::error!(job = %timer.job, %error, "cannot end an overdue job");
                            false
                        })
                    }
                    TimerKind::LeaseEnd => self.requeue_after_lease(timer.job).await?,
                };
            }
            if changed_any && timers.len() == DUE_BATCH {
                continue;
            }
            let next = self.jobs.store.due(i64::MAX, 1 + timers.len()).await?;
            let next = next.iter().map(|timer| timer.at).find(|at| *at > now);
            self.runtime.deadlines.set(next.unwrap_or(i64::MAX));
            let wait = next.map_or(POLL_INTERVAL, |at| {
                let left = at.saturating_sub(self.runtime.now());
                Duration::from_millis(u64::try_from(left).unwrap_or(0))
            });
            return Ok(wait.clamp(Duration::from_millis(1), POLL_INTERVAL));
        }
    }
}

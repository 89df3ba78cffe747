//! Ends jobs whose time is up, renews leases, and forgets old idempotency keys.

use std::sync::atomic::Ordering;
use std::time::Duration;

use catena_store::{Effect, Effects, TimerKind};

use super::claim::LEASE;
use super::recover::put_back;
use crate::engine::Engine;
use crate::error::StoreError;

/// Timers looked at in one go.
const DUE_BATCH: usize = 256;

/// How often deadlines are looked at when no alarm is set.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How often leases are renewed.
const RENEW_EVERY: Duration = Duration::from_secs(3);

/// How long after a failure the duty tries again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Waits for the next deadline, again and again.
pub(crate) async fn expire(engine: Engine) {
    let mut keys_forgotten = Duration::ZERO;
    loop {
        let wait = match end_due(&engine).await {
            Ok(wait) => wait,
            Err(trouble) => {
                tracing::error!(%trouble, "deadlines cannot be looked at");
                AGAIN_AFTER
            }
        };
        let now = engine.0.env.monotonic();
        if now >= keys_forgotten + LOOK_EVERY {
            keys_forgotten = now;
            if let Err(trouble) = engine.forget_keys().await {
                tracing::warn!(%trouble, "idempotency keys cannot be forgotten");
            }
        }
        tokio::select! {
            () = engine.0.alarms.earlier.notified() => {}
            () = engine.0.env.sleep(wait) => {}
        }
    }
}

/// Ends everything that is due; how long until the next.
async fn end_due(engine: &Engine) -> Result<Duration, StoreError> {
    loop {
        let now = engine.now();
        let timers = engine.0.store.due(now, DUE_BATCH).await?;
        let mut did_something = false;
        for timer in &timers {
            did_something |= match timer.kind {
                // What runs here has a clock of its own, which stands still with it.
                TimerKind::Deadline if engine.0.running.get(timer.job).is_some() => false,
                TimerKind::Deadline => engine.expire(timer.job).await.unwrap_or_else(|trouble| {
                    tracing::error!(job = %timer.job, %trouble, "a job cannot be ended");
                    false
                }),
                TimerKind::LeaseEnd if engine.0.running.get(timer.job).is_some() => false,
                TimerKind::LeaseEnd => put_back(engine, timer.job).await?,
            };
        }
        if did_something && timers.len() == DUE_BATCH {
            continue;
        }
        let next = engine.0.store.due(i64::MAX, 1 + timers.len()).await?;
        let next = next.iter().map(|timer| timer.at).find(|at| *at > now);
        engine.0.alarms.set(next.unwrap_or(i64::MAX));
        let wait = next.map_or(LOOK_EVERY, |at| {
            Duration::from_millis(u64::try_from(at.saturating_sub(engine.now())).unwrap_or(0))
        });
        return Ok(wait.clamp(Duration::from_millis(1), LOOK_EVERY));
    }
}

/// Renews the leases of what runs here, again and again.
pub(crate) async fn renew(engine: Engine) {
    loop {
        engine.0.heartbeat.store(engine.now(), Ordering::Relaxed);
        engine.0.env.sleep(RENEW_EVERY).await;
        let until = engine.now() + i64::try_from(LEASE.as_millis()).unwrap_or(0);
        for (job, fence) in engine.0.running.leased() {
            let renewed = engine.0.store.commit(Effects::one(Effect::Renew { job, fence, until }));
            // One that is no longer ours is refused when its outcome is written.
            drop(renewed.await);
        }
    }
}

impl Engine {
    /// Gives back the leases of what still runs, so that others need not wait for their end.
    pub(crate) async fn release_leases(&self) {
        for (job, fence) in self.0.running.leased() {
            let until = self.now();
            let released = self.0.store.commit(Effects::one(Effect::Renew { job, fence, until }));
            drop(released.await);
        }
    }
}

//! Ends jobs whose deadline has passed, and removes expired idempotency keys.
//!
//! The deadline in the record is authoritative. A run keeps its own time as well, so that its job
//! ends with a precise text; a job that is overdue by more than [`HOLDER_GRACE`] is ended whoever
//! holds it.

use std::sync::Arc;
use std::time::Duration;

use catena_job::{JobId, Status};
use catena_store::{Timer, TimerKind};

use crate::background::Background;
use crate::error::StoreError;
use crate::jobs::{Current, milliseconds};

/// Timers that are read at a time.
const DUE_BATCH: usize = 256;

/// How often deadlines are checked if there is none.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// How long the process that runs a job may take to end it when its time is up.
const HOLDER_GRACE: Duration = Duration::from_secs(1);

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

impl Background {
    /// Ends all overdue jobs. Returns the time until the next deadline.
    async fn end_due(&self) -> Result<Duration, StoreError> {
        let now = self.runtime.now();
        let mut after = None;
        let mut has_left = false;
        loop {
            let timers = self.jobs.store.due(now, after, DUE_BATCH).await?;
            for timer in &timers {
                if timer.kind == TimerKind::Deadline {
                    has_left |= !self.end_if_due(timer.job, timer.at, now).await?;
                }
            }
            // A job that is left must not hide those behind it.
            after = timers.last().copied();
            if timers.len() < DUE_BATCH {
                break;
            }
        }
        let job = JobId::from_bytes([u8::MAX; 16]);
        let last = Timer { at: now, kind: TimerKind::LeaseEnd, job };
        let next = self.jobs.store.due(i64::MAX, Some(last), 1).await?;
        let next = next.first().map(|timer| timer.at);
        self.runtime.deadlines.set(next.unwrap_or(i64::MAX));
        let wait = next.map_or(POLL_INTERVAL, |at| {
            let left = at.saturating_sub(self.runtime.now());
            Duration::from_millis(u64::try_from(left).unwrap_or(0))
        });
        let longest = if has_left { HOLDER_GRACE } else { POLL_INTERVAL };
        let longest = if self.jobs.store.has_peers() { HOLDER_GRACE } else { longest };
        Ok(wait.clamp(Duration::from_millis(1), longest))
    }

    /// Ends an overdue job. Returns false if it is left to the process that runs it.
    async fn end_if_due(&self, job: JobId, at: i64, now: i64) -> Result<bool, StoreError> {
        let Some(current) = self.jobs.current(job).await? else { return Ok(true) };
        let is_long_overdue = now.saturating_sub(at) >= milliseconds(HOLDER_GRACE);
        if !is_long_overdue && self.holder_keeps_time(&current).await? {
            return Ok(false);
        }
        if let Err(error) = self.execution.expire(job).await {
            tracing::error!(%job, %error, "cannot end an overdue job");
        }
        Ok(true)
    }

    /// Returns true if the process that runs a job ends it when its time is up.
    async fn holder_keeps_time(&self, current: &Current) -> Result<bool, StoreError> {
        let Some(holder) = &current.hold.holder else { return Ok(false) };
        if current.job.status() != Status::Started {
            return Ok(false);
        }
        if holder.is_worker() {
            return Ok(false);
        }
        if *holder == self.jobs.process {
            let handle = self.execution.registry.get(current.job.id());
            return Ok(handle.is_some_and(|handle| handle.keeps_time()));
        }
        Ok(self.execution.alive_holders().await?.contains(&holder.key()))
    }
}

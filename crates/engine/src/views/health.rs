//! The health of this process and the queue, for operators.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use catena_job::JobId;

use crate::error::StoreError;
use crate::execution::QUEUE;
use crate::limits::QUEUE_SAMPLE_MAX;
use crate::views::Views;

/// The health of this process.
#[derive(Debug, Clone)]
pub struct Health {
    /// The name of this process.
    pub worker: String,
    /// The number of jobs that run here.
    pub running: u64,
    /// The number of jobs that may run here at a time.
    pub slots: u64,
    /// When it last renewed its lease, as Unix time in ms.
    pub heartbeat: i64,
    /// The queued jobs of the store.
    pub queue: QueueDepths,
}

/// The number of queued jobs, up to a bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueDepths {
    /// All queued jobs.
    pub total: u64,
    /// Queued jobs by priority.
    pub by_priority: BTreeMap<u8, u64>,
    /// Queued jobs by operation reference, largest count first.
    pub by_op: Vec<(String, u64)>,
    /// The job that has been ready longest.
    pub oldest: Option<OldestQueued>,
}

/// The job that has been ready longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestQueued {
    /// The job.
    pub job: JobId,
    /// Its operation reference, as the caller wrote it.
    pub op: String,
    /// Since when it is ready, as Unix time in ms.
    pub since: i64,
}

impl Views {
    /// Returns the health of this process.
    pub(crate) async fn health(&self) -> Result<Health, StoreError> {
        Ok(Health {
            worker: self.jobs.process.process.to_string(),
            running: self.execution.registry.count() as u64,
            slots: self.runtime.limits.running_max as u64,
            heartbeat: self.runtime.heartbeat.load(Ordering::Relaxed),
            queue: self.queue_depths().await?,
        })
    }

    /// Returns the number of queued jobs that may start now, up to [`QUEUE_SAMPLE_MAX`].
    pub(crate) async fn queued_count(&self) -> Result<u64, StoreError> {
        let ready = self.jobs.store.ready(QUEUE, self.runtime.now(), QUEUE_SAMPLE_MAX).await?;
        Ok(ready.jobs.len() as u64)
    }

    /// Returns the depths of the queue. Jobs that wait for their next attempt are not among them.
    async fn queue_depths(&self) -> Result<QueueDepths, StoreError> {
        let now = self.runtime.now();
        let mut depths = QueueDepths::default();
        let mut by_op: BTreeMap<String, u64> = BTreeMap::new();
        for queued in self.jobs.store.queue(QUEUE, QUEUE_SAMPLE_MAX).await? {
            if queued.ready_at > now {
                continue;
            }
            depths.total += 1;
            *depths.by_priority.entry(queued.priority).or_default() += 1;
            *by_op.entry(queued.op.clone()).or_default() += 1;
            if depths.oldest.as_ref().is_none_or(|oldest| queued.ready_at < oldest.since) {
                let (job, op, since) = (queued.job, queued.op, queued.ready_at);
                depths.oldest = Some(OldestQueued { job, op, since });
            }
        }
        depths.by_op = by_op.into_iter().collect();
        depths.by_op.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ok(depths)
    }
}

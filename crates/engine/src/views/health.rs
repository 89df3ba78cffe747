//! The health of this process, for operators.

use std::sync::atomic::Ordering;

use crate::jobs::QueueDepths;
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
    /// When it last renewed its leases, as Unix time in ms.
    pub heartbeat: i64,
    /// The queued jobs.
    pub queue: QueueDepths,
}

impl Views {
    /// Returns the health of this process.
    pub(crate) fn health(&self) -> Health {
        Health {
            worker: self.execution.process.clone(),
            running: self.execution.registry.count() as u64,
            slots: self.runtime.limits.running_max as u64,
            heartbeat: self.runtime.heartbeat.load(Ordering::Relaxed),
            queue: self.jobs.queue_stats.depths(),
        }
    }
}

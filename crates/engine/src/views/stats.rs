//! The statistics of the last hour.

use catena_job::Status;
use catena_store::Filter;

use crate::error::StoreError;
use crate::requests::{Caller, Role};
use crate::runtime::MinuteStats;
use crate::views::Views;

/// What a caller sees of the last hour.
#[derive(Debug, Clone)]
pub struct HourStats {
    /// True if they are about the jobs of all owners.
    pub is_everyone: bool,
    /// When they were taken, as Unix time in ms.
    pub now: i64,
    /// One entry for each minute, oldest first.
    pub minutes: Vec<MinuteStats>,
    /// Jobs that are queued now.
    pub queued: u64,
    /// Jobs that run in this process now. `None` unless the caller is an admin.
    pub running: Option<u64>,
}

impl Views {
    /// Returns the statistics of all jobs to an admin, and those of their own jobs to others.
    pub(crate) async fn stats(&self, caller: &Caller) -> Result<HourStats, StoreError> {
        let is_everyone = caller.role == Role::Admin;
        let now = self.runtime.now();
        let queued = if is_everyone {
            let queued = self.queued_count().await?;
            self.runtime.stats.set_queue_depth(now, queued);
            queued
        } else {
            let pending = Filter::Status(Status::Pending);
            self.jobs.store.count(Some(&caller.did), &pending).await?
        };
        let owner = (!is_everyone).then_some(&*caller.did);
        Ok(HourStats {
            is_everyone,
            now,
            minutes: self.runtime.stats.last_hour(owner, now),
            queued,
            running: is_everyone.then(|| self.execution.registry.count() as u64),
        })
    }
}

//! What a root may run at a time: the budget is the store's, so that it is one for all processes.
//!
//! A driver that finds no room waits in line until it is notified. A notification may be lost, and a
//! driver in front of it may have died with its process, so it checks the line every second.

use std::sync::Arc;
use std::time::Duration;

use catena_job::{JobId, Status};
use catena_store::{Hint, RootBudget};

use crate::error::StoreError;
use crate::execution::Descend;
use crate::jobs::{is_live, milliseconds};
use crate::limits::CONCURRENT_STEPS_MAX;
use crate::orchestration::Orchestration;
use crate::orchestration::drivers::DriverEvent;

/// How often the line is checked by those that wait.
pub(super) const ROOM_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Orchestration {
    /// Returns the budget of a new root, below which nothing runs.
    pub(super) fn new_budget(&self, root: JobId) -> Arc<RootBudget> {
        let (budget, _) = self.jobs.store.root_budget(root, CONCURRENT_STEPS_MAX);
        budget.set_counted();
        budget
    }

    /// Returns the budget of a root.
    pub(super) async fn budget_of(&self, root: JobId) -> Result<Arc<RootBudget>, StoreError> {
        let (budget, is_new) = self.jobs.store.root_budget(root, CONCURRENT_STEPS_MAX);
        if is_new {
            self.count_running(root, &budget).await?;
        }
        Ok(budget)
    }

    /// Counts what runs below a root that was driven before.
    async fn count_running(&self, root: JobId, budget: &RootBudget) -> Result<(), StoreError> {
        let below = match self.jobs.current(root).await? {
            Some(root) => self.execution.read_tree(&root, Descend::Open, usize::MAX).await?.below,
            None => Vec::new(),
        };
        for current in below {
            let runs = matches!(current.job.status(), Status::Pending | Status::Started);
            let is_leaf = self.operations.has_no_steps(current.text("operation"));
            if let Some(parent) = current.job.parent().filter(|_| runs && is_leaf)
                && let Some(step) = parent.step()
            {
                budget.count((parent.job, step));
            }
        }
        self.notify_room(budget.set_counted());
        Ok(())
    }

    /// Notifies a driver, in this process or another, that there may be room to start a step.
    pub(super) fn notify_room(&self, driver: Option<JobId>) {
        let Some(job) = driver else { return };
        if !self.drivers.send(job, DriverEvent::Room) {
            self.jobs.store.send_hint(&self.jobs.process, Hint::Room { job });
        }
    }

    /// Notifies the driver that is next in line, unless it is this one.
    pub(super) fn notify_other(&self, next: Option<JobId>, own: JobId) {
        self.notify_room(next.filter(|driver| *driver != own));
    }

    /// Corrects a budget for which somebody waits, unless somebody just did: drivers without a living
    /// process leave the line, and steps of orchestrations that have ended no longer count.
    pub(super) async fn check_budget(
        &self,
        root: JobId,
        budget: &RootBudget,
    ) -> Result<(), StoreError> {
        if !budget.begin_check(self.runtime.now(), milliseconds(ROOM_CHECK_INTERVAL)) {
            return Ok(());
        }
        if !budget.is_counted() {
            self.count_running(root, budget).await?;
        }
        let alive = self.execution.alive_holders().await?;
        for driver in budget.waiting() {
            let current = self.jobs.current(driver).await?;
            let holder = current.as_ref().and_then(|current| current.hold.holder.as_ref());
            if !holder.is_some_and(|holder| alive.contains(&holder.key())) {
                budget.leave(driver);
            }
        }
        for parent in budget.counted_parents() {
            let current = self.jobs.current(parent).await?;
            if !current.is_some_and(|current| is_live(&current.job)) {
                budget.release_all(parent);
            }
        }
        self.notify_room(budget.next());
        Ok(())
    }
}

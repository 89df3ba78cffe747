//! Background tasks: each is safe to repeat, runs on a timer or a notification, and logs what it
//! did.

mod claim;
mod collect;
mod expire;
mod recover;
mod retain;
mod schedules;
mod summary;

use std::sync::Arc;

use catena_job::JobId;
use tokio::sync::watch;

use crate::commands::Commands;
use crate::error::StoreError;
use crate::execution::Execution;
use crate::jobs::Jobs;
use crate::operations::Operations;
use crate::runtime::Runtime;

pub use summary::{RecoverySummary, SkippedJob};

/// The background tasks of an engine.
pub(crate) struct Background {
    runtime: Arc<Runtime>,
    operations: Arc<Operations>,
    jobs: Arc<Jobs>,
    execution: Arc<Execution>,
    commands: Arc<Commands>,
    /// What recovery has done so far.
    pub(crate) recovery: watch::Sender<RecoverySummary>,
}

impl Background {
    pub(crate) fn new(commands: Arc<Commands>) -> Arc<Self> {
        Arc::new(Background {
            runtime: Arc::clone(&commands.runtime),
            operations: Arc::clone(&commands.operations),
            jobs: Arc::clone(&commands.jobs),
            execution: Arc::clone(&commands.execution),
            commands,
            recovery: watch::Sender::new(RecoverySummary::default()),
        })
    }

    /// Finds the jobs that were live when the process started, and starts the tasks.
    ///
    /// New work is accepted during recovery and runs if there is a slot. The queue, deadlines and
    /// leases are processed when recovery is done, because until then they describe the previous
    /// process. The tasks end when the engine stops.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        let live = self.find_live_jobs().await?;
        let orchestration = Arc::clone(&self.commands.orchestration);
        self.spawn_until_stopped(expire::renew_leases(Arc::clone(self)));
        self.spawn_until_stopped(retain::delete_old_jobs(Arc::clone(&self.commands)));
        self.spawn_until_stopped(collect::collect_garbage(Arc::clone(&self.jobs)));
        self.spawn_until_stopped(schedules::start_due(Arc::clone(&self.commands)));
        self.spawn_until_stopped(async move { orchestration.retry_pending_cancels().await });
        self.start_recovery(live);
        Ok(())
    }

    fn start_recovery(self: &Arc<Self>, live: Vec<JobId>) {
        if live.is_empty() {
            self.finish_empty_recovery();
            return self.start_queue();
        }
        let background = Arc::clone(self);
        self.spawn_until_stopped(async move {
            background.recover(live).await;
            background.start_queue();
        });
    }

    fn start_queue(self: &Arc<Self>) {
        for _ in 0..claim::CLAIMERS {
            self.spawn_until_stopped(claim::claim_jobs(Arc::clone(self)));
        }
        self.spawn_until_stopped(expire::end_overdue_jobs(Arc::clone(self)));
    }

    fn spawn_until_stopped(&self, task: impl Future<Output = ()> + Send + 'static) {
        let runtime = Arc::clone(&self.runtime);
        self.runtime.spawn(async move {
            tokio::select! {
                () = task => {}
                () = runtime.stopping() => {}
            }
        });
    }
}

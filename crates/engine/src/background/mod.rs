//! Background tasks: each is safe to repeat, runs on a timer or a notification, and logs what it
//! did.

mod bound;
mod claim;
mod collect;
mod expire;
mod lease;
mod push;
mod recover;
mod retain;
mod schedules;
mod summary;

use std::sync::{Arc, Weak};

use tokio::sync::watch;

use crate::commands::Commands;
use crate::error::StoreError;
use crate::execution::Execution;
use crate::jobs::Jobs;
use crate::operations::Operations;
use crate::runtime::{Aborts, Runtime, Suspects};

pub use summary::{RecoverySummary, SkippedJob};

/// The background tasks of an engine.
pub(crate) struct Background {
    runtime: Arc<Runtime>,
    operations: Arc<Operations>,
    jobs: Arc<Jobs>,
    execution: Arc<Execution>,
    commands: Arc<Commands>,
    /// The jobs that the process was working on when it aborted.
    pub(crate) suspects: Suspects,
    /// What recovery has done so far.
    pub(crate) recovery: watch::Sender<RecoverySummary>,
    own: Weak<Background>,
}

impl Background {
    pub(crate) fn new(commands: Arc<Commands>, aborts: Aborts) -> Arc<Self> {
        Arc::new_cyclic(|own| Background {
            runtime: Arc::clone(&commands.runtime),
            operations: Arc::clone(&commands.operations),
            jobs: Arc::clone(&commands.jobs),
            execution: Arc::clone(&commands.execution),
            commands,
            suspects: Suspects::new(aborts),
            recovery: watch::Sender::new(RecoverySummary::default()),
            own: Weak::clone(own),
        })
    }

    /// Registers this process and starts the tasks. New work is accepted during recovery. The tasks end
    /// when the engine stops.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        let has_suspects = !self.suspects.to_start_alone().is_empty();
        let closed = has_suspects.then(|| self.runtime.gate.close());
        let limits = &self.runtime.limits;
        let counts = limits.stored_bytes_per_caller_max.or(limits.stored_bytes_max).is_some();
        self.jobs.store.count_stored_bytes(counts).await?;
        self.register().await?;
        self.find_lanes().await?;
        self.recovery.send_modify(|summary| summary.began = self.runtime.now());
        let orchestration = Arc::clone(&self.commands.orchestration);
        self.spawn_until_stopped(lease::keep_lease(Arc::clone(self)));
        self.spawn_until_stopped(lease::receive_hints(Arc::clone(self)));
        self.spawn_until_stopped(retain::delete_old_jobs(Arc::clone(&self.commands)));
        self.spawn_until_stopped(collect::collect_garbage(
            Arc::clone(&self.jobs),
            Arc::clone(&self.operations),
        ));
        self.spawn_until_stopped(collect::trim_changes(Arc::clone(&self.jobs)));
        self.spawn_until_stopped(collect::sample_queue(Arc::clone(&self.commands.views)));
        self.spawn_until_stopped(schedules::start_due(Arc::clone(&self.commands)));
        self.spawn_until_stopped(async move { orchestration.retry_pending_cancels().await });
        if let Some(closed) = closed {
            self.spawn_until_stopped(claim::start_suspects(Arc::clone(self), closed));
        }
        self.spawn_until_stopped(claim::start_queued_jobs(Arc::clone(self)));
        self.spawn_until_stopped(push::push_jobs(Arc::clone(&self.commands)));
        self.spawn_until_stopped(expire::end_overdue_jobs(Arc::clone(self)));
        self.spawn_until_stopped(claim::acquit_survivors(Arc::clone(self)));
        self.spawn_until_stopped(Arc::clone(self).recover_at_start());
        Ok(())
    }

    fn spawn_until_stopped(&self, task: impl Future<Output = ()> + Send + 'static) {
        let runtime = Arc::clone(&self.runtime);
        self.runtime.spawn(async move {
            tokio::select! {
                biased;
                () = runtime.stopping() => {}
                () = task => {}
            }
        });
    }
}

//! Starts the runs of schedules that are due.

use std::sync::Arc;
use std::time::Duration;

use crate::commands::Commands;

/// How long to wait after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Starts what is due, repeatedly.
pub(super) async fn start_due(commands: Arc<Commands>) {
    loop {
        commands.runtime.gate.opened().await;
        let wait = match commands.start_due_schedules().await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "schedules cannot be read");
                RETRY_DELAY
            }
        };
        tokio::select! {
            () = commands.jobs.schedule_changed.notified() => {}
            () = commands.runtime.env.sleep(wait) => {}
        }
    }
}

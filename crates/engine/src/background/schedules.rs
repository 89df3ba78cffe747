//! Invokes scheduled operations.

use std::sync::Arc;
use std::time::Duration;

use crate::commands::Commands;

/// How long to wait after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Invokes what is due, repeatedly.
pub(super) async fn invoke_due(commands: Arc<Commands>) {
    loop {
        let wait = match commands.invoke_due_schedules().await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "a scheduled operation is delayed");
                RETRY_DELAY
            }
        };
        tokio::select! {
            () = commands.schedule_changed.notified() => {}
            () = commands.runtime.env.sleep(wait) => {}
        }
    }
}

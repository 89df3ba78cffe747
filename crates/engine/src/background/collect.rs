//! Removes cells that are no longer referenced.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::jobs::Jobs;

/// How often to check whether something was deleted.
const POLL_INTERVAL: Duration = Duration::from_secs(600);

/// Collects garbage, repeatedly, if there is any.
pub(super) async fn collect_garbage(jobs: Arc<Jobs>) {
    loop {
        jobs.runtime.env.sleep(POLL_INTERVAL).await;
        if !jobs.has_garbage.swap(false, Ordering::Relaxed) {
            continue;
        }
        match jobs.store.collect().await {
            Ok(removed) => tracing::info!(removed, "removed unreferenced cells"),
            Err(error) => tracing::warn!(%error, "cannot remove unreferenced cells"),
        }
    }
}

//! Removes what is no longer needed: cells without references and old changes. Measures the queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::StoreError;
use crate::jobs::Jobs;
use crate::operations::Operations;
use crate::views::Views;

/// How often to check whether something was deleted.
const POLL_INTERVAL: Duration = Duration::from_secs(600);

/// How often old changes are removed. A venue that changes a thousand jobs a second keeps 60,000 more
/// than it needs.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

/// Removes old changes from the order of commits, repeatedly.
pub(super) async fn trim_changes(jobs: Arc<Jobs>) {
    loop {
        jobs.runtime.env.sleep(TRIM_INTERVAL).await;
        if let Err(error) = jobs.store.trim_changes().await {
            tracing::warn!(%error, "cannot remove old changes");
        }
    }
}

/// How often the queue is measured for the statistics.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(15);

/// Measures the queue, repeatedly.
pub(super) async fn sample_queue(views: Arc<Views>) {
    loop {
        views.runtime.env.sleep(SAMPLE_INTERVAL).await;
        if let Ok(depth) = views.queued_count().await {
            views.runtime.stats.set_queue_depth(views.runtime.now(), depth);
        }
    }
}

/// Collects garbage, repeatedly, if there is any.
pub(super) async fn collect_garbage(jobs: Arc<Jobs>, operations: Arc<Operations>) {
    loop {
        jobs.runtime.env.sleep(POLL_INTERVAL).await;
        if !jobs.has_garbage.swap(false, Ordering::Relaxed) {
            continue;
        }
        if let Err(error) = remove_files(&jobs, &operations).await {
            tracing::warn!(%error, "cannot remove the files of deleted jobs");
        }
        match jobs.store.collect().await {
            Ok(removed) => tracing::info!(removed, "removed unreferenced cells"),
            Err(error) => tracing::warn!(%error, "cannot remove unreferenced cells"),
        }
    }
}

/// Removes the files of jobs that no longer exist, which a crash can leave.
async fn remove_files(jobs: &Jobs, operations: &Operations) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = operations.jobs_with_files(after).await?;
        let Some(last) = page.last().copied() else { return Ok(()) };
        for job in page {
            if jobs.current(job).await?.is_none() {
                operations.remove_files_of(job).await?;
            }
        }
        after = Some(last);
    }
}

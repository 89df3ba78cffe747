//! Deletes jobs that ended long ago, if the operator set a retention rule.

use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;

use crate::commands::Commands;
use crate::error::StoreError;

/// How often old jobs are searched for.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// Jobs that are read at a time.
const BATCH: usize = 500;

/// Deletes old jobs, repeatedly.
pub(super) async fn delete_old_jobs(commands: Arc<Commands>) {
    let Some(age) = commands.runtime.limits.retention else { return };
    loop {
        match delete_older_than(&commands, age).await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(deleted, "deleted old jobs"),
            Err(error) => tracing::error!(%error, "cannot delete old jobs"),
        }
        commands.runtime.env.sleep(POLL_INTERVAL).await;
    }
}

/// Deletes root jobs that ended longer ago than `age`, with their sub-jobs. Returns the number of
/// roots.
async fn delete_older_than(commands: &Commands, age: Duration) -> Result<u64, StoreError> {
    let before = commands.runtime.now() - i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let mut deleted = 0;
    let mut after: Option<JobId> = None;
    loop {
        let page = commands.jobs.store.all(after, BATCH).await?;
        let Some(last) = page.last() else { return Ok(deleted) };
        after = Some(last.0);
        // Job IDs start with their creation time: all that follow are younger.
        let is_last_page = last.1.created >= before;
        for (job, summary) in page {
            let is_old = summary.status.is_terminal() && summary.updated < before;
            if is_old && summary.parent.is_none() {
                commands.delete_tree(job, None).await?;
                deleted += 1;
            }
        }
        if is_last_page {
            return Ok(deleted);
        }
    }
}

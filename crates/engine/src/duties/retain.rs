//! Deletes jobs that ended long ago, when the operator set a rule for it.

use std::time::Duration;

use catena_job::JobId;

use crate::engine::Engine;
use crate::error::StoreError;

/// How often old jobs are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Jobs read in one go.
const BATCH: usize = 500;

/// Deletes, again and again.
pub(crate) async fn retain(engine: Engine) {
    let Some(age) = engine.0.limits.retention else { return };
    loop {
        match delete_old(&engine, age).await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(deleted, "old jobs deleted"),
            Err(trouble) => tracing::error!(%trouble, "old jobs cannot be deleted"),
        }
        engine.0.env.sleep(LOOK_EVERY).await;
    }
}

/// Deletes jobs without a parent that ended before the age; their sub-jobs go with them.
pub(crate) async fn delete_old(engine: &Engine, age: Duration) -> Result<u64, StoreError> {
    let before = engine.now() - i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let mut deleted = 0;
    let mut after: Option<JobId> = None;
    loop {
        let page = engine.0.store.all(after, BATCH).await?;
        let Some(last) = page.last() else { return Ok(deleted) };
        after = Some(last.0);
        // IDs begin with the time of their making: what follows is younger.
        let is_reached = last.1.created >= before;
        for (job, summary) in page {
            let is_old = summary.status.is_terminal() && summary.updated < before;
            if is_old && summary.parent.is_none() {
                engine.delete_tree(job).await?;
                deleted += 1;
            }
        }
        if is_reached {
            return Ok(deleted);
        }
    }
}

//! Removes what nothing refers to any more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::Engine;

/// How often there is a look whether something was deleted.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// Collects, again and again, when there is something to collect.
pub(crate) async fn collect(engine: Engine) {
    loop {
        engine.0.env.sleep(LOOK_EVERY).await;
        if !engine.0.has_garbage.swap(false, Ordering::Relaxed) {
            continue;
        }
        match engine.0.store.collect().await {
            Ok(removed) => tracing::info!(removed, "unreferenced cells removed"),
            Err(trouble) => tracing::warn!(%trouble, "unreferenced cells cannot be removed"),
        }
    }
}

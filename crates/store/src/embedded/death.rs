//! The commit at which the process kills itself, for tests of the binary that must be interrupted exactly there.
//!
//! It has an effect only in builds with debug assertions, and only if the variable `CATENA_X_TEST_DIE_AT_COMMIT` is set:
//! `N` kills the process instead of the commit that follows N others, and `N,durable` once that commit is durable and
//! before anybody learns of it. It is here and not around the store because the binary must run as it always does.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::effects::{CommitError, Receipt};
use crate::store::StoreFuture;

/// When the process dies.
struct Death {
    /// The commits that come before.
    left: AtomicU64,
    is_last_durable: bool,
}

static DEATH: LazyLock<Option<Death>> = LazyLock::new(|| {
    let text = std::env::var_os("CATENA_X_TEST_DIE_AT_COMMIT")?.into_string().ok()?;
    let (number, is_last_durable) = match text.split_once(',') {
        Some((number, kind)) => (number, kind == "durable"),
        None => (text.as_str(), false),
    };
    Some(Death { left: AtomicU64::new(number.parse().ok()?), is_last_durable })
});

/// Returns when the process dies. `None` in nearly all processes, and in all that are optimised.
fn death() -> Option<&'static Death> {
    if cfg!(debug_assertions) { DEATH.as_ref() } else { None }
}

/// Makes a commit, unless the process is to die at it.
pub(super) fn or_commit(
    commit: impl FnOnce() -> StoreFuture<'static, Receipt, CommitError>,
) -> StoreFuture<'static, Receipt, CommitError> {
    let Some(death) = death() else { return commit() };
    let left =
        death.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if left.is_ok() {
        return commit();
    }
    if !death.is_last_durable {
        die();
        return Box::pin(std::future::pending());
    }
    let committed = commit();
    Box::pin(async move {
        let _ = committed.await;
        die();
        std::future::pending().await
    })
}

fn die() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

//! The monotonic clock. Limits of time are kept here and nowhere else, so it is read directly.

use std::time::{Duration, Instant};

#[expect(clippy::disallowed_methods, reason = "the supervisor keeps real limits of time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits for the kernel to finish something that it announces nowhere.
#[expect(clippy::disallowed_methods, reason = "removing a cgroup has no event to wait for")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

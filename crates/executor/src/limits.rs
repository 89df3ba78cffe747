//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Cells that one executor runs at a time: each has a thread and processes of its own.
pub const SLOTS_MAX: usize = 256;

/// How often an executor announces itself: a venue that was restarted on another folder learns of it.
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(30);

/// How long to wait after an announcement that did not arrive.
pub const ANNOUNCE_RETRY_DELAY: Duration = Duration::from_millis(300);

/// How often the upload of a file is tried. Afterwards the attempt has failed.
pub const UPLOAD_TRIES_MAX: u32 = 5;

/// How long to wait before an upload is tried again.
pub const UPLOAD_RETRY_DELAY: Duration = Duration::from_millis(200);

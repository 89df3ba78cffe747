//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Cells that one executor runs at a time: each has a thread and processes of its own.
pub const SLOTS_MAX: usize = 256;

/// Workers that are kept ready in an environment with packages: each has a good part of them in memory.
pub const PACKAGES_POOL_MAX: usize = 2;

/// How often an executor announces itself: a venue that was restarted on another folder learns of it.
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(10);

/// How often the progress of a cell is looked at.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// How long to wait after an announcement that did not arrive.
pub const ANNOUNCE_RETRY_DELAY: Duration = Duration::from_millis(300);

/// How long a paused cell is kept by default. Then its job is given back.
pub const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Bytes of the description of an installed environment.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// Bytes of the message with which an installation failed. Its end says why.
pub const INSTALL_MESSAGE_BYTES_MAX: usize = 2_000;

/// How often the upload of a file is tried. Afterwards the attempt has failed.
pub const UPLOAD_TRIES_MAX: u32 = 5;

/// How long to wait before an upload is tried again.
pub const UPLOAD_RETRY_DELAY: Duration = Duration::from_millis(200);

//! Jobs as they are stored: reading them, changing them, and everything that belongs to one.
//!
//! [`Jobs`] is the only component that appends records. A change is decided on a [`Current`] job,
//! drafted as a [`Draft`], committed by [`Jobs::commit`] on the condition that the job has not
//! changed meanwhile, and then announced to watchers, counters, quotas and drivers. Nothing here
//! holds a lock on a job, and nothing here runs one.

mod after_commit;
mod commit;
mod commit_failure;
mod draft;
mod lookup;
mod messages;
mod outcome;
mod queue_stats;
mod remote_steps;
mod reuse;
mod secrets;
mod time;
mod unrecovered;
mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use catena_auth::SealKey;
use catena_store::Store;

use crate::requests::{Admission, Caller, Did, Role};
use crate::runtime::Runtime;

pub(crate) use after_commit::DriverEvents;
pub(crate) use commit::{Changed, Committed};
pub(crate) use commit_failure::{CommitFailure, unless_overtaken};
pub(crate) use draft::{Current, Draft, truncate_text};
pub(crate) use lookup::{
    DEPTH, check_control, check_visible, depth_of, is_answering, is_live, waits_for_message,
};
pub(crate) use messages::{CREDENTIALS, message_record, reseal_message};
pub(crate) use outcome::{
    adapter_panicked, append_error, check_output_blocking, control_error, incomplete_payload,
    interrupted, outcome_change, run_inline, time_limit_exceeded,
};
pub(crate) use queue_stats::QueueStats;
pub use queue_stats::{OldestQueued, QueueDepths};
pub(crate) use remote_steps::{PausedHere, RemoteSnapshot, has_open_remote_steps};
pub(crate) use reuse::{Rerun, ReusedEntry, ReusedStep, reused_steps};
pub(crate) use secrets::{
    DELEGATED, JOB_SECRETS_PURPOSE, NewSecrets, input_secrets, passed_on_secrets, redact,
    redacted_paths,
};
pub(crate) use time::{deadline, execution_limit, milliseconds, recorded_limit, time_until};
pub(crate) use unrecovered::Unrecovered;
pub(crate) use watch::{Watch, Watchers};

/// The jobs of a venue.
pub(crate) struct Jobs {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) store: Arc<dyn Store>,
    /// The venue's DID.
    pub(crate) did: Did,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) queue_stats: QueueStats,
    /// Jobs of the previous process that have not been recovered.
    pub(crate) unrecovered: Unrecovered,
    /// True if jobs were deleted since cells were last collected.
    pub(crate) has_garbage: AtomicBool,
    admission: Arc<Admission>,
    drivers: Arc<dyn DriverEvents>,
    seal_key: SealKey,
}

impl Jobs {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        store: Arc<dyn Store>,
        did: Did,
        seal_key: SealKey,
        admission: Arc<Admission>,
        drivers: Arc<dyn DriverEvents>,
    ) -> Self {
        Jobs {
            runtime,
            store,
            did,
            watchers: Arc::default(),
            queue_stats: QueueStats::default(),
            unrecovered: Unrecovered::default(),
            has_garbage: AtomicBool::new(false),
            admission,
            drivers,
            seal_key,
        }
    }

    /// Returns the caller as which the venue itself acts on sub-jobs for their parent.
    pub(crate) fn venue_caller(&self) -> Caller {
        Caller { did: self.did.clone(), role: Role::Admin, delegations: Vec::new() }
    }
}

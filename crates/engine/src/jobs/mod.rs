//! Jobs as they are stored: reading them, changing them, and everything that belongs to one.
//!
//! [`Jobs`] is the only component that appends records. A change is decided on a [`Current`] job,
//! drafted as a [`Draft`], committed by [`Jobs::commit`] on the condition that the job has not
//! changed meanwhile, and then announced to watchers, counters, quotas and drivers. Nothing here
//! holds a lock on a job, and nothing here runs one.

mod after_commit;
mod awaiting;
mod binding;
mod commit;
mod commit_failure;
mod draft;
mod feed;
mod lookup;
mod messages;
mod outcome;
mod remote_steps;
mod reuse;
mod roots;
mod secrets;
mod signatures;
mod time;
mod tombstones;
mod user_secrets;
mod watch;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use catena_auth::SealKey;
use catena_store::{Holder, Store};
use tokio::sync::Notify;

use crate::operations::Adapter;

use crate::operations::Environments;
use crate::requests::{Caller, Did, Role};
use crate::runtime::Runtime;

pub(crate) use after_commit::DriverEvents;
pub(crate) use binding::is_bound;
pub(crate) use commit::{Changed, Committed};
pub(crate) use commit_failure::{CommitFailure, unless_overtaken};
pub(crate) use draft::{Current, Draft, truncate_text};
pub(crate) use feed::ChangeSignal;
pub(crate) use lookup::{
    AUTHORITY, DEPTH, check_control, check_visible, depth_of, is_answering, is_live,
    message_trigger, waits_for_message,
};
pub(crate) use messages::{CREDENTIALS, OpenedMessage, Secrecy, message_record};
pub(crate) use outcome::{
    adapter_panicked, append_error, attempt_time_exceeded, check_output_blocking, control_error,
    executor_lost, incomplete_payload, interrupted, interrupted_too_often, outcome_change,
    ownership_refusal, prepare_roots, refusal_change, roots_owner, run_inline, run_on_roots,
    storage_full, time_limit_exceeded, too_many_sub_jobs, too_much_memory, worker_lost,
};
pub(crate) use remote_steps::{PausedHere, RemoteSnapshot, has_open_remote_steps};
pub(crate) use reuse::{Rerun, ReusedEntry, ReusedStep, kept_output, reused_steps};
pub(crate) use roots::{CancelJobs, RootChanges, RootFailure, RootWork};
pub(crate) use secrets::{
    DECLARED, DELEGATED, JOB_SECRETS_PURPOSE, NewSecrets, input_secrets, passed_on_secrets, redact,
    redacted_paths, seal_key,
};
pub(crate) use time::{
    LEFT_MS, deadline, execution_limit, left_ms, milliseconds, recorded_limit, restart_clock,
    stop_clock, time_left_ms, time_until,
};
pub use tombstones::Tombstone;
pub(crate) use user_secrets::UserSecret;
pub use user_secrets::secret_entry;
pub(crate) use watch::{Watch, Watchers};

/// The jobs of a venue.
pub(crate) struct Jobs {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) store: Arc<dyn Store>,
    /// The venue's DID.
    pub(crate) did: Did,
    /// The DIDs of admins.
    pub(crate) admins: Vec<String>,
    /// The environments of executors.
    pub(crate) environments: Arc<Environments>,
    pub(crate) watchers: Arc<Watchers>,
    /// Wakes those who follow all jobs.
    pub(crate) changes: ChangeSignal,
    /// The name under which this process holds jobs.
    pub(crate) process: Holder,
    /// The adapters, by name, for jobs that are bound to roots.
    adapters: HashMap<&'static str, Arc<dyn Adapter>>,
    /// Notified when a job was queued that this venue's own adapters run.
    pub(crate) queued: Arc<Notify>,
    /// Notified when something was scheduled.
    pub(crate) schedule_changed: Notify,
    /// True if jobs were deleted since cells were last collected.
    pub(crate) has_garbage: AtomicBool,
    drivers: Arc<dyn DriverEvents>,
    /// What cancels and wakes jobs. A weak reference, because that owns this component.
    canceller: OnceLock<Weak<dyn CancelJobs>>,
    seal_key: SealKey,
}

/// Returns the name of a process that starts.
fn new_process(runtime: &Runtime) -> Holder {
    let mut random = [0; 16];
    runtime.env.random(&mut random);
    let number = u128::from_be_bytes(random);
    let name = format!("venue-{:016x}", (number >> 64) as u64);
    Holder { process: name.into(), epoch: number as u64 }
}

impl Jobs {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        store: Arc<dyn Store>,
        did: Did,
        seal_key: SealKey,
        drivers: Arc<dyn DriverEvents>,
    ) -> Self {
        Jobs {
            process: new_process(&runtime),
            environments: Arc::default(),
            runtime,
            store,
            did,
            admins: Vec::new(),
            adapters: HashMap::new(),
            queued: Arc::default(),
            schedule_changed: Notify::new(),
            watchers: Arc::default(),
            changes: ChangeSignal::default(),
            has_garbage: AtomicBool::new(false),
            drivers,
            canceller: OnceLock::new(),
            seal_key,
        }
    }

    /// Sets the adapters of jobs that are bound to roots.
    pub(crate) fn set_adapters(&mut self, adapters: &[Arc<dyn Adapter>]) {
        let by_name = adapters.iter().map(|adapter| (adapter.name(), Arc::clone(adapter)));
        self.adapters = by_name.collect();
    }

    /// Returns the caller as which the venue itself acts on sub-jobs for their parent.
    pub(crate) fn venue_caller(&self) -> Caller {
        Caller::new(self.did.clone(), Role::Admin)
    }
}

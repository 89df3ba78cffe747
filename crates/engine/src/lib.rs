//! Runs jobs: time, concurrency, recovery.
//!
//! A request becomes a decision about one job, and the decision becomes effects that are committed
//! together. Each commit names the head of the job that was decided on, so that of two concurrent
//! decisions the store refuses the second, which reads the job again and decides again. Nothing here holds a lock
//! on a job, so what is true of one process is true of many.
//!
//! Folders, in reading order. Each may use those before it, never those after it (`tests/tidy.rs`
//! checks this):
//!
//! 1. [`error`] and [`limits`]: what can go wrong, and every bound.
//! 2. [`runtime`]: time, randomness, tasks, counters.
//! 3. [`requests`]: the requests, the callers that make them, and their quotas.
//! 4. [`operations`]: adapters, operations, assets, and what adapters receive.
//! 5. `jobs`: jobs as they are stored, and the one way to change them.
//! 6. `execution`: what runs in this process, and how it is controlled.
//! 7. [`views`]: what callers see of jobs.
//! 8. `orchestration`: jobs whose steps are jobs, here and on other venues.
//! 9. `commands`: the requests that create or change jobs, one file each.
//! 10. [`background`]: recovery, the queue, deadlines, schedules, retention.
//! 11. [`Engine`]: the façade over all of these.
//!
//! This crate names no adapter, and takes time, randomness and tasks from [`runtime::Env`] alone.

pub mod background;
mod commands;
mod engine;
pub mod error;
mod execution;
mod jobs;
pub mod limits;
pub mod operations;
mod orchestration;
pub mod requests;
pub mod runtime;
pub mod views;

pub use catena_auth::{Delegation, DelegationError, capability};
pub use commands::{NamedOperation, offline};
pub use engine::{Engine, Setup};
pub use jobs::{Tombstone, secret_entry};
pub use limits::Limits;
pub use operations::{
    Adapter, BoundEnd, BoundJob, BoundStart, Call, Cause, EndedCall, ExecutionMode, Failure, Host,
    Need, Operation, Registration, RetryAdvice, RootId, Roots, RunControl, SecretPurpose, Turn,
    TurnFuture,
};
pub use requests::{Caller, Did, Role};
pub use runtime::Counters;
pub use views::{OldestQueued, QueueDepths};

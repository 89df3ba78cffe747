//! The venue as its adapters see it.
//!
//! Adapters receive a [`Host`] instead of the engine, so that this folder does not depend on the
//! folders above it, and an adapter can be tested with a host of its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_value::ValueId;

use crate::error::{ControlError, InvokeError, JobError, RerunError, StoreError};
use crate::operations::failure::Failure;
use crate::operations::operation::Operation;
use crate::operations::roots::{RootId, Roots};
use crate::operations::secret::Keyring;
use crate::requests::{
    CallRequest, Caller, HistoryPage, IdempotencyKey, Invoke, Invoked, JobFilter, JobView,
    NewSchedule, Scheduled,
};
use crate::runtime::Env;

/// The reply of a [`Host`].
pub type HostReply<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'static>>;

/// The venue that runs an adapter, as the adapter may use it. Every request carries the caller on whose
/// authority it is made.
pub trait Host: Send + Sync + 'static {
    /// Returns the environment: time, randomness and tasks.
    fn env(&self) -> &Arc<dyn Env>;

    /// Returns true unless the venue is shutting down.
    fn is_ready(&self) -> bool;

    /// Returns the operations of all adapters, ordered by path.
    fn operations(&self) -> Vec<(String, Arc<Operation>)>;

    /// Returns the name and description of each adapter.
    fn adapters(&self) -> Vec<(&'static str, &'static str)>;

    /// Returns the metadata of the asset that a reference names, as it was registered. `None` if there
    /// is none.
    fn asset(&self, caller: &Caller, reference: &str) -> HostReply<Option<Arc<str>>, Failure>;

    /// Returns IDs of assets that the caller registered, and how many there are.
    fn own_assets(
        &self,
        caller: &Caller,
        offset: u64,
        limit: usize,
    ) -> HostReply<(Vec<ValueId>, u64), Failure>;

    /// Returns IDs of the caller's jobs, oldest first, and how many there are.
    fn own_jobs(
        &self,
        caller: &Caller,
        offset: u64,
        limit: usize,
    ) -> HostReply<(Vec<JobId>, u64), Failure>;

    /// Returns roots of a user as they are stored. The caller of this function has checked that they may
    /// be read.
    fn read_roots_of(&self, owner: &str, roots: Vec<RootId>) -> HostReply<Roots, Failure>;

    /// Returns roots of the caller as they are stored. Changes of the result have no effect.
    fn read_roots(&self, caller: &Caller, roots: Vec<RootId>) -> HostReply<Roots, Failure>;

    /// Returns records of a job, from an index on.
    fn history(
        &self,
        caller: &Caller,
        job: JobId,
        from: u64,
        limit: usize,
    ) -> HostReply<HistoryPage, JobError>;

    /// Invokes an operation as a job.
    fn invoke(&self, request: Invoke) -> HostReply<Invoked, InvokeError>;

    /// Invokes an operation as a call of a running job, which commits to it. Returns the called job:
    /// once it has ended, or as it is if the call is detached. Fails with the code `unrecorded` if
    /// nothing is recorded of the calling job.
    fn call(&self, request: CallRequest) -> HostReply<JobView, Failure>;

    /// Returns a job.
    fn job(&self, caller: &Caller, job: JobId) -> HostReply<JobView, JobError>;

    /// Returns a job once it has ended, or as it is after `time`.
    fn wait(&self, caller: &Caller, job: JobId, time: Duration) -> HostReply<JobView, JobError>;

    /// Cancels a job and returns it.
    fn cancel(
        &self,
        caller: &Caller,
        job: JobId,
        reason: Option<String>,
    ) -> HostReply<JobView, ControlError>;

    /// Pauses a job and returns it.
    fn pause(&self, caller: &Caller, job: JobId) -> HostReply<JobView, ControlError>;

    /// Resumes a job and returns it.
    fn resume(&self, caller: &Caller, job: JobId) -> HostReply<JobView, ControlError>;

    /// Deletes a job.
    fn delete(&self, caller: &Caller, job: JobId) -> HostReply<(), ControlError>;

    /// Runs what did not complete of a job again.
    fn rerun(
        &self,
        caller: &Caller,
        job: JobId,
        key: Option<IdempotencyKey>,
    ) -> HostReply<Invoked, RerunError>;

    /// Returns the jobs that match a filter, oldest first, at most so many.
    fn select(
        &self,
        caller: &Caller,
        filter: JobFilter,
        limit: usize,
    ) -> HostReply<Vec<JobId>, StoreError>;

    /// Schedules an operation.
    fn schedule(&self, caller: &Caller, request: NewSchedule) -> HostReply<Scheduled, InvokeError>;

    /// Removes a schedule. Returns false if there was none.
    fn unschedule(&self, caller: &Caller, handle: &str) -> HostReply<bool, InvokeError>;

    /// Pauses a schedule. Returns `None` if there is no such schedule.
    fn pause_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> HostReply<Option<Scheduled>, InvokeError>;

    /// Resumes a schedule. Returns `None` if there is no such schedule.
    fn resume_schedule(
        &self,
        caller: &Caller,
        handle: &str,
    ) -> HostReply<Option<Scheduled>, InvokeError>;

    /// Returns the schedules of the caller, of another owner or, for the owner `*`, of all, ordered
    /// by time.
    fn scheduled(
        &self,
        caller: &Caller,
        owner: Option<&str>,
    ) -> HostReply<Vec<Scheduled>, InvokeError>;

    /// Returns the keys of the venue.
    fn keyring(&self) -> &dyn Keyring;

    /// Starts a run of a schedule now. Returns `None` if there is no such schedule.
    fn trigger(&self, caller: &Caller, handle: &str) -> HostReply<Option<JobId>, InvokeError>;
}

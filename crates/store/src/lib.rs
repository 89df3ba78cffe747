//! Durable memory for chains, queues, values and blobs, behind one trait.
//!
//! [`Store`] is defined in terms of jobs, records, messages, leases and values, not of tables. Every
//! implementation, on one machine or on a shared database, makes [`Effects`] durable together or not
//! at all, and completes a commit only after they are. The `conformance` suite checks what every
//! implementation must guarantee.
//!
//! Modules, in reading order: `store` (the trait), [`effects`] (what can be made durable), `summary`
//! (what indexes are built from), `keys` (every table and key), `bytes` and `row` (a job as bytes),
//! `budget` (what a root may run at a time), [`embedded`] (the store in one folder), `cache` (a
//! bounded cache of values per job), [`blob`] (content by its digest), [`limits`].
//!
//! `keys` separates primary data from indexes: indexes follow from primary data alone, and
//! [`embedded::EmbeddedStore::rebuild`] rebuilds them.

pub mod blob;
pub mod effects;
pub mod embedded;
pub mod limits;

mod budget;
mod bytes;
mod cache;
mod keys;
mod row;
mod store;
mod summary;

#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
pub mod testing;

pub use budget::{RootBudget, StepKey};
pub use cache::RecentCache;
pub use effects::{CommitError, Effect, Effects, Hold, Receipt};
pub use store::{
    ChangeKind, ChangePage, ChangeQuery, Filter, Hint, HoldState, Holder, HolderKey, Idempotency,
    JobCells, JobChange, JobPage, ListOrder, ListQuery, ListedJob, LiveHold, LiveJob, Message,
    ProcessLease, QueuedJob, ReadError, ReadyJobs, RecordPage, Root, RootKey, RootSpace, Seek,
    Store, StoreFuture, StoredBlob, StoredJob, Timer, TimerKind, owner_key,
};
pub use summary::Summary;

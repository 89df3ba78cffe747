//! Durable memory for chains, queues, values and blobs, behind one trait.
//!
//! [`Store`] speaks of jobs, records, messages, leases and values, never of tables: whoever
//! implements it, on one machine or on a database shared by many, makes [`Effects`] durable
//! together or not at all, and answers only after they are. What must hold of every
//! implementation is in `conformance`.
//!
//! Modules, in reading order: `store` (the trait), [`effects`] (what can be made durable),
//! `summary` (what indexes know of a job), `keys` (every table and key), `row` (a job as bytes),
//! [`embedded`] (the store in one folder), `lately` (a bounded table of what was read), [`blob`] (content by its digest), [`limits`].
//!
//! Primary data and indexes are told apart in `keys`: indexes follow from primary data alone, and
//! [`embedded::EmbeddedStore::rebuild`] makes them anew.

pub mod blob;
pub mod effects;
pub mod embedded;
pub mod limits;

mod bytes;
mod keys;
mod lately;
mod row;
mod store;
mod summary;

#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
pub mod testing;

pub use effects::{CommitError, Effect, Effects, Receipt};
pub use lately::Lately;
pub use store::{
    Answer, Claim, Filter, Idempotency, JobCells, JobPage, ListOrder, ListQuery, ListedJob,
    Message, ReadError, RecordPage, Root, RootKey, RootSpace, Store, StoredBlob, StoredJob, Timer,
    TimerKind,
};
pub use summary::Summary;

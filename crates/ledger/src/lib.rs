//! The ledger: durable ordered tables of bytes behind one group-committing writer.
//!
//! Writers submit transactions to one committer. It runs everything that is queued, writes the result as one journal
//! frame with one sync, publishes it to an in-memory overlay and completes the transactions. A flusher moves rows from the
//! overlay into the index. Readers see the overlay merged over the index as one table.
//!
//! Modules, in reading order:
//!
//! - `types`, `key`, `value`: tables, keys, values, writes and key ranges
//! - `limits`, `options`: every bound, and how a ledger is opened
//! - `submission`, `tx`: what writers submit, and what a transaction sees while it runs
//! - `committer`: batches, durability, completion
//! - `layout`, `journal`: segments and frames
//! - `overlay`, `rows`, `merge`: rows in memory, and several layers read as one
//! - `flusher`, `index`: from memory into the redb file
//! - `shared`, `reads`, `view`, `backup`: how reading works
//! - `open`, `folder`, `handle`: from a folder to a running ledger
//! - `disk`, `uncached`: the files below all of it
//! - `faults`, `manual`, `testing`: fault injection and simulation, in test builds only
//!
//! Invariants: no transaction completes before its sync; no reader sees a row that is not durable; a failed sync is never
//! retried; no caller sees the index library; every file operation goes through [`disk::Disk`].
#![allow(unreachable_pub, reason = "what leaves this crate is what it re-exports below")]
#![allow(
    clippy::disallowed_methods,
    reason = "the ledger measures its own syncs and waits; nothing it decides depends on a clock"
)]

mod backup;
mod committer;
pub mod counters;
pub mod disk;
pub mod error;
mod faults;
mod flusher;
mod folder;
mod handle;
mod index;
mod journal;
mod key;
mod layout;
pub mod limits;
#[cfg(any(test, feature = "testing"))]
mod manual;
mod merge;
mod open;
pub mod options;
mod overlay;
mod reads;
mod rows;
mod shared;
mod submission;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tx;
pub mod types;
mod uncached;
mod value;
mod view;

pub use backup::BackupReport;
pub use committer::CommitStep;
#[cfg(any(test, feature = "testing"))]
pub use committer::Observer;
pub use counters::CounterSnapshot;
pub use disk::{Disk, DiskFile, RealDisk};
pub use error::{
    BackupError, Failure, FlushError, IndexError, LedgerError, OpenError, ReplayError,
    RowReadError, SubmitError,
};
#[cfg(any(test, feature = "testing"))]
pub use faults::Faults;
pub use flusher::FlushStep;
pub use handle::Ledger;
pub use journal::TornTail;
#[cfg(any(test, feature = "testing"))]
pub use manual::ManualLedger;
pub use merge::Merged;
pub use open::OpenReport;
#[cfg(any(test, feature = "testing"))]
pub use options::Mode;
pub use options::{Options, OptionsError};
pub use reads::Reads;
pub use shared::{Health, RowPage};
pub use submission::{Transaction, WorkOutcome};
pub use tx::Tx;
pub use types::{Direction, Key, KeyRange, RowBytes, Slot, Table, TableId, Write};
pub use uncached::{BlockBuffer, Uncached, UncachedFile};
pub use view::View;

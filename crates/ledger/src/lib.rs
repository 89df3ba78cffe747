//! The ledger: durable ordered tables behind one group-committing writer.
//!
//! Writers hand work to one committer, which runs everything that is queued, writes it as one journal frame with one
//! sync, publishes it to an in-memory overlay and answers. A flusher moves rows from the overlay into the index. Readers
//! see the overlay over the index as one table.
//!
//! Modules, in reading order: `types` the words · `options` every limit · `work` and `tx` what writers hand in ·
//! `committer` · `journal` · `overlay`, `rows` and `merge` · `flusher` · `index` · `shared` how reading works · `open` and
//! `folder` · `handle` the ledger as others see it · `view`, `backup` · `manual` the same without threads · `disk` what all of it stands on.
//!
//! What is never true: an answer before its sync; a reader who sees what is not durable; a retry of a failed sync; a
//! caller who sees the index library; a file operation that does not go through [`disk::Disk`].
#![allow(unreachable_pub, reason = "what leaves this module is what it re-exports below")]
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
mod manual;
mod merge;
mod open;
pub mod options;
mod overlay;
mod reads;
mod rows;
mod shared;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tx;
pub mod types;
mod uncached;
mod value;
mod view;
mod work;

pub use backup::BackupReport;
pub use committer::{CommitStep, Observer};
pub use counters::CounterSnapshot;
pub use disk::{Disk, DiskFile, RealDisk};
pub use error::{
    BackupError, CommitError, Failure, FlushError, IndexError, OpenError, ReadError, ReplayError,
    SubmitError,
};
pub use faults::Faults;
pub use flusher::FlushStep;
pub use handle::Ledger;
pub use journal::TornTail;
pub use manual::ManualLedger;
pub use merge::Merged;
pub use open::OpenReport;
pub use options::{Mode, Options, OptionsError};
pub use reads::Reads;
pub use shared::{Health, RowPage};
pub use tx::Tx;
pub use types::{Direction, Key, KeyRange, Slot, Table, TableId, Value, Write};
pub use uncached::{BlockBuffer, Uncached, UncachedFile};
pub use view::View;

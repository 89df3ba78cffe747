//! The store in one folder: no other process, safe against `kill -9` and power loss.
//!
//! Every write goes through the ledger's one committer. Encoding and hashing happen before, on the
//! caller's thread; decisions that depend on what is stored, such as whether a head is still the
//! expected one or a cell is already held, are made in the committer. Reading goes straight to the
//! ledger and never waits for a writer.
//!
//! Modules, in reading order: `store` (the implementation of [`crate::Store`]), `commit` (one commit
//! from the caller to the committer and back), `read`, `rows` (rows other than a job's own),
//! `driver` (the ledger below), `sequence`, `counts`, `live`, `recent`, `cells`, `in_use` (what
//! commits and readers share in memory), `usage` (bytes by owner), `collect` (garbage collection), `check` (verification and rebuild),
//! `folder` (the data folder with its blobs), [`admin`] (backups of a running process), `death` (tests of the binary that
//! is killed at a commit).

pub mod admin;
mod cells;
mod changes;
mod check;
mod collect;
mod commit;
mod counts;
mod death;
mod driver;
mod folder;
mod fronts;
mod in_use;
mod known_ids;
mod known_state;
mod live;
mod members;
pub mod permissions;
mod positions;
mod read;
mod recent;
mod rows;
mod sequence;
mod store;
mod upgrade;
mod usage;

pub use catena_ledger::{BackupReport, CounterSnapshot, Health, OpenError, OpenReport};
pub use check::{CheckReport, Problem};
pub use collect::{CollectError, CollectReport};
pub use folder::{CopyReport, DataFolder, FolderError};
pub use store::EmbeddedStore;

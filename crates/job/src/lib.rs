//! Jobs: their states, their records, and the rules that every change must follow.
//!
//! A job is a pointer to the last record of a chain. Each record is an immutable value, identified
//! by its Value ID, and names its predecessor; the job as clients see it is the fold of all its
//! records. There is one transition table, [`apply`], and one fold, [`Job::follow`]: running,
//! recovery and verification all go through both.
//!
//! Modules, in reading order: [`ids`], [`state`] (statuses, events, the transition table), [`note`]
//! (annotations), [`record`], [`chain`] (the fold, appending, merging), [`history`] (the document
//! that carries a chain), [`signature`] (what workers sign), [`verify`], [`vocabulary`] (the status names of each API), [`plan`]
//! (orchestrations as data), [`agent`] (agents as data), [`contract`] (jobs of executors), [`progress`] (progress reports), [`members`] (members that are not known,
//! and what was probably meant), [`limits`].
//!
//! This crate never reads a clock, a file, a socket or a random number; such inputs are arguments.

pub mod agent;
pub mod chain;
pub mod contract;
pub mod history;
pub mod ids;
pub mod limits;
pub mod members;
pub mod note;
pub mod plan;
pub mod progress;
pub mod record;
pub mod signature;
pub mod state;
pub mod verify;
pub mod vocabulary;

pub use chain::{AppendError, Change, Job, NewJob};
pub use ids::{JobId, RecordId};
pub use note::Note;
pub use record::Record;
pub use state::{Category, Event, Illegal, Status, apply};

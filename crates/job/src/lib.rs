//! What a job is and what may happen to it.
//!
//! A job is a pointer to the last of a chain of records. Each record is an immutable value, named
//! by its Value ID, and names its predecessor; the job as people see it is the fold of all of
//! them. There is one table of what may follow what, [`apply`], and one fold, [`Job::follow`]:
//! running, recovery and verification all go through both.
//!
//! Modules, in reading order: [`ids`], [`state`] (statuses, events, the table), [`note`]
//! (annotations), [`record`], [`chain`] (the fold, appending, merging), [`history`] (the document
//! that carries a chain), [`verify`], [`vocabulary`] (ways to name a state), [`plan`] (orchestrations as data),
//! [`progress`] (how far a job is), [`limits`].
//!
//! This crate never reads a clock, a file, a socket or a random number: they are arguments.

pub mod chain;
pub mod history;
pub mod ids;
pub mod limits;
pub mod note;
pub mod plan;
pub mod progress;
pub mod record;
pub mod state;
pub mod verify;
pub mod vocabulary;

pub use chain::{AppendError, Change, Job, NewJob};
pub use ids::{JobId, RecordId};
pub use note::Note;
pub use record::Record;
pub use state::{Category, Event, Illegal, Status, apply};

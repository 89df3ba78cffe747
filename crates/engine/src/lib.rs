//! Runs jobs: time, concurrency, recovery.
//!
//! A request becomes a decision about one job, and the decision becomes effects that are committed
//! together. Two that decide about the same job at once are kept apart by its head: the store
//! refuses the second, which then reads the job again and decides anew. So nothing here holds a
//! lock on a job, and what is true of one process is true of many.
//!
//! Modules, in reading order: [`request`] and [`error`] (what can be asked and answered),
//! [`adapter`] (what carries operations out), [`operation`] and [`catalogue`] (what can be
//! invoked), [`engine`] (the whole), `submit` (a request becomes a job), `run` (a job is carried
//! out), `progress` (how far it is), `change` (the one way to change a job), `pause`, `resume`, `cancel`, `delete`, `message`
//! (one request each), `read`, [`summary`], [`select`] and [`follow`] (what people see),
//! [`recovery`] and [`waiting`] (what operators see), `assets`, `schedule`, `duties`
//! (what is done without being asked), [`limits`], [`mod@env`].
//!
//! This crate names no adapter, and takes time, randomness and tasks from [`env::Env`] alone.

pub mod adapter;
mod admission;
pub mod assets;
pub mod caller;
mod cancel;
pub mod catalogue;
mod change;
pub mod control;
mod counts;
mod delete;
mod duties;
pub mod engine;
pub mod env;
pub mod error;
pub mod federation;
pub mod follow;
mod hub;
mod idempotency;
pub mod limits;
mod message;
pub mod operation;
mod orchestration;
mod pause;
mod private;
mod progress;
mod read;
pub mod recovery;
pub mod request;
pub mod rerun;
mod resume;
mod run;
mod running;
pub mod schedule;
pub mod schema;
mod sealed;
pub mod select;
mod submit;
pub mod summary;
pub mod waiting;

pub use adapter::{
    Adapter, Call, Cause, ExecutionMode, Failure, Registration, RetryAdvice, Turn, TurnFuture,
};
pub use caller::{Caller, Did, Role};
pub use control::RunControl;
pub use engine::{Engine, Setup};
pub use limits::Limits;
pub use operation::Operation;

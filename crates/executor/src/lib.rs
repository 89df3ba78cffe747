//! The executor: a worker of a venue that runs code in a sandbox.
//!
//! It announces its environments, claims jobs over `/worker/v1` like every worker, runs each as one cell,
//! uploads the files that the cell left, and ends the job with its result. It has neither the venue's
//! key nor its data, and everything that it starts ends with it.
//!
//! Modules, in reading order: [`executor`] (the process), `environment` (interpreters and their
//! versions), [`install`] (environments with
//! packages), `render` (the environment that renders), `job` (one job), `json`, `outcome` (what a cell's end means), [`limits`].
//!
//! The executor never changes a job: it says how a turn ended, and the venue records that under the
//! fence of the claim.

mod environment;
pub mod executor;
pub mod install;
mod job;
mod json;
pub mod limits;
mod outcome;
#[cfg(feature = "render")]
mod render;

pub use environment::version_of_installed;
pub use executor::{Executor, Options};
#[cfg(feature = "render")]
pub use render::serve_child;

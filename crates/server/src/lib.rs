//! The doors of a venue: HTTP, identity, configuration, and everything around them.
//!
//! A request comes in by a connection ([`listen`](self)), goes through the door (`door`: request
//! id, `Host` and `Origin`, who is asking), to the handler of its route (`routes`), which decodes,
//! calls the engine, and encodes; on the way out it is counted and logged. What the routes are, and
//! how they are described to clients, is one table.
//!
//! Modules, in reading order: [`config`], [`venue`] (start and stop), `listen` (connections),
//! `door`, `origin`, `auth`, [`tokens`], [`key`], `call` (a request as handlers see it), `routes`,
//! `protocol` (doors that speak somebody else's language), `job_json`, `canvas_json`, `sse`, [`error`], `answer`, `openapi` and `page` (the table for programs and
//! people), `values`, `metrics`, [`log`], [`limits`].
//!
//! Nothing here changes a job: that is the engine's business alone. Only [`config`] reads the
//! environment.

pub mod config;
pub mod error;
pub mod key;
pub mod limits;
pub mod log;
pub mod tokens;
pub mod venue;

mod answer;
mod auth;
mod call;
mod canvas_json;
mod door;
mod job_json;
mod listen;
mod metrics;
mod openapi;
mod origin;
mod page;
mod protocol;
mod rendered;
mod routes;
mod sse;
mod values;

pub use config::Config;
pub use venue::{Venue, VenueError, serve};

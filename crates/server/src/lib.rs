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
pub mod http;
pub mod identity;
pub mod limits;
pub mod log;
pub mod venue;

mod canvas;
mod describe;
mod grid;
mod mcp;
mod metrics;
mod routes;
mod values;

pub use config::Config;
pub use identity::{key, tokens};
pub use venue::{Venue, VenueError, serve};

//! The HTTP server of a venue: the grid API, the canvas API, the MCP endpoint, identity and
//! configuration.
//!
//! A request arrives on a connection (`http::listen`), passes `http::service` (request ID, `Host` and
//! `Origin`, authentication), and reaches the handler of its route, which decodes it, calls the engine
//! and encodes the response; on the way out it is counted and logged.
//!
//! Modules, in reading order. Each imports only from modules further down:
//!
//! - [`venue`]: starts and stops everything.
//! - `routes`: the table of all routes.
//! - `mcp`: the MCP endpoint, operations as tools and jobs as tasks.
//! - `canvas`: the canvas API (`/canvas/v1`).
//! - `grid`: the grid API (`/api/v1`), monitoring and documents.
//! - `describe`: the OpenAPI document and the HTML pages, generated from the routes.
//! - `http`: connections, requests, responses, errors, and what every request goes through.
//! - [`identity`]: authentication, tokens, and the venue's key.
//! - `tools`: operations as MCP tools, a part of the shared state.
//! - `metrics`: counters, in the OpenMetrics format.
//! - [`log`]: logging.
//! - [`config`]: the settings of a venue.
//! - `values`: building values in code.
//! - [`limits`]: every bound of this crate.
//!
//! Nothing here changes a job; only the engine does. Only [`config`] reads environment variables.

pub mod config;
pub mod identity;
pub mod limits;
pub mod log;
pub mod venue;

mod canvas;
mod describe;
mod grid;
mod http;
mod mcp;
mod metrics;
mod routes;
mod tools;
mod values;

pub use config::Config;
pub use identity::{key, tokens};
pub use venue::{Venue, VenueError, serve};

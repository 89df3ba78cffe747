//! The HTTP server of a venue: the grid API, the canvas API, the contract API, the MCP endpoint, identity and
//! configuration.
//!
//! A request arrives on a connection (`http::listen`), passes `http::service` (request ID, `Host` and
//! `Origin`, authentication), and reaches the handler of its route, which decodes it, calls the engine
//! and encodes the response; on the way out it is counted and logged.
//!
//! Modules, in reading order. Each imports only from modules further down:
//!
//! - [`venue`] starts and stops everything.
//! - `routes` is the table of all routes.
//! - `console` has the files of the web console.
//! - `mcp` is the MCP endpoint: operations as tools, jobs as tasks.
//! - `contract` is the contract API (`/contract/v1`).
//! - `worker` is the API of workers (`/worker/v1`).
//! - `canvas` is the canvas API (`/canvas/v1`).
//! - `grid` is the grid API (`/api/v1`), with monitoring and documents.
//! - `describe` generates the OpenAPI document and the HTML pages from the routes.
//! - `http` has connections, requests, responses, errors, and what every request goes through.
//! - [`identity`] has authentication, tokens, and the venue's key.
//! - `tools` presents operations as MCP tools; the table is a part of the shared state.
//! - `metrics` counts requests and writes the OpenMetrics text.
//! - [`log`] starts logging.
//! - [`aborts`] has what earlier processes left when they aborted.
//! - [`config`] has the settings of a venue.
//! - `values` builds values in code.
//! - [`limits`] has every bound of this crate.
//!
//! Nothing here changes a job; only the engine does. Only [`config`] reads environment variables.

pub mod aborts;
pub mod config;
pub mod identity;
pub mod limits;
pub mod log;
pub mod venue;

mod canvas;
mod console;
mod contract;
mod describe;
mod grid;
mod http;
mod mcp;
mod metrics;
mod routes;
mod tools;
mod values;
mod worker;

pub use aborts::AbortWatch;
pub use config::Config;
pub use http::listen::outbound_descriptors;
pub use identity::{key, lists, tokens};
pub use venue::{Venue, VenueError, serve};

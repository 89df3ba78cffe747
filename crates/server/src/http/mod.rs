//! HTTP: connections, requests, responses, errors, and what every request goes through.
//!
//! Nothing here knows a particular API: routes are data ([`route::Route`]), and the APIs in
//! `grid`, `canvas` and `mcp` build on this folder.
//!
//! Files, in reading order: `listen` (connections), `service` (what happens to every request),
//! `router` (paths to routes), `route` (one route and its description), `request` (a request as
//! handlers see it), `state` (what all requests share), `request_id`, `origin` (`Host` and `Origin`
//! rules), `json` (bodies), `memory` (what responses take), `rate` (slow clients), `response`, `response_cache`, `sse` (event streams), `stream_end`
//! (when they must end), `tls`, `error`.

pub(crate) mod compress;
pub(crate) mod content;
pub(crate) mod error;
pub(crate) mod json;
pub(crate) mod listen;
pub(crate) mod memory;
pub(crate) mod origin;
pub(crate) mod rate;
pub(crate) mod request;
pub(crate) mod request_id;
pub(crate) mod response;
pub(crate) mod response_cache;
pub(crate) mod route;
pub(crate) mod router;
pub(crate) mod service;
pub(crate) mod sse;
pub(crate) mod state;
pub(crate) mod stream_end;
pub(crate) mod tls;

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

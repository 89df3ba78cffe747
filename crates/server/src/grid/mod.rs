//! The grid API (`/api/v1`), monitoring, and the documents that describe the venue.
//!
//! One file per resource. Each has its routes and their handlers, which decode the request, call the
//! engine and encode the response.

pub(crate) mod agents;
pub(crate) mod assets;
pub(crate) mod bench;
pub(crate) mod documents;
pub(crate) mod events;
mod follow;
pub(crate) mod health;
pub(crate) mod histories;
pub(crate) mod identity;
pub(crate) mod invoke;
pub(crate) mod job_history;
mod job_json;
pub(crate) mod jobs;
pub(crate) mod operations;
pub(crate) mod secrets;
pub(crate) mod stats;
pub(crate) mod values;

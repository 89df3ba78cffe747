//! The contract API, `/contract/v1`: jobs that executors run, their data and their files.
//!
//! `routes` is the table, `jobs` has the requests about jobs, `blobs` data by digest, `artifacts` the
//! files of jobs and their signed URLs, `executor` what executors send, and `executors` which are connected. Errors have the form of the
//! job contract, whichever part of the server refuses a request.

mod artifacts;
mod blobs;
mod executor;
mod executors;
mod jobs;
pub(crate) mod routes;

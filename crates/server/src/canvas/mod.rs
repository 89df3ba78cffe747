//! The canvas API (`/canvas/v1`).

pub(crate) mod job_json;
pub(crate) mod routes;

//! The canvas API (`/canvas/v1`): the same jobs with the statuses pending, processing, paused,
//! completed, failed and cancelled, with progress, control, recovery and health.

mod health;
mod job_json;
pub(crate) mod routes;

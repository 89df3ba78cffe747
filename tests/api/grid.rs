//! The grid API `/api/v1` in detail: what the design specifies beyond COG-8 and COG-9.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "grid/access.rs"]
mod access;
#[path = "grid/bulk.rs"]
mod bulk;
#[path = "grid/capabilities.rs"]
mod capabilities;
#[path = "grid/events.rs"]
mod events;
#[path = "grid/files.rs"]
mod files;
#[path = "grid/histories.rs"]
mod histories;
#[path = "grid/http.rs"]
mod http;
#[path = "grid/identity.rs"]
mod identity;
#[path = "grid/invoke.rs"]
mod invoke;
#[path = "grid/isolation.rs"]
mod isolation;
#[path = "grid/jobs.rs"]
mod jobs;
#[path = "grid/members.rs"]
mod members;
#[path = "grid/operations.rs"]
mod operations;
#[path = "grid/quotas.rs"]
mod quotas;
#[path = "grid/schedules.rs"]
mod schedules;
#[path = "grid/secrets.rs"]
mod secrets;
#[path = "grid/surface.rs"]
mod surface;
#[path = "grid/values.rs"]
mod values;

//! The grid API (`/api/v1`), health, and the documents of the venue.

pub(crate) mod assets;
pub(crate) mod bench;
pub(crate) mod documents;
pub(crate) mod health;
pub(crate) mod identity;
pub(crate) mod invoke;
pub(crate) mod job_json;
pub(crate) mod jobs;
pub(crate) mod operations;

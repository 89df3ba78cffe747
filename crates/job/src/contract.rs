//! Contract jobs: what the platform sends to an executor, and what it gets back.
//!
//! The platform orchestrates and the executor computes. Everything here is a pure function of values:
//! reading and completing a payload, the key by which equal work is recognised, the categories of
//! failures, the cell that a payload describes, and the result envelope of a job.
//!
//! Modules, in reading order: [`error`] (categories and the error envelope), [`envelope`] (the payload),
//! [`key`] (`input_hash` and `execution_key`), [`cell`] (what an executor runs), [`render`] (what it renders), [`result`] (the result
//! envelope), and `read` (helpers).

pub mod cell;
pub mod envelope;
pub mod error;
pub mod key;
mod read;
pub mod render;
pub mod result;

pub use crate::record::EXECUTION;
pub use envelope::{Envelope, JobType, Limits, Plan, Priority};
pub use error::{Category, ContractError};
pub use read::{format_time, is_digest, is_uuid, uuid_of};

/// The version of payloads and results.
pub const SCHEMA_VERSION: &str = "1.0";

/// The member of a first record with the execution key.
pub const EXECUTION_KEY: &str = "executionKey";

/// The member of a first record with the hash of the inputs.
pub const INPUT_HASH: &str = "inputHash";

/// The member of a first record with the version of the environment.
pub const ENV_VERSION: &str = "envVersion";

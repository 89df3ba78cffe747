//! Why an operation failed.

use std::time::Duration;

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The failure code, which `operation.retry.on` and clients match.
    pub code: String,
    /// The error text of the record.
    pub error: String,
    /// Whether a retry may succeed.
    pub retry: RetryAdvice,
    /// How long to wait before a retry, if the remote side said so.
    pub after: Option<Duration>,
}

/// Whether a retry may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// A retry would fail in the same way.
    Never,
    /// A retry may succeed.
    MaySucceed,
}

impl Failure {
    /// Creates a failure that a retry would repeat.
    pub fn new(code: &str, error: impl Into<String>) -> Self {
        Failure {
            code: code.to_owned(),
            error: error.into(),
            retry: RetryAdvice::Never,
            after: None,
        }
    }

    /// Creates a failure that a retry may overcome.
    pub fn transient(code: &str, error: impl Into<String>) -> Self {
        Failure { retry: RetryAdvice::MaySucceed, ..Failure::new(code, error) }
    }
}

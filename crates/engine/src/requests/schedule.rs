//! What can be scheduled, and for when.

use catena_value::Value;

/// When to invoke an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Once, at this Unix time in ms.
    At(i64),
    /// Repeatedly, by a cron expression in UTC.
    Cron(String),
}

/// An invocation that waits for its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduled {
    /// The handle by which it is cancelled or triggered.
    pub handle: String,
    /// The operation reference, as the caller wrote it.
    pub operation: String,
    /// The input of the operation.
    pub input: Value,
    /// When it is invoked next, as Unix time in ms.
    pub time: i64,
    /// The cron expression, if it repeats.
    pub cron: Option<String>,
}

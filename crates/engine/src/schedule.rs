//! Operations that are invoked later, once or again and again. Durable; missed runs are caught up
//! once.

use catena_value::Value;

use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::InvokeError;

/// When to invoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Once, at this time in milliseconds since 1970.
    At(i64),
    /// Again and again, by a cron expression in UTC.
    Cron(String),
}

/// An invocation that waits for its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduled {
    /// By which it is cancelled or triggered.
    pub handle: String,
    /// The operation as the caller named it.
    pub operation: String,
    /// Its input.
    pub input: Value,
    /// When it is next invoked.
    pub time: i64,
    /// The cron expression, when it repeats.
    pub cron: Option<String>,
}

impl Engine {
    /// Schedules an operation with the caller's authority.
    pub async fn schedule(&self, caller: &Caller, operation: &str, input: Value, when: When) -> Result<Scheduled, InvokeError> { unimplemented!() }
    /// Forgets a scheduled invocation of the caller; whether there was one.
    pub async fn unschedule(&self, caller: &Caller, handle: &str) -> Result<bool, InvokeError> { unimplemented!() }
    /// The caller's scheduled invocations, the next first.
    pub async fn scheduled(&self, caller: &Caller) -> Result<Vec<Scheduled>, InvokeError> { unimplemented!() }
    /// Invokes a scheduled operation now, and gives the job; nothing when there is none. One that
    /// was to be invoked once is then gone.
    pub async fn trigger(&self, caller: &Caller, handle: &str) -> Result<Option<catena_job::JobId>, InvokeError> { unimplemented!() }
}

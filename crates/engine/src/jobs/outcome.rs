//! How the end of a turn becomes a record, and the failures that the engine itself causes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use catena_job::JobId;
use catena_job::chain::{AppendError, Change};
use catena_job::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use catena_job::state::Event;
use catena_value::{Extent, NoCells, Value};

use crate::error::{ControlError, StoreError};
use crate::operations::{Call, Failure, Operation};

/// Executes an inline operation and checks its output.
pub(crate) fn run_inline(call: &Call) -> Result<Value, Failure> {
    let adapter = call.operation.adapter();
    let result = catch_unwind(AssertUnwindSafe(|| adapter.run_inline(call)));
    let output = result.unwrap_or_else(|_| Err(adapter_panicked(adapter.name())))?;
    check_output(&call.operation, &output)?;
    Ok(output)
}

/// Returns the change that records an output or a failure.
pub(crate) fn outcome_change(result: Result<Value, Failure>, now: i64) -> Change {
    match result {
        Ok(output) => Change::new(Event::Finished { output }, now),
        Err(failure) => {
            let mut change = Change::new(Event::Erred { error: failure.error }, now);
            change.extra.push(("errorCode", failure.code.into()));
            change
        }
    }
}

/// Checks that an output conforms to the operation's schema and to the bounds of a value.
pub(crate) fn check_output(operation: &Operation, output: &Value) -> Result<(), Failure> {
    let bounds = Extent { bytes: VALUE_BYTES_MAX, depth: VALUE_DEPTH_MAX };
    bounds.measure(output, &NoCells).map_err(|error| {
        Failure::new("output_too_large", format!("the output cannot be stored: it {error}"))
    })?;
    let Some(violations) = operation.output_violations(output) else { return Ok(()) };
    let text = format!("the output violates the operation's output schema: {violations}");
    Err(Failure::new("invalid_output", text))
}

/// The failure of a job whose adapter panicked.
pub(crate) fn adapter_panicked(adapter: &str) -> Failure {
    Failure::new("adapter_broken", format!("the {adapter} adapter panicked; this is a bug"))
}

/// The failure of a job that was interrupted and must not be repeated.
pub(crate) fn interrupted() -> Failure {
    Failure::new(
        "interrupted",
        "the venue stopped while the operation ran; its effects are unknown",
    )
}

/// The failure of a job that was interrupted as often as it may be.
pub(crate) fn interrupted_too_often(interruptions: u32) -> Failure {
    let text = format!("the venue stopped during each of {interruptions} attempts");
    Failure::new("interrupted", text)
}

/// The failure of a job whose payload cannot be read.
pub(crate) fn incomplete_payload(reason: &str) -> Failure {
    Failure::new(
        "incomplete_payload",
        format!("the job cannot run because its payload is incomplete: {reason}"),
    )
}

/// The error text of a job that exceeded its execution limit.
pub(crate) fn time_limit_exceeded(limit: Duration) -> String {
    format!("the operation ran longer than its limit of {} ms", limit.as_millis())
}

/// The failure of an attempt that took longer than one attempt may take.
pub(crate) fn attempt_time_exceeded(limit: Duration) -> Failure {
    let text = format!("the attempt took longer than its limit of {} ms", limit.as_millis());
    Failure::transient("attempt_timeout", text)
}

/// Maps the failure to append a record that the engine itself made.
pub(crate) fn append_error(error: AppendError) -> StoreError {
    StoreError::Damaged(format!("cannot append a record: {error}"))
}

/// Maps the failure to append a record that a control request made.
pub(crate) fn control_error(job: JobId, error: AppendError) -> ControlError {
    match error {
        AppendError::HistoryFull => ControlError::HistoryFull(job),
        error => ControlError::Store(append_error(error)),
    }
}

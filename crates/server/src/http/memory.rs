//! The memory of responses.
//!
//! While a handler runs, everything that it writes with [`crate::http::json::write_value`] is counted
//! against the memory of its caller before it is written, and stays reserved until the response has
//! been sent. The reservation belongs to the task, because every API renders values and none should
//! have to remember to count them.

use std::future::Future;
use std::sync::Arc;

use catena_engine::limits::{JOB_JSON_BYTES_MAX, UNCOUNTED_BYTES_MAX};
use catena_engine::runtime::Reservation;
use catena_value::{CellSource, Extent, ExtentError, Value};
use parking_lot::Mutex;

use crate::http::error::{ApiError, ApiResult, Code};
use crate::limits::COUNTED_STEP_BYTES;

/// The memory of one response.
pub(crate) type ResponseMemory = Arc<Mutex<Reservation>>;

tokio::task_local! {
    static RESPONSE: ResponseMemory;
}

/// Counts what `work` writes.
pub(crate) fn counting<F: Future>(
    memory: &ResponseMemory,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    RESPONSE.scope(Arc::clone(memory), work)
}

/// The same for work that does not wait.
pub(crate) fn counting_now<T>(memory: &ResponseMemory, work: impl FnOnce() -> T) -> T {
    RESPONSE.sync_scope(Arc::clone(memory), work)
}

/// Reserves memory for the JSON of a large value. Returns false if the value is small: then
/// [`count_written`] counts it afterwards.
pub(super) fn reserve_large(value: &Value, cells: &dyn CellSource) -> ApiResult<bool> {
    let measure = |bytes: u64| Extent { bytes, depth: usize::MAX }.measure(value, cells);
    match measure(UNCOUNTED_BYTES_MAX) {
        Err(ExtentError::Bytes(_)) => {}
        // What cannot be loaded is an error when it is written.
        _ => return Ok(false),
    }
    match measure(JOB_JSON_BYTES_MAX as u64) {
        Ok(bytes) => grow(bytes).map(|()| true),
        Err(ExtentError::Bytes(_)) => {
            let error = format!("the response would exceed {JOB_JSON_BYTES_MAX} bytes");
            Err(ApiError::new(Code::AnswerTooLarge, error))
        }
        Err(_) => Ok(false),
    }
}

/// Counts small values that were written to a response, whose length was `before` and is now `after`.
/// What a response contains is counted in steps, because most responses are shorter than one.
pub(super) fn count_written(before: usize, after: usize) -> ApiResult<()> {
    let steps = after / COUNTED_STEP_BYTES - before / COUNTED_STEP_BYTES;
    if steps == 0 { Ok(()) } else { grow((steps * COUNTED_STEP_BYTES) as u64) }
}

/// Reserves memory for a value that becomes a part of the response, and for its JSON.
pub(crate) fn reserve_part(value: &Value) -> ApiResult<()> {
    grow(value.memory_bytes(u64::MAX).saturating_mul(2))
}

fn grow(bytes: u64) -> ApiResult<()> {
    RESPONSE.try_with(|memory| memory.lock().grow(bytes)).unwrap_or(Ok(())).map_err(ApiError::from)
}

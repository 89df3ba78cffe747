//! JSON of requests and responses, within their bounds.

use catena_engine::limits::JOB_JSON_BYTES_MAX;
use catena_value::json::{self, WriteError};
use catena_value::{CellSource, LoadError, Value};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::memory;
use crate::limits::{COUNTED_STEP_BYTES, JSON_DEPTH_MAX};

/// Parses the JSON of a request body.
pub(crate) fn parse(body: &[u8]) -> ApiResult<Value> {
    json::read_nested(body, JSON_DEPTH_MAX)
        .map_err(|error| ApiError::new(Code::InvalidJson, error.to_string()))
}

/// Parses the JSON of a request body. `None` if the body is empty.
pub(crate) fn parse_optional(body: &[u8]) -> ApiResult<Option<Value>> {
    if body.is_empty() { Ok(None) } else { parse(body).map(Some) }
}

/// Appends a value to the JSON of a response, within the bound of one response.
pub(crate) fn write_value(
    value: &Value,
    cells: &dyn CellSource,
    text: &mut String,
) -> ApiResult<()> {
    let is_counted = !is_small(value) && memory::reserve_large(value, cells)?;
    let before = text.len();
    json::write(value, cells, JOB_JSON_BYTES_MAX.saturating_sub(before), text)
        .map_err(write_error)?;
    if is_counted { Ok(()) } else { memory::count_written(before, text.len()) }
}

/// Returns true if a value is known to be small without measuring it.
fn is_small(value: &Value) -> bool {
    match value {
        Value::Nil | Value::Bool(_) | Value::Integer(_) | Value::Double(_) => true,
        Value::String(text) => text.len() <= COUNTED_STEP_BYTES as u64,
        _ => false,
    }
}

/// A part of a stored value is missing or damaged.
pub(crate) fn load_error(error: LoadError) -> ApiError {
    tracing::error!(%error, "a stored value could not be read");
    ApiError::new(Code::StoreDamaged, "stored data is damaged")
}

fn write_error(error: WriteError) -> ApiError {
    match error {
        WriteError::TooLarge { .. } => {
            let error = format!("the response would exceed {JOB_JSON_BYTES_MAX} bytes");
            ApiError::new(Code::AnswerTooLarge, error)
        }
        WriteError::Load(error) => load_error(error),
    }
}

//! Reading the parameters of a method.

use catena_value::{Map, Value};

use crate::mcp::json_rpc::RpcError;

/// A member that is a string. `None` if it is absent or null.
pub(super) fn text<'a>(params: &'a Map, name: &str) -> Result<Option<&'a str>, RpcError> {
    match params.field(name) {
        None | Some(Value::Nil) => Ok(None),
        Some(value) => value
            .as_str()
            .map(Some)
            .ok_or_else(|| RpcError::invalid_params(format!("`{name}` must be a string"))),
    }
}

/// A member that is an object. `None` if it is absent or null.
pub(super) fn map<'a>(params: &'a Map, name: &str) -> Result<Option<&'a Map>, RpcError> {
    match params.field(name) {
        None | Some(Value::Nil) => Ok(None),
        Some(value) => value
            .as_map()
            .map(Some)
            .ok_or_else(|| RpcError::invalid_params(format!("`{name}` must be an object"))),
    }
}

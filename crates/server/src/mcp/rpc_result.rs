//! The result of a method.

use axum::http::StatusCode;
use catena_store::JobCells;
use catena_value::{CellSource, Map, NoCells, Value};

use crate::http::json::write_value;
use crate::mcp::json_rpc::{RpcError, RpcRequest, RpcResponse};
use crate::mcp::revision::Revision;
use crate::values::{object, with_member};

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// What a method returns.
pub(super) type MethodResult = Result<RpcResult, RpcError>;

/// The `result` of a JSON-RPC response.
pub(super) struct RpcResult {
    result: Map,
    /// Where the parts of `result` are loaded from that are not in memory.
    cells: Option<JobCells>,
}

impl From<Value> for RpcResult {
    fn from(result: Value) -> Self {
        RpcResult { result: result.as_map().cloned().unwrap_or_default(), cells: None }
    }
}

impl RpcResult {
    /// The same with a source for the parts that are not in memory.
    pub(super) fn with_cells(self, cells: Option<JobCells>) -> Self {
        RpcResult { cells, ..self }
    }

    /// The result as a value.
    pub(super) fn into_value(self) -> Value {
        self.result.into()
    }

    /// The same with one more member of `_meta`.
    pub(super) fn with_meta(mut self, name: &str, value: Value) -> Self {
        let meta = self.result.field("_meta").and_then(Value::as_map).cloned().unwrap_or_default();
        let meta = with_member(&meta, name, value).into();
        self.result = with_member(&self.result, "_meta", meta);
        self
    }

    /// The response that carries this result. `server` is this server's `serverInfo`.
    pub(super) fn into_rpc_response(
        mut self,
        request: &RpcRequest,
        revision: Revision,
        server: Value,
    ) -> RpcResponse {
        if revision.is_stateless() {
            if self.result.field("resultType").is_none() {
                self.result = with_member(&self.result, "resultType", "complete".into());
            }
            self = self.with_meta(SERVER_INFO, server);
        }
        let RpcResult { result, cells } = self;
        let cells = cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells);
        let message =
            [("jsonrpc", "2.0".into()), ("id", request.id.clone()), ("result", result.into())];
        let mut text = String::new();
        match write_value(&object(message), cells, &mut text) {
            Ok(()) => RpcResponse { status: StatusCode::OK, text, cause: None },
            Err(error) => {
                RpcError::from(error).for_request(request).into_rpc_response(Some(revision))
            }
        }
    }
}

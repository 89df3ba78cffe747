//! JSON-RPC 2.0: messages in, results and errors out.
//!
//! The `data` of an error carries the body that the same error has in the grid API, so that clients
//! find the same code and hint here.

use axum::http::StatusCode;
use axum::response::Response;
use catena_value::{Map, NoCells, Value, json};

use crate::http::error::{ApiError, Code};
use crate::http::response;
use crate::mcp::revision::Revision;
use crate::values::object;

/// The content of a request body.
pub(super) enum RpcBody {
    Single(Result<RpcMessage, RpcError>),
    Batch(Vec<Result<RpcMessage, RpcError>>),
}

/// One message.
pub(super) enum RpcMessage {
    /// A message that expects a response.
    Request(RpcRequest),
    /// A message that expects none.
    Notification,
    /// The response to a request of the server.
    Response(RpcReply),
}

/// The response to a request of the server.
pub(super) struct RpcReply {
    pub(super) id: Value,
    /// `None` if it is an error.
    pub(super) result: Option<Value>,
}

/// A message that expects a response.
pub(super) struct RpcRequest {
    /// A string or an integer.
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map,
}

impl RpcRequest {
    /// `params._meta`.
    pub(super) fn meta(&self) -> Option<&Map> {
        self.params.field("_meta").and_then(Value::as_map)
    }
}

impl RpcBody {
    pub(super) fn parse(body: Value) -> RpcBody {
        match &body {
            Value::Vector(items) => {
                let items = items.iter(&NoCells).filter_map(Result::ok);
                RpcBody::Batch(items.map(|item| RpcMessage::parse(&item)).collect())
            }
            _ => RpcBody::Single(RpcMessage::parse(&body)),
        }
    }
}

impl RpcMessage {
    fn parse(value: &Value) -> Result<RpcMessage, RpcError> {
        let Some(members) = value.as_map() else {
            return Err(RpcError::invalid_request("a message must be an object"));
        };
        let id = members.field("id").cloned();
        let is_id = |id: &Value| id.as_str().is_some() || id.as_i64().is_some();
        let valid_id = id.clone().filter(is_id);
        let invalid = |text: &str| {
            let error = RpcError::invalid_request(text);
            Err(RpcError { id: valid_id.clone().unwrap_or_default(), ..error })
        };
        if members.field("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return invalid("`jsonrpc` must be \"2.0\"");
        }
        let Some(method) = members.field("method") else {
            let result = members.field("result").cloned();
            return if result.is_some() || members.field("error").is_some() {
                Ok(RpcMessage::Response(RpcReply { id: id.unwrap_or_default(), result }))
            } else {
                invalid("`method` is missing")
            };
        };
        let Some(method) = method.as_str() else { return invalid("`method` must be a string") };
        let Some(id) = id else { return Ok(RpcMessage::Notification) };
        if !is_id(&id) {
            return invalid("`id` must be a string or an integer");
        }
        let params = match members.field("params") {
            None | Some(Value::Nil) => Map::new(),
            Some(Value::Map(params)) => params.clone(),
            Some(_) => {
                let error = RpcError::invalid_params("`params` must be an object");
                return Err(RpcError { id, ..error });
            }
        };
        Ok(RpcMessage::Request(RpcRequest { id, method: method.to_owned(), params }))
    }
}

/// The `error` of a JSON-RPC response.
#[derive(Debug)]
pub(super) struct RpcError {
    id: Value,
    kind: Kind,
    message: String,
    data: Option<Value>,
    /// The same error in the grid API.
    cause: Option<Box<ApiError>>,
}

/// The error numbers of JSON-RPC and MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    NotJson,
    InvalidRequest,
    UnknownMethod,
    InvalidParams,
    Internal,
    NoResource,
    HeaderMismatch,
    MissingCapability,
    UnsupportedVersion,
}

impl Kind {
    const fn number(self) -> i64 {
        match self {
            Kind::NotJson => -32700,
            Kind::InvalidRequest => -32600,
            Kind::UnknownMethod => -32601,
            Kind::InvalidParams => -32602,
            Kind::Internal => -32603,
            Kind::NoResource => -32002,
            Kind::HeaderMismatch => -32020,
            Kind::MissingCapability => -32021,
            Kind::UnsupportedVersion => -32022,
        }
    }
}

impl RpcError {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        RpcError { id: Value::Nil, kind, message: message.into(), data: None, cause: None }
    }

    /// An error that the grid API has, too.
    fn with_cause(kind: Kind, cause: ApiError) -> Self {
        let data = Some(cause.to_value());
        let message = cause.text().to_owned();
        RpcError { id: Value::Nil, kind, message, data, cause: Some(Box::new(cause)) }
    }

    pub(super) fn not_json(error: &ApiError) -> Self {
        let rpc_error = RpcError::new(Kind::NotJson, error.text());
        RpcError { data: Some(error.to_value()), ..rpc_error }
    }

    pub(super) fn invalid_request(message: impl Into<String>) -> Self {
        RpcError::with_cause(Kind::InvalidRequest, ApiError::bad_request(message))
    }

    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        RpcError::with_cause(Kind::InvalidParams, ApiError::bad_request(message))
    }

    /// There is no resource with this URI, or the caller may not see it.
    pub(super) fn no_resource(uri: &str) -> Self {
        let error = RpcError::new(Kind::NoResource, format!("Resource not found: {uri}"));
        RpcError { data: Some(object([("uri", uri.into())])), ..error }
    }

    pub(super) fn unknown_method(method: &str) -> Self {
        RpcError::new(Kind::UnknownMethod, format!("Method not found: {method}"))
    }

    pub(super) fn header_mismatch(message: impl Into<String>) -> Self {
        RpcError::new(Kind::HeaderMismatch, format!("Header mismatch: {}", message.into()))
    }

    /// The client did not declare a capability that the request needs.
    pub(super) fn missing_capability(required: Value) -> Self {
        let error = RpcError::new(Kind::MissingCapability, "Missing required client capability");
        RpcError { data: Some(object([("requiredCapabilities", required)])), ..error }
    }

    pub(super) fn unsupported_version(requested: &str) -> Self {
        let error = RpcError::new(Kind::UnsupportedVersion, "Unsupported protocol version");
        let data = [("supported", Revision::supported()), ("requested", requested.into())];
        RpcError { data: Some(object(data)), ..error }
    }

    /// The same, as the response to a request.
    pub(super) fn for_request(self, request: &RpcRequest) -> Self {
        RpcError { id: request.id.clone(), ..self }
    }

    /// Renders the error. Without a known revision, the status of the stateless one is used.
    pub(super) fn into_rpc_response(self, revision: Option<Revision>) -> RpcResponse {
        let status = self.status(revision);
        let mut error =
            vec![("code", Value::from(self.kind.number())), ("message", self.message.into())];
        error.extend(self.data.map(|data| ("data", data)));
        let message =
            object([("jsonrpc", "2.0".into()), ("id", self.id), ("error", object(error))]);
        let text = json::to_string(&message).unwrap_or_default();
        RpcResponse { status, text, cause: self.cause }
    }

    /// The error as an HTTP response of its own.
    pub(super) fn into_http_response(self, revision: Option<Revision>) -> Response {
        self.into_rpc_response(revision).into_http_response()
    }

    /// The HTTP status. The revisions with a handshake report errors in the body alone, and their
    /// clients take any other status for a broken transport.
    fn status(&self, revision: Option<Revision>) -> StatusCode {
        let is_stateless = revision.is_none_or(Revision::is_stateless);
        match self.kind {
            Kind::NotJson
            | Kind::InvalidRequest
            | Kind::HeaderMismatch
            | Kind::MissingCapability
            | Kind::UnsupportedVersion => StatusCode::BAD_REQUEST,
            _ if !is_stateless => StatusCode::OK,
            Kind::InvalidParams | Kind::NoResource => StatusCode::BAD_REQUEST,
            Kind::UnknownMethod => StatusCode::NOT_FOUND,
            Kind::Internal => self.cause.as_ref().map_or(StatusCode::OK, |cause| cause.status()),
        }
    }
}

impl<E: Into<ApiError>> From<E> for RpcError {
    fn from(error: E) -> Self {
        let error = error.into();
        let is_about_params = matches!(
            error.code(),
            Code::BadRequest
                | Code::InvalidJobId
                | Code::JobNotFound
                | Code::JobEnded
                | Code::JobConflict
                | Code::SubJob
                | Code::PrivateJob
                | Code::MessageTooLarge
                | Code::KeyReused
        );
        let kind = if is_about_params { Kind::InvalidParams } else { Kind::Internal };
        RpcError::with_cause(kind, error)
    }
}

/// A rendered response.
pub(super) struct RpcResponse {
    pub(super) status: StatusCode,
    /// The message as JSON.
    pub(super) text: String,
    /// The error whose headers the HTTP response carries.
    pub(super) cause: Option<Box<ApiError>>,
}

impl RpcResponse {
    pub(super) fn into_http_response(self) -> Response {
        let mut response = response::json(self.status, self.text);
        if let Some(cause) = self.cause {
            cause.add_headers(&mut response);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RpcMessage, RpcError> {
        match RpcBody::parse(json::read(text.as_bytes()).unwrap()) {
            RpcBody::Single(message) => message,
            RpcBody::Batch(_) => panic!("{text} is not a batch"),
        }
    }

    #[test]
    fn messages_are_distinguished_by_their_members() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert!(matches!(parse(request), Ok(RpcMessage::Request(_))));
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert!(matches!(parse(notification), Ok(RpcMessage::Notification)));
        for response in ["\"result\":{}", "\"error\":{\"code\":1,\"message\":\"no\"}"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,{response}}}"#);
            assert!(matches!(parse(&text), Ok(RpcMessage::Response(_))), "{text}");
        }
    }

    #[test]
    fn an_invalid_message_is_refused_with_its_id_if_it_has_one() {
        for (text, number, id) in [
            ("5", -32600, Value::Nil),
            (r#"{"id":7,"method":"ping"}"#, -32600, 7.into()),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, Value::Nil),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600, Value::Nil),
            (r#"{"jsonrpc":"2.0","id":"a"}"#, -32600, "a".into()),
            (r#"{"jsonrpc":"2.0","id":"a","method":5}"#, -32600, "a".into()),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, -32602, 1.into()),
        ] {
            let Err(error) = parse(text) else { panic!("{text}") };
            assert_eq!((error.kind.number(), &error.id), (number, &id), "{text}");
        }
    }

    #[test]
    fn only_the_stateless_revision_reports_errors_by_status() {
        let status =
            |error: RpcError, revision| error.into_rpc_response(Some(revision)).status.as_u16();
        let (old, new) = (Revision::V2025_11_25, Revision::V2026_07_28);
        assert_eq!(status(RpcError::unknown_method("x"), old), 200);
        assert_eq!(status(RpcError::unknown_method("x"), new), 404);
        assert_eq!(status(RpcError::invalid_params("x"), old), 200);
        assert_eq!(status(RpcError::invalid_params("x"), new), 400);
        let busy = || RpcError::from(ApiError::new(Code::VenueBusy, "busy"));
        assert_eq!((status(busy(), old), status(busy(), new)), (200, 429));
        assert_eq!(status(RpcError::invalid_request("x"), old), 400);
    }
}

//! JSON-RPC 2.0: what comes in, and how a refusal goes out.
//!
//! A refusal carries the body of the same error at the other doors in `data`, so that whoever knows
//! those finds the same code and hint here.

use axum::http::StatusCode;
use axum::response::Response;
use catena_value::{Map, NoCells, Value, json};

use super::revision::Revision;
use crate::http::error::{ApiError, Code};
use crate::http::response;
use crate::values::object;

/// What a body is.
pub(super) enum Incoming {
    One(Result<Message, Refusal>),
    Batch(Vec<Result<Message, Refusal>>),
}

/// One message.
pub(super) enum Message {
    /// It wants an answer.
    Request(Request),
    /// It wants none.
    Notification,
    /// It answers something that we never ask.
    Response,
}

/// A message that wants an answer.
pub(super) struct Request {
    /// A string or an integer.
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map,
}

impl Request {
    /// `params._meta`.
    pub(super) fn meta(&self) -> Option<&Map> {
        self.params.field("_meta").and_then(Value::as_map)
    }
}

impl Incoming {
    pub(super) fn read(body: Value) -> Incoming {
        match &body {
            Value::Vector(items) => {
                let items = items.iter(&NoCells).filter_map(Result::ok);
                Incoming::Batch(items.map(|item| Message::read(&item)).collect())
            }
            _ => Incoming::One(Message::read(&body)),
        }
    }
}

impl Message {
    fn read(value: &Value) -> Result<Message, Refusal> {
        let Some(members) = value.as_map() else {
            return Err(Refusal::invalid_request("a message is an object"));
        };
        let id = members.field("id").cloned();
        let is_id = |id: &Value| id.as_str().is_some() || id.as_i64().is_some();
        let known = id.clone().filter(is_id);
        let refused = |error: &str| {
            let refusal = Refusal::invalid_request(error);
            Err(Refusal { id: known.clone().unwrap_or_default(), ..refusal })
        };
        if members.field("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return refused("`jsonrpc` must be \"2.0\"");
        }
        let Some(method) = members.field("method") else {
            let is_response = members.field("result").is_some() || members.field("error").is_some();
            return if is_response {
                Ok(Message::Response)
            } else {
                refused("`method` is missing")
            };
        };
        let Some(method) = method.as_str() else { return refused("`method` must be a string") };
        let Some(id) = id else { return Ok(Message::Notification) };
        if !is_id(&id) {
            return refused("`id` must be a string or an integer");
        }
        let params = match members.field("params") {
            None | Some(Value::Nil) => Map::new(),
            Some(Value::Map(params)) => params.clone(),
            Some(_) => {
                let refusal = Refusal::invalid_params("`params` must be an object");
                return Err(Refusal { id, ..refusal });
            }
        };
        Ok(Message::Request(Request { id, method: method.to_owned(), params }))
    }
}

/// Why there is no result.
#[derive(Debug)]
pub(super) struct Refusal {
    id: Value,
    kind: Kind,
    message: String,
    data: Option<Value>,
    /// The same at the other doors.
    cause: Option<Box<ApiError>>,
}

/// The numbers of JSON-RPC and of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    NotJson,
    InvalidRequest,
    NoMethod,
    InvalidParams,
    Internal,
    HeaderMismatch,
    MissingCapability,
    UnsupportedVersion,
}

impl Kind {
    const fn number(self) -> i64 {
        match self {
            Kind::NotJson => -32700,
            Kind::InvalidRequest => -32600,
            Kind::NoMethod => -32601,
            Kind::InvalidParams => -32602,
            Kind::Internal => -32603,
            Kind::HeaderMismatch => -32020,
            Kind::MissingCapability => -32021,
            Kind::UnsupportedVersion => -32022,
        }
    }
}

impl Refusal {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Refusal { id: Value::Nil, kind, message: message.into(), data: None, cause: None }
    }

    /// One that the other doors would give, too.
    fn caused(kind: Kind, cause: ApiError) -> Self {
        let data = Some(cause.to_value());
        let message = cause.text().to_owned();
        Refusal { id: Value::Nil, kind, message, data, cause: Some(Box::new(cause)) }
    }

    pub(super) fn not_json(error: &ApiError) -> Self {
        let refusal = Refusal::new(Kind::NotJson, error.text());
        Refusal { data: Some(error.to_value()), ..refusal }
    }

    pub(super) fn invalid_request(message: impl Into<String>) -> Self {
        Refusal::caused(Kind::InvalidRequest, ApiError::bad_request(message))
    }

    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        Refusal::caused(Kind::InvalidParams, ApiError::bad_request(message))
    }

    pub(super) fn no_method(method: &str) -> Self {
        Refusal::new(Kind::NoMethod, format!("Method not found: {method}"))
    }

    pub(super) fn header_mismatch(message: impl Into<String>) -> Self {
        Refusal::new(Kind::HeaderMismatch, format!("Header mismatch: {}", message.into()))
    }

    /// A client that cannot do what its request takes.
    pub(super) fn missing_capability(required: Value) -> Self {
        let refusal = Refusal::new(Kind::MissingCapability, "Missing required client capability");
        Refusal { data: Some(object([("requiredCapabilities", required)])), ..refusal }
    }

    pub(super) fn unsupported_version(requested: &str) -> Self {
        let refusal = Refusal::new(Kind::UnsupportedVersion, "Unsupported protocol version");
        let data = [("supported", Revision::supported()), ("requested", requested.into())];
        Refusal { data: Some(object(data)), ..refusal }
    }

    /// The same as the answer to a request.
    pub(super) fn for_request(self, request: &Request) -> Self {
        Refusal { id: request.id.clone(), ..self }
    }

    /// What goes out. A client whose revision is not known yet is told by the status, too.
    pub(super) fn rendered(self, revision: Option<Revision>) -> Rendered {
        let status = self.status(revision);
        let mut error =
            vec![("code", Value::from(self.kind.number())), ("message", self.message.into())];
        error.extend(self.data.map(|data| ("data", data)));
        let message =
            object([("jsonrpc", "2.0".into()), ("id", self.id), ("error", object(error))]);
        let text = json::to_string(&message).unwrap_or_default();
        Rendered { status, text, cause: self.cause }
    }

    /// The status of the answer. The handshake revisions have their refusals in the body alone, and
    /// their clients take any other status for a broken transport.
    fn status(&self, revision: Option<Revision>) -> StatusCode {
        let is_stateless = revision.is_none_or(Revision::is_stateless);
        match self.kind {
            Kind::NotJson
            | Kind::InvalidRequest
            | Kind::HeaderMismatch
            | Kind::MissingCapability
            | Kind::UnsupportedVersion => StatusCode::BAD_REQUEST,
            _ if !is_stateless => StatusCode::OK,
            Kind::InvalidParams => StatusCode::BAD_REQUEST,
            Kind::NoMethod => StatusCode::NOT_FOUND,
            Kind::Internal => self.cause.as_ref().map_or(StatusCode::OK, |cause| cause.status()),
        }
    }
}

impl<E: Into<ApiError>> From<E> for Refusal {
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
        Refusal::caused(kind, error)
    }
}

/// An answer as it goes out.
pub(super) struct Rendered {
    pub(super) status: StatusCode,
    /// The message as JSON.
    pub(super) text: String,
    /// What was wrong, when it has headers to tell.
    pub(super) cause: Option<Box<ApiError>>,
}

impl Rendered {
    pub(super) fn into_response(self) -> Response {
        let mut response = response::json(self.status, self.text);
        if let Some(cause) = self.cause {
            cause.put_headers(&mut response);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Message, Refusal> {
        match Incoming::read(json::read(text.as_bytes()).unwrap()) {
            Incoming::One(message) => message,
            Incoming::Batch(_) => panic!("{text} is no batch"),
        }
    }

    #[test]
    fn messages_are_told_apart_by_their_members() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert!(matches!(read(request), Ok(Message::Request(_))));
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert!(matches!(read(notification), Ok(Message::Notification)));
        for response in ["\"result\":{}", "\"error\":{\"code\":1,\"message\":\"no\"}"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,{response}}}"#);
            assert!(matches!(read(&text), Ok(Message::Response)), "{text}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_id_if_it_has_one() {
        for (text, number, id) in [
            ("5", -32600, Value::Nil),
            (r#"{"id":7,"method":"ping"}"#, -32600, 7.into()),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, Value::Nil),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600, Value::Nil),
            (r#"{"jsonrpc":"2.0","id":"a"}"#, -32600, "a".into()),
            (r#"{"jsonrpc":"2.0","id":"a","method":5}"#, -32600, "a".into()),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, -32602, 1.into()),
        ] {
            let Err(refusal) = read(text) else { panic!("{text}") };
            assert_eq!((refusal.kind.number(), &refusal.id), (number, &id), "{text}");
        }
    }

    #[test]
    fn only_the_stateless_revision_tells_refusals_by_status() {
        let status = |refusal: Refusal, revision| refusal.rendered(Some(revision)).status.as_u16();
        let (old, new) = (Revision::V2025_11_25, Revision::V2026_07_28);
        assert_eq!(status(Refusal::no_method("x"), old), 200);
        assert_eq!(status(Refusal::no_method("x"), new), 404);
        assert_eq!(status(Refusal::invalid_params("x"), old), 200);
        assert_eq!(status(Refusal::invalid_params("x"), new), 400);
        let busy = || Refusal::from(ApiError::new(Code::VenueBusy, "busy"));
        assert_eq!((status(busy(), old), status(busy(), new)), (200, 429));
        assert_eq!(status(Refusal::invalid_request("x"), old), 400);
    }
}

//! The boundary between the client and the connection to a venue.
//!
//! The client decides what is requested and what a response means. A transport decides how the
//! request gets there: which connections exist, which addresses may be contacted, how large a
//! response may be, and what time means while a job is paused.

use std::time::Duration;

use bytes::Bytes;
use catena_value::{Value, json};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use crate::limits::REQUEST_TIME;

/// Sends requests to one venue.
pub trait Transport: Send + Sync {
    /// Why there is no response.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The name of the venue in error texts.
    fn venue(&self) -> String;

    /// Scheme, host and port to which requests are sent.
    fn origin(&self) -> String;

    /// Sends a request and returns the complete response, whatever its status. Fails if the response is
    /// not complete within the request's time. Redirects are not followed: a venue is at its URL.
    fn send(
        &self,
        request: &ApiRequest,
    ) -> impl Future<Output = Result<ApiResponse, Self::Error>> + Send;
}

/// A request to a venue.
#[derive(Debug, Clone)]
pub struct ApiRequest {
    /// The method.
    pub method: Method,
    /// Path and query below the venue's base URL, percent-encoded.
    pub path: String,
    /// The headers, without those that the transport adds.
    pub headers: HeaderMap,
    /// The body, empty if there is none.
    pub body: Bytes,
    /// How long the request may take, until the response is complete.
    pub time: Duration,
}

/// A request that cannot be sent as it is. The text says why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(pub(super) String);

/// A response of a venue.
#[derive(Debug, Clone)]
pub struct ApiResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Vec<u8>,
}

impl ApiRequest {
    /// A request for JSON, without a body.
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        ApiRequest {
            method,
            path: path.into(),
            headers: HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]),
            body: Bytes::new(),
            time: REQUEST_TIME,
        }
    }

    /// Sets the body to a JSON document.
    pub(super) fn with_json(self, value: &Value) -> Result<Self, InvalidRequest> {
        let text = json::to_string(value).map_err(|error| {
            InvalidRequest(format!("the request body cannot be written as JSON: {error}"))
        })?;
        Ok(self.with_body(text.into()))
    }

    /// Sets the body to bytes that are JSON already.
    pub(super) fn with_body(mut self, body: Bytes) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = body;
        self
    }

    /// Sets a header.
    pub(super) fn with_header(
        mut self,
        name: HeaderName,
        value: &str,
    ) -> Result<Self, InvalidRequest> {
        let value = HeaderValue::from_str(value).map_err(|_| {
            InvalidRequest(format!("{value:?} is not a valid value of the header `{name}`"))
        })?;
        self.headers.insert(name, value);
        Ok(self)
    }
}

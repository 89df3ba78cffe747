//! Errors as clients see them: a closed list of codes, and one form of body for all of them.
//!
//! `error` is a short text, `code` is for programs, `retry` says whether the same request may be sent
//! again, and `hint` what the caller can do. `from_engine` maps engine errors to codes without a
//! catch-all arm: a new engine error does not compile until it has a code.

mod codes;
mod from_engine;
mod from_identity;

pub(crate) use codes::Code;
pub(crate) use from_engine::operation_in_path;

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use catena_value::{Map, Value, json};

use crate::http::response;

/// The response to a request that failed.
#[derive(Debug)]
pub(crate) struct ApiError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    status: StatusCode,
    code: Code,
    error: String,
    detail: Option<String>,
    hint: Cow<'static, str>,
    members: Vec<(&'static str, Value)>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The result of a handler.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error with the usual status and hint of its code. `error` is a short text without a full
    /// stop.
    pub(crate) fn new(code: Code, error: impl Into<String>) -> Self {
        ApiError(Box::new(Inner {
            status: code.status(),
            code,
            error: error.into(),
            detail: None,
            hint: Cow::Borrowed(code.hint()),
            members: Vec::new(),
            headers: Vec::new(),
        }))
    }

    /// The error for a request that is invalid in itself.
    pub(crate) fn bad_request(error: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, error)
    }

    /// The same with another status: a code can mean something else in a path than in a body.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    /// The same with a sentence that explains it.
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// The same with another hint.
    pub(crate) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = hint.into();
        self
    }

    /// The same with one more member in its body.
    pub(crate) fn member(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.members.push((name, value.into()));
        self
    }

    /// The same with one more header.
    pub(crate) fn header(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.0.headers.push((name, value));
        }
        self
    }

    /// The same with `Retry-After`, rounded up to whole seconds and at least one.
    pub(crate) fn retry_after(self, time: Duration) -> Self {
        let seconds = time.as_millis().div_ceil(1000).max(1);
        self.header(header::RETRY_AFTER, seconds.to_string())
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    pub(crate) fn code(&self) -> Code {
        self.0.code
    }

    /// The short text `error`.
    pub(crate) fn text(&self) -> &str {
        &self.0.error
    }

    /// The body of the response.
    pub(crate) fn to_value(&self) -> Value {
        let inner = &*self.0;
        let mut members = inner.members.clone();
        members.push(("error", inner.error.as_str().into()));
        members.push(("code", inner.code.as_str().into()));
        members.push(("retry", inner.code.retry().as_str().into()));
        members.push(("hint", inner.hint.as_ref().into()));
        members.extend(inner.detail.as_deref().map(|detail| ("detail", detail.into())));
        members.into_iter().collect::<Map>().into()
    }

    /// Adds the error's headers to a response.
    pub(crate) fn add_headers(&self, response: &mut Response) {
        for (name, value) in &self.0.headers {
            response.headers_mut().append(name, value.clone());
        }
    }

    /// The response.
    pub(crate) fn into_response(self) -> Response {
        let body = json::to_string(&self.to_value()).unwrap_or_else(|_| "{}".to_owned());
        let mut response = response::json(self.0.status, body);
        self.add_headers(&mut response);
        if self.0.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

#[cfg(test)]
mod tests;

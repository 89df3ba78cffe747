//! Errors as clients see them: a closed list of codes, and one body for all of them.
//!
//! `error` is a short text, `code` a word to match on, `retry` says what a client may do with the
//! same request, `hint` is something one can do. Which engine error becomes which code is in
//! `from_engine`, without a catch-all arm: a new error there does not compile until it has a code.

mod codes;
mod from_engine;

pub use codes::{Code, Retry};
pub(crate) use from_engine::operation_in_path;

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use catena_value::{Map, Value, json};

use crate::http::response;

/// An answer that says why a request was not carried out.
#[derive(Debug)]
pub struct ApiError(Box<Inner>);

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

/// What a handler gives back when it could not do what it was asked.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error with the status and hint that its code stands for.
    pub fn new(code: Code, error: impl Into<String>) -> Self {
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

    /// A request that is wrong in itself.
    pub fn bad_request(error: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, error)
    }

    /// The same with another status: one code may mean another thing in a path than in a body.
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    /// The same with a sentence that explains it.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// The same with another hint.
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = hint.into();
        self
    }

    /// The same with one more member in its body.
    pub fn member(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.members.push((name, value.into()));
        self
    }

    /// The same with one more header.
    pub fn header(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.0.headers.push((name, value));
        }
        self
    }

    /// The same, saying when to come again. Whole seconds, at least one.
    pub fn retry_after(self, time: Duration) -> Self {
        let seconds = time.as_millis().div_ceil(1000).max(1);
        self.header(header::RETRY_AFTER, seconds.to_string())
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What it says, in a few words.
    pub fn text(&self) -> &str {
        &self.0.error
    }

    /// What one can do.
    pub fn what_to_do(&self) -> &str {
        &self.0.hint
    }

    /// Its body.
    pub fn to_value(&self) -> Value {
        let inner = &*self.0;
        let mut members = inner.members.clone();
        members.push(("error", inner.error.as_str().into()));
        members.push(("code", inner.code.as_str().into()));
        members.push(("retry", inner.code.retry().as_str().into()));
        members.push(("hint", inner.hint.as_ref().into()));
        members.extend(inner.detail.as_deref().map(|detail| ("detail", detail.into())));
        members.into_iter().collect::<Map>().into()
    }

    /// Sets the headers that come with it.
    pub(crate) fn put_headers(&self, response: &mut Response) {
        for (name, value) in &self.0.headers {
            response.headers_mut().append(name, value.clone());
        }
    }

    /// The answer.
    pub fn into_response(self) -> Response {
        let body = json::to_string(&self.to_value()).unwrap_or_else(|_| "{}".to_owned());
        let mut response = response::json(self.0.status, body);
        self.put_headers(&mut response);
        if self.0.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

#[cfg(test)]
mod tests;

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
use catena_job::contract::{Category, ContractError};
use catena_job::members::UnknownMember;
use catena_value::{Map, Value, json};

use crate::http::response;

/// The paths whose errors have the form of the job contract.
const CONTRACT_PATHS: &str = "/contract/v1";

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
    /// The error of the contract API, if it says more than the code does.
    contract: Option<ContractError>,
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
            contract: None,
        }))
    }

    /// The error for a request that is invalid in itself.
    pub(crate) fn bad_request(error: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, error)
    }

    /// The error for a payload of the contract API that is not valid.
    pub(crate) fn invalid_payload(error: ContractError) -> Self {
        let mut invalid = Self::new(Code::InvalidPayload, error.message.as_str());
        invalid.0.contract = Some(error);
        invalid
    }

    /// The error for a member that is not known.
    pub(crate) fn unknown_member(unknown: &UnknownMember) -> Self {
        let error = Self::new(Code::UnknownMember, unknown.to_string());
        let error = error.member("member", unknown.name.as_str());
        match unknown.nearest {
            Some(nearest) => error.member("nearest", nearest),
            None => error,
        }
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

    /// The body of the response in the contract API: `{"error": {category, code, message, details, hint}}`.
    fn to_contract_value(&self) -> Value {
        let inner = &*self.0;
        let is_ours =
            inner.status.is_server_error() || inner.status == StatusCode::TOO_MANY_REQUESTS;
        let category = if is_ours { Category::InternalError } else { Category::ValidationError };
        let error = inner.contract.clone().unwrap_or_else(|| {
            let mut error = ContractError::new(category, inner.code.as_str(), inner.error.as_str());
            error.details = inner.members.clone();
            error.details.extend(inner.detail.as_deref().map(|detail| ("detail", detail.into())));
            error
        });
        let hint = [("hint", Value::from(inner.hint.as_ref()))];
        let members = error.to_value();
        let members = members.as_map().map(Map::fields).unwrap_or_default();
        let members = members.into_iter().map(|(name, value)| (name.clone(), value.clone()));
        let hint = hint.map(|(name, value)| (Value::from(name), value));
        let error: Map = members.chain(hint).collect();
        [("error", Value::from(error))].into_iter().collect::<Map>().into()
    }

    /// The response, in the form of the API to which this path belongs.
    pub(crate) fn into_response_for(self, path: &str) -> Response {
        if path.starts_with(CONTRACT_PATHS) {
            let body = self.to_contract_value();
            return self.respond_with(&body);
        }
        self.into_response()
    }

    /// The response.
    pub(crate) fn into_response(self) -> Response {
        let body = self.to_value();
        self.respond_with(&body)
    }

    fn respond_with(self, body: &Value) -> Response {
        let body = json::to_string(body).unwrap_or_else(|_| "{}".to_owned());
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

//! Answers: the few forms that handlers give back.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;

/// Content type of JSON answers.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// An answer with a JSON text.
pub(crate) fn json(status: StatusCode, text: impl Into<Body>) -> Response {
    with_type(status, JSON, text)
}

/// An answer with bytes of some type.
pub(crate) fn with_type(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Sets a header whose value was built; one that no header can carry is left out.
pub(crate) fn set(response: &mut Response, name: HeaderName, value: impl TryInto<HeaderValue>) {
    if let Ok(value) = value.try_into() {
        response.headers_mut().insert(name, value);
    }
}

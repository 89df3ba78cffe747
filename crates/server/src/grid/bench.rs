//! A route that does nothing, as a baseline for benchmarks. It is mounted only if the operator enables
//! it.

use axum::http::{Method, StatusCode};
use axum::response::Response;

use crate::http::error::ApiResult;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{ANY, JSON, ROUTE, RequestBody, Route, reply};

pub(crate) const ROUTES: &[Route] = &[Route {
    method: Method::POST,
    path: "/bench/noop",
    tag: "Benchmarks",
    summary: "Read a body and do nothing",
    body: Some(RequestBody { about: "Any bytes.", media: JSON, schema: ANY, is_required: false }),
    replies: &[reply(201, "The number of bytes that were read.", r#"{"type":"object"}"#)],
    handler: |request| Box::pin(noop(request)),
    ..ROUTE
}];

async fn noop(mut request: ApiRequest) -> ApiResult<Response> {
    let bytes = request.read_body().await?.len();
    Ok(response::json(StatusCode::CREATED, format!("{{\"bytes\":{bytes}}}")))
}

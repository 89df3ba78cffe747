//! A route that does nothing, to compare others with. Mounted only when the operator asks for it.

use axum::http::{Method, StatusCode};
use axum::response::Response;

use crate::http::error::ApiResult;
use crate::http::request::Call;
use crate::http::response;
use crate::routes::{ANY, JSON, ROUTE, Route, Taken, reply};

pub(crate) const ROUTES: &[Route] = &[Route {
    method: Method::POST,
    path: "/bench/noop",
    tag: "Benchmarks",
    summary: "Read a body and do nothing",
    body: Some(Taken { about: "Anything.", media: JSON, schema: ANY, is_required: false }),
    replies: &[reply(201, "How many bytes there were.", r#"{"type":"object"}"#)],
    handler: |call| Box::pin(noop(call)),
    ..ROUTE
}];

async fn noop(mut call: Call) -> ApiResult<Response> {
    let bytes = call.read_body().await?.len();
    Ok(response::json(StatusCode::CREATED, format!("{{\"bytes\":{bytes}}}")))
}

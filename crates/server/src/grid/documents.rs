//! The front page, the `/docs` page and the OpenAPI document.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::describe::page;
use crate::http::error::ApiResult;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{Access, JSON, ROUTE, Reply, Route};

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// Pages load nothing from other sites and run no scripts.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
);
const PAGE: &[Reply] =
    &[Reply { status: 200, about: "A page.", body: Some(("text/html", r#"{"type":"string"}"#)) }];
const OPENAPI: &[Reply] = &[Reply {
    status: 200,
    about: "The OpenAPI 3.1 document.",
    body: Some((JSON, r#"{"type":"object"}"#)),
}];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/",
        tag: "Documents",
        summary: "The venue's front page",
        access: Access::Public,
        replies: PAGE,
        handler: |request| Box::pin(front(request)),
        ..ROUTE
    },
    Route {
        path: "/docs",
        tag: "Documents",
        summary: "This documentation",
        access: Access::Public,
        replies: PAGE,
        handler: |request| Box::pin(docs(request)),
        ..ROUTE
    },
    Route {
        path: "/openapi.json",
        tag: "Documents",
        summary: "The OpenAPI document",
        access: Access::Public,
        replies: OPENAPI,
        handler: |request| Box::pin(openapi(request)),
        ..ROUTE
    },
    Route {
        path: "/openapi",
        tag: "Documents",
        summary: "The OpenAPI document (alternative path)",
        access: Access::Public,
        replies: OPENAPI,
        handler: |request| Box::pin(openapi(request)),
        ..ROUTE
    },
];

async fn front(request: ApiRequest) -> ApiResult<Response> {
    let state = &request.state;
    Ok(html(page::front(&state.name, state.engine.did(), &request.base_url())))
}

async fn docs(request: ApiRequest) -> ApiResult<Response> {
    Ok(html(request.state.docs.clone()))
}

async fn openapi(request: ApiRequest) -> ApiResult<Response> {
    Ok(response::json(StatusCode::OK, request.state.openapi.clone()))
}

fn html(body: impl Into<Body>) -> Response {
    let mut response = response::with_type(StatusCode::OK, HTML, body);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response
}

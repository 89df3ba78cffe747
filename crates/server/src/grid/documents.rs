//! The `/docs` page and the OpenAPI document.

use axum::http::StatusCode;
use axum::response::Response;

use crate::describe::page;
use crate::http::error::ApiResult;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{Access, JSON, ROUTE, Reply, Route};

const PAGE: &[Reply] =
    &[Reply { status: 200, about: "A page.", body: Some(("text/html", r#"{"type":"string"}"#)) }];
const OPENAPI: &[Reply] = &[Reply {
    status: 200,
    about: "The OpenAPI 3.1 document.",
    body: Some((JSON, r#"{"type":"object"}"#)),
}];

pub(crate) const ROUTES: &[Route] = &[
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

async fn docs(request: ApiRequest) -> ApiResult<Response> {
    Ok(page::response(request.state.docs.clone()))
}

async fn openapi(request: ApiRequest) -> ApiResult<Response> {
    Ok(response::json(StatusCode::OK, request.state.openapi.clone()))
}

//! What the venue says about itself to people and programs.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::describe::page;
use crate::grid::identity::base_url;
use crate::http::error::ApiResult;
use crate::http::request::Call;
use crate::http::response;
use crate::routes::{Access, JSON, ROUTE, Reply, Route};

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// Pages load nothing from elsewhere and run no scripts.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
);
const PAGE: &[Reply] =
    &[Reply { status: 200, about: "A page.", body: Some(("text/html", r#"{"type":"string"}"#)) }];
const DESCRIPTION: &[Reply] = &[Reply {
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
        handler: |call| Box::pin(front(call)),
        ..ROUTE
    },
    Route {
        path: "/docs",
        tag: "Documents",
        summary: "This interface, for people",
        access: Access::Public,
        replies: PAGE,
        handler: |call| Box::pin(docs(call)),
        ..ROUTE
    },
    Route {
        path: "/openapi.json",
        tag: "Documents",
        summary: "This interface, for programs",
        access: Access::Public,
        replies: DESCRIPTION,
        handler: |call| Box::pin(openapi(call)),
        ..ROUTE
    },
    Route {
        path: "/openapi",
        tag: "Documents",
        summary: "The same, by its other name",
        access: Access::Public,
        replies: DESCRIPTION,
        handler: |call| Box::pin(openapi(call)),
        ..ROUTE
    },
];

async fn front(call: Call) -> ApiResult<Response> {
    let text = page::front(&call.door.name, call.door.engine.did(), &base_url(&call));
    Ok(html(text))
}

async fn docs(call: Call) -> ApiResult<Response> {
    Ok(html(call.door.docs.clone()))
}

async fn openapi(call: Call) -> ApiResult<Response> {
    Ok(response::json(StatusCode::OK, call.door.openapi.clone()))
}

fn html(body: impl Into<axum::body::Body>) -> Response {
    let mut response = response::with_type(StatusCode::OK, HTML, body);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response
}

//! The caller's secrets: their names can be read, their values only written.

use axum::http::{Method, StatusCode};
use axum::response::Response;
use catena_engine::requests::Invoke;
use catena_value::{Map, NoCells, Value};

use crate::grid::values::refused;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::{self, write_value};
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{JSON, ROUTE, RequestBody, Route, reply};

const NAME: &str = "The name of a secret.";

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/secrets",
        tag: "Secrets",
        summary: "List secrets",
        about: "Lists the names of the caller's secrets.",
        replies: &[reply(
            200,
            "The names.",
            r#"{"type":"object","required":["items","total"],"properties":{
                "items":{"type":"array","items":{"type":"string"}},"total":{"type":"integer"}}}"#,
        )],
        errors: &[Code::Forbidden],
        handler: |request| Box::pin(list(request)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/secrets/{name}",
        path_parameter: NAME,
        tag: "Secrets",
        summary: "Store a secret",
        about: "The value is encrypted before it is stored, and never returned. The change is a job of \
                `secret:set`, whose record does not contain the value.",
        body: Some(RequestBody {
            about: "The value, and optionally the hosts to which it may be sent.",
            media: JSON,
            schema: r#"{"type":"object","required":["value"],"properties":{
                "value":{"type":"string","writeOnly":true},
                "hosts":{"type":"array","items":{"type":"string"}}}}"#,
            is_required: true,
        }),
        replies: &[reply(
            200,
            "It is stored.",
            r#"{"type":"object","required":["name","stored"],"properties":{
                "name":{"type":"string"},"stored":{"type":"boolean"}}}"#,
        )],
        errors: &[Code::BadRequest, Code::InvalidJson, Code::BodyTooLarge, Code::Forbidden],
        handler: |request| Box::pin(put(request)),
        ..ROUTE
    },
    Route {
        method: Method::DELETE,
        path: "/api/v1/secrets/{name}",
        path_parameter: NAME,
        tag: "Secrets",
        summary: "Delete a secret",
        replies: &[reply(200, "It is deleted.", r#"{"type":"object"}"#)],
        errors: &[Code::BadRequest, Code::SecretNotFound, Code::Forbidden],
        handler: |request| Box::pin(delete(request)),
        ..ROUTE
    },
];

/// Runs an operation of the caller and returns its output.
async fn run(request: &ApiRequest, operation: &'static str, input: Map) -> ApiResult<Value> {
    let invoke = Invoke::new(request.caller.clone(), operation, input.into());
    Ok(request.state.engine.run(invoke).await.map_err(refused)?.output)
}

fn answer(output: &Value) -> ApiResult<Response> {
    let mut text = String::new();
    write_value(output, &NoCells, &mut text)?;
    Ok(response::json(StatusCode::OK, text))
}

async fn list(request: ApiRequest) -> ApiResult<Response> {
    answer(&run(&request, "secret:list", Map::new()).await?)
}

async fn put(mut request: ApiRequest) -> ApiResult<Response> {
    let body = json::parse(&request.read_body().await?)?;
    let name = request.path_argument()?.into_owned();
    let body = body.as_map().ok_or_else(|| ApiError::bad_request("the body must be an object"))?;
    let mut input = vec![("name", Value::from(name))];
    for member in ["value", "hosts", "overwrite"] {
        input.extend(body.field(member).map(|value| (member, value.clone())));
    }
    answer(&run(&request, "secret:set", input.into_iter().collect()).await?)
}

async fn delete(request: ApiRequest) -> ApiResult<Response> {
    let name = request.path_argument()?.into_owned();
    let input: Map = [("name", name.as_str())].into_iter().collect();
    let output = run(&request, "secret:delete", input).await?;
    let deleted = output.as_map().and_then(|output| output.field("deleted"));
    if deleted != Some(&Value::Bool(true)) {
        return Err(ApiError::new(Code::SecretNotFound, "there is no secret with this name"));
    }
    answer(&output)
}

//! The catalogue of operations that can be invoked by name.

use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::Operation;
use catena_value::Value;

use crate::http::error::{ApiError, ApiResult, Code, operation_in_path};
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{ROUTE, Route, reply};
use crate::values::{list, object};

const OPERATION: &str = r##"{"$ref":"#/components/schemas/Operation"}"##;

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/operations",
        tag: "Operations",
        summary: "List operations",
        about: "Lists the operations of all adapters in the order of their names.",
        replies: &[reply(
            200,
            "The catalogue.",
            r##"{"type":"array","items":{"$ref":"#/components/schemas/Operation"}}"##,
        )],
        handler: |request| Box::pin(list_operations(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/operations/{*name}",
        path_parameter: "A reference to an operation in any form, such as `v/ops/http/get`.",
        tag: "Operations",
        summary: "Read an operation",
        replies: &[reply(200, "The operation.", OPERATION)],
        errors: &[Code::OperationNotFound],
        handler: |request| Box::pin(read(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/adapters/{name}/operations",
        path_parameter: "The name of an adapter.",
        tag: "Operations",
        summary: "Read the operations of an adapter",
        replies: &[reply(
            200,
            "The metadata of each operation, by its name.",
            r#"{"type":"object"}"#,
        )],
        errors: &[Code::AdapterNotFound],
        handler: |request| Box::pin(read_adapter(request)),
        ..ROUTE
    },
];

async fn list_operations(request: ApiRequest) -> ApiResult<Response> {
    let entries = request.state.engine.operations();
    let entries = entries.iter().map(|entry| description(&entry.path, &entry.operation));
    Ok(response::value(StatusCode::OK, &list(entries)))
}

async fn read(request: ApiRequest) -> ApiResult<Response> {
    let reference = request.path_argument()?;
    let engine = &request.state.engine;
    let operation = engine.resolve(&request.caller, &reference).await.map_err(operation_in_path)?;
    let entries = engine.operations();
    let entry = entries.iter().find(|entry| entry.operation.id() == operation.id());
    let name = entry.map_or(&*reference, |entry| entry.path.as_str());
    Ok(response::value(StatusCode::OK, &description(name, &operation)))
}

async fn read_adapter(request: ApiRequest) -> ApiResult<Response> {
    let name = request.path_argument()?;
    let entries = request.state.engine.adapter_operations(&name).ok_or_else(|| {
        ApiError::new(Code::AdapterNotFound, format!("there is no adapter {name}"))
    })?;
    let by_name = entries.into_iter().map(|entry| (entry.path, entry.operation.metadata().clone()));
    Ok(response::value(StatusCode::OK, &object(by_name)))
}

/// An entry of the catalogue. `input` and `output` are objects, as the SDKs expect.
fn description(name: &str, operation: &Operation) -> Value {
    let metadata = operation.metadata().as_map();
    let mut members = vec![
        ("name", Value::from(name)),
        ("asset", operation.id().to_hex().into()),
        ("adapter", operation.adapter_ref().into()),
        ("readOnly", operation.is_read_only().into()),
    ];
    let description = metadata.and_then(|metadata| metadata.field("description"));
    members.extend(description.cloned().map(|text| ("description", text)));
    for member in ["input", "output"] {
        let schema = operation.member(member).filter(|schema| schema.as_map().is_some());
        members.extend(schema.map(|schema| (member, schema)));
    }
    object(members)
}

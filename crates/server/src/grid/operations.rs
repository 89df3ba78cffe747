//! The catalogue: what can be invoked by name.

use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::Operation;
use catena_value::{Map, Value, json};

use crate::http::error::{ApiError, ApiResult, Code, operation_in_path};
use crate::http::request::Call;
use crate::http::response;
use crate::routes::{ROUTE, Route, reply};

const OPERATION: &str = r##"{"$ref":"#/components/schemas/Operation"}"##;

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/operations",
        tag: "Operations",
        summary: "List operations",
        about: "Everything that adapters registered, in the order of names.",
        replies: &[reply(
            200,
            "The catalogue.",
            r##"{"type":"array","items":{"$ref":"#/components/schemas/Operation"}}"##,
        )],
        handler: |call| Box::pin(list(call)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/operations/{*name}",
        argument: "A reference to an operation in any form, such as `v/ops/http/get`.",
        tag: "Operations",
        summary: "Read one operation",
        replies: &[reply(200, "The operation.", OPERATION)],
        errors: &[Code::OperationNotFound],
        handler: |call| Box::pin(read(call)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/adapters/{name}/operations",
        argument: "The name of an adapter.",
        tag: "Operations",
        summary: "Read the operations of one adapter",
        replies: &[reply(200, "Metadata by the name of the operation.", r#"{"type":"object"}"#)],
        errors: &[Code::AdapterNotFound],
        handler: |call| Box::pin(of_adapter(call)),
        ..ROUTE
    },
];

async fn list(call: Call) -> ApiResult<Response> {
    let entries = call.door.engine.operations();
    let entries = entries.iter().map(|entry| described(&entry.path, &entry.operation));
    Ok(written(&Value::Vector(entries.collect())))
}

async fn read(call: Call) -> ApiResult<Response> {
    let reference = call.argument()?;
    let engine = &call.door.engine;
    let operation = engine.resolve(&call.caller, &reference).await.map_err(operation_in_path)?;
    let entries = engine.operations();
    let entry = entries.iter().find(|entry| entry.operation.id() == operation.id());
    let name = entry.map_or(&*reference, |entry| entry.path.as_str());
    Ok(written(&described(name, &operation)))
}

async fn of_adapter(call: Call) -> ApiResult<Response> {
    let name = call.argument()?;
    let entries = call.door.engine.adapter_operations(&name).ok_or_else(|| {
        ApiError::new(Code::AdapterNotFound, format!("there is no adapter {name}"))
    })?;
    let entries = entries.into_iter().map(|entry| {
        let metadata = entry.operation.metadata().clone();
        (entry.path, metadata)
    });
    Ok(written(
        &entries.map(|(path, metadata)| (Value::from(path), metadata)).collect::<Map>().into(),
    ))
}

/// An entry of the catalogue. `input` and `output` are objects, as SDKs expect.
fn described(name: &str, operation: &Operation) -> Value {
    let metadata = operation.metadata().as_map();
    let mut members = vec![
        ("name", Value::from(name)),
        ("asset", operation.id().to_hex().into()),
        ("adapter", operation.adapter().into()),
        ("readOnly", operation.is_read_only().into()),
    ];
    let description = metadata.and_then(|metadata| metadata.field("description"));
    members.extend(description.cloned().map(|text| ("description", text)));
    for member in ["input", "output"] {
        let schema = operation.member(member).filter(|schema| schema.as_map().is_some());
        members.extend(schema.map(|schema| (member, schema)));
    }
    members.into_iter().collect::<Map>().into()
}

/// An answer with a value that is wholly in memory.
fn written(value: &Value) -> Response {
    response::json(StatusCode::OK, json::to_string(value).unwrap_or_default())
}

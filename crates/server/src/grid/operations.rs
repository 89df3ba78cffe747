//! The catalogue of operations that can be invoked by name.

use axum::http::{Method, StatusCode};
use axum::response::Response;
use catena_engine::Operation;
use catena_engine::operations::{NameEntry, Sharing};
use catena_value::Value;

use crate::http::error::{ApiError, ApiResult, Code, operation_in_path};
use crate::http::memory;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{JSON, ROUTE, RequestBody, Route, query, reply};
use crate::limits::SHARED_WITH_MAX;
use crate::values::{list, object, with_member};

const OPERATION: &str = r##"{"$ref":"#/components/schemas/Operation"}"##;

const NAMED: &str = r#"{"type":"object","required":["name"],"properties":{
    "name":{"type":"string"},"version":{"type":"integer"},"id":{"type":"string"}}}"#;

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/operations",
        tag: "Operations",
        summary: "List operations",
        about: "Lists the operations of all adapters in the order of their names, then the caller's own \
                as `o/<name>`.",
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
        method: Method::PUT,
        path: "/api/v1/operations/{*name}",
        path_parameter: "The name, without `o/`.",
        tag: "Operations",
        summary: "Give a definition a name",
        about: "The definition becomes the newest version of `o/<name>` of the caller, unless it is \
                already. Earlier versions stay available as `o/<name>@<version>` and by their asset \
                IDs. Without a body, only `share` is changed.",
        parameters: &[query(
            "share",
            r#"{"type":"string"}"#,
            "Who else may use it, as `<owner>/o/<name>`: `everyone`, `nobody`, or DIDs separated by \
             commas. Jobs go to the queues of the owner.",
        )],
        body: Some(RequestBody {
            about: "The metadata of an operation.",
            media: JSON,
            schema: r#"{"type":"object"}"#,
            is_required: false,
        }),
        replies: &[reply(200, "The name, its newest version and its asset ID.", NAMED)],
        errors: &[
            Code::BadRequest,
            Code::InvalidJson,
            Code::AssetInvalid,
            Code::UnknownMember,
            Code::AssetNotFound,
            Code::BodyTooLarge,
            Code::Forbidden,
        ],
        handler: |request| Box::pin(put_name(request)),
        ..ROUTE
    },
    Route {
        method: Method::DELETE,
        path: "/api/v1/operations/{*name}",
        path_parameter: "The name, without `o/`.",
        tag: "Operations",
        summary: "Remove a name",
        about: "Its versions stay available by their asset IDs.",
        replies: &[reply(200, "The name was removed.", NAMED)],
        errors: &[Code::OperationNotFound, Code::Forbidden],
        handler: |request| Box::pin(remove_name(request)),
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
    let engine = &request.state.engine;
    let entries = engine.operations();
    let entries = entries.iter().map(|entry| description(&entry.path, &entry.operation));
    let mut entries: Vec<Value> = entries.collect();
    for (name, entry) in engine.names(&request.caller).await? {
        let reference = format!("o/{name}");
        // A definition that this venue can no longer run is not in the catalogue.
        if let Ok(operation) = engine.resolve(&request.caller, &reference).await {
            let described = with_versions(description(&reference, &operation), &entry);
            memory::reserve_part(&described)?;
            entries.push(described);
        }
        // There can be thousands, and a definition that is known takes no time to find.
        tokio::task::yield_now().await;
    }
    Ok(response::value(StatusCode::OK, &list(entries)))
}

async fn read(request: ApiRequest) -> ApiResult<Response> {
    let reference = request.path_argument()?;
    let engine = &request.state.engine;
    let operation = engine.resolve(&request.caller, &reference).await.map_err(operation_in_path)?;
    let entries = engine.operations();
    let entry = entries.iter().find(|entry| entry.operation.id() == operation.id());
    let name = entry.map_or(&*reference, |entry| entry.path.as_str());
    let mut described = description(name, &operation);
    if let Some(name) = reference.strip_prefix("o/") {
        let names = engine.names(&request.caller).await?;
        if let Some((_, entry)) = names.iter().find(|(known, _)| known == name) {
            described = with_versions(described, entry);
        }
    }
    Ok(response::value(StatusCode::OK, &described))
}

async fn put_name(mut request: ApiRequest) -> ApiResult<Response> {
    request.refuse_unknown_parameters()?;
    let body = request.read_body().await?;
    let name = request.path_argument()?.into_owned();
    let name = name.strip_prefix("o/").unwrap_or(&name);
    let shared = request.parameter("share")?.map(|text| parse_sharing(&text)).transpose()?;
    let definition = match &*body {
        [] if shared.is_some() => None,
        body => Some(
            std::str::from_utf8(body)
                .map_err(|_| ApiError::new(Code::InvalidJson, "the body is not valid UTF-8"))?,
        ),
    };
    let engine = &request.state.engine;
    let named = engine.put_name(&request.caller, name, definition, shared).await?;
    let members = vec![
        ("name", Value::from(format!("o/{}", named.name))),
        ("version", i64::try_from(named.version).unwrap_or(i64::MAX).into()),
        ("id", named.id.to_hex().into()),
    ];
    Ok(response::value(StatusCode::OK, &with_versions(object(members), &named.entry)))
}

async fn remove_name(request: ApiRequest) -> ApiResult<Response> {
    let name = request.path_argument()?;
    let name = name.strip_prefix("o/").unwrap_or(&name);
    if !request.state.engine.remove_name(&request.caller, name).await? {
        return Err(ApiError::new(Code::OperationNotFound, format!("there is no o/{name}")));
    }
    let members = [("name", Value::from(format!("o/{name}"))), ("removed", true.into())];
    Ok(response::value(StatusCode::OK, &object(members)))
}

fn parse_sharing(text: &str) -> ApiResult<Sharing> {
    match text {
        "everyone" => Ok(Sharing::Everyone),
        "nobody" => Ok(Sharing::Nobody),
        dids => {
            let dids: Vec<String> = dids.split(',').map(|did| did.trim().to_owned()).collect();
            if dids.iter().all(|did| did.starts_with("did:")) && dids.len() <= SHARED_WITH_MAX {
                return Ok(Sharing::With(dids));
            }
            let text = format!(
                "`share` must be `everyone`, `nobody`, or at most {SHARED_WITH_MAX} DIDs separated by commas"
            );
            Err(ApiError::bad_request(text))
        }
    }
}

/// Adds the versions of a name and who may use it.
fn with_versions(described: Value, entry: &NameEntry) -> Value {
    let Some(map) = described.as_map() else { return described };
    let versions = entry.versions.iter().enumerate().map(|(index, version)| {
        let number = i64::try_from(index + 1).unwrap_or(i64::MAX);
        object([
            ("version", Value::from(number)),
            ("id", version.id.to_hex().into()),
            ("created", version.at.into()),
        ])
    });
    let map = with_member(map, "versions", list(versions));
    let shared = match &entry.shared {
        Sharing::Nobody => return map.into(),
        Sharing::Everyone => "everyone".into(),
        Sharing::With(dids) => list(dids.iter().map(|did| Value::from(did.as_str()))),
    };
    with_member(&map, "shared", shared).into()
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

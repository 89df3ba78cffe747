//! The identity of the venue: its status and its DID documents.

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use catena_engine::operations::ListAssets;
use catena_value::{Value, json};

use crate::http::VERSION;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{Access, ROUTE, Reply, Route, reply};
use crate::identity::authenticate::Admission;
use crate::limits::USER_NAME_BYTES_MAX;
use crate::values::{count, list, object};

/// The level of the Covia API that the venue implements. Clients decide by it what they may request.
const API_LEVEL: &str = "0.9.11";

const DID_JSON: HeaderValue = HeaderValue::from_static("application/did+json");
const DOCUMENT: &[Reply] = &[Reply {
    status: 200,
    about: "The DID document.",
    body: Some(("application/did+json", r#"{"type":"object","required":["id"]}"#)),
}];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/status",
        tag: "Venue",
        summary: "Read the venue's status",
        about: "`version` is the level of the Covia API that the venue implements, `catena` the \
                version of the program. `delegation` is `scoped`: requests of another venue under \
                a user's delegation belong to an account of that venue and user. Figures are \
                shown only to callers that may use the venue.",
        access: Access::Status,
        replies: &[reply(200, "The status.", r##"{"$ref":"#/components/schemas/VenueStatus"}"##)],
        handler: |request| Box::pin(status(request)),
        ..ROUTE
    },
    Route {
        path: "/.well-known/did.json",
        tag: "Venue",
        summary: "Read the venue's DID document",
        access: Access::Public,
        replies: DOCUMENT,
        handler: |request| Box::pin(read_venue_document(request)),
        ..ROUTE
    },
    Route {
        path: "/a/{id}/did.json",
        path_parameter: "An asset ID.",
        tag: "Venue",
        summary: "Read an asset's DID document",
        replies: DOCUMENT,
        errors: &[Code::AssetNotFound],
        handler: |request| Box::pin(read_asset_document(request)),
        ..ROUTE
    },
    Route {
        path: "/u/{id}/did.json",
        path_parameter: "The name of a user of this venue.",
        tag: "Venue",
        summary: "Read a user's DID document",
        about: "The venue controls the DIDs of its users. The document does not reveal whether a \
                user of this name exists.",
        access: Access::Public,
        replies: DOCUMENT,
        errors: &[Code::BadRequest],
        handler: |request| Box::pin(read_user_document(request)),
        ..ROUTE
    },
];

async fn status(request: ApiRequest) -> ApiResult<Response> {
    let state = &request.state;
    let engine = &state.engine;
    let access = [
        ("public", Value::from(state.authenticator.is_anonymous_on())),
        ("mode", state.authenticator.mode().as_str().into()),
    ];
    let mut members = vec![
        ("status", "OK".into()),
        ("ts", engine.env().now().into()),
        ("did", engine.did().into()),
        ("name", state.name.as_str().into()),
        ("url", request.base_url().into()),
        ("version", API_LEVEL.into()),
        ("catena", VERSION.into()),
        ("delegation", "scoped".into()),
        ("access", object(access)),
    ];
    if request.admission == Admission::Admitted {
        let all = ListAssets { kind: None, own: false, offset: 0, limit: 0 };
        let (_, assets) = engine.assets(&request.caller, all).await?;
        let operations = engine.operations().len() as u64;
        members.push(("stats", object([("assets", count(assets)), ("ops", count(operations))])));
    }
    let status = object(members);
    Ok(response::value(StatusCode::OK, &status))
}

async fn read_venue_document(request: ApiRequest) -> ApiResult<Response> {
    let did = request.state.engine.did();
    let endpoint = format!("{}/api/v1", request.base_url());
    Ok(document_response(&venue_document(did, &request.state.public_key, &endpoint)))
}

fn venue_document(did: &str, public_key: &str, endpoint: &str) -> Value {
    let key_id = format!("{did}#{public_key}");
    let method = object([
        ("id", key_id.as_str().into()),
        ("type", "Multikey".into()),
        ("controller", did.into()),
        ("publicKeyMultibase", public_key.into()),
    ]);
    let service = object([
        ("id", format!("{did}#api").into()),
        ("type", "Covia.API.v1".into()),
        ("serviceEndpoint", endpoint.into()),
    ]);
    let keys = || list([key_id.as_str().into()]);
    object([
        ("@context", contexts()),
        ("id", did.into()),
        ("verificationMethod", list([method])),
        ("authentication", keys()),
        ("assertionMethod", keys()),
        ("capabilityDelegation", keys()),
        ("capabilityInvocation", keys()),
        ("service", list([service])),
    ])
}

async fn read_asset_document(request: ApiRequest) -> ApiResult<Response> {
    let id = request.path_argument()?;
    let engine = &request.state.engine;
    let asset = engine.asset(&request.caller, &id).await?;
    let did = engine.did();
    let hex = asset.id.to_hex();
    let endpoint = format!("{}/api/v1/assets/{hex}", request.base_url());
    let service = object([
        ("id", format!("{did}:a:{hex}#asset").into()),
        ("type", "Covia.Asset.v1".into()),
        ("serviceEndpoint", endpoint.into()),
    ]);
    let document = object([
        ("@context", contexts()),
        ("id", format!("{did}:a:{hex}").into()),
        ("controller", did.into()),
        ("alsoKnownAs", list([format!("{did}/a/{hex}").into()])),
        ("service", list([service])),
    ]);
    Ok(document_response(&document))
}

async fn read_user_document(request: ApiRequest) -> ApiResult<Response> {
    let user = request.path_argument()?;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if user.len() > USER_NAME_BYTES_MAX || !user.bytes().all(is_allowed) {
        let error = "the name of a user may contain only letters, digits, `.`, `_` and `-`";
        return Err(ApiError::bad_request(error));
    }
    let did = request.state.engine.did();
    let document = object([
        ("@context", contexts()),
        ("id", format!("{did}:u:{user}").into()),
        ("controller", did.into()),
    ]);
    Ok(document_response(&document))
}

fn contexts() -> Value {
    list(["https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"].map(Value::from))
}

fn document_response(document: &Value) -> Response {
    let text = json::to_string(document).unwrap_or_default();
    response::with_type(StatusCode::OK, DID_JSON, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_venue_document_names_its_key_for_every_use() {
        let value = venue_document("did:web:venue.example", "z6Mk", "https://venue.example/api/v1");
        let text = json::to_string(&value).unwrap();
        let key = r##""did:web:venue.example#z6Mk""##;
        for part in [
            r#""id":"did:web:venue.example""#.to_owned(),
            r#""publicKeyMultibase":"z6Mk""#.to_owned(),
            r#""type":"Multikey""#.to_owned(),
            r#""type":"Covia.API.v1""#.to_owned(),
            format!(r#""authentication":[{key}]"#),
            format!(r#""capabilityInvocation":[{key}]"#),
        ] {
            assert!(text.contains(&part), "{part} in {text}");
        }
    }
}

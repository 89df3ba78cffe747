//! Who the venue is: its status and its DID documents.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use catena_engine::assets::ListAssets;
use catena_value::{Map, Value, Vector, json};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::Call;
use crate::http::response;
use crate::routes::{Access, ROUTE, Reply, Route, reply};

/// The level of the Covia API that the venue speaks. Clients decide by it what they may ask.
pub(crate) const API_LEVEL: &str = "0.9.11";

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const DID_JSON: HeaderValue = HeaderValue::from_static("application/did+json");
const DOCUMENT: &[Reply] = &[Reply {
    status: 200,
    about: "The DID document.",
    body: Some(("application/did+json", r#"{"type":"object","required":["id"]}"#)),
}];

/// Longest name of a user in a path.
const USER_BYTES_MAX: usize = 128;

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/status",
        tag: "Venue",
        summary: "Read the venue's status",
        about: "`version` is the level of the Covia API, `catena` that of the program.",
        replies: &[reply(200, "The status.", r##"{"$ref":"#/components/schemas/VenueStatus"}"##)],
        handler: |call| Box::pin(status(call)),
        ..ROUTE
    },
    Route {
        path: "/.well-known/did.json",
        tag: "Venue",
        summary: "Read the venue's DID document",
        access: Access::Public,
        replies: DOCUMENT,
        handler: |call| Box::pin(venue_document(call)),
        ..ROUTE
    },
    Route {
        path: "/a/{id}/did.json",
        argument: "An asset ID.",
        tag: "Venue",
        summary: "Read an asset's DID document",
        access: Access::Public,
        replies: DOCUMENT,
        errors: &[Code::AssetNotFound],
        handler: |call| Box::pin(asset_document(call)),
        ..ROUTE
    },
    Route {
        path: "/u/{id}/did.json",
        argument: "The name of a user of this venue.",
        tag: "Venue",
        summary: "Read a user's DID document",
        about: "Users of a venue are controlled by it. The document says nothing about whether \
                somebody of this name has ever been here.",
        access: Access::Public,
        replies: DOCUMENT,
        errors: &[Code::BadRequest],
        handler: |call| Box::pin(user_document(call)),
        ..ROUTE
    },
];

async fn status(call: Call) -> ApiResult<Response> {
    let engine = &call.door.engine;
    let all = ListAssets { kind: None, own: false, offset: 0, limit: 0 };
    let (_, assets) = engine.assets(&call.caller, all).await?;
    let operations = engine.operations().len();
    let number = |count: u64| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
    let stats = [("assets", number(assets)), ("ops", number(operations as u64))];
    let access = [("public", Value::from(call.door.identities.has_public_access()))];
    let members = [
        ("status", Value::from("OK")),
        ("ts", engine.env().now().into()),
        ("did", engine.did().into()),
        ("name", call.door.name.as_str().into()),
        ("url", base_url(&call).into()),
        ("version", API_LEVEL.into()),
        ("catena", VERSION.into()),
        ("stats", stats.into_iter().collect::<Map>().into()),
        ("access", access.into_iter().collect::<Map>().into()),
    ];
    let text = json::to_string(&members.into_iter().collect::<Map>().into()).unwrap_or_default();
    Ok(response::json(StatusCode::OK, text))
}

/// Where the venue is reached: as the operator said, else as the client reached it.
pub(crate) fn base_url(call: &Call) -> String {
    match &call.door.public_url {
        Some(url) => url.clone(),
        None => {
            let bound = || call.door.origins.bound.to_string();
            let host = call.header(&header::HOST).map_or_else(bound, str::to_owned);
            format!("http://{host}")
        }
    }
}

async fn venue_document(call: Call) -> ApiResult<Response> {
    let did = call.door.engine.did();
    let endpoint = format!("{}/api/v1", base_url(&call));
    Ok(document(&venue_members(did, &call.door.public_key, &endpoint)))
}

fn venue_members(did: &str, public_key: &str, endpoint: &str) -> Value {
    let key_id = format!("{did}#{public_key}");
    let method = [
        ("id", key_id.as_str()),
        ("type", "Multikey"),
        ("controller", did),
        ("publicKeyMultibase", public_key),
    ];
    let service = [
        ("id", format!("{did}#api")),
        ("type", "Covia.API.v1".to_owned()),
        ("serviceEndpoint", endpoint.to_owned()),
    ];
    let uses = || list(key_id.as_str());
    let members = [
        ("@context", contexts()),
        ("id", did.into()),
        ("verificationMethod", list(method.into_iter().collect::<Map>())),
        ("authentication", uses()),
        ("assertionMethod", uses()),
        ("capabilityDelegation", uses()),
        ("capabilityInvocation", uses()),
        ("service", list(service.into_iter().collect::<Map>())),
    ];
    members.into_iter().collect::<Map>().into()
}

async fn asset_document(call: Call) -> ApiResult<Response> {
    let id = call.argument()?;
    let asset = call.door.engine.asset(&call.caller, &id).await?;
    let (did, hex) = (call.door.engine.did(), asset.id.to_hex());
    let endpoint = format!("{}/api/v1/assets/{hex}", base_url(&call));
    let service = [
        ("id", format!("{did}:a:{hex}#asset")),
        ("type", "Covia.Asset.v1".to_owned()),
        ("serviceEndpoint", endpoint),
    ];
    let members = [
        ("@context", contexts()),
        ("id", format!("{did}:a:{hex}").into()),
        ("controller", did.into()),
        ("alsoKnownAs", list(format!("{did}/a/{hex}"))),
        ("service", list(service.into_iter().collect::<Map>())),
    ];
    Ok(document(&members.into_iter().collect::<Map>().into()))
}

async fn user_document(call: Call) -> ApiResult<Response> {
    let user = call.argument()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if user.len() > USER_BYTES_MAX || !user.bytes().all(is_plain) {
        return Err(ApiError::bad_request("a user's name has letters, digits, `.`, `_` and `-`"));
    }
    let did = call.door.engine.did();
    let members = [
        ("@context", contexts()),
        ("id", format!("{did}:u:{user}").into()),
        ("controller", Value::from(did)),
    ];
    Ok(document(&members.into_iter().collect::<Map>().into()))
}

fn contexts() -> Value {
    let contexts = ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"];
    Value::Vector(contexts.into_iter().map(Value::from).collect())
}

fn list(one: impl Into<Value>) -> Value {
    Value::Vector(Vector::from_items(vec![one.into()]))
}

fn document(value: &Value) -> Response {
    let text = json::to_string(value).unwrap_or_default();
    response::with_type(StatusCode::OK, DID_JSON, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_venue_document_names_its_key_for_every_use() {
        let value = venue_members("did:web:venue.example", "z6Mk", "https://venue.example/api/v1");
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

//! Assets: metadata by its ID, content by its digest.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use catena_engine::limits::METADATA_BYTES_MAX;
use catena_engine::operations::{AssetKind, ListAssets, ListedAsset, members};
use catena_value::Value;

use crate::http::content::ContentHeaders;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json;
use crate::http::rate::BodyRate;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{
    ANY, IDEMPOTENCY_KEY, IF_NONE_MATCH, JSON, LIMIT, OFFSET, ROUTE, Reply, RequestBody, Route,
    empty_reply, query, reply,
};
use crate::values::{count, list, object};

const REFERENCE: &str =
    "An asset ID, optionally with the prefix `0x` or `a/`, a path such as `v/ops/…`, or a DID URL.";
const INLINE: &str = "Sends the content with `Content-Disposition: inline`, so that browsers display it instead of saving it.";
const BYTES: &str = "application/octet-stream";
const CONTENT: &[Reply] = &[
    Reply {
        status: 200,
        about: "The content.",
        body: Some((BYTES, r#"{"type":"string","format":"binary"}"#)),
    },
    empty_reply(304, "The content still matches `If-None-Match`."),
];
const READ_ERRORS: &[Code] = &[Code::InvalidReference, Code::Forbidden, Code::AssetNotFound];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/assets",
        tag: "Assets",
        summary: "List assets",
        about: "Items are hex IDs without `0x`. With `scope=own`, items are objects that describe \
                the assets which the caller registered.",
        parameters: &[
            OFFSET,
            LIMIT,
            query("kind", r#"{"enum":["operation","data"]}"#, "Only assets of this kind."),
            query(
                "scope",
                r#"{"enum":["own","all"]}"#,
                "`own` lists only the assets that the caller registered. Defaults to `all`.",
            ),
        ],
        replies: &[reply(
            200,
            "A page of assets.",
            r##"{"$ref":"#/components/schemas/AssetPage"}"##,
        )],
        errors: &[Code::BadRequest],
        handler: |request| Box::pin(list_assets(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/api/v1/assets",
        tag: "Assets",
        summary: "Register an asset",
        about: "The asset's ID is the Value ID of its metadata, which never changes. Members of \
                `operation` that are not known are kept; `Catena-Warnings`, a JSON array of \
                sentences, names them.",
        parameters: &[IDEMPOTENCY_KEY],
        body: Some(RequestBody {
            about: "The metadata.",
            media: JSON,
            schema: r#"{"type":"object"}"#,
            is_required: true,
        }),
        replies: &[reply(201, "The asset's ID in hex.", r#"{"type":"string"}"#)],
        errors: &[
            Code::InvalidJson,
            Code::AssetInvalid,
            Code::UnknownMember,
            Code::Forbidden,
            Code::BodyTooLarge,
        ],
        handler: |request| Box::pin(register(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/assets/{*ref}",
        path_parameter: REFERENCE,
        tag: "Assets",
        summary: "Read an asset's metadata",
        about: "Returns the text exactly as it was registered.",
        parameters: &[IF_NONE_MATCH],
        replies: &[
            reply(200, "The metadata.", r#"{"type":"object"}"#),
            empty_reply(304, "The asset still matches `If-None-Match`."),
        ],
        errors: READ_ERRORS,
        handler: |request| Box::pin(read(request)),
        ..ROUTE
    },
    Route {
        method: Method::DELETE,
        path: "/api/v1/assets/{*ref}",
        path_parameter: REFERENCE,
        tag: "Assets",
        summary: "Remove an asset",
        about: "For admins. Jobs that have run a definition which is removed stay as they are; those that \
                still run it cannot be recovered after a restart. The same metadata can be registered \
                again.",
        replies: &[empty_reply(204, "The asset is removed.")],
        errors: READ_ERRORS,
        handler: |request| Box::pin(remove(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/assets/{*ref}/content",
        path_parameter: REFERENCE,
        tag: "Assets",
        summary: "Read an asset's content",
        parameters: &[query("inline", ANY, INLINE), IF_NONE_MATCH],
        replies: CONTENT,
        errors: &[Code::AssetNotFound, Code::ContentNotFound],
        handler: |request| Box::pin(read_content(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/assets/content/{*ref}",
        path_parameter: REFERENCE,
        tag: "Assets",
        summary: "Read an asset's content (alternative path)",
        parameters: &[query("inline", ANY, INLINE), IF_NONE_MATCH],
        replies: CONTENT,
        errors: &[Code::AssetNotFound, Code::ContentNotFound],
        handler: |request| Box::pin(read_content(request)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/assets/{*ref}/content",
        path_parameter: REFERENCE,
        tag: "Assets",
        summary: "Upload an asset's content",
        about: "The content must have the SHA-256 that the metadata declares.",
        body: Some(RequestBody {
            about: "The content.",
            media: BYTES,
            schema: r#"{"type":"string","format":"binary"}"#,
            is_required: true,
        }),
        replies: &[reply(200, "The SHA-256 of the content in hex.", r#"{"type":"string"}"#)],
        errors: &[
            Code::ContentMismatch,
            Code::Forbidden,
            Code::AssetNotFound,
            Code::ContentTooLarge,
        ],
        handler: |request| Box::pin(upload_content(request)),
        ..ROUTE
    },
];

/// Which assets are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Those that the caller registered.
    Own,
    All,
}

async fn list_assets(request: ApiRequest) -> ApiResult<Response> {
    let (offset, limit) = request.page()?;
    let kind = parse_kind(request.parameter("kind")?.as_deref())?;
    let own = parse_scope(request.parameter("scope")?.as_deref())? == Scope::Own;
    let query = ListAssets { kind, own, offset, limit };
    let (assets, total) = request.state.engine.assets(&request.caller, query).await?;
    let items =
        assets.iter().map(|asset| if own { description(asset) } else { asset.id.to_hex().into() });
    let page = object([
        ("items", list(items)),
        ("total", count(total)),
        ("offset", count(offset)),
        ("limit", count(limit as u64)),
    ]);
    Ok(response::value(StatusCode::OK, &page))
}

fn parse_kind(word: Option<&str>) -> ApiResult<Option<AssetKind>> {
    match word {
        None => Ok(None),
        Some("operation") => Ok(Some(AssetKind::Operation)),
        Some("data") => Ok(Some(AssetKind::Data)),
        Some(_) => Err(ApiError::bad_request("`kind` must be operation or data")),
    }
}

fn parse_scope(word: Option<&str>) -> ApiResult<Scope> {
    match word {
        None | Some("all") => Ok(Scope::All),
        Some("own") => Ok(Scope::Own),
        Some(_) => Err(ApiError::bad_request("`scope` must be own or all")),
    }
}

fn description(asset: &ListedAsset) -> Value {
    let mut members = vec![("id", Value::from(asset.id.to_hex()))];
    let optional =
        [("name", &asset.name), ("type", &asset.kind), ("description", &asset.description)];
    for (name, text) in optional {
        members.extend(text.as_deref().map(|text| (name, text.into())));
    }
    object(members)
}

async fn register(mut request: ApiRequest) -> ApiResult<Response> {
    let body = request.read_body().await?;
    let key = request.idempotency_key("assets", &[], &body)?;
    if body.len() > METADATA_BYTES_MAX {
        let error = format!("the metadata has more than {METADATA_BYTES_MAX} bytes");
        return Err(ApiError::new(Code::BodyTooLarge, error));
    }
    let warnings = members::warnings(&json::parse(&body)?);
    // Text that was just parsed as JSON is UTF-8.
    let text = str::from_utf8(&body).unwrap_or_default();
    let (id, is_replay) = request.state.engine.register(&request.caller, text, key).await?;
    let hex = id.to_hex();
    let mut response = response::json(StatusCode::CREATED, format!("\"{hex}\""));
    response::set_header(&mut response, header::LOCATION, format!("/api/v1/assets/{hex}"));
    response::mark_replay(&mut response, is_replay);
    response::set_warnings(&mut response, &warnings);
    Ok(response)
}

async fn remove(request: ApiRequest) -> ApiResult<Response> {
    request.state.engine.remove_asset(&request.caller, &request.path_argument()?).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

async fn read(request: ApiRequest) -> ApiResult<Response> {
    let asset = request.state.engine.asset(&request.caller, &request.path_argument()?).await?;
    let etag = format!("\"{}\"", asset.id);
    let mut response = if request.matches_etag(&etag) {
        response::empty(StatusCode::NOT_MODIFIED)
    } else {
        response::json(StatusCode::OK, asset.text.as_ref().to_owned())
    };
    response::set_header(&mut response, header::ETAG, etag);
    Ok(response)
}

async fn read_content(request: ApiRequest) -> ApiResult<Response> {
    let content = request.state.engine.content(&request.caller, &request.path_argument()?).await?;
    let is_inline = request.flag("inline")?;
    let etag = format!("\"sha256:{}\"", content.sha256);
    if request.matches_etag(&etag) {
        let mut response = response::empty(StatusCode::NOT_MODIFIED);
        response::set_header(&mut response, header::ETAG, etag);
        return Ok(response);
    }
    let declared = content.content_type.as_deref().and_then(|text| text.parse().ok());
    let content_type = declared.unwrap_or(HeaderValue::from_static(BYTES));
    let headers = ContentHeaders { content_type, etag, is_inline };
    Ok(crate::http::content::content(&request, content.download, headers))
}

async fn upload_content(mut request: ApiRequest) -> ApiResult<Response> {
    let mut body = request.take_body();
    let received = receive(&request, &mut body).await;
    if received.is_err() {
        request.discard(body);
    }
    let digest = received?;
    Ok(response::json(StatusCode::OK, format!("\"{digest}\"")))
}

/// Stores the content and returns its SHA-256 in hex.
async fn receive(request: &ApiRequest, body: &mut Body) -> ApiResult<String> {
    let engine = &request.state.engine;
    let mut upload = engine.put_content(&request.caller, &request.path_argument()?).await?;
    let mut rate = BodyRate::start();
    while let Some(data) = rate.next_data(body).await? {
        upload.write(data).await?;
    }
    Ok(upload.finish().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_strictly() {
        assert_eq!(parse_kind(Some("data")).unwrap(), Some(AssetKind::Data));
        assert!(parse_kind(Some("Data")).is_err());
        assert_eq!(parse_scope(Some("own")).unwrap(), Scope::Own);
        assert_eq!(parse_scope(None).unwrap(), Scope::All);
        assert!(parse_scope(Some("mine")).is_err());
    }
}

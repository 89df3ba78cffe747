//! Assets: metadata by its ID, content by its digest.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use catena_engine::assets::{AssetKind, Content, ListAssets, ListedAsset};
use catena_engine::limits::METADATA_BYTES_MAX;
use catena_value::{Map, Value, json};
use http_body_util::BodyExt as _;

use crate::grid::invoke::mark_replay;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::{Call, read_json};
use crate::http::response;
use crate::routes::{
    ANY, IDEMPOTENCY, IF_NONE_MATCH, JSON, LIMIT, OFFSET, ROUTE, Reply, Route, Taken, bare, query,
    reply,
};

const REFERENCE: &str =
    "An asset ID with or without `0x` or `a/`, a path such as `v/ops/…`, or a DID URL.";
const BYTES: &str = "application/octet-stream";
const CONTENT: &[Reply] = &[
    Reply { status: 200, about: "The bytes.", body: Some(("*/*", r#"{"type":"string"}"#)) },
    bare(304, "The content is what `If-None-Match` names."),
];
const READ_ERRORS: &[Code] = &[Code::InvalidReference, Code::Forbidden, Code::AssetNotFound];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/assets",
        tag: "Assets",
        summary: "List assets",
        about: "Items are bare hex IDs; with `scope=own` objects of what the caller registered.",
        parameters: &[
            OFFSET,
            LIMIT,
            query("kind", r#"{"enum":["operation","data"]}"#, "Only those of this kind."),
            query("scope", r#"{"enum":["own","all"]}"#, "Only those that the caller registered."),
        ],
        replies: &[reply(200, "A page.", r##"{"$ref":"#/components/schemas/AssetPage"}"##)],
        errors: &[Code::BadRequest],
        handler: |call| Box::pin(list(call)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/api/v1/assets",
        tag: "Assets",
        summary: "Register an asset",
        about: "Its ID is the Value ID of the metadata, which never changes.",
        parameters: &[IDEMPOTENCY],
        body: Some(Taken {
            about: "The metadata.",
            media: JSON,
            schema: r#"{"type":"object"}"#,
            is_required: true,
        }),
        replies: &[reply(201, "The asset's ID in hex.", r#"{"type":"string"}"#)],
        errors: &[Code::InvalidJson, Code::AssetInvalid, Code::Forbidden, Code::BodyTooLarge],
        handler: |call| Box::pin(register(call)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/assets/{*ref}",
        argument: REFERENCE,
        tag: "Assets",
        summary: "Read an asset's metadata",
        about: "The text exactly as it was registered.",
        parameters: &[IF_NONE_MATCH],
        replies: &[
            reply(200, "The metadata.", r#"{"type":"object"}"#),
            bare(304, "The asset is what `If-None-Match` names."),
        ],
        errors: READ_ERRORS,
        handler: |call| Box::pin(read(call)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/assets/{*ref}/content",
        argument: REFERENCE,
        tag: "Assets",
        summary: "Read an asset's content",
        parameters: &[
            query("inline", ANY, "For a browser to show it instead of saving it."),
            IF_NONE_MATCH,
        ],
        replies: CONTENT,
        errors: &[Code::AssetNotFound, Code::ContentNotFound],
        handler: |call| Box::pin(content(call)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/assets/content/{*ref}",
        argument: REFERENCE,
        tag: "Assets",
        summary: "Read an asset's content, by another path",
        parameters: &[
            query("inline", ANY, "For a browser to show it instead of saving it."),
            IF_NONE_MATCH,
        ],
        replies: CONTENT,
        errors: &[Code::AssetNotFound, Code::ContentNotFound],
        handler: |call| Box::pin(content(call)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/assets/{*ref}/content",
        argument: REFERENCE,
        tag: "Assets",
        summary: "Send an asset's content",
        about: "It must have the SHA-256 that the metadata declares.",
        body: Some(Taken {
            about: "The bytes.",
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
        handler: |call| Box::pin(put_content(call)),
        ..ROUTE
    },
];

async fn list(call: Call) -> ApiResult<Response> {
    let (offset, limit) = call.page()?;
    let kind = kind(call.parameter("kind")?.as_deref())?;
    let own = is_own(call.parameter("scope")?.as_deref())?;
    let query = ListAssets { kind, own, offset, limit };
    let (assets, total) = call.door.engine.assets(&call.caller, query).await?;
    let items = assets.iter().map(|asset| if own { line(asset) } else { asset.id.to_hex().into() });
    let members = [
        ("items", Value::Vector(items.collect())),
        ("total", Value::from(i64::try_from(total).unwrap_or(i64::MAX))),
        ("offset", i64::try_from(offset).unwrap_or(i64::MAX).into()),
        ("limit", i64::try_from(limit).unwrap_or(i64::MAX).into()),
    ];
    let page = Value::from(members.into_iter().collect::<Map>());
    Ok(response::json(StatusCode::OK, json::to_string(&page).unwrap_or_default()))
}

fn kind(word: Option<&str>) -> ApiResult<Option<AssetKind>> {
    match word {
        None => Ok(None),
        Some("operation") => Ok(Some(AssetKind::Operation)),
        Some("data") => Ok(Some(AssetKind::Data)),
        Some(_) => Err(ApiError::bad_request("`kind` must be operation or data")),
    }
}

fn is_own(word: Option<&str>) -> ApiResult<bool> {
    match word {
        None | Some("all") => Ok(false),
        Some("own") => Ok(true),
        Some(_) => Err(ApiError::bad_request("`scope` must be own or all")),
    }
}

fn line(asset: &ListedAsset) -> Value {
    let mut members = vec![("id", Value::from(asset.id.to_hex()))];
    let optional =
        [("name", &asset.name), ("type", &asset.kind), ("description", &asset.description)];
    for (name, text) in optional {
        members.extend(text.as_deref().map(|text| (name, text.into())));
    }
    members.into_iter().collect::<Map>().into()
}

async fn register(mut call: Call) -> ApiResult<Response> {
    let body = call.read_body().await?;
    let key = call.idempotency("assets", &[], &body)?;
    if body.len() > METADATA_BYTES_MAX {
        let error = format!("the metadata has more than {METADATA_BYTES_MAX} bytes");
        return Err(ApiError::new(Code::BodyTooLarge, error));
    }
    read_json(&body)?;
    // What was just read as JSON is UTF-8.
    let text = str::from_utf8(&body).unwrap_or_default();
    let (id, is_replay) = call.door.engine.register(&call.caller, text, key).await?;
    let hex = id.to_hex();
    let mut response = response::json(StatusCode::CREATED, format!("\"{hex}\""));
    response::set(&mut response, header::LOCATION, format!("/api/v1/assets/{hex}"));
    mark_replay(&mut response, is_replay);
    Ok(response)
}

async fn read(call: Call) -> ApiResult<Response> {
    let asset = call.door.engine.asset(&call.caller, &call.argument()?).await?;
    let tag = format!("\"{}\"", asset.id);
    let mut response = match call.has_tag(&tag) {
        true => response::empty(StatusCode::NOT_MODIFIED),
        false => response::json(StatusCode::OK, asset.text.as_ref().to_owned()),
    };
    response::set(&mut response, header::ETAG, tag);
    Ok(response)
}

async fn content(call: Call) -> ApiResult<Response> {
    let content = call.door.engine.content(&call.caller, &call.argument()?).await?;
    let is_inline = call.flag("inline")?;
    let tag = format!("\"sha256:{}\"", content.sha256);
    if call.has_tag(&tag) {
        let mut response = response::empty(StatusCode::NOT_MODIFIED);
        response::set(&mut response, header::ETAG, tag);
        return Ok(response);
    }
    let declared = content.content_type.as_deref().and_then(|text| text.parse().ok());
    let content_type = declared.unwrap_or(HeaderValue::from_static(BYTES));
    let len = content.len;
    let mut response = response::with_type(StatusCode::OK, content_type, streamed(content));
    response::set(&mut response, header::ETAG, tag);
    response::set(&mut response, header::CONTENT_LENGTH, len.to_string());
    // Content is whatever somebody uploaded: no browser may take it for a page of the venue.
    let guards = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "sandbox"),
        (header::CONTENT_DISPOSITION, if is_inline { "inline" } else { "attachment" }),
    ];
    for (name, value) in guards {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The content, piece by piece. Damage ends it with an error instead of its last piece.
fn streamed(content: Content) -> Body {
    let pieces = futures_util::stream::try_unfold(content.download, |mut download| async move {
        let piece: Option<Bytes> = download.next_chunk().await.inspect_err(|error| {
            tracing::error!(%error, "content could not be read");
        })?;
        Ok::<_, catena_store::blob::KeepError>(piece.map(|piece| (piece, download)))
    });
    Body::from_stream(pieces)
}

async fn put_content(mut call: Call) -> ApiResult<Response> {
    let mut body = call.take_body();
    let received = receive(&call, &mut body).await;
    if received.is_err() {
        call.discard(body);
    }
    let digest = received?;
    Ok(response::json(StatusCode::OK, format!("\"{digest}\"")))
}

async fn receive(call: &Call, body: &mut Body) -> ApiResult<String> {
    let mut upload = call.door.engine.put_content(&call.caller, &call.argument()?).await?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the content ended too early"))?;
        if let Ok(data) = frame.into_data() {
            upload.write(data).await?;
        }
    }
    Ok(upload.finish().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_words_of_ours() {
        assert_eq!(kind(Some("data")).unwrap(), Some(AssetKind::Data));
        assert!(kind(Some("Data")).is_err());
        assert!(is_own(Some("own")).unwrap() && !is_own(None).unwrap());
        assert!(is_own(Some("mine")).is_err());
    }
}

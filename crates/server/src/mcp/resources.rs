//! Resources: the assets that the caller registered, with their content.
//!
//! The URI of a resource is the DID URL of the asset, `<venue>/a/<id>`. Whoever knows the ID can read an
//! asset; a list has one's own.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use catena_engine::error::AssetError;
use catena_engine::operations::{Content, ListAssets, ListedAsset};
use catena_value::{Map, Value};

use crate::http::error::ApiError;
use crate::limits::{MCP_NAMED_TTL_MS, MCP_PAGE_MAX, MCP_RESOURCE_BYTES_MAX};
use crate::mcp::context::RequestContext;
use crate::mcp::json_rpc::RpcError;
use crate::mcp::params::text;
use crate::mcp::rpc_result::{MethodResult, RpcResult};
use crate::values::{list as list_of, object};

/// Lists the caller's assets, one page at a time. The cursor is a position.
pub(super) async fn list(context: &RequestContext, params: &Map) -> MethodResult {
    let cursor = text(params, "cursor")?;
    let invalid = |_| RpcError::invalid_params("`cursor` is not valid");
    let offset: u64 = cursor.map_or(Ok(0), str::parse).map_err(invalid)?;
    let engine = &context.state.engine;
    let query = ListAssets { kind: None, own: true, offset, limit: MCP_PAGE_MAX };
    let (assets, total) = engine.assets(&context.caller, query).await.map_err(ApiError::from)?;
    let next = offset.saturating_add(assets.len() as u64);
    let did = engine.did();
    let mut members = vec![("resources", list_of(assets.iter().map(|asset| resource(did, asset))))];
    if next < total && !assets.is_empty() {
        members.push(("nextCursor", next.to_string().into()));
    }
    Ok(cached(context, members))
}

/// Lists the form of the URIs.
pub(super) fn templates(context: &RequestContext) -> MethodResult {
    let template = object([
        ("uriTemplate", Value::from(format!("{}/a/{{id}}", context.state.engine.did()))),
        ("name", "asset".into()),
        ("description", "An asset by its ID: its content, or its metadata if it has none.".into()),
    ]);
    Ok(cached(context, vec![("resourceTemplates", list_of([template]))]))
}

/// Reads an asset: its content, or its metadata if it has none.
pub(super) async fn read(context: &RequestContext, params: &Map) -> MethodResult {
    let uri = text(params, "uri")?.ok_or_else(|| RpcError::invalid_params("`uri` is missing"))?;
    let contents = contents(context, uri).await?;
    Ok(cached(context, vec![("contents", list_of([contents]))]))
}

/// The content of the asset with this URI.
pub(super) async fn contents(context: &RequestContext, uri: &str) -> Result<Value, RpcError> {
    let engine = &context.state.engine;
    let own = uri.strip_prefix(engine.did()).and_then(|rest| rest.strip_prefix('/'));
    let reference = own.filter(|reference| reference.starts_with("a/"));
    let reference = reference.ok_or_else(|| RpcError::no_resource(uri))?;
    match engine.content(&context.caller, reference).await {
        Ok(content) => read_content(uri, content).await,
        Err(AssetError::NoContent(_)) => {
            let asset = engine.asset(&context.caller, reference).await.map_err(ApiError::from)?;
            Ok(object([
                ("uri", Value::from(uri)),
                ("mimeType", "application/json".into()),
                ("text", asset.text.as_ref().into()),
            ]))
        }
        Err(AssetError::NotFound(_) | AssetError::Malformed(_)) => Err(RpcError::no_resource(uri)),
        Err(error) => Err(ApiError::from(error).into()),
    }
}

/// The content of an asset: as text if it is, else in base64.
async fn read_content(uri: &str, content: Content) -> Result<Value, RpcError> {
    if content.len > MCP_RESOURCE_BYTES_MAX {
        return Err(RpcError::invalid_params(format!(
            "the content has {} bytes, of which a client can read {MCP_RESOURCE_BYTES_MAX}; \
             read it with GET /api/v1/assets/{{ref}}/content",
            content.len
        )));
    }
    let mut bytes = Vec::new();
    let mut download = content.download;
    while let Some(chunk) = download.next_chunk().await.map_err(damaged)? {
        bytes.extend_from_slice(&chunk);
    }
    let mut members = vec![("uri", Value::from(uri))];
    members.extend(content.content_type.map(|media| ("mimeType", media.into())));
    match String::from_utf8(bytes) {
        Ok(text) => members.push(("text", text.into())),
        Err(error) => {
            members.push(("blob", BASE64_STANDARD.encode(error.as_bytes()).into()));
        }
    }
    Ok(object(members))
}

fn damaged(error: catena_store::blob::BlobError) -> RpcError {
    tracing::error!(%error, "the content of an asset could not be read");
    let error = catena_engine::error::StoreError::Damaged(error.to_string());
    ApiError::from(error).into()
}

/// How a list describes an asset.
fn resource(did: &str, asset: &ListedAsset) -> Value {
    let id = asset.id.to_string();
    let hex = id.trim_start_matches("0x");
    let name = asset.name.clone().unwrap_or_else(|| hex.to_owned());
    let mut members = vec![("uri", Value::from(format!("{did}/a/{hex}"))), ("name", name.into())];
    members.extend(asset.description.clone().map(|text| ("description", text.into())));
    object(members)
}

/// The result, with what caches may do with it: assets of the caller can be added at any time.
pub(super) fn cached(
    context: &RequestContext,
    mut members: Vec<(&'static str, Value)>,
) -> RpcResult {
    if context.client.revision.is_stateless() {
        members.push(("ttlMs", MCP_NAMED_TTL_MS.into()));
        members.push(("cacheScope", "private".into()));
    }
    object(members).into()
}

//! Artifacts of jobs, and the signed URLs by which they are read.

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use catena_auth::UrlRefused;
use catena_engine::requests::JobView;
use catena_engine::{Caller, Role};
use catena_job::contract::{EXECUTION, format_time};
use catena_value::{Map, NoCells, Value};

use crate::contract::blobs::parse_digest;
use crate::contract::jobs::loaded;
use crate::http::content::{ContentHeaders, content};
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::limits::URL_SECONDS_MAX;
use crate::values::with_member;

/// How many seconds a URL is valid if the request does not say.
const DEFAULT_SECONDS: u64 = 300;

/// Media types that a browser shows without executing anything. All others are downloaded.
const INLINE: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// An artifact of a job, as its last record describes it.
fn artifact(view: &JobView, id: &str) -> ApiResult<Map> {
    let execution = loaded(view, EXECUTION)?;
    let artifacts = execution.as_ref().and_then(|execution| execution.as_map()?.field("artifacts"));
    let artifacts = artifacts.and_then(Value::as_vector);
    let mut artifacts = artifacts.into_iter().flat_map(|list| list.iter(&NoCells).flatten());
    let is_named = |artifact: &Value| {
        artifact.as_map().and_then(|map| map.field("artifact_id")?.as_str()) == Some(id)
    };
    let found = artifacts.find(is_named).and_then(|artifact| artifact.as_map().cloned());
    found.ok_or_else(|| ApiError::new(Code::ArtifactNotFound, "the job has no such artifact"))
}

fn text(artifact: &Map, name: &str) -> String {
    artifact.field(name).and_then(Value::to_text).unwrap_or_default().into_owned()
}

fn now_seconds(request: &ApiRequest) -> i64 {
    request.state.engine.env().now().div_euclid(1000)
}

pub(super) async fn sign(request: ApiRequest) -> ApiResult<Response> {
    let job = request.job_id()?;
    let id = request.second_path_argument()?.into_owned();
    let seconds = request.number("ttl_s")?.unwrap_or(DEFAULT_SECONDS);
    if !(1..=URL_SECONDS_MAX).contains(&seconds) {
        return Err(ApiError::bad_request(format!("`ttl_s` must be from 1 to {URL_SECONDS_MAX}")));
    }
    let view = request.state.engine.job(&request.caller, job).await?;
    let artifact = artifact(&view, &id)?;
    let expires = now_seconds(&request) + i64::try_from(seconds).unwrap_or(i64::MAX);
    let path = format!("/contract/v1/jobs/{}/artifacts/{id}/content", job.to_uuid());
    let digest = text(&artifact, "digest");
    let signature = request.state.url_key.sign(&path, &digest, expires);
    let url = format!("{}{path}?expires={expires}&signature={signature}", request.base_url());
    let body = with_member(&artifact, "url", url.into());
    let body = with_member(&body, "expires_at", format_time(expires.saturating_mul(1000)).into());
    Ok(response::value(StatusCode::OK, &body.into()))
}

pub(super) async fn download(request: ApiRequest) -> ApiResult<Response> {
    let invalid = || ApiError::new(Code::UrlInvalid, "the signature of the URL is not valid");
    let engine = request.state.engine.clone();
    let job = request.job_id().map_err(|_| invalid())?;
    let id = request.second_path_argument()?.into_owned();
    let expires = request.parameter("expires")?.and_then(|text| text.parse::<i64>().ok());
    let signature = request.text_parameter("signature")?;
    let (Some(expires), Some(signature)) = (expires, signature) else { return Err(invalid()) };
    // The signature is the authority. A job that does not exist has none.
    let venue = Caller { role: Role::Admin, ..Caller::known(engine.did()) };
    let view = engine.job(&venue, job).await.map_err(|_| invalid())?;
    let artifact = artifact(&view, &id).map_err(|_| invalid())?;
    let digest = text(&artifact, "digest");
    let path = format!("/contract/v1/jobs/{}/artifacts/{id}/content", job.to_uuid());
    let now = now_seconds(&request);
    match request.state.url_key.check(&path, &digest, expires, &signature, now) {
        Ok(()) => {}
        Err(UrlRefused::Invalid) => return Err(invalid()),
        Err(UrlRefused::Expired) => {
            return Err(ApiError::new(Code::UrlExpired, "the URL has expired"));
        }
    }
    let blob = engine.open_blob(parse_digest(&digest)?).await?;
    let blob = blob.ok_or_else(|| ApiError::new(Code::StoreDamaged, "stored data is damaged"))?;
    let content_type = text(&artifact, "content_type");
    let headers = ContentHeaders {
        is_inline: INLINE.contains(&&*content_type),
        content_type: HeaderValue::try_from(content_type)
            .unwrap_or(HeaderValue::from_static("application/octet-stream")),
        etag: format!("\"{digest}\""),
    };
    Ok(content(&request, blob, headers))
}

//! Artifacts of jobs, and the signed URLs by which they are read.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use catena_auth::UrlRefused;
use catena_engine::requests::JobView;
use catena_engine::{Caller, Role};
use catena_job::contract::{EXECUTION, format_time};
use catena_value::{Map, NoCells, Value};

use crate::contract::blobs::{parse_digest, stream};
use crate::contract::jobs::loaded;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::{ApiRequest, parse_whole_number};
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
    let len = blob.len();
    let range = request.header(&header::RANGE).and_then(|range| parse_range(range, len));
    let (status, from, to) = match range {
        None => (StatusCode::OK, 0, len),
        Some(Some((from, to))) => (StatusCode::PARTIAL_CONTENT, from, to),
        Some(None) => {
            let mut response = response::empty(StatusCode::RANGE_NOT_SATISFIABLE);
            response::set_header(&mut response, header::CONTENT_RANGE, format!("bytes */{len}"));
            return Ok(response);
        }
    };
    let content_type = text(&artifact, "content_type");
    let is_inline = INLINE.contains(&&*content_type);
    let content_type = HeaderValue::try_from(content_type)
        .unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let mut response = response::with_type(status, content_type, stream(blob, from, to - from));
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {from}-{}/{len}", to - 1);
        response::set_header(&mut response, header::CONTENT_RANGE, range);
    }
    // Cells write artifacts: no browser may treat one as a page of the venue.
    for (name, value) in [
        (header::CONTENT_LENGTH, (to - from).to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, format!("\"{digest}\"")),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CONTENT_SECURITY_POLICY, "sandbox".to_owned()),
        (header::CONTENT_DISPOSITION, (if is_inline { "inline" } else { "attachment" }).to_owned()),
    ] {
        response::set_header(&mut response, name, value);
    }
    Ok(response)
}

/// The bytes that a `Range` header asks for, as start and end (exclusive). `None` if the header is not
/// understood and is ignored; `Some(None)` if it cannot be satisfied.
#[expect(clippy::option_option, reason = "ignored and unsatisfiable ranges are different answers")]
fn parse_range(header: &str, len: u64) -> Option<Option<(u64, u64)>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (first, last) {
        ("", last) => {
            let count = parse_whole_number(last)?;
            (len.saturating_sub(count), len)
        }
        (first, "") => (parse_whole_number(first)?, len),
        (first, last) => (parse_whole_number(first)?, parse_whole_number(last)?.saturating_add(1)),
    };
    let (from, to) = (range.0, range.1.min(len));
    Some((from < to).then_some((from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_single_and_within_the_content() {
        assert_eq!(parse_range("bytes=0-3", 10), Some(Some((0, 4))));
        assert_eq!(parse_range("bytes=8-", 10), Some(Some((8, 10))));
        assert_eq!(parse_range("bytes=-3", 10), Some(Some((7, 10))));
        assert_eq!(parse_range("bytes=5-99", 10), Some(Some((5, 10))));
        assert_eq!(parse_range("bytes=10-", 10), Some(None));
        assert_eq!(parse_range("bytes=-0", 10), Some(None));
        assert_eq!(parse_range("bytes=1-2,4-5", 10), None);
        assert_eq!(parse_range("items=1-2", 10), None);
    }
}

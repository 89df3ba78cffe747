//! Data by digest: a caller reads what it has uploaded, and cannot tell what others have.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use catena_engine::operations::BlobUploadError;
use catena_job::Job;
use catena_store::blob::Digest;
use catena_value::Value;

use crate::http::content::stream;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::rate::BodyRate;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::values::{count, object};

/// The digest that a text names.
pub(super) fn parse_digest(text: &str) -> ApiResult<Digest> {
    text.parse()
        .map_err(|error: catena_store::blob::DigestError| ApiError::bad_request(error.to_string()))
}

/// Stores the body of a request, which must have the digest. With `job`, it is a file of that job. Returns
/// its size in bytes.
pub(super) async fn receive(
    request: &mut ApiRequest,
    digest: Digest,
    max: u64,
    job: Option<&Job>,
) -> ApiResult<u64> {
    let mut body = request.take_body();
    let received = receive_body(request, &mut body, (digest, job), max).await;
    if received.is_err() {
        request.discard(body);
    }
    received
}

async fn receive_body(
    request: &ApiRequest,
    body: &mut Body,
    (digest, job): (Digest, Option<&Job>),
    max: u64,
) -> ApiResult<u64> {
    let mut upload = request.state.engine.begin_blob(max).await?;
    let mut rate = BodyRate::start();
    while let Some(data) = rate.next_data(body).await? {
        upload.write(data).await.map_err(upload_error)?;
    }
    upload.finish(digest, job).await.map_err(upload_error)
}

fn upload_error(error: BlobUploadError) -> ApiError {
    let text = error.to_string();
    match error {
        BlobUploadError::Mismatch { found } => {
            ApiError::new(Code::DigestMismatch, text).member("found", found)
        }
        BlobUploadError::TooLarge { .. } => ApiError::new(Code::ContentTooLarge, text),
        BlobUploadError::Store(error) => error.into(),
    }
}

/// Digest and size of what was stored.
pub(super) fn stored(digest: Digest, size: u64) -> Response {
    let members = [("digest", Value::from(digest.to_string())), ("size_bytes", count(size))];
    response::value(StatusCode::OK, &object(members))
}

pub(super) async fn put(mut request: ApiRequest) -> ApiResult<Response> {
    let digest = parse_digest(&request.path_argument()?)?;
    request.state.engine.check_stored_bytes(&request.caller.did).await?;
    let max = request.state.engine.limits().content_bytes_max;
    let size = receive(&mut request, digest, max, None).await?;
    request.state.engine.add_blob_owner(&request.caller.did, digest).await?;
    Ok(stored(digest, size))
}

pub(super) fn not_found(digest: Digest) -> ApiError {
    ApiError::new(Code::BlobNotFound, format!("there is no {digest} of this caller"))
}

pub(super) async fn head(request: ApiRequest) -> ApiResult<Response> {
    let digest = parse_digest(&request.path_argument()?)?;
    if !request.state.engine.owns_blob(&request.caller.did, digest).await? {
        return Err(not_found(digest));
    }
    Ok(response::empty(StatusCode::OK))
}

pub(super) async fn get(request: ApiRequest) -> ApiResult<Response> {
    let digest = parse_digest(&request.path_argument()?)?;
    send_owned(&request, &request.caller.did, digest).await
}

/// Sends a blob that a user has uploaded.
async fn send_owned(request: &ApiRequest, owner: &str, digest: Digest) -> ApiResult<Response> {
    if !request.state.engine.owns_blob(owner, digest).await? {
        return Err(not_found(digest));
    }
    send(request, digest).await
}

/// Sends a blob. The caller of this has checked who may read it.
pub(super) async fn send(request: &ApiRequest, digest: Digest) -> ApiResult<Response> {
    let engine = &request.state.engine;
    let download = engine.open_blob(digest).await?.ok_or_else(|| not_found(digest))?;
    let len = download.len();
    let content_type = HeaderValue::from_static("application/octet-stream");
    let body = stream(download, 0, len);
    let mut response = response::with_type(StatusCode::OK, content_type, body);
    response::set_header(&mut response, header::CONTENT_LENGTH, len.to_string());
    Ok(response)
}

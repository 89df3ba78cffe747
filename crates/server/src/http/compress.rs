//! Compression of JSON responses.
//!
//! Only complete JSON bodies of responses to GET are compressed, with gzip, and only if the client accepts
//! it: a stream of events must not wait for a block of the compressor, small bodies gain nothing, and
//! responses to requests with a body, which may repeat what the client sent next to a secret, have a length
//! that depends on their content alone. A compressed response has a weak entity tag, because its bytes are
//! others; responses whose entity tag is the ID of their content are sent as they are.

use std::io::Write as _;

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt as _;

use crate::http::route::Route;
use crate::limits::{COMPRESSED_BYTES_MIN, COMPRESSED_INLINE_BYTES_MAX};

/// Paths below which nothing is compressed: names of secrets, and documents whose entity tag clients compare
/// with the ID that they asked for.
const EXCLUDED: [&str; 3] = ["/api/v1/secrets", "/api/v1/assets", "/api/v1/operations"];

/// Whether the response to a request may be compressed.
pub(crate) fn is_wanted(route: &Route, headers: &HeaderMap) -> bool {
    route.method == Method::GET
        && headers.contains_key(header::ACCEPT_ENCODING)
        && !EXCLUDED.iter().any(|path| route.path.starts_with(path))
        && accepts_gzip(headers)
}

/// Whether `Accept-Encoding` has gzip, or anything, with a quality above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut any = None;
    for coding in values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','))
    {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = parameters.trim().strip_prefix("q=");
        let is_accepted = quality.is_none_or(|quality| quality.trim().parse() != Ok(0.0f32));
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => return is_accepted,
            "*" => any = Some(is_accepted),
            _ => {}
        }
    }
    any.unwrap_or(false)
}

/// Compresses a response if that is worth it.
pub(crate) async fn compress(response: Response) -> Response {
    let is_json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|content_type| content_type.as_bytes().starts_with(b"application/json"));
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    let is_whole = response.status() == StatusCode::OK
        && !response.headers().contains_key(header::CONTENT_ENCODING);
    if !is_json || !is_whole || bytes < COMPRESSED_BYTES_MIN {
        return response;
    }
    let (mut head, body) = response.into_parts();
    // The body is in memory; this does not wait.
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return Response::from_parts(head, Body::empty());
    };
    head.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let compressed = if bytes <= COMPRESSED_INLINE_BYTES_MAX {
        gzip(&body)
    } else {
        let body = body.clone();
        tokio::task::spawn_blocking(move || gzip(&body)).await.unwrap_or(None)
    };
    let Some(compressed) = compressed.filter(|compressed| compressed.len() < body.len()) else {
        return Response::from_parts(head, body.into());
    };
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.remove(header::CONTENT_LENGTH);
    weaken_etag(&mut head.headers);
    Response::from_parts(head, compressed.into())
}

fn weaken_etag(headers: &mut HeaderMap) {
    let etag = headers.get(header::ETAG).map(HeaderValue::as_bytes);
    let Some(etag) = etag.filter(|etag| !etag.starts_with(b"W/")) else { return };
    if let Ok(weak) = HeaderValue::from_bytes(&[b"W/", etag].concat()) {
        headers.insert(header::ETAG, weak);
    }
}

/// Compresses with the fastest setting: three quarters of JSON go away at several times the speed of the
/// default.
fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 3), Compression::fast());
    encoder.write_all(body).ok()?;
    Some(encoder.finish().ok()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(text: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::try_from(text).unwrap());
        accepts_gzip(&headers)
    }

    #[test]
    fn accept_encoding_is_read_with_qualities() {
        for text in ["gzip", "br, GZIP;q=0.5", "*", "deflate, gzip", "gzip;q=1.0, *;q=0"] {
            assert!(accepts(text), "{text}");
        }
        for text in ["", "br", "identity", "gzip;q=0", "gzip;q=0.0, *", "*;q=0"] {
            assert!(!accepts(text), "{text}");
        }
    }
}

//! Compression of JSON responses.
//!
//! Complete JSON bodies are compressed, with gzip, if the client accepts it. A stream of events must not
//! wait for a block of the compressor, and small bodies gain nothing. A compressed response has a weak
//! entity tag, because its bytes are others; where clients compare the tag with the ID that they asked for,
//! it has none. Responses about secrets are never compressed.

use std::io::Write as _;

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt as _;

use crate::http::route::Route;
use crate::limits::{COMPRESSED_BYTES_MIN, COMPRESSED_INLINE_BYTES_MAX};

/// Paths below which nothing is compressed.
const SECRETS: &str = "/api/v1/secrets";

/// Paths of documents whose entity tag is their ID. Published clients compare it with the ID that they asked
/// for, and accept that there is none.
const TAGGED_BY_ID: [&str; 2] = ["/api/v1/assets", "/api/v1/operations"];

/// How a response is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compressible {
    /// Not at all.
    No,
    /// With a weak entity tag.
    WithWeakTag,
    /// Without an entity tag.
    WithoutTag,
}

/// Whether and how the response to a request may be compressed.
pub(crate) fn for_request(route: &Route, headers: &HeaderMap) -> Compressible {
    let is_wanted = headers.contains_key(header::ACCEPT_ENCODING)
        && !route.path.starts_with(SECRETS)
        && accepts_gzip(headers);
    if !is_wanted {
        Compressible::No
    } else if TAGGED_BY_ID.iter().any(|path| route.path.starts_with(path)) {
        Compressible::WithoutTag
    } else {
        Compressible::WithWeakTag
    }
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
pub(crate) async fn compress(response: Response, how: Compressible) -> Response {
    let is_json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|content_type| content_type.as_bytes().starts_with(b"application/json"));
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    let is_whole = response.status() != StatusCode::PARTIAL_CONTENT
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
    match how {
        Compressible::WithoutTag => drop(head.headers.remove(header::ETAG)),
        Compressible::No | Compressible::WithWeakTag => weaken_etag(&mut head.headers),
    }
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

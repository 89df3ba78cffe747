//! Stored content as a response: complete, or the range that the client asks for.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use catena_store::blob::{BlobError, Download};

use crate::http::request::{ApiRequest, parse_whole_number};
use crate::http::response;

/// What is said about content besides its bytes.
pub(crate) struct ContentHeaders {
    pub(crate) content_type: HeaderValue,
    /// The entity tag, with quotes. It names the bytes.
    pub(crate) etag: String,
    /// Whether a browser displays the content instead of saving it.
    pub(crate) is_inline: bool,
}

/// The response with content, or with the range of it that the request asks for.
pub(crate) fn content(
    request: &ApiRequest,
    download: Download,
    headers: ContentHeaders,
) -> Response {
    let len = download.len();
    let ContentHeaders { content_type, etag, is_inline } = headers;
    // A range of other bytes than the client has is of no use to it.
    let is_current = request.header(&header::IF_RANGE).is_none_or(|known| known == etag);
    let range = request.header(&header::RANGE).filter(|_| is_current);
    let (status, from, to) = match range.and_then(|range| parse_range(range, len)) {
        None => (StatusCode::OK, 0, len),
        Some(Some((from, to))) => (StatusCode::PARTIAL_CONTENT, from, to),
        Some(None) => {
            let mut response = response::empty(StatusCode::RANGE_NOT_SATISFIABLE);
            response::set_header(&mut response, header::CONTENT_RANGE, format!("bytes */{len}"));
            return response;
        }
    };
    let mut response = response::with_type(status, content_type, stream(download, from, to - from));
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {from}-{}/{len}", to - 1);
        response::set_header(&mut response, header::CONTENT_RANGE, range);
    }
    // Callers upload content and cells write it: no browser may treat it as a page of the venue.
    for (name, value) in [
        (header::CONTENT_LENGTH, (to - from).to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, etag),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CONTENT_SECURITY_POLICY, "sandbox".to_owned()),
        (header::CONTENT_DISPOSITION, (if is_inline { "inline" } else { "attachment" }).to_owned()),
    ] {
        response::set_header(&mut response, name, value);
    }
    response
}

/// Streams `len` bytes of a blob from a position on. If it is damaged, the stream ends with an error.
pub(crate) fn stream(download: Download, from: u64, len: u64) -> Body {
    let state = (download, from, len);
    let chunks = futures_util::stream::try_unfold(state, |(mut download, skip, left)| async move {
        let mut skip = skip;
        if left == 0 {
            return Ok(None);
        }
        loop {
            let chunk: Option<Bytes> = download.next_chunk().await.inspect_err(|error| {
                tracing::error!(%error, "a blob could not be read");
            })?;
            let Some(mut chunk) = chunk else { return Ok(None) };
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
            chunk = chunk.slice(skipped..);
            skip -= skipped as u64;
            if chunk.is_empty() {
                continue;
            }
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - chunk.len() as u64;
            return Ok::<_, BlobError>(Some((chunk, (download, skip, left))));
        }
    });
    Body::from_stream(chunks)
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

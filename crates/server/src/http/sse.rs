//! Event streams (`text/event-stream`): their responses and frames.
//!
//! The frames suit the parsers of existing clients. Lines end with LF only, because one SDK's parser
//! knows nothing else. `retry` and comments never form a frame of their own: another SDK takes every
//! blank line after an `id` for an event, and an event without data for a broken one.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::response;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A comment line, sent to keep an idle connection from being considered dead.
pub(crate) const HEARTBEAT_COMMENT: &[u8] = b": alive\n";

/// A response that is an event stream.
pub(crate) fn event_stream(status: StatusCode, body: Body) -> Response {
    let mut response = response::with_type(status, EVENT_STREAM, body);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some proxies buffer responses unless they are told not to.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Refuses a request whose `Accept` excludes event streams.
pub(crate) fn check_accept(headers: &HeaderMap) -> ApiResult<()> {
    let accepts = |value: &HeaderValue| {
        let ranges = value.to_str().unwrap_or_default().split(',');
        ranges.map(|range| range.split(';').next().unwrap_or_default().trim()).any(|range| {
            ["text/event-stream", "text/*", "*/*", ""]
                .iter()
                .any(|known| range.eq_ignore_ascii_case(known))
        })
    };
    let mut values = headers.get_all(header::ACCEPT).iter().peekable();
    if values.peek().is_none() || values.any(accepts) {
        return Ok(());
    }
    Err(ApiError::new(Code::NotAcceptable, "this route responds with text/event-stream only"))
}

/// A frame with the event `message`, whose data is JSON.
pub(crate) fn message_frame(data: &str) -> String {
    frame("message", None, data, None)
}

/// One frame. JSON text has no raw line ends, so it fits into one `data` line. `retry` is in
/// milliseconds.
pub(crate) fn frame(event: &str, id: Option<u64>, data: &str, retry: Option<u32>) -> String {
    let mut text = String::with_capacity(data.len() + 64);
    // Writing to a string cannot fail.
    if let Some(retry) = retry {
        let _ = writeln!(text, "retry: {retry}");
    }
    let _ = writeln!(text, "event: {event}");
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    let _ = writeln!(text, "data: {data}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_event_id_and_one_line_of_data() {
        assert_eq!(
            frame("job-update", Some(3), "{\"a\":1}", Some(1000)),
            "retry: 1000\nevent: job-update\nid: 3\ndata: {\"a\":1}\n\n"
        );
        assert_eq!(frame("progress", None, "{}", None), "event: progress\ndata: {}\n\n");
        assert!(!frame("job-update", Some(0), "{}", None).contains('\r'));
    }

    #[test]
    fn a_heartbeat_is_a_comment_line_and_ends_no_frame() {
        assert!(
            HEARTBEAT_COMMENT.starts_with(b":")
                && HEARTBEAT_COMMENT.ends_with(b"\n")
                && !HEARTBEAT_COMMENT.ends_with(b"\n\n")
        );
    }

    #[test]
    fn an_event_stream_is_what_must_be_acceptable() {
        let accept = |values: &[&str]| {
            let value = |text: &&str| (header::ACCEPT, HeaderValue::from_str(text).unwrap());
            check_accept(&values.iter().map(value).collect()).is_ok()
        };
        assert!(accept(&[]));
        for good in ["text/event-stream", "*/*", "text/*;q=0.5", "text/html, TEXT/Event-Stream", ""]
        {
            assert!(accept(&[good]), "{good}");
        }
        for bad in ["application/json", "text/html", "text/event-streams"] {
            assert!(!accept(&[bad]), "{bad}");
        }
        assert!(accept(&["application/json", "*/*"]));
    }
}

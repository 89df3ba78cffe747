//! Following a job as an event stream.
//!
//! A stream is a body that is written when the client takes it: a slow client holds back nobody but
//! itself, and one that goes away drops the body and everything it held. Idle, it is one boxed
//! future and one timer.
//!
//! Frames are made for the clients that exist. LF only, because one SDK's parser knows nothing
//! else. `retry` and comments never stand in a frame of their own: another SDK takes every blank
//! line after an `id` for an event, and an event without data for a broken one.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use catena_engine::error::StoreError;
use catena_engine::follow::{Follow, JobEvent};
use catena_value::{NoCells, json};
use http_body::Frame;
use tokio::time::{Instant, Sleep};

use crate::grid::job_json;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::response;
use crate::limits::HEARTBEAT;
use crate::metrics::Streaming;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// How long clients wait before they connect again, in milliseconds.
const RETRY_MS: u32 = 1_000;

/// A comment line, which keeps the connection from being taken for dead.
pub(crate) const BEAT: &[u8] = b": alive\n";

type Happened = Result<Option<JobEvent>, StoreError>;
type Next = Pin<Box<dyn Future<Output = (Follow, Happened)> + Send>>;

/// Whether a client wants to be told about progress, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Shown,
    Left,
}

/// The answer that follows a job.
pub(crate) fn response(follow: Follow, progress: Progress, counted: Streaming) -> Response {
    with_body(StatusCode::OK, Body::new(Events::new(follow, progress, counted)))
}

/// An answer that is an event stream.
pub(crate) fn with_body(status: StatusCode, body: Body) -> Response {
    let mut response = response::with_type(status, EVENT_STREAM, body);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some proxies hold back what they are not told to pass on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Refuses those who ask for something else than an event stream.
pub(crate) fn check_accept(headers: &HeaderMap) -> ApiResult<()> {
    let accepts = |value: &HeaderValue| {
        let ranges = value.to_str().unwrap_or_default().split(',');
        ranges.map(|range| range.split(';').next().unwrap_or_default().trim()).any(|range| {
            ["text/event-stream", "text/*", "*/*", ""]
                .iter()
                .any(|known| range.eq_ignore_ascii_case(known))
        })
    };
    let mut wanted = headers.get_all(header::ACCEPT).iter().peekable();
    if wanted.peek().is_none() || wanted.any(accepts) {
        return Ok(());
    }
    Err(ApiError::new(Code::NotAcceptable, "this route answers with text/event-stream only"))
}

struct Events {
    next: Option<Next>,
    beat: Pin<Box<Sleep>>,
    progress: Progress,
    is_first: bool,
    _counted: Streaming,
}

impl Events {
    fn new(follow: Follow, progress: Progress, counted: Streaming) -> Self {
        Events {
            next: Some(next(follow)),
            beat: Box::pin(tokio::time::sleep(HEARTBEAT)),
            progress,
            is_first: true,
            _counted: counted,
        }
    }

    fn delay_beat(&mut self, by: Duration) {
        self.beat.as_mut().reset(Instant::now() + by);
    }

    /// The bytes of something that happened; none when it is not for this client.
    fn frame(&mut self, happening: &JobEvent) -> ApiResult<Option<String>> {
        let retry = if self.is_first { Some(RETRY_MS) } else { None };
        let text = match happening {
            JobEvent::Record { index, job, cells, steps } => {
                record_frame(*index, &job_json::of_job(job, cells, steps.as_ref())?, retry)
            }
            JobEvent::Progress(_) if self.progress == Progress::Left => return Ok(None),
            JobEvent::Progress(value) => {
                let mut data = String::new();
                job_json::write_value(value, &NoCells, &mut data)?;
                frame("progress", None, &data, retry)
            }
        };
        self.is_first = false;
        Ok(Some(text))
    }
}

fn next(mut follow: Follow) -> Next {
    Box::pin(async move {
        let happened = follow.next().await;
        (follow, happened)
    })
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let data = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        while let Some(waiting) = &mut self.next {
            let Poll::Ready((follow, happened)) = waiting.as_mut().poll(context) else {
                if self.beat.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.delay_beat(HEARTBEAT);
                return data(Bytes::from_static(BEAT));
            };
            self.next = None;
            let happening = match happened {
                Ok(Some(happening)) => happening,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "an event stream ended early");
                    break;
                }
            };
            match self.frame(&happening) {
                Ok(text) => {
                    self.next = Some(next(follow));
                    let Some(text) = text else { continue };
                    self.delay_beat(HEARTBEAT);
                    return data(Bytes::from(text));
                }
                // What cannot be shown as a job is said to the client; the stream ends.
                Err(error) => {
                    let body = json::to_string(&error.to_value()).unwrap_or_default();
                    return data(Bytes::from(frame("error", None, &body, None)));
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none()
    }
}

/// A frame with a message, which is JSON.
pub(crate) fn message(data: &str) -> String {
    frame("message", None, data, None)
}

fn record_frame(index: u64, job: &str, retry: Option<u32>) -> String {
    frame("job-update", Some(index), job, retry)
}

/// One frame. JSON has no raw line ends, so its text is one line of data.
fn frame(event: &str, id: Option<u64>, data: &str, retry: Option<u32>) -> String {
    let mut text = String::with_capacity(data.len() + 64);
    let written = retry.map_or(Ok(()), |retry| writeln!(text, "retry: {retry}"));
    let written = written.and(writeln!(text, "event: {event}"));
    let written = written.and(id.map_or(Ok(()), |id| writeln!(text, "id: {id}")));
    // Writing to a string cannot fail.
    let _ = written.and(writeln!(text, "data: {data}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_event_id_and_one_line_of_data() {
        assert_eq!(
            record_frame(3, "{\"a\":1}", Some(1000)),
            "retry: 1000\nevent: job-update\nid: 3\ndata: {\"a\":1}\n\n"
        );
        assert_eq!(frame("progress", None, "{}", None), "event: progress\ndata: {}\n\n");
        assert!(!record_frame(0, "{}", None).contains('\r'));
    }

    #[test]
    fn a_beat_is_a_comment_line_and_ends_no_frame() {
        assert!(BEAT.starts_with(b":") && BEAT.ends_with(b"\n") && !BEAT.ends_with(b"\n\n"));
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

//! The end of event streams that clients may no longer read.
//!
//! A stream outlives the token that opened it: tokens are valid for minutes, and clients of the
//! published SDKs do not reconnect. It ends when the identity behind it is blocked, removed from the
//! access list, or when its venue token is revoked, and after [`STREAM_TIME_MAX`] at the latest.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header;
use axum::response::Response;
use http_body::Frame;

use crate::http::state::ServerState;
use crate::identity::authenticate::Subject;
use crate::limits::STREAM_TIME_MAX;

/// Whether a response is an event stream.
pub(crate) fn is_stream(response: &Response) -> bool {
    let media = response.headers().get(header::CONTENT_TYPE);
    media.is_some_and(|media| media.as_bytes().starts_with(b"text/event-stream"))
}

/// The same response, whose stream ends when its subject is no longer admitted.
pub(crate) fn end_with(response: Response, state: Arc<ServerState>, subject: Subject) -> Response {
    response.map(|body| end_body(body, until_withdrawn(state, subject)))
}

/// The same body, which ends with `withdrawn`, and after [`STREAM_TIME_MAX`] at the latest.
fn end_body(body: Body, withdrawn: impl Future<Output = ()> + Send + 'static) -> Body {
    let end = Box::pin(async move {
        let _ = tokio::time::timeout(STREAM_TIME_MAX, withdrawn).await;
    });
    Body::new(EndingBody { body, end })
}

async fn until_withdrawn(state: Arc<ServerState>, subject: Subject) {
    let mut changes = state.authenticator.lists().subscribe();
    while state.authenticator.is_still_admitted(&subject) {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
    let did = &*subject.did;
    tracing::info!(target: "catena::audit", did, "ended an event stream of an identity that may no longer read it");
}

struct EndingBody {
    body: Body,
    /// Ready when the stream has to end.
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HttpBody for EndingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.end.as_mut().poll(context).is_ready() {
            // The future must not be polled again.
            self.end = Box::pin(std::future::ready(()));
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::BodyExt as _;

    use super::*;

    fn endless() -> Body {
        Body::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_after_a_day_at_the_latest() {
        let begun = tokio::time::Instant::now();
        assert!(end_body(endless(), std::future::pending()).frame().await.is_none());
        assert_eq!(begun.elapsed().as_secs(), 24 * 3_600);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_it_may_no_longer_be_read() {
        let begun = tokio::time::Instant::now();
        let withdrawn = tokio::time::sleep(std::time::Duration::from_secs(7));
        assert!(end_body(endless(), withdrawn).frame().await.is_none());
        assert_eq!(begun.elapsed().as_secs(), 7);
    }
}

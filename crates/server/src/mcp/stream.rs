//! A response that takes a while.
//!
//! A response that is ready soon is plain JSON. Otherwise it becomes an event stream, if the client
//! accepts one: notifications as they come, heartbeats, and the response as the last event. The
//! stream owns the work for the response, so a client that disconnects ends it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::unfold;
use tokio::sync::mpsc::Receiver;

use crate::http::sse;
use crate::http::state::ServerState;
use crate::limits::{HEARTBEAT, MCP_PROGRESS_AFTER, MCP_STREAM_AFTER};
use crate::mcp::json_rpc::RpcResponse;
use crate::mcp::notifications::Notifications;
use crate::metrics::StreamGuard;

/// The work for a response.
pub(super) type PendingResponse = Pin<Box<dyn Future<Output = RpcResponse> + Send>>;

/// How long a response may take before it becomes an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamDelay(Duration);

impl StreamDelay {
    /// A client that wants notifications wants them as they come.
    pub(super) fn for_notifications(notifications: &Notifications) -> StreamDelay {
        let is_enabled = notifications.is_enabled();
        StreamDelay(if is_enabled { MCP_PROGRESS_AFTER } else { MCP_STREAM_AFTER })
    }
}

/// Sends a response as JSON or, after the delay, as an event stream. Without a delay it never
/// becomes a stream.
pub(super) async fn respond(
    state: &ServerState,
    mut response: PendingResponse,
    queue: Option<Receiver<String>>,
    delay: Option<StreamDelay>,
) -> Response {
    let Some(StreamDelay(time)) = delay else { return response.await.into_http_response() };
    match tokio::time::timeout(time, &mut response).await {
        Ok(response) => response.into_http_response(),
        Err(_) => {
            let guard = state.metrics.count_stream();
            let stream = StreamState { response: Some(response), queue, _guard: guard };
            sse::event_stream(StatusCode::OK, Body::from_stream(unfold(stream, next_piece)))
        }
    }
}

struct StreamState {
    /// `None` after the response was sent.
    response: Option<PendingResponse>,
    /// Notifications to send.
    queue: Option<Receiver<String>>,
    _guard: StreamGuard,
}

type Piece = Result<Bytes, Infallible>;

async fn next_piece(mut state: StreamState) -> Option<(Piece, StreamState)> {
    let response = state.response.as_mut()?;
    let notification = async {
        match &mut state.queue {
            Some(queue) => queue.recv().await,
            None => None,
        }
    };
    let piece = tokio::select! {
        biased;
        Some(notification) = notification => Bytes::from(sse::message_frame(&notification)),
        response = response => {
            state.response = None;
            // The last notifications may still be in the queue.
            let mut rest = String::new();
            while let Some(notification) = state.queue.as_mut().and_then(|queue| queue.try_recv().ok()) {
                rest.push_str(&sse::message_frame(&notification));
            }
            Bytes::from(rest + &sse::message_frame(&response.text))
        }
        () = tokio::time::sleep(HEARTBEAT) => Bytes::from_static(sse::HEARTBEAT_COMMENT),
    };
    Some((Ok(piece), state))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mcp::notifications::tests::{notifications, value};
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn notifications_come_before_the_response_and_the_response_is_last() {
        let (mut notifications, queue) = notifications(7.into());
        notifications.report_progress(&value(r#"{"processedItems":1,"totalItems":4}"#));
        let response: PendingResponse = Box::pin(async move {
            notifications.report_progress(&value(r#"{"processedItems":4,"totalItems":4}"#));
            RpcResponse { status: StatusCode::OK, text: "{}".to_owned(), cause: None }
        });
        let metrics = Arc::new(Metrics::new(std::iter::empty()));
        let state = StreamState {
            response: Some(response),
            queue: Some(queue),
            _guard: metrics.count_stream(),
        };
        let (first, state) = next_piece(state).await.unwrap();
        assert!(first.unwrap().starts_with(b"event: message\ndata: {"));
        let (last, state) = next_piece(state).await.unwrap();
        let last = String::from_utf8(last.unwrap().to_vec()).unwrap();
        assert!(last.starts_with("event: message\ndata: {\"jsonrpc\""), "{last}");
        assert!(last.ends_with("\n\nevent: message\ndata: {}\n\n"), "{last}");
        assert!(next_piece(state).await.is_none());
    }
}

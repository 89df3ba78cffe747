//! Following a job as an event stream.
//!
//! The stream is a body that is written as the client reads it: a slow client delays only itself, and
//! a client that disconnects drops the body with everything it holds. An idle stream costs one boxed
//! future and one timer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::error::StoreError;
use catena_engine::runtime::Reservation;
use catena_engine::views::{Follow, JobEvent};
use catena_value::{NoCells, json};
use http_body::Frame;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use crate::grid::job_json::{self, StepOutputs, Values};
use crate::http::error::ApiResult;
use crate::http::json::write_value;
use crate::http::memory::{self, ResponseMemory};
use crate::http::sse;
use crate::limits::HEARTBEAT;
use crate::metrics::StreamGuard;

/// How long clients wait before they reconnect, in milliseconds.
const RETRY_MS: u32 = 1_000;

type NextEvent = Result<Option<JobEvent>, StoreError>;
type PendingEvent = Pin<Box<dyn Future<Output = (Follow, NextEvent)> + Send>>;

/// Whether the stream includes progress reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Included,
    Omitted,
}

/// The response that streams the events of a job.
pub(crate) fn response(
    follow: Follow,
    progress: Progress,
    outputs: StepOutputs,
    values: Values,
    memory: Reservation,
    guard: StreamGuard,
) -> Response {
    let stream = JobStream {
        next: Some(next_event(follow)),
        heartbeat: Box::pin(tokio::time::sleep(HEARTBEAT)),
        progress,
        outputs,
        values,
        memory: Arc::new(Mutex::new(memory)),
        is_first: true,
        _guard: guard,
    };
    sse::event_stream(StatusCode::OK, Body::new(stream))
}

struct JobStream {
    /// The wait for the next event. `None` at the end of the stream.
    next: Option<PendingEvent>,
    heartbeat: Pin<Box<Sleep>>,
    progress: Progress,
    outputs: StepOutputs,
    values: Values,
    /// The memory of the last event.
    memory: ResponseMemory,
    is_first: bool,
    _guard: StreamGuard,
}

impl JobStream {
    fn reset_heartbeat(&mut self) {
        self.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT);
    }

    /// The frame of an event. `None` if this client does not want it.
    fn frame(&mut self, event: &JobEvent) -> ApiResult<Option<String>> {
        let retry = self.is_first.then_some(RETRY_MS);
        let text = match event {
            JobEvent::Record { index, job, cells, steps } => {
                let steps = self.outputs.apply(steps.clone());
                // The client has taken the event before this one.
                drop(self.memory.lock().take());
                let data = memory::counting_now(&self.memory, || {
                    job_json::job_to_json(job, self.values, cells, steps.as_ref())
                })?;
                sse::frame("job-update", Some(*index), &data, retry)
            }
            JobEvent::Progress(_) if self.progress == Progress::Omitted => return Ok(None),
            JobEvent::Progress(value) => {
                let mut data = String::new();
                write_value(value, &NoCells, &mut data)?;
                sse::frame("progress", None, &data, retry)
            }
        };
        self.is_first = false;
        Ok(Some(text))
    }
}

fn next_event(mut follow: Follow) -> PendingEvent {
    Box::pin(async move {
        let event = follow.next().await;
        (follow, event)
    })
}

impl HttpBody for JobStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let data = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        while let Some(pending) = &mut self.next {
            let Poll::Ready((follow, event)) = pending.as_mut().poll(context) else {
                if self.heartbeat.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.reset_heartbeat();
                return data(Bytes::from_static(sse::HEARTBEAT_COMMENT));
            };
            self.next = None;
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "an event stream ended early");
                    break;
                }
            };
            match self.frame(&event) {
                Ok(text) => {
                    self.next = Some(next_event(follow));
                    let Some(text) = text else { continue };
                    self.reset_heartbeat();
                    return data(Bytes::from(text));
                }
                // A job that cannot be written as JSON ends the stream with an error event.
                Err(error) => {
                    let body = json::to_string(&error.to_value()).unwrap_or_default();
                    return data(Bytes::from(sse::frame("error", None, &body, None)));
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none()
    }
}

//! How slowly clients may send and receive.
//!
//! Bodies have a minimum rate and a total time, so that slow clients do not hold connections and
//! memory for as long as they like. Event streams are exempt: they are slow by nature, and
//! `stream_end` ends them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::memory::ResponseMemory;
use crate::http::stream_end;
use crate::limits::{
    BODY_TIME_MAX, RATE_BYTES_MIN, RATE_WINDOW, RESPONSE_CHUNK_BYTES, RESPONSE_WHOLE_BYTES_MAX,
};

/// The rate of a request body.
pub(crate) struct BodyRate {
    end: Instant,
    window_end: Instant,
    window_bytes: usize,
}

impl BodyRate {
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        BodyRate { end: now + BODY_TIME_MAX, window_end: now + RATE_WINDOW, window_bytes: 0 }
    }

    /// The next data of a body. `None` at its end.
    pub(crate) async fn next_data(&mut self, body: &mut Body) -> ApiResult<Option<Bytes>> {
        loop {
            let until = self.end.min(self.window_end);
            let Ok(frame) = tokio::time::timeout_at(until, body.frame()).await else {
                self.check()?;
                continue;
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|_| ApiError::bad_request("the body ended early"))?;
            if let Ok(data) = frame.into_data() {
                self.window_bytes += data.len();
                if Instant::now() >= self.window_end {
                    self.check()?;
                }
                return Ok(Some(data));
            }
        }
    }

    /// Fails if the body is too slow. Otherwise the next window begins.
    fn check(&mut self) -> ApiResult<()> {
        let now = Instant::now();
        if now >= self.end || self.window_bytes < RATE_BYTES_MIN {
            let seconds = BODY_TIME_MAX.as_secs();
            let rate = RATE_BYTES_MIN as u64 / RATE_WINDOW.as_secs();
            let error = format!(
                "the body must arrive with at least {rate} bytes per second, within {seconds} s"
            );
            return Err(ApiError::new(Code::BodyTooSlow, error));
        }
        self.window_end = now + RATE_WINDOW;
        self.window_bytes = 0;
        Ok(())
    }
}

/// A connection whose client must read what is sent to it.
pub(crate) struct MinRateIo<S> {
    stream: S,
    /// Set while the client does not read as fast as it is written to.
    stall: Option<Pin<Box<Sleep>>>,
    /// Bytes that were written since then.
    written: usize,
    is_exempt: Arc<AtomicBool>,
}

impl<S> MinRateIo<S> {
    /// `is_exempt` is true while the response is an event stream.
    pub(crate) fn new(stream: S, is_exempt: Arc<AtomicBool>) -> Self {
        MinRateIo { stream, stall: None, written: 0, is_exempt }
    }

    /// Called while the client does not read: fails if it has read too little for too long.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            let stall = self.stall.get_or_insert_with(|| {
                self.written = 0;
                Box::pin(tokio::time::sleep(RATE_WINDOW))
            });
            if stall.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if self.written < RATE_BYTES_MIN && !self.is_exempt.load(Ordering::Relaxed) {
                return Poll::Ready(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client is too slow",
                ));
            }
            self.stall = None;
        }
    }

    fn after_write(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.written = self.written.saturating_add(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_stalled(context).map(Err),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MinRateIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MinRateIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.after_write(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.after_write(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when everything is written: the client keeps up.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        match flushed {
            Poll::Ready(flushed) => {
                self.stall = None;
                Poll::Ready(flushed)
            }
            Poll::Pending => self.poll_stalled(context).map(Err),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The same response, sent in chunks as the client reads it, within a total time. Its memory stays
/// reserved until it is sent. Small responses and event streams are unchanged.
pub(crate) fn in_chunks(response: Response, memory: ResponseMemory) -> Response {
    let is_small =
        response.body().size_hint().upper().is_some_and(|bytes| bytes <= RESPONSE_WHOLE_BYTES_MAX);
    if is_small || stream_end::is_stream(&response) {
        return response;
    }
    response.map(|body| {
        let end = Box::pin(tokio::time::sleep(BODY_TIME_MAX));
        Body::new(ChunkedBody { body, chunk: Bytes::new(), end, _memory: memory })
    })
}

struct ChunkedBody {
    body: Body,
    /// What is left of the last frame.
    chunk: Bytes,
    end: Pin<Box<Sleep>>,
    _memory: ResponseMemory,
}

impl HttpBody for ChunkedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.end.as_mut().poll(context).is_ready() {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the client is too slow");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        }
        if self.chunk.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.chunk = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        let length = self.chunk.len().min(RESPONSE_CHUNK_BYTES);
        let next = self.chunk.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(next))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunk.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        let here = self.chunk.len() as u64;
        match rest.exact() {
            Some(rest) => SizeHint::with_exact(rest + here),
            None => rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn slow_body(bytes: usize, pause_s: u64) -> Body {
        let frames = futures_util::stream::unfold((), move |()| async move {
            tokio::time::sleep(std::time::Duration::from_secs(pause_s)).await;
            Some((Ok::<_, io::Error>(Bytes::from(vec![b'x'; bytes])), ()))
        });
        Body::from_stream(frames)
    }

    /// How long a body is read before it is refused, in seconds.
    async fn refused_after(mut body: Body) -> u64 {
        let started = Instant::now();
        let mut rate = BodyRate::start();
        loop {
            match rate.next_data(&mut body).await {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.code(), Code::BodyTooSlow);
                    return started.elapsed().as_secs();
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_is_refused_after_a_window_and_any_other_after_its_total_time() {
        assert_eq!(refused_after(slow_body(1, 1)).await, 30);
        assert_eq!(refused_after(slow_body(20_000, 1_000)).await, 30);
        assert_eq!(refused_after(slow_body(20_000, 5)).await, 120);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_disconnected_unless_it_follows_a_stream() {
        for (is_exempt, reads, is_closed) in
            [(false, 0, true), (true, 0, false), (false, 4_096, false), (false, 100, true)]
        {
            let (mut client, server) = tokio::io::duplex(1_024);
            let mut io = MinRateIo::new(server, Arc::new(AtomicBool::new(is_exempt)));
            tokio::spawn(async move {
                let mut buffer = vec![0; reads.max(1)];
                loop {
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    if reads > 0 && client.read_exact(&mut buffer).await.is_err() {
                        return;
                    }
                }
            });
            let data = vec![0; 1_000_000];
            let limit = std::time::Duration::from_secs(100);
            let written = tokio::time::timeout(limit, io.write_all(&data)).await;
            assert_eq!(written.is_ok_and(|ended| ended.is_err()), is_closed, "{is_exempt} {reads}");
        }
    }

    #[tokio::test]
    async fn a_large_response_is_sent_in_chunks_and_keeps_its_length() {
        let memory = catena_engine::runtime::MemoryBudget::new(&catena_engine::Limits::default())
            .open(&"alice".into());
        let memory = Arc::new(parking_lot::Mutex::new(memory));
        let response = Response::new(Body::from(vec![b'x'; 1_000_000]));
        let mut body = in_chunks(response, memory).into_body();
        assert_eq!(body.size_hint().exact(), Some(1_000_000));
        let mut total = 0;
        while let Some(frame) = body.frame().await {
            let length = frame.unwrap().into_data().unwrap().len();
            assert!(length <= RESPONSE_CHUNK_BYTES);
            total += length;
        }
        assert_eq!(total, 1_000_000);
    }
}

//! Follows a job until its end: by events, or by polling if the venue has no event stream.
//!
//! A stream that breaks is opened again with the ID of the last event, so that no update is lost or
//! delivered twice. A venue that was reached once may be unavailable for a while; a venue that was
//! never reached is an error at once.

use std::time::Duration;

use catena_value::Value;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use tokio::time::timeout;

use super::error::response_error;
use super::http::{HttpClient, HttpTransport, OpenResponse, TransportError};
use super::poll::next_interval;
use super::sse::{Event, Parser};
use super::transport::ApiResponse;
use super::{ClientError, ClientResult};
use crate::limits::{
    POLL_FIRST, REOPEN_DELAY, REOPEN_DELAY_MAX, REOPEN_MAX, REQUEST_TIME, STREAM_SILENCE,
};
use crate::wire::{ERROR, JobOutcome, PROGRESS, encode_path, member};

type FollowResult<V> = ClientResult<V, HttpTransport>;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A change of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// The job after the change.
    Job(Value),
    /// Its progress.
    Progress(Value),
}

/// The updates of one job.
#[derive(Debug)]
pub struct Follow {
    client: HttpClient,
    id: String,
    source: Source,
    /// The ID of the last event.
    last: Option<String>,
    /// The delay before the stream is opened again.
    delay: Duration,
    /// Failures since the last update.
    failures: u32,
    /// Whether the venue has answered at least once.
    was_reached: bool,
}

/// Where updates come from.
#[derive(Debug)]
enum Source {
    /// No stream is open.
    Closed,
    Stream(Box<Stream>),
    Polls {
        interval: Duration,
        last: Option<Value>,
    },
    /// The job has ended.
    Ended,
}

/// An open event stream.
#[derive(Debug)]
struct Stream {
    body: Incoming,
    parser: Parser,
}

impl HttpClient {
    /// Follows a job: its current state, then every change until it ends.
    pub fn follow(&self, id: &str) -> Follow {
        Follow {
            client: self.clone(),
            id: id.to_owned(),
            source: Source::Closed,
            last: None,
            delay: REOPEN_DELAY,
            failures: 0,
            was_reached: false,
        }
    }
}

/// The ID of the event of a job's first record.
const FIRST_EVENT: &str = "0";

impl Follow {
    /// Begins with the first change after the job's creation instead of its current state. A venue
    /// without event streams shows the current state.
    pub fn from_start(mut self) -> Follow {
        self.last = Some(FIRST_EVENT.to_owned());
        self
    }

    /// The next update; `None` after the job's end. Not cancel-safe: an update is lost if the future
    /// is dropped before it is ready.
    pub async fn next(&mut self) -> FollowResult<Option<Update>> {
        loop {
            let update = match &mut self.source {
                Source::Ended => return Ok(None),
                Source::Closed => self.open().await.map(|()| None),
                Source::Stream(stream) => match stream.next().await {
                    Ok(Some(event)) => self.read_event(event),
                    Ok(None) => Err(self.unreachable("the stream ended before the job did")),
                    Err(reason) => Err(self.unreachable(reason)),
                },
                Source::Polls { .. } => self.poll().await,
            };
            match update {
                Ok(Some(update)) => {
                    self.note_update(&update);
                    return Ok(Some(update));
                }
                Ok(None) => {}
                Err(error) => self.wait_or_fail(error).await?,
            }
        }
    }

    /// Resets the failure count, and ends the source with the job.
    fn note_update(&mut self, update: &Update) {
        self.failures = 0;
        if let Update::Job(job) = update {
            let status = member(job, "status").and_then(Value::as_str).unwrap_or_default();
            if JobOutcome::from_status(status).is_terminal() {
                self.source = Source::Ended;
            }
        }
    }

    /// Waits before the next attempt, or returns the error if there is none.
    async fn wait_or_fail(&mut self, error: ClientError<TransportError>) -> FollowResult<()> {
        self.failures += 1;
        if !error.is_transient() || !self.was_reached || self.failures > REOPEN_MAX {
            return Err(error);
        }
        if matches!(self.source, Source::Stream(_)) {
            self.source = Source::Closed;
        }
        tokio::time::sleep(self.delay).await;
        self.delay = (self.delay * 3 / 2).min(REOPEN_DELAY_MAX);
        Ok(())
    }

    async fn open(&mut self) -> FollowResult<()> {
        let path = format!("/jobs/{}/sse?progress=1", encode_path(&self.id));
        let mut request = self.client.request(Method::GET, &path);
        request.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = &self.last {
            request = request.with_header(LAST_EVENT_ID, last)?;
        }
        if let Some(authorization) = self.client.authorization().await? {
            request.headers.insert(AUTHORIZATION, authorization);
        }
        let transport = &self.client.transport;
        let opening = transport.within(REQUEST_TIME, transport.open(&request)).await;
        let OpenResponse { response, .. } = opening.map_err(ClientError::Transport)?;
        self.was_reached = true;
        let status = response.status();
        if status.is_success() && is_event_stream(response.headers()) {
            let body = response.into_body();
            self.source = Source::Stream(Box::new(Stream { body, parser: Parser::default() }));
            return Ok(());
        }
        // There are no events, or there is no such job: reading the job shows which.
        if status.is_success() || is_without_events(status) {
            self.source = Source::Polls { interval: POLL_FIRST, last: None };
            return Ok(());
        }
        let (head, body) = response.into_parts();
        let body = timeout(REQUEST_TIME, body.collect()).await.ok().and_then(Result::ok);
        let body = body.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
        Err(self.refused(status, head.headers, body))
    }

    fn read_event(&mut self, event: Event) -> FollowResult<Option<Update>> {
        if let Source::Stream(stream) = &self.source {
            self.delay = stream.parser.retry().unwrap_or(REOPEN_DELAY).min(REOPEN_DELAY_MAX);
        }
        if event.event == ERROR {
            let body = event.data.into_bytes();
            return Err(self.refused(StatusCode::UNPROCESSABLE_ENTITY, HeaderMap::new(), body));
        }
        let value = self.client.read_json(event.data.as_bytes())?;
        if event.event == PROGRESS {
            return Ok(Some(Update::Progress(value)));
        }
        self.last = event.id;
        Ok(Some(Update::Job(value)))
    }

    /// Reads the job: at once the first time, then after an interval that grows. `None` if it has
    /// not changed.
    async fn poll(&mut self) -> FollowResult<Option<Update>> {
        let Source::Polls { interval, last } = &mut self.source else { return Ok(None) };
        if last.is_some() {
            tokio::time::sleep(*interval).await;
            *interval = next_interval(*interval);
        }
        let job = self.client.job(&self.id).await?;
        let is_changed = last.as_ref() != Some(&job);
        *last = Some(job.clone());
        Ok(is_changed.then_some(Update::Job(job)))
    }

    fn refused(
        &self,
        status: StatusCode,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> ClientError<TransportError> {
        response_error(self.client.venue(), &ApiResponse { status, headers, body })
    }

    fn unreachable(&self, reason: impl Into<String>) -> ClientError<TransportError> {
        ClientError::Transport(self.client.transport.unreachable(reason))
    }
}

impl Stream {
    /// The next event; `None` if the stream has ended.
    async fn next(&mut self) -> Result<Option<Event>, String> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Ok(Some(event));
            }
            let frame = timeout(STREAM_SILENCE, self.body.frame()).await;
            match frame.map_err(|_| "the event stream was silent for too long".to_owned())? {
                None => return Ok(None),
                Some(Err(_)) => return Err("the event stream was cut off".to_owned()),
                Some(Ok(frame)) => {
                    let Some(data) = frame.data_ref() else { continue };
                    self.parser.push(data).map_err(|error| error.to_string())?;
                }
            }
        }
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media.is_some_and(|media| media.trim_start().starts_with("text/event-stream"))
}

/// Returns true if the status may mean that the venue has no event streams.
fn is_without_events(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 405 | 406 | 501)
}

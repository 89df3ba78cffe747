//! A job until its end: by events, and where there are none by looking again and again.
//!
//! A stream that breaks is opened again with the ID of the last event, so that nothing is missed
//! and nothing is told twice. A venue that was reached once may be away for a while; one that was
//! never reached is told at once.

use std::time::Duration;

use catena_value::Value;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;

use super::error::refused;
use super::sse::{Event, Parser};
use super::transport::Opened;
use super::{Ask, Client, ClientError};
use crate::limits::{
    POLL_FIRST, POLL_MAX, REOPEN_DELAY, REOPEN_DELAY_MAX, REOPEN_MAX, REQUEST_TIME, STREAM_SILENCE,
};
use crate::wire::{ERROR, JobOutcome, PROGRESS, member, path_encoded};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// The job as it stands.
    Job(Value),
    /// How far it is.
    Progress(Value),
}

/// Follows a job.
#[derive(Debug)]
pub struct Follow {
    client: Client,
    id: String,
    source: Source,
    /// The ID of the last event.
    last: Option<String>,
    /// How long to wait before the stream is opened again.
    delay: Duration,
    /// Failures since the last thing that happened.
    failures: u32,
    /// Whether the venue was reached at all.
    is_known: bool,
}

/// Where news come from.
#[derive(Debug)]
enum Source {
    /// Nowhere yet, or no longer.
    Closed,
    Stream(Box<Stream>),
    Polls {
        pause: Duration,
        seen: Option<Value>,
    },
    /// The job has ended.
    Ended,
}

/// A stream that is open.
#[derive(Debug)]
struct Stream {
    body: Incoming,
    parser: Parser,
}

impl Follow {
    pub(super) fn new(client: Client, id: &str) -> Self {
        Follow {
            client,
            id: id.to_owned(),
            source: Source::Closed,
            last: None,
            delay: REOPEN_DELAY,
            failures: 0,
            is_known: false,
        }
    }

    /// The next thing that happens; nothing after the job's end. What was dropped half-way is lost:
    /// wait for it in one piece.
    pub async fn next(&mut self) -> Result<Option<Update>, ClientError> {
        loop {
            let found = match &mut self.source {
                Source::Ended => return Ok(None),
                Source::Closed => self.open().await.map(|()| None),
                Source::Stream(stream) => match stream.next().await {
                    Ok(Some(event)) => self.update(event),
                    Ok(None) => self.closed(),
                    Err(reason) => Err(ClientError::Unreachable {
                        venue: self.client.venue().to_string(),
                        reason,
                    }),
                },
                Source::Polls { .. } => self.poll().await,
            };
            match found {
                Ok(Some(update)) => return Ok(Some(self.given(update))),
                Ok(None) => {}
                Err(error) => self.failed(error).await?,
            }
        }
    }

    /// Remembers what is given.
    fn given(&mut self, update: Update) -> Update {
        self.failures = 0;
        if let Update::Job(job) = &update {
            let status = member(job, "status").and_then(Value::as_str).unwrap_or_default();
            if JobOutcome::of(status).is_terminal() {
                self.source = Source::Ended;
            }
        }
        update
    }

    /// Waits before the next try, unless there is to be none.
    async fn failed(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.failures += 1;
        if !error.is_passing() || !self.is_known || self.failures > REOPEN_MAX {
            return Err(error);
        }
        if matches!(self.source, Source::Stream(_)) {
            self.source = Source::Closed;
        }
        tokio::time::sleep(self.delay).await;
        self.delay = (self.delay * 3 / 2).min(REOPEN_DELAY_MAX);
        Ok(())
    }

    /// The stream ended, but not the job: the venue stops, or the job is gone.
    fn closed(&mut self) -> Result<Option<Update>, ClientError> {
        let reason = "the stream ended before the job did".to_owned();
        Err(ClientError::Unreachable { venue: self.client.venue().to_string(), reason })
    }

    async fn open(&mut self) -> Result<(), ClientError> {
        let mut ask = Ask::get(&format!("/jobs/{}/sse?progress=1", path_encoded(&self.id)));
        ask.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = &self.last {
            ask = ask.with_header(LAST_EVENT_ID, last)?;
        }
        let authorization = self.client.authorization().await?;
        let transport = &self.client.0.transport;
        let opening = transport.open(&ask, &authorization);
        let Opened { response, .. } = transport.within(REQUEST_TIME, opening).await?;
        self.is_known = true;
        let status = response.status();
        self.source = match status {
            _ if status.is_success() && is_event_stream(response.headers()) => {
                let (body, parser) = (response.into_body(), Parser::default());
                Source::Stream(Box::new(Stream { body, parser }))
            }
            // No events there, or no job: a look at the job will tell.
            _ if status.is_success() || has_no_events(status) => {
                Source::Polls { pause: POLL_FIRST, seen: None }
            }
            _ => {
                let body = timeout(REQUEST_TIME, response.into_body().collect()).await;
                let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes());
                return Err(refused(self.client.venue(), status, &body.unwrap_or_default()));
            }
        };
        Ok(())
    }

    fn update(&mut self, event: Event) -> Result<Option<Update>, ClientError> {
        if let Source::Stream(stream) = &self.source {
            self.delay = stream.parser.retry().unwrap_or(REOPEN_DELAY).min(REOPEN_DELAY_MAX);
        }
        if event.event == ERROR {
            let venue = self.client.venue();
            return Err(refused(venue, StatusCode::UNPROCESSABLE_ENTITY, event.data.as_bytes()));
        }
        let value = self.client.read(event.data.as_bytes())?;
        if event.event == PROGRESS {
            return Ok(Some(Update::Progress(value)));
        }
        self.last = event.id;
        Ok(Some(Update::Job(value)))
    }

    /// Looks at the job; at once for the first time, then after a pause that grows.
    async fn poll(&mut self) -> Result<Option<Update>, ClientError> {
        let Source::Polls { pause, seen } = &mut self.source else { return Ok(None) };
        if seen.is_some() {
            tokio::time::sleep(*pause).await;
            *pause = (*pause * 3 / 2).min(POLL_MAX);
        }
        let job = self.client.job(&self.id).await?;
        let is_news = seen.as_ref() != Some(&job);
        *seen = Some(job.clone());
        Ok(is_news.then_some(Update::Job(job)))
    }
}

impl Stream {
    /// The next event; nothing when the stream has ended.
    async fn next(&mut self) -> Result<Option<Event>, String> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Ok(Some(event));
            }
            let frame = timeout(STREAM_SILENCE, self.body.frame()).await;
            match frame.map_err(|_| "the stream fell silent".to_owned())? {
                None => return Ok(None),
                Some(Err(_)) => return Err("the stream was cut off".to_owned()),
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

fn has_no_events(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 405 | 406 | 501)
}

//! A client of one venue.
//!
//! Cheap to clone; clones share connections. Every request has an end: connecting, answering and
//! silence are bounded ([`crate::limits`]). A request that the venue refused because of its rate is
//! sent again, because then nothing happened; no other is, unless it never left.
//!
//! Modules, in reading order: `error`, `identity` (who asks), `transport` (connections), `retry`
//! (when to ask again), [`jobs`] and `operations` (the calls), [`sse`] (event streams),
//! [`follow`] (a job until its end).

mod error;
mod identity;
mod operations;
mod retry;
mod transport;

pub mod follow;
pub mod jobs;
pub mod sse;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catena_value::{Value, json};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::VenueUrl;
use crate::limits::{ANSWER_DEPTH_MAX, REQUEST_TIME};
use crate::wire::{API, DID_DOCUMENT};

pub use error::{ClientError, Refusal};
pub use follow::{Follow, Update};
pub use identity::Credentials;

use error::refused;
use transport::Transport;

/// A client of one venue.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    transport: Transport,
    credentials: Credentials,
    /// The venue's DID, once it was asked for.
    did: OnceCell<Option<String>>,
}

/// A request that is to be made.
struct Ask {
    method: Method,
    /// From the venue's base, with the query.
    path: String,
    headers: HeaderMap,
    body: Bytes,
    time: Duration,
}

/// What came back.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Ask {
    /// A request to the API.
    fn new(method: Method, path: &str) -> Self {
        Ask {
            method,
            path: format!("{API}{path}"),
            headers: HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]),
            body: Bytes::new(),
            time: REQUEST_TIME,
        }
    }

    fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    /// The same with a JSON document as its body.
    fn with_json(self, value: &Value) -> Result<Self, ClientError> {
        let text = json::to_string(value).map_err(|error| {
            ClientError::Invalid(format!("the request cannot be written as JSON: {error}"))
        })?;
        Ok(self.with_body(text.into()))
    }

    /// The same with a body that is JSON already.
    fn with_body(mut self, body: Bytes) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = body;
        self
    }

    fn with_header(mut self, name: HeaderName, value: &str) -> Result<Self, ClientError> {
        let value = HeaderValue::from_str(value).map_err(|_| {
            ClientError::Invalid(format!("{value:?} cannot stand in the header `{name}`"))
        })?;
        self.headers.insert(name, value);
        Ok(self)
    }
}

impl Client {
    /// A client of this venue. Nothing is sent yet.
    pub fn new(venue: VenueUrl, credentials: Credentials) -> Self {
        let did = OnceCell::new();
        Client(Arc::new(Inner { transport: Transport::new(venue), credentials, did }))
    }

    /// The venue.
    pub fn venue(&self) -> &VenueUrl {
        self.0.transport.venue()
    }

    /// The venue's status.
    pub async fn status(&self) -> Result<Value, ClientError> {
        self.json(Ask::get("/status")).await
    }

    /// The venue's DID, asked for once; nothing when it does not say.
    pub async fn did(&self) -> Result<Option<&str>, ClientError> {
        let did = self.0.did.get_or_try_init(|| self.ask_did()).await?;
        Ok(did.as_deref())
    }

    async fn ask_did(&self) -> Result<Option<String>, ClientError> {
        let mut ask = Ask::get("");
        ask.path = DID_DOCUMENT.to_owned();
        let answer = self.0.transport.send(&ask, &HeaderMap::new()).await?;
        let document = json::read_nested(&answer.body, ANSWER_DEPTH_MAX).ok();
        let id = document.as_ref().and_then(|document| document.as_map()?.field("id")?.as_str());
        Ok(id.filter(|_| answer.status.is_success()).map(str::to_owned))
    }

    /// Sends a request and reads the JSON of its answer.
    async fn json(&self, ask: Ask) -> Result<Value, ClientError> {
        let answer = self.ask(&ask).await?;
        if !answer.status.is_success() {
            return Err(refused(self.venue(), answer.status, &answer.body));
        }
        self.read(&answer.body)
    }

    /// Reads the JSON of an answer.
    fn read(&self, body: &[u8]) -> Result<Value, ClientError> {
        json::read_nested(body, ANSWER_DEPTH_MAX).map_err(|error| self.malformed(error.to_string()))
    }

    /// Sends a request; again, while it is refused because of its rate.
    async fn ask(&self, ask: &Ask) -> Result<Answer, ClientError> {
        let begun = Instant::now();
        for attempt in 1.. {
            let authorization = self.authorization().await?;
            let answer = self.0.transport.send(ask, &authorization).await?;
            if answer.status != StatusCode::TOO_MANY_REQUESTS {
                return Ok(answer);
            }
            let after = retry::retry_after(&answer.headers);
            let Some(delay) = retry::delay(attempt, after, begun.elapsed(), retry::random()) else {
                return Ok(answer);
            };
            tokio::time::sleep(delay).await;
        }
        Err(ClientError::Invalid("no attempt was made".to_owned()))
    }

    /// The header that says who asks.
    async fn authorization(&self) -> Result<HeaderMap, ClientError> {
        let token = match &self.0.credentials {
            Credentials::Anonymous => return Ok(HeaderMap::new()),
            Credentials::Token(token) => token.clone(),
            Credentials::Key(key) => identity::token(key, self.did().await?),
        };
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(|_| {
            ClientError::Invalid("the token has characters that no token has".to_owned())
        })?;
        value.set_sensitive(true);
        Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
    }

    fn malformed(&self, reason: impl Into<String>) -> ClientError {
        ClientError::Malformed { venue: self.venue().to_string(), reason: reason.into() }
    }
}

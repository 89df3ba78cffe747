//! A client of one venue, generic over its [`Transport`].
//!
//! The client knows paths, headers, bodies and errors of the API. It sends a request again only if
//! the venue refused it because of its rate and the client was built to retry then
//! ([`OnRateLimit`]): in that case nothing happened at the venue.
//!
//! Modules, in reading order: `transport` (the boundary to connections), `error`, `credentials`,
//! `retry` (rate limits), [`jobs`] and `operations` (the calls), [`worker`] (those of workers), [`poll`] (intervals of polling);
//! with the feature `client` also [`verify`] (histories of jobs), `http` (a transport over TCP and TLS), `sse` (event streams) and
//! `follow` (a job until its end).

mod credentials;
mod error;
mod operations;
mod retry;
mod transport;

#[cfg(feature = "client")]
pub mod executor;
pub mod jobs;
pub mod poll;
#[cfg(feature = "client")]
pub mod verify;
pub mod worker;

#[cfg(feature = "client")]
pub mod follow;
#[cfg(feature = "client")]
mod http;
#[cfg(feature = "client")]
pub mod sse;

use std::sync::Arc;
use std::time::Duration;

use catena_auth::Token;
use catena_value::{Value, json};
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use hyper::{Method, StatusCode};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::known_venues::{IdentityError, KnownVenues};
use crate::limits::{ANSWER_DEPTH_MAX, REQUEST_TIME};
use crate::wire::{API, DID_DOCUMENT};

pub use credentials::Credentials;
pub use error::{ClientError, Refusal};
pub use retry::OnRateLimit;
pub use transport::{ApiRequest, ApiResponse, InvalidRequest, Transport};

#[cfg(feature = "client")]
pub use follow::{Follow, Update};
#[cfg(feature = "client")]
pub use http::{HttpClient, HttpTransport, TransportError};

use error::response_error;

/// The result of a call over the transport `T`.
pub type ClientResult<V, T> = Result<V, ClientError<<T as Transport>::Error>>;

/// A client of one venue. Clones share what the transport shares, such as connections.
#[derive(Debug, Clone)]
pub struct Client<T> {
    transport: T,
    credentials: Credentials,
    on_rate_limit: OnRateLimit,
    request_time: Duration,
    /// The venue's DID once it was fetched; `Some(None)` if the venue does not publish one.
    did: Arc<OnceCell<Option<String>>>,
    /// The venues that were used before.
    known: Arc<KnownVenues>,
    /// The DID that the venue must have, if the user says so.
    expected_did: Option<String>,
    /// Whether a token is sent only to the audience that it names. A caller that has just minted the
    /// token for this venue has checked that.
    checks_audience: bool,
}

impl<T: Transport> Client<T> {
    /// A client over a transport. Sends nothing yet, and does not retry.
    pub fn new(transport: T, credentials: Credentials) -> Self {
        Client {
            transport,
            credentials,
            on_rate_limit: OnRateLimit::Fail,
            request_time: REQUEST_TIME,
            did: Arc::default(),
            known: Arc::default(),
            expected_did: None,
            checks_audience: false,
        }
    }

    /// Sets where the identities of venues are remembered.
    pub fn with_known_venues(self, known: Arc<KnownVenues>) -> Self {
        Client { known, ..self }
    }

    /// Sets the DID that the venue must have.
    pub fn with_expected_did(self, did: Option<String>) -> Self {
        Client { expected_did: did, ..self }
    }

    /// Sets what happens to a request that the venue refuses because of its rate.
    pub fn with_rate_limit_policy(self, on_rate_limit: OnRateLimit) -> Self {
        Client { on_rate_limit, ..self }
    }

    /// Sets how long a request may take; [`REQUEST_TIME`] by default.
    pub fn with_request_time(self, request_time: Duration) -> Self {
        Client { request_time, ..self }
    }

    /// The name of the venue, as its transport names it in errors.
    pub fn venue(&self) -> String {
        self.transport.venue()
    }

    /// The venue's status document.
    pub async fn status(&self) -> ClientResult<Value, T> {
        self.fetch_json(self.request(Method::GET, "/status")).await
    }

    /// The venue's DID document, requested anonymously.
    pub async fn did_document(&self) -> ClientResult<Value, T> {
        let mut request = self.document_request();
        request.headers.insert(ACCEPT, HeaderValue::from_static("application/did+json"));
        let response = self.transport.send(&request).await.map_err(ClientError::Transport)?;
        self.decode(&response)
    }

    /// The venue's DID, fetched once; `None` if the venue does not publish one.
    pub async fn did(&self) -> ClientResult<Option<&str>, T> {
        let did = self.did.get_or_try_init(|| self.fetch_did()).await?;
        Ok(did.as_deref())
    }

    async fn fetch_did(&self) -> ClientResult<Option<String>, T> {
        let request = self.document_request();
        let response = self.transport.send(&request).await.map_err(ClientError::Transport)?;
        let document = json::read_nested(&response.body, ANSWER_DEPTH_MAX).ok();
        let id = document.as_ref().and_then(|document| document.as_map()?.field("id")?.as_str());
        Ok(id.filter(|_| response.status.is_success()).map(str::to_owned))
    }

    fn document_request(&self) -> ApiRequest {
        ApiRequest { time: self.request_time, ..ApiRequest::new(Method::GET, DID_DOCUMENT) }
    }

    /// A request to a path of the API.
    fn request(&self, method: Method, path: &str) -> ApiRequest {
        let request = ApiRequest::new(method, format!("{API}{path}"));
        ApiRequest { time: self.request_time, ..request }
    }

    /// Sends a request and reads the JSON of its response.
    async fn fetch_json(&self, request: ApiRequest) -> ClientResult<Value, T> {
        let response = self.send(request).await?;
        self.decode(&response)
    }

    /// Sends a request and ignores the body of a successful response.
    async fn send_only(&self, request: ApiRequest) -> ClientResult<(), T> {
        let response = self.send(request).await?;
        if response.status.is_success() { Ok(()) } else { Err(self.refusal_of(&response)) }
    }

    /// The JSON of a successful response, or the venue's error.
    fn decode(&self, response: &ApiResponse) -> ClientResult<Value, T> {
        if response.status.is_success() {
            self.read_json(&response.body)
        } else {
            Err(self.refusal_of(response))
        }
    }

    fn read_json(&self, body: &[u8]) -> ClientResult<Value, T> {
        json::read_nested(body, ANSWER_DEPTH_MAX).map_err(|error| self.malformed(error.to_string()))
    }

    fn refusal_of(&self, response: &ApiResponse) -> ClientError<T::Error> {
        response_error(self.venue(), response)
    }

    fn malformed(&self, reason: impl Into<String>) -> ClientError<T::Error> {
        ClientError::Malformed { venue: self.venue(), reason: reason.into() }
    }

    /// Sends a request with the client's credentials, and again after a delay while the venue
    /// refuses it because of its rate and the client is to retry then.
    async fn send(&self, mut request: ApiRequest) -> ClientResult<ApiResponse, T> {
        let started = Instant::now();
        let mut attempt = 1;
        loop {
            if let Some(authorization) = self.authorization().await? {
                request.headers.insert(AUTHORIZATION, authorization);
            }
            let response = self.transport.send(&request).await.map_err(ClientError::Transport)?;
            let is_rate_limited = response.status == StatusCode::TOO_MANY_REQUESTS;
            if !is_rate_limited || self.on_rate_limit == OnRateLimit::Fail {
                return Ok(response);
            }
            let after = retry::retry_after(&response.headers);
            let random = retry::random_fraction();
            let Some(delay) = retry::delay(attempt, after, started.elapsed(), random) else {
                return Ok(response);
            };
            tokio::time::sleep(delay).await;
            attempt += 1;
        }
    }

    /// The value of the `Authorization` header; `None` if requests are anonymous.
    async fn authorization(&self) -> ClientResult<Option<HeaderValue>, T> {
        let token = match &self.credentials {
            Credentials::Anonymous => return Ok(None),
            Credentials::Token(token) => {
                self.check_audience(token).await?;
                token.clone()
            }
            Credentials::Key(key) => {
                let did = self.trusted_did().await?;
                credentials::sign_token(key, &did, Some(&self.transport.origin()))
            }
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
            InvalidRequest("the token contains characters that a header cannot carry".to_owned())
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The venue's DID, if it may be trusted to be the venue's: credentials for it are sent to this
    /// URL.
    async fn trusted_did(&self) -> ClientResult<String, T> {
        let Some(did) = self.did().await? else {
            return Err(self.malformed("it does not publish its DID, to which a token is bound"));
        };
        let origin = self.transport.origin();
        let checked = self.known.check(&origin, did, self.expected_did.as_deref());
        checked.map_err(|error| ClientError::Identity { venue: self.venue(), error })?;
        Ok(did.to_owned())
    }

    /// Fails if a token names another venue as its audience. A token that is no JWT names none.
    async fn check_audience(&self, token: &str) -> ClientResult<(), T> {
        let audience =
            Token::parse(token).ok().and_then(|token| Some(token.text("aud")?.to_owned()));
        let Some(audience) = audience.filter(|_| self.checks_audience) else { return Ok(()) };
        let found = if audience.starts_with("did:") {
            self.trusted_did().await?
        } else {
            self.transport.origin()
        };
        if found == audience.trim_end_matches('/') {
            return Ok(());
        }
        let error =
            IdentityError::Changed { origin: self.transport.origin(), known: audience, found };
        Err(ClientError::Identity { venue: self.venue(), error })
    }
}

//! The policy for outbound requests: every request that an operation sends goes through here.
//!
//! A request names a host, but the policy is about addresses. So the name is resolved here, each
//! address is checked ([`address`]), and the connection is made to an address that was checked: no
//! second lookup can replace it. A redirect is a new request and is checked again. Hosts that the
//! operator listed ([`allow`]) may have any address.
//!
//! This is built on hyper's connections and not on a client library, because a library resolves
//! names without knowing the port that the operator's list is about, keeps connections in tasks of
//! its own, and follows proxies from the environment. Here a request is one connection inside one
//! future: dropping the future closes the socket and leaves nothing behind.
//!
//! Bounded are time, redirects, head and body of the response, and headers of the request.
//! Connections are HTTP/1.1, with TLS by rustls on ring and the roots that Mozilla publishes.

mod address;
mod allow;
mod exchange;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catena_api::{IdentityError, KnownVenues};
use catena_engine::runtime::Env;
use catena_engine::{Failure, RunControl};
use hyper::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use hyper::{Method, StatusCode, header};
use url::Url;

use crate::limits::{REDIRECTS_MAX, REQUEST_TIME, RESPONSE_BYTES_MAX};
use crate::options::Options;
pub use allow::{AllowedHost, AllowedVenue, ListEntryError};
pub(crate) use allow::{SHARED, check as check_url, venue_url};

/// Sends requests that the operator's policy allows.
pub(crate) struct Outbound {
    allow_hosts: Vec<AllowedHost>,
    allow_venues: Vec<AllowedVenue>,
    known_venues: KnownVenues,
    user_agent: HeaderValue,
    tls: tokio_rustls::TlsConnector,
    resolver: Box<dyn Resolve>,
    /// Connections that may be opened now. Sockets must not take the descriptors of the store.
    connections: tokio::sync::Semaphore,
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "outbound: hosts {:?}, venues {:?}", self.allow_hosts, self.allow_venues)
    }
}

/// A request to send.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// How long it may take, redirects included. Time while the job is paused does not count.
    pub(crate) time: Duration,
    pub(crate) redirects: Redirects,
    pub(crate) reach: Reach,
    /// The largest response body that is read.
    pub(crate) response_bytes_max: usize,
}

/// What happens if the response is a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redirects {
    /// Send the request to its target.
    Follow,
    /// Return it as the response.
    Return,
}

/// Which addresses a request may be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Public addresses, and those of hosts on the operator's list.
    Public,
    /// Any address, because the operator listed the target.
    Listed,
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Why there is no response. The texts contain no more of the URL than host and port, because a
/// path or a query may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutboundError {
    #[error("the URL is not allowed: {0}")]
    Url(String),
    #[error(
        "the request to {host} was refused: {why}; an operator can allow it with {option} {host}"
    )]
    Refused { host: String, why: String, option: &'static str },
    #[error("{host} cannot be reached: {reason}")]
    Connection { host: String, reason: String },
    #[error("{host} did not answer within {} ms", .time.as_millis())]
    Timeout { host: String, time: Duration },
    #[error("the response of {host} has {what}")]
    TooLarge { host: String, what: String },
    #[error("{host} redirected more than {REDIRECTS_MAX} times")]
    TooManyRedirects { host: String },
    #[error("{host} redirected to a URL that is not allowed: {reason}")]
    Redirect { host: String, reason: String },
}

impl From<OutboundError> for Failure {
    fn from(error: OutboundError) -> Self {
        let text = error.to_string();
        match error {
            OutboundError::Url(_) => Failure::new("invalid_url", text),
            OutboundError::Refused { .. } => Failure::new("outbound_refused", text),
            OutboundError::Connection { .. } => Failure::transient("connection", text),
            OutboundError::Timeout { .. } => Failure::transient("timeout", text),
            OutboundError::TooLarge { .. } => Failure::new("too_large", text),
            OutboundError::TooManyRedirects { .. } => Failure::new("too_many_redirects", text),
            OutboundError::Redirect { .. } => Failure::new("invalid_redirect", text),
        }
    }
}

/// Delays requests and measures their time, so that a paused job sends nothing.
pub(crate) trait Gate: Sync {
    /// Returns as soon as a request may be sent.
    fn proceed(&self) -> impl Future<Output = ()> + Send;
    /// Sleeps for a time that passes only while requests may be sent.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

impl Gate for RunControl {
    async fn proceed(&self) {
        RunControl::proceed(self).await;
    }

    async fn sleep(&self, time: Duration) {
        RunControl::sleep(self, time).await;
    }
}

/// A gate that is always open, for requests after the end of a turn.
pub(crate) struct OpenGate(pub(crate) Arc<dyn Env>);

impl Gate for OpenGate {
    async fn proceed(&self) {}

    async fn sleep(&self, time: Duration) {
        self.0.sleep(time).await;
    }
}

type Resolving<'a> = Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Resolves host names.
pub(crate) trait Resolve: Send + Sync {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a>;
}

/// The resolver of the operating system.
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
    }
}

impl Request {
    /// A request without headers and body that follows redirects and may reach public addresses.
    pub(crate) fn new(method: Method, url: Url) -> Self {
        Request {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            time: REQUEST_TIME,
            redirects: Redirects::Follow,
            reach: Reach::Public,
            response_bytes_max: RESPONSE_BYTES_MAX,
        }
    }

    /// Its host and port.
    pub(crate) fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        format!("{host}:{}", self.port())
    }

    fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// The request that follows a redirect; `None` if the response is to be returned.
    fn redirected(&self, status: StatusCode, headers: &HeaderMap) -> Result<Option<Self>, String> {
        let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let location = headers.get(LOCATION).filter(|_| is_redirect);
        let (Some(location), Redirects::Follow) = (location, self.redirects) else {
            return Ok(None);
        };
        let location =
            location.to_str().map_err(|_| "its Location header is not text".to_owned())?;
        let url = self.url.join(location).map_err(|error| error.to_string())?;
        allow::check(&url)?;
        let mut next = Request { url, ..self.clone() };
        let becomes_get = match status.as_u16() {
            301 | 302 => self.method == Method::POST,
            303 => self.method != Method::HEAD,
            _ => false,
        };
        if becomes_get {
            next.method = Method::GET;
            next.body = Bytes::new();
            next.headers.remove(header::CONTENT_TYPE);
        }
        if next.url.origin() != self.url.origin() {
            next.reach = Reach::Public;
            // Whatever was meant for one origin stays there: any header may be a secret, and so may
            // the body.
            next.body = Bytes::new();
            next.headers = self
                .headers
                .iter()
                .filter(|(name, _)| is_harmless(name) && !name.as_str().starts_with("content-"))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
        }
        Ok(Some(next))
    }
}

/// Headers that say nothing about the sender but what it accepts. All others may be secret: they are
/// in no record, and are sent to the origin that they were given for and to no other.
pub(crate) const HARMLESS_HEADERS: [&str; 19] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-type",
    "date",
    "dnt",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "pragma",
    "prefer",
    "range",
    "user-agent",
];

/// Whether a header is harmless. Header names are in lower case.
pub(crate) fn is_harmless(name: &HeaderName) -> bool {
    HARMLESS_HEADERS.contains(&name.as_str())
}

impl Outbound {
    pub(crate) fn new(options: Options) -> Self {
        let fallback = HeaderValue::from_static("catena");
        Outbound {
            allow_hosts: options.allow_hosts,
            allow_venues: options.allow_venues,
            known_venues: options
                .known_venues
                .map_or_else(KnownVenues::default, KnownVenues::in_file),
            user_agent: HeaderValue::from_str(&options.user_agent).unwrap_or(fallback),
            tls: connector(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()),
            resolver: Box::new(SystemResolver),
            connections: tokio::sync::Semaphore::new(options.connections_max),
        }
    }

    /// Sends a request and returns the complete response.
    pub(crate) async fn send(
        &self,
        request: Request,
        gate: &impl Gate,
    ) -> Result<Response, OutboundError> {
        allow::check(&request.url).map_err(OutboundError::Url)?;
        let host = request.host();
        let time = request.time;
        tokio::select! {
            biased;
            response = self.send_following(request, gate) => response,
            () = gate.sleep(time) => Err(OutboundError::Timeout { host, time }),
        }
    }

    /// Sends a request, and then those that redirects lead to.
    async fn send_following(
        &self,
        mut request: Request,
        gate: &impl Gate,
    ) -> Result<Response, OutboundError> {
        for _ in 0..=REDIRECTS_MAX {
            gate.proceed().await;
            // It fails only if the semaphore is closed, which it never is.
            let _connection = self.connections.acquire().await.ok();
            let stream = self.connect(&request, gate).await?;
            let exchanged = if request.url.scheme() == "https" {
                let stream = exchange::start_tls(stream, &request, &self.tls).await?;
                self.exchange(stream, &request).await?
            } else {
                self.exchange(stream, &request).await?
            };
            match exchanged {
                Exchanged::Answered(response) => return Ok(response),
                Exchanged::Redirected(next) => request = *next,
            }
        }
        Err(OutboundError::TooManyRedirects { host: request.host() })
    }

    async fn exchange(
        &self,
        stream: impl exchange::Stream,
        request: &Request,
    ) -> Result<Exchanged, OutboundError> {
        let head = |status, headers: &HeaderMap| {
            request
                .redirected(status, headers)
                .map_err(|reason| OutboundError::Redirect { host: request.host(), reason })
        };
        exchange::exchange(stream, request, &self.user_agent, head).await
    }

    /// Connects to an address that was checked.
    async fn connect(
        &self,
        request: &Request,
        gate: &impl Gate,
    ) -> Result<tokio::net::TcpStream, OutboundError> {
        let addresses = self.addresses(request).await?;
        let allowed = self.allowed_addresses(request, addresses)?;
        exchange::connect(&allowed, request, gate).await
    }

    async fn addresses(&self, request: &Request) -> Result<Vec<SocketAddr>, OutboundError> {
        let port = request.port();
        let unresolved =
            |reason: String| OutboundError::Connection { host: request.host(), reason };
        let addresses = match request.url.host() {
            Some(url::Host::Ipv4(address)) => vec![SocketAddr::new(IpAddr::V4(address), port)],
            Some(url::Host::Ipv6(address)) => vec![SocketAddr::new(IpAddr::V6(address), port)],
            Some(url::Host::Domain(name)) => {
                let resolved = self.resolver.resolve(name, port).await;
                resolved.map_err(|error| {
                    unresolved(format!("its host name could not be resolved: {error}"))
                })?
            }
            None => Vec::new(),
        };
        if addresses.is_empty() {
            return Err(unresolved("its host name has no address".to_owned()));
        }
        Ok(addresses)
    }

    /// The addresses that the request may be sent to. Fails if there are none.
    fn allowed_addresses(
        &self,
        request: &Request,
        addresses: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, OutboundError> {
        if request.reach == Reach::Listed || self.is_listed_host(&request.url) {
            return Ok(addresses);
        }
        let is_literal = !matches!(request.url.host(), Some(url::Host::Domain(_)));
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in addresses {
            let ip = address.ip();
            let is_listed = || {
                let name = ip.to_string();
                self.allow_hosts.iter().any(|entry| entry.covers(&name, address.port()))
            };
            match address::class(ip) {
                Some(class) if !is_listed() => refused = Some(class),
                _ => allowed.push(address),
            }
        }
        match refused {
            Some(class) if allowed.is_empty() => {
                let verb = if is_literal { "is" } else { "has" };
                let why = format!("it {verb} {class} address");
                Err(OutboundError::Refused { host: request.host(), why, option: "--allow-host" })
            }
            _ => Ok(allowed),
        }
    }

    fn is_listed_host(&self, url: &Url) -> bool {
        let Some(host) = url.host() else { return false };
        let port = url.port_or_known_default().unwrap_or_default();
        let host = allow::host_name(&host);
        self.allow_hosts.iter().any(|entry| entry.covers(&host, port))
    }

    /// The operator's entry for a venue. `None` if it is not listed, or only as a host.
    fn venue_entry(&self, url: &Url) -> Option<&AllowedVenue> {
        self.allow_venues.iter().find(|entry| entry.covers(url))
    }

    /// Whether the operator allows delegations on a venue that does not keep users apart.
    pub(crate) fn is_shared_venue(&self, url: &Url) -> bool {
        self.venue_entry(url).is_some_and(|entry| entry.is_shared)
    }

    /// Fails unless a venue may have this DID: as the operator says, otherwise a did:web of its host
    /// or the did:key that it had when it was first used.
    pub(crate) fn check_venue_did(&self, url: &Url, did: &str) -> Result<(), IdentityError> {
        let expected = self.venue_entry(url).and_then(AllowedVenue::did);
        self.known_venues.check(&url.origin().ascii_serialization(), did, expected)
    }

    /// Fails unless the operator lists the venue, or its host.
    pub(crate) fn check_venue(&self, url: &Url) -> Result<(), OutboundError> {
        if self.is_listed_host(url) || self.allow_venues.iter().any(|entry| entry.covers(url)) {
            return Ok(());
        }
        let why = "it is not on this venue's list of venues".to_owned();
        let host = url.origin().ascii_serialization();
        Err(OutboundError::Refused { host, why, option: "--allow-venue" })
    }
}

/// A TLS connector that trusts these roots.
fn connector(roots: rustls::RootCertStore) -> tokio_rustls::TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for the default versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tokio_rustls::TlsConnector::from(Arc::new(tls))
}

/// The result of one request over one connection.
pub(crate) enum Exchanged {
    /// The response.
    Answered(Response),
    /// The request to send next, because the response is a redirect.
    Redirected(Box<Request>),
}

#[cfg(test)]
mod tests;

//! Connections to one venue: making them, using them again, and what they can fail with.
//!
//! HTTP/1.1 on hyper's own connections, with TLS by rustls on ring and the roots that Mozilla
//! publishes. Redirects are not followed: a venue is where its URL says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Answer, Ask, ClientError};
use crate::VenueUrl;
use crate::limits::{
    ADDRESSES_MAX, ANSWER_BYTES_MAX, CONNECT_TIME, HEAD_BYTES_MAX, IDLE_CONNECTIONS_MAX,
};

type Sender = http1::SendRequest<Full<Bytes>>;

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("catena-client/", env!("CARGO_PKG_VERSION")));

/// The connections to one venue.
pub(super) struct Transport {
    venue: VenueUrl,
    tls: tokio_rustls::TlsConnector,
    idle: Mutex<Vec<Sender>>,
}

/// An answer whose body has not been read. The connection ends with it.
pub(super) struct Opened {
    pub(super) response: Response<Incoming>,
    sender: Sender,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connections to {}", self.venue)
    }
}

impl Transport {
    pub(super) fn new(venue: VenueUrl) -> Self {
        Transport { venue, tls: connector(), idle: Mutex::default() }
    }

    pub(super) fn venue(&self) -> &VenueUrl {
        &self.venue
    }

    /// Sends a request and takes in the whole answer.
    pub(super) async fn send(&self, ask: &Ask, more: &HeaderMap) -> Result<Answer, ClientError> {
        let sending = async {
            let Opened { response, sender } = self.open(ask, more).await?;
            let (head, body) = response.into_parts();
            let body = self.take_in(body).await?;
            self.keep(sender);
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        self.within(ask.time, sending).await
    }

    /// Sends a request and returns with the head of the answer.
    pub(super) async fn open(&self, ask: &Ask, more: &HeaderMap) -> Result<Opened, ClientError> {
        let request = self.request(ask, more)?;
        while let Some(mut sender) = self.take_idle() {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.send_request(request.clone()).await {
                Ok(response) => return Ok(Opened { response, sender }),
                // The venue had closed the connection. What never left, or changes nothing, may
                // be sent on another one.
                Err(error) if error.is_canceled() || ask.method == Method::GET => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        Ok(Opened { response, sender })
    }

    /// Ends a request after this time.
    pub(super) async fn within<T>(
        &self,
        time: Duration,
        asking: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let late = || ClientError::TimedOut { venue: self.venue.to_string(), time };
        timeout(time, asking).await.unwrap_or_else(|_| Err(late()))
    }

    fn request(&self, ask: &Ask, more: &HeaderMap) -> Result<Request<Full<Bytes>>, ClientError> {
        let invalid = |error: &dyn std::fmt::Display| ClientError::Invalid(error.to_string());
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(self.venue.path(&ask.path))
            .body(Full::new(ask.body.clone()))
            .map_err(|error| invalid(&error))?;
        let host = HeaderValue::try_from(self.venue.authority());
        let headers = request.headers_mut();
        headers.insert(HOST, host.map_err(|error| invalid(&error))?);
        headers.insert(USER_AGENT, AGENT);
        headers.extend(ask.headers.clone());
        headers.extend(more.clone());
        Ok(request)
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock();
        idle.retain(|sender| !sender.is_closed());
        idle.pop()
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CONNECTIONS_MAX && !sender.is_closed() {
            idle.push(sender);
        }
    }

    async fn connect(&self) -> Result<Sender, ClientError> {
        let stream = self.connect_tcp().await?;
        // Small requests wait for nothing.
        let _ = stream.set_nodelay(true);
        if !self.venue.is_https() {
            return self.handshake(stream).await;
        }
        let name = ServerName::try_from(self.venue.host());
        let name = name.map_err(|_| self.unreachable("its name cannot be in a certificate"))?;
        let encrypted = timeout(CONNECT_TIME, self.tls.connect(name, stream)).await;
        let encrypted = encrypted.map_err(|_| self.unreachable("TLS took too long"))?;
        let failed = |error| self.unreachable(format!("TLS failed: {error}"));
        self.handshake(encrypted.map_err(failed)?).await
    }

    async fn connect_tcp(&self) -> Result<TcpStream, ClientError> {
        let mut reason = "its name has no address".to_owned();
        for address in self.addresses().await?.into_iter().take(ADDRESSES_MAX) {
            reason = match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => error.kind().to_string(),
                Err(_) => "no connection was accepted".to_owned(),
            };
        }
        Err(self.unreachable(reason))
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, ClientError> {
        let host = self.venue.host();
        let found = timeout(CONNECT_TIME, tokio::net::lookup_host((host, self.venue.port()))).await;
        match found {
            Ok(Ok(found)) => Ok(found.collect()),
            Ok(Err(error)) => Err(self.unreachable(format!("its name has no address: {error}"))),
            Err(_) => Err(self.unreachable("its name has no address: nobody answered")),
        }
    }

    async fn handshake(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Sender, ClientError> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        // Ends when the sender and every body are dropped; what went wrong is told to whoever asks.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    async fn take_in(&self, mut body: Incoming) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.broken(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            if bytes.len() + data.len() > ANSWER_BYTES_MAX {
                let reason = format!("it has more than {ANSWER_BYTES_MAX} bytes");
                return Err(ClientError::Malformed { venue: self.venue.to_string(), reason });
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes)
    }

    fn unreachable(&self, reason: impl Into<String>) -> ClientError {
        ClientError::Unreachable { venue: self.venue.to_string(), reason: reason.into() }
    }

    pub(super) fn broken(&self, error: &hyper::Error) -> ClientError {
        let source = std::error::Error::source(error);
        let kind = source.and_then(|source| source.downcast_ref()).map(std::io::Error::kind);
        let is_cut_off = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
        self.unreachable(match kind {
            _ if is_cut_off => "the connection was closed before the answer was complete".into(),
            _ if error.is_parse() => "what answers there does not speak HTTP".to_owned(),
            Some(kind) => kind.to_string(),
            None => error.to_string(),
        })
    }
}

/// TLS that believes the roots that Mozilla publishes.
fn connector() -> tokio_rustls::TlsConnector {
    let roots: rustls::RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for the default versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tokio_rustls::TlsConnector::from(Arc::new(tls))
}

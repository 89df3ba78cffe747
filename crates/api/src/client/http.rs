//! A transport with its own connections: HTTP/1.1 over TCP, and TLS if the venue's URL says so.
//!
//! Connections are hyper's own; TLS is rustls on ring with the roots that Mozilla publishes. Every
//! step is bounded in time ([`crate::limits`]). Redirects are not followed: a venue is at its URL.
//! Any address may be contacted, because the user of the client chose the venue.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::DigitallySignedStruct;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::transport::{ApiRequest, ApiResponse, Transport};
use super::{Client, ClientError, Credentials, InvalidRequest, OnRateLimit};
use crate::VenueUrl;
use crate::limits::{
    ADDRESSES_MAX, ANSWER_BYTES_MAX, CHUNK_BYTES_MAX, CONNECT_TIME, HEAD_BYTES_MAX,
    IDLE_CONNECTIONS_MAX,
};

/// A client with its own connections.
pub type HttpClient = Client<HttpTransport>;

impl HttpClient {
    /// A client of the venue at this URL. It sends a request again that was refused because of its
    /// rate. Nothing is sent yet.
    pub fn connect(venue: VenueUrl, credentials: Credentials) -> Self {
        let client = Client::new(HttpTransport::new(venue), credentials);
        Client { checks_audience: true, ..client }.with_rate_limit_policy(OnRateLimit::Retry)
    }

    /// A client of the venue at this URL whose certificate is the first one in a PEM file, whoever issued
    /// it and for whatever name. The file is read for every connection.
    pub fn connect_pinned(venue: VenueUrl, credentials: Credentials, certificate: PathBuf) -> Self {
        let client = Client::new(HttpTransport::pinned(venue, certificate), credentials);
        Client { checks_audience: true, ..client }.with_rate_limit_policy(OnRateLimit::Retry)
    }
}

/// Why there is no response of the venue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// There was no connection, or it broke before the response was complete.
    #[error("could not reach the venue at {venue}: {reason}")]
    Unreachable {
        /// The venue.
        venue: String,
        /// What happened.
        reason: String,
    },
    /// The response was not complete in time.
    #[error("the venue at {venue} did not answer within {} s", .time.as_secs())]
    TimedOut {
        /// The venue.
        venue: String,
        /// How long the request was allowed to take.
        time: Duration,
    },
    /// The response is larger than what is read.
    #[error(
        "the response of {venue} cannot be understood: it has more than {ANSWER_BYTES_MAX} bytes"
    )]
    TooLarge {
        /// The venue.
        venue: String,
    },
    /// The request cannot be written as HTTP.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
}

impl ClientError<TransportError> {
    /// Returns true if the same request may succeed in a moment without anyone changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            ClientError::Transport(
                TransportError::Unreachable { .. } | TransportError::TimedOut { .. },
            )
            | ClientError::Busy(_) => true,
            ClientError::Transport(
                TransportError::TooLarge { .. } | TransportError::Invalid(_),
            )
            | ClientError::Auth(_)
            | ClientError::NotFound(_)
            | ClientError::Conflict(_)
            | ClientError::Refused(_)
            | ClientError::Malformed { .. }
            | ClientError::Identity { .. }
            | ClientError::Invalid(_) => false,
        }
    }
}

type Sender = http1::SendRequest<Full<Bytes>>;

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("catena-client/", env!("CARGO_PKG_VERSION")));

/// Connections to one venue. Clones share them.
#[derive(Clone)]
pub struct HttpTransport(Arc<Connections>);

struct Connections {
    venue: VenueUrl,
    tls: tokio_rustls::TlsConnector,
    idle: Mutex<Vec<Sender>>,
}

/// A response whose body has not been read. Dropping it closes the connection.
pub(super) struct OpenResponse {
    pub(super) response: Response<Incoming>,
    sender: Sender,
}

impl std::fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connections to {}", self.0.venue)
    }
}

impl Transport for HttpTransport {
    type Error = TransportError;

    fn venue(&self) -> String {
        self.0.venue.to_string()
    }

    fn origin(&self) -> String {
        self.0.venue.origin()
    }

    async fn send(&self, request: &ApiRequest) -> Result<ApiResponse, TransportError> {
        let exchange = async {
            let OpenResponse { response, sender } = self.open(request).await?;
            let response = self.read_response(response).await?;
            self.return_connection(sender);
            Ok(response)
        };
        self.within(request.time, exchange).await
    }
}

impl HttpTransport {
    /// A transport to this venue. Nothing is connected yet.
    pub fn new(venue: VenueUrl) -> Self {
        HttpTransport(Arc::new(Connections { venue, tls: connector(), idle: Mutex::default() }))
    }

    /// A transport to the venue with this certificate.
    fn pinned(venue: VenueUrl, certificate: PathBuf) -> Self {
        let tls = pinned_connector(certificate);
        HttpTransport(Arc::new(Connections { venue, tls, idle: Mutex::default() }))
    }

    /// Sends a request with a body that is read piece by piece, on a connection of its own. Returns the
    /// complete response.
    pub(super) async fn send_content(
        &self,
        request: &ApiRequest,
        content: Content,
    ) -> Result<ApiResponse, TransportError> {
        let exchange = async {
            let message = self.message(request)?.map(|_| content);
            let mut sender = self.connect::<Content>().await?;
            let response = sender.send_request(message).await;
            let response = response.map_err(|error| self.connection_error(&error))?;
            self.read_response(response).await
        };
        self.within(request.time, exchange).await
    }

    /// Reads a response completely.
    pub(super) async fn read_response(
        &self,
        response: Response<Incoming>,
    ) -> Result<ApiResponse, TransportError> {
        let (head, body) = response.into_parts();
        let body = self.read_body(body).await?;
        Ok(ApiResponse { status: head.status, headers: head.headers, body })
    }

    /// Sends a request and returns when the head of the response has arrived.
    pub(super) async fn open(&self, request: &ApiRequest) -> Result<OpenResponse, TransportError> {
        let message = self.message(request)?;
        while let Some(mut sender) = self.take_idle_connection() {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.send_request(message.clone()).await {
                Ok(response) => return Ok(OpenResponse { response, sender }),
                // The venue had closed the connection. A request that never left, or that changes
                // nothing, may be sent on another one.
                Err(error) if error.is_canceled() || request.method == Method::GET => {}
                Err(error) => return Err(self.connection_error(&error)),
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(message).await;
        let response = response.map_err(|error| self.connection_error(&error))?;
        Ok(OpenResponse { response, sender })
    }

    /// Fails with [`TransportError::TimedOut`] if a request takes longer than this.
    pub(super) async fn within<T>(
        &self,
        time: Duration,
        exchange: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let timed_out = || TransportError::TimedOut { venue: self.venue(), time };
        timeout(time, exchange).await.unwrap_or_else(|_| Err(timed_out()))
    }

    fn message(&self, request: &ApiRequest) -> Result<Request<Full<Bytes>>, InvalidRequest> {
        let invalid = |error: &dyn std::fmt::Display| InvalidRequest(error.to_string());
        let mut message = Request::builder()
            .method(request.method.clone())
            .uri(self.0.venue.path(&request.path))
            .body(Full::new(request.body.clone()))
            .map_err(|error| invalid(&error))?;
        let host = HeaderValue::try_from(self.0.venue.authority());
        let headers = message.headers_mut();
        headers.insert(HOST, host.map_err(|error| invalid(&error))?);
        headers.insert(USER_AGENT, AGENT);
        headers.extend(request.headers.clone());
        Ok(message)
    }

    fn take_idle_connection(&self) -> Option<Sender> {
        let mut idle = self.0.idle.lock();
        idle.retain(|sender| !sender.is_closed());
        idle.pop()
    }

    fn return_connection(&self, sender: Sender) {
        let mut idle = self.0.idle.lock();
        if idle.len() < IDLE_CONNECTIONS_MAX && !sender.is_closed() {
            idle.push(sender);
        }
    }

    async fn connect<B: RequestBody>(&self) -> Result<http1::SendRequest<B>, TransportError> {
        let stream = self.connect_tcp().await?;
        // Small requests must not wait for further data. A failure costs only time.
        let _ = stream.set_nodelay(true);
        if !self.0.venue.is_https() {
            return self.handshake(stream).await;
        }
        let name = ServerName::try_from(self.0.venue.host())
            .map_err(|_| self.unreachable("its host name cannot be in a certificate"))?;
        let stream = timeout(CONNECT_TIME, self.0.tls.connect(name, stream))
            .await
            .map_err(|_| self.unreachable("the TLS handshake took too long"))?
            .map_err(|error| self.unreachable(format!("TLS failed: {error}")))?;
        self.handshake(stream).await
    }

    async fn connect_tcp(&self) -> Result<TcpStream, TransportError> {
        let mut reason = "its host name has no address".to_owned();
        for address in self.addresses().await?.into_iter().take(ADDRESSES_MAX) {
            reason = match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => error.kind().to_string(),
                Err(_) => "the connection was not accepted in time".to_owned(),
            };
        }
        Err(self.unreachable(reason))
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, TransportError> {
        let venue = &self.0.venue;
        let lookup = tokio::net::lookup_host((venue.host(), venue.port()));
        match timeout(CONNECT_TIME, lookup).await {
            Ok(Ok(addresses)) => Ok(addresses.collect()),
            Ok(Err(error)) => {
                Err(self.unreachable(format!("its host name could not be resolved: {error}")))
            }
            Err(_) => Err(self.unreachable("its host name could not be resolved in time")),
        }
    }

    async fn handshake<B: RequestBody>(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<http1::SendRequest<B>, TransportError> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.connection_error(&error))?;
        // The task ends when the sender and every body are dropped. Errors reach the requests.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    async fn read_body(&self, mut body: Incoming) -> Result<Vec<u8>, TransportError> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.connection_error(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            if bytes.len() + data.len() > ANSWER_BYTES_MAX {
                return Err(TransportError::TooLarge { venue: self.venue() });
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes)
    }

    pub(super) fn unreachable(&self, reason: impl Into<String>) -> TransportError {
        TransportError::Unreachable { venue: self.venue(), reason: reason.into() }
    }

    fn connection_error(&self, error: &hyper::Error) -> TransportError {
        let source = std::error::Error::source(error);
        let kind = source.and_then(|source| source.downcast_ref()).map(std::io::Error::kind);
        let is_cut_off = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
        self.unreachable(match kind {
            _ if is_cut_off => "the connection was closed before the response was complete".into(),
            _ if error.is_parse() => "the server at this address does not speak HTTP".to_owned(),
            Some(kind) => kind.to_string(),
            None => error.to_string(),
        })
    }
}

/// What connections can send.
trait RequestBody: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static> RequestBody for B {}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that somebody else produces piece by piece.
#[derive(Debug)]
pub(super) struct Content {
    chunks: mpsc::Receiver<std::io::Result<Bytes>>,
    left: u64,
}

impl Content {
    /// A body of this size in bytes, which is read from the beginning of a file while it is sent.
    pub(super) fn of_file(file: File, size: u64) -> Content {
        let (sender, chunks) = mpsc::channel(2);
        tokio::task::spawn_blocking(move || {
            let mut at = 0;
            while at < size {
                let piece = usize::try_from(size - at).unwrap_or(usize::MAX).min(CHUNK_BYTES_MAX);
                let mut chunk = vec![0; piece];
                let read = file.read_exact_at(&mut chunk, at).map(|()| Bytes::from(chunk));
                let has_failed = read.is_err();
                // Nobody listens if the connection broke.
                if sender.blocking_send(read).is_err() || has_failed {
                    return;
                }
                at += piece as u64;
            }
        });
        Content { chunks, left: size }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        self.chunks.poll_recv(context).map(|chunk| {
            let chunk = chunk?;
            if let Ok(chunk) = &chunk {
                self.left = self.left.saturating_sub(chunk.len() as u64);
            }
            Some(chunk.map(Frame::data))
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A TLS connector that trusts one certificate: the first one in a file.
fn pinned_connector(file: PathBuf) -> tokio_rustls::TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for the default versions of TLS")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedCertificate { file, algorithms }))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tokio_rustls::TlsConnector::from(Arc::new(tls))
}

/// Accepts the first certificate in a file, and no other one.
#[derive(Debug)]
struct PinnedCertificate {
    file: PathBuf,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = CertificateDer::from_pem_file(&self.file);
        let pinned = pinned.map_err(|error| rustls::Error::General(error.to_string()))?;
        if pinned.as_ref() == end_entity.as_ref() {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A TLS connector that trusts the roots that Mozilla publishes.
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

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use hyper::header::HeaderMap;

    use super::super::error::response_error;
    use super::*;

    #[test]
    fn only_errors_that_may_pass_are_transient() {
        let refused = |status: u16| -> ClientError<TransportError> {
            let status = StatusCode::from_u16(status).unwrap();
            let response = ApiResponse { status, headers: HeaderMap::new(), body: b"{}".to_vec() };
            response_error("http://v.example".to_owned(), &response)
        };
        assert!(refused(503).is_transient() && refused(429).is_transient());
        assert!(!refused(400).is_transient());
        let too_large = TransportError::TooLarge { venue: "http://v.example".to_owned() };
        assert!(!ClientError::Transport(too_large).is_transient());
    }
}

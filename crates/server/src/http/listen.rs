//! Connections: accepting, serving and closing them.
//!
//! This uses hyper directly because of two guarantees: the venue stops within its grace period
//! whatever clients do, and thousands of idle streams cost little. Every connection is one task. It
//! ends when the client disconnects, which drops the response in progress, or when the venue stops
//! and the response in progress is complete.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustix::process::Resource;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::http::error::{ApiError, Code};
use crate::http::rate::MinRateIo;
use crate::http::service::Respond;
use crate::http::stream_end;
use crate::http::tls::{HTTP2, TlsIdentity};
use crate::limits::{
    BODY_TIME_MAX, CONNECTION_BUFFER_BYTES, CONNECTIONS_MAX, CONNECTIONS_RESERVED,
    DESCRIPTORS_RESERVED_MIN, HEAD_TIME_MAX, HTTP2_BUFFER_BYTES_MAX, HTTP2_HEADER_BYTES_MAX,
    HTTP2_STREAMS_MAX, TLS_HANDSHAKE_TIME_MAX,
};

/// The pause after a connection could not be accepted, which means that descriptors or memory are
/// exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// `Retry-After` if all connections are in use.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// How far the shutdown has progressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Phase {
    /// Connections are accepted.
    Open,
    /// No connections are accepted, and open ones end after the response in progress.
    Draining,
    /// Open connections end at once.
    Closed,
}

/// All connections of the server.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    phase: watch::Sender<Phase>,
    /// One permit for each connection that may still be opened.
    permits: Arc<Semaphore>,
    /// Permits for connections that serve only probes and control, when there are no others.
    reserved: Arc<Semaphore>,
    connections_max: usize,
    /// Open connections by address, and how many there may be.
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    per_address_max: usize,
}

/// A connection that counts for its address until this is dropped.
struct AddressGuard {
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        let mut addresses = self.addresses.lock();
        if let Some(count) = addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

/// The address by which connections are counted. Whoever has an IPv6 address usually has all of its
/// network.
fn counted_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        address => address,
    }
}

/// What a connection may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Everything,
    /// Probes, reads of the status and control of jobs.
    Control,
}

impl Connections {
    /// `per_address_max` does not apply to loopback addresses.
    pub(crate) fn new(per_address_max: usize) -> Self {
        let connections_max = connections_max(rustix::process::getrlimit(Resource::Nofile).current);
        Connections {
            phase: watch::Sender::new(Phase::Open),
            permits: Arc::new(Semaphore::new(connections_max)),
            reserved: Arc::new(Semaphore::new(CONNECTIONS_RESERVED)),
            connections_max,
            addresses: Arc::default(),
            per_address_max,
        }
    }

    /// Counts a connection. `None` if its address has too many.
    fn count_address(&self, address: IpAddr) -> Option<Option<AddressGuard>> {
        if address.to_canonical().is_loopback() {
            return Some(None);
        }
        let address = counted_address(address);
        let mut addresses = self.addresses.lock();
        let count = addresses.entry(address).or_default();
        if *count >= self.per_address_max {
            return None;
        }
        *count += 1;
        drop(addresses);
        Some(Some(AddressGuard { addresses: Arc::clone(&self.addresses), address }))
    }

    /// Accepts and serves connections until [`Connections::stop`].
    pub(crate) async fn serve<R: Respond>(
        &self,
        listener: TcpListener,
        responder: Arc<R>,
        tls: Option<Arc<TlsIdentity>>,
    ) {
        let mut phase = self.phase.subscribe();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_buf_size(CONNECTION_BUFFER_BYTES)
            .keep_alive(true);
        loop {
            let accepted = tokio::select! {
                accepted = self.accept(&listener) => accepted,
                () = reached(&mut phase, Phase::Draining) => return,
            };
            match accepted {
                Ok(Accepted { stream, address, usage, permit }) => {
                    let Some(counted) = self.count_address(address) else {
                        tracing::debug!(%address, "refused a connection: the address has too many");
                        continue;
                    };
                    let (http, phase) = (http.clone(), phase.clone());
                    let responder = Arc::clone(&responder);
                    let acceptor = tls.as_ref().map(|tls| tls.acceptor());
                    tokio::spawn(async move {
                        match acceptor {
                            None => serve_one(http, stream, responder, usage, phase).await,
                            Some(acceptor) => match start_tls(&acceptor, stream).await {
                                Some(stream)
                                    if stream.get_ref().1.alpn_protocol() == Some(HTTP2) =>
                                {
                                    serve_http2(stream, responder, usage, phase).await;
                                }
                                Some(stream) => {
                                    serve_one(http, stream, responder, usage, phase).await;
                                }
                                None => {}
                            },
                        }
                        drop((permit, counted));
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The next connection, once there is a permit for it.
    async fn accept(&self, listener: &TcpListener) -> io::Result<Accepted> {
        let (permit, usage) = self.permit().await?;
        let (stream, address) = listener.accept().await?;
        // Responses are written in one piece: waiting for more to send would only delay them.
        stream.set_nodelay(true)?;
        Ok(Accepted { stream, address: address.ip(), usage, permit })
    }

    /// A permit for the next connection: an ordinary one, a reserved one, or the first that is
    /// returned.
    async fn permit(&self) -> io::Result<(OwnedSemaphorePermit, Use)> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok((permit, Use::Everything));
        }
        if let Ok(permit) = Arc::clone(&self.reserved).try_acquire_owned() {
            return Ok((permit, Use::Control));
        }
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
        Ok((permit, Use::Everything))
    }

    /// Accepts no more connections, and ends each after the response in progress.
    pub(crate) fn stop(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Waits until all connections have ended, and closes the remaining ones when the time is up.
    /// Returns true if none had to be closed.
    pub(crate) async fn wait_or_close(&self, within: Duration) -> bool {
        let all = u32::try_from(self.connections_max).unwrap_or(u32::MAX);
        let ended = tokio::time::timeout(within, self.permits.acquire_many(all)).await;
        self.phase.send_replace(Phase::Closed);
        matches!(ended, Ok(Ok(_)))
    }
}

/// A connection that was accepted.
struct Accepted {
    stream: TcpStream,
    address: IpAddr,
    usage: Use,
    permit: OwnedSemaphorePermit,
}

/// The number of connections that are allowed with this many file descriptors. Some are reserved for
/// what the venue opens itself, because a store that cannot open a file stops.
fn connections_max(descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors.and_then(|most| usize::try_from(most).ok()) else {
        return CONNECTIONS_MAX;
    };
    (descriptors - reserved_descriptors(descriptors)).min(CONNECTIONS_MAX)
}

fn reserved_descriptors(descriptors: usize) -> usize {
    (descriptors / 4).max(DESCRIPTORS_RESERVED_MIN).min(descriptors / 2)
}

/// The number of file descriptors that connections to other hosts may take: a half of the reserved ones, so
/// that the store has the rest.
pub fn outbound_descriptors() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // The limit is raised to the maximum at the start.
    outbound_share(limit.maximum.or(limit.current))
}

fn outbound_share(descriptors: Option<u64>) -> usize {
    let descriptors = descriptors.and_then(|most| usize::try_from(most).ok());
    descriptors.map_or(usize::MAX, |most| (reserved_descriptors(most) / 2).max(1))
}

/// The connection after its TLS handshake. `None` if that fails or takes too long.
async fn start_tls(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    match tokio::time::timeout(TLS_HANDSHAKE_TIME_MAX, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::trace!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

async fn serve_one<R: Respond>(
    http: http1::Builder,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    responder: Arc<R>,
    usage: Use,
    mut phase: watch::Receiver<Phase>,
) {
    let is_streaming = Arc::new(AtomicBool::new(false));
    let stream = MinRateIo::new(stream, Arc::clone(&is_streaming));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        serve_request(Arc::clone(&responder), request, usage, Arc::clone(&is_streaming))
    });
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    loop {
        let next = if *phase.borrow() == Phase::Open { Phase::Draining } else { Phase::Closed };
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = reached(&mut phase, next) => None,
        };
        match ended {
            Some(Ok(())) => return,
            Some(Err(error)) => return tracing::trace!(%error, "a connection ended early"),
            None if next == Phase::Closed => return,
            None => connection.as_mut().graceful_shutdown(),
        }
    }
}

/// Runs the futures of an HTTP/2 connection.
#[derive(Clone, Copy)]
struct Spawn;

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Spawn {
    fn execute(&self, future: F) {
        tokio::spawn(future);
    }
}

/// Serves a connection on which requests share the stream. It ends if there was no request for as long as an
/// HTTP/1.1 connection may be idle.
async fn serve_http2<R: Respond>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    responder: Arc<R>,
    usage: Use,
    mut phase: watch::Receiver<Phase>,
) {
    let mut http = http2::Builder::new(Spawn);
    http.timer(TokioTimer::new())
        .keep_alive_interval(HEAD_TIME_MAX / 3)
        .keep_alive_timeout(HEAD_TIME_MAX / 3)
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(HTTP2_HEADER_BYTES_MAX)
        .max_send_buf_size(HTTP2_BUFFER_BYTES_MAX);
    let is_streaming = Arc::new(AtomicBool::new(false));
    let stream = MinRateIo::new(stream, Arc::clone(&is_streaming));
    let requests = Arc::new(Http2Requests::default());
    let counted = Arc::clone(&requests);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        // The policies for hosts read the header of HTTP/1.1.
        let host = request.uri().authority().and_then(|host| host.as_str().parse().ok());
        if let Some(host) = host.filter(|_| !request.headers().contains_key(header::HOST)) {
            request.headers_mut().insert(header::HOST, host);
        }
        let (responder, counted) = (Arc::clone(&responder), Arc::clone(&counted));
        let is_streaming = Arc::clone(&is_streaming);
        counted.total.fetch_add(1, Ordering::Relaxed);
        async move {
            let is_stream = Arc::new(AtomicBool::new(false));
            let result = serve_request(responder, request, usage, Arc::clone(&is_stream)).await;
            // One event stream makes the whole connection slow by nature.
            is_streaming.fetch_or(is_stream.load(Ordering::Relaxed), Ordering::Relaxed);
            let is_stream = is_stream.load(Ordering::Relaxed);
            let count = |body| Body::new(CountedBody::new(body, counted, is_stream));
            result.map(|response| response.map(count))
        }
    });
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let mut idle = tokio::time::interval(HEAD_TIME_MAX);
    idle.tick().await;
    let mut known = usize::MAX;
    loop {
        let next = if *phase.borrow() == Phase::Open { Phase::Draining } else { Phase::Closed };
        let is_idle = tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::trace!(%error, "a connection ended early");
                }
                return;
            }
            () = reached(&mut phase, next) => false,
            _ = idle.tick() => true,
        };
        if is_idle {
            if requests.has_overdue() {
                // The client does not read a response, which takes memory.
                return;
            }
            let total = requests.total.load(Ordering::Relaxed);
            let is_open = requests.open.load(Ordering::Relaxed) > 0;
            if !is_open && total == known {
                connection.as_mut().graceful_shutdown();
            }
            known = total;
        } else if next == Phase::Closed {
            return;
        } else {
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// The requests of an HTTP/2 connection.
#[derive(Default)]
struct Http2Requests {
    /// How many there were.
    total: AtomicUsize,
    /// How many responses there were.
    bodies: AtomicUsize,
    /// How many responses are being sent.
    open: AtomicUsize,
    /// When each of those began that are no event streams, by number.
    begun: Mutex<BTreeMap<usize, Instant>>,
}

impl Http2Requests {
    /// Returns true if a response takes longer than one on a connection of its own may. The rate of bytes says
    /// nothing about one of many responses.
    fn has_overdue(&self) -> bool {
        self.begun.lock().values().any(|begun| begun.elapsed() > BODY_TIME_MAX)
    }
}

/// A body of a response that counts as open until it is dropped.
struct CountedBody {
    body: Body,
    requests: Arc<Http2Requests>,
    number: usize,
}

impl CountedBody {
    fn new(body: Body, requests: Arc<Http2Requests>, is_stream: bool) -> Self {
        requests.open.fetch_add(1, Ordering::Relaxed);
        let number = requests.bodies.fetch_add(1, Ordering::Relaxed);
        if !is_stream {
            requests.begun.lock().insert(number, Instant::now());
        }
        CountedBody { body, requests, number }
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.requests.open.fetch_sub(1, Ordering::Relaxed);
        self.requests.begun.lock().remove(&self.number);
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn serve_request<R: Respond>(
    responder: Arc<R>,
    request: Request<Incoming>,
    usage: Use,
    is_streaming: Arc<AtomicBool>,
) -> Result<Response, Infallible> {
    let is_http1 = request.version() < Version::HTTP_2;
    if usage == Use::Control && !is_control(&request) {
        let error = "all connections are in use; this one serves probes and control only";
        let error = ApiError::new(Code::VenueBusy, error).retry_after(ACCEPT_RETRY);
        let mut response = error.into_response();
        if is_http1 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        return Ok(response);
    }
    let response = responder.respond(request.map(Body::new)).await;
    is_streaming.store(stream_end::is_stream(&response), Ordering::Relaxed);
    Ok(response)
}

/// Whether a request is a probe, reads the status or controls a job.
fn is_control(request: &Request<Incoming>) -> bool {
    let path = request.uri().path();
    let is_status = matches!(path, "/livez" | "/readyz" | "/metrics" | "/api/v1/status");
    let is_job = path.starts_with("/api/v1/jobs/") || path.starts_with("/canvas/v1/jobs/");
    let is_stream = path.ends_with("/sse");
    is_status || is_job && !is_stream
}

/// Returns when the shutdown has reached this phase, or when the sender is gone.
async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Notify;

    /// Responds with the host, except to `/never`, which notifies that it was called and is never answered.
    #[derive(Default)]
    struct Responder {
        called: Arc<Notify>,
    }

    impl Respond for Responder {
        async fn respond(&self, request: Request) -> Response {
            if request.uri().path() == "/never" {
                self.called.notify_one();
                std::future::pending::<()>().await;
            }
            let host = request.headers().get(header::HOST).cloned().unwrap();
            Response::new(Body::from(host.to_str().unwrap().to_owned()))
        }
    }

    /// Connections with a [`Responder`], and the stream of a client.
    async fn serving(called: Arc<Notify>) -> (Connections, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::new(256);
        let responder = Arc::new(Responder { called });
        let serving = connections.clone();
        tokio::spawn(async move { serving.serve(listener, responder, None).await });
        (connections, TcpStream::connect(address).await.unwrap())
    }

    async fn request(client: &mut TcpStream, path: &str) {
        let text = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        client.write_all(text.as_bytes()).await.unwrap();
    }

    #[test]
    fn descriptors_are_left_for_the_store() {
        for (descriptors, connections) in [
            (None, 50_000),
            (Some(1 << 20), 50_000),
            (Some(1_024), 768),
            (Some(200), 136),
            (Some(60), 30),
        ] {
            assert_eq!(connections_max(descriptors), connections, "{descriptors:?}");
        }
        for (descriptors, outbound) in [(None, usize::MAX), (Some(1_024), 128), (Some(200), 32)] {
            assert_eq!(outbound_share(descriptors), outbound, "{descriptors:?}");
        }
    }

    #[test]
    fn connections_are_counted_by_address_except_on_loopback() {
        let connections = Connections::new(2);
        let count = |address: &str| connections.count_address(address.parse().unwrap());
        let first = count("192.0.2.1").unwrap();
        let _second = count("192.0.2.1").unwrap();
        assert!(count("192.0.2.1").is_none());
        assert!(count("::ffff:192.0.2.1").is_none(), "the same address");
        let _other = count("192.0.2.2").unwrap();
        drop(first);
        assert!(count("192.0.2.1").is_some());
        let _one = count("2001:db8::1").unwrap();
        let _two = count("2001:db8::2").unwrap();
        assert!(count("2001:db8::3").is_none(), "the same network");
        let loopback: Vec<_> = (0..10).map(|_| count("127.0.0.1").unwrap()).collect();
        assert!(loopback.iter().all(Option::is_none));
    }

    #[tokio::test]
    async fn probes_and_control_are_served_when_all_connections_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections = Connections::new(256);
        connections.permits = Arc::new(Semaphore::new(1));
        connections.connections_max = 1;
        let serving = connections.clone();
        let responder = Arc::new(Responder::default());
        tokio::spawn(async move { serving.serve(listener, responder, None).await });
        let first = async |path: &str| {
            let mut client = TcpStream::connect(address).await.unwrap();
            request(&mut client, path).await;
            let mut first = [0; 12];
            client.read_exact(&mut first).await.unwrap();
            (client, String::from_utf8_lossy(&first).into_owned())
        };
        let (_held, status) = first("/now").await;
        assert_eq!(status, "HTTP/1.1 200");
        assert_eq!(first("/now").await.1, "HTTP/1.1 429");
        assert_eq!(first("/livez").await.1, "HTTP/1.1 200");
    }

    #[tokio::test]
    async fn an_idle_connection_ends_when_the_venue_stops() {
        let (connections, mut client) = serving(Arc::default()).await;
        request(&mut client, "/now").await;
        let mut first = [0; 12];
        client.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        connections.stop();
        assert!(connections.wait_or_close(Duration::from_secs(20)).await);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_does_not_end_is_closed() {
        let called = Arc::new(Notify::new());
        let (connections, mut client) = serving(Arc::clone(&called)).await;
        request(&mut client, "/never").await;
        called.notified().await;
        connections.stop();
        assert!(!connections.wait_or_close(Duration::from_millis(1)).await);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_nobody_reads_is_noticed_on_a_shared_connection() {
        let requests = Arc::new(Http2Requests::default());
        let stream = CountedBody::new(Body::empty(), Arc::clone(&requests), true);
        let response = CountedBody::new(Body::empty(), Arc::clone(&requests), false);
        assert!(!requests.has_overdue());
        tokio::time::advance(BODY_TIME_MAX + Duration::from_secs(1)).await;
        assert!(requests.has_overdue());
        drop(response);
        assert!(!requests.has_overdue(), "event streams may take longer");
        drop(stream);
    }

    #[tokio::test]
    async fn requests_share_an_http2_connection() {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let responder = Arc::new(Responder::default());
        let (phase, receiver) = watch::channel(Phase::Open);
        let serving = tokio::spawn(serve_http2(server, responder, Use::Everything, receiver));
        let builder = hyper::client::conn::http2::Builder::new(Spawn);
        let (mut sender, connection) = builder.handshake(TokioIo::new(client)).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = |path: &str| {
            let uri = format!("https://venue.example{path}");
            axum::http::Request::builder().uri(uri).body(String::new()).unwrap()
        };
        let never = tokio::spawn(sender.send_request(request("/never")));
        for _ in 0..3 {
            let response = sender.send_request(request("/host")).await.unwrap();
            assert_eq!(response.version(), Version::HTTP_2);
            let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
            assert_eq!(body.to_bytes(), "venue.example", "the authority is the host");
        }
        phase.send(Phase::Closed).unwrap();
        serving.await.unwrap();
        assert!(never.await.unwrap().is_err(), "the venue has stopped");
        drop(connection.await);
    }
}

//! Connections: accepting, serving and closing them.
//!
//! This uses hyper directly because of two guarantees: the venue stops within its grace period
//! whatever clients do, and thousands of idle streams cost little. Every connection is one task. It
//! ends when the client disconnects, which drops the response in progress, or when the venue stops
//! and the response in progress is complete.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::Resource;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::http::tls::TlsIdentity;
use crate::limits::{
    CONNECTION_BUFFER_BYTES, CONNECTIONS_MAX, DESCRIPTORS_RESERVED_MIN, HEAD_TIME_MAX,
    TLS_HANDSHAKE_TIME_MAX,
};

/// The pause after a connection could not be accepted, which means that descriptors or memory are
/// exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    connections_max: usize,
}

impl Connections {
    pub(crate) fn new() -> Self {
        let connections_max = connections_max(rustix::process::getrlimit(Resource::Nofile).current);
        Connections {
            phase: watch::Sender::new(Phase::Open),
            permits: Arc::new(Semaphore::new(connections_max)),
            connections_max,
        }
    }

    /// Accepts and serves connections until [`Connections::stop`].
    pub(crate) async fn serve(
        &self,
        listener: TcpListener,
        router: Router,
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
                Ok((stream, permit)) => {
                    let (http, router, phase) = (http.clone(), router.clone(), phase.clone());
                    let acceptor = tls.as_ref().map(|tls| tls.acceptor());
                    tokio::spawn(async move {
                        match acceptor {
                            None => serve_one(http, stream, router, phase).await,
                            Some(acceptor) => {
                                if let Some(stream) = start_tls(&acceptor, stream).await {
                                    serve_one(http, stream, router, phase).await;
                                }
                            }
                        }
                        drop(permit);
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
    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        // Responses are written in one piece: waiting for more to send would only delay them.
        stream.set_nodelay(true)?;
        Ok((stream, permit))
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

/// The number of connections that are allowed with this many file descriptors. Some are reserved for
/// what the venue opens itself, because a store that cannot open a file stops.
fn connections_max(descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors.and_then(|most| usize::try_from(most).ok()) else {
        return CONNECTIONS_MAX;
    };
    let reserved = (descriptors / 4).max(DESCRIPTORS_RESERVED_MIN).min(descriptors / 2);
    (descriptors - reserved).min(CONNECTIONS_MAX)
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

async fn serve_one(
    http: http1::Builder,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    mut phase: watch::Receiver<Phase>,
) {
    let service = TowerToHyperService::new(router);
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

/// Returns when the shutdown has reached this phase, or when the sender is gone.
async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Notify;

    /// Connections that serve `/now` and `/never`, which notifies that it was called and never
    /// responds; and the stream of a client.
    async fn serving(called: Arc<Notify>) -> (Connections, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::new();
        let router = Router::new().route("/now", get(|| async { "now" })).route(
            "/never",
            get(async move || {
                called.notify_one();
                std::future::pending::<&str>().await
            }),
        );
        let serving = connections.clone();
        tokio::spawn(async move { serving.serve(listener, router, None).await });
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
}

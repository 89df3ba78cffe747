//! Connections: accepting them, serving them, and letting them go.
//!
//! Written on hyper itself because of two promises: the venue ends within its grace whatever
//! clients do, and thousands of idle streams cost little. Every connection is one task; it ends when
//! the client goes away (which drops whatever was being answered), or when the venue stops and the
//! answer under way is finished.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use rustix::process::Resource;

use crate::limits::{
    CONNECTION_BUFFER_BYTES, CONNECTIONS_MAX, DESCRIPTORS_KEPT_MIN, HEAD_TIME_MAX,
};

/// How long to wait after a connection could not be accepted, which means that descriptors or
/// memory are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How far the venue is on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Phase {
    /// Connections are accepted.
    Open,
    /// No more are, and those there are end after the answer under way.
    Draining,
    /// They end now.
    Over,
}

/// Ends connections when it is told to, and knows when all have ended.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    phase: watch::Sender<Phase>,
    open: Arc<Semaphore>,
    /// How many there may be.
    most: usize,
}

impl Connections {
    pub(crate) fn new() -> Self {
        let most = connections_max(rustix::process::getrlimit(Resource::Nofile).current);
        Connections {
            phase: watch::Sender::new(Phase::Open),
            open: Arc::new(Semaphore::new(most)),
            most,
        }
    }

    /// Accepts and serves connections until it is told to stop.
    pub(crate) async fn serve(&self, listener: TcpListener, router: Router) {
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
                Ok((stream, place)) => {
                    let serving = serve_one(http.clone(), stream, router.clone(), phase.clone());
                    tokio::spawn(async move {
                        serving.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The next connection, when there is room for one.
    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
        let place = Arc::clone(&self.open).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        // Answers are written whole: waiting for more to send would only delay them.
        stream.set_nodelay(true)?;
        Ok((stream, place))
    }

    /// Accepts no more, and lets every connection end after the answer under way.
    pub(crate) fn stop(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Waits until all connections have ended, and ends those that have not after a time. Whether
    /// all ended by themselves.
    pub(crate) async fn ended(&self, within: Duration) -> bool {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        let ended = tokio::time::timeout(within, self.open.acquire_many(all)).await;
        self.phase.send_replace(Phase::Over);
        matches!(ended, Ok(Ok(_)))
    }
}

/// Connections that there may be when the process may have so many descriptors. A part of these is
/// kept for what the venue opens itself: a store that cannot open a file stops.
fn connections_max(descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors.and_then(|most| usize::try_from(most).ok()) else {
        return CONNECTIONS_MAX;
    };
    let kept = (descriptors / 4).max(DESCRIPTORS_KEPT_MIN).min(descriptors / 2);
    (descriptors - kept).min(CONNECTIONS_MAX)
}

async fn serve_one(
    http: http1::Builder,
    stream: TcpStream,
    router: Router,
    mut phase: watch::Receiver<Phase>,
) {
    let service = TowerToHyperService::new(router);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    loop {
        let next = if *phase.borrow() == Phase::Open { Phase::Draining } else { Phase::Over };
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = reached(&mut phase, next) => None,
        };
        match ended {
            Some(Ok(())) => return,
            Some(Err(error)) => return tracing::trace!(%error, "a connection ended early"),
            None if next == Phase::Over => return,
            None => connection.as_mut().graceful_shutdown(),
        }
    }
}

/// Returns when the venue is as far as this, or nobody is left who could say so.
async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Notify;

    /// Connections that serve `/now`, and `/never`, which says that it was asked and never answers;
    /// and a client's stream.
    async fn serving(asked: Arc<Notify>) -> (Connections, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::new();
        let router = Router::new().route("/now", get(|| async { "now" })).route(
            "/never",
            get(async move || {
                asked.notify_one();
                std::future::pending::<&str>().await
            }),
        );
        let serving = connections.clone();
        tokio::spawn(async move { serving.serve(listener, router).await });
        (connections, TcpStream::connect(address).await.unwrap())
    }

    async fn ask(client: &mut TcpStream, path: &str) {
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
        ask(&mut client, "/now").await;
        let mut first = [0; 12];
        client.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        connections.stop();
        assert!(connections.ended(Duration::from_secs(20)).await);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_does_not_end_is_ended() {
        let asked = Arc::new(Notify::new());
        let (connections, mut client) = serving(Arc::clone(&asked)).await;
        ask(&mut client, "/never").await;
        asked.notified().await;
        connections.stop();
        assert!(!connections.ended(Duration::from_millis(1)).await);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
    }
}

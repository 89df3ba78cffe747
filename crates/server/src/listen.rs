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

use crate::limits::{CONNECTION_BUFFER_BYTES, CONNECTIONS_MAX, HEAD_TIME_MAX};

/// How long to wait after a connection could not be accepted, which means that descriptors or
/// memory are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Ends connections when it is told to, and knows when all have ended.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    stopping: watch::Sender<bool>,
    open: Arc<Semaphore>,
}

impl Connections {
    pub(crate) fn new() -> Self {
        Connections {
            stopping: watch::Sender::new(false),
            open: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }

    /// Accepts and serves connections until it is told to stop.
    pub(crate) async fn serve(&self, listener: TcpListener, router: Router) {
        let mut stopping = self.stopping.subscribe();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_buf_size(CONNECTION_BUFFER_BYTES)
            .keep_alive(true);
        loop {
            let accepted = tokio::select! {
                accepted = self.accept(&listener) => accepted,
                () = told(&mut stopping) => return,
            };
            match accepted {
                Ok((stream, place)) => {
                    let serving = serve_one(http.clone(), stream, router.clone(), stopping.clone());
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
        self.stopping.send_replace(true);
    }

    /// Waits until all connections have ended, or a time has passed; whether they have.
    pub(crate) async fn ended(&self, within: Duration) -> bool {
        let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
        matches!(tokio::time::timeout(within, self.open.acquire_many(all)).await, Ok(Ok(_)))
    }
}

async fn serve_one(
    http: http1::Builder,
    stream: TcpStream,
    router: Router,
    mut stopping: watch::Receiver<bool>,
) {
    let service = TowerToHyperService::new(router);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = told(&mut stopping) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection ended early");
    }
}

/// Returns when the venue stops.
async fn told(stopping: &mut watch::Receiver<bool>) {
    // An error means that nobody is left who could tell.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

//! A server that counts the requests it receives, for operations that send requests.
//!
//! `/hold/…` is answered when the gate is open; `/hops/N` is a chain of N redirects, each of which
//! also waits for the gate. Everything else is answered at once. A request is counted when its head
//! has arrived, before the response.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::TIMEOUT;

/// The server, which stops when this is dropped.
pub struct Target {
    /// The address on which it listens.
    pub address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    /// The number of requests per path.
    seen: watch::Sender<BTreeMap<String, usize>>,
    is_open: watch::Sender<bool>,
}

impl Target {
    /// A server on a free port, its gate closed.
    pub async fn start() -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            seen: watch::Sender::new(BTreeMap::new()),
            is_open: watch::Sender::new(false),
        });
        let serving = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&serving), stream));
            }
        });
        Target { address, state, task }
    }

    /// A URL of this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Opens the gate permanently.
    pub fn open(&self) {
        self.state.is_open.send_replace(true);
    }

    /// The number of requests for a path.
    pub fn count(&self, path: &str) -> usize {
        self.state.seen.borrow().get(path).copied().unwrap_or(0)
    }

    /// The total number of requests.
    pub fn total(&self) -> usize {
        self.state.seen.borrow().values().sum()
    }

    /// Waits until a path has been requested.
    pub async fn arrived(&self, path: &str) {
        let mut seen = self.state.seen.subscribe();
        let arriving = seen.wait_for(|seen| seen.contains_key(path));
        tokio::time::timeout(TIMEOUT, arriving).await.unwrap().unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(state: Arc<State>, stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    // A closed connection is not an error.
    while let Some(path) = next_request(&mut stream).await {
        state.seen.send_modify(|seen| *seen.entry(path.clone()).or_insert(0) += 1);
        if path.starts_with("/hold/") || path.starts_with("/hops/") {
            let mut is_open = state.is_open.subscribe();
            if is_open.wait_for(|is_open| *is_open).await.is_err() {
                return;
            }
        }
        if stream.get_mut().write_all(answer(&path).as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(path: &str) -> String {
    let hops = path.strip_prefix("/hops/").and_then(|hops| hops.parse::<u32>().ok());
    match hops.filter(|hops| *hops > 0) {
        Some(hops) => {
            let next = hops - 1;
            format!("HTTP/1.1 302 Found\r\nlocation: /hops/{next}\r\ncontent-length: 0\r\n\r\n")
        }
        None => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned(),
    }
}

async fn next_request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let mut len = 0;
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                len = value.trim().parse().ok()?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await.ok()?;
    Some(path)
}

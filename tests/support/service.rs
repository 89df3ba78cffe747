//! A server whose answers a test decides, and which keeps the requests that it received.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The server, which stops when this is dropped.
pub struct Service {
    address: SocketAddr,
    received: Received,
    task: JoinHandle<()>,
}

type Received = Arc<Mutex<Vec<ReceivedRequest>>>;
type Answer = Arc<dyn Fn(&ReceivedRequest) -> String + Send + Sync>;

/// A request that the server received.
#[derive(Debug, Clone, Default)]
pub struct ReceivedRequest {
    /// The path.
    pub path: String,
    /// The headers, by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
    /// How many requests for this path were received, including this one.
    pub number: usize,
}

impl Service {
    /// A server on a free port. `answer` returns the complete response to a request.
    pub async fn start(
        answer: impl Fn(&ReceivedRequest) -> String + Send + Sync + 'static,
    ) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Received::default();
        let kept = Arc::clone(&received);
        let answer: Answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&kept), Arc::clone(&answer), stream));
            }
        });
        Service { address, received, task }
    }

    /// Its host and port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// A URL of this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests for a path, in the order of their arrival.
    pub fn received(&self, path: &str) -> Vec<ReceivedRequest> {
        let received = self.received.lock().unwrap();
        received.iter().filter(|request| request.path == path).cloned().collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A response with this status, further headers and body.
pub fn response(status: u16, headers: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status} X\r\n{headers}content-length: {len}\r\n\r\n{body}")
}

/// A response with a JSON body.
pub fn json_response(status: u16, body: &str) -> String {
    response(status, "content-type: application/json; charset=utf-8\r\n", body)
}

async fn serve(received: Received, answer: Answer, stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    // A closed connection is not an error.
    while let Some(mut request) = next_request(&mut stream).await {
        let text = {
            let mut received = received.lock().unwrap();
            let before = received.iter().filter(|other| other.path == request.path).count();
            request.number = before + 1;
            received.push(request.clone());
            answer(&request)
        };
        if stream.get_mut().write_all(text.as_bytes()).await.is_err() {
            return;
        }
        if text.contains("\r\nconnection: close\r\n") {
            drop(stream.get_mut().shutdown().await);
            return;
        }
    }
}

async fn next_request(stream: &mut BufReader<TcpStream>) -> Option<ReceivedRequest> {
    let mut request = ReceivedRequest::default();
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    request.path = line.split(' ').nth(1)?.to_owned();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        request.headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let len = request.headers.get("content-length").map_or(Some(0), |len| len.parse().ok())?;
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await.ok()?;
    request.body = String::from_utf8(body).ok()?;
    Some(request)
}

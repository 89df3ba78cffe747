//! A fake venue whose answers a test controls.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// A request that the fake venue received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Method and path: `POST /api/v1/invoke`.
    pub target: String,
    /// The head of the request, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
    /// When it was received.
    pub at: Instant,
}

impl ReceivedRequest {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        Some(line[name.len() + 1..].trim())
    }

    /// Returns true if the request invokes an operation.
    pub fn is_invocation(&self) -> bool {
        self.target == "POST /api/v1/invoke"
    }

    /// Returns true if the request reads a job.
    pub fn is_job_read(&self) -> bool {
        self.target.starts_with("GET /api/v1/jobs/") && !self.target.contains("/history")
    }
}

/// An answer of the fake venue.
pub enum Reply {
    /// A JSON document with this status.
    Json(u16, Json),
    /// Raw bytes.
    Raw(String),
    /// A body that does not end.
    Endless,
    /// No answer: the connection is closed.
    Nothing,
}

/// The ID of the only job of a fake venue.
pub const JOB: &str = "0x019c0000000070008000000000000001";

/// The JSON of that job with this status.
pub fn job(status: &str) -> Json {
    json!({"id": JOB, "status": status, "output": {"n": 1}})
}

/// A fake venue on a loopback port.
pub struct FakeVenue {
    pub url: String,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl FakeVenue {
    /// Starts a venue. `answer` gets each request together with those before it; where it returns
    /// `None`, the venue behaves as one without histories, whose job is STARTED and then COMPLETE.
    pub async fn start(
        answer: impl Fn(&ReceivedRequest, &[ReceivedRequest]) -> Option<Reply> + Send + Sync + 'static,
    ) -> FakeVenue {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let answer = Arc::new(answer);
        let log = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = Arc::clone(&answer);
                let log = Arc::clone(&log);
                tokio::spawn(async move { serve(stream, &*answer, &log).await });
            }
        });
        FakeVenue { url, received }
    }

    /// Every request so far.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().clone()
    }

    /// The requests that invoke an operation.
    pub fn invocations(&self) -> Vec<ReceivedRequest> {
        self.received().into_iter().filter(ReceivedRequest::is_invocation).collect()
    }
}

fn default_reply(request: &ReceivedRequest) -> Reply {
    match request.target.as_str() {
        "GET /api/v1/status" => {
            Reply::Json(200, json!({"did": "did:key:fake", "delegation": "scoped"}))
        }
        "POST /api/v1/invoke" => Reply::Json(201, job("STARTED")),
        _ if request.is_job_read() => Reply::Json(200, job("COMPLETE")),
        _ => Reply::Json(404, json!({"error": "there is no such thing"})),
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&ReceivedRequest, &[ReceivedRequest]) -> Option<Reply> + ?Sized),
    log: &Mutex<Vec<ReceivedRequest>>,
) {
    let Some(request) = read(&mut stream).await else { return };
    let before = log.lock().clone();
    let reply = answer(&request, &before).unwrap_or_else(|| default_reply(&request));
    log.lock().push(request);
    let raw = match reply {
        Reply::Json(status, body) => {
            let body = body.to_string();
            format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }
        Reply::Raw(raw) => raw,
        Reply::Nothing => return,
        Reply::Endless => {
            let head = "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n";
            if stream.write_all(head.as_bytes()).await.is_err() {
                return;
            }
            let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
            return;
        }
    };
    // The client may have closed the connection.
    let _ = stream.write_all(raw.as_bytes()).await;
}

async fn read(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let target = head.split(' ').take(2).collect::<Vec<_>>().join(" ");
            let head = head.to_lowercase();
            let request =
                ReceivedRequest { target, head, body: body.to_owned(), at: Instant::now() };
            let length =
                request.header("content-length").map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return Some(request);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

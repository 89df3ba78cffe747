//! A venue that answers as a test wants it to.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// A request that reached it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Method and path: `POST /api/v1/invoke`.
    pub what: String,
    /// The head, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
    /// When it came.
    pub at: Instant,
}

impl Asked {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        Some(line[name.len() + 1..].trim())
    }

    /// Whether it begins a job.
    pub fn begins(&self) -> bool {
        self.what == "POST /api/v1/invoke"
    }

    /// Whether it looks at a job.
    pub fn looks(&self) -> bool {
        self.what.starts_with("GET /api/v1/jobs/") && !self.what.contains("/history")
    }
}

/// How it answers.
pub enum Reply {
    /// With JSON.
    Json(u16, Json),
    /// With these bytes.
    Raw(String),
    /// With a body that does not end.
    Endless,
    /// Not at all.
    Nothing,
}

/// The ID of its only job.
pub const JOB: &str = "0x019c0000000070008000000000000001";

/// A job of its own.
pub fn job(status: &str) -> Json {
    json!({"id": JOB, "status": status, "output": {"n": 1}})
}

/// A venue that plays the part.
pub struct Fake {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    /// Answers requests, each with those that came before it. Where a test has nothing to say, it
    /// is a plain venue without histories, whose job is STARTED and then COMPLETE.
    pub async fn start(
        answer: impl Fn(&Asked, &[Asked]) -> Option<Reply> + Send + Sync + 'static,
    ) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (answer, kept) = (Arc::new(answer), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                tokio::spawn(async move { serve(stream, &*answer, &kept).await });
            }
        });
        Fake { url, asked }
    }

    /// What reached it.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    /// The requests to begin a job.
    pub fn begun(&self) -> Vec<Asked> {
        self.asked().into_iter().filter(Asked::begins).collect()
    }
}

fn usual(asked: &Asked) -> Reply {
    match asked.what.as_str() {
        "GET /api/v1/status" => Reply::Json(200, json!({"did": "did:key:fake"})),
        "POST /api/v1/invoke" => Reply::Json(201, job("STARTED")),
        _ if asked.looks() => Reply::Json(200, job("COMPLETE")),
        _ => Reply::Json(404, json!({"error": "there is no such thing"})),
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&Asked, &[Asked]) -> Option<Reply> + ?Sized),
    kept: &Mutex<Vec<Asked>>,
) {
    let Some(asked) = read(&mut stream).await else { return };
    let before = kept.lock().clone();
    let reply = answer(&asked, &before).unwrap_or_else(|| usual(&asked));
    kept.lock().push(asked);
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
    // Whoever asked may have gone.
    let _ = stream.write_all(raw.as_bytes()).await;
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let what = head.split(' ').take(2).collect::<Vec<_>>().join(" ");
            let head = head.to_lowercase();
            let asked = Asked { what, head, body: body.to_owned(), at: Instant::now() };
            let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return Some(asked);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

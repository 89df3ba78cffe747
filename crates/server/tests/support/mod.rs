//! A venue on a free port, an adapter with a few operations, and a small HTTP client.
#![allow(dead_code, reason = "every test file uses another part")]

use std::sync::Arc;
use std::time::Duration;

use catena_engine::operations::{
    Adapter, Call, Cause, ExecutionMode, Failure, Registration, Turn, TurnFuture,
};
use catena_job::state::Ask;
use catena_server::Venue;
use catena_server::config::{Config, Flags};
use catena_value::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Longest time that any test waits for something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An adapter whose operations behave as tests need: `echo` returns its input, `never` does not end,
/// `fail` fails, `ask` asks for messages until one is `{"content": "done"}`, `auth` asks for
/// authorisation, `report` reports each of its `reports` as progress, `flaky` fails once, and `once`
/// may not be repeated.
#[derive(Default)]
pub(crate) struct Try {
    /// The name of an operation to leave out.
    pub(crate) without: &'static str,
}

impl Adapter for Try {
    fn name(&self) -> &'static str {
        "try"
    }

    fn description(&self) -> &'static str {
        "Operations for these tests."
    }

    fn operations(&self) -> Vec<Registration> {
        let operation = |name: &'static str, mode: ExecutionMode, more: &str| {
            let is_idempotent = name != "once";
            let metadata = format!(
                r#"{{"name":"{name}","description":"For tests.","operation":{{"adapter":"try:{name}","idempotent":{is_idempotent}{more}}}}}"#
            );
            Registration { name, metadata: value(&metadata), mode }
        };
        let strict = r#","input":{"type":"object","required":["n"]}"#;
        let retry = r#","retry":{"attempts":2,"backoffMs":1}"#;
        let all = vec![
            operation("auth", ExecutionMode::Task, ""),
            operation("report", ExecutionMode::Task, ""),
            operation("flaky", ExecutionMode::Task, retry),
            operation("once", ExecutionMode::Task, ""),
            operation("echo", ExecutionMode::Inline, ""),
            operation("peek", ExecutionMode::Inline, r#","readOnly":true"#),
            operation("strict", ExecutionMode::Inline, strict),
            operation("never", ExecutionMode::Task, ""),
            operation("fail", ExecutionMode::Task, ""),
            operation("ask", ExecutionMode::Task, ""),
        ];
        all.into_iter().filter(|operation| operation.name != self.without).collect()
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        Ok(call.input.clone())
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(async move {
            match call.operation.name() {
                "fail" => Turn::Failed(Failure::new("asked_to", "it was asked to fail")),
                "ask" => match &call.cause {
                    Cause::Message(message) if field(message, "content") == "done".into() => {
                        Turn::Complete("bye".into())
                    }
                    _ => Turn::NeedsInput(Ask { message: Some("more?".to_owned()), output: None }),
                },
                "auth" => Turn::NeedsAuth(Ask::default()),
                "flaky" if call.attempt > 1 => Turn::Complete(call.attempt.into()),
                "flaky" => {
                    Turn::Failed(Failure::transient("shaky", "the first attempt always fails"))
                }
                "report" => {
                    for report in items(&field(&call.input, "reports")) {
                        call.control.report(report);
                        call.control.sleep(Duration::from_millis(30)).await;
                    }
                    match field(&call.input, "ends").as_bool() {
                        Some(true) => Turn::Complete(Value::Nil),
                        _ => std::future::pending().await,
                    }
                }
                _ => std::future::pending().await,
            }
        })
    }
}

/// A venue and its folder.
pub(crate) struct Running {
    pub(crate) venue: Option<Venue>,
    pub(crate) folder: TempDir,
    host: String,
}

/// Starts a venue in a new folder, with changed settings.
pub(crate) async fn venue(change: impl FnOnce(&mut Flags)) -> Running {
    let folder = tempfile::tempdir().unwrap();
    venue_in(folder, change).await
}

/// Runs one process lifetime on a runtime of its own: tasks that still run at its end are dropped.
pub(crate) fn run_process<T>(run: impl AsyncFnOnce() -> T) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run())
}

/// Starts a venue in an existing folder.
pub(crate) async fn venue_in(folder: TempDir, change: impl FnOnce(&mut Flags)) -> Running {
    venue_with(folder, Try::default(), change).await
}

/// Starts a venue in an existing folder, with this adapter.
pub(crate) async fn venue_with(
    folder: TempDir,
    adapter: Try,
    change: impl FnOnce(&mut Flags),
) -> Running {
    let data = folder.path().to_str().unwrap().to_owned();
    let mut flags = Flags {
        listen: Some("127.0.0.1:0".to_owned()),
        data: Some(data),
        grace: Some("1s".to_owned()),
        ..Flags::default()
    };
    change(&mut flags);
    let config = Config::layered(&flags, &|_| None, None).unwrap();
    let adapters: Vec<Arc<dyn Adapter>> = vec![Arc::new(adapter)];
    let venue = Venue::start(config, adapters, Vec::new()).await.unwrap();
    let host = venue.address().to_string();
    Running { venue: Some(venue), folder, host }
}

impl Running {
    /// Stops the venue and returns its folder.
    /// Leaves the venue as it is; what it runs ends with its runtime, as after `kill -9`.
    pub(crate) fn crash(mut self) -> TempDir {
        drop(self.venue.take());
        self.folder
    }

    pub(crate) async fn stop(mut self) -> TempDir {
        self.venue.take().unwrap().stop().await.unwrap();
        self.folder
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &[], "").await
    }

    pub(crate) async fn put(&self, path: &str) -> Reply {
        self.request("PUT", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.request("POST", path, &[], body).await
    }

    /// Invokes an operation and returns the job's ID.
    pub(crate) async fn invoke(&self, operation: &str) -> String {
        let body = format!(r#"{{"operation":"{operation}","input":{{"n":1}}}}"#);
        let reply = self.post("/api/v1/invoke", &body).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.field("id").as_str().unwrap().to_owned()
    }

    /// Reads the job until it has this status.
    pub(crate) async fn until(&self, id: &str, status: &str) -> Reply {
        let reading = async {
            loop {
                let headers = [("prefer", "wait=1")];
                let reply = self.request("GET", &format!("/api/v1/jobs/{id}"), &headers, "").await;
                if reply.field("status") == status.into() {
                    return reply;
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.unwrap()
    }

    /// Sends a request on a connection of its own and reads the response.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let exchange = async {
            let mut stream = self.send(method, path, headers, body).await;
            let (status, headers) = read_head(&mut stream).await;
            let mut body = Vec::new();
            stream.read_to_end(&mut body).await.unwrap();
            Reply::new(status, headers, body)
        };
        tokio::time::timeout(PATIENCE, exchange).await.unwrap()
    }

    /// Sends a request and returns the connection, from which the response can be read.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.host).await.unwrap();
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            text.push_str(&format!("host: {}\r\n", self.host));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(text.as_bytes()).await.unwrap();
        BufReader::new(stream)
    }
}

/// Reads the status and the headers of a response.
pub(crate) async fn read_head(stream: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    let mut headers = Vec::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
            None => return (status, headers),
        }
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn new(status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> Self {
        let is_chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
        let body = if is_chunked { dechunked(&body) } else { body };
        Reply { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn value(&self) -> Value {
        json::read(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn field(&self, name: &str) -> Value {
        field(&self.value(), name)
    }

    /// Asserts that it is an error with this status and code, and with all members of an error.
    #[track_caller]
    pub(crate) fn assert_error(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.field("code")), (status, code.into()), "{}", self.text());
        for name in ["error", "retry", "hint"] {
            assert!(self.field(name).as_str().is_some(), "no {name} in {}", self.text());
        }
    }
}

/// The body without the framing of chunks.
fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|pair| pair == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[end + 2..end + 2 + len]);
        body = &body[end + 4 + len..];
    }
    whole
}

pub(crate) fn value(text: &str) -> Value {
    json::read(text.as_bytes()).unwrap()
}

/// The items of an array.
pub(crate) fn items(value: &Value) -> Vec<Value> {
    let items = value.as_vector().unwrap_or_else(|| panic!("{value:?} is not an array"));
    items.iter(&catena_value::NoCells).map(Result::unwrap).collect()
}

pub(crate) fn field(value: &Value, name: &str) -> Value {
    value.as_map().and_then(|map| map.field(name)).cloned().unwrap_or(Value::Nil)
}

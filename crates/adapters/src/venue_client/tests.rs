//! The client of another venue against a loopback server with scripted answers.

use catena_api::limits::POLL_MAX;
use catena_engine::runtime::SystemEnv;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::fields::value;
use crate::options::Options;

/// Never paused. Its sleeps are recorded and take no time.
struct RecordingGate(mpsc::UnboundedSender<Duration>);

impl RecordingGate {
    fn new() -> (Self, mpsc::UnboundedReceiver<Duration>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (RecordingGate(sender), receiver)
    }
}

impl Gate for RecordingGate {
    async fn proceed(&self) {}

    async fn sleep(&self, time: Duration) {
        if time > POLL_MAX || time == crate::limits::CONNECT_TIME {
            // The time limit of a request, which must not expire here.
            return std::future::pending().await;
        }
        let _ = self.0.send(time);
    }
}

/// A venue that sends these answers one after the other and repeats the last one.
async fn venue(answers: &[(u16, &str)]) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::unbounded_channel();
    let answers: Vec<_> = answers
        .iter()
        .map(|(status, body)| {
            format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        })
        .collect();
    tokio::spawn(async move {
        for at in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap();
            let text = String::from_utf8_lossy(&request[..length]).into_owned();
            drop(sender.send(text));
            let answer = answers.get(at).or(answers.last()).unwrap();
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    (url, requests)
}

fn client(url: &str) -> VenueClient {
    let outbound = Arc::new(Outbound::new(Options::parse([], [url]).unwrap()));
    VenueClient::new(outbound, url).unwrap()
}

fn job(status: &str) -> String {
    format!(r#"{{"id":"0x01","status":"{status}","output":{{"n":1}},"error":"no luck"}}"#)
}

#[tokio::test]
async fn an_operation_is_invoked_as_clients_do() {
    let (url, mut requests) = venue(&[(201, &job("PENDING"))]).await;
    let (gate, _) = RecordingGate::new();
    let operation = "test:echo".to_owned();
    let echo = Invocation { operation, input: Some(value("[1]")), ..Invocation::default() };
    let invoked = client(&url).invoke(&echo, &gate).await.unwrap();
    assert_eq!((invoked.id.as_str(), invoked.status), ("0x01", Status::Pending));
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("POST /api/v1/invoke HTTP/1.1\r\n"), "{request}");
    assert!(!request.contains("authorization"), "{request}");
    let body = request.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(value(body), value(r#"{"operation":"test:echo","input":[1]}"#));
}

#[tokio::test]
async fn a_job_is_polled_until_it_ends_at_growing_intervals() {
    let pending = job("STARTED");
    let complete = job("COMPLETE");
    let mut answers = vec![(200, pending.as_str()); 12];
    answers.push((200, &complete));
    let (url, mut requests) = venue(&answers).await;
    let (gate, mut sleeps) = RecordingGate::new();
    let begun = FetchedJob::parse(value(&pending)).unwrap();
    let ended = client(&url).wait(begun, &gate).await.unwrap();
    assert_eq!(ended.outcome().unwrap(), value(r#"{"n":1}"#));
    assert!(requests.recv().await.unwrap().starts_with("GET /api/v1/jobs/0x01?steps=brief "));
    drop(gate);
    let mut slept = Vec::new();
    while let Some(time) = sleeps.recv().await {
        slept.push(time.as_millis());
    }
    assert_eq!(slept[..4], [300, 450, 675, 1012]);
    assert_eq!(slept[11..], [10_000, 10_000]);
}

#[tokio::test]
async fn a_few_failed_reads_do_not_end_the_wait() {
    let complete = job("COMPLETE");
    let busy = (503, "{}");
    let begun = FetchedJob::parse(value(&job("STARTED"))).unwrap();
    let (gate, _sleeps) = RecordingGate::new();
    let (url, _requests) = venue(&[busy, busy, (429, "{}"), (200, &complete)]).await;
    let ended = client(&url).wait(begun.clone(), &gate).await.unwrap();
    assert_eq!(ended.status, Status::Complete);
    let (url, mut requests) = venue(&[busy]).await;
    let failure = client(&url).wait(begun.clone(), &gate).await.unwrap_err();
    assert_eq!(failure.code, "remote_trouble");
    let reads = std::iter::from_fn(|| requests.try_recv().ok()).count();
    assert_eq!(reads, POLL_FAILURES_MAX as usize + 1);
    let (url, mut requests) = venue(&[(404, r#"{"error":"no such job"}"#)]).await;
    let failure = client(&url).wait(begun, &gate).await.unwrap_err();
    assert_eq!(failure.error, format!("venue {url} answered 404: no such job"));
    assert_eq!(std::iter::from_fn(|| requests.try_recv().ok()).count(), 1);
}

#[tokio::test]
async fn a_job_that_failed_is_a_failure_with_its_error() {
    let failed = FetchedJob::parse(value(&job("FAILED"))).unwrap();
    assert_eq!(failed.outcome().unwrap_err().error, "no luck (job 0x01 is FAILED)");
}

#[tokio::test]
async fn what_is_not_a_job_is_refused() {
    let (gate, _sleeps) = RecordingGate::new();
    for answer in [
        "[]",
        "<html>",
        "{}",
        r#"{"id":"0x1","status":"DONE"}"#,
        r#"{"id":"../x","status":"FAILED"}"#,
    ] {
        let (url, _requests) = venue(&[(200, answer)]).await;
        let failure = client(&url).job("0x01", &gate).await.unwrap_err();
        assert_eq!(failure.code, "remote_malformed", "{answer}");
    }
    let (url, _requests) = venue(&[(302, "")]).await;
    assert_eq!(client(&url).job("0x01", &gate).await.unwrap_err().code, "remote_refused");
    assert_eq!(client(&url).job("../secrets", &gate).await.unwrap_err().code, "invalid_input");
}

#[test]
fn a_venue_that_is_not_listed_is_not_contacted() {
    let outbound = Arc::new(Outbound::new(Options::default()));
    let refused = VenueClient::new(outbound.clone(), "did:web:venue.example").unwrap_err();
    assert_eq!(refused.code, "outbound_refused");
    assert!(refused.error.ends_with("--allow-venue https://venue.example"), "{}", refused.error);
    assert_eq!(VenueClient::new(outbound, "did:key:z6Mk").unwrap_err().code, "invalid_url");
}

#[tokio::test]
async fn dropping_the_guard_cancels_the_remote_job() {
    let (url, mut requests) = venue(&[(200, &job("CANCELLED"))]).await;
    let env: Arc<dyn Env> = Arc::new(SystemEnv::new());
    let guard = |should_cancel: bool| {
        RemoteGuard::new(client(&url), "0x01".to_owned(), env.clone(), move || should_cancel)
    };
    guard(true).disarm();
    drop(guard(false));
    drop(guard(true));
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("PUT /api/v1/jobs/0x01/cancel "), "{request}");
    assert!(requests.try_recv().is_err());
}

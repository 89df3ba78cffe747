//! The client against a server with scripted answers: what it sends, when it repeats a request, and
//! which answers it accepts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::sync::{Arc, Mutex};

use catena_api::client::jobs::{Invocation, JobQuery};
use catena_api::client::{ClientError, Credentials, HttpClient, TransportError, Update};
use catena_auth::KeyPair;
use catena_value::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The requests that a server received: the connection's number, and head and body of the request.
type Asked = Arc<Mutex<Vec<(usize, String)>>>;

/// A server that answers the n-th request with the n-th answer, and repeats the last answer.
async fn server(answers: Vec<String>) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        let answers = Arc::new(answers);
        let mut number = 0;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            number += 1;
            tokio::spawn(serve(stream, number, Arc::clone(&answers), Arc::clone(&seen)));
        }
    });
    (url, asked)
}

/// Serves one connection until an answer says `connection: close`.
async fn serve(mut stream: TcpStream, number: usize, answers: Arc<Vec<String>>, asked: Asked) {
    while let Some(request) = read_request(&mut stream).await {
        let answer = {
            let mut asked = asked.lock().unwrap();
            asked.push((number, request));
            answers[(asked.len() - 1).min(answers.len() - 1)].clone()
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
        if answer.contains("connection: close") {
            return;
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => text.push_str(str::from_utf8(&buffer[..count]).unwrap()),
        }
    }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn ok(body: &str) -> String {
    answer("200 OK", "", body)
}

fn stream(events: &str) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    format!("{head}{events}")
}

fn client(url: &str) -> HttpClient {
    HttpClient::connect(url.parse().unwrap(), Credentials::Anonymous)
}

fn heads(asked: &Asked) -> Vec<String> {
    let first = |text: &String| text.lines().next().unwrap().to_owned();
    asked.lock().unwrap().iter().map(|(_, text)| first(text)).collect()
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let (url, asked) = server(vec![ok(r#"{"id":"a"}"#)]).await;
    let client = client(&url);
    for _ in 0..3 {
        client.job("a").await.unwrap();
    }
    let connections: Vec<usize> = asked.lock().unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(connections, [1, 1, 1]);
}

#[tokio::test]
async fn a_connection_that_was_closed_is_replaced() {
    let closing = answer("200 OK", "connection: close\r\n", r#"{"id":"a"}"#);
    let (url, asked) = server(vec![closing]).await;
    let client = client(&url);
    for _ in 0..3 {
        client.job("a").await.unwrap();
    }
    assert_eq!(asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn numbers_stay_exact_both_ways() {
    let exact = r#"{"output":[1,1.0,12345678901234567890123]}"#;
    let (url, asked) = server(vec![ok(exact)]).await;
    let value = json::read(exact.as_bytes()).unwrap();
    let invocation = Invocation {
        operation: "test:echo".to_owned(),
        input: Some(value.clone()),
        ..Invocation::default()
    };
    assert_eq!(client(&url).invoke(&invocation).await.unwrap(), value);
    let asked = asked.lock().unwrap();
    let body = asked[0].1.split_once("\r\n\r\n").unwrap().1;
    let sent = json::read(body.as_bytes()).unwrap();
    assert_eq!(sent.as_map().unwrap().field("input"), Some(&value));
}

#[tokio::test]
async fn a_rate_limited_request_is_sent_again() {
    let refused = answer("429 Too Many Requests", "retry-after: 0\r\n", r#"{"error":"slowly"}"#);
    let (url, asked) = server(vec![refused.clone(), refused.clone(), ok("{}")]).await;
    client(&url).invoke(&Invocation::default()).await.unwrap();
    assert_eq!(heads(&asked), ["POST /api/v1/invoke HTTP/1.1"; 3]);
    let (url, asked) = server(vec![refused]).await;
    let error = client(&url).job("a").await.unwrap_err();
    assert!(matches!(&error, ClientError::Busy(refusal) if refusal.status == 429), "{error:?}");
    assert_eq!(asked.lock().unwrap().len(), 4, "four attempts in all");
    let long = answer("429 Too Many Requests", "retry-after: 3600\r\n", "{}");
    let (url, asked) = server(vec![long]).await;
    assert!(client(&url).job("a").await.is_err());
    assert_eq!(asked.lock().unwrap().len(), 1, "beyond the budget");
}

#[tokio::test]
async fn nothing_else_is_sent_again() {
    let (url, asked) = server(vec![answer("500 Oh", "", r#"{"error":"x"}"#)]).await;
    assert!(client(&url).invoke(&Invocation::default()).await.unwrap_err().is_transient());
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_signs_for_the_venue_it_asks() {
    let document = ok(r#"{"id":"did:key:venue"}"#);
    let (url, asked) = server(vec![document, ok("{}")]).await;
    let key = KeyPair::from_seed(&[5; 32]);
    let client = HttpClient::connect(url.parse().unwrap(), Credentials::Key(Box::new(key.clone())));
    client.job("a").await.unwrap();
    client.job("b").await.unwrap();
    assert_eq!(
        heads(&asked),
        [
            "GET /.well-known/did.json HTTP/1.1",
            "GET /api/v1/jobs/a HTTP/1.1",
            "GET /api/v1/jobs/b HTTP/1.1"
        ]
    );
    let asked = asked.lock().unwrap();
    assert!(!asked[0].1.contains("authorization"), "{}", asked[0].1);
    let token = asked[1].1.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
    let token = catena_auth::Token::parse(token.unwrap()).unwrap();
    assert!(token.is_signed_by(&key.public()));
    assert_eq!(token.text("aud"), Some("did:key:venue"));
    assert_eq!(token.text("sub"), Some(key.did().as_str()));
}

#[tokio::test]
async fn a_token_is_sent_and_never_shown() {
    let (url, asked) = server(vec![ok("{}")]).await;
    let client = HttpClient::connect(url.parse().unwrap(), Credentials::Token("secret".to_owned()));
    client.job("a").await.unwrap();
    assert!(asked.lock().unwrap()[0].1.contains("authorization: Bearer secret"));
    assert!(!format!("{client:?}").contains("secret"));
}

#[tokio::test]
async fn pages_of_a_history_become_one_document() {
    let pages = [
        r#"{"records":[{"id":"a"},{"id":"b"}],"total":3,"next":2}"#,
        r#"{"records":[{"id":"c"}],"total":3}"#,
    ];
    let (url, asked) = server(pages.map(ok).to_vec()).await;
    let history = client(&url).history("j").await.unwrap();
    let expected = r#"{"records":[{"id":"a"},{"id":"b"},{"id":"c"}],"total":3}"#;
    assert_eq!(history, json::read(expected.as_bytes()).unwrap());
    assert_eq!(heads(&asked)[1], "GET /api/v1/jobs/j/history?from=2&limit=1000 HTTP/1.1");
    let (url, _) = server(vec![ok(r#"{"records":[],"next":0}"#)]).await;
    let error = client(&url).history("j").await.unwrap_err();
    assert!(matches!(error, ClientError::Malformed { .. }), "{error:?}");
}

#[tokio::test]
async fn lists_of_other_venues_are_ids() {
    let (url, asked) = server(vec![ok(r#"{"items":["aa"],"total":1}"#)]).await;
    let query = JobQuery { tag: Some("a b".to_owned()), limit: 5_000, ..JobQuery::default() };
    let page = client(&url).jobs(&query).await.unwrap();
    assert_eq!((page.items, page.total), (vec![Value::from("aa")], 1));
    assert!(heads(&asked)[0].contains("&limit=1000&tag=a%20b "), "{:?}", heads(&asked));
}

async fn followed(url: &str) -> Vec<Update> {
    let mut follow = client(url).follow("j");
    let mut updates = Vec::new();
    while let Some(update) = follow.next().await.unwrap() {
        updates.push(update);
    }
    updates
}

fn job(status: &str) -> Update {
    Update::Job(json::read(format!(r#"{{"status":"{status}"}}"#).as_bytes()).unwrap())
}

#[tokio::test]
async fn a_stream_that_breaks_is_opened_again_where_it_broke() {
    let first = "retry: 1\r\nevent: job-update\r\nid: 4\r\ndata: {\"status\":\"STARTED\"}\r\n\r\n";
    let second = "event: progress\ndata: {\"n\":1}\n\nid: 5\ndata: {\"status\":\"COMPLETE\"}\n\n";
    let (url, asked) = server(vec![stream(first), stream(second)]).await;
    let progress = Update::Progress(json::read(br#"{"n":1}"#).unwrap());
    assert_eq!(followed(&url).await, [job("STARTED"), progress, job("COMPLETE")]);
    let asked = asked.lock().unwrap();
    assert!(!asked[0].1.contains("last-event-id"));
    assert!(asked[1].1.contains("last-event-id: 4\r\n"), "{}", asked[1].1);
    assert_eq!(asked.len(), 2, "nothing is asked after the end");
}

#[tokio::test]
async fn without_events_the_job_is_polled() {
    let missing = answer("404 Not Found", "", r#"{"error":"Endpoint GET /x not found"}"#);
    let started = ok(r#"{"status":"STARTED"}"#);
    let done = ok(r#"{"status":"COMPLETE"}"#);
    let (url, asked) = server(vec![missing, started.clone(), started, done]).await;
    assert_eq!(followed(&url).await, [job("STARTED"), job("COMPLETE")], "changes only");
    assert_eq!(asked.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn a_job_that_is_gone_ends_the_following() {
    let missing = answer("404 Not Found", "", r#"{"error":"no job","code":"job_not_found"}"#);
    let (url, _) = server(vec![missing]).await;
    let error = client(&url).follow("j").next().await.unwrap_err();
    assert!(matches!(error, ClientError::NotFound(_)), "{error:?}");
}

#[tokio::test]
async fn what_is_not_a_venue_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = client(&format!("http://{free}")).job("a").await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Transport(TransportError::Unreachable { .. })),
        "{error:?}"
    );
    assert!(error.to_string().ends_with("connection refused"), "{error}");
    let mut follow = client(&format!("http://{free}")).follow("j");
    assert!(follow.next().await.is_err(), "reported at once");
    let (url, _) = server(vec!["220 mail.example ESMTP\r\n\r\n".to_owned()]).await;
    let error = client(&url).job("a").await.unwrap_err();
    assert!(error.to_string().ends_with("does not speak HTTP"), "{error}");
    let (url, _) = server(vec![ok("<html>")]).await;
    let error = client(&url).job("a").await.unwrap_err();
    assert!(matches!(error, ClientError::Malformed { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_to_a_silent_venue_times_out() {
    // It accepts the connection and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let error = client(&url).job("a").await.unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::Transport(
                TransportError::TimedOut { .. } | TransportError::Unreachable { .. }
            )
        ),
        "{error:?}"
    );
}

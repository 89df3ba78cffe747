//! Bytes that are no proper requests, and clients that misuse connections.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Victim;

/// How long an attack waits for an answer before it gives up: a venue may well not answer it.
const PATIENCE: Duration = Duration::from_millis(500);

/// The largest part of an answer that is read.
const ANSWER_BYTES: usize = 64 * 1024;

/// The digest of 300,000 times `x`.
const CONTENT_DIGEST: &str =
    "sha256:29927e273accc68286005017f7fa6e4f27bddb4db3083ff8b8d4c3667905b7fa";

/// Connections of one attack.
const MANY: usize = 200;

impl Victim {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.attacker.address).await.unwrap()
    }

    /// Bytes with the venue's address in place of `HOST`.
    fn addressed(&self, bytes: &[u8]) -> Vec<u8> {
        let address = self.attacker.address.to_string();
        let mut rest = bytes;
        let mut addressed = Vec::new();
        while let Some(at) = rest.windows(4).position(|part| part == b"HOST") {
            addressed.extend_from_slice(&rest[..at]);
            addressed.extend_from_slice(address.as_bytes());
            rest = &rest[at + 4..];
        }
        addressed.extend_from_slice(rest);
        addressed
    }

    /// Sends bytes and returns the beginning of what the venue answers until it closes the connection, or
    /// for a moment.
    async fn send_raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        let bytes = &self.addressed(bytes);
        // The venue may close the connection before it has read everything.
        let _ = tokio::time::timeout(PATIENCE * 10, stream.write_all(bytes)).await;
        let mut answer = Vec::new();
        let mut reading = (&mut stream).take(ANSWER_BYTES as u64);
        let _ = tokio::time::timeout(PATIENCE, reading.read_to_end(&mut answer)).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// The head of a request to echo something, without the empty line at its end.
fn head(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: HOST\r\n{more}")
}

/// The statuses in an answer.
fn statuses(answer: &str) -> Vec<u16> {
    let lines = answer.split("HTTP/1.1 ").skip(1);
    lines.filter_map(|line| line.get(..3)?.parse().ok()).collect()
}

/// Bytes that must not be answered by a success, and what they try.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let many = |line: &str, count: usize| line.repeat(count);
    let echo = r#"{"operation":"test:echo","input":1}"#;
    let two_lengths = "content-length: 5\r\ncontent-length: 35\r\n\r\n";
    vec![
        ("1,000 headers", head("/api/v1/invoke", &(many("x-a: b\r\n", 1_000) + "\r\n")).into()),
        (
            "a header of 1 MB",
            head("/api/v1/invoke", &format!("x-a: {}\r\n\r\n", many("a", 1_000_000))).into(),
        ),
        ("a path of 1 MB", format!("GET /{} HTTP/1.1\r\n\r\n", many("a", 1_000_000)).into()),
        ("a name of 1 MB", head("/", &format!("{}: a\r\n\r\n", many("a", 1_000_000))).into()),
        (
            "a length of 10^30",
            head("/api/v1/invoke", &format!("content-length: 1{}\r\n\r\n", many("0", 30))).into(),
        ),
        ("a negative length", head("/api/v1/invoke", "content-length: -1\r\n\r\n").into()),
        ("two lengths", (head("/api/v1/invoke", two_lengths) + echo).into()),
        (
            "a length above the limit",
            head("/api/v1/invoke", "content-length: 99999999\r\n\r\n").into(),
        ),
        (
            "an unknown transfer encoding",
            (head("/api/v1/invoke", "transfer-encoding: xchunked\r\n\r\n") + echo).into(),
        ),
        (
            "a chunk of 2^64 bytes",
            (head("/api/v1/invoke", "transfer-encoding: chunked\r\n\r\n")
                + "FFFFFFFFFFFFFFFFF\r\nab\r\n")
                .into(),
        ),
        (
            "a chunk with a negative length",
            (head("/api/v1/invoke", "transfer-encoding: chunked\r\n\r\n") + "-5\r\nab\r\n").into(),
        ),
        (
            "endless chunks",
            (head("/api/v1/invoke", "transfer-encoding: chunked\r\n\r\n")
                + &many("400\r\n", 1)
                + &many(&format!("{}\r\n400\r\n", "a".repeat(1_024)), 12_000))
                .into(),
        ),
        (
            "endless chunk extensions",
            (head("/api/v1/invoke", "transfer-encoding: chunked\r\n\r\n")
                + &format!("5;{}", many("a=b;", 100_000)))
                .into(),
        ),
        ("nul bytes", b"GET /\0 HTTP/1.1\r\nhost: a\0b\r\n\r\n".to_vec()),
        ("no UTF-8 in the path", b"GET /api/\xff\xfe HTTP/1.1\r\n\r\n".to_vec()),
        ("HTTP/0.9", b"GET /api/v1/jobs\r\n".to_vec()),
        ("the beginning of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("the beginning of TLS", [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3], &[7; 500][..]].concat()),
        ("a folded header", head("/api/v1/invoke", "x-a: b\r\n c: d\r\n\r\n").into()),
        ("a space before the colon", head("/api/v1/invoke", "host : b\r\n\r\n").into()),
        ("line feeds only", b"POST /api/v1/invoke HTTP/1.1\n\nhost: a\n\n".to_vec()),
        (
            "random bytes",
            (0..10_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect(),
        ),
        ("a foreign host", b"GET /api/v1/jobs HTTP/1.1\r\nhost: evil.example\r\n\r\n".to_vec()),
        (
            "two hosts",
            b"GET /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n".to_vec(),
        ),
        (
            "a host with a user",
            b"GET /api/v1/jobs HTTP/1.1\r\nhost: localhost@evil.example\r\n\r\n".to_vec(),
        ),
        (
            "a foreign origin",
            b"GET /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\n\r\n"
                .to_vec(),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_malformed_request_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    for (name, bytes) in malformed() {
        let answer = venue.under(name, venue.send_raw(&bytes)).await;
        let statuses = statuses(&answer);
        assert!(statuses.iter().all(|status| (400..500).contains(status)), "{name}: {answer}");
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_cannot_hide_another_one() {
    let victim = Victim::start().await;
    let venue = &victim;
    let hidden = "GET /livez HTTP/1.1\r\nhost: HOST\r\n\r\n";
    for (name, more) in [
        ("length and chunks", "content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("chunks and length", "transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n"),
        (
            "two encodings",
            "transfer-encoding: chunked, identity\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
        ),
        (
            "a disguised encoding",
            "transfer-encoding:\x0bchunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
        ),
    ] {
        let bytes = head("/api/v1/invoke", more) + hidden;
        let answer = venue.under(name, venue.send_raw(bytes.as_bytes())).await;
        // Either the message is refused and nothing after it is read, or it ends where its chunks end,
        // and what follows is an ordinary request of its own.
        let statuses = statuses(&answer);
        assert!(statuses.first().is_none_or(|status| *status >= 400), "{name}: {answer}");
        assert!(statuses.len() <= 2, "{name}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_use_of_connections_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let echo = r#"{"operation":"test:echo","input":1}"#;
    let complete = |body: &str| {
        let length = format!("content-length: {}\r\n\r\n{body}", body.len());
        head("/api/v1/invoke", &length)
    };

    // Connections that send nothing, half a head, or half a body, and stay.
    let part_of_body = head("/api/v1/invoke", "content-length: 1000000\r\n\r\n") + "{\"op";
    let mut open = Vec::new();
    for number in 0..3 * MANY {
        let mut stream = venue.connect().await;
        match number % 3 {
            0 => {}
            1 => stream.write_all(b"POST /api/v1/invoke HTTP/1.1\r\nhost: 12").await.unwrap(),
            _ => stream.write_all(&venue.addressed(part_of_body.as_bytes())).await.unwrap(),
        }
        open.push(stream);
    }
    venue.under("600 connections that stay", venue.attacker.get("/livez")).await.expect(200);
    drop(open);

    // Clients that leave before they are answered.
    let leave = async {
        for number in 0..MANY {
            let mut stream = venue.connect().await;
            let request = venue.addressed(complete(echo).as_bytes());
            let bytes = if number % 2 == 0 { request.len() } else { request.len() / 2 };
            stream.write_all(&request[..bytes]).await.unwrap();
        }
    };
    venue.under("200 clients that leave", leave).await;

    // Many requests at once on one connection, whose answers nobody reads.
    let pipelined = complete(echo).repeat(1_000);
    let answer =
        venue.under("1,000 pipelined requests", venue.send_raw(pipelined.as_bytes())).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");

    for (name, more) in [
        (
            "a body that is expected and never sent",
            "expect: 100-continue\r\ncontent-length: 10\r\n\r\n",
        ),
        (
            "an upgrade to a web socket",
            "connection: upgrade\r\nupgrade: websocket\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "an upgrade to HTTP/2",
            "connection: upgrade, http2-settings\r\nupgrade: h2c\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "a compressed body",
            "content-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x08\x00\x00",
        ),
    ] {
        let bytes = head("/api/v1/invoke", more);
        let answer = venue.under(name, venue.send_raw(bytes.as_bytes())).await;
        assert!(!answer.contains("HTTP/1.1 101"), "{name}: {answer}");
        assert!(!answer.contains("HTTP/1.1 2"), "{name}: {answer}");
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_header_of_an_ordinary_request_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let job = venue.attacker.invoke("test:echo", serde_json::json!({"a": 1})).await;
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    let ranges = format!("bytes={}", ["0-0"; 2_000].join(","));
    let tags = vec!["\"0123456789\""; 1_000].join(", ");
    let languages = vec!["a;q=0.1"; 1_000].join(",");
    for (name, header, value) in [
        ("2,000 ranges", "range", ranges.as_str()),
        ("1,000 entity tags", "if-none-match", tags.as_str()),
        ("an impossible wait", "prefer", "wait=99999999999999999999"),
        ("a negative wait", "prefer", "wait=-1"),
        ("1,000 languages", "accept-language", languages.as_str()),
        ("an event from the future", "last-event-id", "18446744073709551616"),
        ("an idempotency key of 4 kB", "idempotency-key", &"k".repeat(4_096)),
        ("a depth beyond numbers", "catena-depth", "340282366920938463463374607431768211456"),
        ("a forged address", "x-forwarded-for", "127.0.0.1"),
    ] {
        for path in [path.clone(), format!("{path}/history"), "/api/v1/jobs".to_owned()] {
            let request = venue.attacker.request("GET", &path).header(header, value);
            let reply = venue.under(name, venue.attacker.ask(request)).await;
            assert!(reply.status() < 500, "{name}: {}", reply.text());
        }
    }
    for path in [
        "/ui/../../../../etc/passwd",
        "/ui/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/ui/..%2f..%2f..%2fetc%2fpasswd",
        "/ui/....//....//etc/passwd",
        "/ui//etc/passwd",
        "/.well-known/../api/v1/jobs",
        "/api/v1/assets/..%2f..%2fcontent",
        "/api/v1/jobs/%00",
        "/api/v1/jobs/%ff%fe",
    ] {
        let reply = venue.under(path, venue.attacker.get(path)).await;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(reply.status() < 500 && !text.contains("root:"), "{path}: {text}");
    }
    victim.restart().await;
}

/// Sockets to other hosts do not take the descriptors that the store and clients need.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_a_silent_host_leave_descriptors_for_the_store() {
    // The kernel accepts connections for it; nobody reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let allowed = ["--allow-host".to_owned(), address.to_string()];
    let victim = Victim::start_with("ulimit -n 200", &allowed).await;
    let venue = &victim;
    let input = serde_json::json!({"url": format!("http://{address}/"), "timeoutMs": 60_000});
    let flood = async {
        for _ in 0..2 * MANY {
            venue.attacker.invoke("http:get", input.clone()).await;
        }
    };
    venue.under("400 requests to a silent host", flood).await;
    venue.attacker.get("/livez").await.expect(200);
    let content = vec![b'x'; 300_000];
    let path = format!("/contract/v1/datasets/{CONTENT_DIGEST}");
    let request = venue.attacker.request("PUT", &path).body(content);
    let reply = venue.under("an upload meanwhile", venue.attacker.ask(request)).await;
    assert!(reply.status() < 300, "{}: {}", reply.status(), reply.text());
    drop(silent);
}

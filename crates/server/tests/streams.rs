//! Following jobs by SSE, and stopping the venue meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_value::Value;
use support::{PATIENCE, Running, field, read_head, value, venue};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;

/// One frame.
#[derive(Debug, PartialEq)]
struct Event {
    event: String,
    id: Option<String>,
    data: Value,
}

struct Stream(BufReader<TcpStream>);

impl Stream {
    async fn open(venue: &Running, path: &str, headers: &[(&str, &str)]) -> Stream {
        let mut stream = venue.send("GET", path, headers, "").await;
        let (status, headers) = read_head(&mut stream).await;
        assert_eq!(status, 200);
        assert!(headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())));
        Stream(stream)
    }

    /// The next frame. `None` at the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        tokio::time::timeout(PATIENCE, self.read()).await.unwrap()
    }

    async fn read(&mut self) -> Option<Event> {
        let (mut event, mut id, mut data) = (String::new(), None, None);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).await.unwrap() == 0 {
                return None;
            }
            // Lines of the stream end with LF; CRLF is the framing of chunks.
            let is_framing = line.ends_with("\r\n");
            match line.trim_end_matches('\n').split_once(": ") {
                _ if is_framing => {}
                Some(("event", text)) => event = text.to_owned(),
                Some(("id", text)) => id = Some(text.to_owned()),
                Some(("data", text)) => data = Some(value(text)),
                _ if line == "\n" => {
                    return Some(Event { event, id, data: data.expect("a frame has data") });
                }
                _ => {}
            }
        }
    }

    /// All remaining frames.
    async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

#[tokio::test]
async fn a_stream_shows_the_current_record_then_each_and_ends_with_the_last() {
    let venue = venue(|_| {}).await;
    let id = venue.invoke("try:never").await;
    venue.until(&id, "STARTED").await;
    let mut stream = Stream::open(&venue, &format!("/api/v1/jobs/{id}/sse"), &[]).await;
    let first = stream.next().await.unwrap();
    assert_eq!((first.event.as_str(), first.id.as_deref()), ("job-update", Some("1")));
    assert_eq!(field(&first.data, "status"), "STARTED".into());
    venue.put(&format!("/api/v1/jobs/{id}/cancel")).await;
    let rest = stream.rest().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].id.as_deref(), Some("2"));
    assert_eq!(field(&rest[0].data, "status"), "CANCELLED".into());
    let read = venue.get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!(rest[0].data, read.value());
}

#[tokio::test]
async fn a_client_that_reconnects_gets_every_later_record() {
    let venue = venue(|_| {}).await;
    let id = venue.invoke("try:echo").await;
    let path = format!("/api/v1/jobs/{id}/sse");
    let ids = |events: Vec<Event>| -> Vec<String> {
        events.into_iter().filter_map(|event| event.id).collect()
    };
    let all = Stream::open(&venue, &path, &[]).await.rest().await;
    assert_eq!(ids(all), ["2"], "an ended job sends its last record");
    let later = Stream::open(&venue, &path, &[("last-event-id", "0")]).await.rest().await;
    assert_eq!(ids(later), ["1", "2"]);
    let later = Stream::open(&venue, &format!("{path}?after=1"), &[]).await.rest().await;
    assert_eq!(ids(later), ["2"]);
    let reply = venue.request("GET", &path, &[("last-event-id", "x")], "").await;
    reply.assert_error(400, "bad_request");
    let reply = venue.request("GET", &path, &[("accept", "application/json")], "").await;
    reply.assert_error(406, "not_acceptable");
}

#[tokio::test]
async fn without_a_token_only_anonymous_jobs_are_followed_unless_the_id_is_enough() {
    let closed = venue(|flags| flags.public_access = Some("off".to_owned())).await;
    let path = format!("/api/v1/jobs/{}/sse", "1".repeat(32));
    closed.get(&path).await.assert_error(401, "token_missing");
    let open = venue(|flags| {
        flags.public_access = Some("off".to_owned());
        flags.sse_by_job_id = Some("true".to_owned());
    })
    .await;
    open.get(&path).await.assert_error(404, "job_not_found");
}

#[tokio::test]
async fn a_venue_that_stops_closes_its_streams_within_its_grace() {
    let venue = venue(|_| {}).await;
    let id = venue.invoke("try:never").await;
    let mut stream = Stream::open(&venue, &format!("/api/v1/jobs/{id}/sse"), &[]).await;
    stream.next().await.unwrap();
    let stopping = tokio::time::timeout(Duration::from_secs(2), venue.stop());
    let (stopped, rest) = tokio::join!(stopping, stream.rest());
    assert!(stopped.is_ok(), "the grace is one second");
    drop(rest);
}

#[tokio::test]
async fn a_client_that_disconnects_releases_its_stream() {
    let venue = venue(|_| {}).await;
    let id = venue.invoke("try:never").await;
    let mut stream = Stream::open(&venue, &format!("/api/v1/jobs/{id}/sse"), &[]).await;
    stream.next().await.unwrap();
    let clients = |text: &str| text.lines().any(|line| line == "catena_sse_clients 1");
    assert!(clients(venue.get("/metrics").await.text()));
    drop(stream);
    let gone = async {
        while clients(venue.get("/metrics").await.text()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

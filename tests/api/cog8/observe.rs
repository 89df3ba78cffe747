//! Job Observation and Job History: polling, event streams, pages.

use std::time::Duration;

use catena_tests::events::Part;
use catena_tests::http::Connection;
use catena_tests::site::{Site, id_of};
use serde_json::{Value as Json, json};

/// The longest interval between two heartbeat comments of a stream.
const HEARTBEAT_MAX: Duration = Duration::from_secs(15);

/// "Clients poll the job status via GET /api/v1/jobs/{id}. This returns the resolved job data from
/// the latest state record, including current status, output (if complete), or error (if failed)."
#[tokio::test]
async fn a_poll_shows_the_latest_record() {
    let site = Site::start().await;
    let id = site.invoked("test:delay", json!({"delay": 50, "input": [1]}), "STARTED").await;
    assert!(site.job(&id).await.get("output").is_none());
    assert_eq!(site.ended(&id).await["output"], json!([1]));
    let failed = site.invoked("test:error", json!({"message": "why"}), "FAILED").await;
    let job = site.job(&failed).await;
    assert_eq!((&job["error"], job.get("output")), (&json!("why"), None));
    let head = site.history(&failed).await.id(2).to_owned();
    assert_eq!(job["head"], head.as_str());
}

/// Reading creates nothing: however often a client polls, there is no new record and no new job.
#[tokio::test]
async fn reading_changes_nothing() {
    let site = Site::start().await;
    let id = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    let before = site.get(&format!("/api/v1/jobs/{id}")).await;
    for _ in 0..20 {
        for path in ["", "/history"] {
            site.get(&format!("/api/v1/jobs/{id}{path}")).await.expect(200);
        }
    }
    let after = site.get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!((after.header("etag"), &after.body), (before.header("etag"), &before.body));
    assert_eq!(site.job_count().await, 1);
}

/// "The venue pushes an event each time a new state record is appended to the chain."
#[tokio::test]
async fn each_record_is_an_event_and_the_last_one_ends_the_stream() {
    let site = Site::start().await;
    let id = site.invoked("test:chat", json!({"a": 1}), "INPUT_REQUIRED").await;
    let mut events = site.follow(&id).await;
    assert_eq!(events.head.header("content-type"), Some("text/event-stream"));
    let mut seen = vec![events.next().await.unwrap()];
    for content in ["one", "done"] {
        site.send(&id, &json!({"content": content})).await.expect(202);
    }
    seen.extend(events.rest().await);
    let chain = site.history(&id).await;
    let indexes: Vec<_> = seen.iter().map(|event| event.id.unwrap()).collect();
    assert_eq!(indexes, (2..chain.len() as u64).collect::<Vec<_>>(), "from the current one on");
    for event in &seen {
        let at = usize::try_from(event.id.unwrap()).unwrap();
        assert_eq!(event.event, "job-update");
        assert_eq!(event.data["head"], chain.id(at), "the job as of that record");
        assert_eq!(event.data["status"], chain.record(at)["status"]);
        assert_eq!(event.data["input"], json!({"a": 1}), "resolved");
    }
    assert_eq!(seen.last().unwrap().data, site.job(&id).await);
}

/// `Last-Event-ID`: every later record, out of the durable chain, also after a restart.
#[tokio::test]
async fn a_client_that_comes_back_misses_nothing() {
    let site = Site::start().await;
    let id = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    for content in ["one", "two", "done"] {
        site.send(&id, &json!({"content": content})).await.expect(202);
    }
    site.until(&id, "COMPLETE").await;
    let whole = site.follow_after(&id, 0).await.rest().await;
    let total = site.history(&id).await.len() as u64;
    let indexes: Vec<_> = whole.iter().map(|event| event.id.unwrap()).collect();
    assert_eq!(indexes, (1..total).collect::<Vec<_>>());
    let site = site.restarted().await;
    assert_eq!(site.follow_after(&id, 0).await.rest().await, whole, "the same after a restart");
    let later = site.follow_after(&id, 4).await.rest().await;
    assert_eq!(later, whole[4..]);
    let after = site.request("GET", &format!("/api/v1/jobs/{id}/sse?after=4"));
    let mut after = catena_tests::events::Events::open(site.address, &after).await;
    assert_eq!(after.rest().await, later, "for those who cannot set headers");
    let seen = site.request("GET", &format!("/api/v1/jobs/{id}/sse"));
    site.ask(seen.header("last-event-id", &(total - 1).to_string())).await.expect(204);
    let ended = site.follow(&id).await.rest().await;
    assert_eq!(ended.iter().map(|event| event.id.unwrap()).collect::<Vec<_>>(), [total - 1]);
}

/// An idle stream sends heartbeats, so that a client can wait indefinitely.
#[tokio::test]
async fn an_idle_stream_is_kept_alive() {
    let site = Site::start().await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    let mut events = site.follow(&id).await;
    events.next().await.unwrap();
    // From here on only the paused clock advances.
    tokio::time::pause();
    for _ in 0..3 {
        let begun = tokio::time::Instant::now();
        assert_eq!(events.part().await, Some(Part::Comment));
        assert!(begun.elapsed() <= HEARTBEAT_MAX, "{:?}", begun.elapsed());
    }
}

/// Many clients may follow one job, and one that does not read delays no other.
#[tokio::test]
async fn a_slow_follower_delays_no_other() {
    let site = Site::start().await;
    let id = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    let mut slow = site.follow(&id).await;
    let mut quick = site.follow(&id).await;
    let long = "x".repeat(100_000);
    for _ in 0..40 {
        site.send(&id, &json!({"content": long})).await.expect(202);
    }
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    site.until(&id, "COMPLETE").await;
    let seen = quick.rest().await;
    assert_eq!(seen.last().unwrap().data["status"], "COMPLETE");
    assert_eq!(slow.rest().await, seen, "the slow one misses nothing");
}

/// Progress is not a record. SDKs ignore the names of events, so it is sent only on request.
#[tokio::test]
async fn progress_is_shown_only_to_those_who_ask() {
    let site = Site::start().await;
    let input = json!({"totalItems": 20, "itemMs": 30});
    let id = id_of(&site.invoke("test:progress", input).await);
    let request = site.request("GET", &format!("/api/v1/jobs/{id}/sse?progress=1"));
    let mut asked = catena_tests::events::Events::open(site.address, &request).await;
    let plain = site.follow(&id).await.rest().await;
    assert!(plain.iter().all(|event| event.event == "job-update" && event.id.is_some()));
    let asked = asked.rest().await;
    let progress: Vec<_> = asked.iter().filter(|event| event.event == "progress").collect();
    assert!(!progress.is_empty(), "{asked:?}");
    assert!(progress.iter().all(|event| event.id.is_none() && event.data["totalItems"] == 20));
    assert_eq!(site.history(&id).await.statuses(), "PENDING STARTED COMPLETE");
}

/// A stream request with an unacceptable media type or an invalid event ID is refused.
#[tokio::test]
async fn a_stream_is_refused_with_a_reason() {
    let site = Site::start().await;
    let id = site.invoked("test:echo", json!({}), "COMPLETE").await;
    let path = format!("/api/v1/jobs/{id}/sse");
    let json_only = site.request("GET", &path).header("accept", "application/json");
    site.ask(json_only).await.expect_error(406, "not_acceptable");
    let bad = site.request("GET", &path).header("last-event-id", "x");
    site.ask(bad).await.expect_error(400, "bad_request");
    let unknown = format!("/api/v1/jobs/{}/sse", "a".repeat(32));
    site.get(&unknown).await.expect_error(404, "job_not_found");
}

/// "This returns the ordered sequence of state records from initial to latest, enabling audit and
/// verification of the complete execution history."
#[tokio::test]
async fn a_history_is_read_in_pages() {
    let site = Site::start().await;
    let id = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    for content in ["one", "two", "three", "done"] {
        site.send(&id, &json!({"content": content})).await.expect(202);
    }
    site.until(&id, "COMPLETE").await;
    let path = format!("/api/v1/jobs/{id}/history");
    let whole = site.get(&path).await.expect(200).json();
    let records = whole["records"].as_array().unwrap();
    assert_eq!(whole["total"].as_u64().unwrap(), records.len() as u64);
    assert!(whole.get("next").is_none());
    let mut pieces: Vec<Json> = Vec::new();
    let mut from = 0;
    loop {
        let page = site.get(&format!("{path}?from={from}&limit=3")).await.expect(200).json();
        assert_eq!(page["total"], whole["total"]);
        let part = page["records"].as_array().unwrap().clone();
        assert!(part.len() <= 3);
        pieces.extend(part);
        match page["next"].as_u64() {
            Some(next) => from = next,
            None => break,
        }
        assert_eq!(from, pieces.len() as u64);
    }
    assert_eq!(&pieces, records);
    let beyond = site.get(&format!("{path}?from=1000")).await.expect(200).json();
    assert_eq!((&beyond["records"], &beyond["total"]), (&json!([]), &whole["total"]));
    for bad in ["from=-1", "from=x", "limit=1001", "limit=x"] {
        site.get(&format!("{path}?{bad}")).await.expect_error(400, "bad_request");
    }
    site.history(&id).await.verify();
}

/// A client that disconnects during a stream releases its resources.
#[tokio::test]
async fn a_client_that_disconnects_is_forgotten() {
    let site = Site::start().await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    let following = |text: &str| text.lines().any(|line| line == "catena_sse_clients 1");
    let mut events = site.follow(&id).await;
    events.next().await.unwrap();
    assert!(following(site.get("/metrics").await.text()));
    drop(events);
    let mut waiting = Connection::open(site.address).await.unwrap();
    let request = site.request("GET", &format!("/api/v1/jobs/{id}")).header("prefer", "wait=120");
    waiting.send(&request).await.unwrap();
    drop(waiting);
    let gone = async {
        while following(site.get("/metrics").await.text()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(catena_tests::TIMEOUT, gone).await.unwrap();
    site.control(&id, "cancel").await.expect(200);
}

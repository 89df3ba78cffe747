//! COG-9 Agent Messaging, sentence by sentence: what it asks of a venue, over HTTP.
//!
//! Each test quotes what it checks. Where COG-8 and COG-9 disagree about PAUSED, COG-8 wins: a
//! message to a paused job waits until the job is resumed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::collections::BTreeSet;

use catena_tests::TIMEOUT;
use catena_tests::http::Connection;
use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

/// A chat that waits for its first message.
async fn chat(site: &Client) -> String {
    site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await
}

/// The contents of the messages that a job received, in order.
async fn taken(site: &Client, id: &str) -> Vec<Json> {
    let chain = site.history(id).await;
    let received = |at| chain.record(at).get("received").map(|message| message["content"].clone());
    (0..chain.len()).filter_map(received).collect()
}

/// Message Format: "Venues and transition functions MUST accept arbitrary JSON as message content."
#[tokio::test]
async fn any_json_is_a_message() {
    let site = Site::start().await;
    let id = chat(&site).await;
    let messages = [
        json!({"role": "user", "parts": [{"type": "text", "text": "What is the capital of France?"}]}),
        json!({"role": "agent", "from": "did:web:other-venue.example", "parts": []}),
        json!({"prompt": "Hello, how are you?"}),
        json!({}),
        json!("text"),
        json!(42),
        json!(1.5),
        json!(true),
        json!(null),
        json!([1, [2, {"a": null}]]),
        json!({"unknown": {"deeply": ["nested"]}, "type": 5, "role": ["odd"], "messageId": null}),
    ];
    for message in &messages {
        site.send(&id, message).await.expect(202);
    }
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    assert_eq!(site.ended(&id).await["status"], "COMPLETE");
    let chain = site.history(&id).await;
    let received: Vec<_> =
        (0..chain.len()).filter_map(|at| chain.record(at).get("received")).collect();
    assert_eq!(received.len(), messages.len() + 1);
    for (message, received) in messages.iter().zip(received) {
        if message.is_object() {
            assert_eq!(received, message);
        } else {
            assert_eq!(received, &json!({"content": message}), "wrapped");
        }
    }
    chain.verify();
}

/// Response: "202 Accepted … `{"id": "<job-id>", "status": "<current-status>", "queued": true}`".
/// "A venue SHOULD include the current job status in the 202 response." "A venue MAY assign a
/// server-side message ID if the client did not provide a `messageId`."
#[tokio::test]
async fn a_message_is_acknowledged_with_all_one_needs() {
    let site = Site::start().await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    let first = site.send(&id, &json!({"messageId": "m1"})).await.expect(202).json();
    let expected = json!({"id": id, "status": "STARTED", "queued": true, "queueDepth": 1,
        "messageId": "m1"});
    assert_eq!(first, expected);
    let second = site.send(&id, &json!({})).await.expect(202).json();
    assert_eq!(second["queueDepth"], 2);
    assert!(!second["messageId"].as_str().unwrap().is_empty());
    let third = site.send(&id, &json!({})).await.expect(202).json();
    assert_ne!(third["messageId"], second["messageId"]);
}

/// Response: 400, 401, 404, 409, 413 and 429, each with its body.
#[tokio::test]
async fn a_message_is_refused_with_the_reason() {
    let site = Site::with(|flags| flags.message_bytes = Some("1kB".to_owned())).await;
    let id = chat(&site).await;
    let path = format!("/api/v1/jobs/{id}");
    let broken = site.request("POST", &path).body("{\"a\":");
    site.ask(broken).await.expect_error(400, "invalid_json");
    let empty = site.request("POST", &path);
    site.ask(empty).await.expect_error(400, "invalid_json");
    let liar = site.request("POST", &path).header("authorization", "Bearer a.b.c").body("{}");
    site.ask(liar).await.expect_error(401, "token_invalid");
    let other = site.caller(1).await;
    other.send(&id, &json!({})).await.expect_error(404, "job_not_found");
    site.send(&"1".repeat(32), &json!({})).await.expect_error(404, "job_not_found");
    site.send("not-hex", &json!({})).await.expect_error(400, "invalid_job_id");
    let large = json!({"content": "x".repeat(1_000)});
    site.send(&id, &large).await.expect_error(413, "message_too_large");
    assert_eq!(site.job(&id).await["status"], "INPUT_REQUIRED", "none of them was taken");
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    site.ended(&id).await;
    let error = site.send(&id, &json!({})).await.expect_error(409, "job_ended");
    assert_eq!((&error["id"], &error["status"]), (&json!(id), &json!("COMPLETE")));
    assert!(error["hint"].is_string());
}

/// "A recommended default is 1 MB per message." "Venues MUST return 413 Payload Too Large if a
/// message exceeds the configured limit."
#[tokio::test]
async fn a_megabyte_is_the_most_by_default() {
    let site = Site::start().await;
    let id = chat(&site).await;
    // The braces, the name and the quotes take 14 bytes.
    let fits = json!({"content": "x".repeat(1_000_000 - 14)});
    assert_eq!(fits.to_string().len(), 1_000_000);
    site.send(&id, &fits).await.expect(202);
    let over = json!({"content": "x".repeat(1_000_000 - 13)});
    site.send(&id, &over).await.expect_error(413, "message_too_large");
}

/// "Accept messages for jobs in any non-terminal state (PENDING, STARTED, PAUSED, INPUT_REQUIRED,
/// AUTH_REQUIRED) — including while the job is actively processing, queuing them for later".
#[tokio::test]
async fn every_state_that_is_not_terminal_takes_messages() {
    let site = Site::with(|flags| flags.running = Some("1".to_owned())).await;
    for (operation, status) in [
        ("test:chat", "INPUT_REQUIRED"),
        ("test:auth", "AUTH_REQUIRED"),
        ("test:pause", "PAUSED"),
        ("test:never", "STARTED"),
        ("test:never", "PENDING"),
    ] {
        let id = site.invoked(operation, json!({}), status).await;
        let sent = site.send(&id, &json!({"n": 1})).await.expect(202).json();
        assert_eq!(sent["status"], status, "the status before it is taken");
    }
}

/// When Messages Are Processed: "PENDING: Queued; processed when job starts and is ready for input."
#[tokio::test]
async fn a_message_to_a_pending_job_is_taken_when_it_is_ready() {
    let site = Site::with(|flags| flags.running = Some("1".to_owned())).await;
    let first = site.invoked("test:never", json!({}), "STARTED").await;
    let id = site.invoked("test:chat", json!({}), "PENDING").await;
    site.send(&id, &json!({"content": "early"})).await.expect(202);
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    site.control(&first, "cancel").await.expect(200);
    site.until(&id, "COMPLETE").await;
    assert_eq!(taken(&site, &id).await, ["early", "done"]);
}

/// "If the job is actively processing (STARTED), newly submitted messages wait in the queue."
#[tokio::test]
async fn a_message_to_a_running_job_waits() {
    let site = Site::start().await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    let before = site.history(&id).await.len();
    for depth in 1..=5 {
        let sent = site.send(&id, &json!({"n": depth})).await.expect(202).json();
        assert_eq!(sent["queueDepth"], depth);
    }
    assert_eq!(site.job(&id).await["queueDepth"], 5);
    assert_eq!(site.history(&id).await.len(), before, "no transition");
}

/// COG-8: "The adapter is not re-invoked until the job is resumed."
#[tokio::test]
async fn a_message_to_a_paused_job_waits_until_it_is_resumed() {
    let site = Site::start().await;
    let id = chat(&site).await;
    site.control(&id, "pause").await.expect(200);
    site.send(&id, &json!({"content": "while"})).await.expect(202);
    let records = site.history(&id).await.len();
    let other = chat(&site).await;
    site.send(&other, &json!({"content": "done"})).await.expect(202);
    site.ended(&other).await;
    let job = site.job(&id).await;
    assert_eq!((&job["status"], &job["queueDepth"]), (&json!("PAUSED"), &json!(1)));
    assert_eq!(site.history(&id).await.len(), records);
    site.control(&id, "resume").await.expect(200);
    site.until_that(&id, |job| job["output"]["message"] == "while").await;
    site.history(&id).await.verify();
}

/// The same with messages and the resume at the same moment, on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_resume_among_messages_loses_nothing() {
    let site = Site::start().await;
    for _ in 0..60 {
        let id = chat(&site).await;
        site.control(&id, "pause").await.expect(200);
        let (one, two) = (json!({"content": "one"}), json!({"content": "two"}));
        let (first, resumed, second) =
            tokio::join!(site.send(&id, &one), site.control(&id, "resume"), site.send(&id, &two));
        first.expect(202);
        second.expect(202);
        resumed.expect(200);
        site.send(&id, &json!({"content": "done"})).await.expect(202);
        assert_eq!(site.until(&id, "COMPLETE").await["output"]["message"], "done");
        assert_eq!(taken(&site, &id).await.len(), 3);
    }
}

/// "Messages within a single job's queue MUST be processed in the order they were accepted (FIFO)."
/// "Preserve message ordering within a single connection."
#[tokio::test]
async fn messages_are_taken_in_the_order_of_their_connection() {
    let site = Site::start().await;
    let id = chat(&site).await;
    let mut connection = Connection::open(site.address).await.unwrap();
    let request = |content: Json| {
        site.request("POST", &format!("/api/v1/jobs/{id}")).json(&json!({"content": content}))
    };
    // All are sent before any response is read.
    for n in 0..30 {
        connection.send(&request(json!(n))).await.unwrap();
    }
    connection.send(&request(json!("done"))).await.unwrap();
    for _ in 0..31 {
        connection.reply().await.unwrap().expect(202);
    }
    site.until(&id, "COMPLETE").await;
    let mut expected: Vec<Json> = (0..30).map(Json::from).collect();
    expected.push("done".into());
    assert_eq!(taken(&site, &id).await, expected);
}

/// "When messages arrive from multiple sources concurrently, the venue determines the interleaving
/// order": each source's own order holds, and none is lost or doubled.
#[tokio::test]
async fn concurrent_senders_are_interleaved_and_each_stays_in_order() {
    let site = Site::start().await;
    let id = chat(&site).await;
    let sender = async |name: &str| {
        for n in 0..12 {
            site.send(&id, &json!({"content": format!("{name}{n}")})).await.expect(202);
        }
    };
    tokio::join!(sender("a"), sender("b"), sender("c"));
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    site.until(&id, "COMPLETE").await;
    let taken = taken(&site, &id).await;
    assert_eq!(taken.len(), 37);
    for name in ["a", "b", "c"] {
        let own: Vec<_> = taken.iter().filter(|c| c.as_str().unwrap().starts_with(name)).collect();
        let expected: Vec<_> = (0..12).map(|n| json!(format!("{name}{n}"))).collect();
        assert_eq!(own, expected.iter().collect::<Vec<_>>());
    }
    site.history(&id).await.verify();
}

/// Queue Draining: "the next queued message is immediately dequeued and processing continues. This
/// enables pipelining". Processing: "The job transitions to STARTED … If the new state is
/// non-terminal and there are remaining messages in the queue, the next message is dequeued".
#[tokio::test]
async fn a_job_with_messages_waiting_goes_on_at_once() {
    let site = Site::with(|flags| flags.running = Some("1".to_owned())).await;
    let first = site.invoked("test:never", json!({}), "STARTED").await;
    let id = site.invoked("test:chat", json!({}), "PENDING").await;
    for content in ["1", "2", "3", "done"] {
        site.send(&id, &json!({"content": content})).await.expect(202);
    }
    site.control(&first, "cancel").await.expect(200);
    site.until(&id, "COMPLETE").await;
    let turn = "STARTED INPUT_REQUIRED ";
    let expected = format!("PENDING {}STARTED COMPLETE", turn.repeat(4));
    assert_eq!(site.history(&id).await.statuses(), expected);
}

/// Queue Draining: "If a job reaches a terminal state while messages remain in the queue, those
/// messages are discarded." They are counted in the record that ends the job.
#[tokio::test]
async fn messages_left_at_the_end_are_counted() {
    let site = Site::start().await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    for n in 0..3 {
        site.send(&id, &json!({"n": n})).await.expect(202);
    }
    let job = site.control(&id, "cancel").await.expect(200).json();
    assert_eq!(job["discarded"], 3);
    assert_eq!(job.get("queueDepth"), None);
    assert_eq!(site.history(&id).await.last()["discarded"], 3);
    let quiet = site.invoked("test:echo", json!({}), "COMPLETE").await;
    assert_eq!(site.job(&quiet).await.get("discarded"), None);
}

/// State Record Linkage: "the resulting state record SHOULD include a `trigger` field referencing
/// the message". Security: "Log the sender's identity in the state record for audit purposes."
#[tokio::test]
async fn the_record_of_a_message_names_it_and_its_sender() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let did = alice.invoke("auth:whoami", json!({})).await["output"]["caller"].clone();
    let id = chat(&alice).await;
    let message = json!({"messageId": "msg-001", "role": "user", "from": "did:web:liar.example",
        "content": "hi"});
    alice.send(&id, &message).await.expect(202);
    let given = alice.send(&id, &json!({"content": "done"})).await.expect(202).json();
    alice.until(&id, "COMPLETE").await;
    let chain = alice.history(&id).await;
    let triggers: Vec<_> =
        (0..chain.len()).filter_map(|at| chain.record(at).get("trigger")).collect();
    assert_eq!(triggers[0], &json!({"messageId": "msg-001", "role": "user", "from": did}));
    assert_eq!(triggers[1], &json!({"messageId": given["messageId"], "from": did}));
    assert_eq!(triggers.len(), 2);
}

/// "`messageId`: Optional client-assigned identifier for deduplication or correlation."
#[tokio::test]
async fn a_repeated_message_id_changes_nothing() {
    let site = Site::start().await;
    let id = chat(&site).await;
    let message = json!({"messageId": "m1", "content": "once"});
    assert_eq!(site.send(&id, &message).await.expect(202).json().get("duplicate"), None);
    site.until_that(&id, |job| job["output"]["message"] == "once").await;
    let records = site.history(&id).await.len();
    for _ in 0..3 {
        let again = site.send(&id, &message).await.expect(202).json();
        assert_eq!((&again["duplicate"], &again["messageId"]), (&json!(true), &json!("m1")));
    }
    assert_eq!(site.history(&id).await.len(), records, "taken once, even after it was taken");
    let other = chat(&site).await;
    let fresh = site.send(&other, &message).await.expect(202).json();
    assert_eq!(fresh.get("duplicate"), None, "IDs are a job's own");
    let site = site.restarted().await;
    let again = site.send(&id, &message).await.expect(202).json();
    assert_eq!(again["duplicate"], true, "also after a restart");
}

/// An `Idempotency-Key` works for messages as for other requests.
#[tokio::test]
async fn a_message_with_a_key_is_sent_once() {
    let site = Site::start().await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    let send = |key: &str, n: u32| {
        let request = site.request("POST", &format!("/api/v1/jobs/{id}"));
        site.ask(request.header("idempotency-key", key).json(&json!({"n": n})))
    };
    let first = send("k", 1).await.expect(202).json();
    let again = send("k", 1).await.expect(202);
    assert_eq!(again.json()["messageId"], first["messageId"]);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(site.job(&id).await["queueDepth"], 1);
    send("k", 2).await.expect_error(422, "idempotency_key_reused");
    site.control(&id, "cancel").await.expect(200);
    let late = send("k", 1).await.expect(202);
    assert_eq!(late.header("idempotent-replayed"), Some("true"), "also when the job has ended");
    send("new", 1).await.expect_error(409, "job_ended");
}

/// Queued messages survive a restart, in order.
#[tokio::test]
async fn queued_messages_survive_a_restart() {
    let site = Site::start().await;
    let id = chat(&site).await;
    site.control(&id, "pause").await.expect(200);
    for content in ["1", "2", "done"] {
        site.send(&id, &json!({"content": content})).await.expect(202);
    }
    let site = site.restarted().await;
    let job = site.job(&id).await;
    assert_eq!((&job["status"], &job["queueDepth"]), (&json!("PAUSED"), &json!(3)));
    site.control(&id, "resume").await.expect(200);
    site.until(&id, "COMPLETE").await;
    assert_eq!(taken(&site, &id).await, ["1", "2", "done"]);
    site.history(&id).await.verify();
}

/// A conversation continues after a restart: an interactive adapter keeps no state between turns.
#[tokio::test]
async fn a_conversation_goes_on_after_a_restart() {
    let site = Site::start().await;
    let id = chat(&site).await;
    site.send(&id, &json!({"content": "before"})).await.expect(202);
    site.until_that(&id, |job| job["output"]["message"] == "before").await;
    let site = site.restarted().await;
    assert_eq!(site.job(&id).await["status"], "INPUT_REQUIRED");
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    assert_eq!(site.ended(&id).await["status"], "COMPLETE");
    assert_eq!(taken(&site, &id).await, ["before", "done"]);
    site.history(&id).await.verify();
}

/// Queue Depth Limits: "When the queue is full, the venue MUST return 429 Too Many Requests with a
/// `Retry-After` header."
#[tokio::test]
async fn a_full_queue_takes_no_more() {
    let site = Site::start().await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    let path = format!("/api/v1/jobs/{id}");
    let sender = async || {
        let mut connection = Connection::open(site.address).await.unwrap();
        for _ in 0..100 {
            connection
                .ask(&site.request("POST", &path).json(&json!({})))
                .await
                .unwrap()
                .expect(202);
        }
    };
    tokio::join!(
        sender(),
        sender(),
        sender(),
        sender(),
        sender(),
        sender(),
        sender(),
        sender(),
        sender(),
        sender()
    );
    assert_eq!(site.job(&id).await["queueDepth"], 1_000);
    let reply = site.send(&id, &json!({})).await;
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let error = reply.expect_error(429, "queue_full");
    assert_eq!((&error["id"], &error["retry"]), (&json!(id), &json!("later")));
    assert_eq!(site.job(&id).await["queueDepth"], 1_000, "nothing happened");
}

/// Denial of Service: "Rate-limit message submissions per client."
#[tokio::test]
async fn messages_count_against_the_rate_of_their_sender() {
    let site = Site::with(|flags| {
        flags.rate = Some("0.01".to_owned());
        flags.burst = Some("3".to_owned());
    })
    .await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    for _ in 0..2 {
        site.send(&id, &json!({})).await.expect(202);
    }
    let reply = site.send(&id, &json!({})).await;
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert!(reply.header("ratelimit").is_some() && reply.header("ratelimit-policy").is_some());
    reply.expect_error(429, "rate_limited");
    assert_eq!(site.job(&id).await["queueDepth"], 2, "nothing happened");
}

/// Sensitive Content: "venues SHOULD NOT persist credentials in the state chain … recording only a
/// reference".
#[tokio::test]
async fn credentials_are_in_no_record_and_on_no_disk_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let text = data.to_str().unwrap().to_owned();
    let site = Site::with(|flags| flags.data = Some(text)).await;
    let secret = "sk-9f8e7d6c5b4a3928";
    let id = site.invoked("test:auth", json!({}), "AUTH_REQUIRED").await;
    let waiting = site.invoked("test:pause", json!({}), "PAUSED").await;
    let message = json!({"role": "system", "type": "auth/complete", "messageId": "auth-1",
        "credentials": {"apiKey": secret}});
    let mut events = site.follow(&id).await;
    for job in [&id, &waiting] {
        let sent = site.send(job, &message).await.expect(202);
        assert!(!sent.text().contains(secret));
    }
    let job = site.until(&id, "COMPLETE").await;
    assert_eq!(job["output"], json!({"authorised": true}), "the adapter had what it needed");
    let chain = site.history(&id).await;
    assert_eq!(chain.triggers(), ["auth-1"]);
    let seen = format!("{:?}{job}{:?}", events.rest().await, chain.entries);
    assert!(!seen.contains(secret), "{seen}");
    chain.verify();
    let site = site.restarted().await;
    assert_eq!(site.job(&waiting).await["queueDepth"], 1);
    for file in files(&data) {
        let bytes = std::fs::read(&file).unwrap();
        let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "{} has the secret in the clear", file.display());
    }
}

/// An answer to a request for authorisation is secret as a whole, also if it was sent before the job asked.
#[tokio::test]
async fn an_answer_to_a_request_for_authorisation_is_secret_whenever_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let text = data.to_str().unwrap().to_owned();
    let site = Site::with(|flags| flags.data = Some(text)).await;
    let secret = "sk-1a2b3c4d5e6f7081";
    let message = json!({"type": "auth/complete", "note": secret});
    let paused = site.invoked("test:auth", json!({}), "AUTH_REQUIRED").await;
    site.control(&paused, "pause").await.expect(200);
    site.send(&paused, &message).await.expect(202);
    site.control(&paused, "resume").await.expect(200);
    let steps = json!([
        {"op": "test:delay", "input": {"delay": ["const", 300]}},
        {"op": "test:auth", "input": {"after": [0]}},
    ]);
    let operation = json!({"adapter": "orchestrator", "steps": steps, "result": [1]});
    let metadata = json!({"name": "later", "operation": operation});
    let operation = site.post("/api/v1/assets", &metadata).await.expect(201).json();
    let workflow = site.invoked(operation.as_str().unwrap(), json!({}), "STARTED").await;
    site.send(&workflow, &message).await.expect(202);
    let mut jobs = Vec::new();
    for id in [&paused, &workflow] {
        let job = site.until(id, "COMPLETE").await;
        jobs.push(id.clone());
        let steps = job["steps"].as_array().into_iter().flatten();
        jobs.extend(steps.filter_map(|step| Some(step["id"].as_str()?.to_owned())));
    }
    assert_eq!(jobs.len(), 4, "{jobs:?}");
    for id in &jobs {
        let chain = site.history(id).await;
        assert!(!format!("{:?}", chain.entries).contains(secret), "{:?}", chain.entries);
        chain.verify();
    }
    let asked = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    site.control(&asked, "pause").await.expect(200);
    site.send(&asked, &json!({"content": "done"})).await.expect(202);
    site.control(&asked, "resume").await.expect(200);
    let job = site.until(&asked, "COMPLETE").await;
    assert_eq!(job["output"]["message"], "done", "a message that is not secret is recorded");
    let chain = site.history(&asked).await;
    assert!(format!("{:?}", chain.entries).contains("done"));
    let site = site.restarted().await;
    assert_eq!(site.job(&asked).await["status"], "COMPLETE");
    for file in files(&data) {
        let bytes = std::fs::read(&file).unwrap();
        let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "{} has the secret in the clear", file.display());
    }
}

fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let nested = folders.iter().flat_map(|folder| self::files(folder));
    nested.chain(files.into_iter().filter(|path| path.is_file())).collect()
}

/// SSE Integration: "When a message is processed and produces a new state record, the venue MUST
/// emit an SSE event to any active subscribers for that job."
#[tokio::test]
async fn every_subscriber_sees_what_a_message_brings() {
    let site = Site::start().await;
    let id = chat(&site).await;
    let mut followers = Vec::new();
    for _ in 0..3 {
        let mut events = site.follow(&id).await;
        events.next().await.unwrap();
        followers.push(events);
    }
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    for mut events in followers {
        let seen: Vec<_> = events.rest().await.into_iter().map(|event| event.data).collect();
        let statuses: Vec<_> = seen.iter().map(|job| job["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["STARTED", "COMPLETE"]);
        assert_eq!(seen[1]["output"]["message"], "done");
    }
}

/// "Enqueue the message and return 202 before processing begins": the answer does not wait for the
/// turn, and what was acknowledged is durable.
#[tokio::test]
async fn an_acknowledged_message_is_taken_even_if_its_sender_is_gone() {
    let site = Site::start().await;
    let mut jobs = BTreeSet::new();
    for _ in 0..5 {
        let id = chat(&site).await;
        let mut connection = Connection::open(site.address).await.unwrap();
        let message = json!({"content": "done"});
        let request = site.request("POST", &format!("/api/v1/jobs/{id}")).json(&message);
        let reply = tokio::time::timeout(TIMEOUT, connection.ask(&request)).await.unwrap();
        reply.unwrap().expect(202);
        drop(connection);
        jobs.insert(id);
    }
    for id in jobs {
        assert_eq!(id_of(&site.until(&id, "COMPLETE").await), id);
    }
}

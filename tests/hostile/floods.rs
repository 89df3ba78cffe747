//! Many small things at once, each of which is harmless alone.

use std::time::Duration;

use catena_tests::http::{Connection, Request};
use catena_tests::site::id_of;
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt as _;

use super::{Victim, is_release};

/// Requests of one flood. An unoptimised venue on a busy machine is slow.
fn flood_len() -> usize {
    if is_release() { 10_000 } else { 200 }
}

/// Connections that send a flood.
const SENDERS: usize = 8;

impl Victim {
    /// Sends requests of the attacker on a few connections. Returns how many there were of each status.
    async fn flood(&self, count: usize, request: impl Fn(usize) -> Request) -> Vec<(u16, usize)> {
        let requests: Vec<Request> = (0..count).map(request).collect();
        let senders = requests.chunks(count.div_ceil(SENDERS)).map(|part| {
            let (part, address) = (part.to_vec(), self.attacker.address);
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await.unwrap();
                let mut statuses = Vec::new();
                for request in part {
                    statuses.push(connection.ask(&request).await.unwrap().status());
                }
                statuses
            })
        });
        let mut counts = std::collections::BTreeMap::new();
        for sender in senders.collect::<Vec<_>>() {
            for status in sender.await.unwrap() {
                *counts.entry(status).or_default() += 1;
            }
        }
        counts.into_iter().collect()
    }

    fn invoke(operation: &str, input: &Json, more: &Json) -> Request {
        let mut body = json!({"operation": operation, "input": input});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Request::new("POST", "/api/v1/invoke").json(&body)
    }
}

/// Checks that every request of a flood was done or refused.
fn check(name: &str, counts: &[(u16, usize)]) {
    assert!(counts.iter().all(|(status, _)| *status < 500 || *status == 503), "{name}: {counts:?}");
    assert!(counts.iter().any(|(status, _)| *status < 300), "{name}: {counts:?}");
}

/// Makes the n-th request of a flood.
type Flood = Box<dyn Fn(usize) -> Request>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_flood_of_requests_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let chat = id_of(&venue.attacker.invoke("test:chat", json!({})).await);
    let never = id_of(&venue.attacker.invoke("test:never", json!({})).await);
    let floods: Vec<(&str, Flood)> = vec![
        ("echoes", Box::new(|n| Victim::invoke("test:echo", &json!({"n": n}), &json!({})))),
        (
            "private jobs",
            Box::new(|_| {
                Victim::invoke("test:delay", &json!({"delay": 5_000}), &json!({"private": true}))
            }),
        ),
        (
            "idempotency keys",
            Box::new(|n| {
                Victim::invoke("test:echo", &json!({}), &json!({}))
                    .header("idempotency-key", &format!("key-{n}"))
            }),
        ),
        (
            "one idempotency key",
            Box::new(|_| {
                Victim::invoke("test:echo", &json!({}), &json!({}))
                    .header("idempotency-key", "same")
            }),
        ),
        (
            "assets",
            Box::new(|n| {
                Request::new("POST", "/api/v1/assets").json(&json!({"name": format!("a{n}")}))
            }),
        ),
        (
            "definitions with schemas",
            Box::new(|n| {
                let schema =
                    json!({"type": "object", "properties": {format!("p{n}"): {"type": "string"}}});
                let metadata =
                    json!({"name": "x", "operation": {"adapter": "test:echo", "input": schema}});
                Request::new("POST", "/api/v1/assets").json(&metadata)
            }),
        ),
        (
            "schedules",
            Box::new(|n| {
                let input =
                    json!({"operation": "test:echo", "cron": "0 0 1 1 *", "input": {"n": n}});
                Victim::invoke("scheduler:schedule", &input, &json!({}))
            }),
        ),
        (
            "values of the workspace",
            Box::new(|n| {
                let input = json!({"path": format!("w/flood/{n}"), "value": n});
                Victim::invoke("covia:write", &input, &json!({}))
            }),
        ),
        (
            "jobs that fail",
            Box::new(|_| Victim::invoke("test:error", &json!({"message": "x"}), &json!({}))),
        ),
        (
            "jobs that are rejected",
            Box::new(|_| Victim::invoke("test:error", &json!({}), &json!({}))),
        ),
        (
            "unknown operations",
            Box::new(|n| {
                let reference = format!("unknown:{n}");
                if n == 0 {
                    return Victim::invoke("test:echo", &json!({}), &json!({}));
                }
                Victim::invoke(&reference, &json!({}), &json!({}))
            }),
        ),
        ("reads", Box::new(move |_| Request::new("GET", &format!("/api/v1/jobs/{never}")))),
        ("lists", Box::new(|n| Request::new("GET", &format!("/api/v1/jobs?limit=100&offset={n}")))),
        ("jobs that never end", Box::new(|_| Victim::invoke("test:never", &json!({}), &json!({})))),
    ];
    for (name, request) in &floods {
        let counts = venue.under(name, venue.flood(flood_len(), request)).await;
        println!("{name}: {counts:?}");
        check(name, &counts);
    }
    // More messages than the queue of a paused job takes.
    let path = format!("/api/v1/jobs/{chat}");
    venue.attacker.control(&chat, "pause").await.expect(200);
    let message = |n: usize| Request::new("POST", &path).json(&json!({"content": n}));
    let counts = venue.under("messages", venue.flood(1_200, message)).await;
    assert_eq!(counts, [(202, 1_000), (429, 200)]);
    // Everything that was started is ended by one request.
    let filter = json!({"status": "STARTED", "op": "test:never"});
    let total = venue.attack("jobs:select", &json!({"filter": filter})).await.json();
    let total = total["output"]["count"].clone();
    let cancel = json!({"filter": filter, "action": "cancel", "expected": total});
    let cancel = venue.under("a cancellation of everything", venue.attack("jobs:control", &cancel));
    let job = cancel.await.json();
    assert!(["COMPLETE", "STARTED"].contains(&job["status"].as_str().unwrap()), "{job}");
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_of_streams_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let input = json!({"totalItems": 100_000, "itemMs": 1});
    let job = id_of(&venue.attacker.invoke("test:progress", input).await);
    let mut streams = Vec::new();
    for number in 0..300 {
        let path = match number % 5 {
            0 => format!("/api/v1/jobs/{job}/sse?progress=1"),
            1 => "/api/v1/events".to_owned(),
            2 => format!("/api/v1/events?text=x{number}"),
            3 => format!("/api/v1/events?tag=t{number}&status=FAILED"),
            _ => format!("/api/v1/jobs/{job}/sse"),
        };
        let mut stream = tokio::net::TcpStream::connect(venue.attacker.address).await.unwrap();
        let host = venue.attacker.address;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    let echoes = |n: usize| Victim::invoke("test:echo", &json!({"n": n}), &json!({"tags": ["t3"]}));
    let counts =
        venue.under("300 streams that nobody reads", venue.flood(flood_len(), echoes)).await;
    check("streams", &counts);
    drop(streams);
    venue.attacker.control(&job, "cancel").await.expect(200);
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_can_be_read_and_followed() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let chat = id_of(&venue.attacker.invoke("test:chat", json!({})).await);
    let path = format!("/api/v1/jobs/{chat}");
    let filler = "x".repeat(2_000);
    let count = flood_len().min(900);
    let message =
        |n: usize| Request::new("POST", &path).json(&json!({"content": n, "filler": filler}));
    let counts = venue.under("a long conversation", venue.flood(count, message)).await;
    check("messages", &counts);
    let answered = async {
        loop {
            let job = venue.attacker.job(&chat).await;
            if job["queueDepth"].as_u64().unwrap_or(0) == 0 && job["status"] == "INPUT_REQUIRED" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    venue.under("its answers", answered).await;
    let history = Request::new("GET", &format!("{path}/history"));
    let replies = venue.under("64 reads of its history", venue.send_all(vec![history; 64])).await;
    assert!(replies.iter().all(|reply| [200, 429].contains(&reply.status())));
    let chain = venue.attacker.history(&chat).await;
    assert!(chain.entries.len() > count, "{}", chain.entries.len());
    victim.restart().await;
    assert_eq!(victim.attacker.history(&chat).await.entries.len(), chain.entries.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_many_jobs_does_not_harm_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let mut jobs = Vec::new();
    for n in 0..flood_len().min(500) {
        jobs.push(id_of(&venue.attacker.invoke("test:echo", json!({"n": n})).await));
    }
    let delete = |n: usize| Request::new("PUT", &format!("/api/v1/jobs/{}/delete", jobs[n]));
    let counts = venue.under("deletions", venue.flood(jobs.len(), delete)).await;
    check("deletions", &counts);
    let read = |n: usize| Request::new("GET", &format!("/api/v1/jobs/{}", jobs[n]));
    let counts = venue.under("reads of deleted jobs", venue.flood(jobs.len(), read)).await;
    assert_eq!(counts, [(410, jobs.len())]);
    let list = venue.attacker.get("/api/v1/tombstones?limit=1000");
    venue.under("a list of tombstones", list).await.expect(200);
    victim.restart().await;
}

//! Requests, jobs and responses that take much memory at once.

use std::time::Duration;

use catena_auth::KeyPair;
use catena_tests::http::Request;
use catena_tests::site::{id_of, token};
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt as _;

use super::{Victim, count_attack, is_release, peak_kb, status_kb};

/// As many bytes as a request may nearly have.
const LARGE: usize = 9_000_000;

/// Bytes of each of many requests at the same time. An unoptimised venue takes seconds to parse all of
/// them.
const MANY: usize = if cfg!(debug_assertions) { 300_000 } else { LARGE };

fn text(bytes: usize) -> Json {
    Json::from("x".repeat(bytes))
}

/// As many bytes as a list of digits may have for its caller to hold it.
const LARGE_LIST: usize = if MANY < 6_000_000 { MANY } else { 6_000_000 };

/// Lists are the largest values for their text.
fn numbers(bytes: usize) -> Json {
    Json::from(vec![0; bytes / 2])
}

fn invocation(operation: &str, input: &Json) -> Request {
    let body = json!({"operation": operation, "input": input, "wait": 10_000});
    Request::new("POST", "/api/v1/invoke").json(&body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_of_large_requests_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    for (name, operation, input) in [
        ("64 large texts", "test:echo", text(MANY)),
        ("64 large lists", "test:echo", numbers(LARGE_LIST)),
        ("64 large inputs that wait", "test:delay", json!({"delay": 2_000, "input": text(MANY)})),
    ] {
        let request = invocation(operation, &input);
        let replies = venue.under(name, venue.send_all(vec![request; 64])).await;
        let statuses: Vec<u16> = replies.iter().map(|reply| reply.status()).collect();
        assert!(statuses.iter().all(|status| [200, 201, 429].contains(status)), "{statuses:?}");
        assert!(statuses.iter().any(|status| *status < 300), "{name}: {statuses:?}");
    }
    victim.restart().await;
    victim.echo().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_of_large_responses_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let request = invocation("test:echo", &text(LARGE));
    let job = id_of(&venue.attacker.ask(request).await.json());
    let path = format!("/api/v1/jobs/{job}");

    let reads = venue.send_all(vec![Request::new("GET", &path); 64]);
    let replies = venue.under("64 reads of a large job", reads).await;
    assert!(replies.iter().all(|reply| [200, 429].contains(&reply.status())));
    assert!(replies.iter().any(|reply| reply.status() == 200));

    let call = |id: usize| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "grid_job-result", "arguments": {"id": job}}})
    };
    let batch: Vec<Json> = (0..64).map(call).collect();
    let batch = Request::new("POST", "/mcp")
        .header("accept", "application/json")
        .header("mcp-protocol-version", "2025-03-26")
        .json(&json!(batch));
    venue.under("a batch of 64 large results", venue.attacker.ask(batch)).await;

    // Clients that do not read what they asked for.
    let mut silent = Vec::new();
    for number in 0..100 {
        let mut stream = tokio::net::TcpStream::connect(venue.attacker.address).await.unwrap();
        let path = if number % 2 == 0 { path.clone() } else { format!("{path}/sse") };
        let host = venue.attacker.address;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    venue.under("100 clients that do not read", venue.attacker.get("/livez")).await.expect(200);
    drop(silent);
    victim.restart().await;
    victim.echo().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_with_100_mb_of_outputs_can_be_started_read_watched_and_cancelled() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let echo = json!({"op": "test:echo", "input": ["input"]});
    let mut steps = vec![echo; 12];
    steps.push(json!({"op": "test:never", "input": ["const", {}]}));
    let definition = json!({"name": "large", "type": "orchestration", "operation":
        {"adapter": "orchestrator", "steps": steps, "result": ["const", 1]}});
    let reply = venue.attacker.post("/api/v1/assets", &definition).await;
    let operation = reply.expect(201).json().as_str().unwrap().to_owned();
    let body = json!({"operation": operation, "input": text(LARGE)});
    let start = venue.attacker.post("/api/v1/invoke", &body);
    let job = venue.under("a large workflow", start).await.expect(201).json();
    let path = format!("/api/v1/jobs/{}?steps=brief", id_of(&job));
    let read = async {
        loop {
            let job = venue.attacker.get(&path).await.expect(200).json();
            let steps = job["steps"].as_array().unwrap();
            let ended = steps.iter().filter(|step| step["status"] == "COMPLETE").count();
            assert_eq!(job["status"], "STARTED", "{}", job["error"]);
            if ended == 12 {
                return job;
            }
        }
    };
    let job = venue.under("reading it", read).await;
    assert_eq!(job["steps"][0]["outputBytes"], json!(LARGE + 2));
    let path = format!("/api/v1/jobs/{}/cancel", id_of(&job));
    let cancel = venue.attacker.put(&path);
    let job = venue.under("cancelling it", cancel).await.expect(200).json();
    assert_eq!(job["status"], "CANCELLED");
    victim.restart().await;
    victim.echo().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_that_duplicate_values_do_not_harm_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let doubled = |step: usize| {
        let part = if step == 0 { json!(["input"]) } else { json!([step - 1]) };
        json!({"op": "test:echo", "input": ["array", part, part]})
    };
    let joined = |step: usize| {
        let part = if step == 0 { json!(["input"]) } else { json!([step - 1]) };
        json!({"op": "test:echo", "input": ["concat", part, part]})
    };
    let plans = [
        ("doubled lists", (0..40).map(doubled).collect::<Vec<_>>(), text(100)),
        ("doubled texts", (0..40).map(joined).collect::<Vec<_>>(), text(100)),
        (
            "a large text in every step",
            (0..1_000)
                .map(|n| json!({"op": "test:echo", "input": {"n": ["const", n], "t": ["input"]}}))
                .collect::<Vec<_>>(),
            text(5_000_000),
        ),
    ];
    for (name, steps, input) in plans {
        let definition = json!({"name": name, "type": "orchestration", "operation":
            {"adapter": "orchestrator", "steps": steps, "result": ["const", 1]}});
        let reply = venue.attacker.post("/api/v1/assets", &definition).await;
        let operation = reply.expect(201).json().as_str().unwrap().to_owned();
        let reply = venue.under(name, venue.attack(&operation, &input)).await;
        let job = reply.json();
        assert_ne!(job["status"], "COMPLETE", "{name}");
    }
    victim.restart().await;
    victim.echo().await;
}

/// Requests at a time, and callers that send them.
const AT_ONCE: usize = 64;
const CALLERS: usize = 8;

/// What the requests of a venue may hold, with what is not counted, in kB.
fn allowed_kb() -> u64 {
    // Without optimisation the test is too short to fill the caches of the store before it measures.
    let caches = if is_release() { 0 } else { 400_000 };
    (512 * 1024 * 1024 + 64 * 1024 * 1024) / 1_000 + caches
}

/// Bytes of one of these requests.
fn request_bytes() -> usize {
    if is_release() { LARGE } else { 150_000 }
}

/// A text of which no two parts are equal.
fn distinct(from: usize, bytes: usize) -> String {
    (from..from + bytes / 10).map(|number| format!("{number:>10}")).collect()
}

/// How many kinds of requests there are.
const KINDS: usize = 8;

/// A request of a kind: its name, path and operation, and an input of so many bytes as JSON. No two numbers have
/// the same input.
fn request_of(
    kind: usize,
    number: usize,
    bytes: usize,
) -> (&'static str, &'static str, &'static str, Json) {
    let from = number * bytes;
    let text = || distinct(from, bytes);
    let numbers = || Json::from((from..from + bytes / 10).collect::<Vec<usize>>());
    let members = || -> serde_json::Map<String, Json> {
        (from..from + bytes / 25).map(|n| (format!("k{n}"), json!(n))).collect()
    };
    match kind {
        0 => ("texts", "/api/v1/invoke", "test:echo", text().into()),
        1 => ("tasks", "/api/v1/invoke", "test:delay", json!({"delay": 500, "input": text()})),
        2 => ("lists", "/api/v1/invoke", "test:echo", numbers()),
        3 => ("maps", "/api/v1/invoke", "test:echo", members().into()),
        4 => ("runs", "/api/v1/run", "test:echo", text().into()),
        5 => {
            let text = numbers().to_string();
            ("texts that become values", "/api/v1/run", "json:parse", json!({"text": text}))
        }
        6 => {
            let value = json!({"value": numbers()});
            ("values that become texts", "/api/v1/run", "json:stringify", value)
        }
        _ => {
            let write = json!({"path": format!("w/a{number}"), "value": text()});
            ("writes", "/api/v1/invoke", "covia:write", write)
        }
    }
}

impl Victim {
    /// Waits until the venue has returned what it does not need, and returns its resident memory in kB.
    async fn idle_kb(&self) -> u64 {
        let process = self.process.as_ref().unwrap();
        let mut before = u64::MAX;
        loop {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            let now = status_kb(process, "VmRSS:");
            if now + 4_000 >= before {
                return now;
            }
            before = now;
        }
    }
}

/// Tokens of several callers.
async fn tokens_of(venue: &Victim) -> Vec<String> {
    let did = venue.attacker.get("/.well-known/did.json").await.json()["id"].clone();
    let seeds = 20..20 + u8::try_from(CALLERS).unwrap();
    let tokens = seeds.map(|seed| {
        let key = KeyPair::from_seed(&[seed; 32]);
        format!("Bearer {}", token(&key, &[("aud", did.as_str().unwrap().into())]))
    });
    tokens.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes minutes, and measures an optimised binary: see docs/operate/security.md"]
async fn any_64_requests_at_a_time_take_no_more_than_the_budget_and_64_mb() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let tokens = tokens_of(venue).await;
    let bytes = request_bytes();
    let mut job = None;
    // The first round fills the caches of the store, which stay: idle is what it is after that.
    let rounds: &[bool] = if is_release() { &[false, true] } else { &[true] };
    for &is_measured in rounds {
        for kind in 0..KINDS {
            let mut name = "";
            let mut requests = Vec::new();
            for number in 0..AT_ONCE {
                let number = number + AT_ONCE * (kind + KINDS * usize::from(is_measured));
                let (kind_name, path, operation, input) = request_of(kind, number, bytes);
                name = kind_name;
                let body = json!({"operation": operation, "input": input, "wait": 10_000});
                let request = Request::new("POST", path)
                    .header("authorization", &tokens[number % CALLERS])
                    .json(&body);
                requests.push(request);
            }
            let replies = venue.measured(name, requests, is_measured).await;
            let is_fine = |status: u16| status < 500 || status == 503;
            assert!(replies.iter().all(|(status, _)| is_fine(*status)), "{name}: {replies:?}");
            job = job.or(replies.into_iter().find_map(|(_, job)| job));
        }
    }
    let path = format!("/api/v1/jobs/{}", job.unwrap());
    for accepted in ["identity", "gzip"] {
        let read = |number: usize| {
            Request::new("GET", &path)
                .header("authorization", &tokens[number % CALLERS])
                .header("accept-encoding", accepted)
        };
        venue.measured("reads", (0..AT_ONCE).map(read).collect(), true).await;
    }
    victim.restart().await;
}

impl Victim {
    /// Sends requests at the same time and checks what the venue takes above what it takes idle. Returns the
    /// statuses and the jobs.
    async fn measured(
        &self,
        name: &str,
        requests: Vec<Request>,
        is_measured: bool,
    ) -> Vec<(u16, Option<String>)> {
        let idle = self.idle_kb().await;
        let process = self.process.as_ref().unwrap();
        // The peak begins anew.
        std::fs::write(format!("/proc/{}/clear_refs", process.id()), "5").unwrap();
        count_attack();
        let replies = self.send_all(requests).await;
        let above = peak_kb(process).saturating_sub(idle);
        println!("64 {name}: {} MB above {} MB", above / 1_000, idle / 1_000);
        assert!(!is_measured || above <= allowed_kb(), "{name}: {above} kB above {idle} kB");
        let job = |reply: &catena_tests::http::Reply| {
            let has_job = matches!(reply.status(), 200 | 201) && reply.body.starts_with(b"{");
            let body = serde_json::from_slice::<Json>(&reply.body).ok().filter(|_| has_job);
            body.and_then(|body| body["id"].as_str().map(str::to_owned))
        };
        replies.iter().map(|reply| (reply.status(), job(reply))).collect()
    }
}

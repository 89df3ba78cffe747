//! Kills a venue under load, again and again, and checks that it kept its word.
//!
//! Clients do what careful clients do: every request has an idempotency key, and one that was not
//! answered is sent again after the restart. So at the end the venue must have exactly one job per
//! key: nothing acknowledged is lost, nothing is made twice, everything ends once, every history
//! verifies, messages are taken once and in order, and what must not be repeated was not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::http::{Connection, Reply, Request};
use crate::process::{Process, start_and_kill};
use crate::site::{Client, id_of};
use crate::target::Target;

/// Jobs that one client makes in one round; after that it only reads.
const JOBS_PER_CLIENT: usize = 40;

/// How long, in milliseconds, a venue lives under load.
const LIFE_MS: std::ops::Range<u64> = 100..900;

/// How long, in milliseconds, a venue lives that is killed while it starts.
const YOUTH_MS: std::ops::Range<u64> = 1..150;

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The binary of the venue.
    pub binary: PathBuf,
    /// How often the venue is killed under load.
    pub rounds: u64,
    /// How many clients load it.
    pub clients: u64,
    /// Where randomness comes from: the same seed makes the same decisions.
    pub seed: u64,
}

/// What was found; that everything held is why there is a summary at all.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// How often the venue was killed.
    pub kills: u64,
    /// How many of those while it was starting.
    pub young_kills: u64,
    /// Jobs, one per idempotency key.
    pub jobs: usize,
    /// Requests whose answer never came and that were sent again.
    pub in_doubt: usize,
    /// Messages that jobs took.
    pub messages: usize,
    /// Requests that reached the counting server.
    pub requests: usize,
    /// How jobs ended.
    pub endings: BTreeMap<String, usize>,
}

/// Randomness that a seed decides (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn in_range(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }
}

/// A job that was asked for.
#[derive(Debug, Clone)]
struct Asked {
    key: String,
    body: Json,
    /// Nothing while the answer is in doubt.
    id: Option<String>,
    /// Messages to it, in the order in which they were sent; only the last can be in doubt.
    messages: Vec<String>,
    is_last_in_doubt: bool,
}

impl Asked {
    fn operation(&self) -> &str {
        self.body["operation"].as_str().unwrap()
    }

    fn request(&self) -> Request {
        Request::new("POST", "/api/v1/invoke").header("idempotency-key", &self.key).json(&self.body)
    }

    fn message_request(&self, id: &str, message: &str) -> Request {
        let content = if message == "done" { "done" } else { "more" };
        let message = json!({"messageId": message, "content": content});
        Request::new("POST", &format!("/api/v1/jobs/{id}")).json(&message)
    }
}

/// Carries the plan out. Panics, with the seed, when something does not hold.
pub async fn run(plan: &Plan) -> Summary {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let target = Target::start().await;
    let flags = ["--allow-host".to_owned(), target.address.to_string()];
    let mut random = Random(plan.seed);
    let mut asked: Vec<Asked> = Vec::new();
    let mut summary = Summary::default();
    let mut settled = 0;
    for round in 0..plan.rounds {
        let venue = Process::start(&plan.binary, &data, &flags).await;
        settle(venue.address, &mut asked[settled..], &mut summary).await;
        settled = asked.len();
        let clients = (0..plan.clients).map(|client| {
            let random = Random(random.next());
            let name = format!("{round}-{client}");
            tokio::spawn(load(venue.address, target.address, name, random))
        });
        let clients: Vec<_> = clients.collect();
        tokio::time::sleep(Duration::from_millis(random.in_range(LIFE_MS))).await;
        venue.kill().await;
        summary.kills += 1;
        for client in clients {
            asked.extend(client.await.unwrap());
        }
        if random.next().is_multiple_of(2) {
            let after = Duration::from_millis(random.in_range(YOUTH_MS));
            start_and_kill(&plan.binary, &data, &flags, after).await;
            summary.kills += 1;
            summary.young_kills += 1;
        }
    }
    let venue = Process::start(&plan.binary, &data, &flags).await;
    settle(venue.address, &mut asked, &mut summary).await;
    check_all(venue.address, &target, &asked, &mut summary).await;
    venue.kill().await;
    summary
}

/// One client: makes jobs until the venue is gone, and says what it asked for.
async fn load(
    address: SocketAddr,
    target: SocketAddr,
    name: String,
    mut random: Random,
) -> Vec<Asked> {
    let mut asked = Vec::new();
    // The end of the connection is what this waits for.
    let _ = load_until_gone(address, target, &name, &mut random, &mut asked).await;
    asked
}

async fn load_until_gone(
    address: SocketAddr,
    target: SocketAddr,
    name: &str,
    random: &mut Random,
    asked: &mut Vec<Asked>,
) -> io::Result<()> {
    let mut connection = Connection::open(address).await?;
    for number in 0..JOBS_PER_CLIENT {
        let key = format!("{name}-{number}");
        let body = invocation(&key, target, random);
        let (messages, is_last_in_doubt) = (Vec::new(), false);
        asked.push(Asked { key, body, id: None, messages, is_last_in_doubt });
        let job = asked.last_mut().unwrap();
        let reply = connection.ask(&job.request()).await?;
        assert!(matches!(reply.status(), 200 | 201), "{}", reply.text());
        job.id = Some(id_of(&reply.json()));
        if job.operation() == "test:chat" {
            for message in 0..random.in_range(0..4) {
                send(&mut connection, job, format!("m{message}")).await?;
            }
        }
    }
    let ids: Vec<_> = asked.iter().filter_map(|asked| asked.id.clone()).collect();
    loop {
        let id = &ids[random.next() as usize % ids.len()];
        let reply = connection.ask(&Request::new("GET", &format!("/api/v1/jobs/{id}"))).await?;
        assert_eq!(reply.status(), 200, "{}", reply.text());
    }
}

fn invocation(key: &str, target: SocketAddr, random: &mut Random) -> Json {
    let url = format!("http://{target}/{key}");
    match random.next() % 10 {
        0..4 => json!({"operation": "test:echo", "input": {"key": key}}),
        4..6 => {
            let delay = random.in_range(0..400);
            json!({"operation": "test:delay", "input": {"delay": delay, "input": key}})
        }
        6..8 => json!({"operation": "test:chat", "input": {"key": key}}),
        8 => json!({"operation": "http:get", "input": {"url": url}}),
        _ => json!({"operation": "http:post", "input": {"url": url, "body": key}}),
    }
}

async fn send(connection: &mut Connection, job: &mut Asked, message: String) -> io::Result<()> {
    let id = job.id.clone().unwrap();
    job.messages.push(message);
    job.is_last_in_doubt = true;
    let reply = connection.ask(&job.message_request(&id, job.messages.last().unwrap())).await?;
    assert_eq!(reply.status(), 202, "{}", reply.text());
    job.is_last_in_doubt = false;
    Ok(())
}

/// After a restart: what was not answered is asked again, and what was is answered the same.
async fn settle(address: SocketAddr, asked: &mut [Asked], summary: &mut Summary) {
    let mut connection = Connection::open(address).await.unwrap();
    for job in asked.iter_mut() {
        let reply = connection.ask(&job.request()).await.unwrap();
        assert!(matches!(reply.status(), 200 | 201), "{}: {}", job.key, reply.text());
        let id = id_of(&reply.json());
        match &job.id {
            Some(known) => {
                assert_eq!(&id, known, "{} has another job after the restart", job.key);
                assert_eq!(reply.header("idempotent-replayed"), Some("true"), "{}", job.key);
            }
            None => {
                summary.in_doubt += 1;
                job.id = Some(id.clone());
            }
        }
        if job.is_last_in_doubt {
            let request = job.message_request(&id, job.messages.last().unwrap());
            connection.ask(&request).await.unwrap().expect(202);
            summary.in_doubt += 1;
            job.is_last_in_doubt = false;
        }
    }
}

async fn check_all(address: SocketAddr, target: &Target, asked: &[Asked], summary: &mut Summary) {
    let client = Client::anonymous(address);
    for job in asked.iter().filter(|job| job.operation() == "test:chat") {
        let id = job.id.as_deref().unwrap();
        let reply = client.ask(job.message_request(id, "done")).await;
        assert!(matches!(reply.status(), 202 | 409), "{}", reply.text());
    }
    for job in asked {
        check(&client, target, job, summary).await;
    }
    let ids: BTreeSet<_> = asked.iter().map(|job| bare(job.id.as_deref().unwrap())).collect();
    assert_eq!(ids.len(), asked.len(), "two requests were given the same job");
    assert_eq!(listed(&client).await, ids, "one job per key, and no other");
    summary.jobs = ids.len();
    summary.requests = target.total();
}

async fn check(client: &Client, target: &Target, asked: &Asked, summary: &mut Summary) {
    let id = asked.id.as_deref().unwrap();
    let job = client.ended(id).await;
    let chain = client.history(id).await;
    let report = chain.verify();
    assert_eq!(report.job.to_string(), id);
    assert_eq!(report.head.to_string(), job["head"].as_str().unwrap());
    assert_eq!(chain.endings(), 1, "a job ends once: {:#?}", chain.entries);
    let status = job["status"].as_str().unwrap().to_owned();
    let is_used_up = job["errorCode"] == "attempts_used_up";
    let is_interrupted = job["errorCode"] == "interrupted";
    let path = format!("/{}", asked.key);
    match asked.operation() {
        "test:echo" => assert_eq!(job["output"], asked.body["input"], "{job}"),
        "test:delay" => assert!(job["output"] == asked.key.as_str() || is_used_up, "{job}"),
        "http:get" => assert!(job["output"]["status"] == 200 || is_used_up, "{job}"),
        "http:post" => {
            assert!(job["output"]["status"] == 200 || is_interrupted, "{job}");
            assert!(target.count(&path) <= 1, "{path} was sent {} times", target.count(&path));
            assert!(status != "COMPLETE" || target.count(&path) == 1, "{path} was never sent");
        }
        _ => {
            let mut expected: Vec<_> = asked.messages.iter().map(String::as_str).collect();
            expected.push("done");
            let taken = chain.triggers();
            assert!(taken == expected || is_used_up, "{taken:?}, not {expected:?}: {job}");
            summary.messages += taken.len();
        }
    }
    *summary.endings.entry(status).or_insert(0) += 1;
}

/// Every job of the caller, as it is listed.
async fn listed(client: &Client) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut offset = 0;
    loop {
        let reply: Reply = client.get(&format!("/api/v1/jobs?offset={offset}")).await.expect(200);
        let page = reply.json();
        let items = page["items"].as_array().unwrap();
        for id in items {
            assert!(ids.insert(id.as_str().unwrap().to_owned()), "{id} is listed twice");
        }
        offset += items.len();
        if items.is_empty() || offset as u64 >= page["total"].as_u64().unwrap() {
            return ids;
        }
    }
}

fn bare(id: &str) -> String {
    id.trim_start_matches("0x").to_owned()
}

//! Kills a venue under load repeatedly, and checks that nothing acknowledged was lost.
//!
//! Clients behave as careful clients do: every request has an idempotency key, and a request without a
//! response is sent again after the restart. At the end the venue must have exactly one job per key:
//! nothing acknowledged is lost, nothing is created twice, every job ends once, every history verifies,
//! messages are delivered once and in order, and operations that must not be repeated were not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::http::{Connection, Reply, Request};
use crate::process::{Process, start_and_kill};
use crate::random::Random;
use crate::site::{Client, id_of};
use crate::target::Target;

/// The number of jobs that a client creates in one round; after that it only reads.
const JOBS_PER_CLIENT: usize = 40;

/// How long a venue runs under load before it is killed, in ms.
const UPTIME_MS: std::ops::Range<u64> = 100..900;

/// After which time a venue is killed while it starts, in ms.
const STARTUP_MS: std::ops::Range<u64> = 1..150;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The binary of the venue.
    pub binary: PathBuf,
    /// The number of kills under load.
    pub rounds: u64,
    /// The number of concurrent clients.
    pub clients: u64,
    /// The seed of all random decisions.
    pub seed: u64,
}

/// Statistics of a run in which every check passed.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// The total number of kills.
    pub kills: u64,
    /// Kills while the venue was starting.
    pub startup_kills: u64,
    /// Jobs, one per idempotency key.
    pub jobs: usize,
    /// Requests that were sent again because they got no response.
    pub in_doubt: usize,
    /// Messages that were delivered to jobs.
    pub messages: usize,
    /// Requests that reached the counting server.
    pub requests: usize,
    /// The number of jobs by final status.
    pub endings: BTreeMap<String, usize>,
}

/// A job that a client requested.
#[derive(Debug, Clone)]
struct RequestedJob {
    key: String,
    body: Json,
    /// `None` while there is no response.
    id: Option<String>,
    /// Messages to the job in the order in which they were sent; only the last can lack a response.
    messages: Vec<String>,
    is_last_in_doubt: bool,
}

impl RequestedJob {
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

/// Performs the run. Panics if a check fails.
pub async fn run(plan: &Plan) -> Summary {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let target = Target::start().await;
    let flags = ["--allow-host".to_owned(), target.address.to_string()];
    let mut random = Random(plan.seed);
    let mut asked: Vec<RequestedJob> = Vec::new();
    let mut summary = Summary::default();
    let mut repeated = 0;
    for round in 0..plan.rounds {
        let venue = Process::start(&plan.binary, &data, &flags).await;
        repeat_requests(venue.address, &mut asked[repeated..], &mut summary).await;
        repeated = asked.len();
        let clients = (0..plan.clients).map(|client| {
            let random = Random(random.number());
            let name = format!("{round}-{client}");
            tokio::spawn(load(venue.address, target.address, name, random))
        });
        let clients: Vec<_> = clients.collect();
        tokio::time::sleep(Duration::from_millis(random.in_range(UPTIME_MS))).await;
        venue.kill().await;
        summary.kills += 1;
        for client in clients {
            asked.extend(client.await.unwrap());
        }
        if random.number().is_multiple_of(2) {
            let after = Duration::from_millis(random.in_range(STARTUP_MS));
            start_and_kill(&plan.binary, &data, &flags, after).await;
            summary.kills += 1;
            summary.startup_kills += 1;
        }
    }
    let venue = Process::start(&plan.binary, &data, &flags).await;
    repeat_requests(venue.address, &mut asked, &mut summary).await;
    check_all(venue.address, &target, &asked, &mut summary).await;
    venue.kill().await;
    summary
}

/// One client: creates jobs until the venue is killed, and returns what it requested.
async fn load(
    address: SocketAddr,
    target: SocketAddr,
    name: String,
    mut random: Random,
) -> Vec<RequestedJob> {
    let mut asked = Vec::new();
    // An error means that the connection ended, which is how every round ends.
    let _ = load_until_gone(address, target, &name, &mut random, &mut asked).await;
    asked
}

async fn load_until_gone(
    address: SocketAddr,
    target: SocketAddr,
    name: &str,
    random: &mut Random,
    asked: &mut Vec<RequestedJob>,
) -> io::Result<()> {
    let mut connection = Connection::open(address).await?;
    for number in 0..JOBS_PER_CLIENT {
        let key = format!("{name}-{number}");
        let body = invocation(&key, target, random);
        asked.push(RequestedJob {
            key,
            body,
            id: None,
            messages: Vec::new(),
            is_last_in_doubt: false,
        });
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
        let id = &ids[random.number() as usize % ids.len()];
        let reply = connection.ask(&Request::new("GET", &format!("/api/v1/jobs/{id}"))).await?;
        assert_eq!(reply.status(), 200, "{}", reply.text());
    }
}

fn invocation(key: &str, target: SocketAddr, random: &mut Random) -> Json {
    let url = format!("http://{target}/{key}");
    match random.number() % 10 {
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

async fn send(
    connection: &mut Connection,
    job: &mut RequestedJob,
    message: String,
) -> io::Result<()> {
    let id = job.id.clone().unwrap();
    job.messages.push(message);
    job.is_last_in_doubt = true;
    let reply = connection.ask(&job.message_request(&id, job.messages.last().unwrap())).await?;
    assert_eq!(reply.status(), 202, "{}", reply.text());
    job.is_last_in_doubt = false;
    Ok(())
}

/// Repeats all requests after a restart: those with a response must get the same job again.
async fn repeat_requests(address: SocketAddr, asked: &mut [RequestedJob], summary: &mut Summary) {
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

async fn check_all(
    address: SocketAddr,
    target: &Target,
    asked: &[RequestedJob],
    summary: &mut Summary,
) {
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

async fn check(client: &Client, target: &Target, asked: &RequestedJob, summary: &mut Summary) {
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

/// The IDs of all jobs in the caller's list.
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

//! The venue is killed at every commit of a turn, and while an agent waits for its model or for a tool: nothing is
//! paid for or done twice.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use catena_tests::TIMEOUT;
use catena_tests::http::{Connection, Request};
use catena_tests::model::{Model, calls, says};
use catena_tests::process::{FREE, Process};
use catena_tests::site::Client;
use catena_tests::target::Target;
use serde_json::{Value as Json, json};

use crate::binary;

async fn create(client: &Client, url: &str, tools: Json) {
    let config = json!({"operation": "llm:agent", "url": url, "model": "m", "tools": tools});
    client.invoked("agent:create", json!({"agentId": "a", "config": config}), "COMPLETE").await;
    client.invoked("agent:message", json!({"agentId": "a", "message": "go"}), "COMPLETE").await;
}

async fn record(client: &Client) -> Json {
    client.get("/api/v1/values/read?path=g/a").await.expect(200).json()["value"].clone()
}

/// A model call that was interrupted is not repeated: the turn fails, and nothing is lost.
#[tokio::test]
async fn a_kill_during_a_model_call_pays_for_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let target = Target::start().await;
    let flags = ["--allow-host".to_owned(), target.address.to_string()];
    let venue = Process::start(&binary(), &data, &flags).await;
    let client = Client::anonymous(venue.address);
    create(&client, &target.url("/hold/v1"), json!([])).await;
    let run = client.invoke("agent:run", json!({"agentId": "a"})).await;
    let run = run["id"].as_str().unwrap().to_owned();
    target.arrived("/hold/v1/chat/completions").await;
    venue.kill().await;
    target.open();
    let venue = Process::start(&binary(), &data, &flags).await;
    let client = Client::anonymous(venue.address);
    let ended = client.ended(&run).await;
    assert_eq!(ended["status"], "FAILED", "{ended}");
    let record = record(&client).await;
    assert_eq!(record["status"], "SUSPENDED");
    assert_eq!(record["inbox"].as_array().unwrap().len(), 1);
    assert_eq!(record["timeline"], json!([]));
    assert_eq!(target.count("/hold/v1/chat/completions"), 1);
    client.history(&run).await.verify();
    venue.kill().await;
}

/// A tool call that was interrupted is not repeated: the model learns of it, and its earlier answer is
/// not asked for again.
#[tokio::test]
async fn a_kill_during_a_tool_call_repeats_neither_the_tool_nor_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let target = Target::start().await;
    let arguments = json!({"url": target.url("/hold/tool"), "body": "x"}).to_string();
    let model = Model::start(move |body, _| {
        let messages = body["messages"].as_array().unwrap();
        match messages.iter().find(|message| message["role"] == "tool") {
            None => calls(&[("http_post", &arguments)]),
            Some(result) => says(&format!("it said {}", result["content"])),
        }
    });
    let model = model.await;
    let mut flags = Vec::new();
    for host in [target.address.to_string(), model.host()] {
        flags.extend(["--allow-host".to_owned(), host]);
    }
    let venue = Process::start(&binary(), &data, &flags).await;
    let client = Client::anonymous(venue.address);
    create(&client, &model.url(), json!(["http:post"])).await;
    let run = client.invoke("agent:run", json!({"agentId": "a"})).await;
    let run = run["id"].as_str().unwrap().to_owned();
    target.arrived("/hold/tool").await;
    venue.kill().await;
    target.open();
    let venue = Process::start(&binary(), &data, &flags).await;
    let client = Client::anonymous(venue.address);
    let ended = tokio::time::timeout(TIMEOUT, client.ended(&run)).await.unwrap();
    assert_eq!(ended["status"], "COMPLETE", "{ended}");
    let record = record(&client).await;
    assert_eq!((&record["status"], &record["inbox"]), (&json!("SLEEPING"), &json!([])));
    let response = record["timeline"][0]["result"]["response"].as_str().unwrap().to_owned();
    assert!(response.starts_with("it said") && response.contains("error"), "{response}");
    assert_eq!((target.count("/hold/tool"), model.received().len()), (1, 2));
    client.history(&run).await.verify();
    venue.kill().await;
}

/// More commits than a turn has.
const COMMITS_MAX: u64 = 200;

/// A model that calls a tool once and then answers, the tool, and the folder of a venue with an agent that has
/// not made its turn yet.
struct World {
    model: Model,
    target: Target,
    flags: Vec<String>,
    folder: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        let target = Target::start().await;
        let arguments = json!({"url": target.url("/tool"), "body": "x"}).to_string();
        let model = Model::start(move |body, _| {
            let messages = body["messages"].as_array().unwrap();
            match messages.iter().find(|message| message["role"] == "tool") {
                None => calls(&[("http_post", &arguments)]),
                Some(_) => says("done"),
            }
        });
        let model = model.await;
        let mut flags = Vec::new();
        for host in [target.address.to_string(), model.host()] {
            flags.extend(["--allow-host".to_owned(), host]);
        }
        let folder = tempfile::tempdir().unwrap();
        let venue = Process::start(&binary(), &folder.path().join("before"), &flags).await;
        let client = Client::anonymous(venue.address);
        create(&client, &model.url(), json!(["http:post"])).await;
        assert!(venue.terminate().await.success());
        World { model, target, flags, folder }
    }

    /// Runs the venue until it is killed at the given commit, or until the turn is answered. Returns true if it was
    /// killed.
    async fn run_until_killed(&self, data: &Path, when: &str) -> bool {
        let variable = [("CATENA_X_TEST_DIE_AT_COMMIT", when)];
        let started = Process::try_start_with(&variable, FREE, &binary(), data, &self.flags).await;
        let Ok(venue) = started else { return true };
        let body = json!({"operation": "agent:run", "input": {"agentId": "a"}, "wait": 25_000});
        let run = Request::new("POST", "/api/v1/invoke").json(&body);
        let asking = async { Connection::open(venue.address).await?.ask(&run).await };
        let reply = tokio::time::timeout(TIMEOUT, asking).await.unwrap();
        let was_killed = reply.is_err();
        if let Ok(reply) = reply {
            let job = reply.json();
            assert_eq!(job["status"], "COMPLETE", "{when}: {job}");
        }
        if was_killed {
            assert_eq!(venue.ended().await.signal(), Some(9), "{when}");
        } else {
            venue.kill().await;
        }
        was_killed
    }

    /// Kills the venue at a commit of a turn and starts it again. Returns what became of the turn, and whether
    /// the venue was killed.
    async fn kill_at(&self, when: &str) -> (&'static str, bool) {
        let data = self.folder.path().join(when);
        copy_folder(&self.folder.path().join("before"), &data);
        let (asked, acted) = (self.model.received().len(), self.target.count("/tool"));
        let was_killed = self.run_until_killed(&data, when).await;
        let venue = Process::start(&binary(), &data, &self.flags).await;
        let client = Client::anonymous(venue.address);
        let jobs = client.get("/api/v1/jobs?limit=100").await.expect(200).json();
        for id in jobs["items"].as_array().unwrap() {
            client.ended(id.as_str().unwrap()).await;
            client.history(id.as_str().unwrap()).await.verify();
        }
        let record = record(&client).await;
        venue.kill().await;
        let bodies = self.model.bodies().split_off(asked);
        let lengths: Vec<usize> =
            bodies.iter().map(|body| body["messages"].as_array().unwrap().len()).collect();
        let acted = self.target.count("/tool") - acted;
        assert!(lengths.windows(2).all(|pair| pair[0] < pair[1]), "{when}: {lengths:?}");
        assert!(acted <= 1, "{when}: the tool acted {acted} times");
        let counts = ["inbox", "timeline"].map(|name| record[name].as_array().unwrap().len());
        let outcome = match (record["status"].as_str().unwrap(), counts) {
            ("SLEEPING", [0, 1]) => {
                assert_eq!(lengths.len(), 2, "{when}: {record}");
                // If the venue died between the commit that starts the tool and the request, nobody knows whether
                // the tool acted. It is not called again, and the model is told so.
                let told = bodies.last().map(|body| body["messages"].to_string()).unwrap();
                assert!(acted == 1 || told.contains("error"), "{when}: {told}");
                "made"
            }
            // Suspended by an interrupted call, or never begun.
            ("SUSPENDED" | "SLEEPING", [1, 0]) => {
                assert!(record["state"]["sessions"].is_null(), "{when}: {record}");
                "unchanged"
            }
            other => panic!("{when}: {other:?} {record}"),
        };
        (outcome, was_killed)
    }
}

/// Copies the files of a folder of a stopped venue.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::DirBuilder::new().mode(0o700).create(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy_folder(&entry.path(), &to);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), &to).unwrap();
        }
    }
}

/// The process kills itself at the n-th commit after its start, for every n, with and without that commit on the
/// disk, until a turn was answered before that. Whatever the commit was, the turn was made once or not at all, and
/// neither the model nor the tool got a request twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_made_once_or_not_at_all_whatever_commit_the_real_venue_is_killed_at() {
    let world = World::new().await;
    let mut outcomes = BTreeMap::new();
    for durable in ["", ",durable"] {
        let mut kills = 0;
        loop {
            let (outcome, was_killed) = world.kill_at(&format!("{kills}{durable}")).await;
            *outcomes.entry(outcome).or_insert(0) += 1;
            if !was_killed {
                assert_eq!(outcome, "made", "nothing stopped it");
                break;
            }
            kills += 1;
            assert!(kills < COMMITS_MAX, "the turn does not end");
        }
        println!("{kills} commits");
        assert!(kills >= 8, "only {kills} commits");
    }
    println!("{outcomes:?}");
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}

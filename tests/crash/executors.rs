//! Executors and venues are killed while cells run; what an executor has; a venue with HTTPS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catena_api::{Credentials, HttpClient};
use catena_tests::TIMEOUT;
use catena_tests::process::{FREE, Process};
use catena_tests::site::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

use super::binary;

/// The number of cells that run while processes are killed.
const CELLS: usize = 24;

fn flags(more: &[&str]) -> Vec<String> {
    more.iter().map(|&flag| flag.to_owned()).collect()
}

async fn start(address: SocketAddr, folder: &Path) -> Process {
    let more = flags(&["--executors", "2", "--limits-worker-lease", "2s"]);
    Process::start_at(address, &binary(), &folder.join("data"), &more).await
}

/// The payload of a cell.
fn payload(source: &str) -> Json {
    let uuid = |number: u32| format!("018f4d2e-0000-7000-8000-0000{number:08x}");
    json!({
        "schema_version": "1.0", "job_type": "object_execute",
        "workspace_id": uuid(1), "project_id": uuid(2),
        "document_id": uuid(3), "document_revision_id": uuid(4),
        "target": {"object_id": uuid(5)},
        "inputs": {"object": {"type": "code", "dependencies": [],
            "content": {"format": "python", "value": source},
            "runtime": {"language": "python", "parameters": {}}}},
    })
}

/// The processes that a process has started and that run this command.
fn children(parent: u32, command: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |id: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}"))
            && line.split('\0').any(|word| word == command)
    };
    ids.filter(is_child).collect()
}

/// Waits until the venue has this many executors, and returns their processes.
async fn executors(venue: &Process, count: usize) -> Vec<u32> {
    let started = tokio::time::Instant::now();
    loop {
        let found = children(venue.id(), "executor");
        if found.len() == count {
            return found;
        }
        assert!(started.elapsed() < TIMEOUT, "{found:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Submits a cell as soon as there is an environment.
async fn submit(client: &Client, body: &Json) -> String {
    let started = tokio::time::Instant::now();
    loop {
        let reply = client.post("/contract/v1/jobs", body).await;
        if reply.status() == 202 {
            return reply.json()["job_id"].as_str().unwrap().to_owned();
        }
        assert_eq!(reply.status(), 503, "{}", reply.text());
        assert!(started.elapsed() < TIMEOUT, "no environment was announced");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cells_survive_kills_of_venue_and_executors_and_succeed_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut venue = start(FREE, folder.path()).await;
    let address = venue.address;
    let client = Client::anonymous(address);
    let mut ids = Vec::new();
    for number in 0..CELLS {
        let source = format!("import time\ntime.sleep(0.15)\nprint({number})");
        ids.push(submit(&client, &payload(&source)).await);
    }
    // An executor of this test takes a job and is not heard of until others have it.
    let token = std::process::Command::new(binary())
        .args(["token", "create", "--executor", "--data"])
        .arg(folder.path().join("data"))
        .output()
        .unwrap();
    let token = String::from_utf8(token.stdout).unwrap();
    let played = Client::with_token(address, token.trim());
    let version = client.get(&format!("/contract/v1/jobs/{}/payload", ids[0])).await.json();
    let version = version["environment"]["env_version"].as_str().unwrap().replace('@', ".");
    let claim = json!({"worker": "played", "queues": [format!("exec.{version}")], "max": 1,
                       "waitMs": 10_000, "about": {"tier": "T2"}});
    let lost = played.post("/worker/v1/claim", &claim).await.expect(200).json()["jobs"][0].clone();
    for (pause, is_venue) in [(137, false), (260, true), (411, false), (83, true)] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if is_venue {
            venue.kill().await;
            venue = start(address, folder.path()).await;
        } else if let Some(id) = children(venue.id(), "executor").first() {
            let id = Pid::from_raw(i32::try_from(*id).unwrap()).unwrap();
            // It may have ended meanwhile.
            let _ = kill_process(id, Signal::KILL);
        }
    }
    let mut endings = BTreeMap::new();
    for (number, id) in ids.iter().enumerate() {
        let path = format!("/contract/v1/jobs/{id}?wait=20000");
        let started = tokio::time::Instant::now();
        let result = loop {
            let result = client.get(&path).await.expect(200).json();
            if !["QUEUED", "RUNNING"].contains(&result["status"].as_str().unwrap()) {
                break result;
            }
            assert!(started.elapsed() < TIMEOUT, "{result}");
        };
        let status = result["status"].as_str().unwrap().to_owned();
        if status == "SUCCEEDED" {
            assert_eq!(result["outputs"]["stdout"], format!("{number}\n"));
        } else {
            let category = &result["error"]["category"];
            assert_eq!(
                (status.as_str(), category),
                ("FAILED", &json!("INTERNAL_ERROR")),
                "{result}"
            );
            assert_eq!(result["attempt"], 3, "it was lost three times");
        }
        // The chain verifies, has one end, and no step back.
        let chain = client.history(id).await;
        let of = |entry: &Json| entry["record"]["status"].as_str().map(str::to_owned);
        let statuses: Vec<String> = chain.entries.iter().filter_map(of).collect();
        let ends = statuses.iter().filter(|one| ["COMPLETE", "FAILED"].contains(&one.as_str()));
        assert_eq!(ends.count(), 1, "{statuses:?}");
        *endings.entry(status).or_insert(0) += 1;
    }
    println!("{endings:?}");
    assert!(endings["SUCCEEDED"] > CELLS / 2, "{endings:?}");
    let path = format!("/worker/v1/jobs/{}/end", lost["id"].as_str().unwrap());
    let late = json!({"fence": lost["fence"], "output": {"stdout": "late"}});
    assert_eq!(played.post(&path, &late).await.status(), 409, "the fence is an old one");
    venue.terminate().await;
}

#[tokio::test]
async fn an_executor_has_neither_the_key_nor_the_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let venue = Process::start(&binary(), &data, &flags(&["--executors", "1"])).await;
    let executor = executors(&venue, 1).await.remove(0);
    submit(&Client::anonymous(venue.address), &payload("print(1)")).await;
    let of = |name: &str| std::fs::read(format!("/proc/{executor}/{name}")).unwrap();
    let texts =
        [of("cmdline"), of("environ")].map(|text| String::from_utf8_lossy(&text).into_owned());
    let named = data.to_str().unwrap();
    assert!(texts.iter().all(|text| !text.contains(named)), "{texts:?}");
    assert!(texts.iter().all(|text| !text.contains("eyJ")), "the token is not shown to others");
    let links = std::fs::read_dir(format!("/proc/{executor}/fd")).unwrap().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let links: Vec<PathBuf> =
        links.chain(std::fs::read_link(format!("/proc/{executor}/cwd"))).collect();
    assert!(links.iter().all(|link| !link.starts_with(folder.path())), "{links:?}");
    let id = venue.id();
    venue.kill().await;
    // Executors and everything in their sandboxes end with the venue.
    let started = tokio::time::Instant::now();
    while Path::new(&format!("/proc/{executor}")).exists() {
        assert!(started.elapsed() < TIMEOUT, "the executor of {id} goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_venue_that_serves_https_has_an_executor() {
    let folder = tempfile::tempdir().unwrap();
    let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/support/tls");
    let certificate = tls.join("cert.pem");
    let key = tls.join("key.pem");
    let more = flags(&["--executors", "1", "--tls-cert", certificate.to_str().unwrap()]);
    let more = [more, flags(&["--tls-key", key.to_str().unwrap()])].concat();
    let venue = Process::start(&binary(), &folder.path().join("data"), &more).await;
    let url = format!("https://{}", venue.address).parse().unwrap();
    let client = HttpClient::connect_pinned(url, Credentials::Anonymous, certificate);
    let input = catena_value::json::read(br#"{"code":"print(6 * 7)"}"#).unwrap();
    let started = tokio::time::Instant::now();
    // Until the executor has announced itself, code cannot run.
    let output = loop {
        match client.run("exec:python", input.clone()).await {
            Ok(output) => break output,
            Err(error) => assert!(started.elapsed() < TIMEOUT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let stdout = output.as_map().and_then(|map| map.field("stdout")?.as_str());
    assert_eq!(stdout, Some("42\n"));
    let other = HttpClient::connect(
        format!("https://{}", venue.address).parse().unwrap(),
        Credentials::Anonymous,
    );
    assert!(other.run("test:echo", input).await.is_err(), "nobody else trusts the certificate");
    venue.terminate().await;
}

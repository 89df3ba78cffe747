//! Executors and venues are killed while cells run; what an executor has; a venue with HTTPS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use catena_api::{Credentials, HttpClient};
use catena_tests::TIMEOUT;
use catena_tests::process::{FREE, Process};
use catena_tests::random::Random;
use catena_tests::site::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};
use tokio::process::{Child, Command};

use super::{binary, set};

/// The number of cells that run while processes are killed.
const CELLS: usize = 80;

/// How often the venue or an executor is killed.
const KILLS: usize = 8;

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

/// A token for an executor that the test itself plays.
fn executor_token(data: &Path) -> String {
    let token = std::process::Command::new(binary())
        .args(["token", "create", "--executor", "--data"])
        .arg(data)
        .output()
        .unwrap();
    String::from_utf8(token.stdout).unwrap().trim().to_owned()
}

/// Claims a job as an executor that is not heard of again. `None` if others have all of them.
async fn claim_and_forget(played: &Client, name: &str, queue: &str) -> Option<Json> {
    let claim = json!({"worker": name, "queues": [queue], "max": 1, "waitMs": 1_000,
                       "about": {"tier": "T2"}});
    let job = played.post("/worker/v1/claim", &claim).await.expect(200).json()["jobs"][0].clone();
    job.is_object().then_some(job)
}

/// Kills the venue, or one of its executors. Returns the venue that runs then.
async fn kill_something(venue: Process, folder: &Path, random: &mut Random) -> Process {
    let address = venue.address;
    let executors = children(venue.id(), "executor");
    let chosen = random.in_range(0..3);
    if chosen == 0 || executors.is_empty() {
        venue.kill().await;
        return start(address, folder).await;
    }
    let id = executors[usize::try_from(chosen).unwrap() % executors.len()];
    let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    // It may have ended meanwhile.
    let _ = kill_process(id, Signal::KILL);
    venue
}

/// Section 3.2 under `kill -9` of the venue and of executors at random moments: no job is lost, none
/// succeeds twice, and no result is accepted under an old fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cells_survive_kills_of_venue_and_executors_and_succeed_once() {
    let seed = set("CATENA_CRASH_SEED", 20_261_116);
    let mut random = Random(seed);
    println!("CATENA_CRASH_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let mut venue = start(FREE, folder.path()).await;
    let address = venue.address;
    let client = Client::anonymous(address);
    let mut ids = Vec::new();
    for number in 0..CELLS {
        let source = format!("import time\ntime.sleep(0.15)\nprint({number})");
        ids.push(submit(&client, &payload(&source)).await);
    }
    let played = Client::with_token(address, &executor_token(&folder.path().join("data")));
    let version = client.get(&format!("/contract/v1/jobs/{}/payload", ids[0])).await.json();
    let version = version["environment"]["env_version"].as_str().unwrap().replace('@', ".");
    let queue = format!("exec.{version}");
    let mut lost = Vec::new();
    for kill in 0..KILLS {
        let pause = random.in_range(5..700);
        println!("kill {kill} after {pause} ms");
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if kill % 2 == 0 {
            lost.extend(claim_and_forget(&played, &format!("played-{kill}"), &queue).await);
        }
        venue = kill_something(venue, folder.path(), &mut random).await;
    }
    assert!(!lost.is_empty(), "the executor of the test got nothing");
    let mut endings = BTreeMap::new();
    for (number, id) in ids.iter().enumerate() {
        let result = ended(&client, id).await;
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
        check_transitions(&client, id).await;
        *endings.entry(status).or_insert(0) += 1;
    }
    println!("{endings:?}");
    assert!(endings["SUCCEEDED"] > CELLS / 2, "{endings:?}");
    for job in lost {
        let path = format!("/worker/v1/jobs/{}/end", job["id"].as_str().unwrap());
        let late = json!({"fence": job["fence"], "output": {"stdout": "late"}});
        assert_eq!(played.post(&path, &late).await.status(), 409, "the fence is an old one");
    }
    venue.terminate().await;
}

/// Waits for the end of a job.
async fn ended(client: &Client, id: &str) -> Json {
    let path = format!("/contract/v1/jobs/{id}?wait=20000");
    let started = tokio::time::Instant::now();
    loop {
        let result = client.get(&path).await.expect(200).json();
        if !["QUEUED", "RUNNING"].contains(&result["status"].as_str().unwrap()) {
            return result;
        }
        assert!(started.elapsed() < TIMEOUT, "{result}");
    }
}

/// Checks that the chain of a job verifies, has one end, and makes no step back.
async fn check_transitions(client: &Client, id: &str) {
    let chain = client.history(id).await;
    let of = |entry: &Json| entry["record"]["status"].as_str().map(str::to_owned);
    let statuses: Vec<String> = chain.entries.iter().filter_map(of).collect();
    let rank = |status: &String| match status.as_str() {
        "PENDING" => 0,
        "STARTED" => 1,
        "COMPLETE" | "FAILED" => 2,
        other => panic!("{other} in {statuses:?}"),
    };
    assert!(statuses.iter().map(rank).is_sorted(), "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| rank(status) == 2).count(), 1, "{statuses:?}");
}

/// The command of an executor of its own in a folder: as another user if this is root.
fn executor_command(address: SocketAddr, folder: &Path, token: &str) -> Command {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(folder).unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.join("token");
    std::fs::write(&file, token).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(binary());
        command
    } else {
        Command::new(binary())
    };
    let venue = format!("http://{address}");
    command.args(["executor", "--venue", &venue, "--slots", "1"]);
    command.arg("--token-file").arg(&file);
    // The interpreter of root may be in its home folder.
    command.env("PATH", "/usr/bin:/bin").current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command
}

/// Starts an executor of its own in a folder.
fn join_venue(address: SocketAddr, folder: &Path, token: &str, grace: &str) -> Child {
    executor_command(address, folder, token).args(["--grace", grace]).spawn().unwrap()
}

/// Starts a venue without executors, whose folder others may enter.
async fn start_alone(folder: &Path) -> Process {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let more = flags(&["--executors", "0", "--limits-worker-lease", "2s"]);
    Process::start(&binary(), &folder.join("data"), &more).await
}

/// Checks that an executor that cannot run Python still joins, and that jobs and its output say why.
async fn check_refusals(more: &[&str], reason: &str) {
    let folder = tempfile::tempdir().unwrap();
    let venue = start_alone(folder.path()).await;
    let client = Client::anonymous(venue.address);
    let token = executor_token(&folder.path().join("data"));
    let mut command = executor_command(venue.address, &folder.path().join("e1"), &token);
    let executor = command.args(more).stderr(Stdio::piped()).spawn().unwrap();
    let listed = connected(&client, 1).await;
    let said = listed[0]["unavailable"].as_str().unwrap_or_default();
    assert!(said.contains(reason), "{listed:?}");
    let reply = client.post("/contract/v1/jobs", &payload("print(1)")).await;
    assert!([400, 503].contains(&reply.status()), "{}", reply.text());
    let error = reply.json()["error"].clone();
    assert!(error["message"].as_str().unwrap().contains(reason), "{error}");
    let job = client.invoke("exec:python", json!({"code": "print(1)"})).await;
    assert_eq!(job["status"], "REJECTED", "{job}");
    assert!(job["error"].as_str().unwrap().contains(reason), "{job}");
    let pid = Pid::from_raw(i32::try_from(executor.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let stopping = tokio::time::timeout(TIMEOUT, executor.wait_with_output());
    let output = stopping.await.unwrap().unwrap();
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.contains(reason), "{output}");
    venue.terminate().await;
}

/// "Without Python, jobs are refused with a message saying what to install", also by an executor that renders.
#[tokio::test]
async fn without_python_jobs_are_refused_with_what_to_install() {
    check_refusals(&["--python", "/nonexistent/python3"], "install python3").await;
}

/// Below the minimum, code is refused and never runs unprotected.
#[tokio::test]
async fn an_executor_below_its_minimum_refuses_code_with_the_reason() {
    if !rustix::process::geteuid().is_root() {
        // A plain user that may have cgroups of its own might reach the tier.
        return;
    }
    check_refusals(&["--minimum", "T1"], "the sandbox cannot be set up").await;
}

/// Waits until this many executors are connected, and returns them.
async fn connected(client: &Client, count: usize) -> Vec<Json> {
    let started = tokio::time::Instant::now();
    loop {
        let listed = client.get("/contract/v1/executors").await.expect(200).json();
        let executors = listed["executors"].as_array().unwrap().clone();
        if executors.len() == count {
            return executors;
        }
        assert!(started.elapsed() < TIMEOUT, "{listed}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a job runs, and returns the executor that runs it.
async fn running(client: &Client, id: &str) -> String {
    client.until(id, "STARTED").await;
    let chain = client.history(id).await;
    let mut attempts =
        chain.entries.iter().filter_map(|entry| entry["record"]["executor"].as_str());
    attempts.next_back().unwrap().to_owned()
}

/// Executors join as another user, from another folder. One is killed and another takes over; one that is told to
/// stop gives back what it cannot finish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executors_join_are_killed_and_drain() {
    let folder = tempfile::tempdir().unwrap();
    let venue = start_alone(folder.path()).await;
    let data = folder.path().join("data");
    let client = Client::anonymous(venue.address);
    let reply = client.post("/contract/v1/jobs", &payload("print(1)")).await;
    assert_eq!(reply.status(), 503, "no executor has joined yet");
    let token = executor_token(&data);
    let mut first = join_venue(venue.address, &folder.path().join("e1"), &token, "60");
    let listed = connected(&client, 1).await;
    assert_eq!(listed[0]["slots"], 1);
    let id = submit(&client, &payload("print(1)")).await;
    let result = ended(&client, &id).await;
    assert_eq!(result["status"], "SUCCEEDED", "{result}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(result["tier"], "T2", "a plain user: {result}");
    }
    // It is killed while a cell runs; the second one runs the cell again.
    let id = submit(&client, &payload("import time\ntime.sleep(1)\nprint(2)")).await;
    running(&client, &id).await;
    first.kill().await.unwrap();
    let second = join_venue(venue.address, &folder.path().join("e2"), &token, "1");
    let result = ended(&client, &id).await;
    assert_eq!((&result["status"], &result["attempt"]), (&json!("SUCCEEDED"), &json!(2)));
    // The second one is told to stop: it gives back a cell that takes longer than it may.
    let id = submit(&client, &payload("import time\ntime.sleep(4)\nprint(3)")).await;
    running(&client, &id).await;
    let pid = Pid::from_raw(i32::try_from(second.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let stopping = tokio::time::timeout(TIMEOUT, second.wait_with_output());
    let stopped = stopping.await.unwrap().unwrap();
    assert!(stopped.status.success(), "{:?}", stopped.status);
    let read = client.get(&format!("/contract/v1/jobs/{id}")).await.expect(200).json();
    assert_eq!(read["status"], "RUNNING", "it never moves backwards");
    let _third = join_venue(venue.address, &folder.path().join("e3"), &token, "1");
    let result = ended(&client, &id).await;
    assert_eq!(result["outputs"]["stdout"], "3\n", "{result}");
    check_transitions(&client, &id).await;
    venue.terminate().await;
}

#[tokio::test]
async fn code_runs_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let venue =
        Process::start(&binary(), &folder.path().join("data"), &flags(&["--executors", "1"])).await;
    submit(&Client::anonymous(venue.address), &payload("print(1)")).await;
    let run = async |input: &str| {
        let mut command = Command::new(binary());
        command.args(["run", "exec:python", "-i", input, "--json"]).current_dir(folder.path());
        command.env("CATENA_VENUE", format!("http://{}", venue.address)).stdin(Stdio::null());
        let ran = tokio::time::timeout(TIMEOUT, command.kill_on_drop(true).output()).await;
        let ran = ran.unwrap().unwrap();
        (ran.status.code().unwrap(), String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let (code, output) = run(r#"{"code":"def main(n): return n + 1","parameters":{"n":41}}"#).await;
    assert!(code == 0 && output.contains("42"), "{code}: {output}");
    assert_eq!(run(r#"{"code":"1 / 0"}"#).await.0, 1, "a failed job");
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

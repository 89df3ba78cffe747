//! Attacks on the real binary with a memory limit of 2 GB: the venue stays up, answers others within
//! two seconds meanwhile, starts again within a second afterwards, and has lost nothing.
//!
//! These times are those of an optimised binary on a quiet machine, which `CATENA_BIN` names (see
//! `docs/operate/security.md`). An unoptimised one on a busy machine gets more time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]
#![allow(clippy::print_stdout, reason = "a run says how slow and how large the venue became")]

mod aborts;
mod connections;
mod floods;
mod http2;
mod identities;
mod memory;
mod requests;
mod schemas;
mod surfaces;
mod trees;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use catena_auth::KeyPair;
use catena_tests::http::{Reply, Request};
use catena_tests::process::Process;
use catena_tests::site::{Client, id_of, token};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

/// Virtual memory of the venue, in kB.
const MEMORY_KB: u64 = 2_000_000;

/// Peak resident memory of the venue, in kB.
const RESIDENT_KB_MAX: u64 = 1_000_000;

/// True if the binary is optimised.
fn is_release() -> bool {
    !cfg!(debug_assertions) || std::env::var_os("CATENA_BIN").is_some()
}

/// The longest time that another caller waits for an echo during an attack.
fn echo_time() -> Duration {
    Duration::from_secs(if is_release() { 2 } else { 10 })
}

/// The longest time in which the venue must be ready after a restart.
fn start_time() -> Duration {
    Duration::from_secs(if is_release() { 1 } else { 15 })
}

/// The longest time in which the venue must end after SIGTERM: its grace period is 5 s.
fn stop_time() -> Duration {
    Duration::from_secs(if is_release() { 6 } else { 15 })
}

/// The longest time in which the venue must answer an attack.
fn attack_time() -> Duration {
    Duration::from_secs(if is_release() { 30 } else { 90 })
}

/// Acknowledged jobs of the other caller that are read again after a restart.
const ACKNOWLEDGED_KEPT: usize = 100;

/// The pause between two echoes of the other caller.
const ECHO_PAUSE: Duration = Duration::from_millis(50);

/// Attacks run one after the other: they measure how long others wait.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// How many attacks there were in this run.
static ATTACKS: AtomicUsize = AtomicUsize::new(0);

/// Counts an attack.
fn count_attack() {
    ATTACKS.fetch_add(1, Ordering::Relaxed);
}

/// A venue with limited memory, under attack by one caller and used by another.
struct Victim {
    folder: TempDir,
    process: Option<Process>,
    attacker: Client,
    other: Client,
    other_token: String,
    /// Some of the jobs of the other caller that were acknowledged.
    acknowledged: std::sync::Mutex<Vec<String>>,
    _turn: MutexGuard<'static, ()>,
}

impl Victim {
    async fn start() -> Victim {
        Victim::start_with("", &[]).await
    }

    /// Starts a venue with further limits, as commands of a shell, and settings.
    async fn start_with(limits: &str, settings: &[String]) -> Victim {
        let turn = ONE_AT_A_TIME.lock().await;
        let folder = tempfile::tempdir().unwrap();
        let binary = limited_binary(folder.path(), limits);
        let process = Process::start(&binary, &folder.path().join("data"), settings).await;
        let attacker = Client::anonymous(process.address);
        let did = attacker.get("/.well-known/did.json").await.json()["id"].clone();
        let other_token =
            token(&KeyPair::from_seed(&[7; 32]), &[("aud", did.as_str().unwrap().into())]);
        let other = attacker.clone();
        Victim {
            folder,
            process: Some(process),
            attacker,
            other,
            other_token,
            acknowledged: Default::default(),
            _turn: turn,
        }
    }

    /// Invokes an operation as the attacker and waits for its end.
    async fn attack(&self, operation: &str, input: &Json) -> Reply {
        let body = json!({"operation": operation, "input": input, "wait": 15_000});
        self.attacker.post("/api/v1/invoke", &body).await
    }

    /// Sends requests of the attacker at the same time.
    async fn send_all(&self, requests: Vec<Request>) -> Vec<Reply> {
        let send = |request: Request| {
            let client = self.attacker.clone();
            tokio::spawn(async move { client.ask(request).await })
        };
        let sent: Vec<_> = requests.into_iter().map(send).collect();
        let mut replies = Vec::new();
        for reply in sent {
            replies.push(reply.await.unwrap());
        }
        replies
    }

    /// Registers an operation with an input schema as the attacker. Returns its ID, if it was not
    /// refused.
    async fn register(&self, schema: &Json) -> Option<String> {
        let operation = json!({"adapter": "test:echo", "input": schema});
        let metadata = json!({"name": "hostile", "operation": operation});
        let reply = self.attacker.post("/api/v1/assets", &metadata).await;
        match reply.status() {
            200 | 201 => reply.json().as_str().map(str::to_owned),
            status => {
                assert!((400..500).contains(&status), "{status}: {}", reply.text());
                None
            }
        }
    }

    /// Runs an attack while the other caller keeps sending echoes. Each must be answered in time.
    async fn under<T>(&self, name: &str, attack: impl Future<Output = T>) -> T {
        count_attack();
        let begun = tokio::time::Instant::now();
        let mut slowest = Duration::ZERO;
        let echoes = async {
            loop {
                let sent = tokio::time::Instant::now();
                self.echo().await;
                slowest = slowest.max(sent.elapsed());
                assert!(slowest < echo_time(), "{name}: an echo took {slowest:?}");
                tokio::time::sleep(ECHO_PAUSE).await;
            }
        };
        let ended = tokio::select! {
            ended = tokio::time::timeout(attack_time(), attack) => ended,
            () = echoes => unreachable!(),
        };
        let Ok(ended) = ended else { panic!("{name} was not answered in time") };
        self.echo().await;
        println!("{name}: {:?}, slowest echo {slowest:?}", begun.elapsed());
        ended
    }

    /// Sends an echo as the other caller.
    async fn echo(&self) {
        let request = Request::new("POST", "/api/v1/invoke")
            .header("authorization", &format!("Bearer {}", self.other_token))
            .json(&json!({"operation": "test:echo", "input": {"a": 1}}));
        let job = self.other.ask(request).await.expect(201).json();
        assert_eq!(job["status"], "COMPLETE", "{job}");
        let mut acknowledged = self.acknowledged.lock().unwrap();
        if acknowledged.len() < ACKNOWLEDGED_KEPT {
            acknowledged.push(id_of(&job));
        }
    }

    /// Checks that jobs of the other caller which were acknowledged are still there.
    async fn check_acknowledged(&self) {
        let jobs = std::mem::take(&mut *self.acknowledged.lock().unwrap());
        for job in jobs {
            let request = Request::new("GET", &format!("/api/v1/jobs/{job}"))
                .header("authorization", &format!("Bearer {}", self.other_token));
            let job = self.other.ask(request).await.expect(200).json();
            assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &json!({"a": 1})));
        }
    }

    /// Checks the peak of its memory, ends it with SIGTERM and starts it again.
    async fn restart(&mut self) {
        let process = self.process.take().unwrap();
        let peak = peak_kb(&process);
        println!("peak resident memory: {} MB", peak / 1_000);
        assert!(peak < RESIDENT_KB_MAX, "{peak} kB");
        let begun = tokio::time::Instant::now();
        let status = process.terminate().await;
        assert!(status.success(), "{status}");
        assert!(begun.elapsed() < stop_time(), "{:?}", begun.elapsed());
        let binary = limited_binary(self.folder.path(), "");
        let begun = tokio::time::Instant::now();
        let process = Process::start(&binary, &self.folder.path().join("data"), &[]).await;
        println!("started again in {:?}", begun.elapsed());
        assert!(begun.elapsed() < start_time(), "{:?}", begun.elapsed());
        self.attacker.address = process.address;
        self.other.address = process.address;
        self.process = Some(process);
        self.check_acknowledged().await;
        self.echo().await;
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        println!("{} attacks so far", ATTACKS.load(Ordering::Relaxed));
    }
}

/// Writes a program that runs the venue with limited memory, and with further limits, unless it is there.
fn limited_binary(folder: &Path, limits: &str) -> PathBuf {
    let path = folder.join("limited");
    let binary = std::env::var_os("CATENA_BIN").map_or_else(
        || env!("CARGO_BIN_EXE_catena").to_owned(),
        |binary| binary.into_string().unwrap(),
    );
    let script = format!(
        "#!/bin/sh\nulimit -v {MEMORY_KB}\n{limits}\nexport CATENA_X_TEST_OPERATIONS=1\nexec '{binary}' \"$@\"\n"
    );
    if !path.exists() {
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    path
}

/// Returns the peak of a process's resident memory in kB.
fn peak_kb(process: &Process) -> u64 {
    status_kb(process, "VmHWM:")
}

/// Returns a line of what the kernel knows of a process, in kB.
fn status_kb(process: &Process, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

//! A venue in a process of its own: the real binary, which can be killed at any moment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::PATIENCE;

/// What the log says when requests are answered.
const READY: &str = "the venue is ready";

/// Any port of this machine that is free.
const FREE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A running process. Dropped, it is killed.
pub struct Process {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Process {
    /// Starts a venue on a free port and waits until it answers.
    pub async fn start(binary: &Path, data: &Path, more: &[String]) -> Process {
        Process::start_at(FREE, binary, data, more).await
    }

    /// Starts a venue at an address, such as the one it had before.
    pub async fn start_at(
        address: SocketAddr,
        binary: &Path,
        data: &Path,
        more: &[String],
    ) -> Process {
        let mut child = spawn(address, binary, data, more);
        let mut log = log_of(&mut child);
        let reading = async {
            let mut seen = Vec::new();
            while let Some(line) = log.next_line().await.unwrap() {
                if let Some(address) = address_in(&line) {
                    return address;
                }
                seen.push(line);
            }
            panic!("the venue did not start:\n{}", seen.join("\n"));
        };
        let address = tokio::time::timeout(PATIENCE, reading).await.unwrap();
        // Somebody must read the log, or the venue would wait for room in the pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Process { child, address }
    }

    /// Kills it with SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to end with SIGTERM, and waits until it has.
    pub async fn terminate(mut self) -> ExitStatus {
        let id = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).unwrap()));
        kill_process(id.unwrap(), Signal::TERM).unwrap();
        tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap()
    }
}

/// Starts a venue and kills it after a while, ready or not.
pub async fn start_and_kill(binary: &Path, data: &Path, more: &[String], after: Duration) {
    let mut child = spawn(FREE, binary, data, more);
    tokio::time::sleep(after).await;
    child.kill().await.unwrap();
}

fn spawn(address: SocketAddr, binary: &Path, data: &Path, more: &[String]) -> Child {
    Command::new(binary)
        .arg("serve")
        .args(["--listen", &address.to_string(), "--log-format", "json", "--data"])
        .arg(data)
        .args(more)
        .current_dir(data.parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("could not start {}: {error}", binary.display()))
}

fn log_of(child: &mut Child) -> Lines<BufReader<ChildStderr>> {
    BufReader::new(child.stderr.take().unwrap()).lines()
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let entry: Json = serde_json::from_str(line).ok()?;
    let fields = &entry["fields"];
    (fields["message"] == READY).then(|| fields["address"].as_str().unwrap().parse().unwrap())
}

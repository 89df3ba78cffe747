//! A venue in a separate process: the real binary, which can be killed at any moment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::TIMEOUT;

/// The log message that means that the venue accepts requests.
const READY: &str = "the venue is ready";

/// Any free port of this machine.
pub const FREE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A running process, which is killed when this is dropped.
pub struct Process {
    child: Child,
    /// The address on which it listens.
    pub address: SocketAddr,
}

impl Process {
    /// Starts a venue on a free port and waits until it accepts requests.
    pub async fn start(binary: &Path, data: &Path, more: &[String]) -> Process {
        Process::start_at(FREE, binary, data, more).await
    }

    /// Starts a venue on the given address, such as the one that it had before.
    pub async fn start_at(
        address: SocketAddr,
        binary: &Path,
        data: &Path,
        more: &[String],
    ) -> Process {
        match Process::try_start(address, binary, data, more).await {
            Ok(process) => process,
            Err(log) => panic!("the venue did not start:\n{log}"),
        }
    }

    /// Starts a venue. Returns its log if it ends before it accepts requests.
    pub async fn try_start(
        address: SocketAddr,
        binary: &Path,
        data: &Path,
        more: &[String],
    ) -> Result<Process, String> {
        Process::try_start_with(&[], address, binary, data, more).await
    }

    /// Does the same with more environment variables.
    pub async fn try_start_with(
        variables: &[(&str, &str)],
        address: SocketAddr,
        binary: &Path,
        data: &Path,
        more: &[String],
    ) -> Result<Process, String> {
        let mut child = spawn(variables, address, binary, data, more);
        let mut log = log_of(&mut child);
        let reading = async {
            let mut seen = Vec::new();
            while let Some(line) = log.next_line().await.unwrap() {
                if let Some(address) = address_in(&line) {
                    return Ok(address);
                }
                seen.push(line);
            }
            Err(seen.join("\n"))
        };
        let address = tokio::time::timeout(TIMEOUT, reading).await.unwrap()?;
        // The log must be read, or the venue would block when the pipe is full.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Ok(Process { child, address })
    }

    /// Returns true if the process has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal.
    pub fn send(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).unwrap()));
        kill_process(id.unwrap(), signal).unwrap();
    }

    /// Sends a signal and waits until the process has ended.
    pub async fn end_by(mut self, signal: Signal) -> ExitStatus {
        self.send(signal);
        tokio::time::timeout(TIMEOUT, self.child.wait()).await.unwrap().unwrap()
    }

    /// Waits until the process has ended by itself.
    pub async fn ended(mut self) -> ExitStatus {
        tokio::time::timeout(TIMEOUT, self.child.wait()).await.unwrap().unwrap()
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Kills it with SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub async fn terminate(self) -> ExitStatus {
        self.end_by(Signal::TERM).await
    }
}

/// Starts a venue and kills it after the given time, ready or not.
pub async fn start_and_kill(binary: &Path, data: &Path, more: &[String], after: Duration) {
    let mut child = spawn(&[], FREE, binary, data, more);
    tokio::time::sleep(after).await;
    child.kill().await.unwrap();
}

fn spawn(
    variables: &[(&str, &str)],
    address: SocketAddr,
    binary: &Path,
    data: &Path,
    more: &[String],
) -> Child {
    Command::new(binary)
        .arg("serve")
        .args(["--listen", &address.to_string(), "--log-format", "json", "--data"])
        .arg(data)
        .args(more)
        // Executors take memory and processor time; a test that needs one asks for it with a flag.
        .env("CATENA_EXECUTORS", "0")
        .envs(variables.iter().copied())
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

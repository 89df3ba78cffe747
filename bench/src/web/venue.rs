//! The real `catena` binary as a child process on a free port, and its cost.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use catena_value::json;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::load::WaitMode;
use super::wire::Client;
use crate::Fault;

/// How long a venue may take to become ready: after a crash it recovers first.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The options of every HTTP benchmark.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    /// The binary to measure; by default it is built in the profile of this program.
    #[arg(long)]
    catena: Option<PathBuf>,
    /// The data folder; a temporary folder by default.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Let generator and venue use every core instead of one each.
    #[arg(long)]
    unpinned: bool,
    /// Let the generator poll continuously, so that the venue never has to wake it.
    #[arg(long)]
    spin: bool,
}

impl Options {
    /// The binary to measure. It is easy to measure an outdated one by mistake, so cargo builds it
    /// unless it was named.
    pub(crate) fn binary(&self) -> Result<PathBuf, Fault> {
        if let Some(binary) = &self.catena {
            return Ok(binary.clone());
        }
        let own = std::env::current_exe()?;
        let mut build = Command::new("cargo");
        build.args(["build", "--quiet", "-p", "catena-cli"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        match build.stdin(Stdio::null()).status() {
            Ok(status) if status.success() => {}
            Ok(_) => return Err("could not build catena; name a binary with --catena".into()),
            Err(error) => return Err(format!("no cargo ({error}); use --catena").into()),
        }
        let built = own.parent().ok_or("this binary is in no folder")?.join("catena");
        if !built.is_file() {
            return Err("cargo put the binary into another folder; name it with --catena".into());
        }
        Ok(built)
    }

    /// The folder to work in, and a guard that removes it if it is temporary.
    pub(crate) fn folder(&self) -> Result<(PathBuf, Option<tempfile::TempDir>), Fault> {
        match &self.folder {
            Some(folder) => Ok((folder.clone(), None)),
            None => {
                let temporary = tempfile::tempdir()?;
                Ok((temporary.path().to_path_buf(), Some(temporary)))
            }
        }
    }

    /// How the generator waits for responses.
    pub(crate) fn wait_mode(&self) -> WaitMode {
        if self.spin { WaitMode::Spin } else { WaitMode::Sleep }
    }

    /// The cores of the generator and of the venue; `None` if they are not pinned.
    pub(crate) fn cores(&self) -> Option<(usize, usize)> {
        let may_use = sched_getaffinity(None).ok()?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| may_use.is_set(*core));
        let pair = (cores.next()?, cores.next()?);
        (!self.unpinned).then_some(pair)
    }
}

/// Pins this thread, and what it starts from now on, to one core.
pub(crate) fn pin(core: usize) -> Result<(), Fault> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// A venue that runs until it is dropped.
pub(crate) struct Venue {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Venue {
    /// Starts a venue and waits until it is ready. It is pinned by starting it from a pinned
    /// thread, so that it sees one core from the beginning.
    pub(crate) fn start(
        binary: &Path,
        data: &Path,
        cores: Option<(usize, usize)>,
    ) -> Result<Venue, Fault> {
        Venue::start_with(binary, data, cores, &[])
    }

    /// Starts a venue at the address of an earlier one, with further options.
    pub(crate) fn start_at(
        address: SocketAddr,
        binary: &Path,
        data: &Path,
        options: &[&str],
    ) -> Result<Venue, Fault> {
        let address = address.to_string();
        let options: Vec<&str> =
            ["--listen", &address].into_iter().chain(options.iter().copied()).collect();
        Venue::start_with(binary, data, None, &options)
    }

    /// Starts a venue with further options.
    pub(crate) fn start_with(
        binary: &Path,
        data: &Path,
        cores: Option<(usize, usize)>,
        options: &[&str],
    ) -> Result<Venue, Fault> {
        let started = Venue::start_process(binary, data, cores, options, &[])?;
        started.map_err(|lines| format!("the venue did not start: {lines}").into())
    }

    /// Starts a venue that kills itself at a commit (`CATENA_X_TEST_DIE_AT_COMMIT`, unoptimised binaries only).
    /// `None` if it did so before it was ready.
    pub(crate) fn start_dying(
        binary: &Path,
        data: &Path,
        options: &[&str],
        when: &str,
    ) -> Result<Option<Venue>, Fault> {
        let variables = [("CATENA_X_TEST_DIE_AT_COMMIT", when)];
        Ok(Venue::start_process(binary, data, None, options, &variables)?.ok())
    }

    /// Starts a venue. The inner error is what it logged before it ended instead of becoming ready.
    fn start_process(
        binary: &Path,
        data: &Path,
        cores: Option<(usize, usize)>,
        options: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Result<Venue, String>, Fault> {
        if let Some((_, core)) = cores {
            pin(core)?;
        }
        let mut command = Command::new(binary);
        command.args(["serve", "--bench", "true", "--log-format", "json"]);
        if !options.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let started = command
            .arg("--data")
            .arg(data)
            .args(options)
            .env("CATENA_EXECUTORS", "0")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        if let Some((core, _)) = cores {
            pin(core)?;
        }
        let mut child = started.map_err(|error| format!("{}: {error}", binary.display()))?;
        let log = child.stderr.take().ok_or("the venue has no log")?;
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || read_log(log, &sender));
        let unbound = SocketAddr::from(([127, 0, 0, 1], 0));
        // From here on the child is killed when this value is dropped.
        let mut venue = Venue { child, address: unbound };
        venue.address = match receiver.recv_timeout(READY_WITHIN) {
            Ok(Ok(address)) => address,
            Ok(Err(lines)) => return Ok(Err(lines)),
            Err(_) => return Err("the venue was not ready in time".into()),
        };
        Ok(Ok(venue))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the venue has ended by itself.
    pub(crate) fn check_running(&mut self) -> Result<(), Fault> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the venue ended by itself: {status}").into()),
        }
    }

    /// Waits for the end of a venue that kills itself, and fails if it ends in another way.
    pub(crate) fn expect_killed(mut self) -> Result<(), Fault> {
        let status = self.child.wait()?;
        match status.signal() {
            Some(signal) if signal == Signal::KILL.as_raw() => Ok(()),
            _ => Err(format!("the venue ended by itself: {status}").into()),
        }
    }

    /// Kills the venue with SIGKILL.
    pub(crate) fn kill(mut self) -> Result<(), Fault> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops the venue with SIGTERM and waits for its end.
    pub(crate) fn stop(mut self) -> Result<(), Fault> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).ok_or("there is no process")?;
        kill_process(pid, Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// The value of a metric by name.
    pub(crate) fn metric(&self, text: &str, name: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(0.0)
    }

    /// The text of `/metrics`.
    pub(crate) fn metrics(&self) -> Result<String, Fault> {
        let (status, body) = Client::connect(self.address)?.get("/metrics")?;
        match status {
            200 => Ok(String::from_utf8(body)?),
            other => Err(format!("/metrics answered {other}").into()),
        }
    }
}

impl Drop for Venue {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the log to its end, so that the venue never blocks on the pipe, and sends the address.
fn read_log(log: ChildStderr, sender: &mpsc::Sender<Result<SocketAddr, String>>) {
    let mut lines = Vec::new();
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        match ready_at(&line) {
            // The receiver may have timed out.
            Some(address) => drop(sender.send(Ok(address))),
            None if lines.len() < 20 => lines.push(line),
            None => {}
        }
    }
    drop(sender.send(Err(lines.join("\n"))));
}

/// The address in the log line that reports that the venue is ready.
fn ready_at(line: &str) -> Option<SocketAddr> {
    let line = json::read(line.as_bytes()).ok()?;
    let fields = line.as_map()?.field("fields")?.as_map()?.clone();
    let is_ready = fields.field("message")?.as_str() == Some("the venue is ready");
    fields.field("address")?.as_str().filter(|_| is_ready)?.parse().ok()
}

/// The user and system time of a process in seconds.
pub(crate) fn core_seconds(pid: u32) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces; what follows does not.
    let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
    let mut fields = after.split(' ').skip(11).map(|field| field.parse().unwrap_or(0.0));
    // Linux reports this in hundredths of a second.
    let mut next = || fields.next().unwrap_or(0.0) / 100.0;
    (next(), next())
}

/// The time that all threads of a process have run, in seconds. Finer than [`core_seconds`].
pub(crate) fn run_seconds(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

/// The resident memory of a process in kB.
pub(crate) fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_has_the_address() {
        let line = r#"{"level":"INFO","fields":{"message":"the venue is ready","address":"127.0.0.1:4321"}}"#;
        assert_eq!(ready_at(line).unwrap().port(), 4321);
        assert_eq!(ready_at(&line.replace("ready", "late")), None);
        assert_eq!(ready_at("starting"), None);
    }
}

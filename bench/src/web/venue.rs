//! The real `catena` binary as a child, on a port that is free, and what it costs.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use catena_value::json;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::load::Patience;
use super::wire::Client;
use crate::Fault;

/// How long a venue may take to be ready: after a crash it recovers first.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What every benchmark over HTTP takes.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    /// The binary to measure; when not given, it is built as this one was.
    #[arg(long)]
    catena: Option<PathBuf>,
    /// Where to work; a temporary folder when not given.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Let generator and venue use every core instead of one each.
    #[arg(long)]
    unpinned: bool,
    /// Let the generator look for answers all the time, so that the venue never has to wake it.
    #[arg(long)]
    spin: bool,
}

impl Options {
    /// The binary to measure. Measuring one that is older than the code is the easiest mistake to
    /// make, so cargo is asked for it unless it was named.
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
            return Err("cargo put the binary elsewhere; name it with --catena".into());
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

    /// What the generator does while nothing comes.
    pub(crate) fn patience(&self) -> Patience {
        if self.spin { Patience::Spins } else { Patience::Sleeps }
    }

    /// The cores of the generator and of the venue, when they are to have one each.
    pub(crate) fn cores(&self) -> Option<(usize, usize)> {
        let may_use = sched_getaffinity(None).ok()?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| may_use.is_set(*core));
        let pair = (cores.next()?, cores.next()?);
        (!self.unpinned).then_some(pair)
    }
}

/// Keeps this thread, and what it starts from now on, on one core.
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
    /// Starts a venue and waits until it is ready. It is pinned by being started from a thread
    /// that is, so that it sees one core from its first moment on.
    pub(crate) fn start(
        binary: &Path,
        data: &Path,
        cores: Option<(usize, usize)>,
    ) -> Result<Venue, Fault> {
        if let Some((_, core)) = cores {
            pin(core)?;
        }
        let started = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--bench", "true", "--log-format", "json"])
            .arg("--data")
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        if let Some((core, _)) = cores {
            pin(core)?;
        }
        let mut child = started.map_err(|error| format!("{}: {error}", binary.display()))?;
        let log = child.stderr.take().ok_or("the venue has no log")?;
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || read_log(log, &tell));
        let unbound = SocketAddr::from(([127, 0, 0, 1], 0));
        // From here on the child ends with this value, whatever happens.
        let mut venue = Venue { child, address: unbound };
        venue.address = match told.recv_timeout(READY_WITHIN) {
            Ok(Ok(address)) => address,
            Ok(Err(lines)) => return Err(format!("the venue did not start: {lines}").into()),
            Err(_) => return Err("the venue was not ready in time".into()),
        };
        Ok(venue)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the venue without warning.
    pub(crate) fn kill(mut self) -> Result<(), Fault> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// What the venue counts, by name.
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
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the log to its end, so that the venue never waits for its reader, and tells the address.
fn read_log(log: ChildStderr, tell: &mpsc::Sender<Result<SocketAddr, String>>) {
    let mut lines = Vec::new();
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        match ready_at(&line) {
            // Whoever started the venue may have given up.
            Some(address) => drop(tell.send(Ok(address))),
            None if lines.len() < 20 => lines.push(line),
            None => {}
        }
    }
    drop(tell.send(Err(lines.join("\n"))));
}

/// The address in the line that says that the venue is ready.
fn ready_at(line: &str) -> Option<SocketAddr> {
    let line = json::read(line.as_bytes()).ok()?;
    let fields = line.as_map()?.field("fields")?.as_map()?.clone();
    let is_ready = fields.field("message")?.as_str() == Some("the venue is ready");
    fields.field("address")?.as_str().filter(|_| is_ready)?.parse().ok()
}

/// Seconds that a process has spent on cores, for itself and in the kernel.
pub(crate) fn core_seconds(pid: u32) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may have spaces; what follows has not.
    let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
    let mut fields = after.split(' ').skip(11).map(|field| field.parse().unwrap_or(0.0));
    // Linux counts this in hundredths for all programs.
    let mut next = || fields.next().unwrap_or(0.0) / 100.0;
    (next(), next())
}

/// Kilobytes of memory that a process holds.
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

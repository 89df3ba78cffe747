//! Starts the zygote, an interpreter or this binary in a root of its own, and has it fork workers.

use std::ffi::CString;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::SocketType;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde_json::{Value, json};

use crate::cgroup::Cgroups;
use crate::interpreter::{DEVICES, Interpreter};
use crate::launch::{self, Entry, Identity, Launch, Launched};
use crate::limits::{
    FDS_MAX, FILE_BYTES_MAX, JOB_FOLDER_BYTES, JOB_FOLDER_INODES, WORKER_START_MAX,
    ZYGOTE_START_MAX,
};
use crate::network::Networks;
use crate::wire;
use crate::worker::{Partial, Spawned};
use crate::{native, seccomp, sys};

/// The Python side, which is part of this binary.
const SOURCE: &str = include_str!("child/zygote.py");

/// The code of ours that runs in the processes of cells.
pub fn child_code() -> &'static str {
    SOURCE
}

/// Reads the source from descriptor 4 and runs it.
const BOOTSTRAP: &str = "import os\nsource = os.pread(4, 1 << 20, 0)\nos.close(4)\n\
    exec(compile(source, '<catena-sandbox>', 'exec'), {'__name__': 'catena_sandbox'})";

/// How cells of one kind are run.
#[derive(Debug, Clone)]
pub struct Profile {
    /// A name for people, such as `bare`.
    pub name: String,
    /// The interpreter.
    pub interpreter: Interpreter,
    /// Whether site-packages can be imported.
    pub has_site: bool,
    /// A folder of packages that can be imported, besides the standard library.
    pub packages: Option<PathBuf>,
    /// Modules that are imported before workers are forked.
    pub preload: Vec<String>,
}

/// Why a zygote or a worker could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The isolation could not be set up.
    #[error("{0}")]
    Isolation(String),
    /// The interpreter ended while it was starting.
    #[error("the interpreter did not start: {0}")]
    Interpreter(String),
    /// The worker could not confine itself.
    #[error("a worker could not be set up: {0}")]
    Worker(String),
    /// The operating system refused something.
    #[error("the system refused: {0}")]
    Os(#[from] io::Error),
}

/// A running zygote. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Zygote {
    process: Launched,
    control: OwnedFd,
    errors: std::fs::File,
    networks: Arc<Networks>,
    pub(crate) spawned: u64,
}

impl Zygote {
    pub(crate) fn start(profile: &Profile, identity: Identity) -> Result<Self, StartError> {
        let (control, child_control) = sys::socket_pair(SocketType::SEQPACKET)?;
        let null = || std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
        let memfd = |name| rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC);
        let errors = std::fs::File::from(memfd("zygote-errors")?);
        let source = memfd("zygote-source")?;
        rustix::io::write(&source, SOURCE.as_bytes())?;
        let fds = vec![
            null()?.into(),
            null()?.into(),
            errors.try_clone()?.into(),
            child_control,
            source,
            launch::open_proc()?,
        ];
        let launch = Launch {
            command: command(profile)?,
            environment: environment()?,
            root: profile.interpreter.root(),
            identity,
            fds,
        };
        let process =
            launch::launch(&launch).map_err(|error| StartError::Isolation(error.to_string()))?;
        drop(launch);
        let networks = Arc::default();
        let mut zygote = Zygote { process, control, errors, networks, spawned: 0 };
        let config = config(profile, identity).to_string();
        wire::send(&zygote.control, config.as_bytes(), &[])?;
        match wire::receive_within(&zygote.control, ZYGOTE_START_MAX) {
            Ok(message) if !message.data.is_empty() => Ok(zygote),
            Ok(_) => Err(StartError::Interpreter(zygote.last_words())),
            Err(error) => Err(StartError::Interpreter(error.to_string())),
        }
    }

    /// The end of what the zygote wrote to stderr.
    fn last_words(&mut self) -> String {
        let mut text = String::new();
        let read = self.errors.rewind().and_then(|()| self.errors.read_to_string(&mut text));
        match read {
            Ok(0) => "it ended without a message".to_owned(),
            Ok(_) => {
                text.trim_end().chars().rev().take(2000).collect::<Vec<_>>().iter().rev().collect()
            }
            Err(error) => error.to_string(),
        }
    }

    /// Forks a worker, which then confines itself.
    pub(crate) fn spawn(&mut self, cgroups: &Cgroups) -> Result<Spawned, StartError> {
        let (control, child_control) = sys::socket_pair(SocketType::SEQPACKET)?;
        let (cell, child_cell) = sys::socket_pair(SocketType::STREAM)?;
        // The kernel then says who sent a message.
        rustix::net::sockopt::set_socket_passcred(&cell, true)?;
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (stdout, child_stdout) = pipe()?;
        let (stderr, child_stderr) = pipe()?;
        let group = cgroups.group()?;
        // If this fails from here on, nobody knows whether there is a worker: its namespace stays claimed.
        let network = self.networks.claim();
        let request =
            network.map_or_else(|| "spawn".to_owned(), |number| format!("spawn {number}"));
        {
            let fds = [
                child_control.as_fd(),
                child_cell.as_fd(),
                child_stdout.as_fd(),
                child_stderr.as_fd(),
            ];
            wire::send(&self.control, request.as_bytes(), &fds)?;
        }
        drop((child_control, child_cell, child_stdout, child_stderr));
        let answer = wire::receive_within(&self.control, WORKER_START_MAX)?;
        if answer.data.is_empty() {
            return Err(StartError::Interpreter(self.last_words()));
        }
        self.spawned += 1;
        let fields: Value = serde_json::from_slice(&answer.data).unwrap_or(Value::Null);
        let pid =
            fields["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let (Some(pid), Some(pidfd)) = (pid, answer.fds.into_iter().next()) else {
            let reason = fields["error"].as_str().unwrap_or("no reason was given");
            return Err(StartError::Worker(reason.to_owned()));
        };
        let init = Launched { pid, pidfd };
        let network = network.map(|number| Networks::guard(&self.networks, number));
        let process = Partial { init: Some(init), group: Some(group), network };
        Ok(Spawned { process, control, cell, stdout, stderr })
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(
            rustix::process::waitid(WaitId::PidFd(self.process.pidfd.as_fd()), options),
            Ok(None)
        )
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        end(&self.process);
    }
}

/// Kills a process and waits for its end.
pub(crate) fn end(process: &Launched) {
    let _ = rustix::process::pidfd_send_signal(&process.pidfd, Signal::KILL);
    reap(process);
}

/// Waits for the end of a process.
pub(crate) fn reap(process: &Launched) {
    let id = WaitId::PidFd(process.pidfd.as_fd());
    while let Err(rustix::io::Errno::INTR) =
        rustix::process::waitid(id.clone(), WaitIdOptions::EXITED)
    {}
}

/// Waits a little for the end of a process; true if it has ended.
pub(crate) fn reap_within(process: &Launched, timeout: Duration) -> bool {
    let has_ended = wire::wait_readable(&process.pidfd, timeout).unwrap_or(false);
    if has_ended {
        reap(process);
    }
    has_ended
}

fn command(profile: &Profile) -> io::Result<Vec<CString>> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut command = vec![profile.interpreter.executable().as_os_str().as_bytes().to_vec()];
    if profile.interpreter.is_native() {
        command.push(native::ARGUMENT.into());
        return command.into_iter().map(|part| CString::new(part).map_err(invalid)).collect();
    }
    // `-I` would ignore the hash seed; the environment is ours alone, so it is not needed.
    for flag in ["-s", "-B", "-X", "utf8"] {
        command.push(flag.into());
    }
    if !profile.has_site {
        command.push("-S".into());
    }
    command.push("-c".into());
    command.push(BOOTSTRAP.into());
    command.into_iter().map(|part| CString::new(part).map_err(invalid)).collect()
}

fn environment() -> io::Result<Vec<CString>> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    [
        "PATH=/usr/bin",
        "HOME=/job/tmp",
        "TMPDIR=/job/tmp",
        "USER=cell",
        "LOGNAME=cell",
        "LANG=C.UTF-8",
        "TZ=UTC",
        "PYTHONHASHSEED=0",
        "MPLCONFIGDIR=/job/tmp",
        "MPLBACKEND=agg",
        "OPENBLAS_NUM_THREADS=1",
        "OMP_NUM_THREADS=1",
        "MKL_NUM_THREADS=1",
        "MALLOC_ARENA_MAX=2",
    ]
    .into_iter()
    .map(|variable| CString::new(variable).map_err(invalid))
    .collect()
}

fn config(profile: &Profile, identity: Identity) -> Value {
    let readable = profile.interpreter.readable().iter();
    let read_rules = readable.map(|path| json!([path.to_string_lossy(), "read"]));
    let devices = DEVICES.iter().map(|path| json!([path, "device"]));
    let landlock: Vec<Value> =
        read_rules.chain(devices).chain([json!(["/job", "write"])]).collect();
    let has_two = matches!(identity, Identity::Two(..));
    // Identities of a worker, in terms of those of the zygote.
    let map = if has_two { "0 0 1\n1000 1000 1\n" } else { "1000 0 1\n" };
    let filter: String = seccomp::program().iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "paths": profile.packages.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "preload": profile.preload,
        "two_ids": has_two,
        "cell_id": 1000,
        "id_maps": [["gid_map", map], ["uid_map", map]],
        "job_bytes": JOB_FOLDER_BYTES,
        "job_inodes": JOB_FOLDER_INODES,
        "landlock_abi": sys::landlock_abi().unwrap_or(0).min(6),
        "landlock": landlock,
        "seccomp": filter,
        "rlimits": {
            "RLIMIT_CORE": [0, 0],
            "RLIMIT_NOFILE": [FDS_MAX, FDS_MAX],
            "RLIMIT_FSIZE": [FILE_BYTES_MAX, FILE_BYTES_MAX],
            "RLIMIT_MEMLOCK": [65536, 65536],
            "RLIMIT_MSGQUEUE": [0, 0],
            "RLIMIT_SIGPENDING": [256, 256],
            "RLIMIT_NICE": [0, 0],
            "RLIMIT_RTPRIO": [0, 0],
        },
        "syscalls": {
            "clone3": libc::SYS_clone3,
            "mount": libc::SYS_mount,
            "pidfd_open": libc::SYS_pidfd_open,
            "close_range": libc::SYS_close_range,
            "capset": libc::SYS_capset,
            "seccomp": libc::SYS_seccomp,
            "landlock_create_ruleset": libc::SYS_landlock_create_ruleset,
            "landlock_add_rule": libc::SYS_landlock_add_rule,
            "landlock_restrict_self": libc::SYS_landlock_restrict_self,
        },
    })
}

/// Whether every entry of the root can be reached, for the probe.
pub(crate) fn missing_entries(root: &[Entry]) -> Vec<String> {
    let is_missing = |entry: &&Entry| match entry {
        Entry::Bind(path) | Entry::Device(path) => !path.exists(),
        _ => false,
    };
    root.iter().filter(is_missing).map(|entry| format!("{entry:?}")).collect()
}

impl From<rustix::io::Errno> for StartError {
    fn from(errno: rustix::io::Errno) -> Self {
        StartError::Os(errno.into())
    }
}

//! The child side for programs that are part of this binary: what `child/zygote.py` is for Python.
//!
//! The supervisor executes its own binary in the root of the sandbox, and that binary calls [`serve`].
//! Messages, order and confinement are those of the Python side, so that one supervisor watches both:
//!
//! ```text
//! zygote   one thread; warms the program up once and forks one worker for each request
//! init     PID 1 of the worker's pid namespace; reaps, kills, reports
//! cell     PID 2; mounts the job folder, drops every right, installs Landlock and seccomp, waits for one
//!          cell, runs it
//! ```
//!
//! A native cell reads and writes its own folder and nothing else: not even the libraries of its binary,
//! which are loaded by then.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions};
use serde_json::{Value, json};

use crate::launch::{become_user, mount};
use crate::limits::{
    FDS_MAX, FILE_BYTES_MAX, JOB_FOLDER_BYTES, JOB_FOLDER_INODES, NATIVE_STACK_BYTES,
};
use crate::seccomp;
use crate::sys::{self, Forked};
use crate::wire::{self, Message};

/// The argument with which the supervisor executes this binary as the child side of a sandbox.
pub const ARGUMENT: &str = "sandbox-child";

const CONTROL: i32 = 3;
const PROC: i32 = 5;
const JOB: &str = "/job";
const WORK: &str = "/job/files";
const NO_EXEC: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// A program that runs as cells.
pub trait Program {
    /// Is called once, before workers are forked. Must leave no thread behind.
    fn warm(&self);

    /// Is called in every worker before it is ready: runs the paths of an ordinary cell, so that their
    /// page faults happen beforehand. Must leave no thread, and nothing that a cell could see.
    fn rehearse(&self);

    /// Runs one cell, in its folder: input files are below `inputs/`, what it writes next to them
    /// becomes artifacts. Returns the result as JSON.
    fn run(&self, parameters: &Value) -> Result<String, ProgramError>;
}

/// Why a program failed, as it says itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramError {
    /// A code of [`crate::PROGRAM_CODES`].
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// The line in the source, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// The part of the input.
    pub block: Option<String>,
}

/// Whether this process was executed as the child side of a sandbox.
pub fn is_child() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT)
}

/// Runs the child side. Returns when the supervisor is gone, or with the reason why it cannot run.
pub fn serve(program: &dyn Program) -> io::Result<()> {
    let missing = || io::Error::other("this command is for the supervisor of a sandbox");
    let control = sys::inherited(CONTROL).ok_or_else(missing)?;
    let proc = sys::inherited(PROC).ok_or_else(missing)?;
    drop(sys::inherited(4));
    let config: Value = serde_json::from_slice(&wire::receive(&control)?.data)?;
    let has_two_ids = config["two_ids"].as_bool().unwrap_or(false);
    // A lower limit of the host stays.
    let _ = limit(Resource::Stack, NATIVE_STACK_BYTES);
    program.warm();
    if !sys::runs_one_thread(proc.as_fd())? {
        return Err(io::Error::other("warming up started threads; a zygote must have one"));
    }
    let base_bytes = address_space(&proc)?;
    wire::send(&control, br#"{"ready":true}"#, &[])?;
    let maps = config["id_maps"].clone();
    let filter = seccomp::program();
    let mut networks = Networks::new(&proc)?;
    let zygote = Zygote { program, has_two_ids, base_bytes, maps, filter };
    loop {
        let message = wire::receive(&control)?;
        if message.data.is_empty() {
            return Ok(());
        }
        match zygote.spawn(&proc, &mut networks, message) {
            Ok((pid, pidfd)) => {
                let text = json!({"pid": pid.as_raw_nonzero().get()}).to_string();
                wire::send(&control, text.as_bytes(), &[pidfd.as_fd()])?;
            }
            Err(error) => {
                let text = json!({"error": error.to_string()}).to_string();
                wire::send(&control, text.as_bytes(), &[])?;
            }
        }
    }
}

struct Zygote<'a> {
    program: &'a dyn Program,
    has_two_ids: bool,
    /// The address space of the zygote.
    base_bytes: u64,
    maps: Value,
    /// The system call filter of a cell.
    filter: Vec<u8>,
}

/// Network namespaces that workers use one after the other; see [`crate::network`].
struct Networks {
    own: OwnedFd,
    kept: HashMap<Vec<u8>, OwnedFd>,
}

impl Networks {
    fn new(proc: &OwnedFd) -> io::Result<Networks> {
        Ok(Networks { own: Self::current(proc)?, kept: HashMap::new() })
    }

    fn current(proc: &OwnedFd) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(proc, "self/ns/net", flags, Mode::empty())?)
    }

    fn enter(&mut self, name: &[u8], proc: &OwnedFd) -> io::Result<()> {
        if let Some(namespace) = self.kept.get(name) {
            return sys::enter_network(namespace.as_fd());
        }
        sys::make_network()?;
        match Self::current(proc) {
            Ok(namespace) => {
                self.kept.insert(name.to_vec(), namespace);
                Ok(())
            }
            Err(error) => {
                self.leave()?;
                Err(error)
            }
        }
    }

    fn leave(&self) -> io::Result<()> {
        sys::enter_network(self.own.as_fd())
    }
}

/// The descriptors of a worker.
struct Fds {
    control: OwnedFd,
    cell: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Fds {
    fn from_message(message: Message) -> io::Result<Fds> {
        let mut fds = message.fds.into_iter();
        match (fds.next(), fds.next(), fds.next(), fds.next()) {
            (Some(control), Some(cell), Some(stdout), Some(stderr)) => {
                Ok(Fds { control, cell, stdout, stderr })
            }
            _ => Err(io::Error::other("a worker needs four descriptors")),
        }
    }
}

impl Zygote<'_> {
    fn spawn(
        &self,
        proc: &OwnedFd,
        networks: &mut Networks,
        message: Message,
    ) -> io::Result<(Pid, OwnedFd)> {
        // The name of a network namespace that no other worker uses now.
        let network = message.data.strip_prefix(b"spawn ").map(<[u8]>::to_vec);
        let fds = Fds::from_message(message)?;
        let (go_read, go_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        if let Some(name) = &network {
            networks.enter(name, proc)?;
        }
        let forked = sys::clone_worker(network.is_none());
        let has_left = match (&forked, &network) {
            (Ok(Forked::Child), _) | (_, None) => Ok(()),
            (_, Some(_)) => networks.leave(),
        };
        let (pid, pidfd) = match forked? {
            Forked::Parent(pid, pidfd) => (pid, pidfd),
            Forked::Child => {
                sys::close_all_but(&[&fds.control, &fds.cell, &fds.stdout, &fds.stderr, &go_read]);
                let status = self.init(&fds, &go_read).unwrap_or_else(|error| {
                    report_failure(&fds.control, &error);
                    70
                });
                sys::exit_now(status)
            }
        };
        drop(go_read);
        let pidfd = pidfd.ok_or_else(|| io::Error::other("the kernel gave no pidfd"))?;
        if let Err(error) = has_left.and_then(|()| self.admit(pid, proc, &go_write)) {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            return Err(error);
        }
        Ok((pid, pidfd))
    }

    /// Writes the identity maps of a worker and lets it go.
    fn admit(&self, pid: Pid, proc: &OwnedFd, go: &OwnedFd) -> io::Result<()> {
        for map in self.maps.as_array().into_iter().flatten() {
            let (Some(name), Some(text)) = (map[0].as_str(), map[1].as_str()) else { continue };
            let path = format!("{}/{name}", pid.as_raw_nonzero());
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(proc, path, flags, Mode::empty())?;
            rustix::io::write(&file, text.as_bytes())?;
        }
        rustix::io::write(go, b"g")?;
        Ok(())
    }

    /// The init process of a worker. Returns its exit status.
    fn init(&self, fds: &Fds, go: &OwnedFd) -> io::Result<i32> {
        let mut byte = [0];
        if rustix::io::read(go, &mut byte)? != 1 {
            return Ok(71);
        }
        rustix::process::setsid()?;
        rustix::process::umask(Mode::from_raw_mode(0o077));
        sys::name_process(c"cell-init");
        let pid = match sys::fork()? {
            Forked::Parent(pid, _) => pid,
            Forked::Child => {
                let status = self.cell(fds).unwrap_or_else(|error| {
                    report_failure(&fds.control, &error);
                    70
                });
                sys::exit_now(status)
            }
        };
        // The ends of the cell's streams are its own.
        sys::close_all_but(&[&fds.control]);
        sys::ignore_signals();
        supervise(&fds.control, pid)?;
        Ok(0)
    }

    /// Mounts the job folder and tells the supervisor. The cell's process does so while it has its
    /// rights, because memory that the init process writes to would be copied once more for the cell.
    fn mount_job(&self, fds: &Fds) -> io::Result<()> {
        rustix::system::sethostname(b"cell")?;
        mount_tmpfs(
            JOB,
            &format!("mode=0755,size={JOB_FOLDER_BYTES},nr_inodes={JOB_FOLDER_INODES}"),
        )?;
        for name in ["files", "tmp", "shm"] {
            let path = format!("{JOB}/{name}");
            fs::DirBuilder::new().mode(0o700).create(&path)?;
            if self.has_two_ids {
                rustix::fs::chown(&path, Some(Uid::from_raw(1000)), Some(Gid::from_raw(1000)))?;
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(WORK, flags, Mode::empty())?;
        wire::send(&fds.control, b"J", &[folder.as_fd()])
    }

    /// The cell's own process. Returns its exit status.
    fn cell(&self, fds: &Fds) -> io::Result<i32> {
        rustix::process::setsid()?;
        self.mount_job(fds)?;
        self.confine(fds)?;
        self.program.rehearse();
        let listener = sys::install_filter(&self.filter)?;
        // Only the init process speaks on the control channel from here on.
        sys::close_all_but(&[&fds.cell, &listener]);
        wire::send(&fds.cell, b"R", &[listener.as_fd()])?;
        drop(listener);
        let mut channel = File::from(fds.cell.try_clone()?);
        let mut size = [0; 4];
        if channel.read_exact(&mut size).is_err() {
            return Ok(0);
        }
        let mut job = vec![0; u32::from_be_bytes(size) as usize];
        if channel.read_exact(&mut job).is_err() {
            return Ok(0);
        }
        self.run(&mut channel, &job)
    }

    /// Gives up every right, in the only order that works.
    fn confine(&self, fds: &Fds) -> io::Result<()> {
        rustix::stdio::dup2_stdout(&fds.stdout)?;
        rustix::stdio::dup2_stderr(&fds.stderr)?;
        rustix::process::chdir(WORK)?;
        sys::drop_inheritable_capabilities();
        if self.has_two_ids {
            become_user(1000, 1000).map_err(io::Error::from_raw_os_error)?;
        }
        sys::clear_privileges()?;
        sys::name_process(c"cell");
        for (resource, most) in [
            (Resource::Core, 0),
            (Resource::Nofile, FDS_MAX),
            (Resource::Fsize, FILE_BYTES_MAX),
            (Resource::Memlock, 65_536),
            (Resource::Msgqueue, 0),
            (Resource::Sigpending, 256),
            (Resource::Nice, 0),
            (Resource::Rtprio, 0),
        ] {
            limit(resource, most)?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(JOB, flags, Mode::empty())?;
        sys::restrict_to(folder.as_fd())
    }

    fn run(&self, channel: &mut File, job: &[u8]) -> io::Result<i32> {
        let job: Value = serde_json::from_slice(job)?;
        let most = |name: &str| job["limits"][name].as_u64().unwrap_or_default();
        limit(Resource::As, self.base_bytes + most("memory_bytes") + (128 << 20))?;
        limit(Resource::Cpu, most("cpu_ms") / 1000 + 2)?;
        limit(Resource::Nproc, most("processes"))?;
        let run = std::panic::AssertUnwindSafe(|| self.program.run(&job["parameters"]));
        let result = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let message = format!("the program failed: {}", text.unwrap_or("no reason was given"));
            Err(ProgramError {
                code: "PROGRAM_FAILED".to_owned(),
                message,
                ..ProgramError::default()
            })
        });
        let (header, result) = match result {
            Ok(result) if result.len() as u64 <= most("result_bytes") => {
                (json!({"error": null}), result)
            }
            Ok(_) => {
                let message = "the result is larger than it may be".to_owned();
                let code = "RESULT_TOO_LARGE".to_owned();
                (header(&ProgramError { code, message, ..ProgramError::default() }), String::new())
            }
            Err(error) => (header(&error), String::new()),
        };
        let status = i32::from(!header["error"].is_null());
        let header = header.to_string();
        let mut report = b"CR1\n".to_vec();
        for part in [header.len(), result.len()] {
            report.extend(u32::try_from(part).unwrap_or(0).to_be_bytes());
        }
        report.extend(header.as_bytes());
        report.extend(result.as_bytes());
        channel.write_all(&report)?;
        Ok(status)
    }
}

fn header(error: &ProgramError) -> Value {
    let message: String = error.message.chars().take(4000).collect();
    json!({"error": {
        "kind": "program", "type": "Error", "code": error.code, "message": message,
        "line": error.line, "column": error.column, "block": error.block,
    }})
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    rustix::process::setrlimit(resource, limit).map_err(Into::into)
}

/// The size of the address space of this process, in bytes.
fn address_space(proc: &OwnedFd) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut text = String::new();
    File::from(rustix::fs::openat(proc, "self/statm", flags, Mode::empty())?)
        .read_to_string(&mut text)?;
    let pages = text.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.unwrap_or_default() * rustix::param::page_size() as u64)
}

fn report_failure(control: &OwnedFd, error: &io::Error) {
    let _ = wire::send(control, format!("E{error}").as_bytes(), &[]);
}

/// Waits for the cell's first process and for the supervisor, whichever comes first.
fn supervise(control: &OwnedFd, pid: Pid) -> io::Result<()> {
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN), PollFd::new(control, PollFlags::IN)];
        wire::poll(&mut fds, None)?;
        let [has_ended, has_order] = fds.map(|fd| !fd.revents().is_empty());
        if has_order {
            let message = wire::receive(control)?;
            if message.data.is_empty() {
                // The supervisor is gone: the kernel kills everything in this namespace.
                return Ok(());
            }
            obey(control, &message)?;
        }
        if has_ended {
            break;
        }
    }
    let status = rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
    let status = status.map_or(0, |(_, status)| status.as_raw());
    quiesce();
    let (cpu_us, max_rss_kb) = sys::usage_of_children();
    let facts = json!({"status": status, "cpu_us": cpu_us, "max_rss_kb": max_rss_kb});
    wire::send(control, format!("Q{facts}").as_bytes(), &[])
}

/// Kills and reaps every other process of the namespace.
fn quiesce() {
    loop {
        sys::signal_namespace(Signal::KILL);
        let reaped = rustix::process::waitpid(None, WaitOptions::empty());
        if matches!(reaped, Err(rustix::io::Errno::CHILD)) {
            return;
        }
    }
}

fn obey(control: &OwnedFd, message: &Message) -> io::Result<()> {
    let Some((kind, content)) = message.data.split_first() else { return Ok(()) };
    let text = String::from_utf8_lossy(content);
    let signal = match kind {
        b'K' => Some(Signal::KILL),
        b'P' => Some(Signal::STOP),
        // A native cell never forks: no process can miss this.
        b'C' => Some(Signal::CONT),
        _ => None,
    };
    if let Some(signal) = signal {
        sys::signal_namespace(signal);
        return Ok(());
    }
    let done = match kind {
        b'T' => text
            .parse::<u64>()
            .map_err(io::Error::other)
            .and_then(|size| remount(JOB, &format!("size={size}"), libc::MS_REMOUNT | NO_EXEC)),
        b'M' => mount_inputs(&text),
        b'I' => store_input(&text, message),
        b'S' => {
            let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | NO_EXEC;
            remount(&format!("{WORK}/inputs"), "", flags)
        }
        _ => return Ok(()),
    };
    match done {
        Ok(()) => wire::send(control, b"A", &[]),
        Err(error) => wire::send(control, format!("E{error}").as_bytes(), &[]),
    }
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(io::Error::other)
}

fn remount(path: &str, options: &str, flags: libc::c_ulong) -> io::Result<()> {
    let options = c_string(options)?;
    let options = (!options.is_empty()).then_some(options.as_c_str());
    mount(c"job", &c_string(path)?, None, flags, options).map_err(io::Error::from_raw_os_error)
}

fn mount_tmpfs(path: &str, options: &str) -> io::Result<()> {
    let options = c_string(options)?;
    let done = mount(c"job", &c_string(path)?, Some(c"tmpfs"), NO_EXEC, Some(&options));
    done.map_err(io::Error::from_raw_os_error)
}

fn mount_inputs(size: &str) -> io::Result<()> {
    let path = format!("{WORK}/inputs");
    fs::DirBuilder::new().mode(0o755).create(&path)?;
    let size = size.parse::<u64>().map_err(io::Error::other)? + (16 << 20);
    mount_tmpfs(&path, &format!("mode=0755,nr_inodes=4096,size={size}"))
}

fn store_input(name: &str, message: &Message) -> io::Result<()> {
    let source = message.fds.first().ok_or_else(|| io::Error::other("an input has no file"))?;
    let path = Path::new(WORK).join("inputs").join(name);
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let stored = (|| {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let options = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path);
        io::copy(&mut File::from(source.try_clone()?), &mut options?)
    })();
    rustix::process::umask(Mode::from_raw_mode(0o077));
    stored.map(drop)
}

//! Starts a process in namespaces of its own, in a root that was built for it.
//!
//! Between `fork` and `exec` a child of a process with threads may do nothing but make system
//! calls: no allocation, no lock. Everything is therefore prepared as C strings beforehand, and the
//! child walks through it. Where it fails, it writes the step and the error into a pipe.
//!
//! The order depends on the tier. With privileges the root is built first, because the interpreter
//! may lie where the identity of the sandbox could not reach it, and the user namespace is entered
//! afterwards. Without privileges only the user namespace gives the right to mount anything.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags};

use crate::limits::LAUNCH_FDS_MAX;

/// One entry of the root that is built for the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// An empty folder with this mode.
    Folder(PathBuf, u32),
    /// An empty file with this mode.
    File(PathBuf, u32),
    /// A symbolic link: where it is, where it points.
    Link(PathBuf, PathBuf),
    /// A folder or file of the host, read-only, without devices and set-user-ID programs.
    Bind(PathBuf),
    /// A device of the host.
    Device(PathBuf),
    /// A folder in memory, the only one that the process can write to.
    Scratch(PathBuf),
}

/// Which identities the user namespace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Two host user IDs that no other process uses: 0 and 1000 inside. Needs privileges.
    Two(u32, u32),
    /// One user and group of the host, as 0 inside: those of the supervisor, unless it is root.
    Own(u32, u32),
}

/// What to start.
pub(crate) struct Launch {
    /// Program and arguments, inside the new root.
    pub(crate) command: Vec<CString>,
    /// `NAME=value`, everything that the process finds.
    pub(crate) environment: Vec<CString>,
    pub(crate) root: Vec<Entry>,
    pub(crate) identity: Identity,
    /// Descriptors for 0, 1, 2 and so on.
    pub(crate) fds: Vec<OwnedFd>,
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub(crate) struct LaunchError {
    step: String,
    #[source]
    source: io::Error,
}

impl LaunchError {
    fn new(step: impl Into<String>, source: io::Error) -> Self {
        LaunchError { step: step.into(), source }
    }
}

/// What the child does, in order. The names are for error messages.
struct Steps {
    /// Mounts of the root, as paths below `/old` and `/new`.
    entries: Vec<Prepared>,
    base: CString,
}

struct Prepared {
    source: CString,
    target: CString,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Folder(u32),
    File(u32),
    Link,
    Bind,
    Device,
    Scratch,
}

/// Descriptors are moved to this number or above before they are put where the program expects them.
const PARK_FROM: c_int = 64;

/// Starts the process and waits until its program runs.
pub(crate) fn launch(launch: &Launch) -> Result<Launched, LaunchError> {
    let steps = prepare(launch).map_err(|source| LaunchError::new("prepare", source))?;
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let pipes = || -> rustix::io::Result<_> { Ok((pipe()?, pipe()?)) };
    // The child asks for its identity on the first pair and is answered on the second.
    let ((ask_read, ask_write), (go_read, go_write)) =
        pipes().map_err(|errno| LaunchError::new("pipe", errno.into()))?;
    // Out of the way of the numbers that the program expects.
    let ask_write = rustix::io::fcntl_dupfd_cloexec(ask_write, PARK_FROM)
        .map_err(|errno| LaunchError::new("fcntl", errno.into()))?;
    if launch.fds.len() > LAUNCH_FDS_MAX {
        return Err(LaunchError::new("prepare", io::ErrorKind::InvalidInput.into()));
    }
    let argv = pointers(&launch.command);
    let envp = pointers(&launch.environment);
    let fds: Vec<RawFd> = launch.fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let child = Child {
        steps: &steps,
        identity: launch.identity,
        argv: &argv,
        envp: &envp,
        fds: &fds,
        ask: ask_write.as_raw_fd(),
        go: go_read.as_raw_fd(),
        parents_end: go_write.as_raw_fd(),
    };
    // SAFETY: the child calls only `Child::run`, which makes system calls on prepared memory and
    // never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        child.run();
    }
    let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else {
        return Err(LaunchError::new("fork", io::Error::last_os_error()));
    };
    drop((ask_write, go_read));
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty());
    let told = attend(pid, launch.identity, fs::File::from(ask_read), fs::File::from(go_write));
    match (pidfd, told) {
        (Ok(pidfd), Ok(())) => Ok(Launched { pid, pidfd }),
        (pidfd, told) => {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            told?;
            pidfd.map_err(|errno| LaunchError::new("pidfd_open", errno.into()))?;
            Err(LaunchError::new("start", io::ErrorKind::Other.into()))
        }
    }
}

/// Writes the identity maps when the child asks for them, and waits for its program to run.
fn attend(
    pid: Pid,
    identity: Identity,
    mut ask: fs::File,
    mut go: fs::File,
) -> Result<(), LaunchError> {
    let mut message = [0u8; 5];
    loop {
        match ask.read_exact(&mut message) {
            // The program runs: the descriptor was closed by `exec`.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(LaunchError::new("read", error)),
            Ok(()) => {}
        }
        let [step, number @ ..] = message;
        if step == b'M' {
            write_maps(pid, identity)?;
            go.write_all(b"g").map_err(|error| LaunchError::new("write", error))?;
            continue;
        }
        let error = io::Error::from_raw_os_error(i32::from_ne_bytes(number));
        return Err(LaunchError::new(step_name(step), error));
    }
}

fn write_maps(pid: Pid, identity: Identity) -> Result<(), LaunchError> {
    let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text)
            .map_err(|error| LaunchError::new(format!("write {name}"), error))
    };
    match identity {
        Identity::Two(first, second) => {
            let map = format!("0 {first} 1\n1000 {second} 1\n");
            write("gid_map", &map)?;
            write("uid_map", &map)
        }
        Identity::Own(user, group) => {
            write("setgroups", "deny")?;
            write("gid_map", &format!("0 {group} 1\n"))?;
            write("uid_map", &format!("0 {user} 1\n"))
        }
    }
}

fn step_name(step: u8) -> String {
    let name = match step {
        b'u' => "create the user namespace",
        b'n' => "create the mount, network, IPC and UTS namespaces",
        b'p' => "make mounts private",
        b'b' => "mount a tmpfs for the root",
        b'o' => "pivot_root",
        b'e' => "build the root (is the interpreter readable by other users?)",
        b'r' => "make the root read-only",
        b'i' => "change the identity",
        b'f' => "place descriptors",
        b'x' => "execute the interpreter",
        _ => "start",
    };
    name.to_owned()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

fn prepare(launch: &Launch) -> io::Result<Steps> {
    let below = |root: &str, path: &Path| {
        let text = format!("{root}{}", path.display());
        CString::new(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
    };
    let mut entries: Vec<Prepared> = Vec::new();
    let mut made = std::collections::BTreeSet::new();
    for entry in &launch.root {
        let path = match entry {
            Entry::Folder(path, _) | Entry::File(path, _) | Entry::Link(path, _) => path,
            Entry::Bind(path) | Entry::Device(path) | Entry::Scratch(path) => path,
        };
        // Folders on the way are made as needed.
        let mut parents: Vec<_> =
            path.ancestors().skip(1).filter(|p| p.parent().is_some()).collect();
        parents.reverse();
        for parent in parents {
            if made.insert(parent.to_path_buf()) {
                let target = below("/new", parent)?;
                entries.push(Prepared {
                    source: CString::default(),
                    target,
                    kind: Kind::Folder(0o755),
                });
            }
        }
        made.insert(path.clone());
        let target = below("/new", path)?;
        let (source, kind) = match entry {
            Entry::Folder(_, mode) => (CString::default(), Kind::Folder(*mode)),
            Entry::File(_, mode) => (CString::default(), Kind::File(*mode)),
            Entry::Link(_, to) => (below("", to)?, Kind::Link),
            Entry::Scratch(_) => {
                let (source, target) = (CString::default(), target.clone());
                entries.push(Prepared { source, target, kind: Kind::Folder(0o755) });
                (CString::default(), Kind::Scratch)
            }
            Entry::Bind(path) | Entry::Device(path) => {
                let source = below("/old", path)?;
                // A mount needs something of its own kind to be mounted on.
                let is_folder = fs::metadata(path)?.is_dir();
                let point = if is_folder { Kind::Folder(0o755) } else { Kind::File(0o444) };
                entries.push(Prepared {
                    source: CString::default(),
                    target: target.clone(),
                    kind: point,
                });
                let is_device = matches!(entry, Entry::Device(_));
                (source, if is_device { Kind::Device } else { Kind::Bind })
            }
        };
        entries.push(Prepared { source, target, kind });
    }
    let base = ["/tmp", "/run", "/dev/shm", "/mnt", "/var", "/usr"]
        .into_iter()
        .find(|path| Path::new(path).is_dir())
        .unwrap_or("/");
    let base = CString::new(base).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(Steps { entries, base })
}

/// What the child needs; all of it was prepared before `fork`.
struct Child<'a> {
    steps: &'a Steps,
    identity: Identity,
    argv: &'a [*const c_char],
    envp: &'a [*const c_char],
    fds: &'a [RawFd],
    ask: RawFd,
    go: RawFd,
    /// The other end of `go`, which the child must close: while it is open, a parent that has died is
    /// waited for without end.
    parents_end: RawFd,
}

impl Child<'_> {
    /// Never returns: the program runs, or the process has ended.
    fn run(&self) -> ! {
        let (step, errno) = match self.try_run() {
            Err(failed) => failed,
            Ok(never) => match never {},
        };
        let mut message = [step, 0, 0, 0, 0];
        message[1..].copy_from_slice(&errno.to_ne_bytes());
        // SAFETY: writes five bytes of a local array, then ends without running destructors that
        // belong to the parent.
        unsafe {
            libc::write(self.ask, message.as_ptr().cast(), message.len());
            libc::_exit(127)
        }
    }

    fn try_run(&self) -> Result<std::convert::Infallible, (u8, i32)> {
        const OTHERS: c_int = libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        reset_signals();
        // A process that changed its user is not dumpable, and could not be given an identity map.
        // SAFETY: takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        match self.identity {
            Identity::Two(..) => {
                step(b'n', || unshare(libc::CLONE_NEWNS))?;
                self.build_root()?;
                step(b'u', || unshare(libc::CLONE_NEWUSER))?;
                self.ask_for_maps()?;
                step(b'n', || unshare(OTHERS))?;
                step(b'i', || become_user(0, 0))?;
            }
            Identity::Own(user, group) => {
                // SAFETY: takes nothing and cannot fail.
                if unsafe { libc::geteuid() } == 0 && user != 0 {
                    step(b'i', || become_user(user, group))?;
                    // SAFETY: takes numbers only.
                    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
                }
                step(b'u', || unshare(libc::CLONE_NEWUSER))?;
                self.ask_for_maps()?;
                step(b'n', || unshare(libc::CLONE_NEWNS | OTHERS))?;
                self.build_root()?;
            }
        }
        step(b'f', || self.place_fds())?;
        // SAFETY: both arrays end with a null pointer and point to strings that outlive the call.
        unsafe { libc::execve(self.argv[0], self.argv.as_ptr(), self.envp.as_ptr()) };
        Err((b'x', errno()))
    }

    fn ask_for_maps(&self) -> Result<(), (u8, i32)> {
        let mut byte = 0u8;
        // SAFETY: closes a descriptor that the child alone has here, writes five bytes of a local array and
        // reads one byte into a local variable.
        let read = unsafe {
            libc::close(self.parents_end);
            libc::write(self.ask, [b'M', 0, 0, 0, 0].as_ptr().cast(), 5);
            libc::read(self.go, (&raw mut byte).cast(), 1)
        };
        if read == 1 { Ok(()) } else { Err((b'u', libc::EPERM)) }
    }

    fn build_root(&self) -> Result<(), (u8, i32)> {
        step(b'p', || mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE, None))?;
        let base = &self.steps.base;
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        let options = c"mode=0755,size=1m,nr_inodes=4096";
        step(b'b', || mount(c"root", base, Some(c"tmpfs"), flags, Some(options)))?;
        step(b'b', || check(chdir(base)))?;
        step(b'b', || make_folder(c"new", 0o755).and_then(|()| make_folder(c"old", 0o755)))?;
        step(b'b', || mount(c"new", c"new", None, libc::MS_BIND, None))?;
        step(b'o', || pivot_root(c".", c"old"))?;
        step(b'o', || check(chdir(c"/")))?;
        for entry in &self.steps.entries {
            step(b'e', || entry.make())?;
        }
        step(b'r', || set_read_only(c"/new", 0))?;
        step(b'o', || check(chdir(c"/new")))?;
        step(b'o', || pivot_root(c".", c"."))?;
        // SAFETY: the path is a C string.
        step(b'o', || check(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) }))?;
        step(b'o', || check(chdir(c"/")))
    }

    fn place_fds(&self) -> Result<(), i32> {
        let count = self.fds.len() as c_int;
        let mut parked = [0; LAUNCH_FDS_MAX];
        for (fd, parked) in self.fds.iter().zip(&mut parked) {
            // SAFETY: takes numbers only.
            *parked = unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, PARK_FROM) };
            check(*parked)?;
        }
        for (target, parked) in (0..count).zip(parked) {
            // SAFETY: takes numbers only.
            check(unsafe { libc::dup2(parked, target) })?;
        }
        let cloexec = libc::CLOSE_RANGE_CLOEXEC as libc::c_long;
        // SAFETY: takes numbers only.
        let result = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                count as libc::c_long,
                c_int::MAX as libc::c_long,
                cloexec,
            )
        };
        check(result as c_int)
    }
}

impl Prepared {
    fn make(&self) -> Result<(), i32> {
        match self.kind {
            Kind::Folder(mode) => match make_folder(&self.target, mode) {
                Err(libc::EEXIST) => Ok(()),
                other => other,
            },
            Kind::File(mode) => make_file(&self.target, mode),
            Kind::Link => {
                // SAFETY: both paths are C strings.
                check(unsafe { libc::symlink(self.source.as_ptr(), self.target.as_ptr()) })
            }
            Kind::Bind => {
                mount(&self.source, &self.target, None, libc::MS_BIND | libc::MS_REC, None)?;
                set_read_only(&self.target, libc::AT_RECURSIVE as u32)
            }
            Kind::Scratch => {
                let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
                let options = c"mode=1777,size=64m,nr_inodes=4096";
                mount(c"scratch", &self.target, Some(c"tmpfs"), flags, Some(options))
            }
            Kind::Device => mount(&self.source, &self.target, None, libc::MS_BIND, None),
        }
    }
}

fn step<T>(name: u8, action: impl FnOnce() -> Result<T, i32>) -> Result<T, (u8, i32)> {
    action().map_err(|errno| (name, errno))
}

fn errno() -> i32 {
    // SAFETY: the C library returns a pointer that is valid for this thread.
    unsafe { *libc::__errno_location() }
}

fn check(result: c_int) -> Result<(), i32> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}

fn unshare(flags: c_int) -> Result<(), i32> {
    // SAFETY: the child has one thread and shares nothing with the parent that the flags concern.
    check(unsafe { libc::unshare(flags) })
}

fn chdir(path: &CStr) -> c_int {
    // SAFETY: the path is a C string.
    unsafe { libc::chdir(path.as_ptr()) }
}

fn make_folder(path: &CStr, mode: u32) -> Result<(), i32> {
    // SAFETY: the path is a C string.
    check(unsafe { libc::mkdir(path.as_ptr(), 0o755) })?;
    // The mode of `mkdir` passes through the umask.
    // SAFETY: the path is a C string.
    check(unsafe { libc::chmod(path.as_ptr(), mode) })
}

fn make_file(path: &CStr, mode: u32) -> Result<(), i32> {
    // SAFETY: the path is a C string; the descriptor is closed at once.
    check(unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC, 0o600);
        if fd < 0 { fd } else { libc::close(fd) }
    })?;
    // SAFETY: the path is a C string.
    check(unsafe { libc::chmod(path.as_ptr(), mode) })
}

pub(crate) fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    options: Option<&CStr>,
) -> Result<(), i32> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: every pointer is null, where the call allows it, or a C string.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), pointer(kind), flags, pointer(options).cast())
    })
}

fn pivot_root(new: &CStr, old: &CStr) -> Result<(), i32> {
    // SAFETY: both paths are C strings.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, new.as_ptr(), old.as_ptr()) } as c_int)
}

/// Makes a mount, or with `AT_RECURSIVE` a tree of them, read-only, without devices and
/// set-user-ID programs.
fn set_read_only(path: &CStr, flags: u32) -> Result<(), i32> {
    const RDONLY_NOSUID_NODEV: u64 = 1 | 2 | 4;
    let attributes: [u64; 4] = [RDONLY_NOSUID_NODEV, 0, 0, 0];
    // SAFETY: the path is a C string and the attributes have the size that is given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    } as c_int)
}

/// Becomes this user and group for good. The wrappers of the C library would signal threads that
/// this process does not have.
pub(crate) fn become_user(user: u32, group: u32) -> Result<(), i32> {
    // SAFETY: takes numbers and an empty list.
    check(unsafe { libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<libc::gid_t>()) }
        as c_int)?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_setresgid, group, group, group) } as c_int)?;
    // SAFETY: takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) } as c_int)
}

/// Gives back what a program expects to find: every signal handled by default, none blocked.
fn reset_signals() {
    for number in 1..65 {
        // SAFETY: sets a default disposition; numbers that cannot be set are refused by the kernel.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    // SAFETY: `set` is initialised by `sigemptyset` before it is read.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// A descriptor for `/proc`, which the root of the process lacks.
pub(crate) fn open_proc() -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/proc", flags, Mode::empty())?)
}

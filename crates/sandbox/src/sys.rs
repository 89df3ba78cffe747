//! System calls that the standard library and rustix do not offer, each behind a safe function.
//!
//! This module and [`crate::launch`] hold all `unsafe` code of the workspace.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Pid;

/// A refused system call, as the kernel reported it to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) id: u64,
    pub(crate) number: i32,
    pub(crate) arguments: [u64; 6],
}

/// Reads one notification. `Ok(None)` if its process has died meanwhile.
pub(crate) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<Option<Notification>> {
    // SAFETY: `seccomp_notif` is plain data; the kernel requires it to be zeroed.
    let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the request takes a pointer to a `seccomp_notif`, which `raw` is for the whole call.
    let result =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut raw) };
    if result == 0 {
        let (number, arguments) = (raw.data.nr, raw.data.args);
        return Ok(Some(Notification { id: raw.id, number, arguments }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => Ok(None),
        _ => Err(error),
    }
}

/// Answers a notification with an error. A process that is gone needs no answer.
pub(crate) fn refuse_notification(listener: BorrowedFd<'_>, id: u64, errno: i32) {
    // SAFETY: `seccomp_notif_resp` is plain data for which zero is valid.
    let mut answer: libc::seccomp_notif_resp = unsafe { std::mem::zeroed() };
    answer.id = id;
    answer.error = -errno;
    // SAFETY: the request takes a pointer to a `seccomp_notif_resp`, which `answer` is.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
}

/// CPU time used by all threads of a process so far. `None` if there is no such process.
pub(crate) fn cpu_time_of(pid: Pid) -> Option<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is valid for writing one clock ID.
    if unsafe { libc::clock_getcpuclockid(pid.as_raw_nonzero().get(), &raw mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing one `timespec`.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

/// The highest Landlock ABI of the kernel, or the error that says why there is none.
pub(crate) fn landlock_abi() -> io::Result<i32> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_long = 1;
    // SAFETY: with this flag the call takes a null pointer and a size of zero, and reads nothing.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    if version < 0 { Err(io::Error::last_os_error()) } else { Ok(version as i32) }
}

/// Whether the kernel knows this action of a filter.
pub(crate) fn check_seccomp_action(action: u32) -> io::Result<()> {
    const SECCOMP_GET_ACTION_AVAIL: libc::c_long = 2;
    // SAFETY: the operation reads one `u32` through the pointer.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0usize, &raw const action)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A socket pair for messages with descriptors: the first end stays here, the second one is sent.
pub(crate) fn socket_pair(kind: rustix::net::SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(rustix::net::AddressFamily::UNIX, kind, flags, None)?)
}

/// The signals by which a process ends itself.
const FATAL_SIGNALS: [libc::c_int; 3] = [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS];

/// What is called before one of them ends the process.
static FATAL_OBSERVER: OnceLock<fn(i32)> = OnceLock::new();

/// The actions that were set before, in the order of [`FATAL_SIGNALS`].
static FATAL_PREVIOUS: [OnceLock<libc::sigaction>; 3] = [const { OnceLock::new() }; 3];

/// Maps the beginning of a file, which must have this many words, so that what is stored in them outlives
/// the process however it ends. The mapping is never removed.
pub(crate) fn map_words(file: &File, words: usize) -> io::Result<&'static [AtomicU64]> {
    let bytes = words * size_of::<AtomicU64>();
    if file.metadata()?.len() < bytes as u64 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    // SAFETY: the kernel chooses the address, so nothing that is mapped is replaced.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping begins at a page, has this many bytes and is never removed; every pattern of bits
    // is a valid word, and others access it only as atomic words.
    Ok(unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), words) })
}

/// Makes the allocator take every block of at least so many bytes from the kernel and return it there when it
/// is freed. Of the memory of smaller blocks it keeps `kept_bytes` at the end of each arena and grows an arena
/// by `step_bytes`: setting the first bound alone turns off the adjustment of the others, and an arena would
/// then shrink and grow with nearly every request.
#[cfg(target_env = "gnu")]
pub(crate) fn map_large_blocks(bytes: i32, kept_bytes: i32, step_bytes: i32) {
    let options = [
        (libc::M_MMAP_THRESHOLD, bytes),
        (libc::M_TRIM_THRESHOLD, kept_bytes),
        (libc::M_TOP_PAD, step_bytes),
    ];
    for (option, value) in options {
        // SAFETY: `mallopt` only changes a number of the allocator. If it refuses, nothing changes.
        unsafe { libc::mallopt(option, value) };
    }
}

/// Lets the allocator have at most so many arenas.
#[cfg(target_env = "gnu")]
pub(crate) fn bound_arenas(count: i32) {
    // SAFETY: `mallopt` only changes a number of the allocator. If it refuses, nothing changes.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, count) };
}

/// Returns the memory to the kernel that the allocator keeps for later.
#[cfg(target_env = "gnu")]
pub(crate) fn release_free_memory() {
    // SAFETY: `malloc_trim` may be called by any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Only the allocator of the GNU C library has arenas.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn bound_arenas(_: i32) {}

/// Only the allocator of the GNU C library keeps large blocks.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn map_large_blocks(_: i32, _: i32, _: i32) {}

/// Only the allocator of the GNU C library needs to be asked.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn release_free_memory() {}

/// Calls `observe` when SIGABRT, SIGSEGV or SIGBUS is about to end the process, which then ends as it
/// would have. `observe` must only do what is allowed in a signal handler: no locks, no allocation.
pub(crate) fn observe_fatal_signals(observe: fn(i32)) -> io::Result<()> {
    if FATAL_OBSERVER.set(observe).is_err() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists));
    }
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
        on_fatal_signal;
    for (signal, previous) in FATAL_SIGNALS.into_iter().zip(&FATAL_PREVIOUS) {
        // SAFETY: `sigaction` is plain data for which zero is valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // The stack may have overflowed: the handler runs on the alternate one.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        action.sa_sigaction = handler as usize;
        // SAFETY: as above.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for one `sigaction` during the call.
        if unsafe { libc::sigaction(signal, &raw const action, &raw mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let _ = previous.set(before);
    }
    Ok(())
}

/// Tells the observer and restores the action that was set before. An instruction that faulted is
/// repeated when this returns and faults again; a signal that was sent is sent again.
extern "C" fn on_fatal_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _: *mut libc::c_void,
) {
    if let Some(observe) = FATAL_OBSERVER.get() {
        observe(signal);
    }
    // SAFETY: the kernel passes a valid `siginfo_t` to a handler with SA_SIGINFO.
    let was_sent = unsafe { (*info).si_code } <= 0;
    let at = FATAL_SIGNALS.iter().position(|fatal| *fatal == signal);
    let previous = at.and_then(|at| FATAL_PREVIOUS[at].get()).filter(|_| !was_sent);
    // SAFETY: `sigaction` is plain data, and zero is the default action.
    let action = previous.copied().unwrap_or_else(|| unsafe { std::mem::zeroed() });
    // SAFETY: `action` is valid during the call.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    if was_sent {
        // SAFETY: `raise` may be called in a handler. The signal is delivered when this returns.
        unsafe { libc::raise(signal) };
    }
}

/// Takes over a descriptor that this program was started with. `None` if it is not open, or was taken before.
pub(crate) fn inherited(number: i32) -> Option<OwnedFd> {
    static TAKEN: [AtomicBool; 16] = [const { AtomicBool::new(false) }; 16];
    let taken = TAKEN.get(usize::try_from(number).ok()?)?;
    // SAFETY: asks for the flags of a descriptor, whatever the number is.
    let is_open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    if !is_open || taken.swap(true, Ordering::SeqCst) {
        return None;
    }
    // SAFETY: the descriptor is open, and each number is handed out once.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Ends the process without running destructors or exit handlers, which belong to its parent.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(status) }
}

/// Closes every descriptor from 3 on but these. For a process that was forked: what it closes belongs to its
/// parent, and is never used here.
pub(crate) fn close_all_but(kept: &[&OwnedFd]) {
    let mut numbers: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    numbers.sort_unstable();
    let mut from = 3;
    for number in numbers.into_iter().chain([u32::MAX]) {
        if number > from {
            // SAFETY: takes numbers only; see above for what is closed.
            unsafe { libc::syscall(libc::SYS_close_range, from, number - 1, 0) };
        }
        from = number.saturating_add(1);
    }
}

/// The process that `fork` or `clone` returned in.
pub(crate) enum Forked {
    /// The parent, with the child.
    Parent(Pid, Option<OwnedFd>),
    /// The child.
    Child,
}

/// Whether this process has one thread, by what the kernel lists.
pub(crate) fn runs_one_thread(proc: BorrowedFd<'_>) -> io::Result<bool> {
    use rustix::fs::{Dir, Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(proc, c"self/task", flags, Mode::empty())?;
    let entries = Dir::read_from(folder)?.flatten();
    Ok(entries.filter(|entry| !entry.file_name().to_bytes().starts_with(b".")).count() == 1)
}

/// Forks a process with one thread: the child may then do whatever the parent may.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: callers have one thread, so that no lock is held by another one.
    forked(unsafe { libc::fork() }, None)
}

/// Forks a process with one thread into new namespaces, among them a network namespace if that is wanted. The child
/// is a child of this process's parent.
pub(crate) fn clone_worker(with_network: bool) -> io::Result<Forked> {
    const FLAGS: libc::c_int = libc::CLONE_PARENT
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_PIDFD;
    let mut tid_address: *mut libc::c_int = std::ptr::null_mut();
    // SAFETY: writes one pointer to a local variable.
    unsafe { libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut tid_address, 0, 0, 0) };
    let mut flags = FLAGS as u64;
    if with_network {
        flags |= libc::CLONE_NEWNET as u64;
    }
    if !tid_address.is_null() {
        // The C library remembers the ID of a thread where this address points.
        flags |= (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) as u64;
    }
    let mut pidfd: libc::c_int = -1;
    let arguments: [u64; 11] =
        [flags, (&raw mut pidfd) as u64, tid_address as u64, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: callers have one thread; the arguments have the size that is given, no memory is shared
    // with the child, and its stack is a copy of this one.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) };
    // SAFETY: the kernel has opened the descriptor for the parent alone.
    let pidfd = (pid > 0 && pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    forked(pid as libc::pid_t, pidfd)
}

/// Moves this process, which has one thread, into a new network namespace.
pub(crate) fn make_network() -> io::Result<()> {
    // SAFETY: takes a number; nothing in the memory of this process depends on the namespace.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves this process, which has one thread, into a network namespace.
pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes numbers; nothing in the memory of this process depends on the namespace.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn forked(pid: libc::pid_t, pidfd: Option<OwnedFd>) -> io::Result<Forked> {
    if pid == 0 {
        return Ok(Forked::Child);
    }
    let pid = if pid > 0 { Pid::from_raw(pid) } else { None };
    pid.map(|pid| Forked::Parent(pid, pidfd)).ok_or_else(io::Error::last_os_error)
}

/// Signals every process of the own pid namespace but this one, which must be its first.
pub(crate) fn signal_namespace(signal: rustix::process::Signal) {
    if rustix::process::getpid().as_raw_nonzero().get() != 1 {
        exit_now(72);
    }
    // SAFETY: takes numbers only.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Ignores every signal that can be ignored, but for that of an ended child.
pub(crate) fn ignore_signals() {
    for number in (1..65).filter(|number| *number != libc::SIGCHLD) {
        // SAFETY: sets a disposition; numbers that cannot be set are refused by the kernel.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
}

/// CPU time in microseconds and the largest resident memory in KiB of all children that were waited for.
pub(crate) fn usage_of_children() -> (i64, i64) {
    // SAFETY: `rusage` is plain data for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing one `rusage`.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let micros = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    (micros(usage.ru_utime) + micros(usage.ru_stime), usage.ru_maxrss)
}

/// Names the process for people, and keeps others from reading its memory.
pub(crate) fn name_process(name: &std::ffi::CStr) {
    // SAFETY: the name is a C string; the other call takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// Empties the sets from which a program that is executed would get capabilities.
pub(crate) fn drop_inheritable_capabilities() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    for capability in 0..64 {
        // SAFETY: takes numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            break;
        }
    }
}

/// Clears the capability sets of the process and forbids new privileges.
pub(crate) fn clear_privileges() -> io::Result<()> {
    let header: [u32; 2] = [0x2008_0522, 0];
    let sets = [0u32; 6];
    // SAFETY: header and sets have the layout of version 3, which the header names.
    let cleared = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    // SAFETY: takes numbers only.
    let locked = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if cleared == 0 && locked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts files, TCP, abstract sockets and signals: only below the folder may files be read and written.
pub(crate) fn restrict_to(folder: BorrowedFd<'_>) -> io::Result<()> {
    let abi = landlock_abi().unwrap_or(0).min(6);
    if abi < 1 {
        return Ok(());
    }
    let mut handled: u64 = (1 << 13) - 1;
    for (since, right) in [(2, 1 << 13), (3, 1 << 14), (5, 1 << 15)] {
        handled |= if abi >= since { right } else { 0 };
    }
    // Files, TCP, and abstract sockets and signals.
    let attributes: [u64; 3] = [handled, 3, 3];
    let size = size_of::<u64>() * (1 + usize::from(abi >= 4) + usize::from(abi >= 6));
    // SAFETY: the attributes have at least the size that is given.
    let ruleset = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, attributes.as_ptr(), size, 0usize)
    };
    if ruleset < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened the descriptor.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset as i32) };
    // READ_FILE, READ_DIR, WRITE_FILE, REMOVE_FILE, MAKE_DIR, MAKE_REG, TRUNCATE.
    let allowed: u64 = (4 | 8 | 2 | 32 | 128 | 256 | 16384) & handled;
    let mut rule = [0u8; 12];
    rule[..8].copy_from_slice(&allowed.to_ne_bytes());
    rule[8..].copy_from_slice(&folder.as_raw_fd().to_ne_bytes());
    // SAFETY: the rule has the packed layout of `landlock_path_beneath_attr`; the rest are numbers.
    let result = unsafe {
        let added = libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            1usize,
            rule.as_ptr(),
            0usize,
        );
        if added == 0 {
            libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0usize)
        } else {
            added
        }
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Installs a filter of system calls for good. Refused calls are reported through the descriptor.
pub(crate) fn install_filter(program: &[u8]) -> io::Result<OwnedFd> {
    const NEW_LISTENER: usize = 8;
    const WAIT_KILLABLE: usize = 32;
    // The instructions of a filter are aligned like numbers of 4 bytes.
    let words: Vec<u64> = program
        .chunks_exact(8)
        .map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap_or_default()))
        .collect();
    let header = libc::sock_fprog {
        len: u16::try_from(words.len()).map_err(io::Error::other)?,
        filter: words.as_ptr().cast_mut().cast(),
    };
    let install = |flags: usize| {
        // SAFETY: the header points to as many instructions as it says, which the kernel copies.
        let fd = unsafe { libc::syscall(libc::SYS_seccomp, 1usize, flags, &raw const header) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened the descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    match install(NEW_LISTENER | WAIT_KILLABLE) {
        // Older kernels do not know the second flag.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(NEW_LISTENER),
        other => other,
    }
}

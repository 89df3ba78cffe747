//! System calls that the standard library and rustix do not offer, each behind a safe function.
//!
//! This module and [`crate::launch`] hold all `unsafe` code of the workspace.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
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

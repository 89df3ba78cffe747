//! System calls that the standard library and rustix do not offer, each behind a safe function.
//!
//! This module and [`crate::launch`] hold all `unsafe` code of the workspace.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
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

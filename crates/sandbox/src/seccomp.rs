//! The system call filter of a cell: an allow-list, written as classic BPF.
//!
//! Three things can happen to a call. It is allowed; it is refused quietly with an error that
//! libraries expect and handle; or it is sent to the supervisor, which refuses and records it. What
//! is on no list is recorded: a system call that a later kernel adds is refused until it
//! is put on a list. Another architecture's entry point, and the x32 one, kill the process.
//!
//! Arguments are compared by their low 32 bits wherever the kernel itself takes an `int`, because
//! the upper half is ignored there and must not be a way around a comparison.

use std::collections::BTreeMap;

use libc::c_long;

const RET_KILL_PROCESS: u32 = 0x8000_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the sandbox knows the system calls of x86_64 and aarch64 only");

/// Flags of `clone` that create namespaces, and `CLONE_PARENT`.
const CLONE_REFUSED: u32 = 0x7E02_8000;
const TCGETS: u32 = 0x5401;
const TCGETS2: u32 = 0x802C_542A;
const TIOCGWINSZ: u32 = 0x5413;
const FIONREAD: u32 = 0x541B;
const FIONBIO: u32 = 0x5421;
const FIOCLEX: u32 = 0x5451;
const FIONCLEX: u32 = 0x5450;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
const TIOCSCTTY: u32 = 0x540E;
const TIOCSETD: u32 = 0x5423;

/// The part of the flags of `clone` that is the signal by which the child reports its end.
const CLONE_SIGNAL: u32 = 0xff;
/// Chooses the signal that a descriptor sends when it is ready.
const F_SETSIG: u32 = 10;

/// What happens to a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Allow,
    /// Refuse with this error; nothing is recorded. Zero pretends success.
    Refuse(i32),
    /// Let the supervisor refuse and record it.
    Record,
    /// Kill the process.
    Kill,
}

impl Action {
    fn code(self) -> u32 {
        match self {
            Action::Allow => RET_ALLOW,
            Action::Refuse(errno) => RET_ERRNO | (errno as u32 & 0xffff),
            Action::Record => RET_USER_NOTIF,
            Action::Kill => RET_KILL_PROCESS,
        }
    }
}

/// A decision by one argument, of which `mask` is looked at.
struct ByArgument {
    number: c_long,
    index: u32,
    mask: u32,
    listed: Vec<(u32, Action)>,
    otherwise: Action,
}

/// What happens to the calls whose numbers follow one another.
enum Decision {
    Always(Action),
    ByArgument(ByArgument),
}

/// Instructions from the last one to the first: a jump goes forward, so that its target exists already.
#[derive(Default)]
struct Program {
    reversed: Vec<u64>,
    /// Where the last instruction was put that ends the program with a code.
    ends: BTreeMap<u32, Place>,
}

/// How many instructions there were when one was put, itself included: the distance to the end.
type Place = usize;

impl Program {
    fn push(&mut self, code: u16, jump_true: u8, jump_false: u8, k: u32) -> Place {
        let instruction = u64::from(code)
            | u64::from(jump_true) << 16
            | u64::from(jump_false) << 24
            | u64::from(k) << 32;
        self.reversed.push(instruction);
        self.reversed.len()
    }

    /// Loads a 32-bit word of `struct seccomp_data`.
    fn load(&mut self, offset: u32) -> Place {
        self.push(0x20, 0, 0, offset)
    }

    fn and(&mut self, mask: u32) -> Place {
        self.push(0x54, 0, 0, mask)
    }

    /// Ends the program. An instruction that does so is shared by those that can reach it.
    fn end(&mut self, code: u32) -> Place {
        match self.ends.get(&code) {
            Some(place) if self.distance(*place) < SHARED_WITHIN => *place,
            _ => {
                let place = self.push(0x06, 0, 0, code);
                self.ends.insert(code, place);
                place
            }
        }
    }

    /// The instructions that the next one would skip to reach a place.
    fn distance(&self, place: Place) -> usize {
        self.reversed.len() - place
    }

    /// A place that a conditional jump can reach, which a jump to the wanted one is put at if need be.
    fn near(&mut self, place: Place) -> Place {
        // Two jumps can be put before the conditional one.
        if self.distance(place) + 2 <= usize::from(u8::MAX) {
            return place;
        }
        let distance = self.distance(place) as u32;
        self.push(0x05, 0, 0, distance)
    }

    /// Goes to one place or the other, by comparing the accumulator with `k`.
    fn jump(&mut self, comparison: u16, k: u32, if_true: Place, if_false: Place) -> Place {
        let (if_true, if_false) = (self.near(if_true), self.near(if_false));
        let (jump_true, jump_false) = (self.distance(if_true), self.distance(if_false));
        self.push(comparison, jump_true as u8, jump_false as u8, k)
    }

    fn decide(&mut self, decision: &Decision) -> Place {
        let rule = match decision {
            Decision::Always(action) => return self.end(action.code()),
            Decision::ByArgument(rule) => rule,
        };
        let mut place = self.end(rule.otherwise.code());
        for (value, action) in rule.listed.iter().rev() {
            let listed = self.end(action.code());
            place = self.jump(IS_EQUAL, *value, listed, place);
        }
        // The comparisons follow, unless there are none.
        debug_assert_eq!(place, self.reversed.len());
        if rule.mask != u32::MAX {
            self.and(rule.mask);
        }
        self.load(16 + 8 * rule.index)
    }

    /// Finds the decision for a number by halving: each decision is for the numbers from its first on.
    fn search(&mut self, decisions: &[(u32, Decision)]) -> Place {
        let (left, right) = decisions.split_at(decisions.len() / 2);
        match (left, right) {
            ([], [(_, decision)]) => self.decide(decision),
            (_, [(first, _), ..]) => {
                let first = *first;
                let from_first = self.search(right);
                let below = self.search(left);
                self.jump(IS_AT_LEAST, first, from_first, below)
            }
            (_, []) => self.end(Action::Record.code()),
        }
    }
}

/// Comparisons of the accumulator.
const IS_EQUAL: u16 = 0x15;
const IS_AT_LEAST: u16 = 0x35;
/// An end is shared if it is this near, so that jumps to it need no other jump.
const SHARED_WITHIN: usize = 200;
/// Numbers from here on belong to the x32 entry point of x86_64.
const X32_FIRST: u32 = 0x4000_0000;

/// The decisions for all numbers, each with the first number that it is for.
fn decisions() -> Vec<(u32, Decision)> {
    let mut listed: BTreeMap<u32, Decision> = BTreeMap::new();
    let mut list = |number: c_long, decision| listed.insert(number as u32, decision);
    for number in allowed() {
        list(number, Decision::Always(Action::Allow));
    }
    for (number, errno) in refused_quietly() {
        list(number, Decision::Always(Action::Refuse(errno)));
    }
    for rule in by_argument() {
        list(rule.number, Decision::ByArgument(rule));
    }
    let mut decisions: Vec<(u32, Decision)> = Vec::new();
    let mut add = |first: u32, decision: Decision| {
        let last = decisions.last().map(|(_, last)| last);
        if let (Some(Decision::Always(last)), Decision::Always(action)) = (last, &decision)
            && last == action
        {
            return;
        }
        decisions.push((first, decision));
    };
    let mut next = 0;
    for (number, decision) in listed {
        if number > next {
            add(next, Decision::Always(Action::Record));
        }
        add(number, decision);
        next = number + 1;
    }
    add(next, Decision::Always(Action::Record));
    if cfg!(target_arch = "x86_64") {
        add(X32_FIRST, Decision::Always(Action::Kill));
    }
    decisions
}

/// The filter as the kernel takes it: eight bytes for each instruction.
///
/// The kernel compiles it for every cell and runs it once for each call that there is, so that it pays
/// to be short and to search instead of comparing with one number after the other.
pub(crate) fn program() -> Vec<u8> {
    let mut program = Program::default();
    // The root of the search is put last, so that it follows the load of the number.
    program.search(&decisions());
    let search = program.load(0);
    let kill = program.push(0x06, 0, 0, Action::Kill.code());
    program.jump(IS_EQUAL, AUDIT_ARCH, search, kill);
    program.load(4);
    program.reversed.iter().rev().flat_map(|instruction| instruction.to_le_bytes()).collect()
}

macro_rules! numbers {
    ($($name:ident)*) => { [$(libc::$name),*] };
}

fn allowed() -> Vec<c_long> {
    let mut all = Vec::from(numbers! {
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev
        SYS_preadv2 SYS_pwritev2 SYS_lseek SYS_close SYS_close_range SYS_openat SYS_fstat SYS_newfstatat
        SYS_statx SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir
        SYS_mkdirat SYS_unlinkat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_truncate
        SYS_ftruncate SYS_fallocate SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_umask SYS_utimensat
        SYS_fsync SYS_fdatasync SYS_flock SYS_fadvise64 SYS_readahead SYS_sync_file_range SYS_statfs SYS_fstatfs
        SYS_copy_file_range SYS_sendfile SYS_dup SYS_dup3 SYS_pipe2 SYS_eventfd2
        SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_ppoll SYS_pselect6
        SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_signalfd4
        SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
        SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_brk SYS_msync SYS_mincore SYS_mlock SYS_munlock
        SYS_membarrier SYS_mlock2 SYS_munlockall
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigsuspend
        SYS_rt_sigtimedwait SYS_sigaltstack SYS_restart_syscall
        SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_set_tid_address SYS_set_robust_list
        SYS_futex SYS_futex_waitv SYS_rseq SYS_getcpu
        SYS_getpid SYS_getppid SYS_gettid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid
        SYS_getgroups SYS_getpgid SYS_getsid SYS_setpgid SYS_setsid SYS_capget SYS_getrusage SYS_getrlimit SYS_setrlimit SYS_times
        SYS_uname SYS_sysinfo SYS_getpriority SYS_setpriority SYS_getitimer SYS_setitimer
        SYS_sched_yield SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getparam SYS_sched_getscheduler
        SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_getattr SYS_sched_rr_get_interval
        SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday
        SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete
        SYS_getrandom
        SYS_recvfrom SYS_sendto SYS_recvmsg SYS_sendmsg SYS_recvmmsg SYS_sendmmsg SYS_shutdown
        SYS_getsockname SYS_getpeername
    });
    #[cfg(target_arch = "x86_64")]
    all.extend(numbers! {
        SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_mkdir SYS_rmdir SYS_unlink
        SYS_rename SYS_renameat SYS_link SYS_symlink SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes
        SYS_futimesat SYS_dup2 SYS_pipe SYS_eventfd SYS_epoll_create SYS_epoll_wait SYS_poll SYS_select
        SYS_inotify_init SYS_signalfd SYS_fork SYS_vfork SYS_getpgrp SYS_alarm SYS_pause SYS_time SYS_arch_prctl
    });
    #[cfg(target_arch = "aarch64")]
    all.extend(numbers! { SYS_renameat });
    all
}

fn refused_quietly() -> Vec<(c_long, i32)> {
    // Arguments behind a pointer cannot be checked; the C library falls back to the older call.
    let pointers = numbers! { SYS_clone3 SYS_openat2 }.map(|number| (number, libc::ENOSYS));
    // Its signal is behind a pointer, and could be the one that continues a stopped process.
    let timers = numbers! { SYS_timer_create }.map(|number| (number, libc::ENOSYS));
    // Numerical libraries ask about memory nodes and do without.
    let policies =
        numbers! { SYS_mbind SYS_set_mempolicy SYS_get_mempolicy SYS_move_pages SYS_migrate_pages }
            .map(|number| (number, libc::ENOSYS));
    // Memory that no process has mapped would escape the limits that are kept without cgroups.
    let hidden =
        numbers! { SYS_memfd_create SYS_memfd_secret }.map(|number| (number, libc::ENOSYS));
    // Copying a file tries to copy these, too.
    let attributes = numbers! {
        SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr
        SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
    }
    .map(|number| (number, libc::EOPNOTSUPP));
    // A cell has nothing to flush, and the host's disks are not its business.
    let flushes = numbers! { SYS_sync SYS_syncfs }.map(|number| (number, 0));
    let priorities =
        numbers! { SYS_sched_setscheduler SYS_sched_setparam SYS_sched_setattr SYS_mlockall }
            .map(|number| (number, libc::EPERM));
    let mut all = Vec::new();
    all.extend(pointers);
    all.extend(timers);
    all.extend(policies);
    all.extend(hidden);
    all.extend(attributes);
    all.extend(flushes);
    all.extend(priorities);
    all
}

fn by_argument() -> Vec<ByArgument> {
    let all = u32::MAX;
    let only = |number, index, mask, values: &[u32]| ByArgument {
        number,
        index,
        mask,
        listed: values.iter().map(|value| (*value, Action::Allow)).collect(),
        otherwise: Action::Record,
    };
    let ioctls = [TCGETS, TCGETS2, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX]
        .into_iter()
        .map(|request| (request, Action::Allow))
        // These put characters into a terminal's input or take a terminal over.
        .chain([TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCSETD].map(|request| (request, Action::Record)))
        .collect();
    // A socket pair can say who made it, and take programs for packets: neither is needed.
    let options = |number, names: &[i32]| ByArgument {
        number,
        index: 2,
        mask: all,
        listed: names.iter().map(|name| (*name as u32, Action::Allow)).collect(),
        otherwise: Action::Refuse(libc::ENOPROTOOPT),
    };
    let set = [
        libc::SO_REUSEADDR,
        libc::SO_SNDBUF,
        libc::SO_RCVBUF,
        libc::SO_KEEPALIVE,
        libc::SO_LINGER,
        libc::SO_PASSCRED,
        libc::SO_RCVTIMEO,
        libc::SO_SNDTIMEO,
    ];
    let get =
        [libc::SO_TYPE, libc::SO_ERROR, libc::SO_DOMAIN, libc::SO_PROTOCOL, libc::SO_ACCEPTCONN];
    let get: Vec<i32> = set.into_iter().chain(get).collect();
    let file_kinds = [0, libc::S_IFREG, libc::S_IFIFO];
    // Where there is no freezer, a paused cell is a stopped one, and must not continue itself.
    let all_but = |number, index, value: u32, errno| ByArgument {
        number,
        index,
        mask: all,
        listed: vec![(value, Action::Refuse(errno))],
        otherwise: Action::Allow,
    };
    let signals = |number, index| all_but(number, index, libc::SIGCONT as u32, libc::EPERM);
    let mut rules = vec![
        only(
            libc::SYS_clone,
            0,
            CLONE_REFUSED | CLONE_SIGNAL,
            // Threads, and processes.
            &[0, libc::SIGCHLD as u32],
        ),
        signals(libc::SYS_kill, 1),
        signals(libc::SYS_tkill, 1),
        signals(libc::SYS_tgkill, 2),
        signals(libc::SYS_rt_sigqueueinfo, 1),
        signals(libc::SYS_rt_tgsigqueueinfo, 2),
        all_but(libc::SYS_fcntl, 1, F_SETSIG, libc::EINVAL),
        only(libc::SYS_socketpair, 0, all, &[libc::AF_UNIX as u32]),
        only(libc::SYS_prlimit64, 0, all, &[0]),
        options(libc::SYS_setsockopt, &set),
        options(libc::SYS_getsockopt, &get),
        only(libc::SYS_personality, 0, all, &[u32::MAX]),
        only(libc::SYS_mknodat, 2, libc::S_IFMT, &file_kinds),
        only(
            libc::SYS_prctl,
            0,
            all,
            &[
                libc::PR_SET_NAME as u32,
                libc::PR_GET_NAME as u32,
                libc::PR_GET_DUMPABLE as u32,
                libc::PR_GET_PDEATHSIG as u32,
                libc::PR_CAPBSET_READ as u32,
                libc::PR_GET_NO_NEW_PRIVS as u32,
                libc::PR_GET_SECCOMP as u32,
                libc::PR_SET_VMA as u32,
                libc::PR_SET_TIMERSLACK as u32,
                libc::PR_GET_TIMERSLACK as u32,
            ],
        ),
        ByArgument {
            number: libc::SYS_ioctl,
            index: 1,
            mask: all,
            listed: ioctls,
            otherwise: Action::Refuse(libc::ENOTTY),
        },
    ];
    #[cfg(target_arch = "x86_64")]
    rules.push(only(libc::SYS_mknod, 1, libc::S_IFMT, &file_kinds));
    rules.shrink_to_fit();
    rules
}

/// The name of a system call that a cell is known to try in vain; its number otherwise.
pub(crate) fn name(number: i32) -> String {
    macro_rules! named {
        ($($name:ident)*) => { [$((libc::$name, stringify!($name))),*] };
    }
    let known = named! {
        SYS_socket SYS_connect SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_socketpair SYS_execve SYS_execveat
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot
        SYS_unshare SYS_setns SYS_clone SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_keyctl
        SYS_add_key SYS_request_key SYS_bpf SYS_userfaultfd SYS_perf_event_open SYS_kexec_load SYS_reboot
        SYS_init_module SYS_finit_module SYS_delete_module SYS_swapon SYS_swapoff SYS_acct SYS_quotactl
        SYS_open_by_handle_at SYS_name_to_handle_at SYS_fanotify_init SYS_fanotify_mark SYS_syslog
        SYS_pidfd_open SYS_pidfd_send_signal SYS_pidfd_getfd SYS_seccomp SYS_landlock_create_ruleset
        SYS_landlock_add_rule SYS_landlock_restrict_self SYS_setuid SYS_setgid SYS_setreuid SYS_setregid
        SYS_setresuid SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capset SYS_prlimit64
        SYS_personality SYS_prctl SYS_ioctl SYS_mknodat SYS_shmget SYS_shmat SYS_shmctl SYS_msgget SYS_msgsnd
        SYS_msgrcv SYS_semget SYS_semop SYS_semctl SYS_mq_open SYS_sethostname SYS_setdomainname
        SYS_clock_settime SYS_settimeofday SYS_adjtimex SYS_clock_adjtime SYS_vhangup SYS_splice SYS_vmsplice
        SYS_tee SYS_process_madvise SYS_kcmp SYS_fsopen SYS_fsmount SYS_open_tree SYS_move_mount
        SYS_mount_setattr
    };
    #[cfg(target_arch = "x86_64")]
    let own = named! { SYS_iopl SYS_ioperm SYS_modify_ldt SYS_kexec_file_load SYS_mknod SYS_ustat };
    #[cfg(target_arch = "aarch64")]
    let own = named! { SYS_kexec_file_load };
    let mut all = known.into_iter().chain(own);
    let found = all.find(|(known, _)| *known == c_long::from(number));
    match found {
        Some((_, name)) => name.trim_start_matches("SYS_").to_owned(),
        None => format!("system call {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter over a call, as the kernel does.
    fn verdict(arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let bytes = program();
        let code: Vec<u64> =
            bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        let mut data = Vec::new();
        data.extend(number.to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend(0u64.to_le_bytes());
        arguments.iter().for_each(|argument| data.extend(argument.to_le_bytes()));
        let mut accumulator = 0u32;
        let mut at = 0;
        loop {
            let instruction = code[at];
            let jump = |taken: bool| {
                let skip = if taken { instruction >> 16 } else { instruction >> 24 };
                (skip & 0xff) as usize
            };
            let k = (instruction >> 32) as u32;
            at += 1;
            match instruction as u16 {
                0x20 => {
                    let word = &data[k as usize..k as usize + 4];
                    accumulator = u32::from_le_bytes(word.try_into().unwrap());
                }
                0x54 => accumulator &= k,
                0x15 => at += jump(accumulator == k),
                0x35 => at += jump(accumulator >= k),
                0x05 => at += k as usize,
                0x06 => return k,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    fn own(number: c_long, arguments: [u64; 6]) -> u32 {
        verdict(AUDIT_ARCH, number as u32, arguments)
    }

    #[test]
    fn ordinary_calls_are_allowed_and_unknown_ones_recorded() {
        assert_eq!(own(libc::SYS_read, [0; 6]), RET_ALLOW);
        assert_eq!(own(libc::SYS_execve, [0; 6]), RET_USER_NOTIF);
        assert_eq!(own(libc::SYS_socket, [1, 0, 0, 0, 0, 0]), RET_USER_NOTIF);
        assert_eq!(verdict(AUDIT_ARCH, 2000, [0; 6]), RET_USER_NOTIF);
    }

    #[test]
    fn every_call_is_decided_as_it_is_listed() {
        let allowed = allowed();
        let refused: BTreeMap<c_long, i32> = refused_quietly().into_iter().collect();
        let checked: Vec<c_long> = by_argument().iter().map(|rule| rule.number).collect();
        for number in (0..1000).filter(|number| !checked.contains(number)) {
            let expected = match refused.get(&number) {
                Some(errno) => Action::Refuse(*errno),
                None if allowed.contains(&number) => Action::Allow,
                None => Action::Record,
            };
            assert_eq!(own(number, [u64::MAX; 6]), expected.code(), "{number}");
        }
        for rule in by_argument() {
            let with = |value: u32| {
                let mut arguments = [0; 6];
                arguments[rule.index as usize] = u64::from(value);
                own(rule.number, arguments)
            };
            for (value, action) in &rule.listed {
                assert_eq!(with(*value), action.code(), "{} with {value:#x}", rule.number);
            }
            assert_eq!(with(0x00ab_cdef & rule.mask), rule.otherwise.code(), "{}", rule.number);
        }
    }

    #[test]
    fn the_filter_is_short() {
        let instructions = program().len() / 8;
        assert!(instructions < 320, "{instructions} instructions");
    }

    #[test]
    fn other_entry_points_kill() {
        assert_eq!(verdict(0x4000_0003, 3, [0; 6]), RET_KILL_PROCESS);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(verdict(AUDIT_ARCH, 0x4000_0000, [0; 6]), RET_KILL_PROCESS);
    }

    #[test]
    fn arguments_decide_by_what_the_kernel_reads() {
        let pair = |family| own(libc::SYS_socketpair, [family, 0, 0, 0, 0, 0]);
        assert_eq!(pair(1), RET_ALLOW);
        assert_eq!(pair(2), RET_USER_NOTIF);
        // The kernel ignores the upper half of an `int`.
        assert_eq!(own(libc::SYS_ioctl, [0, 0x1_0000_5412, 0, 0, 0, 0]), RET_USER_NOTIF);
        assert_eq!(own(libc::SYS_ioctl, [0, 0x5401, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(own(libc::SYS_clone, [0x11, 0, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(own(libc::SYS_clone, [0x1000_0011, 0, 0, 0, 0, 0]), RET_USER_NOTIF);
        assert_eq!(own(libc::SYS_clone3, [0; 6]), RET_ERRNO | libc::ENOSYS as u32);
        assert_eq!(own(libc::SYS_prlimit64, [0; 6]), RET_ALLOW);
        assert_eq!(own(libc::SYS_prlimit64, [1, 0, 0, 0, 0, 0]), RET_USER_NOTIF);
    }

    #[test]
    fn nothing_sends_the_signal_that_continues_a_stopped_process() {
        let refused = RET_ERRNO | libc::EPERM as u32;
        let stop = libc::SIGCONT as u64;
        for (number, index) in [
            (libc::SYS_kill, 1),
            (libc::SYS_tkill, 1),
            (libc::SYS_tgkill, 2),
            (libc::SYS_rt_sigqueueinfo, 1),
            (libc::SYS_rt_tgsigqueueinfo, 2),
        ] {
            let with = |signal: u64| {
                let mut arguments = [7; 6];
                arguments[index] = signal;
                own(number, arguments)
            };
            assert_eq!((with(stop), with(stop | 1 << 32)), (refused, refused), "{number}");
            assert_eq!(with(libc::SIGTERM as u64), RET_ALLOW, "{number}");
        }
        let control = |command| own(libc::SYS_fcntl, [0, command, stop, 0, 0, 0]);
        assert_eq!(control(u64::from(F_SETSIG)), RET_ERRNO | libc::EINVAL as u32);
        assert_eq!(control(libc::F_SETFL as u64), RET_ALLOW);
        assert_eq!(own(libc::SYS_clone, [stop, 0, 0, 0, 0, 0]), RET_USER_NOTIF);
        assert_eq!(own(libc::SYS_clone, [0x003d_0f00, 0, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(own(libc::SYS_timer_create, [0; 6]), RET_ERRNO | libc::ENOSYS as u32);
    }

    #[test]
    fn no_call_is_on_two_lists() {
        let mut seen = std::collections::BTreeSet::new();
        let quiet = refused_quietly().into_iter().map(|(number, _)| number);
        let checked = by_argument().into_iter().map(|rule| rule.number);
        for number in allowed().into_iter().chain(quiet).chain(checked) {
            assert!(seen.insert(number), "{number} is on two lists");
        }
    }
}

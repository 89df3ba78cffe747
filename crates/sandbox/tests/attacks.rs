//! Hostile cells: each tries to get out, to harm the host or other cells, or to lie about itself.
//!
//! Every cell runs in the real sandbox, at the strongest tier that the user who runs the tests has.
//! `as_a_plain_user` runs the same suite again without privileges.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]
#![allow(clippy::disallowed_methods, reason = "limits of time are real here")]

mod support;

use std::time::{Duration, Instant};

use catena_sandbox::{Config, Control, Exit, Outcome, ReportState, Sandbox, Stop};
use support::{cell, check, run, skip, verdict};

const FORBIDDEN_CALL: &str = "SANDBOX_VIOLATION FORBIDDEN_SYSCALL";
const FORBIDDEN_ACCESS: &str = "SANDBOX_VIOLATION FORBIDDEN_ACCESS";
const EXCEPTION: &str = "USER_CODE_ERROR PYTHON_EXCEPTION";
const CRASHED: &str = "USER_CODE_ERROR CRASHED";

/// How long something may take that takes milliseconds, on a machine that is busy with other things.
const SLOW: Duration = Duration::from_secs(60);

/// Defines `call(number, ...)`, which returns the result and the error of a system call.
const PRELUDE: &str = "import ctypes, os, sys, time, signal
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    return result, ctypes.get_errno()
";

fn with_calls(source: &str) -> String {
    format!("{PRELUDE}{source}")
}

/// How much slower than before an ordinary cell may be after an attack.
const SLOWER_MAX: u32 = 3;
const SLOWER_OF: u32 = 2;

/// What a cell may take longer in any case: the machine does other things, too.
const NOISE: Duration = Duration::from_millis(10);

/// How often the time is measured until it is as before. Noise passes, and the effect of an attack does not.
const MEASUREMENTS_MAX: usize = 20;

thread_local! {
    /// How long an ordinary cell took when the sandbox of this test had started.
    static BEFORE: std::cell::Cell<Option<Duration>> = const { std::cell::Cell::new(None) };
}

/// Starts a sandbox, and measures how long an ordinary cell takes in it.
fn start(config: Config) -> Option<Sandbox> {
    let sandbox = support::start(config)?;
    BEFORE.set(Some(typical_time(&sandbox)));
    Some(sandbox)
}

/// The strongest tier of this user.
fn sandbox() -> Option<Sandbox> {
    start(Config { pool: 1, ..Config::new(support::profile()) })
}

/// The median of some ordinary cells.
fn typical_time(sandbox: &Sandbox) -> Duration {
    let mut times = [(); 5].map(|()| {
        let started = Instant::now();
        let outcome = run(sandbox, &cell("print('fine')"));
        let time = started.elapsed();
        assert_eq!((verdict(&outcome).as_str(), outcome.stdout.text.as_str()), ("ok", "fine\n"));
        time
    });
    times.sort_unstable();
    times[times.len() / 2]
}

/// The sandbox still works as it should, and as fast as before.
fn still_works(sandbox: &Sandbox) {
    let before = BEFORE.get().expect("the sandbox was started by `start`");
    let allowed = before * SLOWER_MAX / SLOWER_OF + NOISE;
    let times: Vec<Duration> = (0..MEASUREMENTS_MAX)
        .map(|_| typical_time(sandbox))
        .scan(false, |is_done, time| {
            let was_done = std::mem::replace(is_done, time <= allowed);
            (!was_done).then_some(time)
        })
        .collect();
    let fastest = times.iter().min().copied().unwrap_or_default();
    assert!(fastest <= allowed, "a cell took {before:?} before, and now {times:?}");
}

fn check_all(sandbox: &Sandbox, cells: &[(&str, &str)]) {
    for (source, expected) in cells {
        check(sandbox, &with_calls(source), expected);
    }
    still_works(sandbox);
}

#[test]
fn files_of_the_host_cannot_be_read() {
    let Some(sandbox) = sandbox() else { return };
    check_all(
        &sandbox,
        &[
            ("open('/etc/passwd').read()", FORBIDDEN_ACCESS),
            ("open('/etc/shadow').read()", FORBIDDEN_ACCESS),
            ("open('../../../../etc/shadow').read()", FORBIDDEN_ACCESS),
            ("os.listdir('/')", FORBIDDEN_ACCESS),
            ("os.listdir('/etc')", FORBIDDEN_ACCESS),
            ("os.listdir('/dev')", FORBIDDEN_ACCESS),
            ("os.listdir('/home')", FORBIDDEN_ACCESS),
            ("os.listdir('/proc')", FORBIDDEN_ACCESS),
            ("os.listdir('/sys')", FORBIDDEN_ACCESS),
            ("os.listdir('/var')", FORBIDDEN_ACCESS),
            ("open('/proc/self/mem', 'rb')", FORBIDDEN_ACCESS),
            ("open('/proc/self/environ').read()", FORBIDDEN_ACCESS),
            ("os.listdir('/proc/1/root')", FORBIDDEN_ACCESS),
            ("open('/proc/self/fd/3', 'rb')", FORBIDDEN_ACCESS),
            ("os.readlink('/proc/self/exe')", FORBIDDEN_ACCESS),
            ("open('/proc/sysrq-trigger', 'w')", FORBIDDEN_ACCESS),
            ("open('/proc/sys/kernel/core_pattern', 'w')", FORBIDDEN_ACCESS),
            ("open('/sys/fs/cgroup/cgroup.procs', 'w')", FORBIDDEN_ACCESS),
            ("open('/dev/mem', 'rb')", EXCEPTION),
            ("open('/dev/kmsg')", EXCEPTION),
            ("open('/dev/vda', 'rb')", EXCEPTION),
            ("open('/dev/tty', 'rb')", EXCEPTION),
            ("os.symlink('/etc/shadow', 'x'); open('x').read()", EXCEPTION),
            ("fd = os.open('/', os.O_PATH); os.listdir(fd)", EXCEPTION),
            (
                "fd = os.open('/', os.O_PATH)\nprint(os.open('etc/shadow', os.O_RDONLY, dir_fd=fd))",
                EXCEPTION,
            ),
            (
                "os.chdir('/'); os.chdir('..'); os.chdir('..'); print(os.path.exists('/usr/bin/env'))",
                "ok",
            ),
        ],
    );
    let outcome = check(&sandbox, "import os; print(os.path.exists('/usr/bin/env'))", "ok");
    assert_eq!(outcome.stdout.text, "False\n");
}

#[test]
fn nothing_can_be_written_outside_the_job_folder() {
    let Some(sandbox) = sandbox() else { return };
    check_all(
        &sandbox,
        &[
            ("open('/x', 'w')", FORBIDDEN_ACCESS),
            ("open('/usr/x', 'w')", FORBIDDEN_ACCESS),
            ("open('/etc/ld.so.preload', 'w')", FORBIDDEN_ACCESS),
            ("open('/etc/ld.so.cache', 'r+b')", FORBIDDEN_ACCESS),
            ("open(os.__file__, 'a')", FORBIDDEN_ACCESS),
            ("os.remove(os.__file__)", FORBIDDEN_ACCESS),
            ("os.rename(os.__file__, '/job/files/os.py')", EXCEPTION),
            ("os.chmod(os.__file__, 0o777)", FORBIDDEN_ACCESS),
            ("os.chown(sys.executable, 0, 0)", FORBIDDEN_ACCESS),
            ("os.utime(sys.executable)", FORBIDDEN_ACCESS),
            ("os.truncate(sys.executable, 0)", FORBIDDEN_ACCESS),
            ("os.mkdir('/job2')", FORBIDDEN_ACCESS),
            ("os.symlink('/x', '/y')", FORBIDDEN_ACCESS),
            ("os.open('/', os.O_TMPFILE | os.O_RDWR)", FORBIDDEN_ACCESS),
            ("os.link(sys.executable, 'python')", EXCEPTION),
            ("os.mkfifo('/dev/pipe')", FORBIDDEN_ACCESS),
            ("os.mknod('dev', 0o600 | 0o060000, os.makedev(8, 0))", FORBIDDEN_CALL),
            ("os.mknod('dev', 0o600 | 0o020000, os.makedev(1, 1))", FORBIDDEN_CALL),
            // Set-user-ID programs mean nothing here, and nothing can be executed anyway.
            (
                "open('s', 'w').close(); os.chmod('s', 0o6777); os.execv('./s', ['s'])",
                FORBIDDEN_CALL,
            ),
            ("open('/dev/null', 'w').write('x'); open('/dev/full', 'rb').read(1)", "ok"),
            ("os.write(os.open('/dev/full', os.O_WRONLY), b'x')", "RESOURCE_LIMIT DISK_LIMIT"),
        ],
    );
}

#[test]
fn there_is_no_network() {
    let Some(sandbox) = sandbox() else { return };
    // Unix, IPv4, IPv6, netlink, packet, Bluetooth, key algorithms, vsock, express data path.
    for family in [1, 2, 10, 16, 17, 31, 38, 40, 44] {
        let source = format!("import socket; socket.socket({family}, socket.SOCK_DGRAM)");
        let outcome = check(&sandbox, &source, FORBIDDEN_CALL);
        assert_eq!(outcome.facts.violations[0].name, "socket");
    }
    check_all(
        &sandbox,
        &[
            ("import socket; socket.create_connection(('127.0.0.1', 80), 1)", FORBIDDEN_CALL),
            ("import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW)", FORBIDDEN_CALL),
            ("import socket; socket.socketpair(socket.AF_INET)", FORBIDDEN_CALL),
            ("import urllib.request; urllib.request.urlopen('http://127.0.0.1/')", FORBIDDEN_CALL),
            // Caught errors count as well.
            ("import socket\ntry: socket.socket()\nexcept OSError: pass", FORBIDDEN_CALL),
            (
                "import socket; a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
                "ok",
            ),
            // It reveals neither its creator nor a handle on it, and runs no programs.
            (
                "import socket\nfor s in socket.socketpair() + (socket.socket(fileno=os.dup(3)),):\n    \
                 for option in (17, 77, 59):\n        try: print(s.getsockopt(1, option, 64)); sys.exit('known')\n        \
                 except OSError as e: assert e.errno == 92, e\n    \
                 for option in (26, 50, 76):\n        try: s.setsockopt(1, option, b'x' * 16); sys.exit('set')\n        \
                 except OSError as e: assert e.errno == 92, e",
                "ok",
            ),
            // A socket pair cannot be connected to anything else.
            ("import socket; a, b = socket.socketpair(); a.connect('/x')", FORBIDDEN_CALL),
            ("import socket; a, b = socket.socketpair(); a.bind('\\0x')", FORBIDDEN_CALL),
        ],
    );
}

#[test]
fn dangerous_system_calls_are_refused_and_recorded() {
    let Some(sandbox) = sandbox() else { return };
    macro_rules! numbers {
        ($($name:ident)*) => { [$((stringify!($name), libc::$name)),*] };
    }
    let common = numbers! {
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot
        SYS_unshare SYS_setns SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_keyctl SYS_add_key
        SYS_request_key SYS_bpf SYS_userfaultfd SYS_perf_event_open SYS_kexec_load SYS_init_module
        SYS_finit_module SYS_delete_module SYS_swapon SYS_swapoff SYS_acct SYS_quotactl SYS_open_by_handle_at
        SYS_name_to_handle_at SYS_fanotify_init SYS_syslog SYS_pidfd_open SYS_pidfd_send_signal
        SYS_pidfd_getfd SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_setuid SYS_setgid
        SYS_setresuid SYS_setgroups SYS_capset SYS_shmget SYS_msgget SYS_semget SYS_mq_open SYS_sethostname
        SYS_clock_settime SYS_settimeofday SYS_adjtimex SYS_vhangup SYS_vmsplice SYS_splice SYS_tee
        SYS_process_madvise SYS_kcmp SYS_fsopen SYS_open_tree SYS_move_mount SYS_mount_setattr SYS_execve
        SYS_execveat SYS_accept4 SYS_listen SYS_reboot
    };
    #[cfg(target_arch = "x86_64")]
    let own = numbers! { SYS_iopl SYS_ioperm SYS_modify_ldt SYS_kexec_file_load };
    #[cfg(target_arch = "aarch64")]
    let own = numbers! { SYS_kexec_file_load };
    for (name, number) in common.iter().chain(&own) {
        let source = format!("assert call({number}, 0, 0, 0, 0, 0, 0) == (-1, 1)");
        let outcome = check(&sandbox, &with_calls(&source), FORBIDDEN_CALL);
        assert_eq!(outcome.facts.violations[0].name, name.trim_start_matches("SYS_"));
        assert_eq!(outcome.facts.exit, Some(Exit::Code(0)), "{name}: {outcome:?}");
    }
    // Unknown system calls are no exception.
    for number in [600, 999, 4095] {
        check(&sandbox, &with_calls(&format!("call({number})")), FORBIDDEN_CALL);
    }
    still_works(&sandbox);
}

#[test]
fn namespaces_cannot_be_created() {
    let Some(sandbox) = sandbox() else { return };
    for flag in [
        0x0002_0000u32,
        0x0200_0000,
        0x0400_0000,
        0x0800_0000,
        0x1000_0000,
        0x2000_0000,
        0x4000_0000,
    ] {
        let source = format!("assert call({}, {flag} | 17, 0, 0, 0, 0)[0] == -1", libc::SYS_clone);
        check(&sandbox, &with_calls(&source), FORBIDDEN_CALL);
        // The upper half of the flags must not be a way around.
        let source = format!("assert call({}, {flag}, 0)[0] == -1", libc::SYS_unshare);
        check(&sandbox, &with_calls(&source), FORBIDDEN_CALL);
    }
    let source = format!(
        "flags = ctypes.create_string_buffer(88)\nflags[3] = 0x10\n\
         assert call({}, ctypes.addressof(flags), 88) == (-1, 38)",
        libc::SYS_clone3
    );
    check(&sandbox, &with_calls(&source), "ok");
    let source = format!("assert call({}, 0x8000 | 17, 0, 0, 0, 0)[0] == -1", libc::SYS_clone);
    check(&sandbox, &with_calls(&source), FORBIDDEN_CALL);
    still_works(&sandbox);
}

#[test]
fn other_entry_points_of_the_kernel_are_shut() {
    let Some(sandbox) = sandbox() else { return };
    if !cfg!(target_arch = "x86_64") {
        return skip("32-bit and x32 entry points exist on x86-64 only");
    }
    let outcome = check(&sandbox, &with_calls("call(0x40000000 | 39)"), FORBIDDEN_CALL);
    assert_eq!(outcome.facts.exit, Some(Exit::Signal(libc::SIGSYS)));
    let source = "import mmap
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())";
    let outcome = run(&sandbox, &cell(&with_calls(source)));
    // A kernel without the 32-bit entry point answers with a segmentation fault.
    let seen = verdict(&outcome);
    assert!(seen == FORBIDDEN_CALL || seen == CRASHED, "{outcome:?}");
    still_works(&sandbox);
}

#[test]
fn processes_are_counted_and_all_of_them_end() {
    let Some(sandbox) = sandbox() else { return };
    let bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
    let mut asked = cell(bomb);
    asked.limits.timeout_ms = 1500;
    let outcome = run(&sandbox, &asked);
    assert!(verdict(&outcome).starts_with("RESOURCE_LIMIT"), "{outcome:?}");
    still_works(&sandbox);

    let source = "import os, time\nfor n in range(1000):\n    if os.fork() == 0: time.sleep(60)";
    let outcome = check(&sandbox, source, "RESOURCE_LIMIT PROCESS_LIMIT");
    assert!(outcome.facts.process_refusals != Some(0), "{outcome:?}");
    let source = "import threading, time\nfor n in range(1000):\n    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()";
    let outcome = run(&sandbox, &cell(source));
    // Stacks of threads may hit the limit of memory first.
    assert!(verdict(&outcome).starts_with("RESOURCE_LIMIT"), "{outcome:?}");

    // Daemons do not outlive the cell, whatever they do to hide.
    let source = "import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        for fd in range(256):
            try: os.close(fd)
            except OSError: pass
        time.sleep(600)
    os._exit(0)
os.wait()
print('left')";
    let started = Instant::now();
    let outcome = check(&sandbox, source, "ok");
    assert_eq!(outcome.stdout.text, "left\n");
    assert!(started.elapsed() < SLOW, "{:?}", started.elapsed());
    still_works(&sandbox);
}

#[test]
fn signals_reach_nobody_else() {
    let Some(sandbox) = sandbox() else { return };
    // The init process survives; depending on the identity the attempt is refused or ignored.
    for signal in ["SIGKILL", "SIGTERM", "SIGSTOP", "SIGINT", "SIGSEGV", "SIGCHLD"] {
        let source = format!(
            "try: os.kill(1, signal.{signal})\nexcept PermissionError: pass\ntime.sleep(0.02)\nprint('on')"
        );
        assert_eq!(check(&sandbox, &with_calls(&source), "ok").stdout.text, "on\n");
    }
    let source = "for pid in range(2, 40000):\n    if pid != os.getpid():\n        try: os.kill(pid, 9)\n        except OSError: pass\nprint('alone', os.getpid())";
    assert_eq!(check(&sandbox, &with_calls(source), "ok").stdout.text, "alone 2\n");
    check(&sandbox, "import os; os.kill(-1, 9)", EXCEPTION);
    check(&sandbox, "import os; os.kill(0, 9)", CRASHED);
    check(&sandbox, "import os; os.kill(os.getpid(), 11)", CRASHED);
    check(&sandbox, "import os; os.abort()", CRASHED);
    check(&sandbox, "import ctypes; ctypes.string_at(0)", CRASHED);
    // Stopping oneself only runs into the limit of time.
    let mut asked = cell("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)");
    asked.limits.timeout_ms = 300;
    assert_eq!(verdict(&run(&sandbox, &asked)), "RESOURCE_LIMIT TIME_LIMIT");
    // Limits of other processes are out of reach.
    let source = "import resource; resource.prlimit(1, resource.RLIMIT_CPU, (1, 1))";
    check(&sandbox, source, FORBIDDEN_CALL);
    let source = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))";
    let seen = verdict(&run(&sandbox, &cell(source)));
    assert!(seen == EXCEPTION || seen == FORBIDDEN_ACCESS, "{seen}");
    still_works(&sandbox);
}

#[test]
fn memory_is_limited() {
    let Some(sandbox) = sandbox() else { return };
    let limited = |source: &str| {
        let mut asked = cell(source);
        asked.limits.memory_mb = 64;
        run(&sandbox, &asked)
    };
    let memory = "RESOURCE_LIMIT MEMORY_LIMIT";
    assert_eq!(verdict(&limited("x = bytearray(1 << 34)")), memory);
    assert_eq!(verdict(&limited("x = []\nwhile True: x.append(bytearray(1 << 20))")), memory);
    assert_eq!(verdict(&limited("x = 'a'\nwhile True: x += x")), memory);
    // Many small processes are one cell.
    let source = "import os, time\nfor n in range(20):\n    if os.fork() == 0:\n        x = bytearray(os.urandom(1 << 20) * 24)\n        time.sleep(30)\ntime.sleep(30)";
    let outcome = limited(source);
    assert_eq!(verdict(&outcome), memory, "{outcome:?}");
    // Shared memory and files in memory count.
    let outcome = limited(
        "import mmap\nm = mmap.mmap(-1, 150 << 20)\nfor at in range(0, 150 << 20, 4096): m[at] = 1",
    );
    assert_eq!(verdict(&outcome), memory, "{outcome:?}");
    let source = "import os\nos.memfd_create('x')";
    assert_eq!(verdict(&run(&sandbox, &cell(source))), EXCEPTION);
    // Catching the error is no way out.
    let source =
        "x = []\nwhile True:\n    try: x.append(bytearray(1 << 20))\n    except MemoryError: pass";
    let mut asked = cell(source);
    asked.limits.memory_mb = 64;
    asked.limits.timeout_ms = 1000;
    assert!(verdict(&run(&sandbox, &asked)).starts_with("RESOURCE_LIMIT"));
    still_works(&sandbox);
}

#[test]
fn the_job_folder_is_limited() {
    let Some(sandbox) = sandbox() else { return };
    let disk = "RESOURCE_LIMIT DISK_LIMIT";
    // Files are memory: with a cgroup the cell is killed, without one the folder is full.
    let mut small = cell("for n in range(9): open(str(n), 'wb').write(bytes(16 << 20))");
    small.limits.memory_mb = 64;
    assert!(verdict(&run(&sandbox, &small)).starts_with("RESOURCE_LIMIT"));
    check(&sandbox, "f = open('x', 'wb'); f.truncate(1 << 40)", disk);
    let source = "f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()";
    let outcome = run(&sandbox, &cell(source));
    assert!(verdict(&outcome).starts_with("RESOURCE_LIMIT"), "{outcome:?}");
    let mut asked = cell("for n in range(100000): open(str(n), 'w').close()");
    asked.limits.max_artifacts = 5;
    let outcome = run(&sandbox, &asked);
    assert_eq!(verdict(&outcome), disk, "{outcome:?}");
    assert_eq!(outcome.artifacts.len(), 5);
    assert!(outcome.refused_more > 1000, "{}", outcome.refused_more);
    let source = "import os\nwhile True:\n    os.mkdir('d'); os.chdir('d')";
    let outcome = run(&sandbox, &cell(source));
    assert!(outcome.artifacts.is_empty() && verdict(&outcome) != "ok", "{outcome:?}");
    still_works(&sandbox);
}

#[test]
fn time_is_limited() {
    let Some(sandbox) = sandbox() else { return };
    let limited = |source: &str, timeout_ms: u64, cpu_ms: u64| {
        let mut asked = cell(source);
        asked.limits.timeout_ms = timeout_ms;
        asked.limits.cpu_ms = cpu_ms;
        let started = Instant::now();
        let outcome = run(&sandbox, &asked);
        assert!(started.elapsed() < SLOW, "{:?}", started.elapsed());
        outcome
    };
    let time = "RESOURCE_LIMIT TIME_LIMIT";
    let outcome =
        limited("print('before', flush=True)\nimport time\ntime.sleep(600)", 2_000, 10_000);
    assert_eq!(verdict(&outcome), time);
    assert_eq!(outcome.stdout.text, "before\n");
    assert_eq!(outcome.facts.stopped, Some(Stop::Time));
    assert!(outcome.usage.wall >= Duration::from_millis(2_000));
    assert_eq!(
        verdict(&limited(
            "import time, signal\nsignal.alarm(0)\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass",
            300,
            10_000
        )),
        time
    );
    let cpu = "RESOURCE_LIMIT CPU_LIMIT";
    let outcome = limited("while True: pass", 30_000, 200);
    assert_eq!(verdict(&outcome), cpu);
    assert!(outcome.usage.cpu >= Duration::from_millis(200), "{outcome:?}");
    let ignoring = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass";
    assert_eq!(verdict(&limited(ignoring, 30_000, 200)), cpu);
    // The time of children counts, also of those that have ended.
    let forking = "import os\nwhile True:\n    if os.fork() == 0:\n        for n in range(100000): pass\n        os._exit(0)\n    os.wait()";
    assert_eq!(verdict(&limited(forking, 30_000, 300)), cpu);
    // What runs in the C library holds the interpreter's lock.
    assert_eq!(verdict(&limited("x = 7 ** 10 ** 8", 300, 30_000)), time);
    assert_eq!(
        verdict(&limited("import atexit, time\natexit.register(time.sleep, 60)", 300, 10_000)),
        time
    );
    assert_eq!(
        verdict(&limited(
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
            300,
            10_000
        )),
        time
    );
    still_works(&sandbox);
}

#[test]
fn output_is_limited() {
    let Some(sandbox) = sandbox() else { return };
    let mut asked = cell("while True: print('x' * 1000)");
    asked.limits.max_output_kb = 16;
    let outcome = run(&sandbox, &asked);
    assert_eq!(verdict(&outcome), "RESOURCE_LIMIT OUTPUT_LIMIT", "{outcome:?}");
    assert!(outcome.stdout.is_truncated && outcome.stdout.text.len() <= 16 << 10);
    asked.source = "import os\nwhile True: os.write(2, b'\\xff' * 65536)".to_owned();
    let outcome = run(&sandbox, &asked);
    assert_eq!(verdict(&outcome), "RESOURCE_LIMIT OUTPUT_LIMIT");
    // More than is kept, and less than is punished.
    asked.source = "print('x' * (100 << 10))".to_owned();
    let outcome = run(&sandbox, &asked);
    assert_eq!(verdict(&outcome), "ok");
    assert!(outcome.stdout.is_truncated);
    asked.source = "import os; os.close(1); os.close(2); print('gone')".to_owned();
    let outcome = run(&sandbox, &asked);
    assert!(!verdict(&outcome).starts_with("INTERNAL"), "{outcome:?}");
    still_works(&sandbox);
}

#[test]
fn a_forged_report_gains_nothing() {
    let Some(sandbox) = sandbox() else { return };
    let malformed = |source: &str| {
        let outcome = run(&sandbox, &cell(source));
        assert_eq!(outcome.report, ReportState::Malformed, "{source} {outcome:?}");
        assert_eq!(outcome.result, None);
        outcome
    };
    let every_fd = "import os\nfor fd in range(256):\n    try: os.write(fd, b'{\"error\": null}')\n    except OSError: pass";
    assert_eq!(verdict(&malformed(every_fd)), "ok");
    // A limit is a limit, whatever the report says.
    let forged = "import os, struct\nheader = b'{\"error\": null}'\n\
        os.write(3, b'CR1\\n' + struct.pack('!II', len(header), 1) + header + b'7')\n";
    let outcome = check(
        &sandbox,
        &format!("{forged}import socket\ntry: socket.socket()\nexcept OSError: pass"),
        FORBIDDEN_CALL,
    );
    assert_eq!(outcome.result, None);
    let outcome = check(&sandbox, &format!("{forged}os._exit(9)"), "USER_CODE_ERROR EXIT_NONZERO");
    assert_eq!(outcome.result, None);
    let outcome = check(&sandbox, &format!("{forged}os.kill(os.getpid(), 9)"), CRASHED);
    assert_eq!(outcome.result, None);
    // The first message counts: this cell labels itself, which affects no other cell.
    let outcome = check(&sandbox, &format!("{forged}def main(): return 8"), "ok");
    assert_eq!(outcome.result.as_deref(), Some("7"));
    malformed("import os, struct; os.write(3, b'CR1\\n' + struct.pack('!II', 1 << 31, 1 << 31))");
    malformed("import os; os.write(3, b'CR1\\n'); os.close(3)");
    malformed(
        "import os\nos.set_blocking(3, False)\ntry:\n    while True: os.write(3, b'x' * 65536)\nexcept BlockingIOError: pass",
    );
    // Descriptors that a cell sends are not taken.
    let source = "import array, os, socket\ns = socket.socket(fileno=os.dup(3))\n\
        s.sendmsg([b'hello'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0, 1, 2]))])";
    malformed(source);
    let outcome = check(&sandbox, "import os; os.close(3)", "ok");
    assert_eq!(outcome.report, ReportState::Missing);
    let outcome = check(&sandbox, "import os; os._exit(0)", "ok");
    assert_eq!(outcome.report, ReportState::Missing);
    // Reading the channel reveals nothing and blocks only the cell.
    let mut asked = cell("import os; os.read(3, 100)");
    asked.limits.timeout_ms = 300;
    assert_eq!(verdict(&run(&sandbox, &asked)), "RESOURCE_LIMIT TIME_LIMIT");
    // The runner itself can be broken, and breaks only the cell.
    let source = "import sys\nframe = sys._getframe()\nwhile frame:\n    frame.f_globals.clear() if frame.f_globals is not globals() else None\n    frame = frame.f_back";
    let outcome = run(&sandbox, &cell(source));
    assert!(!verdict(&outcome).starts_with("INTERNAL"), "{outcome:?}");
    still_works(&sandbox);
}

#[test]
fn descriptors_do_not_lead_anywhere() {
    let Some(sandbox) = sandbox() else { return };
    let source = "import os, stat\nfound = []\nfor fd in range(256):\n    try: found.append((fd, stat.S_IFMT(os.fstat(fd).st_mode)))\n    except OSError: pass\nprint(found)";
    let outcome = check(&sandbox, source, "ok");
    // Null device, two pipes, one socket.
    assert_eq!(outcome.stdout.text, "[(0, 8192), (1, 4096), (2, 4096), (3, 49152)]\n");
    let source =
        "import os\nfor fd in range(256):\n    try: os.close(fd)\n    except OSError: pass";
    let outcome = run(&sandbox, &cell(source));
    assert_eq!(outcome.facts.exit, Some(Exit::Code(0)), "{outcome:?}");
    let source = "import os\nwhile True: os.open('/dev/null', 0)";
    let outcome = check(&sandbox, source, EXCEPTION);
    assert!(outcome.stderr.text.contains("Too many open files"), "{outcome:?}");
    // Nothing to read, and no terminal.
    let outcome = check(
        &sandbox,
        "import sys, os; print(repr(sys.stdin.read()), os.isatty(0), os.isatty(1))",
        "ok",
    );
    assert_eq!(outcome.stdout.text, "'' False False\n");
    check(&sandbox, "input()", EXCEPTION);
    still_works(&sandbox);
}

#[test]
fn terminals_cannot_be_typed_into() {
    let Some(sandbox) = sandbox() else { return };
    for request in [0x5412u64, 0x1_0000_5412, 0x541c, 0x540e] {
        let source = format!("assert call({}, 0, {request}, 0)[0] == -1", libc::SYS_ioctl);
        check(&sandbox, &with_calls(&source), FORBIDDEN_CALL);
    }
    check(&sandbox, "import os; os.openpty()", EXCEPTION);
    still_works(&sandbox);
}

#[test]
fn the_environment_says_nothing_about_the_host() {
    let Some(sandbox) = sandbox() else { return };
    let outcome = check(&sandbox, "import os\nprint(sorted(os.environ))", "ok");
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "CARGO",
        "SSH_AUTH_SOCK",
        "CATENA",
        "AWS",
        "TOKEN",
        "RUST",
    ] {
        assert!(!outcome.stdout.text.contains(name), "{}", outcome.stdout.text);
    }
    let outcome = check(
        &sandbox,
        "import os, socket\nprint(socket.gethostname(), os.getppid(), os.getlogin if False else '')",
        "ok",
    );
    assert_eq!(outcome.stdout.text, "cell 1 \n");
    // Setting it changes nothing: nothing can be executed.
    check(
        &sandbox,
        "import os; os.environ['LD_PRELOAD'] = '/job/files/x.so'; os.execv('/usr/bin/env', ['env'])",
        FORBIDDEN_CALL,
    );
    check(&sandbox, "import os, sys; os.execv(sys.executable, ['python'])", FORBIDDEN_CALL);
    check(&sandbox, "import os; os.system('true')", FORBIDDEN_CALL);
    check(&sandbox, "import os; os.posix_spawn('/bin/true', ['true'], {})", FORBIDDEN_CALL);
    // Libraries cannot be loaded from where a cell can write.
    let source = "import ctypes, shutil, glob\npath = next(p for p in glob.glob('/usr/lib/*/libz.so*') + glob.glob('/usr/lib*/libm.so*'))\nshutil.copy(path, 'x.so')\nctypes.CDLL('/job/files/x.so')";
    let outcome = run(&sandbox, &cell(source));
    assert_ne!(verdict(&outcome), "ok", "{outcome:?}");
    // No core files.
    let outcome = check(
        &sandbox,
        "import os, resource\nprint(resource.getrlimit(resource.RLIMIT_CORE), flush=True)\nos.abort()",
        CRASHED,
    );
    assert_eq!(outcome.stdout.text, "(0, 0)\n");
    assert!(outcome.artifacts.is_empty());
    still_works(&sandbox);
}

#[test]
fn rights_are_gone_for_good() {
    let Some(sandbox) = sandbox() else { return };
    let source = "print(os.getuid(), os.geteuid(), os.getgid(), os.getgroups())
PR_GET_NO_NEW_PRIVS = 39
print(libc.prctl(39, 0, 0, 0, 0))
buffer = ctypes.create_string_buffer(24)
header = ctypes.create_string_buffer(b'\\x22\\x05\\x08\\x20\\0\\0\\0\\0', 8)
print(libc.capget(header, buffer), buffer.raw == bytes(24))
print([n for n in range(41) if libc.prctl(24 - 1, n, 0, 0, 0) == 1])";
    let outcome = check(&sandbox, &with_calls(source), "ok");
    let lines: Vec<_> = outcome.stdout.text.lines().collect();
    assert!(lines[0].starts_with("1000 1000 1000 "), "{lines:?}");
    assert_eq!(&lines[1..], ["1", "0 True", "[]"], "{lines:?}");
    check_all(
        &sandbox,
        &[
            ("os.setuid(0)", FORBIDDEN_CALL),
            ("os.setgid(0)", FORBIDDEN_CALL),
            ("os.chroot('.')", FORBIDDEN_CALL),
            ("os.nice(-10)", FORBIDDEN_ACCESS),
            ("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", FORBIDDEN_ACCESS),
            ("assert libc.prctl(4, 1, 0, 0, 0) == -1", FORBIDDEN_CALL),
            ("assert libc.prctl(22, 2, 0, 0, 0) == -1", FORBIDDEN_CALL),
            (
                "os.unshare(0x10000000)",
                if has_unshare(&sandbox) { FORBIDDEN_CALL } else { EXCEPTION },
            ),
        ],
    );
}

fn has_unshare(sandbox: &Sandbox) -> bool {
    run(sandbox, &cell("import os; print(hasattr(os, 'unshare'))")).stdout.text == "True\n"
}

#[test]
fn the_notifier_cannot_be_worn_out() {
    let Some(sandbox) = sandbox() else { return };
    let source = format!("while True: call({}, 2, 1, 0)", libc::SYS_socket);
    let outcome = check(&sandbox, &with_calls(&source), FORBIDDEN_CALL);
    assert_eq!(outcome.facts.stopped, Some(Stop::Violations));
    assert!(outcome.facts.violations.len() <= 32, "{}", outcome.facts.violations.len());
    // Many processes, and one that dies while its call is being answered.
    let source = format!(
        "for n in range(20):\n    if os.fork() == 0:\n        while True: call({}, 2, 1, 0)\nos.kill(-1, 9)\ntime.sleep(5)",
        libc::SYS_socket
    );
    let outcome = run(&sandbox, &cell(&with_calls(&source)));
    assert_eq!(verdict(&outcome), FORBIDDEN_CALL, "{outcome:?}");
    still_works(&sandbox);
}

#[test]
fn artifacts_are_regular_files_with_plain_names() {
    let Some(sandbox) = sandbox() else { return };
    let collected = |source: &str| check(&sandbox, source, "ok");
    let reasons = |outcome: &Outcome| -> Vec<String> {
        outcome
            .refused
            .iter()
            .map(|refused| format!("{}: {}", refused.name, refused.reason))
            .collect()
    };
    let outcome = collected(
        "import os\nos.symlink('/etc/shadow', 'a.txt'); os.symlink('.', 'loop'); os.symlink('/', 'root'); os.mkfifo('b.txt'); os.symlink('c', 'c')",
    );
    assert!(outcome.artifacts.is_empty());
    assert_eq!(outcome.refused.len(), 5, "{:?}", reasons(&outcome));
    // A hard link is a regular file of the cell itself.
    let outcome = collected("import os\nopen('a.txt', 'w').write('x'); os.link('a.txt', 'b.txt')");
    assert_eq!(outcome.artifacts.len(), 2);
    let outcome = collected("open('sparse.bin', 'wb').truncate(200 << 20)");
    assert!(outcome.artifacts.is_empty());
    assert!(reasons(&outcome)[0].contains("an artifact may have"), "{:?}", reasons(&outcome));
    let source = "open('A.txt', 'w'); open('a.txt', 'w'); open('\\u00e9.txt', 'w'); open('e\\u0301.txt', 'w'); open('ok.txt', 'w')";
    let outcome = collected(source);
    assert_eq!(outcome.artifacts.len(), 1, "{:?}", reasons(&outcome));
    assert_eq!(outcome.refused.len(), 4);
    let source = "open('a\\nb.txt', 'w'); open(b'\\xff.txt', 'w'); open('x\\u202etxt.exe', 'w'); open('\\x1b[31m', 'w'); open('a\\\\b', 'w')";
    let outcome = collected(source);
    assert!(outcome.artifacts.is_empty());
    assert_eq!(outcome.refused.len(), 5, "{:?}", reasons(&outcome));
    assert!(outcome.refused.iter().all(|refused| !refused.name.chars().any(char::is_control)));
    // Content decides.
    let source = "open('a.png', 'w').write('<script>'); open('a.svg', 'w').write('<html><svg/></html>'); open('a.json', 'w').write('{')";
    let outcome = collected(source);
    assert!(outcome.artifacts.is_empty(), "{:?}", reasons(&outcome));
    assert_eq!(outcome.refused.len(), 3);
    // Unreadable files and folders do not stop the collector.
    let outcome = collected(
        "import os\nopen('a.txt', 'w').write('x'); os.chmod('a.txt', 0); os.mkdir('d'); os.chmod('d', 0); open('b.txt', 'w')",
    );
    assert!(outcome.artifacts.iter().any(|artifact| artifact.name == "b.txt"), "{outcome:?}");
    // Replacing the folder itself changes nothing.
    let source = "import os\nos.chdir('..')\ntry:\n    os.rename('files', 'moved'); os.symlink('/etc', 'files')\nexcept OSError: pass";
    collected(source);
    // Files outside the job folder are no artifacts; the folder of inputs is not read.
    let outcome = collected(
        "import os\nopen('/job/tmp/x.txt', 'w').write('x'); os.mkdir('inputs'); open('inputs/y.txt', 'w').write('y')",
    );
    assert!(outcome.artifacts.is_empty(), "{outcome:?}");
    still_works(&sandbox);
}

#[test]
fn cells_do_not_see_each_other() {
    let Some(sandbox) = sandbox() else { return };
    check(
        &sandbox,
        "open('/job/tmp/left', 'w').write('x'); open('/dev/shm/left', 'w'); import builtins; builtins.left = 1",
        "ok",
    );
    let source = "import os, builtins\nprint(os.listdir('/tmp'), os.listdir('/dev/shm'), os.listdir('.'), hasattr(builtins, 'left'), os.getpid())";
    let outcome = check(&sandbox, source, "ok");
    assert_eq!(outcome.stdout.text, "[] [] [] False 2\n");
}

#[test]
fn a_paused_cell_stands_still() {
    let Some(sandbox) = sandbox() else { return };
    paused_cell_stands_still(&sandbox);
}

#[test]
fn a_cell_is_paused_without_cgroups() {
    let config = Config { pool: 1, has_cgroups: false, ..Config::new(support::profile()) };
    let Some(sandbox) = start(config) else { return };
    paused_cell_stands_still(&sandbox);
}

fn paused_cell_stands_still(sandbox: &Sandbox) {
    // Children count, too, also those that would wake their parent.
    let source = "import os, signal, time
if os.fork() == 0:
    while True:
        try: os.kill(os.getppid(), signal.SIGCONT)
        except PermissionError: pass
        except ProcessLookupError: os._exit(0)
end = time.process_time() + 0.3
while time.process_time() < end: pass
print('done')";
    let mut asked = cell(source);
    asked.limits.timeout_ms = 8_000;
    let control = Control::new().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| sandbox.run(&asked, &control).unwrap());
        control.pause();
        assert!(control.wait_paused(true, SLOW), "not paused in time");
        assert!(!control.wait_paused(false, Duration::from_millis(500)), "resumed by itself");
        assert!(!running.is_finished(), "ran while it was paused");
        control.resume();
        let outcome = running.join().unwrap();
        assert_eq!(verdict(&outcome), "ok", "{outcome:?}");
        assert_eq!(outcome.stdout.text, "done\n");
    });
    // A paused cell can be cancelled, and one that is paused for too long ends.
    for wait in [true, false] {
        let mut asked = cell("while True: pass");
        asked.limits.pause_ms_max = if wait { 200 } else { 60_000 };
        let control = Control::new().unwrap();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| sandbox.run(&asked, &control).unwrap());
            control.pause();
            assert!(control.wait_paused(true, SLOW));
            if !wait {
                control.cancel();
            }
            let expected = if wait { "RESOURCE_LIMIT PAUSE_LIMIT" } else { "cancelled" };
            assert_eq!(verdict(&running.join().unwrap()), expected);
        });
    }
    still_works(sandbox);
}

/// A cell that is paused by SIGSTOP must not be able to send SIGCONT, in whatever way, at any time.
#[test]
fn a_cell_cannot_send_the_signal_that_continues_it() {
    let Some(sandbox) = sandbox() else { return };
    let refused = [
        "os.kill(os.getpid(), signal.SIGCONT)".to_owned(),
        "os.kill(-1, signal.SIGCONT)".to_owned(),
        "os.kill(0, signal.SIGCONT)".to_owned(),
        "os.killpg(os.getpgrp(), signal.SIGCONT)".to_owned(),
        "signal.raise_signal(signal.SIGCONT)".to_owned(),
        "import threading; signal.pthread_kill(threading.get_ident(), signal.SIGCONT)".to_owned(),
        raw(libc::SYS_kill, "-1, 18"),
        raw(libc::SYS_kill, "-1, 18 | 1 << 32"),
        raw(libc::SYS_tkill, "os.getpid(), 18"),
        raw(libc::SYS_tgkill, "os.getpid(), os.getpid(), 18"),
        raw(libc::SYS_rt_sigqueueinfo, "os.getpid(), 18, information()"),
        raw(libc::SYS_rt_tgsigqueueinfo, "os.getpid(), os.getpid(), 18, information()"),
    ];
    let information = "
def information():
    global kept
    kept = ctypes.create_string_buffer(128)
    ctypes.cast(kept, ctypes.POINTER(ctypes.c_int))[2] = -1
    return ctypes.addressof(kept)
";
    for attempt in refused {
        let source = format!(
            "{information}try:\n    {attempt}\n    sys.exit('sent')\nexcept PermissionError: pass"
        );
        check(&sandbox, &with_calls(&source), "ok");
    }
    check_all(
        &sandbox,
        &[
            // A timer, and a descriptor that is ready, could send any signal.
            (
                format!("assert call({}, 0, 0, 0) == (-1, 38)", libc::SYS_timer_create).as_str(),
                "ok",
            ),
            (
                "import fcntl\nr, w = os.pipe()\ntry: fcntl.fcntl(r, 10, 18)\n\
                 except OSError as error: assert error.errno == 22\nelse: sys.exit('set')",
                "ok",
            ),
            // The end of a child could, too.
            (
                format!(
                    "result = call({}, 18, 0, 0, 0, 0)\nif result[0] == 0: os._exit(0)\n\
                     assert result == (-1, 1), result",
                    libc::SYS_clone
                )
                .as_str(),
                FORBIDDEN_CALL,
            ),
            (format!("call({}, 1, 18)", libc::SYS_prctl).as_str(), FORBIDDEN_CALL),
            // Other signals are its own business.
            (
                "signal.signal(signal.SIGUSR1, lambda *_: print('got it'))\n\
                 os.kill(os.getpid(), signal.SIGUSR1)",
                "ok",
            ),
            (
                "pid = os.fork()\nif pid == 0: time.sleep(60)\nos.kill(pid, signal.SIGSTOP)\n\
                 os.kill(pid, signal.SIGKILL)\nassert os.waitpid(pid, 0)[1] == 9",
                "ok",
            ),
        ],
    );
}

/// A statement that makes a system call and fails as Python does.
fn raw(number: libc::c_long, arguments: &str) -> String {
    format!(
        "result, error = call({number}, {arguments})\n    \
         if result != 0: raise OSError(error, 'refused')"
    )
}

/// When a group of processes loses its last parent, the kernel itself continues those that are stopped.
#[test]
fn a_cell_whose_groups_are_orphaned_stays_paused() {
    let config = Config { pool: 1, has_cgroups: false, ..Config::new(support::profile()) };
    let Some(sandbox) = start(config) else { return };
    let source = "import os, signal, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
for n in range(20):
    if os.fork() == 0:
        os.setpgid(0, 0)
        if os.fork() == 0:
            end = time.process_time() + 0.001
            while time.process_time() < end: pass
        os._exit(0)
    if n % 8 == 7:
        try:
            while True: os.wait()
        except ChildProcessError: pass
print('done')";
    for round in 0..5 {
        let control = Control::new().unwrap();
        let mut asked = cell(source);
        asked.limits.timeout_ms = 60_000;
        std::thread::scope(|scope| {
            let running = scope.spawn(|| sandbox.run(&asked, &control).unwrap());
            for _ in 0..=round {
                control.pause();
                assert!(control.wait_paused(true, SLOW) || running.is_finished());
                if !running.is_finished() {
                    assert!(!control.wait_paused(false, Duration::from_millis(60)));
                    assert!(!running.is_finished(), "ran while it was paused");
                }
                control.resume();
                // Otherwise the next pause could be taken for this one.
                assert!(control.wait_paused(false, SLOW) || running.is_finished());
            }
            let outcome = running.join().unwrap();
            assert_eq!(verdict(&outcome), "ok", "{outcome:?}");
        });
    }
    still_works(&sandbox);
}

/// If a paused cell goes on for a reason that nobody thought of, it ends.
#[test]
fn a_cell_that_goes_on_while_it_is_paused_is_ended() {
    let config = Config { pool: 1, has_cgroups: false, ..Config::new(support::profile()) };
    let Some(sandbox) = start(config) else { return };
    // The name by which this test finds its process, also if the suite runs twice at the same time.
    let name = format!("resist{}", std::process::id());
    let source = format!("libc.prctl(15, b'{name}', 0, 0, 0)\nwhile True: pass");
    let source = with_calls(&source);
    let mut asked = cell(&source);
    asked.limits.timeout_ms = 60_000;
    asked.limits.cpu_ms = 60_000;
    let control = Control::new().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| sandbox.run(&asked, &control).unwrap());
        let until = Instant::now() + SLOW;
        while processes_named(&name).is_empty() {
            assert!(Instant::now() < until, "the cell did not start");
            std::thread::yield_now();
        }
        control.pause();
        assert!(control.wait_paused(true, SLOW));
        while !running.is_finished() {
            assert!(Instant::now() < until, "the cell was not ended");
            for pid in processes_named(&name) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
            }
        }
        let outcome = running.join().unwrap();
        assert_eq!(verdict(&outcome), "SANDBOX_VIOLATION PAUSE_RESISTED", "{outcome:?}");
        assert_eq!(outcome.facts.stopped, Some(Stop::Resisted));
    });
    still_works(&sandbox);
}

/// The processes of the host with a name.
fn processes_named(name: &str) -> Vec<rustix::process::Pid> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_str().and_then(|text| text.parse().ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { continue };
        let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.trim() == name {
            found.push(pid);
        }
    }
    found
}

#[test]
fn pausing_at_any_moment_is_safe() {
    let Some(sandbox) = sandbox() else { return };
    pause_at_any_moment(&sandbox, 20);
}

/// A process that is being forked when SIGSTOP comes must not stay behind when the others go on.
#[test]
fn pausing_at_any_moment_is_safe_without_cgroups() {
    let config = Config { pool: 1, has_cgroups: false, ..Config::new(support::profile()) };
    let Some(sandbox) = start(config) else { return };
    pause_at_any_moment(&sandbox, 60);
}

fn pause_at_any_moment(sandbox: &Sandbox, rounds: u64) {
    for round in 0..rounds {
        let control = Control::new().unwrap();
        let asked = cell(
            "import os\nfor n in range(20):\n    if os.fork() == 0: os._exit(0)\n    os.wait()\nprint('done')",
        );
        std::thread::scope(|scope| {
            let running = scope.spawn(|| sandbox.run(&asked, &control).unwrap());
            for _ in 0..round % 20 {
                std::thread::yield_now();
            }
            control.pause();
            control.wait_paused(true, Duration::from_millis(20 + round));
            control.resume();
            let outcome = running.join().unwrap();
            assert_eq!(verdict(&outcome), "ok", "{outcome:?}");
        });
    }
    still_works(sandbox);
}

#[test]
fn many_cells_run_at_the_same_time() {
    let config = Config { pool: 4, ..Config::new(support::profile()) };
    let Some(sandbox) = start(config) else { return };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for n in 0..10 {
                    let outcome = check(sandbox, &format!("print({thread} * 100 + {n})"), "ok");
                    assert_eq!(outcome.stdout.text, format!("{}\n", thread * 100 + n));
                }
            });
        }
        scope.spawn(|| {
            let mut asked =
                cell("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass");
            asked.limits.timeout_ms = 500;
            assert!(verdict(&run(&sandbox, &asked)).starts_with("RESOURCE_LIMIT"));
        });
    });
    still_works(&sandbox);
}

/// Attacks of several groups at a time, next to cells that must not notice.
#[test]
fn attacks_at_the_same_time_are_contained_and_others_do_not_notice() {
    let config = Config { pool: 4, ..Config::new(support::profile()) };
    let Some(sandbox) = start(config) else { return };
    let running = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (source, expected) in [
            ("open('/etc/shadow').read()", FORBIDDEN_ACCESS),
            ("open('/usr/x', 'w')", FORBIDDEN_ACCESS),
            ("import socket; socket.socket()", FORBIDDEN_CALL),
            ("os.system('true')", FORBIDDEN_CALL),
            ("os.kill(os.getpid(), 11)", CRASHED),
            (
                "for n in range(1000):\n    if os.fork() == 0: time.sleep(60)",
                "RESOURCE_LIMIT PROCESS_LIMIT",
            ),
            ("x = bytearray(1 << 34)", "RESOURCE_LIMIT MEMORY_LIMIT"),
            ("os.kill(-1, 9)", EXCEPTION),
        ] {
            running.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let (sandbox, running) = (&sandbox, &running);
            scope.spawn(move || {
                let finished = Finished(running);
                check(sandbox, &with_calls(source), expected);
                drop(finished);
            });
        }
        let mut number = 0;
        while running.load(std::sync::atomic::Ordering::SeqCst) > 0 {
            number += 1;
            let outcome = run(&sandbox, &cell(&format!("print({number})")));
            assert_eq!(
                (verdict(&outcome), outcome.stdout.text),
                ("ok".into(), format!("{number}\n"))
            );
        }
        assert!(number > 0, "nothing ran next to them");
    });
    still_works(&sandbox);
}

/// Counts down when an attack has ended, also if it failed.
struct Finished<'a>(&'a std::sync::atomic::AtomicUsize);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Runs this suite again as a user without privileges, in a process of its own.
#[test]
fn as_a_plain_user() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    if !support::is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("attacks");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = std::process::Command::new(&copy)
        .args(["--skip", "as_a_plain_user", "--skip", "as_a_user", "--skip", "with_one_identity"])
        .arg("--test-threads=2")
        .env_clear()
        .env("TMPDIR", "/tmp")
        .current_dir(folder.path())
        .uid(64_123)
        .gid(64_123)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return skip(&format!("as a plain user: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    for line in errors.lines().filter(|line| line.starts_with("SKIPPED")) {
        skip(&format!("as a plain user: {}", line.trim_start_matches("SKIPPED: ")));
    }
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("test result: ok"), "{text}");
}

/// Set for the process that has a cgroup of version 2 of its own.
const DELEGATED: &str = "CATENA_TEST_DELEGATED";

/// Runs the tests of pauses again as a user without privileges to whom a real cgroup of version 2 was
/// delegated, as `Delegate=yes` does.
#[test]
fn as_a_user_with_a_delegated_cgroup() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    const USER: u32 = 64_124;
    if !support::is_root() {
        return;
    }
    let what = "as a user with a delegated cgroup";
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let Some(mount) = mounts.find(|mount| mount[2] == "cgroup2") else {
        return skip(&format!("{what}: there is no hierarchy of version 2"));
    };
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let cgroup = std::path::Path::new(mount[1]).join(own);
    let cgroup = cgroup.join(format!("catena-test-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir(&cgroup) {
        return skip(&format!("{what}: {error}"));
    }
    for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        chown(cgroup.join(file), Some(USER), Some(USER)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("attacks");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = "echo $$ > \"$1/cgroup.procs\" && exec setpriv --reuid \"$2\" --regid \"$2\" \
                  --clear-groups \"$3\" paus delegated --skip as_a_user --test-threads=1";
    let output = std::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&cgroup)
        .arg(USER.to_string())
        .arg(&copy)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("TMPDIR", "/tmp")
        .env(DELEGATED, "1")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let inner = std::fs::read_dir(&cgroup).unwrap().flatten();
    let left: Vec<_> = inner.filter(|entry| entry.path().is_dir()).map(|e| e.file_name()).collect();
    let processes = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
    for name in &left {
        let _ = std::fs::remove_dir(cgroup.join(name));
    }
    let removed = std::fs::remove_dir(&cgroup);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("a_delegated_cgroup_is_used ... ok"), "{text}\n{errors}");
    assert!(left.is_empty() && processes.is_empty(), "left: {left:?}, processes: {processes}");
    removed.unwrap();
    if errors.contains("SKIPPED") {
        return skip(&format!("{what}: {errors}"));
    }
    support::ran(&format!("{what}, without controllers"));
}

/// A part of the test above.
#[test]
fn a_delegated_cgroup_is_used() {
    if std::env::var_os(DELEGATED).is_none() {
        return;
    }
    let Some(sandbox) = sandbox() else { return };
    let (works, missing) = sandbox.cgroups();
    let freezer = "freezer, kill and CPU time (v2)";
    assert!(works.iter().any(|one| one == freezer), "{works:?}, not: {missing:?}");
    let outcome = check(&sandbox, "import time\nwhile time.process_time() < 0.2: pass", "ok");
    assert!(outcome.usage.cpu >= Duration::from_millis(150), "{:?}", outcome.usage);
    // Every process dies with the cell, however many there are.
    let source =
        "import os, time\nfor n in range(20):\n    if os.fork() == 0: time.sleep(600)\nprint('x')";
    let outcome = check(&sandbox, source, "ok");
    assert_eq!(outcome.stdout.text, "x\n");
    still_works(&sandbox);
}

/// The weaker tier, with cgroups: what a delegated user has.
#[test]
fn with_one_identity() {
    let config = Config { pool: 1, tier: Some(support::T2), ..Config::new(support::profile()) };
    let Some(sandbox) = start(config) else { return };
    assert_eq!(sandbox.tier(), support::T2);
    check(&sandbox, "open('/etc/shadow')", FORBIDDEN_ACCESS);
    check(&sandbox, "open('/usr/x', 'w')", FORBIDDEN_ACCESS);
    check(&sandbox, "import socket; socket.socket()", FORBIDDEN_CALL);
    check(&sandbox, "import os; os.setuid(0)", FORBIDDEN_CALL);
    let outcome = check(&sandbox, "import os; print(os.getuid())", "ok");
    assert_eq!(outcome.stdout.text, "1000\n");
    still_works(&sandbox);
}

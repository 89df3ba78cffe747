"""The Python side of the sandbox: the zygote, the init process of a worker, and the cell runner.

The supervisor embeds this file and starts it in a read-only root. Nothing here is trusted once a
cell has started: facts come from the kernel and from the worker's init process, which never reads
anything that a cell wrote.

    zygote   single-threaded; forks one worker for each request of the supervisor
    init     PID 1 of the worker's pid namespace; reaps, kills, reports
    cell     PID 2; mounts the job folder, drops every right, installs Landlock and seccomp, waits for
             one cell, runs it
"""
import _signal
import _socket
import array
import atexit
import builtins
import ctypes
import errno
import gc
import io
import json
import linecache
import os
import resource
import select
import struct
import sys
import threading
import time
import traceback
import types

# Descriptors of the zygote. It keeps 4 occupied, so that no descriptor which it receives has a number below 6.
CONTROL_FD = 3
PROC_FD = 5
# Descriptors of the cell's process; its init process has the second one alone.
CELL_FD = 3
SETUP_FD = 4
RULESET_FD = 5
CELL_NAME = "<cell>"
JOB = "/job"
WORK = "/job/files"

CLONE_FLAGS = (
    0x00008000  # CLONE_PARENT: the worker is a child of the supervisor
    | 0x10000000  # CLONE_NEWUSER
    | 0x20000000  # CLONE_NEWPID
    | 0x00020000  # CLONE_NEWNS
    | 0x08000000  # CLONE_NEWIPC
    | 0x04000000  # CLONE_NEWUTS
    | 0x00001000  # CLONE_PIDFD
)
CLONE_NEWNET = 0x40000000
CLONE_TID = 0x01000000 | 0x00200000  # CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
PR_SET_DUMPABLE, PR_SET_NAME, PR_CAPBSET_DROP = 4, 15, 24
PR_SET_NO_NEW_PRIVS, PR_GET_TID_ADDRESS = 38, 40
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

libc = ctypes.PyDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.PyOS_BeforeFork.restype = None
libc.PyOS_AfterFork_Child.restype = None
config = {}
numbers = {}


def arguments_of(name, *arguments):
    """Converts the arguments of a system call, so that `perform` can make it any number of times."""
    converted = [
        ctypes.c_char_p(a) if isinstance(a, bytes)
        else ctypes.c_void_p(a) if a is None
        else ctypes.c_long(a) if isinstance(a, int)
        else a
        for a in arguments
    ]
    return (ctypes.c_long(numbers[name]), *converted)


def perform(arguments):
    """Makes a system call; raises OSError on failure."""
    result = libc.syscall(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        names = [name for name in numbers if numbers[name] == arguments[0].value]
        raise OSError(number, os.strerror(number), names[0])
    return result


def call(name, *arguments):
    """Makes a system call by name; raises OSError on failure."""
    return perform(arguments_of(name, *arguments))


def receive_with_fds(channel, most_fds):
    size = array.array("i").itemsize
    data, ancillary, flags, _ = channel.recvmsg(1 << 20, _socket.CMSG_SPACE(most_fds * size))
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % size])
    if flags & (_socket.MSG_CTRUNC | _socket.MSG_TRUNC):
        raise OSError(errno.EMSGSIZE, "a message of the supervisor was cut short")
    return data, list(fds)


def unix_socket(kind, fd):
    """A socket object for a descriptor, which need not be open yet."""
    return _socket.socket(_socket.AF_UNIX, kind, 0, fd)


# The zygote.

class Prepared:
    """What workers need, converted once: a process that is forked pays for each page that it writes to, and
    whatever Python computes or converts writes to memory."""

    def __init__(self):
        tid_address = ctypes.c_void_p()
        libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(tid_address), 0, 0, 0)
        tid_address = tid_address.value or 0
        flags = CLONE_FLAGS | (CLONE_TID if tid_address else 0)
        self.pidfd = ctypes.c_int(-1)
        # Without and with a network namespace of its own.
        self.clone = []
        for flags in (flags, flags | CLONE_NEWNET):
            arguments = struct.pack(
                "11Q", flags, ctypes.addressof(self.pidfd), tid_address, 0, 0, 0, 0, 0, 0, 0, 0
            )
            self.clone.append(arguments_of("clone3", arguments, len(arguments)))
        self.id_maps = [("%d/" + name, content.encode()) for name, content in config["id_maps"]]
        # Init.
        self.pid = ctypes.c_long()
        self.pidfd_open = arguments_of("pidfd_open", self.pid, 0)
        self.poller = select.poll()
        self.poller.register(SETUP_FD, select.POLLIN)
        self.close_cells = arguments_of("close_range", 0, SETUP_FD - 1, 0)
        self.close_rest = arguments_of("close_range", SETUP_FD + 1, 0xFFFFFFFF, 0)
        # The cell's own process.
        options = "mode=0755,size=%d,nr_inodes=%d" % (config["job_bytes"], config["job_inodes"])
        flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
        self.mount = arguments_of("mount", b"job", JOB.encode(), b"tmpfs", flags, options.encode())
        self.folders = [JOB + "/" + name for name in ("files", "tmp", "shm")]
        self.control = unix_socket(_socket.SOCK_SEQPACKET, SETUP_FD)
        self.channel = unix_socket(_socket.SOCK_STREAM, CELL_FD)
        self.close_unused = arguments_of("close_range", RULESET_FD + 1, 0xFFFFFFFF, 0)
        self.capset = arguments_of("capset", struct.pack("Ii", 0x20080522, 0), b"\0" * 24)
        rlimits = config["rlimits"].items()
        self.rlimits = [(getattr(resource, name), tuple(pair)) for name, pair in rlimits]
        self.prepare_ruleset()
        program = config["seccomp"]
        self.program = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("H6xQ", len(program) // 8, ctypes.addressof(self.program))
        self.filters = [arguments_of("seccomp", 1, flags, header) for flags in (8 | 32, 8)]

    def prepare_ruleset(self):
        """Opens what cells may read. A rule is about the file itself, however it was reached."""
        abi = config["landlock_abi"]
        if abi < 1:
            self.ruleset = None
            return
        handled = (1 << 13) - 1
        if abi >= 2:
            handled |= 8192
        if abi >= 3:
            handled |= 16384
        if abi >= 5:
            handled |= 32768
        attributes = [handled]
        if abi >= 4:
            attributes.append(3)
        if abi >= 6:
            attributes.append(3)
        packed = struct.pack("%dQ" % len(attributes), *attributes)
        self.ruleset = arguments_of("landlock_create_ruleset", packed, len(packed), 0)
        self.rules = []
        for path, rights in config["landlock"]:
            if rights == "write":
                continue
            allowed = LANDLOCK_READ
            if rights == "device":
                allowed = 2 | 4
            elif not os.path.isdir(path):
                allowed &= 2 | 4 | 16384
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            rule = struct.pack("=Qi", allowed & handled, fd)
            self.rules.append(arguments_of("landlock_add_rule", RULESET_FD, 1, rule, 0))
        allowed = (LANDLOCK_READ | LANDLOCK_WRITE) & handled
        rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, -1), 12)
        self.job_rule_fd = ctypes.c_int.from_buffer(rule, 8)
        self.job_rule = arguments_of("landlock_add_rule", RULESET_FD, 1, rule, 0)
        self.restrict = arguments_of("landlock_restrict_self", RULESET_FD, 0)


prepared = None


class Networks:
    """Network namespaces that workers use one after the other.

    The kernel takes longer to make and remove a network namespace than all others together. The
    supervisor names one in its request, and names it again when no process of that worker is left. Cells
    cannot create sockets, and only the zygote has rights over the namespace, so it is as it was.
    """

    def __init__(self):
        self.own = self.open()
        self.kept = {}

    def open(self):
        return os.open("self/ns/net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=PROC_FD)

    def enter(self, name):
        fd = self.kept.get(name)
        if fd is not None:
            self.switch(fd)
            return
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot make a network namespace", "unshare")
        try:
            self.kept[name] = self.open()
        except OSError:
            self.leave()
            raise

    def leave(self):
        self.switch(self.own)

    def switch(self, fd):
        if libc.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter a network namespace", "setns")


def zygote():
    global config, numbers, prepared
    control = unix_socket(_socket.SOCK_SEQPACKET, CONTROL_FD)
    os.dup2(CONTROL_FD, SETUP_FD, inheritable=False)
    data, _ = receive_with_fds(control, 1)
    config = json.loads(data)
    numbers = config["syscalls"]
    config["seccomp"] = bytes.fromhex(config["seccomp"])
    sys.path[:] = [path for path in sys.path if path] + config["paths"]
    os.mkdir(JOB + "/tmp", 0o700)
    for module in config["preload"]:
        __import__(module)
    with os.fdopen(os.open("self/statm", os.O_RDONLY, dir_fd=PROC_FD)) as statm:
        config["base_bytes"] = int(statm.read().split()[0]) * resource.getpagesize()
    folder = os.open("self/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=PROC_FD)
    threads = len(os.listdir(folder))
    os.close(folder)
    if threads != 1:
        raise RuntimeError("preloading started %d threads; a zygote must have one" % threads)
    # The kernel drops every signal that a cell sends to the init process of its namespace, unless that
    # process handles it. So these are ignored from here on, and the cell's process handles them again.
    default = (_signal.SIG_DFL, _signal.SIG_IGN, None)
    config["handled"] = [
        (number, _signal.getsignal(number))
        for number in _signal.valid_signals() if _signal.getsignal(number) not in default
    ]
    for number, _ in config["handled"]:
        _signal.signal(number, _signal.SIG_IGN)
    prepared = Prepared()
    networks = Networks()
    # Workers inherit these.
    _socket.sethostname("cell")
    os.umask(0o077)
    sys.stdout.reconfigure(line_buffering=True)
    warm()
    warm_errors()
    gc.collect()
    gc.freeze()
    # Nothing here is in a cycle, and a collection would write to every page that it looks at.
    gc.disable()
    version = sys.version.split()[0]
    control.send(json.dumps({"ready": True, "python": version}).encode())
    while True:
        data, fds = receive_with_fds(control, 8)
        if not data:
            os._exit(0)
        try:
            pid = spawn_worker(networks, data[len(b"spawn "):], fds)
            rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, bytes(prepared.pidfd))]
            control.sendmsg([b'{"pid":%d}' % pid], rights)
            os.close(prepared.pidfd.value)
        except OSError as error:
            text = "%s: %s" % (error.filename or "spawn", error.strerror)
            control.send(json.dumps({"error": text}).encode())
        finally:
            for fd in fds:
                os.close(fd)


def spawn_worker(networks, network, fds):
    """Clones the init process of a worker; returns its pid and leaves its pidfd in `prepared`.

    `network` is the name of a network namespace that no other worker uses now. Without a name the worker
    gets one that is not used again.
    """
    without, with_network = prepared.clone
    go_read, go_write = os.pipe()
    try:
        if network:
            networks.enter(network)
        pid = perform(without if network else with_network)
    except OSError:
        os.close(go_read)
        os.close(go_write)
        if network:
            networks.leave()
        raise
    if pid == 0:
        status = 70
        try:
            os.close(go_write)
            status = init(*fds, go_read)
        except BaseException:
            report_setup_failure(SETUP_FD)
        finally:
            os._exit(status)
    os.close(go_read)
    try:
        if network:
            networks.leave()
        for name, content in prepared.id_maps:
            fd = os.open(name % pid, os.O_WRONLY, dir_fd=PROC_FD)
            try:
                os.write(fd, content)
            finally:
                os.close(fd)
        os.write(go_write, b"g")
    except OSError:
        os.kill(pid, _signal.SIGKILL)
        os.close(prepared.pidfd.value)
        raise
    finally:
        os.close(go_write)
    return pid


def report_setup_failure(control_fd):
    try:
        text = traceback.format_exc()[-2000:]
        os.write(control_fd, b"E" + text.encode("utf-8", "replace"))
    except BaseException:
        pass


# The init process of a worker.

def init(control_fd, cell_fd, stdout_fd, stderr_fd, go_read):
    # None of the numbers on the left is one of those on the right: see `CONTROL_FD`.
    os.dup2(control_fd, SETUP_FD, False)
    os.dup2(cell_fd, CELL_FD, False)
    os.dup2(stdout_fd, 1, False)
    os.dup2(stderr_fd, 2, False)
    if os.read(go_read, 1) != b"g":
        return 71
    os.close(PROC_FD)
    os.setsid()
    libc.prctl(PR_SET_NAME, b"cell-init", 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # `os.fork` would also run what Python does after a fork in this process, which never needs it.
    pid = libc.fork()
    if pid == 0:
        status = 70
        try:
            libc.PyOS_BeforeFork()
            libc.PyOS_AfterFork_Child()
            status = cell()
        except BaseException:
            report_setup_failure(SETUP_FD)
        finally:
            os._exit(status)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "fork")
    perform(prepared.close_cells)
    perform(prepared.close_rest)
    return supervise(pid)


def supervise(pid):
    """Waits for the cell's first process and for the supervisor, whichever comes first."""
    prepared.pid.value = pid
    pidfd = perform(prepared.pidfd_open)
    poller = prepared.poller
    poller.register(pidfd, select.POLLIN)
    continue_again = []
    while True:
        ready = dict(poller.poll(continue_again[0] if continue_again else None))
        if SETUP_FD in ready:
            data, fds = receive_with_fds(prepared.control, 1)
            if not data:
                return 0  # The supervisor is gone: the kernel kills everything in this namespace.
            obey(prepared.control, data, fds)
            # A process that was being forked when SIGSTOP came can stop after SIGCONT went by,
            # because the kernel keeps the one for it and drops the other: send it again.
            continue_again = [1, 5, 25, 125, 625] if data[:1] == b"C" else []
        elif continue_again:
            continue_again.pop(0)
            obey(prepared.control, b"C", [])
        if pidfd in ready:
            break
    _, status = os.waitpid(pid, 0)
    quiesce()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_us = int((usage.ru_utime + usage.ru_stime) * 1e6)
    facts = (status, cpu_us, usage.ru_maxrss)
    os.write(SETUP_FD, b'Q{"status":%d,"cpu_us":%d,"max_rss_kb":%d}' % facts)
    return 0


def quiesce():
    """Kills and reaps every other process of the namespace."""
    if os.getpid() != 1:
        os._exit(72)
    while True:
        # Without exceptions: there is usually nothing left, and raising one writes to many pages.
        libc.kill(-1, _signal.SIGKILL)
        if libc.waitpid(-1, None, 0) == -1 and ctypes.get_errno() == errno.ECHILD:
            return


def obey(control, data, fds):
    kind, content = data[:1], data[1:]
    if os.getpid() != 1:
        os._exit(72)
    try:
        if kind == b"K":
            os.kill(-1, _signal.SIGKILL)
        elif kind == b"P":
            os.kill(-1, _signal.SIGSTOP)
        elif kind == b"C":
            os.kill(-1, _signal.SIGCONT)
        elif kind == b"T":
            options = b"size=%d" % int(content)
            flags = MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC
            call("mount", b"job", JOB.encode(), b"tmpfs", flags, options)
            control.send(b"A")
        elif kind == b"M":
            mount_inputs(int(content))
            control.send(b"A")
        elif kind == b"I":
            store_input(content.decode(), fds[0])
            control.send(b"A")
        elif kind == b"S":
            inputs = WORK.encode() + b"/inputs"
            flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
            call("mount", b"inputs", inputs, None, flags, None)
            control.send(b"A")
    except ProcessLookupError:
        pass
    except OSError as error:
        control.send(b"E" + str(error).encode("utf-8", "replace"))
    finally:
        for fd in fds:
            os.close(fd)


def mount_inputs(size):
    inputs = WORK + "/inputs"
    os.mkdir(inputs, 0o755)
    options = b"mode=0755,nr_inodes=4096,size=%d" % (size + (16 << 20))
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    call("mount", b"inputs", inputs.encode(), b"tmpfs", flags, options)


def store_input(name, source):
    path = WORK + "/inputs/" + name
    os.umask(0o022)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        while True:
            chunk = os.read(source, 1 << 20)
            if not chunk:
                break
            while chunk:
                chunk = chunk[os.write(target, chunk):]
    finally:
        os.close(target)
        os.umask(0o077)


# The cell's own process.

def cell():
    os.setsid()
    mount_job()
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0, False)
    make_ruleset()
    perform(prepared.close_unused)
    try:
        confine()
    except BaseException:
        report_setup_failure(SETUP_FD)
        raise
    size = struct.unpack("!I", read_exactly(CELL_FD, 4))[0]
    job = json.loads(read_exactly(CELL_FD, size))
    return run(job)


def mount_job():
    """Mounts the job folder and tells the supervisor.

    The cell's process does so while it has its rights, because memory that the init process writes to
    would be copied once more for the cell.
    """
    perform(prepared.mount)
    cell_id = config["cell_id"]
    for path in prepared.folders:
        os.mkdir(path, 0o700)
        if config["two_ids"]:
            os.chown(path, cell_id, cell_id)
    folder = os.open(WORK, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    send_fd(prepared.control, b"J", folder)


def send_fd(channel, data, fd):
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fd.to_bytes(4, sys.byteorder))]
    channel.sendmsg([data], rights)


def confine():
    """Gives up every right, in the only order that works, and tells the supervisor."""
    os.chdir(WORK)
    drop_rights()
    for resource_number, pair in prepared.rlimits:
        resource.setrlimit(resource_number, pair)
    if prepared.ruleset is not None:
        perform(prepared.restrict)
        os.close(RULESET_FD)
    for number, handler in config["handled"]:
        _signal.signal(number, handler)
    gc.enable()
    warm()
    listener = install_filter()
    os.close(SETUP_FD)
    send_fd(prepared.channel, b"R", listener)
    os.close(listener)
    # The cell may close these descriptors and open others in their place.
    prepared.control.detach()
    prepared.channel.detach()


def read_exactly(fd, size):
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def drop_rights():
    prctl = libc.prctl
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        if prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    if config["two_ids"]:
        cell_id = config["cell_id"]
        os.setgroups([])
        os.setresgid(cell_id, cell_id, cell_id)
        os.setresuid(cell_id, cell_id, cell_id)
    perform(prepared.capset)
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("PR_SET_NO_NEW_PRIVS is refused")
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    prctl(PR_SET_NAME, b"cell", 0, 0, 0)


LANDLOCK_READ = 4 | 8  # READ_FILE, READ_DIR
LANDLOCK_WRITE = (
    2 | 16 | 32  # WRITE_FILE, REMOVE_DIR, REMOVE_FILE
    | 128 | 256 | 1024 | 4096  # MAKE_DIR, MAKE_REG, MAKE_FIFO, MAKE_SYM
    | 8192 | 16384  # REFER, TRUNCATE
)


def make_ruleset():
    """Makes the Landlock rules for file access, TCP, abstract sockets and signals, on `RULESET_FD`."""
    if prepared.ruleset is None:
        return
    ruleset = perform(prepared.ruleset)
    if ruleset != RULESET_FD:
        os.dup2(ruleset, RULESET_FD, False)
    for rule in prepared.rules:
        perform(rule)
    prepared.job_rule_fd.value = os.open(JOB, os.O_PATH | os.O_CLOEXEC)
    perform(prepared.job_rule)


def install_filter():
    with_killable_wait, without = prepared.filters
    try:
        return perform(with_killable_wait)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return perform(without)


# Running.

NO_RESULT = object()
DEPTH_MAX = 100
FIGURES_MAX = 200


class ReportedError(Exception):
    """A failure that the runner itself found; carries a code for the report."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def run(job):
    limits = job["limits"]
    memory = config["base_bytes"] + limits["memory_bytes"] + (128 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    seconds = limits["cpu_ms"] // 1000 + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"], limits["processes"]))
    reseed()
    own_pid = os.getpid()
    progress_state["pid"] = own_pid
    result = None
    error = None
    status = 0
    try:
        result = execute(job["source"], job["entrypoint"], job["parameters"])
        result = None if result is NO_RESULT else encode_result(result, limits["result_bytes"])
        if job["figures"]:
            save_figures()
    except SystemExit as exit_request:
        result, status = None, exit_status(exit_request)
        if status:
            error = {"kind": "exit", "type": "SystemExit", "message": str(exit_request.code)}
    except BaseException as exception:
        result, status = None, 1
        error = describe(exception, limits["traceback_bytes"])
    try:
        threading._shutdown()
    except BaseException:
        pass
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass
    # A process that the cell forked may come along here, too.
    if os.getpid() == own_pid:
        send_report({"error": error}, result)
    return status


def execute(source, entrypoint, parameters):
    lines = source.splitlines(True)
    linecache.cache[CELL_NAME] = (len(source), None, lines, CELL_NAME)
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    main.__file__ = CELL_NAME
    main.progress = progress
    sys.modules["__main__"] = main
    sys.argv = [CELL_NAME]
    code = compile(source, CELL_NAME, "exec", dont_inherit=True)
    exec(code, main.__dict__)
    if entrypoint is None:
        return NO_RESULT
    function = main.__dict__.get(entrypoint["name"])
    if function is None and not entrypoint["required"]:
        return NO_RESULT
    if not callable(function):
        raise ReportedError("ENTRYPOINT_NOT_FOUND", "no function %r" % entrypoint["name"])
    return function(**parameters)


PROGRESS_INTERVAL = 0.05
progress_state = {"pid": 0, "next": 0.0, "lock": threading.Lock()}


def progress(done, total=None):
    """Says how far the cell is: `done` of `total`, if that is known. Whole numbers, not negative."""
    done, total = int(done), 0 if total is None else int(total)
    if not 0 <= done < 1 << 63 or not 0 <= total < 1 << 63:
        raise ValueError("progress() takes whole numbers that are not negative")
    if os.getpid() != progress_state["pid"]:
        return
    with progress_state["lock"]:
        now = time.monotonic()
        if now < progress_state["next"] and not (total and done >= total):
            return
        progress_state["next"] = now + PROGRESS_INTERVAL
        try:
            os.write(CELL_FD, b"CP1\n" + struct.pack("!QQ", done, total))
        except OSError:
            pass


def save_figures():
    """Saves the figures that are open, unless the cell has files of these names."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums()[:FIGURES_MAX]:
        path = "%s/figure-%d.png" % (WORK, number)
        if not os.path.lexists(path):
            pyplot.figure(number).savefig(path, format="png")


def encode_result(result, most):
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ReportedError("RESULT_NOT_JSON", "the result is not JSON: %s" % error) from None
    if text.count(b"[") + text.count(b"{") > DEPTH_MAX and is_deep(result, DEPTH_MAX):
        raise ReportedError("RESULT_NOT_JSON", "the result is nested more than %d deep" % DEPTH_MAX)
    if len(text) > most:
        message = "the result has %d bytes of JSON; %d are allowed" % (len(text), most)
        raise ReportedError("RESULT_TOO_LARGE", message)
    return text


def is_deep(value, left):
    """Whether a value is nested more than this many levels deep."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    return left == 0 or any(is_deep(inner, left - 1) for inner in value)


def exit_status(request):
    if request.code is None:
        return 0
    if isinstance(request.code, int):
        return request.code & 0xFF
    print(request.code, file=sys.stderr)
    return 1


def describe(exception, most):
    """Describes an uncaught exception for the report and prints it as Python does."""
    user = exception.__traceback__
    while user is not None and user.tb_frame.f_code.co_filename != CELL_NAME:
        user = user.tb_next
    frames = user if user is not None else None
    try:
        text = "".join(traceback.format_exception(type(exception), exception, frames))
    except BaseException:
        text = "%s: %s\n" % (type(exception).__name__, message_of(exception))
    try:
        if not isinstance(exception, ReportedError):
            sys.stderr.write(text)
    except BaseException:
        pass
    line, column = position(exception, user)
    number = getattr(exception, "errno", None) if isinstance(exception, OSError) else None
    path = getattr(exception, "filename", None) if isinstance(exception, OSError) else None
    return {
        "kind": "runner" if isinstance(exception, ReportedError) else "exception",
        "type": type(exception).__name__,
        "code": exception.code if isinstance(exception, ReportedError) else None,
        "memory": isinstance(exception, MemoryError),
        "module": isinstance(exception, ModuleNotFoundError),
        "message": message_of(exception)[:4000],
        "traceback": text[-most:],
        "line": line,
        "column": column,
        "errno": number if isinstance(number, int) else None,
        "path": os.fsdecode(path)[:4000] if isinstance(path, (str, bytes)) else None,
    }


def message_of(exception):
    try:
        return str(exception)
    except BaseException:
        return "(the message could not be formatted)"


def position(exception, user):
    """The innermost line and column in the cell's source, both from 1."""
    if isinstance(exception, SyntaxError) and exception.filename == CELL_NAME:
        return exception.lineno, exception.offset
    innermost = None
    while user is not None:
        if user.tb_frame.f_code.co_filename == CELL_NAME:
            innermost = user
        user = user.tb_next
    if innermost is None:
        return None, None
    line, column = innermost.tb_lineno, None
    try:
        positions = list(innermost.tb_frame.f_code.co_positions())
        start, _, offset, _ = positions[innermost.tb_lasti // 2]
        if offset is not None and start == line:
            text = linecache.getline(CELL_NAME, line).encode()
            column = len(text[:offset].decode("utf-8", "replace")) + 1
    except Exception:
        pass
    return line, column


def send_report(header, result):
    try:
        text = json.dumps(header).encode("utf-8", "replace")
        result = b"" if result is None else result
        data = b"CR1\n" + struct.pack("!II", len(text), len(result)) + text + result
        while data:
            data = data[os.write(CELL_FD, data):]
    except BaseException:
        pass


def reseed():
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(None)


def warm():
    """Runs the paths of an ordinary cell once, so that its first page faults happen beforehand."""
    kept_stdout, sys.stdout = sys.stdout, io.StringIO()
    kept_main = sys.modules.get("__main__")
    try:
        execute("import math\ndef main(x):\n    print(x)\n    return {'x': [x, 1.5]}\n",
                {"name": "main", "required": True}, {"x": 1})
        json.dumps({"a": [1, None, "b"]}, allow_nan=False, ensure_ascii=False)
        json.loads('{"a": [1, null, "b", 1.5]}')
    finally:
        sys.stdout = kept_stdout
        sys.modules["__main__"] = kept_main


def warm_errors():
    """Formats a traceback once: newer versions import modules for it, which a cell may prevent."""
    kept_stderr, sys.stderr = sys.stderr, io.StringIO()
    kept_main = sys.modules.get("__main__")
    try:
        execute("def f():\n    return 1 / 0\nf()\n", None, {})
    except ZeroDivisionError as error:
        describe(error, 1000)
    finally:
        sys.stderr = kept_stderr
        sys.modules["__main__"] = kept_main


zygote()

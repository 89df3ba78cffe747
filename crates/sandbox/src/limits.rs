//! What a cell may use, and the bounds that no cell can change.

use std::time::Duration;

/// Limits of one cell. The defaults are those of the job contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Wall time in milliseconds, from the moment the cell is handed to its worker; pauses excluded.
    pub timeout_ms: u64,
    /// CPU time of all processes of the cell together, in milliseconds.
    pub cpu_ms: u64,
    /// Memory of all processes and files of the cell together, in MiB.
    pub memory_mb: u64,
    /// What is kept of stdout, and of stderr, in KiB each.
    pub max_output_kb: u64,
    /// The most artifacts.
    pub max_artifacts: usize,
    /// The most processes and threads at one time.
    pub max_processes: u64,
    /// The size of the result as JSON, in bytes.
    pub result_bytes_max: u64,
    /// The size of one artifact, in bytes.
    pub artifact_bytes_max: u64,
    /// The size of all artifacts together, in bytes.
    pub artifacts_bytes_max: u64,
    /// How long one pause may last, in milliseconds.
    pub pause_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            timeout_ms: 30_000,
            cpu_ms: 30_000,
            memory_mb: 512,
            max_output_kb: 256,
            max_artifacts: 50,
            max_processes: 64,
            result_bytes_max: 1 << 20,
            artifact_bytes_max: 64 << 20,
            artifacts_bytes_max: 256 << 20,
            pause_ms_max: 3_600_000,
        }
    }
}

/// A cell that writes more than this many times `max_output_kb` is killed.
pub(crate) const OUTPUT_KILL_FACTOR: u64 = 16;

/// The most refused system calls that are recorded with their arguments.
pub(crate) const VIOLATIONS_RECORDED_MAX: usize = 32;

/// A cell is killed when it has tried this many: each one costs the supervisor time.
pub(crate) const VIOLATIONS_KILL: u64 = 1000;

/// The source text of a cell, in bytes.
pub const SOURCE_BYTES_MAX: usize = 4 << 20;

/// The parameters of a cell as JSON, in bytes.
pub const PARAMETERS_BYTES_MAX: usize = 4 << 20;

/// The most input files.
pub const INPUTS_MAX: usize = 1000;

/// The size of all input files together, in bytes.
pub const INPUTS_BYTES_MAX: u64 = 1 << 30;

/// A traceback, in bytes.
pub(crate) const TRACEBACK_BYTES_MAX: usize = 16 << 10;

/// A message of an error, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The part of a report that is not the result, in bytes.
pub(crate) const REPORT_HEADER_BYTES_MAX: usize = 64 << 10;

/// The tmpfs of the job folder: its files count as memory of the cell as well.
pub(crate) const JOB_FOLDER_BYTES: u64 = 512 << 20;

/// Files and folders in the job folder.
pub(crate) const JOB_FOLDER_INODES: u64 = 16_384;

/// One file, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 256 << 20;

/// Open descriptors of one process.
pub(crate) const FDS_MAX: u64 = 256;

/// Entries of the job folder that the collector looks at.
pub(crate) const ENTRIES_VISITED_MAX: usize = 20_000;

/// How deep below the job folder an artifact may lie.
pub(crate) const ARTIFACT_DEPTH_MAX: usize = 8;

/// Refused files that are reported by name; the rest is counted.
pub(crate) const REFUSED_REPORTED_MAX: usize = 100;

/// How often CPU time and memory are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(25);

/// How long a zygote may take to import what it preloads.
pub(crate) const ZYGOTE_START_MAX: Duration = Duration::from_secs(60);

/// How long a worker may take to confine itself.
pub(crate) const WORKER_START_MAX: Duration = Duration::from_secs(20);

/// How long a pause without cgroups waits after each SIGSTOP until every process has stopped. A process
/// that is not scheduled for that long is stopped by a later tick.
pub(crate) const STOP_AGAIN: [Duration; 5] = [
    Duration::from_millis(2),
    Duration::from_millis(8),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(120),
];

/// CPU time that a cell without a freezer may use while it is paused, before it is ended as one that resists: a
/// process that was forked when the others were stopped may run until the next tick.
pub(crate) const PAUSED_CPU_MAX: Duration = Duration::from_millis(250);

/// How long the init process may take to kill a cell before it is killed itself.
pub(crate) const KILL_MAX: Duration = Duration::from_secs(5);

/// Workers of one zygote. They share its address layout, so it is replaced from time to time.
pub(crate) const ZYGOTE_WORKERS_MAX: u64 = 10_000;

/// Workers of one sandbox that confine themselves at the same time: entering cgroups is mostly waiting, and
/// more would compete with cells for the processors.
pub(crate) const PREPARING_MAX: usize = 3;

/// Processes that are counted and signalled without a cgroup. A cell may not have more.
pub(crate) const PROCESSES_MAX: usize = 4096;

/// Network namespaces that a zygote keeps for later workers. More workers than that at one time get namespaces of
/// their own, which are removed with them.
pub(crate) const NETWORKS_MAX: usize = 64;

/// Descriptors in one message between supervisor and worker.
pub(crate) const MESSAGE_FDS_MAX: usize = 8;

/// Descriptors that a launched process inherits.
pub(crate) const LAUNCH_FDS_MAX: usize = 16;

/// How long the init process may take to write one input file.
pub(crate) const INPUT_TIME_MAX: Duration = Duration::from_secs(60);

/// Bytes of a text artifact that are checked. Of longer text only the beginning is.
pub(crate) const TEXT_CHECKED_MAX: u64 = 64 << 20;

/// Bytes of a block of memory that is taken from the kernel and returned to it. Smaller blocks are shared between
/// requests.
pub(crate) const MAPPED_BLOCK_BYTES_MIN: i32 = 256 * 1024;

/// Free bytes that each arena of the allocator keeps at its end until it is asked for them. Work that frees much at
/// once and soon needs it again, such as a flush of the ledger, would otherwise fetch it from the kernel each time.
pub(crate) const ARENA_KEPT_BYTES_MAX: i32 = 48 << 20;

/// Arenas of the allocator: each reserves 64 MiB of addresses and keeps what was freed in it. Eight for each core, as
/// the allocator would have, keep much that no other thread can use, and more threads than these are seldom busy.
pub(crate) const ARENAS_MAX: i32 = 4;

/// Bytes by which an arena of the allocator grows.
pub(crate) const ARENA_STEP_BYTES: i32 = 1 << 20;

/// The stack of a native program. The kernel keeps at least 128 MiB of addresses free for it.
pub(crate) const NATIVE_STACK_BYTES: u64 = 64 << 20;

/// The largest freed block that a thread keeps. Buffers of connections have 8 KiB, futures of jobs less; larger blocks are
/// rare.
pub const CACHED_BLOCK_BYTES_MAX: usize = 16 * 1024;

/// Freed blocks of one class of sizes that a thread keeps: as many as the requests that it may have at a time
/// free together.
pub const CLASS_BLOCKS_MAX: u32 = 256;

/// Bytes of freed blocks of one class of sizes that a thread keeps. There are 80 classes, of which few are in use.
pub const CLASS_BYTES_MAX: usize = 256 * 1024;

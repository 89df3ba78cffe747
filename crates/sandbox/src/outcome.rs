//! What is known after a cell has ended: facts of the kernel, and what the cell said about itself.

use std::time::Duration;

use crate::artifacts::{Artifact, RefusedFile};
use crate::tier::Tier;

/// Everything that is known about a cell that has ended.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended, by the first rule that applies.
    pub verdict: Verdict,
    /// What the kernel and the supervisor saw.
    pub facts: Facts,
    /// What the cell said about itself. It may be forged: a cell can mislabel only itself.
    pub report: ReportState,
    /// The result as JSON text, if the cell ended well and returned one.
    pub result: Option<String>,
    /// What it wrote to stdout.
    pub stdout: Output,
    /// What it wrote to stderr.
    pub stderr: Output,
    /// What it used.
    pub usage: Usage,
    /// Files that it left in its folder, in order of their names.
    pub artifacts: Vec<Artifact>,
    /// Files that were not accepted, each with the reason.
    pub refused: Vec<RefusedFile>,
    /// Refused files beyond those that are listed.
    pub refused_more: u64,
    /// The isolation under which it ran.
    pub tier: Tier,
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It ran to its end.
    Succeeded,
    /// The caller cancelled it.
    Cancelled,
    /// It failed.
    Failed(Failure),
}

/// Why a cell failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The category of the job contract.
    pub category: Category,
    /// A code within the category, such as `MEMORY_LIMIT`.
    pub code: &'static str,
    /// One line for people.
    pub message: String,
    /// The innermost line in the cell's source, from 1.
    pub line: Option<u32>,
    /// The column in that line, from 1, if Python reports it.
    pub column: Option<u32>,
    /// The part of the input, if a program of this binary names it.
    pub block: Option<String>,
    /// The traceback, at most 16 KiB.
    pub traceback: Option<String>,
}

/// Categories of failure that the sandbox can find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// The cell's own code failed.
    UserCodeError,
    /// A limit was reached.
    ResourceLimit,
    /// The cell tried something that is forbidden.
    SandboxViolation,
    /// The sandbox itself failed.
    InternalError,
}

impl Category {
    /// The name in the job contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Category::UserCodeError => "USER_CODE_ERROR",
            Category::ResourceLimit => "RESOURCE_LIMIT",
            Category::SandboxViolation => "SANDBOX_VIOLATION",
            Category::InternalError => "INTERNAL_ERROR",
        }
    }
}

/// What the kernel and the supervisor saw. Nothing in here was said by the cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// How the cell's first process ended; `None` if its init process could not say.
    pub exit: Option<Exit>,
    /// What went wrong in the init process, if it said so.
    pub init_failure: Option<String>,
    /// Why the supervisor killed the cell, if it did.
    pub stopped: Option<Stop>,
    /// Processes that the kernel killed for lack of memory.
    pub oom_kills: u64,
    /// How often the kernel refused a new process or thread; `None` if that is not counted.
    pub process_refusals: Option<u64>,
    /// System calls that were refused, the first ones with their arguments.
    pub violations: Vec<Violation>,
    /// How many system calls were refused in all.
    pub violations_total: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Why the supervisor killed a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It wrote too much.
    Output,
    /// Its processes used too much memory together.
    Memory,
    /// Its processes used too much CPU time together.
    Cpu,
    /// Its time was over.
    Time,
    /// It was paused for too long.
    Pause,
    /// It went on while it was paused.
    Resisted,
    /// It tried too many forbidden system calls.
    Violations,
    /// The caller cancelled it.
    Cancelled,
}

/// A system call that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Its name, or its number if it is an uncommon one.
    pub name: String,
    /// Its number on this architecture.
    pub number: i32,
    /// Its arguments as the kernel saw them. Pointers mean nothing outside of the cell.
    pub arguments: [u64; 6],
}

/// Whether the cell reported anything.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one for each cell, and most are reports")]
pub enum ReportState {
    /// The first message on the channel was a report.
    Received(Report),
    /// The cell ended without a report.
    Missing,
    /// The first message was not a report, or too large.
    Malformed,
}

/// What a cell said about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The exception that ended it.
    pub error: Option<ReportedError>,
    /// The result as JSON text.
    pub result: Option<String>,
}

/// An exception as the cell described it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedError {
    /// `exception`, `exit`, `runner` for what the runner itself refused, or `program` for an error of a
    /// program of this binary.
    pub kind: String,
    /// The class of the exception.
    pub type_name: String,
    /// The runner's own code.
    pub code: Option<String>,
    /// Its text.
    pub message: String,
    /// The traceback.
    pub traceback: Option<String>,
    /// The innermost line in the cell's source, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// The part of the input, for a program of this binary.
    pub block: Option<String>,
    /// `errno` of an `OSError`.
    pub errno: Option<i32>,
    /// The file name of an `OSError`.
    pub path: Option<String>,
    /// Whether it is a `MemoryError`.
    pub is_memory: bool,
    /// Whether it is a `ModuleNotFoundError`.
    pub is_module: bool,
}

/// What was written to a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The text; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Whether more was written than is kept.
    pub is_truncated: bool,
    /// All bytes that were written and read.
    pub bytes_total: u64,
}

/// What a cell used, as the kernel counted it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// From the hand-over to the end of the last process, without pauses.
    pub wall: Duration,
    /// CPU time of all processes.
    pub cpu: Duration,
    /// The most memory at one time, in bytes.
    pub memory_bytes_peak: u64,
    /// What `memory_bytes_peak` counts.
    pub memory_source: MemorySource,
}

/// How memory was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemorySource {
    /// A cgroup: pages of the cell itself, files in its folder included, the interpreter excluded.
    Cgroup,
    /// Resident pages of its processes: the interpreter included, unmapped files excluded.
    #[default]
    Resident,
}

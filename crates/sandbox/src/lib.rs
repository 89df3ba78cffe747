//! Runs untrusted Python cells, and programs of this binary on untrusted input, behind kernel isolation.
//!
//! The crate takes a [`Cell`] (source, entrypoint, parameters, input files, limits) and returns an
//! [`Outcome`]: facts of the kernel, output, the cell's own report, usage and files. It knows
//! nothing of jobs and HTTP. `docs/internals/sandbox.md` describes the layers and what they do not
//! defend against.
//!
//! In reading order: [`cell`] and [`limits`] (what is asked for), [`sandbox`] (the pool), `zygote`
//! and `launch` (how processes start), `child/zygote.py` and [`native`] (what they do), `seccomp` (what they may
//! call), `worker` and `run` (how one cell is watched), `classify` and `report` (how its end is
//! judged), `artifacts` (what it left), `cgroup` and `processes` (what it used), and [`mod@probe`] (what
//! this host allows).
//!
//! [`abort`], [`allocator`] and [`BlockCache`] are about the process itself: it leaves a mark when it aborts, and
//! allocates quickly. They are here because that needs `unsafe` code.
//!
//! Invariants: nothing that a cell writes is trusted; a worker runs one cell and is never used
//! again; files are read when every process of the cell is dead; below the configured tier nothing
//! runs.

pub mod abort;
pub mod allocator;
mod artifacts;
mod block_cache;
pub mod cell;
mod cgroup;
mod classify;
mod clock;
mod control;
mod interpreter;
mod launch;
pub mod limits;
pub mod native;
mod network;
mod outcome;
pub mod probe;
mod processes;
mod report;
mod run;
pub mod sandbox;
mod seccomp;
mod sys;
mod tier;
mod wire;
mod worker;
mod zygote;

pub use artifacts::{Artifact, RefusedFile};
pub use block_cache::BlockCache;
pub use cell::{Cell, Entrypoint, Input, Invalid};
pub use classify::PROGRAM_CODES;
pub use control::{Control, Progress};
pub use interpreter::{Interpreter, InterpreterError, USUAL_PATHS};
pub use limits::Limits;
pub use native::{Program, ProgramError};
pub use outcome::{
    Category, Exit, Facts, Failure, MemorySource, Outcome, Output, Report, ReportState,
    ReportedError, Stop, Usage, Verdict, Violation,
};
pub use probe::{Feature, Probe, TierProbe, probe};
pub use sandbox::{Config, RunError, Sandbox};
pub use tier::Tier;
pub use zygote::{Profile, StartError, child_code};

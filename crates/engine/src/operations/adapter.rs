//! The adapter trait: how an operation is executed.
//!
//! An adapter keeps nothing in memory between turns: each turn is a function of its [`Call`]. It
//! never changes a job: it returns how its turn ended, and the engine records that.
//!
//! A turn is cancelled by dropping its future; everything it holds must end with it. A turn is
//! paused by [`RunControl::proceed`] not returning: an adapter awaits it before everything that has
//! an effect outside the venue, and sleeps with [`RunControl::sleep`], whose clock stops during a
//! pause.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_job::plan::Plan;
use catena_value::Value;

use crate::operations::control::RunControl;
use crate::operations::federation::Federation;
use crate::operations::host::Host;
use crate::operations::operation::{Operation, Problem};
use crate::requests::Caller;

/// A turn that runs.
pub type TurnFuture = Pin<Box<dyn Future<Output = Turn> + Send + 'static>>;

/// Executes operations of one kind.
pub trait Adapter: Send + Sync + 'static {
    /// Returns the word before the colon in `adapter:operation`.
    fn name(&self) -> &'static str;

    /// Returns one sentence for the catalogue.
    fn description(&self) -> &'static str;

    /// Returns the catalogue folder that lists its operations.
    fn folder(&self) -> String {
        format!("v/ops/{}", self.name())
    }

    /// Returns the operations that the adapter registers.
    fn operations(&self) -> Vec<Registration>;

    /// Checks a definition that a caller registers for this adapter, beyond the rules that hold for
    /// all definitions. Returns the problems.
    fn check(&self, _operation: &Operation) -> Vec<Problem> {
        Vec::new()
    }

    /// Returns the plan of an operation that consists of steps, or the problems of its definition.
    /// `None` if the operation has no steps.
    fn plan(&self, _operation: &Operation) -> Option<Result<Plan, Vec<Problem>>> {
        None
    }

    /// Returns the access to other venues, if this adapter provides it.
    fn federation(&self) -> Option<Arc<dyn Federation>> {
        None
    }

    /// Executes an operation that is [`ExecutionMode::Inline`]: it must not wait and must have no
    /// effect outside the venue.
    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        let reference = call.operation.adapter_ref();
        Err(Failure::new("unsupported", format!("{reference} is not an inline operation")))
    }

    /// Returns true if an inline operation with this name runs on a compute thread even if its input
    /// is small, such as one that compiles what is in its input.
    fn needs_compute_thread(&self, _name: &str) -> bool {
        false
    }

    /// Executes one turn of any other operation.
    fn run(&self, call: Call) -> TurnFuture;
}

/// An operation as its adapter registers it.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The word after the colon. The catalogue path is the adapter's folder, `/` and this name.
    pub name: &'static str,
    /// The metadata of the operation's asset: `{name, description, operation: {adapter, input, output, …}}`.
    pub metadata: Value,
    /// How it is executed.
    pub mode: ExecutionMode,
}

/// How an operation is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionMode {
    /// On the task of the request, by [`Adapter::run_inline`]. Such a job is a single commit. If the
    /// input is large, it is executed on a compute thread instead, after the job is durably STARTED.
    Inline,
    /// On a task of its own, by [`Adapter::run`], after the job is durably STARTED.
    Task,
}

/// One turn to execute.
#[derive(Clone)]
pub struct Call {
    /// The venue that runs the turn.
    pub host: Arc<dyn Host>,
    /// The operation to execute.
    pub operation: Arc<Operation>,
    /// The caller on whose authority the turn runs.
    pub caller: Caller,
    /// The job. `None` if nothing is recorded.
    pub job: Option<JobId>,
    /// The input, completely in memory, including the values of secret fields.
    pub input: Value,
    /// Why the turn runs.
    pub cause: Cause,
    /// The number of this attempt; the first is 1.
    pub attempt: u32,
    /// The output of the previous turn, if there was one.
    pub last_output: Option<Value>,
    /// Pausing, sleeping and progress reports.
    pub control: RunControl,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "call of {:?} (attempt {})", self.operation, self.attempt)
    }
}

/// Why a turn runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// The job starts.
    Start,
    /// The previous attempt failed or was interrupted.
    Retry,
    /// The job was resumed.
    Resume,
    /// The job waited for a message, and this is it, including credentials.
    Message(Value),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// With this output.
    Complete(Value),
    /// With this failure.
    Failed(Failure),
    /// The next turn needs a message.
    NeedsInput(catena_job::state::Ask),
    /// The next turn needs authorisation.
    NeedsAuth(catena_job::state::Ask),
    /// The job pauses itself; the next turn runs when it is resumed.
    Pause,
}

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The failure code, which `operation.retry.on` and clients match.
    pub code: String,
    /// The error text of the record.
    pub error: String,
    /// Whether a retry may succeed.
    pub retry: RetryAdvice,
    /// How long to wait before a retry, if the remote side said so.
    pub after: Option<Duration>,
}

/// Whether a retry may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// A retry would fail in the same way.
    Never,
    /// A retry may succeed.
    MaySucceed,
}

impl Failure {
    /// Creates a failure that a retry would repeat.
    pub fn new(code: &str, error: impl Into<String>) -> Self {
        Failure {
            code: code.to_owned(),
            error: error.into(),
            retry: RetryAdvice::Never,
            after: None,
        }
    }

    /// Creates a failure that a retry may overcome.
    pub fn transient(code: &str, error: impl Into<String>) -> Self {
        Failure { retry: RetryAdvice::MaySucceed, ..Failure::new(code, error) }
    }
}

impl From<Result<Value, Failure>> for Turn {
    fn from(ended: Result<Value, Failure>) -> Self {
        match ended {
            Ok(output) => Turn::Complete(output),
            Err(failure) => Turn::Failed(failure),
        }
    }
}

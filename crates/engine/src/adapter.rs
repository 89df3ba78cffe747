//! What an adapter is: the part of the venue that carries out operations.
//!
//! The engine knows adapters through this trait alone and matches on none of their names. An
//! adapter keeps nothing in memory between turns: each turn is a function of what is in its
//! [`Call`]. It never touches a job: it says how its turn ended, and the engine writes that down.
//!
//! To cancel a turn its future is dropped; whatever it holds must end with it. To pause one,
//! [`RunControl::proceed`] stops returning: an adapter awaits it before everything that has an effect
//! outside, and sleeps with [`RunControl::sleep`], whose clock stands still meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_job::plan::Plan;
use catena_value::Value;

use crate::caller::Caller;
use crate::control::RunControl;
use crate::engine::Engine;
use crate::federation::Federation;
use crate::operation::Operation;

/// A turn that is being carried out.
pub type TurnFuture = Pin<Box<dyn Future<Output = Turn> + Send + 'static>>;

/// Carries out operations of one kind.
pub trait Adapter: Send + Sync + 'static {
    /// The word before the colon in `adapter:operation`.
    fn name(&self) -> &'static str;

    /// One sentence about it, for the catalogue.
    fn description(&self) -> &'static str;

    /// Where its operations are listed.
    fn folder(&self) -> String {
        format!("v/ops/{}", self.name())
    }

    /// Its operations.
    fn operations(&self) -> Vec<Registration>;

    /// Checks a definition that somebody registers for this adapter, beyond what holds for all.
    /// The problems, each with its place as a JSON pointer.
    fn check(&self, _operation: &Operation) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The plan of an operation that is carried out as steps, or what is wrong with it; nothing
    /// for all others.
    fn plan(&self, _operation: &Operation) -> Option<Result<Plan, Vec<(String, String)>>> {
        None
    }

    /// A way to other venues, when this adapter has one.
    fn federation(&self) -> Option<Arc<dyn Federation>> {
        None
    }

    /// Carries out an operation that is [`ExecutionMode::Inline`]: no waiting, nothing outside.
    fn compute(&self, call: &Call) -> Result<Value, Failure> {
        let reference = call.operation.adapter();
        Err(Failure::new("unsupported", format!("{reference} is not an instant operation")))
    }

    /// Carries out one turn of any other operation.
    fn run(&self, call: Call) -> TurnFuture;
}

/// An operation as its adapter registers it.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The word after the colon. The path in the catalogue is the adapter's folder, `/`, this.
    pub name: &'static str,
    /// The metadata of its asset: `{name, description, operation: {adapter, input, output, …}}`.
    pub metadata: Value,
    /// How it is carried out.
    pub mode: ExecutionMode,
}

/// How an operation is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionMode {
    /// At once, on the task that asked, by [`Adapter::compute`]. Such a job is one commit.
    Inline,
    /// By [`Adapter::run`], after the job is durably STARTED.
    Task,
}

/// One turn to carry out.
#[derive(Debug, Clone)]
pub struct Call {
    /// The venue.
    pub engine: Engine,
    /// The operation.
    pub operation: Arc<Operation>,
    /// Who asked, and with whose authority it runs.
    pub caller: Caller,
    /// The job; none when nothing is recorded.
    pub job: Option<JobId>,
    /// The input, wholly in memory, with the values of secret fields.
    pub input: Value,
    /// Why there is a turn.
    pub cause: Cause,
    /// The number of this try, the first being 1.
    pub attempt: u32,
    /// The output of the turn before, when there was one.
    pub last_output: Option<Value>,
    /// Pausing, sleeping, progress.
    pub control: RunControl,
}

/// Why there is a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// The job begins.
    Start,
    /// The job was running when the venue stopped, or the last try failed.
    Retry,
    /// Somebody resumed it.
    Resume,
    /// It waited for a message, and here is one, credentials included.
    Message(Value),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// With a result.
    Complete(Value),
    /// With an error.
    Failed(Failure),
    /// The next turn needs a message.
    NeedsInput(catena_job::state::Ask),
    /// The next turn needs authorisation.
    NeedsAuth(catena_job::state::Ask),
    /// The next turn is to wait for a resume.
    Pause,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A word for it, by which `operation.retry.on` and clients tell failures apart.
    pub code: String,
    /// The text that stands in the record.
    pub error: String,
    /// Whether another try may end differently.
    pub retry: RetryAdvice,
    /// How long not to try again, when whoever refused said so.
    pub after: Option<Duration>,
}

/// Whether another try may end differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// No: the same will happen again.
    Never,
    /// Perhaps.
    MaySucceed,
}

impl Failure {
    /// A failure that will happen again.
    pub fn new(code: &str, error: impl Into<String>) -> Self {
        Failure {
            code: code.to_owned(),
            error: error.into(),
            retry: RetryAdvice::Never,
            after: None,
        }
    }

    /// A failure that may pass.
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

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

use catena_job::members::Members;
use catena_job::plan::Plan;
use catena_job::{Job, JobId};
use catena_value::Value;

use crate::operations::binding::{BoundEnd, BoundJob, BoundStart};
use crate::operations::control::RunControl;
use crate::operations::environments::{Environments, Placement};
use crate::operations::failure::Failure;
use crate::operations::federation::Federation;
use crate::operations::host::{Host, HostReply};
use crate::operations::need::Need;
use crate::operations::operation::{Operation, Problem, Recovery};
use crate::operations::push::{Delivered, Delivery, DeliveryFuture};
use crate::operations::queue::QueueSpec;
use crate::operations::roots::{RootId, Roots};
use crate::operations::secret::{SecretPurpose, SecretRequest};
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

    /// Returns true if its operations consist of steps. A definition of one must be complete and
    /// correct when it is registered; others are refused when they are invoked.
    fn has_plans(&self) -> bool {
        false
    }

    /// Returns the plan of an operation that consists of steps, or the problems of its definition.
    /// `None` if the operation has no steps.
    fn plan(&self, _operation: &Operation) -> Option<Result<Plan, Vec<Problem>>> {
        None
    }

    /// Returns the members that the input of the operation with this name may have, if a request with
    /// others is refused instead of creating a job. `None` if others are accepted.
    fn input_members(&self, _name: &str) -> Option<Members> {
        None
    }

    /// Returns what happens to jobs that were interrupted if their definition does not say so. `None`
    /// if that depends on whether the definition says that it can be repeated.
    fn default_recovery(&self) -> Option<Recovery> {
        None
    }

    /// Returns how the jobs of an operation are queued for workers, or the problems of its definition.
    /// `None` if this venue runs the operation itself.
    fn queue(&self, _operation: &Operation) -> Option<Result<QueueSpec, Vec<Problem>>> {
        None
    }

    /// Returns what a caller must be allowed to run an operation with this input. If it is empty, the
    /// caller must be allowed to `invoke` the operation.
    fn needs(&self, _operation: &Operation, _input: &Value) -> Vec<Need> {
        Vec::new()
    }

    /// Returns the operation that an operation invokes later, on the authority of its caller, and its input.
    /// Whoever may not invoke that one is refused at once.
    fn deferred(&self, _operation: &Operation, _input: &Value) -> Option<(String, Value)> {
        None
    }

    /// Returns the owner of the roots that a call uses, if it is not the caller.
    fn roots_owner(&self, _call: &Call) -> Option<String> {
        None
    }

    /// Sends a job to the service that runs it. Only for operations whose queue has a URL.
    fn deliver(&self, delivery: Delivery) -> DeliveryFuture {
        let reference = delivery.operation.adapter_ref().to_owned();
        let failure = Failure::new("unsupported", format!("{reference} cannot be sent to a URL"));
        Box::pin(async move { Delivered::Ended(Err(failure)) })
    }

    /// Returns on which queue of the venue a job with this input waits, or why it cannot run. It is
    /// called for operations whose queue belongs to the venue.
    fn place(
        &self,
        operation: &Operation,
        _input: &Value,
        _environments: &Environments,
    ) -> Result<Placement, String> {
        let spec = operation.queue();
        Ok(Placement {
            queue: spec.map_or_else(String::new, |spec| spec.queue.clone()),
            priority: spec.map_or(0, |spec| spec.priority),
            members: Vec::new(),
        })
    }

    /// Returns what a worker gets as the input of a job. `input` is completely in memory.
    fn worker_input(&self, _operation: &Operation, _job: &Job, input: Value) -> Value {
        input
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

    /// Returns true if the operation with this name deletes what is stored: it is allowed to callers
    /// that have used up their quota of stored bytes.
    fn frees_storage(&self, _name: &str) -> bool {
        false
    }

    /// Returns true if the operation with this name controls other jobs: it runs even if the jobs of its
    /// caller occupy all slots.
    fn controls_jobs(&self, _name: &str) -> bool {
        false
    }

    /// Returns the roots of the caller that an operation with [`ExecutionMode::Roots`] reads and
    /// changes. It may not use any others.
    fn roots(&self, _call: &Call) -> Result<Vec<RootId>, Failure> {
        Ok(Vec::new())
    }

    /// Returns the work that obtains what an operation with [`ExecutionMode::Roots`] needs besides roots,
    /// such as a job or an asset. Its result is [`Call::prepared`].
    fn prepare(&self, _call: &Call) -> Option<HostReply<Value, Failure>> {
        None
    }

    /// Executes an operation that is [`ExecutionMode::Roots`]: computes its output and changes roots.
    /// Changes of an operation that fails are undone. It may be called again on other values of the
    /// roots, so it must be a function of the call and the roots; it must not wait and must have no
    /// other effect.
    fn run_on_roots(&self, call: &Call, _roots: &mut Roots) -> Result<Value, Failure> {
        let reference = call.operation.adapter_ref();
        Err(Failure::new("unsupported", format!("{reference} does not change roots")))
    }

    /// Returns true if an operation on roots refused a request, so that its job is REJECTED instead of
    /// FAILED.
    fn is_refusal(&self, _failure: &Failure) -> bool {
        false
    }

    /// Returns the name of what a job of the operation with this name is bound to while it runs, such as
    /// an agent. `None` if it is bound to nothing. Such a job is started from the queue, by
    /// [`Adapter::start_bound`].
    fn binding(&self, _operation: &str, _input: &Value) -> Option<String> {
        None
    }

    /// Returns the roots of the owner that the start and the end of a job change that is bound to
    /// something with this name.
    fn bound_roots(&self, _name: &str) -> Vec<RootId> {
        Vec::new()
    }

    /// Decides whether a bound job starts, and changes roots in the commit that starts it. As
    /// [`Adapter::run_on_roots`], it may be called again. The input is as records have it, without
    /// secrets. The changes are also committed if the job waits or ends.
    fn start_bound(
        &self,
        _job: BoundJob<'_>,
        _operation: &Operation,
        _input: &Value,
        _roots: &mut Roots,
    ) -> Result<BoundStart, Failure> {
        Ok(BoundStart::Run)
    }

    /// Changes roots in the commit that ends a bound job, or that pauses one before it started. As
    /// [`Adapter::run_on_roots`], it may be called again.
    fn end_bound(
        &self,
        _job: BoundJob<'_>,
        _end: &BoundEnd<'_>,
        _roots: &mut Roots,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns true if a bound job that paused itself is to look again, by what it is bound to now.
    fn resumes_bound(&self, _job: BoundJob<'_>, _roots: &Roots) -> bool {
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
    /// By [`Adapter::run_on_roots`], on the current values of the caller's roots. The records of the
    /// job and the new roots are a single commit. Changes of one user's roots that arrive during a
    /// commit are committed together, in the order in which they arrived. If the operation is
    /// `readOnly`, it cannot change anything.
    Roots,
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
    /// The number of jobs that enclose the turn, on this venue and on others.
    pub depth: u32,
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
    /// The result of [`Adapter::prepare`].
    pub prepared: Option<Value>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "call of {:?} (attempt {})", self.operation, self.attempt)
    }
}

impl Call {
    /// Returns a secret of the caller. `None` if the caller has none with this name; then the operation
    /// may use a `writeOnly` field of its input. From now on the value is removed from everything that
    /// the turn produces.
    ///
    /// Fails with `secret_refused` if the definition of the operation, or of one that led to it, was
    /// registered by somebody else and has no grant; if the secret is bound to other hosts; or if a
    /// model chose the call and the secret is not bound to the host.
    pub async fn secret(
        &self,
        name: &str,
        purpose: SecretPurpose,
    ) -> Result<Option<String>, Failure> {
        let request = SecretRequest {
            caller: self.caller.clone(),
            definition: self.operation.id_text().to_owned(),
            job: self.job,
            name: name.to_owned(),
            purpose,
        };
        let secret = self.host.keyring().secret(request).await?;
        if let Some(secret) = &secret {
            self.control.hide(secret);
        }
        Ok(secret)
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

impl Turn {
    /// Removes the secrets that the turn has received from what it produced.
    pub(crate) fn redacted(self, control: &RunControl) -> Turn {
        let secrets = control.secrets();
        if secrets.is_empty() {
            return self;
        }
        let redact_ask = |ask: catena_job::state::Ask| catena_job::state::Ask {
            message: ask.message.map(|message| secrets.redact_text(&message)),
            output: ask.output.map(|output| secrets.redact(output)),
        };
        match self {
            Turn::Complete(output) => Turn::Complete(secrets.redact(output)),
            Turn::Failed(failure) => {
                let error = secrets.redact_text(&failure.error);
                Turn::Failed(Failure { error, ..failure })
            }
            Turn::NeedsInput(ask) => Turn::NeedsInput(redact_ask(ask)),
            Turn::NeedsAuth(ask) => Turn::NeedsAuth(redact_ask(ask)),
            Turn::Pause => Turn::Pause,
        }
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

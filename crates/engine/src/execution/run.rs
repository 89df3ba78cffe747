//! Runs a job: attempt after attempt, until it ends or waits.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use catena_store::JobCells;
use catena_value::Value;
use futures_util::FutureExt;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::StoreError;
use crate::execution::progress::ProgressReporter;
use crate::execution::record::{RecordContext, TurnOutcome, record_outcome};
use crate::execution::{Execution, RunGuard};
use crate::jobs::{
    Changed, Current, adapter_panicked, append_error, time_limit_exceeded, waits_for_message,
};
use crate::operations::{Call, Cause, Failure, Operation, RetryAdvice, RunControl, Turn};
use crate::requests::Caller;
use crate::runtime::Task;

/// How long to wait before an outcome that could not be stored is stored again.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// What a run executes, and on whose authority.
pub(crate) struct RunSpec {
    pub(crate) operation: Arc<Operation>,
    pub(crate) caller: Caller,
    /// The input, including secret values.
    pub(crate) input: Value,
    pub(crate) cause: Cause,
    /// How long the turn may still take.
    pub(crate) time_left: Duration,
}

/// A job that runs in this process.
pub(crate) struct Run {
    pub(crate) job: Job,
    pub(crate) cells: Option<JobCells>,
    pub(crate) spec: RunSpec,
    pub(crate) guard: RunGuard,
    slot: Option<OwnedSemaphorePermit>,
}

/// How a turn ended.
enum TurnEnd {
    Returned(Turn),
    TimedOut,
}

impl Run {
    /// Creates the run of a job that is durably STARTED.
    pub(crate) fn new(job: Job, cells: Option<JobCells>, spec: RunSpec, guard: RunGuard) -> Run {
        Run { job, cells, spec, guard, slot: None }
    }

    /// Occupies a slot while the job runs.
    pub(crate) fn with_slot(mut self, slot: OwnedSemaphorePermit) -> Run {
        self.slot = Some(slot);
        self
    }

    /// Runs the job, boxed: a run may start other runs.
    pub(crate) fn execute_boxed(self, execution: Arc<Execution>) -> Task {
        Box::pin(self.execute(execution))
    }

    /// Runs the job until it ends or waits.
    pub(crate) async fn execute(mut self, execution: Arc<Execution>) {
        if self.spec.operation.plan().is_some() {
            // An orchestration only waits for its steps, so it occupies no slot.
            self.slot = None;
            if let Some(plans) = execution.plan_runner() {
                plans.resume(self).await;
            }
            return;
        }
        loop {
            let control = self.guard.handle.control(&execution.runtime.env);
            let Some((end, progress)) = self.run_turn(&execution, &control).await else { return };
            let outcome = match end {
                TurnEnd::TimedOut => {
                    TurnOutcome::TimedOut(time_limit_exceeded(self.spec.time_left))
                }
                TurnEnd::Returned(turn) => self.checked(&execution, turn).await,
            };
            let Some(backoff) = self.backoff(&outcome) else {
                return self.finish(&execution, outcome, progress).await;
            };
            if !self.start_retry(&execution, &control, &outcome, backoff).await {
                return;
            }
        }
    }

    /// Runs one turn. Returns how it ended and the last progress. `None` if it was stopped.
    async fn run_turn(
        &self,
        execution: &Execution,
        control: &RunControl,
    ) -> Option<(TurnEnd, Option<Value>)> {
        let spec = &self.spec;
        let call = Call {
            host: execution.host()?,
            operation: Arc::clone(&spec.operation),
            caller: spec.caller.clone(),
            job: Some(self.job.id()),
            input: spec.input.clone(),
            cause: spec.cause.clone(),
            attempt: self.job.attempt(),
            last_output: self.job.field("output").cloned(),
            control: control.clone(),
        };
        let adapter = Arc::clone(spec.operation.adapter());
        let turn = async {
            match self.refusal(execution).await {
                None => execution.operations.execute(call).await,
                Some(failure) => Turn::Failed(failure),
            }
        };
        let mut turn = Box::pin(AssertUnwindSafe(turn).catch_unwind());
        let mut limit = Box::pin(control.sleep(spec.time_left));
        let handle = &self.guard.handle;
        let mut stopped = Box::pin(handle.stopped());
        let mut signal = handle.subscribe();
        let mut reporter =
            ProgressReporter::new(execution, self.job.id(), self.job.attempt(), &handle.progress);
        let end = loop {
            tokio::select! {
                biased;
                () = &mut stopped => return None,
                turn = &mut turn => {
                    let panicked = |_| Turn::Failed(adapter_panicked(adapter.name()));
                    break TurnEnd::Returned(turn.unwrap_or_else(panicked));
                }
                () = &mut limit => break TurnEnd::TimedOut,
                Ok(()) = signal.changed() => reporter.signalled(*signal.borrow_and_update()),
                () = reporter.wait() => reporter.advance().await,
            }
        };
        Some((end, reporter.last().await))
    }

    /// Returns why the input of a step is refused, if it was too large to be checked when the step
    /// started.
    async fn refusal(&self, execution: &Execution) -> Option<Failure> {
        let RunSpec { operation, caller, input, cause, .. } = &self.spec;
        let is_new_step = *cause == Cause::Start && self.job.field("parent").is_some();
        if !is_new_step || operation.check_input_inline(input).is_some() {
            return None;
        }
        match execution.operations.refusal(&caller.did, operation, input).await {
            Ok(refusal) => Some(Failure::new("invalid_input", refusal?)),
            Err(error) => Some(Failure::transient("busy", error.to_string())),
        }
    }

    /// Checks the output of a turn.
    async fn checked(&self, execution: &Execution, turn: Turn) -> TurnOutcome {
        match turn {
            Turn::Complete(output) => {
                let RunSpec { operation, caller, .. } = &self.spec;
                let operations = &execution.operations;
                let checked = operations.check_output(&caller.did, operation, &output).await;
                TurnOutcome::Done(checked.map(|()| output))
            }
            Turn::Failed(failure) => TurnOutcome::Done(Err(failure)),
            Turn::NeedsInput(ask) => TurnOutcome::NeedsInput(ask),
            Turn::NeedsAuth(ask) => TurnOutcome::NeedsAuth(ask),
            Turn::Pause => TurnOutcome::Pause,
        }
    }

    /// Returns the delay before the next attempt. `None` if there is none.
    fn backoff(&self, outcome: &TurnOutcome) -> Option<Duration> {
        let TurnOutcome::Done(Err(failure)) = outcome else { return None };
        let policy = self.spec.operation.retry()?;
        let may_retry = if policy.on.is_empty() {
            failure.retry == RetryAdvice::MaySucceed
        } else {
            policy.on.contains(&failure.code)
        };
        let next = self.job.attempt() + 1;
        (may_retry && next <= policy.attempts).then(|| policy.backoff_before(next))
    }

    /// Records the next attempt after a delay. Returns false if there is none: the run was stopped
    /// or the job has changed.
    async fn start_retry(
        &mut self,
        execution: &Execution,
        control: &RunControl,
        outcome: &TurnOutcome,
        backoff: Duration,
    ) -> bool {
        let handle = Arc::clone(&self.guard.handle);
        tokio::select! {
            () = handle.stopped() => return false,
            () = control.sleep(backoff) => {}
        }
        let reason = match outcome {
            TurnOutcome::Done(Err(failure)) => failure.error.clone(),
            _ => String::new(),
        };
        loop {
            let recorded = self.record_attempt(execution, &reason).await;
            execution.runtime.counters.retries.fetch_add(1, Ordering::Relaxed);
            match recorded {
                Ok(Changed::Done(view)) => {
                    self.job = (*view.job).clone();
                    if !matches!(self.spec.cause, Cause::Message(_)) {
                        self.spec.cause = Cause::Retry;
                    }
                    return true;
                }
                // Paused during the delay: the attempt starts when the job is resumed.
                Ok(Changed::Unchanged(current)) if current.job.status() == Status::Paused => {
                    self.job = Arc::unwrap_or_clone(current.job);
                    tokio::select! {
                        () = handle.stopped() => return false,
                        () = control.proceed() => {}
                    }
                }
                _ => return false,
            }
        }
    }

    /// Records that the next attempt starts.
    async fn record_attempt(
        &self,
        execution: &Execution,
        reason: &str,
    ) -> Result<Changed, StoreError> {
        let fence = self.guard.handle.fence;
        let attempt = Some(self.job.attempt() + 1);
        let change = |current: &Current| {
            if current.job.status() != Status::Started {
                return Ok(None);
            }
            let note = Note::Attempt { attempt, reason: Some(reason.to_owned()) };
            let mut draft = current.draft();
            draft.set_fence(fence);
            let change = Change::new(Event::Noted(note), execution.runtime.now());
            draft.append(change).map_err(append_error)?;
            Ok(Some(draft))
        };
        execution.jobs.change(self.job.id(), Some(self.current()), change).await
    }

    /// Returns the job as this run knows it.
    pub(crate) fn current(&self) -> Current {
        let mut current = Current::from_job(self.job.clone());
        current.cells = self.cells.clone();
        current
    }

    /// Records the outcome and releases the job.
    async fn finish(
        self,
        execution: &Arc<Execution>,
        outcome: TurnOutcome,
        progress: Option<Value>,
    ) {
        let mut known = self.current();
        known.progress = progress.clone();
        let id = self.job.id();
        let fence = self.guard.handle.fence;
        let Run { guard, slot, .. } = self;
        if outcome.waits() {
            guard.handle.mark_idle();
        }
        let changed = store_outcome(execution, id, known, fence, &outcome, progress).await;
        drop(guard);
        match changed {
            Ok(Changed::Done(view)) if waits_for_message(view.status()) => {
                execution.wake(id, slot).await;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(job = %id, %error, "cannot store the outcome of a job");
            }
        }
    }
}

/// Stores an outcome, however long the store is busy.
async fn store_outcome(
    execution: &Execution,
    id: JobId,
    known: Current,
    fence: Option<u64>,
    outcome: &TurnOutcome,
    progress: Option<Value>,
) -> Result<Changed, StoreError> {
    let interactive = execution.runtime.limits.interactive;
    let mut known = Some(known);
    loop {
        let decide = |current: &Current| {
            let mut current = current.clone();
            current.progress = progress.clone().or(current.progress);
            let context = RecordContext { now: execution.runtime.now(), interactive, fence };
            record_outcome(&current, outcome.clone(), context)
        };
        match execution.jobs.change(id, known.take(), decide).await {
            Err(StoreError::Busy | StoreError::Full | StoreError::Contended) => {
                execution.runtime.env.sleep(STORE_RETRY_DELAY).await;
            }
            done => return done,
        }
    }
}

/// Returns the output of a turn of which nothing is recorded. Fails if the turn waits for a message
/// or a resume.
pub(crate) fn require_output(turn: Turn) -> Result<Value, Failure> {
    match turn {
        Turn::Complete(output) => Ok(output),
        Turn::Failed(failure) => Err(failure),
        Turn::NeedsInput(_) | Turn::NeedsAuth(_) | Turn::Pause => Err(Failure::new(
            "needs_a_job",
            "the operation waits for a message or a resume; invoke it as a recorded job",
        )),
    }
}

//! Runs one attempt of a job, until it ends, waits or is retried later.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catena_job::chain::{AppendError, Change};
use catena_job::note::{Attempt, Note};
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use catena_store::{Hold, JobCells};
use catena_value::Value;
use futures_util::FutureExt;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::StoreError;
use crate::execution::progress::ProgressReporter;
use crate::execution::record::{RecordContext, TurnOutcome, record_outcome};
use crate::execution::{Execution, RunGuard, offer};
use crate::jobs::{
    Changed, Current, adapter_panicked, append_error, attempt_time_exceeded, milliseconds,
    time_limit_exceeded, truncate_text, waits_for_message,
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
    /// How long the job may still run.
    pub(crate) time_left: Duration,
}

/// A job that this process holds and runs.
pub(crate) struct Run {
    pub(crate) job: Job,
    pub(crate) cells: Option<JobCells>,
    pub(crate) spec: RunSpec,
    pub(crate) guard: RunGuard,
}

/// How a turn ended.
enum TurnEnd {
    Returned(Turn),
    TimedOut,
}

impl Run {
    /// Creates the run of a job that is durably STARTED and held by this process.
    pub(crate) fn new(job: Job, cells: Option<JobCells>, spec: RunSpec, guard: RunGuard) -> Run {
        Run { job, cells, spec, guard }
    }

    /// Occupies a slot while the job runs.
    pub(crate) fn with_slot(self, slot: OwnedSemaphorePermit) -> Run {
        // An orchestration only waits for its steps, so it occupies no slot.
        if self.spec.operation.plan().is_none() {
            self.guard.handle.occupy(slot);
        }
        self
    }

    /// Runs the job, boxed: a run may start other runs.
    pub(crate) fn execute_boxed(self, execution: Arc<Execution>) -> Task {
        Box::pin(self.execute(execution))
    }

    /// Runs the job until it ends, waits or is retried later.
    pub(crate) async fn execute(self, execution: Arc<Execution>) {
        execution.registry.stop_earlier(self.job.id(), self.guard.handle.fence);
        if self.spec.operation.plan().is_some() {
            if let Some(plans) = execution.plan_runner() {
                plans.resume(self).await;
            }
            return;
        }
        let control = self.guard.handle.control(&execution.runtime.env);
        let Some((end, progress)) = self.run_turn(&execution, &control).await else { return };
        let outcome = match end {
            TurnEnd::TimedOut => self.timed_out(),
            TurnEnd::Returned(turn) => self.checked(&execution, turn).await,
        };
        match self.retry_delay(&execution, &outcome) {
            Some((delay, failure)) => self.retry_later(&execution, &control, delay, failure).await,
            None => self.finish(&execution, outcome, progress).await,
        }
    }

    /// Returns how long one attempt may take.
    fn attempt_limit(&self) -> Duration {
        let declared = self.spec.operation.retry().and_then(|policy| policy.timeout);
        declared.map_or(self.spec.time_left, |limit| limit.min(self.spec.time_left))
    }

    /// Returns the outcome of a turn that took too long: the job timed out, or the attempt did.
    fn timed_out(&self) -> TurnOutcome {
        let limit = self.attempt_limit();
        if limit < self.spec.time_left {
            TurnOutcome::Done(Err(attempt_time_exceeded(limit)))
        } else {
            TurnOutcome::TimedOut(time_limit_exceeded(self.spec.time_left))
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
        let mut limit = Box::pin(control.sleep(self.attempt_limit()));
        let handle = &self.guard.handle;
        let mut stopped = Box::pin(handle.stopped());
        let mut signal = handle.subscribe();
        let mut reporter =
            ProgressReporter::new(execution, self.job.id(), self.job.attempt(), &handle.progress);
        let mut keeps_time = true;
        let end = loop {
            tokio::select! {
                biased;
                () = &mut stopped => return None,
                turn = &mut turn => {
                    let panicked = |_| Turn::Failed(adapter_panicked(adapter.name()));
                    break TurnEnd::Returned(turn.unwrap_or_else(panicked));
                }
                () = &mut limit, if keeps_time => {
                    // The clock of a job with calls is its deadline in the store.
                    keeps_time = handle.keeps_time();
                    if keeps_time {
                        break TurnEnd::TimedOut;
                    }
                }
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

    /// Returns the delay before the next attempt, and why this one failed. `None` if there is no
    /// next attempt.
    fn retry_delay(
        &self,
        execution: &Execution,
        outcome: &TurnOutcome,
    ) -> Option<(Duration, Failure)> {
        let TurnOutcome::Done(Err(failure)) = outcome else { return None };
        let policy = self.spec.operation.retry()?;
        let may_retry = if policy.on.is_empty() {
            failure.retry == RetryAdvice::MaySucceed
        } else {
            policy.on.contains(&failure.code)
        };
        // Interrupted attempts are counted separately.
        let failed = self.job.failures() + 1;
        if !may_retry || failed >= policy.attempts {
            return None;
        }
        let mut random = [0; 8];
        execution.runtime.env.random(&mut random);
        let delay = policy.delay_after(failed, u64::from_be_bytes(random));
        Some((delay.max(failure.after.unwrap_or_default()), failure.clone()))
    }

    /// Records that this attempt failed and when the next one is due, and gives the job back to the
    /// queue. All of that is one commit.
    async fn retry_later(
        self,
        execution: &Arc<Execution>,
        control: &RunControl,
        delay: Duration,
        failure: Failure,
    ) {
        let id = self.job.id();
        let mut known = Some(self.current()).filter(|_| self.guard.handle.keeps_time());
        loop {
            let recorded = self.record_retry(execution, known.take(), delay, &failure).await;
            match recorded {
                Ok(Changed::Done(_)) => {
                    execution.runtime.counters.retries.fetch_add(1, Ordering::Relaxed);
                    drop(self.guard);
                    return execution.notify_queued();
                }
                // Paused meanwhile: the delay starts when the job is resumed.
                Ok(Changed::Unchanged(current)) if current.job.status() == Status::Paused => {
                    tokio::select! {
                        () = self.guard.handle.stopped() => return,
                        () = control.proceed() => {}
                    }
                }
                Ok(_) => return,
                Err(StoreError::Busy | StoreError::Full | StoreError::Contended) => {
                    execution.runtime.env.sleep(STORE_RETRY_DELAY).await;
                }
                Err(error) => {
                    tracing::error!(job = %id, %error, "cannot record a failed attempt");
                    return;
                }
            }
        }
    }

    async fn record_retry(
        &self,
        execution: &Execution,
        known: Option<Current>,
        delay: Duration,
        failure: &Failure,
    ) -> Result<Changed, StoreError> {
        let fence = self.guard.handle.fence;
        let id = self.job.id();
        let change = |current: &Current| {
            if current.job.status() != Status::Started {
                return Ok(None);
            }
            let now = execution.runtime.now();
            let note = Note::Attempt(Attempt {
                attempt: Some(current.job.attempt() + 1),
                reason: Some(truncate_text(&failure.error)),
                code: Some(failure.code.clone()),
                ..Attempt::default()
            });
            let mut draft = current.draft();
            match draft.append(Change::new(Event::Noted(note), now)) {
                Ok(()) => {}
                Err(AppendError::HistoryFull) => {
                    let context = RecordContext { now, interactive: Duration::ZERO, fence };
                    let failed = TurnOutcome::Done(Err(failure.clone()));
                    return record_outcome(current, failed, context);
                }
                Err(error) => return Err(append_error(error)),
            }
            draft.set_hold(Hold::Release(fence));
            draft.add(offer(id, now.saturating_add(milliseconds(delay))));
            Ok(Some(draft))
        };
        execution.jobs.change(id, known, change).await
    }

    /// Returns the job as this run knows it.
    pub(crate) fn current(&self) -> Current {
        let mut current = Current::from_job(self.job.clone(), self.guard.handle.fence);
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
        let made_calls = !self.guard.handle.keeps_time();
        if made_calls && let Err(error) = execution.end_open_calls(id, fence, &outcome).await {
            tracing::error!(job = %id, %error, "cannot end the calls of a job");
        }
        // The chain of a job that made calls has grown since this run started.
        let known = Some(known).filter(|_| !made_calls);
        let changed = store_outcome(execution, id, known, fence, &outcome, progress).await;
        drop(self.guard);
        match changed {
            Ok(Changed::Done(view)) if waits_for_message(view.status()) => {
                execution.wake(id).await;
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
    mut known: Option<Current>,
    fence: u64,
    outcome: &TurnOutcome,
    progress: Option<Value>,
) -> Result<Changed, StoreError> {
    let interactive = execution.runtime.limits.interactive;
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

//! Runs one attempt of a job in this process, until it ends, waits or is retried later.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use catena_job::{Job, Status};
use catena_store::JobCells;
use catena_value::Value;
use futures_util::FutureExt;

use crate::error::{ControlError, StoreError, TooMuchMemory};
use crate::execution::finish::{EndedTurn, Retry, STORE_RETRY_DELAY};
use crate::execution::progress::ProgressReporter;
use crate::execution::record::TurnOutcome;
use crate::execution::{Execution, RunGuard, RunSlot};
use crate::jobs::{
    Changed, Current, adapter_panicked, attempt_time_exceeded, depth_of, time_limit_exceeded,
    too_much_memory, waits_for_message,
};
use crate::operations::{Call, Cause, Failure, Operation, RunControl, Signal, Turn};
use crate::requests::Caller;
use crate::runtime::{Reservation, Task, is_same_large};

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
    pub(crate) job: Arc<Job>,
    pub(crate) cells: Option<JobCells>,
    pub(crate) spec: RunSpec,
    pub(crate) guard: RunGuard,
    /// The memory that its input and output take, if it is reserved already.
    memory: Option<Arc<Reservation>>,
}

/// How a turn ended.
enum TurnEnd {
    Returned(Turn),
    TimedOut,
}

impl Run {
    /// Creates the run of a job that is durably STARTED and held by this process.
    pub(crate) fn new(
        job: Arc<Job>,
        cells: Option<JobCells>,
        spec: RunSpec,
        guard: RunGuard,
    ) -> Run {
        Run { job, cells, spec, guard, memory: None }
    }

    /// Occupies a slot while the job runs.
    pub(crate) fn with_slot(self, slot: RunSlot) -> Run {
        // An orchestration only waits for its steps, so it occupies no slot.
        if self.spec.operation.plan().is_none() {
            self.guard.handle.occupy(slot);
        }
        self
    }

    /// Keeps memory that is reserved for the input already.
    pub(crate) fn with_memory(mut self, memory: Arc<Reservation>) -> Run {
        self.memory = Some(memory);
        self
    }

    /// Returns the reservation of the memory that the input takes, unless it is reserved already.
    fn reserve_input(&self, execution: &Execution) -> Result<Reservation, TooMuchMemory> {
        let mut memory = execution.runtime.memory.open(self.spec.caller.did.text());
        if self.memory.is_none() {
            memory.grow_for(&self.spec.input)?;
        }
        Ok(memory)
    }

    /// Reserves the memory that the output and its encoding take, unless it is the input.
    fn reserve_output(
        &self,
        output: &Value,
        memory: &mut Reservation,
    ) -> Result<(), TooMuchMemory> {
        if is_same_large(output, &self.spec.input) {
            Ok(())
        } else {
            memory.grow_for_stored(output)
        }
    }

    /// Runs the job until it ends, waits or is retried later.
    pub(crate) fn execute(self, execution: Arc<Execution>) -> Task {
        let job = self.job.id();
        let runtime = Arc::clone(&execution.runtime);
        Box::pin(runtime.work_on(job, self.execute_turn(execution)))
    }

    async fn execute_turn(self, execution: Arc<Execution>) {
        execution.registry.stop_earlier(self.job.id(), self.guard.handle.fence);
        if self.spec.operation.plan().is_some() {
            if let Some(plans) = execution.plan_runner() {
                plans.resume(self).await;
            }
            return;
        }
        let control = self.guard.handle.control(&execution.runtime.env);
        if self.spec.operation.uses_roots() && !self.spec.operation.is_read_only() {
            return Box::pin(self.execute_on_roots(&execution, &control)).await;
        }
        // Held until the outcome is durable.
        let mut memory = self.reserve_input(&execution);
        let (outcome, progress) = match &mut memory {
            Err(error) => (TurnOutcome::Done(Err(too_much_memory(*error))), None),
            Ok(memory) => {
                let turn = self.run_turn(&execution, &control).await;
                let Some((end, progress)) = turn else { return };
                let outcome = match end {
                    TurnEnd::TimedOut => self.timed_out(),
                    TurnEnd::Returned(turn) => self.checked(&execution, turn, memory).await,
                };
                (outcome, progress)
            }
        };
        match execution.retry_delay(&self.spec.operation, &self.job, &outcome) {
            // Boxed, because it is rare and would make the future of every run larger.
            Some((delay, failure)) => {
                Box::pin(self.retry_later(&execution, &control, delay, failure)).await;
            }
            None => self.finish(&execution, outcome, progress).await,
        }
    }

    /// Runs an operation on roots, which takes no time to speak of. Its outcome is committed with the
    /// new roots; a failure is recorded or retried as any other.
    async fn execute_on_roots(self, execution: &Arc<Execution>, control: &RunControl) {
        tokio::select! {
            biased;
            () = self.guard.handle.stopped() => return,
            () = control.proceed() => {}
        }
        let failure = match self.refusal(execution).await {
            Some(failure) => Some(failure),
            None => {
                let Some(call) = self.call(execution, control) else { return };
                loop {
                    let fence = self.guard.handle.fence;
                    match execution.change_roots(call.clone(), fence, self.current()).await {
                        Ok(failure) => break failure,
                        Err(StoreError::Busy | StoreError::Full | StoreError::Contended) => {
                            execution.runtime.env.sleep(STORE_RETRY_DELAY).await;
                        }
                        Err(error) => {
                            let job = self.job.id();
                            tracing::error!(%job, %error, "cannot store the outcome of a job");
                            return;
                        }
                    }
                }
            }
        };
        let Some(failure) = failure else { return };
        let outcome = TurnOutcome::Done(Err(failure));
        match execution.retry_delay(&self.spec.operation, &self.job, &outcome) {
            Some((delay, failure)) => self.retry_later(execution, control, delay, failure).await,
            None => self.finish(execution, outcome, None).await,
        }
    }

    /// Returns the call of this attempt. `None` if the engine was dropped.
    fn call(&self, execution: &Execution, control: &RunControl) -> Option<Call> {
        let spec = &self.spec;
        Some(Call {
            host: execution.host()?,
            operation: Arc::clone(&spec.operation),
            caller: spec.caller.clone(),
            job: Some(self.job.id()),
            depth: depth_of(&self.job),
            input: spec.input.clone(),
            cause: spec.cause.clone(),
            attempt: self.job.attempt(),
            last_output: self.job.field("output").cloned(),
            control: control.clone(),
            prepared: None,
        })
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
        let call = self.call(execution, control)?;
        let adapter = Arc::clone(self.spec.operation.adapter());
        let turn = async {
            match self.refusal(execution).await {
                None => execution.operations.execute(call).await,
                Some(failure) => Turn::Failed(failure),
            }
        };
        let turn = AssertUnwindSafe(turn).catch_unwind();
        let mut turn = Box::pin(turn.map(|turn| {
            let panicked = |_| Turn::Failed(adapter_panicked(adapter.name()));
            turn.unwrap_or_else(panicked).redacted(control)
        }));
        let handle = &self.guard.handle;
        if handle.signal() == Signal::Stop {
            return None;
        }
        let mut reporter =
            ProgressReporter::new(execution, self.job.id(), self.job.attempt(), &handle.progress);
        // A turn that waits for nothing needs no timer and nobody to interrupt it.
        let end = match poll_fn(|context| Poll::Ready(turn.as_mut().poll(context))).await {
            Poll::Ready(turn) => TurnEnd::Returned(turn),
            // Boxed, because it would make the future of every run larger.
            Poll::Pending => Box::pin(self.wait_for_turn(turn, control, &mut reporter)).await?,
        };
        Some((end, reporter.last().await))
    }

    /// Waits for a turn, the time limit or a control signal. `None` if the run was stopped.
    async fn wait_for_turn(
        &self,
        mut turn: Pin<Box<impl Future<Output = Turn>>>,
        control: &RunControl,
        reporter: &mut ProgressReporter<'_>,
    ) -> Option<TurnEnd> {
        let handle = &self.guard.handle;
        let mut limit = pin!(control.sleep(self.attempt_limit()));
        let mut stopped = pin!(handle.stopped());
        let mut signal = handle.subscribe();
        let mut keeps_time = true;
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => return None,
                turn = &mut turn => return Some(TurnEnd::Returned(turn)),
                () = &mut limit, if keeps_time => {
                    // The clock of a job with calls is its deadline in the store.
                    keeps_time = handle.keeps_time();
                    if keeps_time {
                        return Some(TurnEnd::TimedOut);
                    }
                }
                signal = signal.changed() => reporter.signalled(signal),
                () = reporter.wait() => reporter.advance().await,
            }
        }
    }

    /// Returns why a sub-job is refused: the caller of a step lacks a capability, or its input, which was too large
    /// to be checked when it was created, is invalid.
    async fn refusal(&self, execution: &Execution) -> Option<Failure> {
        let RunSpec { operation, caller, input, cause, .. } = &self.spec;
        let is_sub_job = self.job.field("parent").is_some();
        // A call was permitted when it was made.
        if self.job.parent().is_some_and(|parent| parent.step().is_some()) {
            let reference = self.job.field("op").and_then(Value::as_str).unwrap_or_default();
            match execution.operations.authorise(caller, operation, reference, input).await {
                Ok(Ok(())) => {}
                Ok(Err(denial)) => return Some(Failure::new("capability_denied", denial)),
                Err(error) => return Some(Failure::transient("busy", error.to_string())),
            }
        }
        let is_new_step = *cause == Cause::Start && is_sub_job;
        if !is_new_step || operation.check_input_inline(input).is_some() {
            return None;
        }
        match execution.operations.refusal(&caller.did, operation, input).await {
            Ok(refusal) => Some(Failure::new("invalid_input", refusal?)),
            Err(error) => Some(Failure::transient("busy", error.to_string())),
        }
    }

    /// Checks the output of a turn.
    async fn checked(
        &self,
        execution: &Execution,
        turn: Turn,
        memory: &mut Reservation,
    ) -> TurnOutcome {
        if let Turn::Complete(output) = &turn
            && let Err(error) = self.reserve_output(output, memory)
        {
            return TurnOutcome::Done(Err(too_much_memory(error)));
        }
        let RunSpec { operation, caller, .. } = &self.spec;
        execution.check_turn(&caller.did, operation, turn).await
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
            let retry =
                Retry { delay, failure: &failure, fence: self.guard.handle.fence, by: None };
            match execution.record_retry(id, known.take(), retry).await {
                Ok(Changed::Done(_)) => {
                    execution.runtime.counters.retries.fetch_add(1, Ordering::Relaxed);
                    drop(self.guard);
                    return execution.notify_queued(&self.job);
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

    /// Returns the job as this run knows it.
    pub(crate) fn current(&self) -> Current {
        let mut current = Current::from_job(Arc::clone(&self.job), self.guard.handle.fence);
        current.cells = self.cells.clone();
        current
    }

    /// Ends the calls that the turn left open, however long the store is busy.
    async fn end_calls(&self, execution: &Arc<Execution>, outcome: &TurnOutcome) {
        let (id, fence) = (self.job.id(), self.guard.handle.fence);
        loop {
            match execution.end_open_calls(id, fence, outcome).await {
                Ok(()) => return,
                Err(ControlError::Store(
                    StoreError::Busy | StoreError::Full | StoreError::Contended,
                )) => execution.runtime.env.sleep(STORE_RETRY_DELAY).await,
                Err(error) => {
                    tracing::error!(job = %id, %error, "cannot end the calls of a job");
                    return;
                }
            }
        }
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
        if made_calls {
            self.end_calls(execution, &outcome).await;
        }
        // The chain of a job that made calls has grown since this run started.
        let known = Some(known).filter(|_| !made_calls);
        let ended = EndedTurn {
            outcome: &outcome,
            progress,
            fence,
            by: None,
            log: None,
            signature: None,
            execution: None,
        };
        let changed = execution.store_outcome(id, known, ended).await;
        drop(self.guard);
        match changed {
            Ok(Changed::Done(view)) if waits_for_message(view.status()) => {
                execution.wake(id).await;
            }
            // What it paused for may have changed before the pause was recorded.
            Ok(Changed::Done(view)) if view.status() == Status::Paused => {
                execution.resume_bound(id).await;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(job = %id, %error, "cannot store the outcome of a job");
            }
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

//! Starts steps: their inputs are assembled, room and memory are reserved, and the sub-job is created,
//! ended already if it can be decided at once.

use std::sync::Arc;

use catena_job::chain::Change;
use catena_job::limits::ASSEMBLED_BYTES_MAX;
use catena_job::note::{StepEnd, StepStart};
use catena_job::plan::{EvaluateError, Outputs, Step};
use catena_job::record::Parent;
use catena_job::state::Event;
use catena_job::{Job, JobId};
use catena_value::{ExtentError, Value};

use super::child_run::ChildRun;
use super::{Batch, OrchestrationState, StepHost, StepPhase};
use crate::error::{StoreError, TooMuchMemory};
use crate::execution::offer_now;
use crate::jobs::{
    Draft, append_error, deadline, depth_of, execution_limit, input_secrets, is_bound,
    outcome_change, passed_on_secrets, redact, too_much_memory,
};
use crate::limits::UNCOUNTED_BYTES_MAX;
use crate::operations::schema::Secret;
use crate::operations::{ExecutionMode, Failure, Operation, input_refusal};
use crate::requests::Invoke;
use crate::runtime::Reservation;
use crate::views::{CANNOT_START, STEP_INPUT};

/// What a remote step may see.
struct WithoutSecrets<'a> {
    state: &'a OrchestrationState,
    input: Value,
}

impl Outputs for WithoutSecrets<'_> {
    fn input(&self) -> &Value {
        &self.input
    }

    fn output(&self, step: u32) -> Option<&Value> {
        self.state.output(step)
    }
}

/// A local step whose input is assembled and whose memory is reserved.
struct ReadyStep {
    step: u32,
    target: Arc<Operation>,
    input: Value,
    memory: Reservation,
}

/// What is known of a new sub-job at once.
enum AtOnce {
    /// Its input is refused.
    Refused(String),
    /// It was executed.
    Ended(Result<Value, Failure>),
    /// It has to run.
    Runs,
}

impl OrchestrationState {
    /// Starts a step. Returns false if it has to wait for room or for memory.
    pub(super) fn start_step(
        &mut self,
        host: &dyn StepHost,
        parent: &Job,
        step: u32,
        batch: &mut Batch,
    ) -> Result<bool, StoreError> {
        let target = self.targets.get(step as usize).cloned().flatten();
        let takes_room = target
            .as_ref()
            .is_none_or(|target| target.mode() != ExecutionMode::Inline && target.plan().is_none());
        if takes_room && !self.budget.try_start((self.job, step)) {
            return Ok(false);
        }
        let assembled = self.assembled;
        let secrets = input_secrets(parent);
        let Some(input) = self.assemble(step, &secrets)? else { return Ok(true) };
        let Some(target) = target else {
            self.starting.insert(step as usize);
            batch.remote_work.push((step, self.start_remote(host, parent, step, input)));
            return Ok(true);
        };
        let memory = match self.reserve_input(&input) {
            Ok(memory) => memory,
            Err(_) if self.has_running() => {
                // There is memory when a step that runs has ended.
                self.assembled = assembled;
                self.release(step);
                return Ok(false);
            }
            Err(error) => {
                self.fail(too_much_memory(error));
                self.release(step);
                return Ok(true);
            }
        };
        let ready = ReadyStep { step, target, input, memory };
        let is_created = self.create_sub_job(host, parent, ready, batch)?;
        if !is_created {
            self.assembled = assembled;
        }
        Ok(is_created)
    }

    /// Assembles the input of a step. `None` if it cannot be, and the orchestration fails.
    fn assemble(&mut self, step: u32, secrets: &[Secret]) -> Result<Option<Value>, StoreError> {
        let plan = Arc::clone(&self.plan);
        match self.input_of(&plan.steps[step as usize], secrets) {
            Ok(input) => {
                let input = input.fully_loaded(&*self.cells);
                input.map(Some).map_err(|error| StoreError::Damaged(error.to_string()))
            }
            Err(error) => {
                let text = format!("{}{CANNOT_START}{error}", self.step_name(step));
                self.failure = Some(Failure::new(STEP_INPUT, text));
                self.release(step);
                Ok(None)
            }
        }
    }

    /// Returns the input of a step. A remote step receives no secrets.
    fn input_of(&mut self, definition: &Step, secrets: &[Secret]) -> Result<Value, EvaluateError> {
        let evaluated = if definition.venue.is_none() {
            definition.input.evaluate(self, &*self.cells)?
        } else {
            let input = redact(&self.input, secrets, "").public;
            let outputs = WithoutSecrets { state: self, input };
            definition.input.evaluate(&outputs, &*self.cells)?
        };
        self.assembled = self.assembled.saturating_add(evaluated.bytes);
        if self.assembled > ASSEMBLED_BYTES_MAX {
            return Err(EvaluateError::TooMuch(ExtentError::Bytes(ASSEMBLED_BYTES_MAX)));
        }
        Ok(evaluated.value)
    }

    /// Reserves the memory of a step's input, unless the input is one of the values that are held.
    fn reserve_input(&self, input: &Value) -> Result<Reservation, TooMuchMemory> {
        let mut memory = self.memory.open_another();
        let is_large = input.memory_bytes(UNCOUNTED_BYTES_MAX + 1) > UNCOUNTED_BYTES_MAX;
        if is_large && !self.large.contains_key(&input.id()) {
            memory.grow_for(input)?;
        }
        Ok(memory)
    }

    /// Creates the sub-job of a step. Returns false if it has to wait for room.
    fn create_sub_job(
        &mut self,
        host: &dyn StepHost,
        parent: &Job,
        ready: ReadyStep,
        batch: &mut Batch,
    ) -> Result<bool, StoreError> {
        let ReadyStep { step, target, input, memory } = ready;
        let plan = Arc::clone(&self.plan);
        let definition = &plan.steps[step as usize];
        // A clock that was set back must not make a step start before its dependencies ended.
        let now = host.now().max(parent.updated());
        let id = host.new_id();
        let mut request = Invoke::new(self.caller.clone(), definition.op.as_str(), input);
        request.depth = depth_of(parent) + 1;
        let passed_on = passed_on_secrets(&definition.input, &input_secrets(parent));
        let (mut new_job, secrets) = host.new_job(id, &request, &target, &passed_on);
        new_job.parent = Some(Parent::of_step(parent.id(), step));
        let at_once = decide_at_once(host, &request, &target, id);
        // An inline operation that runs does so as a task, on a compute thread.
        let takes_room = target.mode() == ExecutionMode::Inline;
        if matches!(at_once, AtOnce::Runs) && takes_room && !self.budget.try_start((self.job, step))
        {
            return Ok(false);
        }
        let refusal = match &at_once {
            AtOnce::Refused(refusal) => Some(refusal.as_str()),
            AtOnce::Ended(_) | AtOnce::Runs => None,
        };
        let mut child = Draft::new(new_job, now, refusal).map_err(append_error)?;
        child.store_definition(&target);
        let record = child.job().head();
        batch.started.push(StepStart { step, job: id, record, venue: None });
        match at_once {
            AtOnce::Refused(refusal) => {
                self.end_at_once(batch, step, &child, None, &refusal);
            }
            AtOnce::Ended(result) => {
                child.append(Change::new(Event::Started, now)).map_err(append_error)?;
                let (output, error) = match &result {
                    Ok(output) => (Some(output.clone()), String::new()),
                    Err(failure) => (None, failure.error.clone()),
                };
                child.append(outcome_change(result, now)).map_err(append_error)?;
                self.end_at_once(batch, step, &child, output, &error);
            }
            AtOnce::Runs => {
                self.phases[step as usize] = StepPhase::Running(id);
                if let Some(stored) = host.store_secrets(id, &secrets)? {
                    child.add(stored);
                }
                prepare_run(host, &mut child, target, (request.input, memory), batch)?;
            }
        }
        batch.children.push(child);
        Ok(true)
    }

    fn end_at_once(
        &mut self,
        batch: &mut Batch,
        step: u32,
        child: &Draft,
        output: Option<Value>,
        error: &str,
    ) {
        let status = child.job().status();
        batch.ended.push(StepEnd { step, status, record: child.job().head() });
        self.end(step, status, output, error);
    }

    /// Returns true if a sub-job runs.
    fn has_running(&self) -> bool {
        self.phases.iter().any(|phase| matches!(phase, StepPhase::Running(_)))
    }
}

/// Checks the input of a new sub-job and executes it, as far as both take no time.
fn decide_at_once(
    host: &dyn StepHost,
    request: &Invoke,
    target: &Arc<Operation>,
    id: JobId,
) -> AtOnce {
    // A large input is checked when the sub-job runs.
    let Some(conformity) = target.check_input_inline(&request.input) else { return AtOnce::Runs };
    if let Some(refusal) = input_refusal(conformity) {
        return AtOnce::Refused(refusal);
    }
    if target.mode() != ExecutionMode::Inline {
        return AtOnce::Runs;
    }
    host.run_inline(request, Arc::clone(target), id).map_or(AtOnce::Runs, AtOnce::Ended)
}

/// Makes a sub-job ready to run: STARTED if there is a slot for it, else queued.
fn prepare_run(
    host: &dyn StepHost,
    child: &mut Draft,
    operation: Arc<Operation>,
    (input, memory): (Value, Reservation),
    batch: &mut Batch,
) -> Result<(), StoreError> {
    let now = host.now();
    let job = child.job().id();
    let owner = child.job().field("caller").and_then(Value::as_str).unwrap_or_default();
    if operation.queue().is_some() || is_bound(child.job()) {
        child.add(offer_now(child.job(), now));
        batch.queued.push(job);
        return Ok(());
    }
    // A nested orchestration only waits for its steps: it occupies no slot.
    let slot = match operation.plan() {
        Some(_) => None,
        None => match host.claim_slot(owner) {
            Some(slot) => Some(slot),
            None => {
                child.add(offer_now(child.job(), now));
                batch.queued.push(job);
                return Ok(());
            }
        },
    };
    let limit = execution_limit(host.limits(), None, &operation);
    let mut started = Change::new(Event::Started, now);
    started.extra.push(("deadline", deadline(now, limit)));
    child.append(started).map_err(append_error)?;
    let guard = host.acquire(child);
    batch.runs.push(ChildRun { job, operation, input, memory, guard, slot });
    Ok(())
}

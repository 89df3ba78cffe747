//! The state of one run of an orchestration, and what follows from it.
//!
//! The state decides in memory as much as can be decided now: which steps start, what inline steps
//! return, which steps start because of that, and whether the orchestration has ended. The decision
//! is a [`Batch`], which is committed as a unit. If the commit is refused, the state is discarded
//! and rebuilt from the store: it holds nothing that the chains do not.

mod child_run;
mod people;
mod remote;
mod start;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use catena_job::chain::{AppendError, Change, NewJob};
use catena_job::note::{Note, Outcome, StepEnd, StepStart};
use catena_job::plan::{Graph, OnFailure, Outputs, Plan};
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use catena_store::{Effect, RootBudget};
use catena_value::{CellSource, Value, ValueId};

use crate::error::StoreError;
use crate::execution::{RunGuard, RunSlot};
use crate::jobs::{
    Current, Draft, LEFT_MS, NewSecrets, RemoteSnapshot, ReusedStep, append_error,
    check_output_blocking, left_ms, outcome_change, too_much_memory,
};
use crate::limits::{BATCH_BYTES_MAX, BATCH_STEPS_MAX, Limits, UNCOUNTED_BYTES_MAX};
use crate::operations::federation::RemoteCall;
use crate::operations::schema::Secret;
use crate::operations::{Failure, Operation};
use crate::orchestration::Orchestration;
use crate::orchestration::preflight::Targets;
use crate::orchestration::remote::RemoteWork;
use crate::orchestration::share::Share;
use crate::requests::{Caller, Invoke, JobView};
use crate::runtime::Reservation;
use child_run::ChildRun;

/// What a decision about steps needs of the process: time, IDs, slots, and inline operations.
pub(super) trait StepHost {
    /// Returns Unix time in ms.
    fn now(&self) -> i64;

    /// Returns a new job ID.
    fn new_id(&self) -> JobId;

    /// Returns the operator's limits.
    fn limits(&self) -> &Limits;

    /// Returns the content of the first record of a sub-job, and the secrets that it must not contain.
    fn new_job(
        &self,
        id: JobId,
        request: &Invoke,
        operation: &Operation,
        passed_on: &[Secret],
    ) -> (NewJob, NewSecrets);

    /// Returns the effect that stores the secrets of a new sub-job.
    fn store_secrets(&self, job: JobId, secrets: &NewSecrets)
    -> Result<Option<Effect>, StoreError>;

    /// Executes an inline operation. `None` if it needs a compute thread.
    fn run_inline(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        job: JobId,
    ) -> Option<Result<Value, Failure>>;

    /// Claims a slot of the process, if one is free.
    fn claim_slot(&self, owner: &str) -> Option<RunSlot>;

    /// Makes this process the holder of a sub-job and registers its run.
    fn acquire(&self, draft: &mut Draft) -> RunGuard;

    /// Returns the call that starts a remote step. The state sets its key and depth.
    fn remote_call(
        &self,
        caller: &Caller,
        venue: &str,
        operation: &str,
        input: Value,
    ) -> RemoteCall;
}

/// The phase of a step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum StepPhase {
    /// The step has not started.
    Waiting,
    /// The sub-job runs.
    Running(JobId),
    /// The sub-job waits for a message.
    Asking(Asking),
    /// The sub-job is paused.
    Paused(JobId),
    /// The sub-job has ended.
    Ended(Status),
}

/// A step that waits for a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asking {
    pub(super) job: JobId,
    status: Status,
    message: Option<String>,
    output: Option<Value>,
    /// True if the sub-job is on another venue.
    pub(super) is_remote: bool,
    /// True if nothing below the sub-job runs meanwhile.
    pub(super) is_idle: bool,
}

/// The state of one run of an orchestration.
pub(super) struct OrchestrationState {
    job: JobId,
    root: JobId,
    pub(super) plan: Arc<Plan>,
    graph: Arc<Graph>,
    operation: Arc<Operation>,
    targets: Targets,
    caller: Caller,
    input: Value,
    outputs: BTreeMap<u32, Value>,
    pub(super) phases: Vec<StepPhase>,
    pub(super) ready: BTreeSet<u32>,
    /// The number of steps that have not ended.
    open: usize,
    /// Starts of remote steps that the parent's chain does not contain yet.
    starts: Vec<StepStart>,
    /// Ends of steps that the parent's chain does not contain yet.
    ends: Vec<StepEnd>,
    /// Work for remote tasks that have not been spawned.
    remote_work: Vec<(u32, RemoteWork)>,
    /// The known state of remote steps, and the Value ID under which it is stored.
    remote: BTreeMap<u32, (RemoteSnapshot, Option<ValueId>)>,
    /// Remote steps whose state is not stored yet.
    unsaved: BTreeSet<u32>,
    /// Remote steps whose start was requested and not confirmed.
    starting: BTreeSet<usize>,
    /// Why the orchestration fails, once it is known to.
    failure: Option<Failure>,
    /// What the root may run at a time.
    pub(super) budget: Arc<RootBudget>,
    /// Drivers that may start a step because one of these steps ended.
    room_for: BTreeSet<JobId>,
    /// The size of all step inputs that were assembled so far, in bytes.
    assembled: u64,
    /// The memory that the input and the outputs take.
    memory: Reservation,
    /// Large values among them: equal ones are held once.
    large: HashMap<ValueId, Value>,
    cells: Arc<dyn CellSource + Send + Sync>,
}

/// A decision, which is committed as a unit.
#[derive(Default)]
pub(super) struct Batch {
    /// New sub-jobs.
    pub(super) children: Vec<Draft>,
    /// Sub-jobs to run once they are durable.
    pub(super) runs: Vec<ChildRun>,
    /// Sub-jobs that were queued.
    pub(super) queued: Vec<JobId>,
    /// Work for remote tasks, to be spawned once the job is durable.
    pub(super) remote_work: Vec<(u32, RemoteWork)>,
    started: Vec<StepStart>,
    ended: Vec<StepEnd>,
}

/// Loads a value of a sub-job, whose cells may be stored with the sub-job.
fn loaded(value: Value, view: &JobView) -> Value {
    match view.cells {
        Some(_) => value.fully_loaded(view.cells()).unwrap_or(value),
        None => value,
    }
}

impl Outputs for OrchestrationState {
    fn input(&self) -> &Value {
        &self.input
    }

    fn output(&self, step: u32) -> Option<&Value> {
        self.outputs.get(&step)
    }
}

impl OrchestrationState {
    /// Creates the state of a run in which no step has started.
    pub(super) fn new(
        share: Share,
        cells: Arc<dyn CellSource + Send + Sync>,
        operation: &Arc<Operation>,
        plan: &Arc<Plan>,
        targets: Targets,
        caller: Caller,
        input: Value,
    ) -> OrchestrationState {
        let graph = operation.graph().unwrap_or_else(|| Arc::new(plan.graph()));
        let mut state = OrchestrationState {
            job: share.job,
            root: share.root,
            ready: graph.first_steps().into_iter().collect(),
            phases: vec![StepPhase::Waiting; plan.steps.len()],
            open: plan.steps.len(),
            plan: Arc::clone(plan),
            graph,
            operation: Arc::clone(operation),
            targets,
            caller,
            input: Value::Nil,
            outputs: BTreeMap::new(),
            assembled: 0,
            memory: share.memory,
            large: HashMap::new(),
            starts: Vec::new(),
            ends: Vec::new(),
            remote_work: Vec::new(),
            remote: BTreeMap::new(),
            unsaved: BTreeSet::new(),
            starting: BTreeSet::new(),
            failure: None,
            budget: share.budget,
            room_for: BTreeSet::new(),
            cells,
        };
        state.input = state.hold(input);
        state
    }

    /// Reserves the memory of a value, and returns the value that is held: an equal one, if there is
    /// one. The orchestration fails if there is no memory for it.
    fn hold(&mut self, value: Value) -> Value {
        let bytes = value.memory_bytes(UNCOUNTED_BYTES_MAX + 1);
        let reserved = if bytes <= UNCOUNTED_BYTES_MAX {
            self.memory.grow(bytes)
        } else {
            let id = value.id();
            if let Some(held) = self.large.get(&id) {
                return held.clone();
            }
            self.large.insert(id, value.clone());
            self.memory.grow_for(&value)
        };
        if let Err(error) = reserved {
            self.fail(too_much_memory(error));
        }
        value
    }

    /// Returns the state of the same run in which no step has started. Steps keep their room until it
    /// is known which of them run.
    pub(super) fn reset(&self) -> OrchestrationState {
        OrchestrationState::new(
            Share {
                job: self.job,
                root: self.root,
                budget: Arc::clone(&self.budget),
                memory: self.memory.open_another(),
            },
            Arc::clone(&self.cells),
            &self.operation,
            &self.plan,
            self.targets.clone(),
            self.caller.clone(),
            self.input.clone(),
        )
    }

    /// Reads the state of the steps from the parent's chain and the sub-jobs.
    pub(super) async fn catch_up(
        &mut self,
        orchestration: &Orchestration,
        parent: &Current,
    ) -> Result<(), StoreError> {
        for reused in orchestration.jobs.reused_outputs(parent).await? {
            match reused {
                Ok(reused) => self.reuse(reused),
                Err(step) => self.lose_reused(step),
            }
        }
        for (step, state) in parent.job.steps() {
            let index = *step as usize;
            if index >= self.phases.len() {
                continue;
            }
            self.ready.remove(step);
            self.phases[index] = StepPhase::Running(state.start.job);
            if state.start.venue.is_some() {
                self.catch_up_remote(orchestration, &parent.job, *step, state).await?;
                continue;
            }
            let Some(child) = orchestration.jobs.current(state.start.job).await? else {
                let text = format!("the sub-job of step {step} was deleted");
                self.failure = Some(Failure::new("step_gone", text));
                continue;
            };
            let view = orchestration.views.view(child);
            self.update(*step, &view, state.end.is_some());
        }
        self.release_unstarted();
        Ok(())
    }

    /// Gives back the room of steps that were to start, because the commit that started them was
    /// refused.
    fn release_unstarted(&mut self) {
        let waits = |(step, phase): (usize, &StepPhase)| {
            u32::try_from(step).ok().filter(|_| *phase == StepPhase::Waiting)
        };
        let waiting: Vec<u32> = self.phases.iter().enumerate().filter_map(waits).collect();
        waiting.into_iter().for_each(|step| self.release(step));
    }

    /// Takes over the output of a step of an earlier run.
    pub(super) fn reuse(&mut self, reused: ReusedStep) {
        self.ready.remove(&reused.step);
        self.end(reused.step, Status::Complete, Some(reused.output), "");
        self.ready.retain(|step| self.phases[*step as usize] == StepPhase::Waiting);
    }

    /// Fails the orchestration unless it has failed already.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Fails the orchestration, because the output of a step that it reuses is missing. The step has
    /// run, so it must not run again.
    fn lose_reused(&mut self, step: u32) {
        self.ready.remove(&step);
        let text = format!("the output of {} is no longer stored", self.step_name(step));
        self.failure.get_or_insert_with(|| Failure::new("step_gone", text));
    }

    /// Applies the current state of a sub-job. `is_recorded` is true if the parent's chain contains its
    /// end.
    pub(super) fn update(&mut self, step: u32, view: &JobView, is_recorded: bool) {
        let index = step as usize;
        if index >= self.phases.len() || matches!(self.phases[index], StepPhase::Ended(_)) {
            return;
        }
        let job = &view.job;
        let status = job.status();
        match status {
            Status::InputRequired | Status::AuthRequired => {
                let message = job.field("message").and_then(Value::to_text);
                let message = message.map(|message| message.into_owned());
                let output = job.field("output").cloned().map(|output| loaded(output, view));
                let is_plain = job.steps().is_empty() && job.calls().is_empty();
                let is_idle = is_plain || job.field(LEFT_MS).is_some_and(|left| !left.is_nil());
                let (job, is_remote) = (job.id(), false);
                let asking = Asking { job, status, message, output, is_remote, is_idle };
                self.phases[index] = StepPhase::Asking(asking);
                self.release(step);
            }
            Status::Paused => {
                self.phases[index] = StepPhase::Paused(job.id());
                self.release(step);
            }
            status if !status.is_terminal() => {
                self.phases[index] = StepPhase::Running(job.id());
                if !self.is_nested(step) {
                    self.budget.count((self.job, step));
                }
            }
            status => {
                if !is_recorded {
                    self.ends.push(StepEnd { step, status, record: job.head() });
                }
                let error = job.field("error").and_then(Value::to_text).unwrap_or_default();
                let output = job.field("output").cloned().map(|output| loaded(output, view));
                self.end(step, status, output, &error);
            }
        }
    }

    /// Ends a step.
    fn end(&mut self, step: u32, status: Status, output: Option<Value>, error: &str) {
        self.phases[step as usize] = StepPhase::Ended(status);
        self.release(step);
        self.open = self.open.saturating_sub(1);
        if status == Status::Complete {
            let output = self.hold(output.unwrap_or_default());
            self.outputs.insert(step, output);
            let has_ended = |need: u32| self.outputs.contains_key(&need);
            // A step that depends on a remote step may have started before a restart, because
            // the end of the remote step is read again.
            let next = self.graph.next_steps(step, has_ended).into_iter();
            let waits = |next: &u32| self.phases[*next as usize] == StepPhase::Waiting;
            self.ready.extend(next.filter(waits));
        } else if self.failure.is_none() {
            let text = format!("{} ended as {status}: {error}", self.step_name(step));
            self.failure = Some(Failure::new("step_failed", text));
        }
    }

    /// Makes room for another step, because this one does not run any more.
    fn release(&mut self, step: u32) {
        let next = self.budget.release((self.job, step));
        self.room_for.extend(next);
    }

    /// Returns the drivers that may start a step because steps of this one do not run any more.
    pub(super) fn take_room_for(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.room_for)
    }

    /// Returns true if a step is an orchestration, which only waits for its own steps.
    fn is_nested(&self, step: u32) -> bool {
        let target = self.targets.get(step as usize).and_then(Option::as_ref);
        target.is_some_and(|target| target.plan().is_some())
    }

    /// Returns the sub-jobs that have not ended, on this venue.
    pub(super) fn open_sub_jobs(&self) -> Vec<JobId> {
        let open = |phase: &StepPhase| match phase {
            StepPhase::Running(job) | StepPhase::Paused(job) => Some(*job),
            StepPhase::Asking(asking) => Some(asking.job),
            StepPhase::Waiting | StepPhase::Ended(_) => None,
        };
        self.phases.iter().filter_map(open).collect()
    }

    /// Returns true if a step may start as soon as there is room for it.
    pub(super) fn wants_room(&self) -> bool {
        !self.ready.is_empty() && self.failure.is_none()
    }

    /// Returns the root of the tree, and what it may run at a time.
    pub(super) fn root_budget(&self) -> (JobId, &RootBudget) {
        (self.root, &*self.budget)
    }

    /// Returns true if remote steps have not ended: their tasks need a driver.
    pub(super) fn has_open_remote(&self) -> bool {
        let is_open = |step: &u32| !matches!(self.phases[*step as usize], StepPhase::Ended(_));
        let starting = self.plan.steps.iter().enumerate().any(|(step, definition)| {
            definition.venue.is_some()
                && self.phases[step] == StepPhase::Waiting
                && u32::try_from(step).is_ok_and(|step| !self.ready.contains(&step))
                && self.starting.contains(&step)
        });
        starting || self.remote.keys().any(is_open)
    }

    /// Returns the name of a step for error texts.
    pub(super) fn step_name(&self, step: u32) -> String {
        match self.plan.steps.get(step as usize).and_then(|step| step.name.as_deref()) {
            Some(name) => format!("step {step} ({name})"),
            None => format!("step {step}"),
        }
    }

    /// Returns true if running steps are cancelled when another step fails.
    pub(super) fn cancels_on_failure(&self) -> bool {
        self.plan.on_failure == OnFailure::Cancel
    }

    /// Returns the number of ended steps and of all steps.
    pub(super) fn progress(&self) -> (usize, usize) {
        let total = self.plan.steps.len();
        (total.saturating_sub(self.open), total)
    }

    /// Returns true if there is something to decide or to record about the parent job.
    pub(super) fn needs_decision(&self, parent: &Job) -> bool {
        let status = parent.status();
        let is_interactive = matches!(status, Status::InputRequired | Status::AuthRequired);
        let waits = self.waits_for_people();
        let changes_status = match self.asking() {
            Some(_) => {
                status == Status::Started || is_interactive && left_ms(parent).is_some() != waits
            }
            None => is_interactive || status == Status::Started && waits,
        };
        changes_status || self.has_changes()
    }

    fn has_changes(&self) -> bool {
        !self.starts.is_empty()
            || !self.ends.is_empty()
            || !self.remote_work.is_empty()
            || !self.unsaved.is_empty()
            || !self.ready.is_empty()
            || self.failure.is_some()
            || self.open == 0
    }

    /// Decides as much as can be decided now and appends it to the parent's draft.
    pub(super) fn advance(
        &mut self,
        host: &dyn StepHost,
        parent: &mut Draft,
    ) -> Result<Batch, StoreError> {
        let mut batch = Batch {
            started: std::mem::take(&mut self.starts),
            ended: std::mem::take(&mut self.ends),
            remote_work: std::mem::take(&mut self.remote_work),
            ..Batch::default()
        };
        let may_start = parent.job().status() != Status::Paused;
        let assembled = self.assembled;
        while may_start
            && self.failure.is_none()
            && batch.started.len() < BATCH_STEPS_MAX
            && self.assembled - assembled < BATCH_BYTES_MAX
        {
            let Some(step) = self.ready.first().copied() else { break };
            if !self.start_step(host, parent.job(), step, &mut batch)? {
                break;
            }
            self.ready.remove(&step);
        }
        self.store_snapshots(parent);
        if !batch.started.is_empty() {
            parent.add(Effect::CountSubJobs {
                root: self.root,
                count: batch.started.len() as u64,
                max: host.limits().sub_jobs_per_root_max,
            });
        }
        self.record(host, parent, &mut batch)?;
        Ok(batch)
    }

    /// Records the decision in the parent's draft.
    fn record(
        &mut self,
        host: &dyn StepHost,
        parent: &mut Draft,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let now = host.now();
        let started = std::mem::take(&mut batch.started);
        let ended = std::mem::take(&mut batch.ended);
        if !started.is_empty() || !ended.is_empty() {
            let note = Note::Step { started, ended };
            match parent.append(Change::new(Event::Noted(note), now)) {
                Ok(()) => {}
                Err(AppendError::HistoryFull) => {
                    let full = AppendError::HistoryFull.to_string();
                    self.failure = Some(Failure::new("history_full", full));
                    // Nothing starts that the chain does not know.
                    batch.children.clear();
                    batch.runs.clear();
                    batch.queued.clear();
                }
                Err(error) => return Err(append_error(error)),
            }
        }
        let done = match &self.failure {
            Some(failure) => Err(failure.clone()),
            None if self.open == 0 => self.result(),
            None => return self.ask_or_continue(host, parent),
        };
        match parent.job().status() {
            Status::Paused if parent.job().held().is_some() => Ok(()),
            Status::Paused => {
                let held = match done {
                    Ok(output) => Outcome::complete(output),
                    Err(failure) => Outcome::failed(&failure.error),
                };
                let note = Note::Held(Some(held));
                parent.append(Change::new(Event::Noted(note), now)).map_err(append_error)
            }
            status => {
                if status != Status::Started {
                    parent.append(Change::new(Event::Answered, now)).map_err(append_error)?;
                }
                parent.append(outcome_change(done, now)).map_err(append_error)
            }
        }
    }

    /// Returns the output of the orchestration.
    fn result(&self) -> Result<Value, Failure> {
        let cells = Arc::clone(&self.cells);
        let result = self.plan.result.evaluate(self, &*cells);
        let output = result.map_err(|error| {
            Failure::new("result_input", format!("the result cannot be assembled: {error}"))
        })?;
        let output = output.value.fully_loaded(&*cells);
        let output = output.map_err(|error| Failure::new("damaged", error.to_string()))?;
        check_output_blocking(&self.operation, &output)?;
        Ok(output)
    }
}

//! The state of one run of an orchestration, and what follows from it.
//!
//! The weave decides, in memory, as much as can be decided now: which steps begin, what instant
//! ones give, what begins because of that, and whether the whole has ended. What it decided is a
//! batch, committed as a whole. If the commit is refused, the weave is thrown away and made anew
//! from what is stored: it holds nothing that the chains do not.

mod away;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catena_job::chain::{AppendError, Change};
use catena_job::limits::ASSEMBLED_BYTES_MAX;
use catena_job::note::{Note, Outcome, StepEnd, StepStart};
use catena_job::plan::{EvaluateError, Graph, OnFailure, Outputs, Plan, Step};
use catena_job::record::Parent;
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use catena_store::Effect;
use catena_value::{CellSource, ExtentError, Value, ValueId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::depth_of;
use super::elsewhere::RemoteSnapshot;
use super::remote::Errand;
use super::targets::Targets;
use crate::adapter::{Cause, ExecutionMode, Failure};
use crate::caller::Caller;
use crate::change::{Current, Draft, cut};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::operation::Operation;
use crate::request::{Invoke, JobView};
use crate::rerun::Reused;
use crate::run::{Run, unwritten};
use crate::schema::Secret;
use crate::sealed;
use crate::submit::{check_output, compute, deadline, offer, outcome, refusal};

/// Steps that begin in one commit: enough to share its sync, few enough that others need not wait
/// long for it.
const BATCH_STEPS_MAX: usize = 128;

/// Where a step stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepPhase {
    /// Not begun.
    Waiting,
    /// Being carried out.
    Running(JobId),
    /// Waits for somebody.
    Asking(Asking),
    /// Ended.
    Ended(Status),
}

/// A step that waits for somebody.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asking {
    pub(crate) job: JobId,
    status: Status,
    message: Option<String>,
    output: Option<Value>,
    /// Whether the job is on another venue.
    pub(crate) is_away: bool,
}

/// One run of an orchestration.
pub(crate) struct Weave {
    pub(crate) plan: Arc<Plan>,
    graph: Arc<Graph>,
    operation: Arc<Operation>,
    targets: Targets,
    caller: Caller,
    input: Value,
    outputs: BTreeMap<u32, Value>,
    pub(crate) phases: Vec<StepPhase>,
    ready: BTreeSet<u32>,
    left: usize,
    /// Beginnings on other venues that the parent's chain does not say yet.
    starts: Vec<StepStart>,
    /// Ends that the parent's chain does not say yet.
    ends: Vec<StepEnd>,
    /// Jobs on other venues that somebody must ask for.
    errands: Vec<(u32, Errand)>,
    /// What is known of jobs on other venues, and under which ID it is stored.
    away: BTreeMap<u32, (RemoteSnapshot, Option<ValueId>)>,
    /// Those of which something is not stored yet.
    unkept: BTreeSet<u32>,
    /// Why the whole fails, once a step did.
    failure: Option<Failure>,
    /// How many more sub-jobs of this root may run.
    pub(crate) budget: Arc<Semaphore>,
    permits: BTreeMap<u32, OwnedSemaphorePermit>,
    /// Bytes of inputs that were put together so far.
    assembled: u64,
    cells: Arc<dyn CellSource + Send + Sync>,
}

/// What a step that runs elsewhere may see.
struct WithoutSecrets<'a> {
    weave: &'a Weave,
    input: Value,
}

impl Outputs for WithoutSecrets<'_> {
    fn input(&self) -> &Value {
        &self.input
    }

    fn output(&self, step: u32) -> Option<&Value> {
        self.weave.output(step)
    }
}

/// What was decided, to be committed as a whole.
#[derive(Default)]
pub(crate) struct Batch {
    /// New sub-jobs.
    pub(crate) children: Vec<Draft>,
    /// Those that are to be carried out once they are durable.
    pub(crate) runs: Vec<ChildRun>,
    /// Those that wait in the queue.
    pub(crate) queued: Vec<JobId>,
    /// Steps to begin on other venues, once the job is durable.
    pub(crate) errands: Vec<(u32, Errand)>,
    started: Vec<StepStart>,
    ended: Vec<StepEnd>,
}

/// A sub-job that is to be carried out.
pub(crate) struct ChildRun {
    pub(crate) job: JobId,
    pub(crate) operation: Arc<Operation>,
    pub(crate) input: Value,
    pub(crate) held: crate::running::Held,
    pub(crate) slot: Option<OwnedSemaphorePermit>,
}

impl ChildRun {
    /// The run, now that the job is durable.
    pub(crate) fn into_run(self, engine: &Engine, caller: &Caller, view: &JobView) -> Run {
        let left = engine.limit_of(&view.job, &self.operation);
        Run {
            job: (*view.job).clone(),
            cells: None,
            operation: self.operation,
            caller: caller.clone(),
            input: self.input,
            cause: Cause::Start,
            left,
            held: self.held,
            slot: self.slot,
        }
    }
}

/// A value of a sub-job. A part of it that is not loaded here may lie in the sub-job's own rows.
fn loaded(value: Value, view: &JobView) -> Value {
    match view.cells {
        Some(_) => value.fully_loaded(view.cells()).unwrap_or(value),
        None => value,
    }
}

impl Outputs for Weave {
    fn input(&self) -> &Value {
        &self.input
    }

    fn output(&self, step: u32) -> Option<&Value> {
        self.outputs.get(&step)
    }
}

impl Weave {
    /// A run that begins.
    pub(crate) fn new(
        engine: &Engine,
        operation: &Arc<Operation>,
        plan: &Arc<Plan>,
        targets: Targets,
        caller: Caller,
        input: Value,
        budget: Arc<Semaphore>,
    ) -> Weave {
        let graph = operation.graph().unwrap_or_else(|| Arc::new(plan.graph()));
        Weave {
            ready: graph.first_steps().into_iter().collect(),
            phases: vec![StepPhase::Waiting; plan.steps.len()],
            left: plan.steps.len(),
            plan: Arc::clone(plan),
            graph,
            operation: Arc::clone(operation),
            targets,
            caller,
            input,
            outputs: BTreeMap::new(),
            assembled: 0,
            starts: Vec::new(),
            ends: Vec::new(),
            errands: Vec::new(),
            away: BTreeMap::new(),
            unkept: BTreeSet::new(),
            failure: None,
            budget,
            permits: BTreeMap::new(),
            cells: engine.0.store.cells(),
        }
    }

    /// The same run, knowing nothing yet.
    pub(crate) fn afresh(&self, engine: &Engine) -> Weave {
        let (caller, input) = (self.caller.clone(), self.input.clone());
        let (targets, budget) = (self.targets.clone(), Arc::clone(&self.budget));
        Weave::new(engine, &self.operation, &self.plan, targets, caller, input, budget)
    }

    /// Takes over what the parent's chain and its sub-jobs say.
    pub(crate) async fn catch_up(
        &mut self,
        engine: &Engine,
        parent: &Current,
    ) -> Result<(), StoreError> {
        for reused in engine.taken_over(parent).await? {
            self.reuse(reused);
        }
        for (step, state) in parent.job.steps() {
            let index = *step as usize;
            if index >= self.phases.len() {
                continue;
            }
            self.ready.remove(step);
            self.phases[index] = StepPhase::Running(state.start.job);
            if state.start.venue.is_some() {
                self.catch_up_away(engine, &parent.job, *step, state).await?;
                continue;
            }
            let Some(child) = engine.current(state.start.job).await? else {
                let text = format!("the sub-job of step {step} is gone");
                self.failure = Some(Failure::new("step_gone", text));
                continue;
            };
            self.permits
                .extend(Arc::clone(&self.budget).try_acquire_owned().ok().map(|p| (*step, p)));
            self.learn(*step, &engine.view(child), state.end.is_some());
        }
        Ok(())
    }

    /// Takes over the output of a step of an earlier run.
    pub(crate) fn reuse(&mut self, reused: Reused) {
        self.ready.remove(&reused.step);
        self.end(reused.step, Status::Complete, Some(reused.output), "");
        self.ready.retain(|step| self.phases[*step as usize] == StepPhase::Waiting);
    }

    /// Learns how a sub-job stands.
    pub(crate) fn learn(&mut self, step: u32, view: &JobView, is_recorded: bool) {
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
                let asking = Asking { job: job.id(), status, message, output, is_away: false };
                self.phases[index] = StepPhase::Asking(asking);
                // Whoever waits for people takes no place of those who work.
                self.permits.remove(&step);
            }
            status if !status.is_terminal() => {
                self.phases[index] = StepPhase::Running(job.id());
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

    /// A step has ended.
    fn end(&mut self, step: u32, status: Status, output: Option<Value>, error: &str) {
        self.phases[step as usize] = StepPhase::Ended(status);
        self.permits.remove(&step);
        self.left = self.left.saturating_sub(1);
        if status == Status::Complete {
            self.outputs.insert(step, output.unwrap_or_default());
            let has_ended = |need: u32| self.outputs.contains_key(&need);
            // One that needs what ran elsewhere may have begun in an earlier life: its end is
            // asked for again.
            let next = self.graph.next_steps(step, has_ended).into_iter();
            let waits = |next: &u32| self.phases[*next as usize] == StepPhase::Waiting;
            self.ready.extend(next.filter(waits));
        } else if self.failure.is_none() {
            let text = format!("{} ended as {status}: {error}", self.called(step));
            self.failure = Some(Failure::new("step_failed", text));
        }
    }

    /// A step as people call it.
    pub(crate) fn called(&self, step: u32) -> String {
        match self.plan.steps.get(step as usize).and_then(|step| step.name.as_deref()) {
            Some(name) => format!("step {step} ({name})"),
            None => format!("step {step}"),
        }
    }

    /// What a step that waits for somebody says.
    pub(crate) fn asked(&self, step: u32) -> String {
        let message = match self.phases.get(step as usize) {
            Some(StepPhase::Asking(asking)) => asking.message.as_deref(),
            _ => None,
        };
        let message = message.map_or_else(String::new, |message| format!(": {message}"));
        format!("{} waits{message}", self.called(step))
    }

    /// The first step that waits for somebody.
    pub(crate) fn asking(&self) -> Option<(u32, &Asking)> {
        self.phases.iter().enumerate().find_map(|(step, phase)| match phase {
            StepPhase::Asking(asking) => Some((u32::try_from(step).ok()?, asking)),
            _ => None,
        })
    }

    /// Whether steps that run when another fails are cancelled.
    pub(crate) fn cancels_on_failure(&self) -> bool {
        self.plan.on_failure == OnFailure::Cancel
    }

    /// How many steps have ended, and how many there are.
    pub(crate) fn ended(&self) -> (usize, usize) {
        let total = self.plan.steps.len();
        (total.saturating_sub(self.left), total)
    }

    /// Whether there is something to write down.
    pub(crate) fn has_news(&self) -> bool {
        !self.starts.is_empty()
            || !self.ends.is_empty()
            || !self.errands.is_empty()
            || !self.unkept.is_empty()
            || !self.ready.is_empty()
            || self.failure.is_some()
            || self.left == 0
    }

    /// Decides as much as can be decided now and appends it to the parent's draft.
    pub(crate) fn advance(
        &mut self,
        engine: &Engine,
        parent: &mut Draft,
    ) -> Result<Batch, StoreError> {
        let mut batch = Batch {
            started: std::mem::take(&mut self.starts),
            ended: std::mem::take(&mut self.ends),
            errands: std::mem::take(&mut self.errands),
            ..Batch::default()
        };
        let may_begin = parent.job().status() != Status::Paused;
        while may_begin && self.failure.is_none() && batch.started.len() < BATCH_STEPS_MAX {
            let Some(step) = self.ready.first().copied() else { break };
            if !self.begin(engine, parent.job(), step, &mut batch)? {
                break;
            }
            self.ready.remove(&step);
        }
        self.keep_sightings(parent);
        self.write(engine, parent, &mut batch)?;
        Ok(batch)
    }

    /// Begins a step. Whether there was room for it.
    fn begin(
        &mut self,
        engine: &Engine,
        parent: &Job,
        step: u32,
        batch: &mut Batch,
    ) -> Result<bool, StoreError> {
        let plan = Arc::clone(&self.plan);
        let definition = &plan.steps[step as usize];
        let target = self.targets.get(step as usize).cloned().flatten();
        let is_instant =
            target.as_ref().is_some_and(|target| target.mode() == ExecutionMode::Inline);
        let only_waits = target.as_ref().is_some_and(|target| target.plan().is_some());
        let mut permit = None;
        if !is_instant && !only_waits {
            let Ok(place) = Arc::clone(&self.budget).try_acquire_owned() else { return Ok(false) };
            permit = Some(place);
        }
        let secrets = sealed::input_secrets(parent);
        let input = match self.input_of(definition, &secrets) {
            Ok(input) => input,
            Err(error) => {
                let text = format!("{} cannot begin: {error}", self.called(step));
                self.failure = Some(Failure::new("step_input", text));
                return Ok(true);
            }
        };
        self.permits.extend(permit.map(|permit| (step, permit)));
        let input = input.fully_loaded(&*self.cells);
        let input = input.map_err(|error| StoreError::Damaged(error.to_string()))?;
        let Some(target) = target else {
            batch.errands.push((step, self.errand(engine, parent, step, input)));
            return Ok(true);
        };
        // A clock that went back does not make a step begin before what it needs has ended.
        let (now, id) = (engine.now().max(parent.updated()), engine.new_id());
        let mut request = Invoke::new(self.caller.clone(), definition.op.as_str(), input);
        request.depth = depth_of(parent) + 1;
        let passed_on = sealed::passed_on(&definition.input, &secrets);
        let opened = engine.opening(id, &request, &target, &passed_on);
        let (mut opening, secrets) =
            opened.map_err(|error| StoreError::Damaged(error.to_string()))?;
        opening.parent = Some(Parent { job: parent.id(), step });
        let refused = refusal(&target, &request.input);
        let mut child = Draft::open(opening, now, refused.as_deref()).map_err(unwritten)?;
        let record = child.job().head();
        batch.started.push(StepStart { step, job: id, record, venue: None });
        if let Some(refused) = refused {
            self.ended_at_once(batch, step, &child, Status::Rejected, None, &refused);
        } else if is_instant {
            child.append(Change::new(Event::Started, now)).map_err(unwritten)?;
            let done = compute(&engine.call(&request, target, Some(id)));
            let (output, error) = match &done {
                Ok(output) => (Some(output.clone()), String::new()),
                Err(failure) => (None, failure.error.clone()),
            };
            child.append(outcome(done, now)).map_err(unwritten)?;
            let status = child.job().status();
            self.ended_at_once(batch, step, &child, status, output, &error);
        } else {
            self.phases[step as usize] = StepPhase::Running(id);
            if let Some(kept) = secrets.keep(engine, id)? {
                child.with(kept);
            }
            self.prepare(engine, &mut child, target, request.input, batch)?;
        }
        batch.children.push(child);
        Ok(true)
    }

    /// The input of a step. What runs elsewhere sees no secrets.
    fn input_of(&mut self, definition: &Step, secrets: &[Secret]) -> Result<Value, EvaluateError> {
        let evaluated = match definition.venue.is_none() {
            true => definition.input.evaluate(self, &*self.cells)?,
            false => {
                let input = sealed::part(&self.input, secrets, "").open;
                let open = WithoutSecrets { weave: self, input };
                definition.input.evaluate(&open, &*self.cells)?
            }
        };
        self.assembled = self.assembled.saturating_add(evaluated.bytes);
        match self.assembled <= ASSEMBLED_BYTES_MAX {
            true => Ok(evaluated.value),
            false => Err(EvaluateError::TooMuch(ExtentError::Bytes(ASSEMBLED_BYTES_MAX))),
        }
    }

    /// Makes a sub-job ready to run: STARTED when there is a place for it, else queued.
    fn prepare(
        &self,
        engine: &Engine,
        child: &mut Draft,
        operation: Arc<Operation>,
        input: Value,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let (now, job) = (engine.now(), child.job().id());
        // A nested orchestration only waits for others: it needs no place.
        let slot = match operation.plan() {
            Some(_) => None,
            None => match Arc::clone(&engine.0.slots).try_acquire_owned() {
                Ok(slot) => Some(slot),
                Err(_) => {
                    child.with(offer(job, now));
                    batch.queued.push(job);
                    return Ok(());
                }
            },
        };
        let limit = engine.execution_limit(None, &operation);
        let mut begun = Change::new(Event::Started, now);
        begun.extra.push(("deadline", deadline(now, limit)));
        child.append(begun).map_err(unwritten)?;
        let held = engine.0.running.take(job, None).ok_or(StoreError::Contended)?;
        batch.runs.push(ChildRun { job, operation, input, held, slot });
        Ok(())
    }

    fn ended_at_once(
        &mut self,
        batch: &mut Batch,
        step: u32,
        child: &Draft,
        status: Status,
        output: Option<Value>,
        error: &str,
    ) {
        batch.ended.push(StepEnd { step, status, record: child.job().head() });
        self.end(step, status, output, error);
    }

    /// Writes what was decided into the parent's draft.
    fn write(
        &mut self,
        engine: &Engine,
        parent: &mut Draft,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let now = engine.now();
        let started = std::mem::take(&mut batch.started);
        let ended = std::mem::take(&mut batch.ended);
        if !started.is_empty() || !ended.is_empty() {
            let note = Note::Step { started, ended };
            match parent.append(Change::new(Event::Noted(note), now)) {
                Ok(()) => {}
                Err(AppendError::HistoryFull) => {
                    let full = AppendError::HistoryFull.to_string();
                    self.failure = Some(Failure::new("history_full", full));
                }
                Err(error) => return Err(unwritten(error)),
            }
        }
        let done = match &self.failure {
            Some(failure) => Err(failure.clone()),
            None if self.left == 0 => self.result(),
            None => return self.ask_or_go_on(engine, parent),
        };
        match parent.job().status() {
            Status::Paused if parent.job().held().is_some() => Ok(()),
            Status::Paused => {
                let held = match done {
                    Ok(output) => Outcome::complete(output),
                    Err(failure) => Outcome::failed(&failure.error),
                };
                let note = Note::Held(Some(held));
                parent.append(Change::new(Event::Noted(note), now)).map_err(unwritten)
            }
            status => {
                if status != Status::Started {
                    parent.append(Change::new(Event::Answered, now)).map_err(unwritten)?;
                }
                parent.append(outcome(done, now)).map_err(unwritten)
            }
        }
    }

    /// The output of the whole.
    fn result(&self) -> Result<Value, Failure> {
        let cells = Arc::clone(&self.cells);
        let result = self.plan.result.evaluate(self, &*cells);
        let output = result.map_err(|error| {
            Failure::new("result_input", format!("the result cannot be put together: {error}"))
        })?;
        let output = output.value.fully_loaded(&*cells);
        let output = output.map_err(|error| Failure::new("damaged", error.to_string()))?;
        check_output(&self.operation, &output)?;
        Ok(output)
    }

    /// A step that asks makes the whole ask; when none does any more, the whole goes on.
    fn ask_or_go_on(&self, engine: &Engine, parent: &mut Draft) -> Result<(), StoreError> {
        let now = engine.now();
        let status = parent.job().status();
        match self.asking() {
            Some((step, asking)) if status == Status::Started => {
                let ask = catena_job::state::Ask {
                    message: Some(cut(&self.asked(step))),
                    output: asking.output.clone(),
                };
                let event = match asking.status {
                    Status::AuthRequired => Event::AskedForAuth(ask),
                    _ => Event::AskedForInput(ask),
                };
                let mut change = Change::new(event, now);
                let waits = deadline(now, engine.0.limits.interactive);
                change.extra.push(("deadline", waits));
                parent.append(change).map_err(unwritten)
            }
            None if matches!(status, Status::InputRequired | Status::AuthRequired) => {
                parent.append(Change::new(Event::Answered, now)).map_err(unwritten)
            }
            _ => Ok(()),
        }
    }

    /// Routes a message that came for the whole to the step that waits for one.
    pub(crate) fn route(
        &mut self,
        engine: &Engine,
        current: &Current,
        message: catena_store::Message,
    ) -> Result<Option<(Draft, JobId)>, StoreError> {
        let Some((step, child)) = self.asking().map(|(step, asking)| (step, asking.job)) else {
            return Ok(None);
        };
        let parent = current.job.id();
        let (trigger, shown) = crate::message::shown(&message);
        let mut change = Change::new(Event::Answered, engine.now());
        change.trigger = Some(trigger);
        change.extra.push(("received", shown));
        let mut draft = current.draft();
        draft.append(change).map_err(unwritten)?;
        draft.with(Effect::Take { job: parent, number: message.number });
        let body = crate::message::resealed(engine, parent, child, message.body)?;
        let message = catena_store::Message { number: 0, id: message.id, body };
        draft.with(Effect::Send { job: child, message });
        self.phases[step as usize] = StepPhase::Running(child);
        Ok(Some((draft, child)))
    }
}

//! Tables of what [`OrchestrationState::advance`] decides. They need no running engine.

use std::cell::Cell;
use std::collections::HashMap;

use catena_job::plan::Plan;
use catena_value::NoCells;
use tokio::sync::Semaphore;

use super::*;
use crate::execution::RunRegistry;
use crate::orchestration::test_operations::operation;
use crate::runtime::MemoryBudget;

/// A budget of a root below which nothing runs.
fn counted_budget() -> Arc<RootBudget> {
    let budget = RootBudget::new(256);
    budget.set_counted();
    Arc::new(budget)
}

/// A host without an engine: inline operations return their input or fail by their name.
struct FakeHost {
    ids: Cell<u8>,
    limits: Limits,
    slots: Arc<Semaphore>,
    registry: Arc<RunRegistry>,
}

impl FakeHost {
    fn new(slots: usize) -> Self {
        FakeHost {
            ids: Cell::new(1),
            limits: Limits::default(),
            slots: Arc::new(Semaphore::new(slots)),
            registry: Arc::default(),
        }
    }
}

impl StepHost for FakeHost {
    fn now(&self) -> i64 {
        1_000
    }

    fn new_id(&self) -> JobId {
        self.ids.set(self.ids.get() + 1);
        JobId::from_bytes([self.ids.get(); 16])
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn new_job(
        &self,
        id: JobId,
        request: &Invoke,
        _operation: &Operation,
        _passed_on: &[Secret],
    ) -> (NewJob, NewSecrets) {
        (new_job(id, &request.operation, request.input.clone()), NewSecrets::default())
    }

    fn store_secrets(
        &self,
        _job: JobId,
        _secrets: &NewSecrets,
    ) -> Result<Option<Effect>, StoreError> {
        Ok(None)
    }

    fn run_inline(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        _job: JobId,
    ) -> Option<Result<Value, Failure>> {
        Some(match operation.name() {
            "fail" => Err(Failure::new("no", "it failed")),
            _ => Ok(request.input.clone()),
        })
    }

    fn claim_slot(&self, _owner: &str) -> Option<RunSlot> {
        Arc::clone(&self.slots).try_acquire_owned().ok().map(RunSlot::from)
    }

    fn acquire(&self, draft: &mut Draft) -> RunGuard {
        let holder = catena_store::Holder { process: "test".into(), epoch: 1 };
        let fence = draft.acquire(&holder);
        self.registry.register(draft.job().id(), fence)
    }

    fn remote_call(
        &self,
        _caller: &Caller,
        _venue: &str,
        _operation: &str,
        _input: Value,
    ) -> RemoteCall {
        unreachable!("these plans have no remote steps")
    }
}

fn new_job(id: JobId, op: &str, input: Value) -> NewJob {
    NewJob {
        id,
        venue: "did:key:venue".into(),
        op: op.into(),
        operation: None,
        input,
        caller: "did:key:caller".into(),
        parent: None,
        extra: Vec::new(),
    }
}

/// An orchestration that is STARTED, and what it decided last.
struct Scenario {
    host: FakeHost,
    state: OrchestrationState,
    parent: Job,
    children: HashMap<JobId, JobView>,
    guards: Vec<ChildRun>,
}

impl Scenario {
    /// Starts a plan. `steps` names the operations: each takes the output of the one before it if
    /// the name starts with `>`, else the constant 1.
    fn new(slots: usize, steps: &[&str], policy: &str) -> Scenario {
        let entry = |(index, step): (usize, &&str)| match step.strip_prefix('>') {
            Some(op) => format!(r#"{{"op":"leaf:{op}","input":[{}]}}"#, index - 1),
            None => format!(r#"{{"op":"leaf:{step}","input":["const",1]}}"#),
        };
        let entries: Vec<String> = steps.iter().enumerate().map(entry).collect();
        let definition = operation(&format!(
            r#"{{"operation":{{"adapter":"orchestrator","steps":[{}],"result":[{}]{policy}}}}}"#,
            entries.join(","),
            steps.len() - 1
        ));
        let target = |step: &&str| {
            let op = step.trim_start_matches('>');
            Some(operation(&format!(r#"{{"operation":{{"adapter":"leaf:{op}"}}}}"#)))
        };
        let plan: Arc<Plan> = definition.plan().cloned().unwrap();
        let id = JobId::from_bytes([1; 16]);
        let state = OrchestrationState::new(
            Share {
                job: id,
                root: id,
                budget: counted_budget(),
                memory: MemoryBudget::new(&Limits::default()).open(&"did:key:caller".into()),
            },
            Arc::new(NoCells),
            &definition,
            &plan,
            steps.iter().map(target).collect(),
            Caller::known("did:key:caller"),
            Value::Nil,
        );
        let (mut parent, _) = Job::create(new_job(id, "o/plan", Value::Nil), 1, None).unwrap();
        parent.append(Change::new(Event::Started, 2)).unwrap();
        let host = FakeHost::new(slots);
        Scenario { host, state, parent, children: HashMap::new(), guards: Vec::new() }
    }

    /// Lets the state decide, and applies what it decided to the parent.
    fn advance(&mut self) -> Batch {
        let mut draft = Current::from_job(Arc::new(self.parent.clone()), 1).draft();
        let mut batch = self.state.advance(&self.host, &mut draft).unwrap();
        self.parent = draft.job().clone();
        for child in std::mem::take(&mut batch.children) {
            let (_, view) = child.into_parts();
            self.children.insert(view.job.id(), view);
        }
        self.guards.append(&mut batch.runs);
        batch
    }

    /// Appends an event to the sub-job of a step and updates the state.
    fn change_child(&mut self, step: u32, event: Event) {
        let StepPhase::Running(id) = self.state.phases[step as usize].clone() else {
            panic!("step {step} does not run: {:?}", self.state.phases[step as usize]);
        };
        let mut view = self.children[&id].clone();
        let mut job = (*view.job).clone();
        job.append(Change::new(event, 5)).unwrap();
        view.job = Arc::new(job);
        self.state.update(step, &view, false);
    }

    /// The phase of each step: `w`aiting, `r`unning, `a`sking, or the first letter of its status.
    fn phases(&self) -> String {
        let letter = |phase: &StepPhase| match phase {
            StepPhase::Waiting => 'w',
            StepPhase::Running(_) => 'r',
            StepPhase::Paused(_) => 'p',
            StepPhase::Asking(_) => 'a',
            StepPhase::Ended(status) => status.as_str().chars().next().unwrap(),
        };
        self.state.phases.iter().map(letter).collect()
    }
}

/// What the first decision about a plan leaves.
#[track_caller]
fn check(slots: usize, steps: &[&str], phases: &str, status: Status, queued: usize) {
    let mut scenario = Scenario::new(slots, steps, "");
    let batch = scenario.advance();
    assert_eq!(scenario.phases(), phases, "{steps:?}");
    assert_eq!(scenario.parent.status(), status, "{steps:?}");
    assert_eq!(batch.queued.len(), queued, "{steps:?}");
    let recorded = scenario.parent.steps().len();
    assert_eq!(recorded, phases.chars().filter(|phase| *phase != 'w').count(), "{steps:?}");
}

fn finished() -> Event {
    Event::Finished { output: 7i64.into() }
}

#[test]
fn the_first_decision_goes_as_far_as_inline_steps_reach() {
    use Status::*;
    check(9, &["inline"], "C", Complete, 0);
    check(9, &["inline", ">inline", ">inline"], "CCC", Complete, 0);
    check(9, &["task", ">inline"], "rw", Started, 0);
    check(9, &["inline", ">task", ">inline"], "Crw", Started, 0);
    check(9, &["task", "task", "task"], "rrr", Started, 0);
    check(9, &["fail", "task"], "Fw", Failed, 0);
    check(9, &["task", "fail", "inline"], "rFw", Failed, 0);
    // Without a free slot a step is queued; its sub-job exists all the same.
    check(1, &["task", "task", "task"], "rrr", Started, 2);
    check(0, &["task", ">task"], "rw", Started, 1);
}

#[test]
fn the_end_of_a_step_starts_what_depends_on_it_and_ends_the_job_with_the_last() {
    let mut scenario = Scenario::new(9, &["task", ">task", ">inline"], "");
    scenario.advance();
    assert!(!scenario.state.has_changes(), "nothing to decide before the first step ends");
    scenario.change_child(0, finished());
    assert!(scenario.state.has_changes());
    scenario.advance();
    assert_eq!(scenario.phases(), "Crw");
    scenario.change_child(1, finished());
    scenario.advance();
    assert_eq!(scenario.phases(), "CCC");
    assert_eq!(scenario.parent.status(), Status::Complete);
    assert_eq!(scenario.parent.field("output").and_then(Value::as_i64), Some(7));
}

#[test]
fn a_failed_step_fails_the_job_and_starts_nothing_more() {
    for (policy, cancels) in [("", true), (r#","onFailure":"leave""#, false)] {
        let mut scenario = Scenario::new(9, &["task", "task", ">task"], policy);
        scenario.advance();
        scenario.change_child(0, Event::Erred { error: "no luck".into() });
        scenario.advance();
        assert_eq!(scenario.phases(), "Frw");
        assert_eq!(scenario.parent.status(), Status::Failed);
        let error = scenario.parent.field("error").and_then(Value::to_text).unwrap();
        assert_eq!(&*error, "step 0 ended as FAILED: no luck");
        assert_eq!(scenario.state.cancels_on_failure(), cancels);
    }
}

#[test]
fn a_paused_job_starts_nothing_and_holds_its_result() {
    let mut scenario = Scenario::new(9, &["task", ">task"], "");
    scenario.advance();
    scenario.parent.append(Change::new(Event::Paused, 3)).unwrap();
    scenario.change_child(0, finished());
    scenario.advance();
    assert_eq!(scenario.phases(), "Cw", "the end is recorded, the next step does not start");
    assert_eq!(scenario.parent.status(), Status::Paused);
    let mut scenario = Scenario::new(9, &["task"], "");
    scenario.advance();
    scenario.parent.append(Change::new(Event::Paused, 3)).unwrap();
    scenario.change_child(0, finished());
    scenario.advance();
    assert_eq!(scenario.parent.status(), Status::Paused);
    assert_eq!(scenario.parent.held().map(|held| held.status), Some(Status::Complete));
}

#[test]
fn a_step_that_asks_makes_the_job_ask_until_it_is_answered() {
    let ask = catena_job::state::Ask { message: Some("which?".into()), output: None };
    let mut scenario = Scenario::new(9, &["task", "task"], "");
    scenario.advance();
    scenario.change_child(1, Event::AskedForInput(ask));
    scenario.advance();
    assert_eq!(scenario.phases(), "ra");
    assert_eq!(scenario.parent.status(), Status::InputRequired);
    let message = scenario.parent.field("message").and_then(Value::to_text).unwrap();
    assert_eq!(&*message, "step 1 waits: which?");
    // The sub-job runs again: the parent continues.
    let asking = scenario.state.asking().map(|(_, asking)| asking.job).unwrap();
    let mut view = scenario.children[&asking].clone();
    view.steps = None;
    scenario.state.update(1, &view, false);
    scenario.advance();
    assert_eq!(scenario.phases(), "rr");
    assert_eq!(scenario.parent.status(), Status::Started);
}

#[test]
fn a_reset_state_knows_nothing_and_keeps_its_room_until_it_is_known_what_runs() {
    let mut scenario = Scenario::new(9, &["task", "task"], "");
    let free = scenario.state.budget.room();
    scenario.advance();
    assert_eq!(scenario.state.budget.room(), free - 2);
    scenario.state = scenario.state.reset();
    assert_eq!(scenario.phases(), "ww");
    assert_eq!(scenario.state.budget.room(), free - 2);
    scenario.state.release_unstarted();
    assert_eq!(scenario.state.budget.room(), free);
}

#[test]
fn steps_for_which_the_history_has_no_room_do_not_start() {
    let mut scenario = Scenario::new(9, &["task", "task", ">task"], "");
    let note = || Event::Noted(Note::Step { started: Vec::new(), ended: Vec::new() });
    while scenario.parent.append(Change::new(note(), 3)).is_ok() {}
    let batch = scenario.advance();
    assert_eq!(scenario.parent.status(), Status::Failed);
    assert_eq!(scenario.parent.steps().len(), 0);
    assert_eq!(scenario.children.len(), 0, "what the chain does not know must not run");
    assert_eq!((scenario.guards.len(), batch.queued.len()), (0, 0));
}

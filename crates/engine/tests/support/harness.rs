//! Checks that hold for every orchestration, whatever its graph: steps run in order, once, and as
//! parallel as possible, and an error, a cancel, a timeout, a pause or a crash at any step has the
//! expected effect. Examples and generated graphs go through the same checks.

use std::collections::HashSet;
use std::time::Duration;

use catena_engine::Engine;
use catena_engine::requests::JobView;
use catena_job::{JobId, Status};
use catena_value::{NoCells, Value, json};

use super::{TestVenue, alice, member, request, sleep, value, verify_chain, wait_for_end};

/// An orchestration and its expected behaviour.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    /// The metadata of its asset.
    pub definition: String,
    pub input: String,
    pub steps: Vec<Step>,
    /// The expected output.
    pub output: Value,
}

/// A step and its expected input.
#[derive(Debug, Clone)]
pub struct Step {
    pub duration_ms: u64,
    /// The indices of the steps it depends on.
    pub dependencies: Vec<usize>,
    pub expected_input: Value,
}

/// When a step runs, in ms since the start of the orchestration.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub start_ms: u64,
    pub end_ms: u64,
}

impl Span {
    fn middle_ms(self) -> u64 {
        u64::midpoint(self.start_ms, self.end_ms)
    }
}

/// After this time nothing happens any more that an event before it caused: leases have ended, and
/// everything was checked.
const SETTLED: Duration = Duration::from_secs(15);

/// The status of an orchestration when its process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KilledWhile {
    Running,
    Paused,
}

impl Case {
    /// Returns when each step runs if nothing delays it.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for step in &self.steps {
            let ends = step.dependencies.iter().map(|dependency| spans[*dependency].end_ms);
            let start_ms = ends.max().unwrap_or(0);
            spans.push(Span { start_ms, end_ms: start_ms + step.duration_ms });
        }
        spans
    }

    /// Returns how long the orchestration takes if nothing delays it, in ms.
    pub fn critical_path_ms(&self) -> u64 {
        self.spans().iter().map(|span| span.end_ms).max().unwrap()
    }

    /// Returns the tolerance of measured times in ms: each wait may be rounded up by one.
    fn tolerance_ms(&self) -> u64 {
        2 * self.steps.len() as u64 + 5
    }

    fn assert_takes(&self, took: Duration, expected_ms: u64) {
        let took = u64::try_from(took.as_millis()).unwrap();
        let allowed = expected_ms..=expected_ms + self.tolerance_ms();
        assert!(allowed.contains(&took), "{}: {took} ms, not {expected_ms}", self.name);
    }

    /// Creates a venue on which the steps take as long as they should.
    fn new_venue(&self) -> TestVenue {
        let venue = TestVenue::new();
        *venue.script.durations_ms.lock() =
            self.steps.iter().map(|step| step.duration_ms).collect();
        venue
    }

    async fn start(&self, engine: &Engine) -> JobId {
        self.start_with_timeout(engine, None).await
    }

    async fn start_with_timeout(&self, engine: &Engine, timeout: Option<Duration>) -> JobId {
        let (op, _) = engine.register(&alice(), &self.definition, None).await.unwrap();
        let mut invocation = request(&op.to_string(), &self.input);
        invocation.wait = Some(Duration::ZERO);
        invocation.timeout = timeout;
        engine.invoke(invocation).await.unwrap().view.job.id()
    }

    /// Starts the orchestration and waits until step `at` is halfway through its work.
    async fn start_and_reach(&self, venue: &TestVenue, engine: &Engine, at: usize) -> JobId {
        let id = self.start(engine).await;
        sleep(self.spans()[at].middle_ms()).await;
        assert_eq!(venue.script.count(at), (1, 0), "{}: step {at} runs now", self.name);
        id
    }

    /// Asserts that the orchestration completes: every step had the expected input and finished
    /// once, and the output is as expected.
    async fn assert_completes(&self, venue: &TestVenue, engine: &Engine, id: JobId) {
        let view = wait_for_end(engine, id).await;
        let error = view.job.field("error");
        assert_eq!(view.status(), Status::Complete, "{}: {error:?}", self.name);
        assert_eq!(value(&member(&view, "output")), self.output, "{}", self.name);
        for step in 0..self.steps.len() {
            assert_eq!(venue.script.count(step).1, 1, "{}: ends of step {step}", self.name);
        }
        self.assert_inputs(venue);
        self.assert_tree(venue, engine, id).await;
    }

    /// Asserts that no step started or finished more than once, and that all did.
    fn assert_each_ran_once(&self, venue: &TestVenue) {
        for step in 0..self.steps.len() {
            assert_eq!(venue.script.count(step), (1, 1), "{}: step {step}", self.name);
        }
    }

    fn assert_inputs(&self, venue: &TestVenue) {
        for (step, input) in venue.script.started.lock().iter() {
            let expected = &self.steps[*step].expected_input;
            assert_eq!(input, expected, "{}: input of step {step}", self.name);
        }
    }

    /// Asserts that each step has a job of its own and started after its dependencies had ended, and
    /// that all chains are valid and consistent with each other.
    async fn assert_tree(&self, venue: &TestVenue, engine: &Engine, id: JobId) {
        verify_chain(engine, id).await;
        let view = engine.job(&alice(), id).await.unwrap();
        let mut seen = HashSet::new();
        for (index, state) in view.job.steps() {
            let name = &self.name;
            assert!(seen.insert(state.start.job), "{name}: step {index} shares its job");
            for dependency in &self.steps[*index as usize].dependencies {
                let needed = &view.job.steps()[&u32::try_from(*dependency).unwrap()];
                let ended = needed.end.as_ref().expect("the dependency has ended");
                assert_eq!(ended.status, Status::Complete);
                let is_after = needed.ended_at.unwrap() <= state.started_at;
                assert!(is_after, "{name}: step {index} started before {dependency} had ended");
            }
            if state.start.venue.is_some() {
                let remote = venue.remote.job(state.start.job).unwrap();
                assert_eq!(remote.record(Status::Pending), state.start.record);
                let end = state.end.as_ref();
                assert!(end.is_none_or(|end| remote.record(end.status) == end.record));
            }
        }
        verify_tree(engine, id).await;
    }

    /// Asserts that nothing runs, neither on the venue under test nor on the remote venue.
    async fn assert_nothing_runs(&self, venue: &TestVenue, engine: &Engine, when: &str) {
        assert_eq!(engine.counters().await.running, 0, "{} {when}: a job runs", self.name);
        for status in venue.remote.statuses() {
            assert!(status.is_terminal(), "{} {when}: a remote job is {status}", self.name);
        }
    }

    /// Checks that the steps run as the graph requires, and that the orchestration takes no longer
    /// than its critical path.
    pub fn check_run(&self) {
        let venue = self.new_venue();
        venue.run_process(async |engine| {
            let started = tokio::time::Instant::now();
            let id = self.start(&engine).await;
            wait_for_end(&engine, id).await;
            self.assert_takes(started.elapsed(), self.critical_path_ms());
            self.assert_completes(&venue, &engine, id).await;
            self.assert_each_ran_once(&venue);
        });
    }

    /// Checks that the orchestration fails with the first of these failing steps, that running steps
    /// are cancelled, and that steps that have not started never do.
    pub fn check_failure(&self, failing: &[usize]) {
        let spans = self.spans();
        // If one failing step depends on another, only the other ever ends.
        let first_end_ms = failing.iter().map(|step| spans[*step].end_ms).min().unwrap();
        let venue = self.new_venue();
        venue.script.failing.lock().extend(failing);
        venue.run_process(async |engine| {
            let started = tokio::time::Instant::now();
            let id = self.start(&engine).await;
            let view = wait_for_end(&engine, id).await;
            assert_eq!(view.status(), Status::Failed, "{} {failing:?}", self.name);
            self.assert_takes(started.elapsed(), first_end_ms);
            self.assert_error_names_first(&view, failing, first_end_ms);
            tokio::time::sleep(SETTLED).await;
            self.assert_nothing_runs(&venue, &engine, "after a failure").await;
            let after = engine.job(&alice(), id).await.unwrap();
            assert_eq!(after.job.head(), view.job.head(), "a record follows the end");
            self.assert_step_statuses(&venue, &after, first_end_ms);
            self.assert_inputs(&venue);
            self.assert_tree(&venue, &engine, id).await;
        });
    }

    fn assert_error_names_first(&self, view: &JobView, failing: &[usize], first_end_ms: u64) {
        let error = view.job.field("error").and_then(Value::as_str).unwrap().to_owned();
        let index = error.strip_prefix("step ").and_then(|rest| rest.split([' ', ':']).next());
        let index: usize = index.unwrap().parse().unwrap();
        let is_first = self.spans()[index].end_ms <= first_end_ms + self.tolerance_ms();
        assert!(failing.contains(&index) && is_first, "{}: {error}", self.name);
        assert!(error.contains("ended as FAILED: it broke"), "{}: {error}", self.name);
    }

    /// Asserts the statuses of the steps after an event at `at_ms` ended the orchestration: a step
    /// that had ended is COMPLETE, one that ran is CANCELLED, one that had not started is SKIPPED. A
    /// step that started or ended at about that time may be either.
    fn assert_step_statuses(&self, venue: &TestVenue, view: &JobView, at_ms: u64) {
        let statuses = self.statuses(venue, view);
        for (step, span) in self.spans().into_iter().enumerate() {
            let is_near = |moment: u64| moment.abs_diff(at_ms) <= self.tolerance_ms();
            let expected = match span {
                span if is_near(span.end_ms) || is_near(span.start_ms) => continue,
                span if span.end_ms < at_ms => "COMPLETE",
                span if span.start_ms < at_ms => "CANCELLED",
                _ => "SKIPPED",
            };
            let status = &statuses[step];
            assert_eq!(status, expected, "{}: step {step}, all: {statuses:?}", self.name);
        }
    }

    /// Returns the statuses of the steps; those of remote steps are read from the remote venue.
    fn statuses(&self, venue: &TestVenue, view: &JobView) -> Vec<String> {
        let mut statuses = step_members(view, "status");
        for (step, state) in view.job.steps() {
            if let Some(remote) = venue.remote.job(state.start.job) {
                statuses[*step as usize] = remote.status().to_string();
            }
        }
        statuses
    }

    /// Checks that a cancel while step `at` runs ends everything.
    pub fn check_cancel_at(&self, at: usize) {
        let venue = self.new_venue();
        venue.run_process(async |engine| {
            let id = self.start_and_reach(&venue, &engine, at).await;
            let view = engine.cancel(&alice(), id, None).await.unwrap();
            assert_eq!(view.status(), Status::Cancelled, "{}", self.name);
            self.assert_steps_ended_too(&venue, &engine, &view, at).await;
        });
    }

    /// Checks that a timeout while step `at` runs ends everything.
    pub fn check_timeout_at(&self, at: usize) {
        let venue = self.new_venue();
        venue.run_process(async |engine| {
            let limit = Duration::from_millis(self.spans()[at].middle_ms());
            let id = self.start_with_timeout(&engine, Some(limit)).await;
            let view = wait_for_end(&engine, id).await;
            assert_eq!(view.status(), Status::Timeout, "{}", self.name);
            self.assert_steps_ended_too(&venue, &engine, &view, at).await;
        });
    }

    /// Asserts that all steps ended with an orchestration that was ended from outside while step
    /// `at` ran.
    async fn assert_steps_ended_too(
        &self,
        venue: &TestVenue,
        engine: &Engine,
        ended: &JobView,
        at: usize,
    ) {
        tokio::time::sleep(SETTLED).await;
        self.assert_nothing_runs(venue, engine, "after its end").await;
        let after = engine.job(&alice(), ended.job.id()).await.unwrap();
        assert_eq!(after.job.head(), ended.job.head(), "a record follows the end");
        assert_eq!(self.statuses(venue, &after)[at], "CANCELLED", "{}: {at}", self.name);
        self.assert_step_statuses(venue, &after, self.spans()[at].middle_ms());
        self.assert_inputs(venue);
        self.assert_tree(venue, engine, ended.job.id()).await;
    }

    /// Checks that a pause while step `at` runs stops everything, and that a resume repeats no work.
    pub fn check_pause_at(&self, at: usize) {
        const PAUSE: Duration = Duration::from_secs(40);
        let mut venue = self.new_venue();
        // The pause takes longer than the orchestration may run.
        venue.limits.execution = PAUSE / 2;
        venue.run_process(async |engine| {
            let started = tokio::time::Instant::now();
            let id = self.start_and_reach(&venue, &engine, at).await;
            engine.pause(&alice(), id).await.unwrap();
            tokio::time::sleep(PAUSE / 2).await;
            let before = engine.job(&alice(), id).await.unwrap();
            let starts_before = venue.script.started.lock().len();
            assert_eq!(self.statuses(&venue, &before)[at], "PAUSED", "{}: {at}", self.name);
            tokio::time::sleep(PAUSE / 2).await;
            let view = engine.job(&alice(), id).await.unwrap();
            assert_eq!((view.status(), view.job.head()), (Status::Paused, before.job.head()));
            assert_eq!(venue.script.started.lock().len(), starts_before);
            engine.resume(&alice(), id).await.unwrap();
            wait_for_end(&engine, id).await;
            self.assert_takes(started.elapsed() - PAUSE, self.critical_path_ms());
            self.assert_completes(&venue, &engine, id).await;
            self.assert_each_ran_once(&venue);
        });
    }

    /// Checks that after the process is killed while step `at` runs, the next process completes the
    /// steps that had not ended, and only those. A paused orchestration waits for a resume.
    pub fn check_crash_at(&self, at: usize, killed: KilledWhile) {
        let venue = self.new_venue();
        let (id, before, finished_before) = venue.run_process(async |engine| {
            let id = self.start_and_reach(&venue, &engine, at).await;
            if killed == KilledWhile::Paused {
                engine.pause(&alice(), id).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let view = engine.job(&alice(), id).await.unwrap();
            let finished_before = venue.script.finished.lock().clone();
            (id, view.job.steps().clone(), finished_before)
        });
        venue.run_process(async |engine| {
            if killed == KilledWhile::Paused {
                tokio::time::sleep(SETTLED).await;
                let view = engine.job(&alice(), id).await.unwrap();
                assert_eq!(view.status(), Status::Paused, "{}: {at}", self.name);
                engine.resume(&alice(), id).await.unwrap();
            }
            self.assert_completes(&venue, &engine, id).await;
            let view = engine.job(&alice(), id).await.unwrap();
            for (step, before) in before {
                let now = &view.job.steps()[&step];
                assert_eq!(now.start, before.start, "{}: step {step} keeps its job", self.name);
                assert!(before.end.is_none() || now.end == before.end);
            }
            for step in finished_before {
                assert_eq!(venue.script.count(step), (1, 1), "{}: step {step}", self.name);
            }
        });
    }
}

/// Registers an orchestration and returns its reference. `more` is appended to the members of its
/// `operation` object.
pub async fn register(engine: &Engine, steps: &str, result: &str, more: &str) -> String {
    let text = format!(
        r#"{{"name":"test","type":"orchestration","operation":{{"adapter":"orchestrator","steps":{steps},"result":{result}{more}}}}}"#
    );
    let (id, _) = engine.register(&alice(), &text, None).await.unwrap();
    id.to_string()
}

/// Returns the jobs of the steps that have one.
pub fn children(view: &JobView) -> Vec<JobId> {
    step_members(view, "id").iter().filter_map(|id| id.parse().ok()).collect()
}

/// Returns one member of each step of a job as text, and `-` for a step without it.
pub fn step_members(view: &JobView, name: &str) -> Vec<String> {
    let steps = view.steps.as_ref().unwrap().as_vector().unwrap().clone();
    let member = |step: Value| {
        let value = step.as_map().unwrap().get(&name.into(), &NoCells).unwrap();
        match value {
            None => "-".to_owned(),
            Some(Value::String(text)) => text.as_str().unwrap().to_owned(),
            Some(other) => json::to_string(&other).unwrap(),
        }
    };
    steps.iter(&NoCells).map(|step| member(step.unwrap())).collect()
}

/// Verifies the chains of a job and of all its local sub-jobs, and that they are consistent with each
/// other.
pub async fn verify_tree(engine: &Engine, id: JobId) {
    verify_chain(engine, id).await;
    let view = engine.job(&alice(), id).await.unwrap();
    for (step, state) in view.job.steps().iter().filter(|(_, state)| state.start.venue.is_none()) {
        let child = engine.job(&alice(), state.start.job).await.unwrap();
        let parent = child.job.parent().unwrap();
        assert_eq!((parent.job, parent.step()), (id, Some(*step)));
        assert_eq!(child.job.first_record(), state.start.record);
        if let Some(end) = &state.end {
            assert_eq!((child.job.head(), child.status()), (end.record, end.status));
        }
        Box::pin(verify_tree(engine, state.start.job)).await;
    }
}

/// Returns all jobs of a tree, by what the chains say.
pub async fn jobs_below(engine: &Engine, root: JobId) -> Vec<JobId> {
    let mut jobs = vec![root];
    let mut at = 0;
    while let Some(job) = jobs.get(at).copied() {
        at += 1;
        let view = engine.job(&alice(), job).await.unwrap();
        jobs.extend(view.job.steps().values().map(|step| step.start.job));
        jobs.extend(view.job.calls().iter().map(|call| call.start.job));
    }
    jobs
}

/// Asserts that the jobs of a tree agree: a PAUSED parent has no STARTED step, a parent that has
/// ended no live one, and a STARTED parent none that was paused with it.
pub async fn assert_agreement(engine: &Engine, root: JobId) {
    for job in jobs_below(engine, root).await {
        let parent = engine.job(&alice(), job).await.unwrap();
        let steps = parent.job.steps().values().map(|step| step.start.job);
        for step in steps.chain(parent.job.calls().iter().map(|call| call.start.job)) {
            let child = engine.job(&alice(), step).await.unwrap().status();
            let status = parent.status();
            let agrees = match status {
                Status::Paused => child != Status::Started && child != Status::Pending,
                Status::Started if child == Status::Paused => {
                    !is_paused_from_above(engine, step).await
                }
                status if status.is_terminal() => child.is_terminal(),
                _ => true,
            };
            assert!(agrees, "{job} is {status}, and {step} below it is {child}");
        }
    }
}

/// Returns true if a PAUSED job was paused by a record of a job above it.
async fn is_paused_from_above(engine: &Engine, job: JobId) -> bool {
    let records = engine.history(&alice(), job, 0, 1000).await.unwrap().records;
    let last = records.iter().rev().find(|record| record.note().is_none()).unwrap();
    let trigger = last.field("trigger").and_then(Value::as_map);
    let is_control = trigger.is_some_and(|trigger| trigger.field("control").is_some());
    // It may have been resumed since its status was read.
    last.status() == Status::Paused && is_control
}

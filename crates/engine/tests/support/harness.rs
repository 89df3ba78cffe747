//! What must hold of every orchestration, whatever its shape: order, once only, as parallel as can
//! be, and trouble at every step in turn. Examples and generated graphs go through the same checks.

use std::collections::HashSet;
use std::time::Duration;

use catena_engine::Engine;
use catena_engine::requests::JobView;
use catena_job::{JobId, Status};
use catena_value::{NoCells, Value, json};

use super::{World, alice, ended, member, request, value, verified};

/// An orchestration, and everything that is expected of it.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    /// Its metadata.
    pub definition: String,
    pub input: String,
    pub steps: Vec<Step>,
    /// What it gives.
    pub output: Value,
}

/// A step: how long it takes, which it needs, and the input that it must see.
#[derive(Debug, Clone)]
pub struct Step {
    pub ms: u64,
    pub needs: Vec<usize>,
    pub sees: Value,
}

/// When something happens, in milliseconds from the beginning.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub begins: u64,
    pub ends: u64,
}

impl Span {
    fn middle(self) -> u64 {
        u64::midpoint(self.begins, self.ends)
    }
}

impl Case {
    /// When each step runs if nothing holds it up.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for step in &self.steps {
            let begins = step.needs.iter().map(|need| spans[*need].ends).max().unwrap_or(0);
            spans.push(Span { begins, ends: begins + step.ms });
        }
        spans
    }

    /// How long the whole takes if nothing holds it up.
    pub fn critical_path(&self) -> u64 {
        self.spans().iter().map(|span| span.ends).max().unwrap()
    }

    /// Each wait may be rounded up by a millisecond.
    fn slack(&self) -> u64 {
        2 * self.steps.len() as u64 + 5
    }

    fn assert_takes(&self, took: Duration, expected: u64) {
        let took = u64::try_from(took.as_millis()).unwrap();
        let allowed = expected..=expected + self.slack();
        assert!(allowed.contains(&took), "{}: {took} ms, not {expected}", self.name);
    }

    /// A world in which the steps take as long as they should.
    fn world(&self) -> World {
        let world = World::new();
        *world.script.times.lock() = self.steps.iter().map(|step| step.ms).collect();
        world
    }

    async fn begin(&self, engine: &Engine) -> JobId {
        self.begin_within(engine, None).await
    }

    async fn begin_within(&self, engine: &Engine, timeout: Option<Duration>) -> JobId {
        let (op, _) = engine.register(&alice(), &self.definition, None).await.unwrap();
        let mut asked = request(&op.to_string(), &self.input);
        asked.wait = Some(Duration::ZERO);
        asked.timeout = timeout;
        engine.invoke(asked).await.unwrap().view.job.id()
    }

    /// Begins it and waits until a step is in the middle of its work.
    async fn begin_until_in(&self, world: &World, engine: &Engine, at: usize) -> JobId {
        let id = self.begin(engine).await;
        tokio::time::sleep(Duration::from_millis(self.spans()[at].middle())).await;
        assert_eq!(world.script.count(at), (1, 0), "{}: step {at} runs now", self.name);
        id
    }

    /// The whole ended well: every step saw what it should and ended once, and the result is right.
    async fn assert_complete(&self, world: &World, engine: &Engine, id: JobId) {
        let view = ended(engine, id).await;
        let error = view.job.field("error");
        assert_eq!(view.status(), Status::Complete, "{}: {error:?}", self.name);
        assert_eq!(value(&member(&view, "output")), self.output, "{}", self.name);
        for step in 0..self.steps.len() {
            assert_eq!(world.script.count(step).1, 1, "{}: ends of step {step}", self.name);
        }
        self.assert_seen(world);
        self.assert_tree(world, engine, id).await;
    }

    fn assert_seen(&self, world: &World) {
        for (step, input) in world.script.begun.lock().iter() {
            assert_eq!(*input, self.steps[*step].sees, "{}: input of step {step}", self.name);
        }
    }

    /// Each step has a job of its own and began after all it needs; all chains hold and say the
    /// same about each other.
    async fn assert_tree(&self, world: &World, engine: &Engine, id: JobId) {
        verified(engine, id).await;
        let view = engine.job(&alice(), id).await.unwrap();
        let mut seen = HashSet::new();
        for (index, state) in view.job.steps() {
            let name = &self.name;
            assert!(seen.insert(state.start.job), "{name}: step {index} shares its job");
            for need in &self.steps[*index as usize].needs {
                let needed = &view.job.steps()[&u32::try_from(*need).unwrap()];
                let ended = needed.end.as_ref().expect("what it needs has ended");
                assert_eq!(ended.status, Status::Complete);
                let is_after = needed.ended_at.unwrap() <= state.started_at;
                assert!(is_after, "{name}: step {index} began before step {need} had ended");
            }
            if state.start.venue.is_some() {
                let guest = world.remote.job(state.start.job).unwrap();
                assert_eq!(guest.record(Status::Pending), state.start.record);
                let end = state.end.as_ref();
                assert!(end.is_none_or(|end| guest.record(end.status) == end.record));
            }
        }
        tree_verified(engine, id).await;
    }

    /// Nothing runs, here or elsewhere.
    fn assert_still(&self, world: &World, engine: &Engine, when: &str) {
        assert_eq!(engine.counters().running, 0, "{} {when}: something runs", self.name);
        for guest in world.remote.jobs() {
            let status = guest.status();
            assert!(status.is_terminal(), "{} {when}: {status} elsewhere", self.name);
        }
    }

    /// It runs as its graph says, in no more time than its longest path takes.
    pub fn runs(&self) {
        let world = self.world();
        world.live(async |engine| {
            let begun = tokio::time::Instant::now();
            let id = self.begin(&engine).await;
            ended(&engine, id).await;
            self.assert_takes(begun.elapsed(), self.critical_path());
            self.assert_complete(&world, &engine, id).await;
            for step in 0..self.steps.len() {
                assert_eq!(world.script.count(step), (1, 1), "{}: step {step}", self.name);
            }
        });
    }

    /// Some steps break: the whole fails with the first of them, what runs is cancelled and what
    /// has not begun never does.
    pub fn fails(&self, broken: &[usize]) {
        let spans = self.spans();
        // Of steps that break one behind the other only the first ever ends.
        let first = broken.iter().map(|step| spans[*step].ends).min().unwrap();
        let world = self.world();
        world.script.breaks.lock().extend(broken);
        world.live(async |engine| {
            let begun = tokio::time::Instant::now();
            let id = self.begin(&engine).await;
            let view = ended(&engine, id).await;
            assert_eq!(view.status(), Status::Failed, "{} {broken:?}", self.name);
            self.assert_takes(begun.elapsed(), first);
            self.assert_names_the_broken(&view, broken, first);
            tokio::time::sleep(Duration::from_secs(100)).await;
            self.assert_still(&world, &engine, "after a failure");
            let after = engine.job(&alice(), id).await.unwrap();
            assert_eq!(after.job.head(), view.job.head(), "something followed the end");
            self.assert_stands(&world, &after, first);
            self.assert_seen(&world);
            self.assert_tree(&world, &engine, id).await;
        });
    }

    fn assert_names_the_broken(&self, view: &JobView, broken: &[usize], first: u64) {
        let error = view.job.field("error").and_then(Value::as_str).unwrap().to_owned();
        let index = error.strip_prefix("step ").and_then(|rest| rest.split([' ', ':']).next());
        let index: usize = index.unwrap().parse().unwrap();
        let is_first = self.spans()[index].ends <= first + self.slack();
        assert!(broken.contains(&index) && is_first, "{}: {error}", self.name);
        assert!(error.contains("ended as FAILED: it broke"), "{}: {error}", self.name);
    }

    /// What had ended when something happened is COMPLETE, what ran is CANCELLED, what had not
    /// begun is SKIPPED. A step that begins or ends just then may be either.
    fn assert_stands(&self, world: &World, view: &JobView, at: u64) {
        let statuses = self.statuses(world, view);
        for (step, span) in self.spans().into_iter().enumerate() {
            let is_near = |moment: u64| moment.abs_diff(at) <= self.slack();
            let expected = match span {
                span if is_near(span.ends) || is_near(span.begins) => continue,
                span if span.ends < at => "COMPLETE",
                span if span.begins < at => "CANCELLED",
                _ => "SKIPPED",
            };
            let status = &statuses[step];
            assert_eq!(status, expected, "{}: step {step}, all: {statuses:?}", self.name);
        }
    }

    /// The statuses of the steps, those elsewhere as the other venue says.
    fn statuses(&self, world: &World, view: &JobView) -> Vec<String> {
        let mut statuses = of_steps(view, "status");
        for (step, state) in view.job.steps() {
            if let Some(guest) = world.remote.job(state.start.job) {
                statuses[*step as usize] = guest.status().to_string();
            }
        }
        statuses
    }

    /// It is cancelled while a step runs: nothing runs on, and nothing follows.
    pub fn is_cancelled_in(&self, at: usize) {
        let world = self.world();
        world.live(async |engine| {
            let id = self.begin_until_in(&world, &engine, at).await;
            let view = engine.cancel(&alice(), id, None).await.unwrap();
            assert_eq!(view.status(), Status::Cancelled, "{}", self.name);
            self.assert_given_up(&world, &engine, &view, at).await;
        });
    }

    /// Its time is up while a step runs: the same.
    pub fn times_out_in(&self, at: usize) {
        let world = self.world();
        world.live(async |engine| {
            let limit = Duration::from_millis(self.spans()[at].middle());
            let id = self.begin_within(&engine, Some(limit)).await;
            let view = ended(&engine, id).await;
            assert_eq!(view.status(), Status::Timeout, "{}", self.name);
            self.assert_given_up(&world, &engine, &view, at).await;
        });
    }

    /// It ended from outside in the middle of a step, and everything ended with it.
    async fn assert_given_up(&self, world: &World, engine: &Engine, end: &JobView, at: usize) {
        tokio::time::sleep(Duration::from_secs(100)).await;
        self.assert_still(world, engine, "after its end");
        let after = engine.job(&alice(), end.job.id()).await.unwrap();
        assert_eq!(after.job.head(), end.job.head(), "something followed the end");
        assert_eq!(self.statuses(world, &after)[at], "CANCELLED", "{}: {at}", self.name);
        self.assert_stands(world, &after, self.spans()[at].middle());
        self.assert_seen(world);
        self.assert_tree(world, engine, end.job.id()).await;
    }

    /// It is paused while a step runs: everything stands still, and the pause costs no work.
    pub fn is_paused_in(&self, at: usize) {
        const PAUSE: Duration = Duration::from_secs(1000);
        let world = self.world();
        world.live(async |engine| {
            let begun = tokio::time::Instant::now();
            let id = self.begin_until_in(&world, &engine, at).await;
            engine.pause(&alice(), id).await.unwrap();
            tokio::time::sleep(PAUSE / 2).await;
            let before = engine.job(&alice(), id).await.unwrap();
            let begun_before = world.script.begun.lock().len();
            assert_eq!(self.statuses(&world, &before)[at], "PAUSED", "{}: {at}", self.name);
            tokio::time::sleep(PAUSE / 2).await;
            let view = engine.job(&alice(), id).await.unwrap();
            assert_eq!((view.status(), view.job.head()), (Status::Paused, before.job.head()));
            assert_eq!(world.script.begun.lock().len(), begun_before);
            engine.resume(&alice(), id).await.unwrap();
            ended(&engine, id).await;
            self.assert_takes(begun.elapsed() - PAUSE, self.critical_path());
            self.assert_complete(&world, &engine, id).await;
            for step in 0..self.steps.len() {
                assert_eq!(world.script.count(step), (1, 1), "{}: step {step}", self.name);
            }
        });
    }

    /// The venue is killed while a step runs: the next life finishes what had not ended, and only
    /// that. Whatever was paused when it was killed waits for a resume.
    pub fn survives_a_crash_in(&self, at: usize, mood: Mood) {
        let world = self.world();
        let (id, before, ended_before) = world.live(async |engine| {
            let id = self.begin_until_in(&world, &engine, at).await;
            if mood == Mood::Paused {
                engine.pause(&alice(), id).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let view = engine.job(&alice(), id).await.unwrap();
            let ended_before = world.script.finished.lock().clone();
            (id, view.job.steps().clone(), ended_before)
        });
        world.live(async |engine| {
            if mood == Mood::Paused {
                tokio::time::sleep(Duration::from_secs(100)).await;
                let view = engine.job(&alice(), id).await.unwrap();
                assert_eq!(view.status(), Status::Paused, "{}: {at}", self.name);
                engine.resume(&alice(), id).await.unwrap();
            }
            self.assert_complete(&world, &engine, id).await;
            let view = engine.job(&alice(), id).await.unwrap();
            for (step, before) in before {
                let now = &view.job.steps()[&step];
                assert_eq!(now.start, before.start, "{}: step {step} keeps its job", self.name);
                assert!(before.end.is_none() || now.end == before.end);
            }
            for step in ended_before {
                assert_eq!(world.script.count(step), (1, 1), "{}: step {step}", self.name);
            }
        });
    }
}

/// How a venue stood when it was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Running,
    Paused,
}

/// Registers an orchestration and gives its reference.
pub async fn define(engine: &Engine, steps: &str, result: &str, more: &str) -> String {
    let text = format!(
        r#"{{"name":"test","type":"orchestration","operation":{{"adapter":"orchestrator","steps":{steps},"result":{result}{more}}}}}"#
    );
    let (id, _) = engine.register(&alice(), &text, None).await.unwrap();
    id.to_string()
}

/// The jobs of the steps that have one.
pub fn children(view: &JobView) -> Vec<JobId> {
    of_steps(view, "id").iter().filter_map(|id| id.parse().ok()).collect()
}

/// One member of each step of a job, as text; `-` when it has none.
pub fn of_steps(view: &JobView, name: &str) -> Vec<String> {
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

/// Checks the chains of a job and of all its sub-jobs here, and that they say the same.
pub async fn tree_verified(engine: &Engine, id: JobId) {
    verified(engine, id).await;
    let view = engine.job(&alice(), id).await.unwrap();
    for (step, state) in view.job.steps().iter().filter(|(_, state)| state.start.venue.is_none()) {
        let child = engine.job(&alice(), state.start.job).await.unwrap();
        let parent = child.job.parent().unwrap();
        assert_eq!((parent.job, parent.step), (id, *step));
        assert_eq!(child.job.first_record(), state.start.record);
        if let Some(end) = &state.end {
            assert_eq!((child.job.head(), child.status()), (end.record, end.status));
        }
        Box::pin(tree_verified(engine, state.start.job)).await;
    }
}

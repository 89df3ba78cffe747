//! The crash driver: the engine's workload on a disk that crashes.
//!
//! A simulation is one simulated disk that goes through many crashes. Between two of them a store runs
//! on it and receives random effects of every kind, through the public trait. After each crash the
//! store is opened on what survived: everything that was acknowledged must be there, a commit in
//! flight may be there or not but not in part, and the check of the entire store must succeed: every
//! chain, every index entry, every reference. Everything follows from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catena_job::state::{Ask, Event};
use catena_job::{JobId, RecordId, Status};
use catena_value::{Map, Value, ValueId};

use super::drive;
use super::jobs::{Draft, echo, hello, job_id, opening};
use crate::effects::{CommitError, Effect, Effects, Hold};
use crate::embedded::EmbeddedStore;
use crate::store::{Holder, Message, RootKey, RootSpace, Store};
use catena_ledger::testing::rng::Rng;
use catena_ledger::testing::sim_disk::{Crash, SimDisk};
use catena_ledger::{Faults, Options};

/// A disk crashes at most this many operations after a store was opened on it.
const OPERATIONS_PER_RUN: u64 = 120;

/// At most this many steps between two crashes.
const STEPS_PER_RUN: u64 = 40;

/// Jobs that are changed at a time: few, so that the same ones are changed often.
const JOBS_AT_A_TIME: usize = 12;

/// The result of a simulation.
#[derive(Debug, Clone, Default)]
pub struct SimulationReport {
    /// Number of crashes.
    pub crashes: u64,
    /// Commits that were acknowledged.
    pub acknowledged: u64,
    /// Commits that were refused because what they relied on had changed.
    pub refused: u64,
    /// Number of jobs that the last check verified.
    pub jobs_checked: u64,
    /// Number of records of those jobs.
    pub records_checked: u64,
    /// Completed collections of unreferenced cells.
    pub collections: u64,
    /// The failure that ended the simulation, if there was one.
    pub failure: Option<String>,
}

/// Runs a simulation for a number of crashes.
pub fn run_simulation(seed: u64, crashes: u64, faults: Faults) -> SimulationReport {
    let mut simulation = Simulation::new(seed, faults);
    while simulation.report.crashes < crashes && simulation.report.failure.is_none() {
        if let Err(failure) = simulation.run_until_crash() {
            let after = simulation.report.crashes;
            simulation.report.failure =
                Some(format!("seed {seed}, after {after} crashes: {failure}"));
        }
    }
    simulation.report
}

/// What the oracle knows about a value: what was acknowledged, and what is in flight.
#[derive(Debug, Clone)]
struct Known<T> {
    acknowledged: Option<T>,
    in_flight: Vec<Option<T>>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Known { acknowledged: None, in_flight: Vec::new() }
    }
}

impl<T: PartialEq + Clone> Known<T> {
    /// Records what was found after a crash. Returns whether it was acknowledged or in flight.
    fn accept_found(&mut self, found: Option<T>) -> bool {
        let is_known = found == self.acknowledged || self.in_flight.contains(&found);
        self.in_flight.clear();
        self.acknowledged = found;
        is_known
    }
}

struct Simulation {
    rng: Rng,
    disk: SimDisk,
    faults: Faults,
    next_job: u64,
    jobs: BTreeMap<JobId, Known<RecordId>>,
    open: Vec<JobId>,
    messages: BTreeMap<JobId, Known<BTreeSet<String>>>,
    next_message: u64,
    root: Known<ValueId>,
    report: SimulationReport,
}

impl Simulation {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(rng.number());
        Simulation {
            rng,
            disk,
            faults,
            next_job: 0,
            jobs: BTreeMap::new(),
            open: Vec::new(),
            messages: BTreeMap::new(),
            next_message: 0,
            root: Known::default(),
            report: SimulationReport::default(),
        }
    }

    /// One run: open, compare, check, work, crash.
    fn run_until_crash(&mut self) -> Result<(), String> {
        let store = self.reopen()?;
        self.compare(&store)?;
        self.disk.crash_after(1 + self.rng.below(OPERATIONS_PER_RUN));
        for _ in 0..self.rng.below(STEPS_PER_RUN) {
            if self.disk.has_crashed() {
                break;
            }
            self.step(&store)?;
        }
        drop(store);
        let crash = self.rng.pick(&[Crash::PowerLoss, Crash::PowerLoss, Crash::ProcessKill]);
        self.disk = self.disk.crash(crash, self.rng.number());
        self.report.crashes += 1;
        Ok(())
    }

    fn reopen(&mut self) -> Result<EmbeddedStore, String> {
        let disk: Arc<dyn super::Disk> = Arc::new(self.disk.clone());
        let options = small_options(self.faults);
        EmbeddedStore::open_manual(disk, options).map_err(|error| format!("open: {error}"))
    }

    /// Compares what is stored with what was acknowledged, and checks the entire store.
    fn compare(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        let report = store.check().map_err(|error| format!("check: {error}"))?;
        if let Some(problem) = report.problems.first() {
            return Err(format!("{} problems, the first: {problem}", report.problems_total));
        }
        self.report.jobs_checked = report.jobs;
        self.report.records_checked = report.records;
        for (id, known) in &mut self.jobs {
            let found = read(store.job(*id))?.map(|stored| stored.job.head());
            if !known.accept_found(found) {
                return Err(format!("job {id} is not as it was acknowledged"));
            }
        }
        self.jobs.retain(|_, known| known.acknowledged.is_some());
        let jobs = &self.jobs;
        self.open.retain(|id| jobs.contains_key(id));
        for (id, known) in &mut self.messages {
            let waiting = read(store.messages(*id, 1_000))?;
            let found: BTreeSet<String> = waiting.into_iter().map(|message| message.id).collect();
            if !known.accept_found(Some(found).filter(|found| !found.is_empty())) {
                return Err(format!("messages of job {id} are not as they were acknowledged"));
            }
        }
        let found = read(store.root(&workspace()))?.map(|root| root.id);
        if self.root.accept_found(found) {
            Ok(())
        } else {
            Err("the workspace is not as it was acknowledged".to_owned())
        }
    }

    fn step(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        match self.rng.below(20) {
            0..=5 => self.make_jobs(store),
            6..=11 => self.change_job(store),
            12..=13 => self.send_message(store),
            14..=15 => self.change_workspace(store),
            16 => self.delete_job(store),
            17 => {
                store.step_flush();
                Ok(())
            }
            18 => self.collect(store),
            _ => self.offer_and_claim(store),
        }
    }

    /// Creates several jobs in one batch: some begin and end at once, some stay open.
    fn make_jobs(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        let mut answers = Vec::new();
        for _ in 0..1 + self.rng.below(3) {
            self.next_job += 1;
            let id = job_id(self.next_job);
            let draft = match self.rng.below(3) {
                0 => echo(id, "did:a"),
                1 => Draft::open(opening(id, "did:b", hello()), 5),
                _ => Draft::open(opening(id, "did:a", self.large_value()), 5),
            };
            let head = draft.job.head();
            if !draft.job.status().is_terminal() {
                self.open.push(id);
            }
            self.jobs.entry(id).or_default().in_flight.push(Some(head));
            answers.push((id, head, store.commit(Effects::one(draft.effect()))));
        }
        if self.open.len() > JOBS_AT_A_TIME {
            self.open.remove(0);
        }
        for (id, head, answer) in answers {
            let Some(outcome) = drive(store, answer) else { continue };
            if self.record_outcome(outcome)? {
                self.acknowledge(id, Some(head));
            }
        }
        Ok(())
    }

    /// Appends one or two random changes that are allowed.
    fn change_job(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        let Some(id) = self.any_open() else { return Ok(()) };
        let Some(stored) = read(store.job(id))? else { return Ok(()) };
        let mut draft = Draft::from_job(stored.job);
        for _ in 0..8 {
            let event = self.event(draft.job.status());
            draft.change(event);
            if let Some(due) = draft.job.due().cloned() {
                draft.change(due.event());
            }
            if !draft.records.is_empty() && self.rng.chance(60) {
                break;
            }
        }
        if draft.records.is_empty() {
            return Ok(());
        }
        let head = draft.job.head();
        self.jobs.entry(id).or_default().in_flight.push(Some(head));
        let ends = draft.job.status().is_terminal();
        if ends && let Some(known) = self.messages.get_mut(&id) {
            known.in_flight.push(None);
        }
        let Some(outcome) = drive(store, store.commit(Effects::one(draft.effect()))) else {
            return Ok(());
        };
        if self.record_outcome(outcome)? {
            self.acknowledge(id, Some(head));
            if ends {
                self.messages.remove(&id);
                self.open.retain(|open| *open != id);
            }
        }
        Ok(())
    }

    fn event(&mut self, status: Status) -> Event {
        let text = format!("because of {}", self.rng.below(1_000));
        let output = if self.rng.chance(20) { self.large_value() } else { hello() };
        let ask = Ask { message: Some(text.clone()), output: Some(output.clone()) };
        match (status, self.rng.below(10)) {
            (_, 0) => Event::Cancelled { error: text },
            (Status::Pending, _) => Event::Started,
            (Status::Started, 1..=2) => Event::Finished { output },
            (Status::Started, 3..=7) => Event::AskedForInput(ask),
            (Status::Paused, _) => Event::Resumed,
            (Status::InputRequired | Status::AuthRequired, 1..=8) => Event::Answered,
            _ => Event::Paused,
        }
    }

    fn send_message(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        let Some(id) = self.any_open() else { return Ok(()) };
        self.next_message += 1;
        let name = format!("m{}", self.next_message);
        let known = self.messages.entry(id).or_default();
        let mut after = known.acknowledged.clone().unwrap_or_default();
        after.insert(name.clone());
        known.in_flight.push(Some(after.clone()));
        let message = Message { number: 0, id: name, body: hello() };
        let effects = Effects::one(Effect::SendMessage { job: id, message });
        let Some(outcome) = drive(store, store.commit(effects)) else { return Ok(()) };
        if self.record_outcome(outcome)? {
            self.messages.insert(id, Known { acknowledged: Some(after), in_flight: Vec::new() });
        }
        Ok(())
    }

    /// Changes one key of a large map of which only the root is in memory.
    fn change_workspace(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        let held = read(store.root(&workspace()))?;
        let cells = store.cells();
        let key = Value::from(format!("key {}", self.rng.below(400)));
        let text = format!("{} {}", self.rng.below(1_000), "and more ".repeat(20));
        let (expected, map) = match held {
            Some(root) => match root.value {
                Value::Map(map) => (Some(root.id), map),
                _ => return Err("the workspace is not a map".to_owned()),
            },
            None => (None, (0..300).map(|i| (format!("key {i}"), "start ".repeat(10))).collect()),
        };
        let changed = map.insert(key, Value::from(text), &*cells);
        let value = Value::from(changed.map_err(|error| format!("workspace: {error}"))?);
        let id = value.id();
        self.root.in_flight.push(Some(id));
        let effect = Effect::SetRoot { key: workspace(), expected, value: Some(value) };
        let Some(outcome) = drive(store, store.commit(Effects::one(effect))) else { return Ok(()) };
        if self.record_outcome(outcome)? {
            self.root = Known { acknowledged: Some(id), in_flight: Vec::new() };
        }
        Ok(())
    }

    fn delete_job(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = self.rng.pick(&ids);
        self.jobs.entry(id).or_default().in_flight.push(None);
        if let Some(known) = self.messages.get_mut(&id) {
            known.in_flight.push(None);
        }
        let effects = Effects::one(Effect::Delete { job: id });
        let Some(outcome) = drive(store, store.commit(effects)) else { return Ok(()) };
        if self.record_outcome(outcome)? {
            self.acknowledge(id, None);
            self.messages.remove(&id);
            self.open.retain(|open| *open != id);
        }
        Ok(())
    }

    /// Collects unreferenced cells. It must not change anything that was acknowledged.
    fn collect(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        let collected = drive(store, Box::pin(store.collect()));
        if let Some(Ok(_)) = collected {
            self.report.collections += 1;
        }
        Ok(())
    }

    fn offer_and_claim(&mut self, store: &EmbeddedStore) -> Result<(), String> {
        let Some(job) = self.any_open() else { return Ok(()) };
        let offer = Effect::Enqueue { job, queue: "q".into(), priority: 1, ready_at: 0 };
        let Some(outcome) = drive(store, store.commit(Effects::one(offer))) else { return Ok(()) };
        if self.record_outcome(outcome)? {
            let acquired = self.acquire(store, job);
            if let Some(Err(CommitError::Fenced { .. } | CommitError::HeadMoved { .. })) = acquired
            {
                return Err(format!("job {job} was offered but cannot be acquired"));
            }
        }
        Ok(())
    }

    /// Makes a process the holder of a queued job. `None` if the store crashed.
    fn acquire(
        &mut self,
        store: &EmbeddedStore,
        job: JobId,
    ) -> Option<Result<crate::Receipt, CommitError>> {
        let ready = drive(store, store.ready("q", 5, usize::MAX))?.ok()?;
        if !ready.jobs.contains(&job) {
            return Some(Err(CommitError::NoSuchJob { job }));
        }
        let stored = drive(store, store.job(job))?.ok()??;
        let holder = Holder { process: "worker".into(), epoch: 1 };
        let hold = Hold::Acquire { holder, fence: stored.hold.fence + 1 };
        let effect = Effect::SetHold { job, after: stored.job.head(), hold };
        drive(store, store.commit(Effects::one(effect)))
    }

    fn any_open(&mut self) -> Option<JobId> {
        if self.open.is_empty() { None } else { Some(self.rng.pick(&self.open)) }
    }

    fn acknowledge(&mut self, id: JobId, head: Option<RecordId>) {
        self.jobs.insert(id, Known { acknowledged: head, in_flight: Vec::new() });
    }

    /// A value with cells of its own: sometimes in the job's row, sometimes shared.
    fn large_value(&mut self) -> Value {
        let pick = self.rng.below(20);
        let items = if self.rng.chance(30) { 120 } else { 12 };
        let item = |i: u64| (format!("member {i}"), format!("{} {pick}", "text ".repeat(10)));
        (0..items).map(item).collect::<Map>().into()
    }

    /// Counts the outcome of a commit. Returns whether it was acknowledged.
    fn record_outcome<T>(&mut self, outcome: Result<T, CommitError>) -> Result<bool, String> {
        match outcome {
            Ok(_) => {
                self.report.acknowledged += 1;
                Ok(true)
            }
            // Whether it happened is known after the next start.
            Err(CommitError::Stopped { .. } | CommitError::Full | CommitError::Busy) => Ok(false),
            Err(
                CommitError::NoSuchJob { .. }
                | CommitError::Ended { .. }
                | CommitError::HeadMoved { .. },
            ) => {
                self.report.refused += 1;
                Ok(false)
            }
            Err(_) if self.disk.has_crashed() => Ok(false),
            Err(other) => Err(format!("unexpected refusal: {other}")),
        }
    }
}

fn workspace() -> RootKey {
    RootKey { space: RootSpace::Workspace, owner: "did:a".into(), name: "w".into() }
}

/// The result of a read, which never has to wait here.
fn read<T>(
    mut answer: impl Future<Output = Result<T, crate::store::ReadError>> + Unpin,
) -> Result<T, String> {
    match super::poll_once(&mut answer) {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(format!("read: {error}")),
        None => Err("a read had to wait".to_owned()),
    }
}

/// Limits so small that a short run reaches all of them.
fn small_options(faults: Faults) -> Options {
    Options {
        queue_entries_max: 256,
        batch_entries_max: 16,
        batch_bytes_max: 16 << 10,
        entry_bytes_max: 64 << 10,
        segment_bytes: 256 << 10,
        segments_max: 6,
        flush_bytes: 32 << 10,
        overlay_bytes_max: 256 << 10,
        index_cache_bytes: 1 << 20,
        generation_seed: Some(1),
        faults,
        ..EmbeddedStore::options()
    }
}

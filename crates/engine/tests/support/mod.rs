//! A venue in memory with a paused clock, and an adapter whose operations behave as tests need.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this")]

pub mod bound;
pub mod cluster;
pub mod harness;
pub mod queue;
pub mod remote;
pub mod roots;
pub mod script;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use catena_auth::KeyPair;
use catena_engine::requests::{CallRequest, Invoke, JobView};
use catena_engine::runtime::PausedEnv;
use catena_engine::{
    Adapter, Call, Caller, Cause, Engine, ExecutionMode, Failure, Limits, Registration, Setup,
    Turn, TurnFuture,
};
use catena_job::state::{Ask, Event};
use catena_job::verify::{Expected, verify};
use catena_job::{JobId, Status};
use catena_store::blob::{Blobs, LocalBlobs, Options};
use catena_store::embedded::EmbeddedStore;
use catena_store::testing::jobs::Draft;
use catena_store::testing::stepped::{Death, SteppedStore};
use catena_store::testing::{Disk, RealDisk, SimDisk};
use catena_store::{Effect, Effects, Hold, Holder, Store as _};
use catena_value::{Map, NoCells, Value, json};
use cluster::{Cluster, Kills, Node, engine_count};
use remote::{FakeFederation, FakeVenue};
use script::{Script, fake_adapters};

/// A venue under test: everything that outlives one process of it.
pub struct TestVenue {
    pub disk: Arc<SimDisk>,
    pub folder: tempfile::TempDir,
    pub effects: Arc<AtomicU32>,
    /// How many runs of `wait` there are at a time.
    pub waits: Arc<Gauge>,
    pub limits: Limits,
    /// The seed of the venue's key.
    pub seed: u8,
    /// The key of secrets. `None` if it is derived from the venue's key, as earlier versions did.
    pub secrets_key: Option<[u8; 32]>,
    /// What is known of the aborts of earlier processes.
    pub aborts: catena_engine::runtime::Aborts,
    /// An operation of the test adapter that is not registered.
    pub missing_operation: Option<&'static str>,
    /// How the fake operations behave.
    pub script: Arc<Script>,
    /// The remote venue.
    pub remote: Arc<FakeVenue>,
    /// Which engines are killed while a scenario runs on several.
    pub kills: Kills,
    /// The number of processes so far.
    processes: AtomicU32,
    /// The Unix time in ms at which the next process starts, from the beginning of all tests.
    clock: AtomicI64,
}

impl TestVenue {
    pub fn new() -> Self {
        let script = Arc::<Script>::default();
        TestVenue {
            remote: FakeVenue::new(&script),
            script,
            disk: Arc::new(SimDisk::new(7)),
            folder: tempfile::tempdir().unwrap(),
            effects: Arc::default(),
            waits: Arc::default(),
            limits: Limits::default(),
            seed: 9,
            secrets_key: None,
            aborts: Default::default(),
            missing_operation: None,
            kills: Kills::Idle,
            processes: AtomicU32::new(0),
            clock: AtomicI64::new(0),
        }
    }

    /// Creates a venue whose engines are killed like this while a scenario runs.
    pub fn with_kills(kills: Kills) -> Self {
        TestVenue { kills, ..TestVenue::new() }
    }

    /// Makes the clocks of the next processes start later.
    pub fn skip_time(&self, time: Duration) {
        self.clock.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Runs one process of the venue and, once it has recovered, a scenario in it. Everything that
    /// still runs at its end is lost, as after `kill -9`.
    pub fn run_process<T>(&self, scenario: impl AsyncFnOnce(Cluster) -> T) -> T {
        self.run_killing(engine_count(), self.kills, scenario)
    }

    /// Like [`TestVenue::run_process`], with this many engines. Facts about one process (private jobs,
    /// request rates, progress that is not stored yet, slots) are tested with one.
    pub fn run_engines<T>(&self, count: usize, scenario: impl AsyncFnOnce(Cluster) -> T) -> T {
        self.run_killing(count, Kills::None, scenario)
    }

    /// Like [`TestVenue::run_engines`], and engines are killed and started meanwhile.
    fn run_killing<T>(
        &self,
        count: usize,
        kills: Kills,
        scenario: impl AsyncFnOnce(Cluster) -> T,
    ) -> T {
        runtime().block_on(async {
            let cluster = self.start(count).await;
            cluster.recovered().await;
            let killing = cluster.clone();
            tokio::select! {
                biased;
                result = scenario(cluster) => result,
                () = killing.kill_at_random(self, kills) => panic!("it ends with the scenario"),
            }
        })
    }

    /// Runs one process of the venue until a scenario has ended, or the process is killed at a
    /// commit. Returns `None` if it was killed.
    pub fn run_until_death<T>(
        &self,
        death: &Arc<Death>,
        scenario: impl AsyncFnOnce(Cluster) -> T,
    ) -> Option<T> {
        let disk = Arc::clone(&self.disk);
        let store = EmbeddedStore::open_manual(disk, EmbeddedStore::options()).unwrap();
        let store = SteppedStore::dying(store, Arc::clone(death));
        runtime().block_on(async {
            let run = async {
                let cluster = self.start_on(store, 1).await;
                cluster.recovered().await;
                scenario(cluster).await
            };
            tokio::select! {
                biased;
                () = death.died() => None,
                result = run => Some(result),
            }
        })
    }

    async fn start(&self, count: usize) -> Cluster {
        self.start_on(self.open_store(), count).await
    }

    async fn start_on(&self, store: SteppedStore, count: usize) -> Cluster {
        let store = Arc::new(store);
        let blobs = Blobs::new(store.clone(), Arc::new(self.open_files()));
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(self.start_engine(store.clone(), blobs.clone(), Duration::ZERO).await);
        }
        Cluster::new(nodes, store, blobs)
    }

    /// Runs two processes of the venue that share one store.
    pub fn run_two_processes<T>(&self, scenario: impl AsyncFnOnce(Engine, Engine) -> T) -> T {
        self.run_engines(2, async |cluster| {
            let [first, second] = [0, 1].map(|place| cluster.node(place).engine.clone());
            scenario(first, second).await
        })
    }

    fn open_files(&self) -> LocalBlobs {
        let disk = RealDisk::new(self.folder.path()).unwrap();
        LocalBlobs::open_folder(Arc::new(disk), Options::default()).unwrap()
    }

    /// Starts an engine on a store that others may use too, this long after the first of them: their
    /// clocks agree.
    pub async fn start_engine(
        &self,
        store: Arc<SteppedStore>,
        blobs: Blobs,
        after: Duration,
    ) -> Node {
        let key = KeyPair::from_seed(&[self.seed; 32]);
        let process = self.processes.fetch_add(1, Ordering::SeqCst);
        let after = i64::try_from(after.as_millis()).unwrap();
        let clock = self.clock.load(Ordering::SeqCst) + after;
        let env = Arc::new(PausedEnv::for_process(process).starting_at(clock));
        let engine = Engine::start(Setup {
            secrets_key: self.secrets_key,
            previous_secrets_key: None,
            store,
            blobs,
            env: env.clone(),
            did: key.did(),
            key,
            limits: self.limits.clone(),
            adapters: self.adapters(),
            assets: Vec::new(),
            admins: Vec::new(),
            aborts: self.aborts.clone(),
        });
        Node { engine: engine.await.unwrap(), env }
    }

    /// Opens the store on the simulated disk. Only one may be open at a time.
    pub fn open_store(&self) -> SteppedStore {
        let disk = Arc::clone(&self.disk);
        SteppedStore::new(EmbeddedStore::open_manual(disk, EmbeddedStore::options()).unwrap())
    }

    fn adapters(&self) -> Vec<Arc<dyn Adapter>> {
        let mut adapters = fake_adapters(&self.script);
        adapters.push(Arc::new(FakeFederation(Arc::clone(&self.remote))));
        adapters.push(Arc::new(queue::QueueAdapter));
        adapters.push(Arc::new(roots::RootAdapter));
        adapters.push(Arc::new(bound::BoundAdapter));
        adapters.push(Arc::new(TestAdapter {
            effects: Arc::clone(&self.effects),
            waits: Arc::clone(&self.waits),
            missing: self.missing_operation,
        }));
        adapters
    }

    /// Like [`TestVenue::run_process`], but the scenario starts before recovery is done.
    pub fn run_process_during_recovery<T>(&self, scenario: impl AsyncFnOnce(Cluster) -> T) -> T {
        runtime().block_on(async { scenario(self.start(1).await).await })
    }

    /// Appends to the chain of a job between two processes, as if the venue had been killed right
    /// after this event.
    pub fn append(&self, job: JobId, event: Event) {
        let store = self.open_store();
        runtime().block_on(async {
            let stored = store.job(job).await.unwrap().unwrap();
            let mut draft = Draft::from_job(stored.job);
            assert!(draft.change(event), "the change is not allowed");
            let runs = draft.job.status() == Status::Started;
            let mut effect = draft.effect();
            if let (true, Effect::Append { hold, .. }) = (runs, &mut effect) {
                let holder = Holder { process: "killed".into(), epoch: 1 };
                *hold = Hold::Acquire { holder, fence: stored.hold.fence + 1 };
            }
            store.commit(Effects::one(effect)).await.unwrap();
        });
    }

    /// Changes the store between two processes.
    pub fn commit(&self, change: impl AsyncFnOnce(&SteppedStore)) {
        let store = self.open_store();
        runtime().block_on(change(&store));
    }

    /// Returns true if any file on the disk contains these words.
    pub fn disk_contains(&self, words: &str) -> bool {
        let names = self.disk.list().unwrap();
        assert!(!names.is_empty());
        let contains = |name: &String| {
            let bytes = self.disk.contents(name);
            bytes.windows(words.len()).any(|part| part == words.as_bytes())
        };
        names.iter().any(contains)
    }

    /// Returns how often an operation had an effect outside the venue.
    pub fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

pub fn alice() -> Caller {
    Caller::known("did:key:alice")
}

pub fn bob() -> Caller {
    Caller::known("did:key:bob")
}

pub fn value(text: &str) -> Value {
    json::read(text.as_bytes()).unwrap()
}

/// Returns a request of Alice's.
pub fn request(operation: &str, input: &str) -> Invoke {
    Invoke::new(alice(), operation, value(input))
}

/// Invokes an operation for Alice and returns the job as of the response.
pub async fn invoke(engine: &Engine, operation: &str, input: &str) -> JobView {
    engine.invoke(request(operation, input)).await.unwrap().view
}

/// Waits for the end of a job and returns it.
pub async fn wait_for_end(engine: &Engine, id: JobId) -> JobView {
    let view = engine.wait(&alice(), id, Duration::from_secs(100)).await.unwrap();
    assert!(view.status().is_terminal(), "job is still {}", view.status());
    view
}

/// Waits until a job has a status and returns it.
pub async fn wait_for_status(engine: &Engine, id: JobId, status: Status) -> JobView {
    let mut follow = engine.follow(catena_engine::views::Reader::Bearer, id, None).await.unwrap();
    loop {
        let view = engine.job(&alice(), id).await.unwrap();
        if view.status() == status {
            return view;
        }
        follow.next().await.unwrap().unwrap_or_else(|| panic!("{} before {status}", view.status()));
    }
}

/// Sleeps for a time in ms.
pub async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Returns a member of a job as JSON.
pub fn member(view: &JobView, name: &str) -> String {
    let value = view.job.field(name).unwrap_or_else(|| panic!("no `{name}`"));
    json::to_string(&value.fully_loaded(view.cells()).unwrap()).unwrap()
}

/// Returns one entry per record of a job: its status or, for a note, the note's kind in parentheses.
pub async fn record_kinds(engine: &Engine, id: JobId) -> Vec<String> {
    let page = engine.history(&alice(), id, 0, 1000).await.unwrap();
    let kind = |record: &catena_job::Record| match record.note() {
        Some(note) => format!("({})", note.kind().as_str()),
        None => record.status().to_string(),
    };
    page.records.iter().map(kind).collect()
}

/// Verifies a job's chain from its public JSON.
pub async fn verify_chain(engine: &Engine, id: JobId) {
    let page = engine.history(&alice(), id, 0, 1000).await.unwrap();
    let entry = |record: &catena_job::Record| -> Value {
        let loaded = record.to_value().fully_loaded(&page.cells).unwrap();
        [("id", Value::from(record.id())), ("record", loaded)].into_iter().collect::<Map>().into()
    };
    let records: catena_value::Vector = page.records.iter().map(entry).collect();
    let total = i64::try_from(page.total).unwrap();
    let document: Map =
        [("records", Value::from(records)), ("total", total.into())].into_iter().collect();
    let text = json::to_string(&document.into()).unwrap();
    let report = verify(&value(&text), &Expected { job: Some(id), ..Expected::default() });
    assert!(report.is_ok(), "{report:?}");
}

/// A number of things at a time, and the largest that it was.
#[derive(Default)]
pub struct Gauge {
    now: AtomicU32,
    peak: AtomicU32,
}

/// One of them.
pub struct Entered(Arc<Gauge>);

impl Gauge {
    fn enter(self: &Arc<Self>) -> Entered {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
        Entered(Arc::clone(self))
    }

    pub fn now(&self) -> u32 {
        self.now.load(Ordering::SeqCst)
    }

    pub fn peak(&self) -> u32 {
        self.peak.load(Ordering::SeqCst)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The adapter `t`, whose operations behave as tests need. Each run of `effect` has an effect outside
/// the venue that cannot be undone.
pub struct TestAdapter {
    /// The number of effects so far.
    effects: Arc<AtomicU32>,
    waits: Arc<Gauge>,
    /// An operation that is not registered.
    missing: Option<&'static str>,
}

/// The operations: name, execution mode, and further members of the `operation` object.
const OPERATIONS: [(&str, ExecutionMode, &str); 17] = [
    ("breaks", ExecutionMode::Task, r#""pure":true"#),
    ("echo", ExecutionMode::Inline, r#""pure":true"#),
    ("error", ExecutionMode::Inline, r#""pure":true"#),
    (
        "strict",
        ExecutionMode::Inline,
        r#""input":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]},
           "output":{"type":"object","required":["ok"]}"#,
    ),
    ("wait", ExecutionMode::Task, r#""pure":true"#),
    ("effect", ExecutionMode::Task, r#""timeoutMs":5000"#),
    ("careful", ExecutionMode::Task, r#""recovery":"pause""#),
    ("chat", ExecutionMode::Task, r#""pure":true"#),
    ("pause", ExecutionMode::Task, r#""pure":true"#),
    ("auth", ExecutionMode::Task, r#""pure":true"#),
    ("flaky", ExecutionMode::Task, r#""retry":{"attempts":3,"backoffMs":100,"factor":2}"#),
    ("broken", ExecutionMode::Task, r#""pure":true"#),
    ("caller", ExecutionMode::Task, r#""pure":true"#),
    (
        "slow",
        ExecutionMode::Task,
        r#""retry":{"attempts":2,"backoffMs":100,"jitter":0,"timeoutMs":1000},"timeoutMs":60000"#,
    ),
    ("progress", ExecutionMode::Task, r#""pure":true"#),
    ("reports", ExecutionMode::Task, r#""pure":true"#),
    (
        "secret",
        ExecutionMode::Task,
        r#""pure":true,"input":{"type":"object","properties":{"key":{"type":"string","writeOnly":true}}}"#,
    ),
];

impl Adapter for TestAdapter {
    fn name(&self) -> &'static str {
        "t"
    }

    fn description(&self) -> &'static str {
        "Behaves as tests need."
    }

    fn operations(&self) -> Vec<Registration> {
        let registration = |(name, mode, more): (&'static str, ExecutionMode, &str)| Registration {
            name,
            mode,
            metadata: value(&format!(
                r#"{{"name":"{name}","operation":{{"adapter":"t:{name}",{more}}}}}"#
            )),
        };
        let registered = OPERATIONS.into_iter().filter(|(name, ..)| Some(*name) != self.missing);
        registered.map(registration).collect()
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        match call.operation.name() {
            "error" => Err(Failure::new("asked_for", "it went wrong")),
            _ => Ok(call.input.clone()),
        }
    }

    fn run(&self, call: Call) -> TurnFuture {
        let effects = Arc::clone(&self.effects);
        let wait = (call.operation.name() == "wait").then(|| self.waits.enter());
        Box::pin(async move {
            let turn = run_turn(call, &effects).await;
            drop(wait);
            turn
        })
    }
}

/// Returns an integer member of an input, or 0.
fn number(input: &Value, name: &str) -> u64 {
    let number = input.as_map().and_then(|map| map.field(name)).and_then(Value::as_i64);
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

/// Makes the calls `{calls: [{op, input, detached?}], leavesAfterMs?}` one after the other and returns
/// their outputs. It completes after `leavesAfterMs` although a call is still open.
async fn make_calls(call: Call) -> Turn {
    match number(&call.input, "leavesAfterMs") {
        0 => make_all_calls(call).await,
        ms => {
            let calls = tokio::time::timeout(Duration::from_millis(ms), make_all_calls(call));
            calls.await.unwrap_or(Turn::Complete("left".into()))
        }
    }
}

async fn make_all_calls(call: Call) -> Turn {
    let calls = call.input.as_map().and_then(|map| map.field("calls")).cloned().unwrap();
    let mut outputs = Vec::new();
    let calls: Vec<Value> = calls.as_vector().unwrap().iter(&NoCells).map(Result::unwrap).collect();
    for (at, request) in calls.into_iter().enumerate() {
        let field = |name: &str| request.as_map().unwrap().field(name).cloned();
        let request = CallRequest {
            job: call.job.unwrap(),
            caller: call.caller.clone(),
            authority: None,
            key: format!("call-{at}"),
            operation: field("op").unwrap().as_str().unwrap().to_owned(),
            input: field("input").unwrap_or_default(),
            is_detached: field("detached").is_some(),
        };
        match call.host.call(request).await {
            Ok(view) => outputs.push(match view.job.field("output") {
                Some(output) => output.clone(),
                None => Value::from(view.status().to_string()),
            }),
            Err(failure) => return Turn::Failed(failure),
        }
    }
    Turn::Complete(catena_value::Vector::from_items(outputs).into())
}

async fn run_turn(call: Call, effects: &AtomicU32) -> Turn {
    let ms = Duration::from_millis(number(&call.input, "ms"));
    match (call.operation.name(), &call.cause) {
        ("wait" | "slow", _) => {
            call.control.sleep(ms).await;
            Turn::Complete(call.input)
        }
        ("caller", _) => make_calls(call).await,
        ("breaks", _) => {
            call.control.sleep(ms).await;
            Turn::Failed(Failure::new("asked_for", "it broke"))
        }
        ("effect" | "careful", _) => {
            call.control.proceed().await;
            let count = effects.fetch_add(1, Ordering::SeqCst) + 1;
            // Like a request that was sent: the response arrives even if the job is paused.
            tokio::time::sleep(ms).await;
            Turn::Complete(Value::from(i64::from(count)))
        }
        ("chat", Cause::Message(message)) => {
            call.control.sleep(ms).await;
            let content = message.as_map().and_then(|map| map.field("content")).cloned();
            match content.as_ref().and_then(Value::as_str) {
                Some("done") => Turn::Complete("bye".into()),
                _ => {
                    effects.fetch_add(1, Ordering::SeqCst);
                    Turn::NeedsInput(Ask { message: Some("more?".into()), output: content })
                }
            }
        }
        ("chat", _) => Turn::NeedsInput(Ask { message: Some("what?".into()), output: None }),
        ("pause", Cause::Start | Cause::Retry) => Turn::Pause,
        ("pause", _) => Turn::Complete(call.input),
        ("auth", Cause::Message(message)) => {
            let secret = message.as_map().and_then(|map| map.field("credentials")).cloned();
            let len = secret.as_ref().and_then(Value::to_text).map_or(0, |text| text.len());
            Turn::Complete(Value::from(i64::try_from(len).unwrap()))
        }
        ("auth", _) => Turn::NeedsAuth(Ask::default()),
        ("flaky", _) => {
            effects.fetch_add(1, Ordering::SeqCst);
            if u64::from(call.attempt) > number(&call.input, "fails") {
                Turn::Complete(Value::from(i64::from(call.attempt)))
            } else {
                let error = format!("attempt {} failed", call.attempt);
                Turn::Failed(Failure::transient("shaky", error))
            }
        }
        ("progress", _) => {
            for item in 1..=10i64 {
                call.control.sleep(ms).await;
                let report: Map =
                    [("processedItems", item), ("totalItems", 10)].into_iter().collect();
                call.control.report(report.into());
            }
            Turn::Complete(Value::Nil)
        }
        ("reports", _) => {
            let reports = call.input.as_map().and_then(|map| map.field("reports")).cloned();
            let reports = reports.unwrap().as_vector().unwrap().as_leaf().unwrap().to_vec();
            for report in reports {
                call.control.report(report);
                call.control.sleep(ms).await;
            }
            Turn::Complete(Value::Nil)
        }
        ("secret", _) => {
            call.control.sleep(ms).await;
            let map = call.input.as_map().unwrap();
            let key = map.get(&"key".into(), &NoCells).unwrap().unwrap();
            Turn::Complete(Value::from(i64::try_from(key.as_str().unwrap().len()).unwrap()))
        }
        ("broken", _) => panic!("an adapter broke"),
        (name, cause) => Turn::Failed(Failure::new("no", format!("{name} {cause:?}"))),
    }
}

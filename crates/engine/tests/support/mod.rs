//! A venue in memory, whose time stands still, with an adapter that does what tests ask for.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this")]

pub mod harness;
pub mod remote;
pub mod script;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use catena_auth::KeyPair;
use catena_engine::requests::{Invoke, JobView};
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
use catena_store::testing::stepped::SteppedStore;
use catena_store::testing::{Disk, RealDisk, SimDisk};
use catena_store::{Effects, Store as _};
use catena_value::{Map, NoCells, Value, json};
use remote::{Elsewhere, Road};
use script::{Script, stand_ins};

/// What survives a life of the venue.
pub struct World {
    pub disk: Arc<SimDisk>,
    pub folder: tempfile::TempDir,
    pub effects: Arc<AtomicU32>,
    pub limits: Limits,
    /// The seed of the venue's key.
    pub seed: u8,
    /// An operation that the venue has not got.
    pub without: Option<&'static str>,
    /// What steps do that are run by stand-ins.
    pub script: Arc<Script>,
    /// Another venue.
    pub remote: Arc<Elsewhere>,
    lives: AtomicU32,
}

impl World {
    pub fn new() -> Self {
        let script = Arc::<Script>::default();
        World {
            remote: Elsewhere::new(&script),
            script,
            disk: Arc::new(SimDisk::new(7)),
            folder: tempfile::tempdir().unwrap(),
            effects: Arc::default(),
            limits: Limits::default(),
            seed: 9,
            without: None,
            lives: AtomicU32::new(0),
        }
    }

    /// One life of the venue; everything that still runs at its end is gone, as after `kill -9`.
    pub fn live<T>(&self, story: impl AsyncFnOnce(Engine) -> T) -> T {
        runtime().block_on(async {
            let engine = self.start().await;
            engine.recovered().await;
            story(engine).await
        })
    }

    async fn start(&self) -> Engine {
        let disk = Arc::clone(&self.disk);
        let store = EmbeddedStore::open_manual(disk, EmbeddedStore::options()).unwrap();
        let store = Arc::new(SteppedStore(store));
        let files = RealDisk::new(self.folder.path()).unwrap();
        let files = LocalBlobs::open_folder(Arc::new(files), Options::default()).unwrap();
        let key = KeyPair::from_seed(&[self.seed; 32]);
        Engine::start(Setup {
            store: store.clone(),
            blobs: Blobs::new(store, Arc::new(files)),
            env: Arc::new(PausedEnv::for_process(self.lives.fetch_add(1, Ordering::SeqCst))),
            did: key.did(),
            key,
            limits: self.limits.clone(),
            adapters: self.adapters(),
            assets: Vec::new(),
        })
        .await
        .unwrap()
    }

    fn adapters(&self) -> Vec<Arc<dyn Adapter>> {
        let mut adapters = stand_ins(&self.script);
        adapters.push(Arc::new(Road(Arc::clone(&self.remote))));
        let effects = Arc::clone(&self.effects);
        adapters.push(Arc::new(Scripted { effects, without: self.without }));
        adapters
    }

    /// The same, with a story that begins before recovery is done.
    pub fn live_at_once<T>(&self, story: impl AsyncFnOnce(Engine) -> T) -> T {
        runtime().block_on(async { story(self.start().await).await })
    }

    /// Appends to the chain of a job between two lives, as a venue leaves it that was killed just then.
    pub fn append(&self, job: JobId, event: Event) {
        let disk = Arc::clone(&self.disk);
        let store =
            SteppedStore(EmbeddedStore::open_manual(disk, EmbeddedStore::options()).unwrap());
        runtime().block_on(async {
            let mut draft = Draft::from_job(store.job(job).await.unwrap().unwrap().job);
            assert!(draft.change(event), "the change is not allowed");
            store.commit(Effects::one(draft.effect())).await.unwrap();
        });
    }

    /// Whether these words stand anywhere on the disk.
    pub fn disk_contains(&self, words: &str) -> bool {
        let names = self.disk.list().unwrap();
        assert!(!names.is_empty());
        let contains = |name: &String| {
            let bytes = self.disk.contents(name);
            bytes.windows(words.len()).any(|part| part == words.as_bytes())
        };
        names.iter().any(contains)
    }

    /// How often something happened outside.
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

/// A request of Alice's.
pub fn request(operation: &str, input: &str) -> Invoke {
    Invoke::new(alice(), operation, value(input))
}

/// Invokes, and gives the job as it was answered.
pub async fn invoke(engine: &Engine, operation: &str, input: &str) -> JobView {
    engine.invoke(request(operation, input)).await.unwrap().view
}

/// The job after its end.
pub async fn ended(engine: &Engine, id: JobId) -> JobView {
    let view = engine.wait(&alice(), id, Duration::from_secs(100)).await.unwrap();
    assert!(view.status().is_terminal(), "job is still {}", view.status());
    view
}

/// The job when it stands somewhere.
pub async fn role(engine: &Engine, id: JobId, status: Status) -> JobView {
    let mut follow = engine.follow(catena_engine::views::Reader::Bearer, id, None).await.unwrap();
    loop {
        let view = engine.job(&alice(), id).await.unwrap();
        if view.status() == status {
            return view;
        }
        follow.next().await.unwrap().unwrap_or_else(|| panic!("{} before {status}", view.status()));
    }
}

/// A member of a job as JSON.
pub fn member(view: &JobView, name: &str) -> String {
    let value = view.job.field(name).unwrap_or_else(|| panic!("no `{name}`"));
    json::to_string(&value.fully_loaded(view.cells()).unwrap()).unwrap()
}

/// The statuses of a job's records, a note's kind in place of a status that did not change.
pub async fn story(engine: &Engine, id: JobId) -> Vec<String> {
    let page = engine.history(&alice(), id, 0, 1000).await.unwrap();
    let word = |record: &catena_job::Record| match record.note() {
        Some(note) => format!("({})", note.kind().as_str()),
        None => record.status().to_string(),
    };
    page.records.iter().map(word).collect()
}

/// Checks a job's chain as anybody could.
pub async fn verified(engine: &Engine, id: JobId) {
    let page = engine.history(&alice(), id, 0, 1000).await.unwrap();
    let entry = |record: &catena_job::Record| -> Value {
        let whole = record.to_value().fully_loaded(&page.cells).unwrap();
        [("id", Value::from(record.id())), ("record", whole)].into_iter().collect::<Map>().into()
    };
    let records: catena_value::Vector = page.records.iter().map(entry).collect();
    let total = i64::try_from(page.total).unwrap();
    let document: Map =
        [("records", Value::from(records)), ("total", total.into())].into_iter().collect();
    let text = json::to_string(&document.into()).unwrap();
    let report = verify(&value(&text), &Expected { job: Some(id), ..Expected::default() });
    assert!(report.is_ok(), "{report:?}");
}

/// Does what tests ask for. `effect` stands for something that cannot be taken back.
pub struct Scripted {
    effects: Arc<AtomicU32>,
    without: Option<&'static str>,
}

const OPERATIONS: [(&str, ExecutionMode, &str); 15] = [
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
    ("progress", ExecutionMode::Task, r#""pure":true"#),
    ("reports", ExecutionMode::Task, r#""pure":true"#),
    (
        "secret",
        ExecutionMode::Task,
        r#""pure":true,"input":{"type":"object","properties":{"key":{"type":"string","writeOnly":true}}}"#,
    ),
];

impl Adapter for Scripted {
    fn name(&self) -> &'static str {
        "t"
    }

    fn description(&self) -> &'static str {
        "Does what tests ask for."
    }

    fn operations(&self) -> Vec<Registration> {
        let registration = |(name, mode, more): (&'static str, ExecutionMode, &str)| Registration {
            name,
            mode,
            metadata: value(&format!(
                r#"{{"name":"{name}","operation":{{"adapter":"t:{name}",{more}}}}}"#
            )),
        };
        let here = OPERATIONS.into_iter().filter(|(name, ..)| Some(*name) != self.without);
        here.map(registration).collect()
    }

    fn run_inline(&self, call: &Call) -> Result<Value, Failure> {
        match call.operation.name() {
            "error" => Err(Failure::new("asked_for", "it went wrong")),
            _ => Ok(call.input.clone()),
        }
    }

    fn run(&self, call: Call) -> TurnFuture {
        let effects = Arc::clone(&self.effects);
        Box::pin(async move { turn(call, &effects).await })
    }
}

fn number(input: &Value, name: &str) -> u64 {
    let number = input.as_map().and_then(|map| map.field(name)).and_then(Value::as_i64);
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

async fn turn(call: Call, effects: &AtomicU32) -> Turn {
    let ms = Duration::from_millis(number(&call.input, "ms"));
    match (call.operation.name(), &call.cause) {
        ("wait", _) => {
            call.control.sleep(ms).await;
            Turn::Complete(call.input)
        }
        ("breaks", _) => {
            call.control.sleep(ms).await;
            Turn::Failed(Failure::new("asked_for", "it broke"))
        }
        ("effect" | "careful", _) => {
            call.control.proceed().await;
            let count = effects.fetch_add(1, Ordering::SeqCst) + 1;
            // Like a request that left: the answer comes whether the job is paused or not.
            tokio::time::sleep(ms).await;
            Turn::Complete(Value::from(i64::from(count)))
        }
        ("chat", Cause::Message(message)) => {
            call.control.sleep(ms).await;
            let said = message.as_map().and_then(|map| map.field("content")).cloned();
            match said.as_ref().and_then(Value::as_str) {
                Some("done") => Turn::Complete("bye".into()),
                _ => {
                    effects.fetch_add(1, Ordering::SeqCst);
                    Turn::NeedsInput(Ask { message: Some("more?".into()), output: said })
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
            match u64::from(call.attempt) > number(&call.input, "fails") {
                true => Turn::Complete(Value::from(i64::from(call.attempt))),
                false => Turn::Failed(Failure::transient("shaky", format!("try {}", call.attempt))),
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

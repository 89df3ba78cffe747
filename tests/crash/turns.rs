//! A venue is killed at every commit of a turn with a model and a tool, both over real HTTP.
//!
//! The commits are those of the engine on its store; what the process had in memory is gone, as after
//! `kill -9`. Whatever the commit was, the agent has either made its turn or not begun it, and neither the
//! model nor the tool got a request twice.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catena_adapters::Options;
use catena_auth::KeyPair;
use catena_engine::requests::{Invoke, ListJobs};
use catena_engine::runtime::SystemEnv;
use catena_engine::{Caller, Engine, Limits, Setup};
use catena_store::ListOrder;
use catena_store::blob::{Blobs, LocalBlobs};
use catena_store::embedded::EmbeddedStore;
use catena_store::testing::stepped::{Death, SteppedStore};
use catena_store::testing::{Disk, RealDisk, SimDisk};
use catena_tests::TIMEOUT;
use catena_tests::model::{Model, calls, says};
use catena_tests::target::Target;
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

/// More commits than a turn has.
const COMMITS_MAX: u64 = 200;

/// What outlives a process of the venue: its disk, and the services that it uses.
struct World {
    services: Runtime,
    model: Model,
    target: Target,
    disk: Arc<SimDisk>,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let services = runtime();
        let target = services.block_on(Target::start());
        let arguments = json!({"url": target.url("/tool"), "body": "x"}).to_string();
        let model = services.block_on(Model::start(move |body, _| {
            let messages = body["messages"].as_array().unwrap();
            match messages.iter().find(|message| message["role"] == "tool") {
                None => calls(&[("http_post", &arguments)]),
                Some(_) => says("done"),
            }
        }));
        let disk = Arc::new(SimDisk::new(7));
        World { services, model, target, disk, folder: tempfile::tempdir().unwrap() }
    }

    /// Runs a process of the venue until a scenario has ended, or it is killed. `None` if it was.
    fn run_process<T>(
        &self,
        death: &Arc<Death>,
        scenario: impl AsyncFnOnce(Venue) -> T,
    ) -> Option<T> {
        let runtime = runtime();
        let result = runtime.block_on(async {
            let run = async { scenario(self.start(death).await).await };
            tokio::select! {
                biased;
                () = death.died() => None,
                result = tokio::time::timeout(TIMEOUT, run) => Some(result.unwrap()),
            }
        });
        // Everything that is in memory is lost.
        runtime.shutdown_timeout(TIMEOUT);
        result
    }

    async fn start(&self, death: &Arc<Death>) -> Venue {
        let disk: Arc<SimDisk> = Arc::clone(&self.disk);
        let store = EmbeddedStore::open_manual(disk, EmbeddedStore::options()).unwrap();
        let store = Arc::new(SteppedStore::dying(store, Arc::clone(death)));
        let files: Arc<dyn Disk> = Arc::new(RealDisk::new(self.folder.path()).unwrap());
        let files = LocalBlobs::open_folder(files, catena_store::blob::Options::default()).unwrap();
        let hosts = [self.model.host(), self.target.address.to_string()];
        let options = Options::parse(hosts.iter().map(String::as_str), []).unwrap();
        let key = KeyPair::from_seed(&[9; 32]);
        let engine = Engine::start(Setup {
            secrets_key: None,
            previous_secrets_key: None,
            blobs: Blobs::new(store.clone(), Arc::new(files)),
            store,
            env: Arc::new(SystemEnv::new()),
            did: key.did(),
            key,
            limits: Limits::default(),
            adapters: catena_adapters::all(options),
            assets: Vec::new(),
            admins: Vec::new(),
            aborts: Default::default(),
        });
        Venue(engine.await.unwrap())
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A process of the venue.
struct Venue(Engine);

impl Venue {
    fn owner() -> Caller {
        Caller::known("did:key:owner")
    }

    async fn ran(&self, operation: &str, input: Json) -> Json {
        let input = catena_value::json::read(input.to_string().as_bytes()).unwrap();
        let invoke = Invoke::new(Venue::owner(), operation, input);
        let ran = self.0.run(invoke).await.unwrap();
        let output = match &ran.cells {
            Some(cells) => ran.output.fully_loaded(cells).unwrap(),
            None => ran.output,
        };
        serde_json::from_str(&catena_value::json::to_string(&output).unwrap()).unwrap()
    }

    /// Waits until every job has ended, and returns how many there are with each status and operation.
    async fn ended(&self) -> BTreeMap<(String, String), usize> {
        let list = ListJobs::all(ListOrder::Oldest, 0, 100);
        let mut ends = BTreeMap::new();
        for listed in self.0.jobs(&Venue::owner(), &list).await.unwrap().jobs {
            let view = self.0.wait(&Venue::owner(), listed.id, TIMEOUT).await.unwrap();
            assert!(view.status().is_terminal(), "{:?}", view.job);
            let op = view.job.field("op").and_then(|op| op.as_str()).unwrap().to_owned();
            *ends.entry((op, view.status().as_str().to_owned())).or_insert(0) += 1;
        }
        ends
    }
}

/// What a process left, as another one shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The turn was not made, and everything is as it was.
    Unchanged,
    /// The turn was made.
    Made,
}

/// Kills the venue at the n-th commit of a turn and starts it again. Returns what became of the turn, and
/// whether the venue was killed.
fn kill_at(commits: u64, is_last_durable: bool) -> (Outcome, bool) {
    let when = format!("killed at commit {commits}, durable: {is_last_durable}");
    let world = World::new();
    let never = || Arc::new(Death::after(u64::MAX, false));
    let config = json!({"operation": "llm:agent", "url": world.model.url(), "model": "m",
        "tools": ["http:post"]});
    world.run_process(&never(), async |venue| {
        venue.ran("agent:create", json!({"agentId": "a", "config": config})).await;
        venue.ran("agent:message", json!({"agentId": "a", "message": "go"})).await;
    });
    let death = never();
    let ended = world.run_process(&death, async |venue| {
        death.postpone(commits);
        let run = Invoke::new(Venue::owner(), "agent:run", agent_input());
        let job = venue.0.invoke(run).await.unwrap().view.job.id();
        venue.0.wait(&Venue::owner(), job, TIMEOUT).await.unwrap();
        // What follows the end of the job is part of the turn, too.
        tokio::time::sleep(Duration::from_millis(20)).await;
    });
    let outcome = world.run_process(&never(), async |venue| {
        let ends = venue.ended().await;
        let read = venue.ran("covia:read", json!({"path": "g/a"})).await["value"].clone();
        let counts =
            (read["inbox"].as_array().unwrap().len(), read["timeline"].as_array().unwrap().len());
        let asked = world.model.received().len();
        let acted = world.target.count("/tool");
        match (read["status"].as_str().unwrap(), counts) {
            ("SLEEPING", (0, 1)) => {
                assert_eq!((asked, acted), (2, 1), "{when}: {ends:?}");
                Outcome::Made
            }
            // Suspended by an interrupted call, or never begun.
            ("SUSPENDED" | "SLEEPING", (1, 0)) => {
                assert!(read["state"]["sessions"].is_null(), "{when}: {read}");
                Outcome::Unchanged
            }
            other => panic!("{when}: {other:?} {ends:?} {read}"),
        }
    });
    let bodies = world.model.bodies();
    let lengths: Vec<usize> =
        bodies.iter().map(|body| body["messages"].as_array().unwrap().len()).collect();
    assert!(lengths.windows(2).all(|pair| pair[0] < pair[1]), "{when}: asked twice: {lengths:?}");
    assert!(world.target.count("/tool") <= 1, "{when}: the tool acted twice");
    drop(world.services);
    (outcome.unwrap(), ended.is_none())
}

fn agent_input() -> catena_value::Value {
    catena_value::json::read(br#"{"agentId":"a"}"#).unwrap()
}

#[test]
fn a_turn_is_made_once_or_not_at_all_whatever_commit_the_venue_is_killed_at() {
    let mut outcomes = BTreeMap::new();
    for is_last_durable in [false, true] {
        let mut killed = 0;
        loop {
            let (outcome, was_killed) = kill_at(killed, is_last_durable);
            *outcomes.entry(outcome).or_insert(0) += 1;
            if !was_killed {
                assert_eq!(outcome, Outcome::Made, "nothing stopped it");
                break;
            }
            killed += 1;
            assert!(killed < COMMITS_MAX, "the turn does not end");
        }
        println!("{killed} commits");
        assert!(killed >= 8, "only {killed} commits");
    }
    println!("{outcomes:?}");
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}

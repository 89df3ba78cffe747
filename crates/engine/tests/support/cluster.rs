//! One or several engines on one store, as one engine to the tests.
//!
//! With `CATENA_X_TEST_ENGINES=2` every test of this crate runs with two engines. Each request goes to
//! either of them, and engines are killed and started while a test runs: nothing may depend on which
//! process receives a request, or on what only one process remembers.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use catena_engine::background::RecoverySummary;
use catena_engine::runtime::PausedEnv;
use catena_engine::{Counters, Engine};
use catena_store::blob::Blobs;
use catena_store::testing::rng::Rng;
use catena_store::testing::stepped::SteppedStore;
use parking_lot::Mutex;

use super::{TestVenue, sleep};

/// The engines that a cluster starts at most.
const NODES_MAX: usize = 64;

/// The engines that are killed at most while one scenario runs. A job that is interrupted three times
/// fails.
const KILLS_MAX: usize = 2;

/// The number of engines that tests use.
#[expect(clippy::disallowed_methods, reason = "a setting of these tests")]
pub fn engine_count() -> usize {
    let count = std::env::var("CATENA_X_TEST_ENGINES").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// The seed that was given for all tests.
#[expect(clippy::disallowed_methods, reason = "a setting of these tests")]
fn given_seed() -> u64 {
    std::env::var("CATENA_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// The seed of everything that is random in the test that runs on this thread.
fn seed() -> u64 {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    // Each test has its own, whatever else runs.
    let by_name =
        name.bytes().fold(0_u64, |hash, byte| (hash << 5) ^ (hash >> 59) ^ u64::from(byte));
    by_name.wrapping_add(given_seed())
}

/// Which engines are killed while a scenario runs on several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kills {
    /// Any but the one that answers a request: what it runs is lost and recovered.
    Any,
    /// Those that run nothing. For facts that a recovery changes: how long something takes, what the
    /// chain of a job that runs contains, whether its effects are known.
    Idle,
    /// None. For facts about one process.
    None,
}

impl Kills {
    /// Returns these kills or, if a setting says so, none, to see whether a failure has another cause,
    /// or more, to see what depends on which work is lost.
    #[expect(clippy::disallowed_methods, reason = "a setting of these tests")]
    fn allowed(self) -> Kills {
        match std::env::var("CATENA_TEST_KILLS").as_deref() {
            Ok("none") => Kills::None,
            Ok("any") if self == Kills::Idle => Kills::Any,
            _ => self,
        }
    }
}

/// An engine of a cluster, and the environment by which it can be killed.
pub struct Node {
    pub engine: Engine,
    pub env: Arc<PausedEnv>,
}

/// The engines of one venue. Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster(Arc<Nodes>);

struct Nodes {
    /// All engines that were started, in order. One that was killed stays here, because somebody may
    /// refer to it.
    started: Vec<OnceLock<Node>>,
    count: AtomicUsize,
    /// The engine in each place.
    places: Vec<AtomicUsize>,
    /// The place that received the last request.
    last: AtomicUsize,
    rng: Mutex<Rng>,
    store: Arc<SteppedStore>,
    blobs: Blobs,
    /// When the first engine started.
    began: tokio::time::Instant,
    /// What was done at random, for the message of a test that fails.
    log: Mutex<Vec<String>>,
}

impl Drop for Nodes {
    #[expect(clippy::print_stderr, reason = "so that a failure can be repeated")]
    fn drop(&mut self) {
        if std::thread::panicking() && self.places.len() > 1 {
            eprintln!("CATENA_TEST_SEED={}: {:?}", given_seed(), self.log.lock());
        }
    }
}

impl Cluster {
    pub fn new(nodes: Vec<Node>, store: Arc<SteppedStore>, blobs: Blobs) -> Self {
        let places = nodes.len();
        let started: Vec<OnceLock<Node>> = (0..NODES_MAX).map(|_| OnceLock::new()).collect();
        for (place, node) in started.iter().zip(nodes) {
            drop(place.set(node));
        }
        Cluster(Arc::new(Nodes {
            started,
            count: AtomicUsize::new(places),
            places: (0..places).map(AtomicUsize::new).collect(),
            last: AtomicUsize::new(0),
            rng: Mutex::new(Rng::new(seed())),
            store,
            blobs,
            began: tokio::time::Instant::now(),
            log: Mutex::default(),
        }))
    }

    /// Returns the engine in a place.
    pub fn node(&self, place: usize) -> &Node {
        let at = self.0.places[place].load(Ordering::SeqCst);
        self.0.started[at].get().unwrap()
    }

    /// Returns all engines that are alive.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        (0..self.0.places.len()).map(|place| self.node(place))
    }

    /// Returns the store that all engines use.
    pub fn store(&self) -> &SteppedStore {
        &self.0.store
    }

    /// Kills an engine where it is, and starts another one in its place.
    pub async fn replace(&self, venue: &TestVenue, place: usize) {
        self.node(place).env.kill();
        let (store, blobs) = (Arc::clone(&self.0.store), self.0.blobs.clone());
        let node = venue.start_engine(store, blobs, self.0.began.elapsed()).await;
        let at = self.0.count.fetch_add(1, Ordering::SeqCst);
        assert!(self.0.started[at].set(node).is_ok(), "an engine has a place of its own");
        self.0.places[place].store(at, Ordering::SeqCst);
    }

    /// Kills and starts engines at random moments, for as long as it is polled.
    pub async fn kill_at_random(&self, venue: &TestVenue, kills: Kills) {
        let kills = kills.allowed();
        let mut left = if kills == Kills::None || self.0.places.len() < 2 { 0 } else { KILLS_MAX };
        while left > 0 {
            // Sometimes in the middle of a request, sometimes after everything has settled.
            let (ms, place) = {
                let mut rng = self.0.rng.lock();
                let scale = 1_u64 << rng.below(14);
                (rng.below(scale), usize::try_from(rng.below(2)).unwrap())
            };
            sleep(ms).await;
            // The engine that answers a request now stays: its client would have to ask again.
            let answers = self.0.last.load(Ordering::SeqCst) == place;
            let is_idle = self.node(place).engine.counters().await.running == 0;
            if answers || kills == Kills::Idle && !is_idle {
                continue;
            }
            let what = format!("{place} killed after {} ms", self.0.began.elapsed().as_millis());
            self.0.log.lock().push(what);
            self.replace(venue, place).await;
            left -= 1;
        }
        std::future::pending::<()>().await;
    }

    /// Returns the sum of the counters of all engines.
    pub async fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for node in self.0.started.iter().filter_map(OnceLock::get) {
            let counters = node.engine.counters().await;
            sum.invoked += counters.invoked;
            sum.running += counters.running;
            sum.watchers += counters.watchers;
            sum.messages += counters.messages;
            sum.retries += counters.retries;
            sum.queued = counters.queued;
            for (sum, ended) in sum.ended.iter_mut().zip(counters.ended) {
                *sum += ended;
            }
        }
        sum
    }

    /// Returns what the engine that started first recovered.
    pub fn recovery(&self) -> RecoverySummary {
        self.node(0).engine.recovery()
    }

    pub async fn recovered(&self) -> RecoverySummary {
        for node in self.nodes() {
            node.engine.recovered().await;
        }
        self.recovery()
    }
}

impl Deref for Cluster {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        let places = self.0.places.len();
        let place = if places == 1 { 0 } else { self.0.rng.lock().below(places as u64) as usize };
        self.0.last.store(place, Ordering::SeqCst);
        &self.node(place).engine
    }
}

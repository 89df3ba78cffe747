//! One or several engines on one store, as one engine to the tests.
//!
//! With `CATENA_TEST_ENGINES=2` every test of this crate runs with two engines, and each request goes
//! to either of them: nothing may depend on which process receives a request.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use catena_engine::background::RecoverySummary;
use catena_engine::runtime::PausedEnv;
use catena_engine::{Counters, Engine};
use catena_store::blob::Blobs;
use catena_store::testing::stepped::SteppedStore;

use super::TestVenue;

/// The number of engines that tests use.
#[expect(clippy::disallowed_methods, reason = "the one setting of these tests")]
pub fn engine_count() -> usize {
    let count = std::env::var("CATENA_TEST_ENGINES").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// An engine of a cluster, and the environment by which it can be killed.
pub struct Node {
    pub engine: Engine,
    pub env: Arc<PausedEnv>,
}

/// The engines of one venue.
pub struct Cluster {
    pub nodes: Vec<Node>,
    store: Arc<SteppedStore>,
    blobs: Blobs,
    picks: AtomicU64,
}

impl Cluster {
    pub fn new(nodes: Vec<Node>, store: Arc<SteppedStore>, blobs: Blobs) -> Self {
        Cluster { nodes, store, blobs, picks: AtomicU64::new(1) }
    }

    /// Kills an engine where it is, and starts another one in its place.
    pub async fn replace(&mut self, venue: &TestVenue, at: usize) {
        self.nodes[at].env.kill();
        let store = Arc::clone(&self.store);
        self.nodes[at] = venue.start_engine(store, self.blobs.clone()).await;
    }

    /// Returns the sum of the counters of all engines.
    pub async fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for node in &self.nodes {
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
        self.nodes[0].engine.recovery()
    }

    pub async fn recovered(&self) -> RecoverySummary {
        for node in &self.nodes {
            node.engine.recovered().await;
        }
        self.recovery()
    }
}

impl Deref for Cluster {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        let pick = self.picks.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let at = usize::try_from(pick >> 40).unwrap() % self.nodes.len();
        &self.nodes[at].engine
    }
}

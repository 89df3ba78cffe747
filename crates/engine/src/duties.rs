//! What is done without being asked: each duty is safe to repeat, runs on a timer or a nudge, and
//! says what it did.

pub(crate) mod claim;
pub(crate) mod collect;
pub(crate) mod expire;
pub(crate) mod recover;
pub(crate) mod retain;

use crate::engine::Engine;
use crate::schedule;

/// Begins all duties but recovery, which comes first. They end when the engine stops.
pub(crate) fn begin(engine: &Engine) {
    for _ in 0..claim::CLAIMERS {
        until_stopped(engine, claim::claim(engine.clone()));
    }
    until_stopped(engine, expire::expire(engine.clone()));
    until_stopped(engine, expire::renew(engine.clone()));
    until_stopped(engine, retain::retain(engine.clone()));
    until_stopped(engine, collect::collect(engine.clone()));
    until_stopped(engine, schedule::invoke_due(engine.clone()));
}

fn until_stopped(engine: &Engine, duty: impl Future<Output = ()> + Send + 'static) {
    let stopping = engine.clone();
    engine.spawn(async move {
        tokio::select! {
            () = duty => {}
            () = stopping.stopping() => {}
        }
    });
}

//! What is done without being asked: each duty is safe to repeat, runs on a timer or a nudge, and
//! says what it did.

pub(crate) mod claim;
pub(crate) mod collect;
pub(crate) mod expire;
pub(crate) mod recover;
pub(crate) mod retain;

use catena_job::JobId;

use crate::engine::Engine;
use crate::schedule;

/// Begins the duties, recovery first. New work is taken meanwhile and runs at once where there is
/// a place for it; the queue, deadlines and leases are looked at when recovery is done, because
/// until then they say what was true of the life before. They end when the engine stops.
pub(crate) fn begin(engine: &Engine, live: Vec<JobId>) {
    until_stopped(engine, expire::renew(engine.clone()));
    until_stopped(engine, retain::retain(engine.clone()));
    until_stopped(engine, collect::collect(engine.clone()));
    until_stopped(engine, schedule::invoke_due(engine.clone()));
    let leaving = engine.clone();
    until_stopped(engine, async move { leaving.give_up_again().await });
    if live.is_empty() {
        recover::nothing(engine);
        return begin_queue(engine);
    }
    let recovering = engine.clone();
    until_stopped(engine, async move {
        recover::recover(&recovering, live).await;
        begin_queue(&recovering);
    });
}

fn begin_queue(engine: &Engine) {
    for _ in 0..claim::CLAIMERS {
        until_stopped(engine, claim::claim(engine.clone()));
    }
    until_stopped(engine, expire::expire(engine.clone()));
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

//! Many requests for trees of jobs, in any order, while engines are killed and started.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::Engine;
use catena_job::{JobId, Status};
use catena_store::testing::rng::Rng;
use support::cluster::Cluster;
use support::harness::{register, verify_tree};
use support::*;

/// A workflow of this many steps in two levels: effects that must not be repeated, waits, and a step
/// that asks.
async fn start_tree(engine: &Engine, steps: usize) -> JobId {
    let inner = steps.div_ceil(2).max(1);
    let leaf = |at: usize| match at % 3 {
        0 => r#"{"op":"t:effect","input":{"ms":["const",200]}}"#.to_owned(),
        1 => format!(r#"{{"op":"t:wait","input":{{"ms":["const",{}]}}}}"#, 100 + at % 7 * 50),
        _ => r#"{"op":"t:wait","input":{"ms":["const",400]}}"#.to_owned(),
    };
    let list = |count: usize| (0..count).map(leaf).collect::<Vec<_>>().join(",");
    let policy = r#","timeoutMs":86400000"#;
    let nested = register(engine, &format!("[{}]", list(inner)), "[0]", policy).await;
    let outer = list(steps.saturating_sub(inner + 1));
    let separator = if outer.is_empty() { "" } else { "," };
    let all = format!(r#"[{{"op":"{nested}","input":["const",{{}}]}}{separator}{outer}]"#);
    let op = register(engine, &all, "[0]", policy).await;
    let mut request = request(&op, "{}");
    request.wait = Some(Duration::ZERO);
    engine.invoke(request).await.unwrap().view.job.id()
}

/// Returns all jobs of a tree, by what the chains say.
async fn jobs_below(engine: &Engine, root: JobId) -> Vec<JobId> {
    let mut jobs = vec![root];
    let mut at = 0;
    while let Some(job) = jobs.get(at).copied() {
        at += 1;
        let view = engine.job(&alice(), job).await.unwrap();
        jobs.extend(view.job.steps().values().map(|step| step.start.job));
    }
    jobs
}

/// Asserts that the jobs of a tree agree: a PAUSED parent has no STARTED step, and a parent that has
/// ended no live one.
async fn assert_agreement(engine: &Engine, root: JobId) {
    for job in jobs_below(engine, root).await {
        let parent = engine.job(&alice(), job).await.unwrap();
        for step in parent.job.steps().values() {
            let child = engine.job(&alice(), step.start.job).await.unwrap().status();
            let status = parent.status();
            let agrees = match status {
                Status::Paused => child != Status::Started && child != Status::Pending,
                status if status.is_terminal() => child.is_terminal(),
                _ => true,
            };
            assert!(agrees, "{job} is {status}, and its step {} is {child}", step.start.job);
        }
    }
}

async fn stress(venue: &TestVenue, cluster: &mut Cluster, seed: u64, steps: usize, rounds: usize) {
    let mut rng = Rng::new(seed);
    let mut trees = Vec::new();
    for _ in 0..3 {
        trees.push(start_tree(cluster, steps).await);
    }
    for _ in 0..rounds {
        let tree = trees[rng.below(3) as usize];
        let below = jobs_below(cluster, tree).await;
        let any = below[rng.below(below.len() as u64) as usize];
        // Refusals are expected: the job may be in any status.
        match rng.below(12) {
            0..=2 => drop(cluster.pause(&alice(), tree).await),
            3..=5 => drop(cluster.resume(&alice(), tree).await),
            6 => drop(cluster.pause(&alice(), any).await),
            7 => drop(cluster.resume(&alice(), any).await),
            8 if any != tree => drop(cluster.cancel(&alice(), any, None).await),
            9 => drop(cluster.send(&alice(), any, value(r#"{"content":"x"}"#), None).await),
            10 => cluster.replace(venue, rng.below(2) as usize).await,
            _ => {}
        }
        sleep(rng.below(300)).await;
    }
    // Within a second after the last request, and after the leases of killed engines have ended.
    tokio::time::sleep(Duration::from_secs(12)).await;
    for tree in &trees {
        assert_agreement(cluster, *tree).await;
    }
    for tree in &trees {
        for _ in 0..200 {
            let status = cluster.job(&alice(), *tree).await.unwrap().status();
            match status {
                Status::Paused => drop(cluster.resume(&alice(), *tree).await),
                status if status.is_terminal() => break,
                _ => {
                    for job in jobs_below(cluster, *tree).await {
                        if cluster.job(&alice(), job).await.unwrap().status() == Status::Paused {
                            drop(cluster.resume(&alice(), job).await);
                        }
                    }
                }
            }
            sleep(1_000).await;
        }
        let view = wait_for_end(cluster, *tree).await;
        assert!(view.status().is_terminal());
        verify_tree(cluster, *tree).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    for tree in &trees {
        assert_agreement(cluster, *tree).await;
    }
    assert_eq!(cluster.counters().await.running, 0, "no run is left");
    let view = invoke(cluster, "t:wait", r#"{"ms":1}"#).await;
    assert_eq!(view.status(), Status::Complete, "no slot leaked");
    let mut effects = 0;
    for tree in &trees {
        for job in jobs_below(cluster, *tree).await {
            let view = cluster.job(&alice(), job).await.unwrap();
            effects += u32::from(member(&view, "op") == r#""t:effect""#);
        }
    }
    assert!(venue.effects() <= effects, "{} effects of {effects} jobs", venue.effects());
}

fn run(seed: u64, steps: usize, rounds: usize) {
    let mut venue = TestVenue::new();
    venue.limits.running_max = 64;
    venue.run_engines(2, async |mut cluster| {
        stress(&venue, &mut cluster, seed, steps, rounds).await;
    });
}

#[test]
fn small_trees_agree_whatever_clients_and_crashes_do() {
    for seed in 0..20 {
        run(seed, 2, 40);
    }
}

#[test]
fn wider_trees_agree_whatever_clients_and_crashes_do() {
    for seed in 100..106 {
        run(seed, 40, 40);
    }
}

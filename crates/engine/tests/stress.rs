//! Many requests for trees of jobs, in any order, while engines are killed and started.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use catena_engine::Engine;
use catena_engine::limits::TREE_COMMIT_MAX;
use catena_engine::requests::ListJobs;
use catena_job::{JobId, Status};
use catena_store::ListOrder;
use catena_store::testing::rng::Rng;
use catena_store::testing::stepped::Death;
use support::cluster::Cluster;
use support::harness::{assert_agreement, jobs_below, register, verify_tree};
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

async fn stress(venue: &TestVenue, cluster: &Cluster, seed: u64, steps: usize, rounds: usize) {
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
    venue.run_engines(2, async |cluster| {
        stress(&venue, &cluster, seed, steps, rounds).await;
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

/// What a client does with a tree, one after the other.
#[derive(Debug, Clone, Copy)]
enum Act {
    Pause,
    Resume,
    /// Pauses the step that only waits.
    PauseStep,
    /// Cancels the step that only waits.
    CancelStep,
    Message,
    Cancel,
    Delete,
    Sleep(u64),
}

const SCRIPTS: [&[Act]; 5] = [
    &[Act::Sleep(50), Act::Pause, Act::Sleep(300), Act::Resume, Act::Sleep(50), Act::Message],
    &[Act::PauseStep, Act::Message, Act::Sleep(2_000), Act::Resume, Act::Sleep(50), Act::Cancel],
    &[Act::Sleep(50), Act::Pause, Act::CancelStep, Act::Sleep(500), Act::Resume],
    &[Act::Sleep(50), Act::Pause, Act::Sleep(50), Act::Delete],
    &[Act::Message, Act::Sleep(120), Act::CancelStep],
];

/// A workflow with effects, a nested workflow, a job that calls another, and one that asks.
async fn start_mixed_tree(engine: &Engine) -> JobId {
    let effect = |ms| format!(r#"{{"op":"t:effect","input":{{"ms":["const",{ms}]}}}}"#);
    let wait = |ms| format!(r#"{{"op":"t:wait","input":{{"ms":["const",{ms}]}}}}"#);
    let call =
        r#"{"op":"t:caller","input":{"calls":["const",[{"op":"t:wait","input":{"ms":80}}]]}}"#;
    let chat = r#"{"op":"t:chat","input":["const",{}]}"#;
    let policy = r#","timeoutMs":86400000"#;
    let inner = format!("[{},{},{call}]", wait(150), effect(100));
    let inner = register(engine, &inner, "[0]", policy).await;
    let nested = format!(r#"{{"op":"{inner}","input":["const",{{}}]}}"#);
    let all = format!("[{},{},{nested},{chat}]", wait(200), effect(150));
    let op = register(engine, &all, "[0]", policy).await;
    let mut request = request(&op, "{}");
    request.wait = Some(Duration::ZERO);
    engine.invoke(request).await.unwrap().view.job.id()
}

async fn act(engine: &Engine, root: JobId, act: Act) {
    let steps = async || {
        let view = engine.job(&alice(), root).await.unwrap();
        view.job.steps().values().map(|step| step.start.job).collect::<Vec<_>>()
    };
    // Refusals are expected: the job may be in any status.
    match act {
        Act::Pause => drop(engine.pause(&alice(), root).await),
        Act::Resume => drop(engine.resume(&alice(), root).await),
        Act::PauseStep => drop(engine.pause(&alice(), steps().await[0]).await),
        Act::CancelStep => drop(engine.cancel(&alice(), steps().await[0], None).await),
        Act::Message => {
            drop(engine.send(&alice(), root, value(r#"{"content":"done"}"#), None).await);
        }
        Act::Cancel => drop(engine.cancel(&alice(), root, None).await),
        Act::Delete => drop(engine.delete(&alice(), root).await),
        Act::Sleep(ms) => sleep(ms).await,
    }
}

/// Asserts that a tree that a dead process left behind agrees, can be finished and verifies.
async fn assert_recovers(cluster: &Cluster, root: JobId, when: &str) {
    assert_agreement(cluster, root).await;
    for _ in 0..50 {
        let status = cluster.job(&alice(), root).await.unwrap().status();
        match status {
            Status::Paused => drop(cluster.resume(&alice(), root).await),
            Status::InputRequired => act(cluster, root, Act::Message).await,
            status if status.is_terminal() => break,
            _ => {
                for job in jobs_below(cluster, root).await {
                    if cluster.job(&alice(), job).await.unwrap().status() == Status::Paused {
                        drop(cluster.resume(&alice(), job).await);
                    }
                }
            }
        }
        sleep(1_000).await;
    }
    let status = cluster.job(&alice(), root).await.unwrap().status();
    assert!(status.is_terminal(), "{when}: it is still {status}");
    sleep(1_000).await;
    assert_agreement(cluster, root).await;
    verify_tree(cluster, root).await;
}

/// Runs a script in a process that is killed at its n-th commit, and checks what the next process
/// makes of it. Returns true if the process was killed.
fn kill_at(script: &[Act], commits: u64, is_last_durable: bool, tree_commit_max: usize) -> bool {
    let when = format!("{script:?}, killed after {commits} commits, {is_last_durable}");
    let mut venue = TestVenue::new();
    venue.limits.tree_commit_max = tree_commit_max;
    let death = Arc::new(Death::after(commits, is_last_durable));
    let started = std::cell::Cell::new(None);
    let ended = venue.run_until_death(&death, async |cluster| {
        let root = start_mixed_tree(&cluster).await;
        started.set(Some(root));
        for step in script {
            act(&cluster, root, *step).await;
        }
        sleep(10_000).await;
    });
    venue.run_engines(1, async |cluster| {
        sleep(1_000).await;
        let list = ListJobs::all(ListOrder::Oldest, 0, 100);
        let jobs = cluster.jobs(&alice(), &list).await.unwrap().jobs;
        let mut roots = Vec::new();
        let mut effects = 0;
        for listed in jobs {
            let view = cluster.job(&alice(), listed.id).await.unwrap();
            if view.job.parent().is_none() {
                roots.push(listed.id);
            }
        }
        let deletes = script.iter().any(|act| matches!(act, Act::Delete));
        if let Some(root) = started.get().filter(|_| !deletes) {
            assert_eq!(roots, [root], "{when}: what was acknowledged exists");
        }
        for root in &roots {
            assert_recovers(&cluster, *root, &when).await;
            for job in jobs_below(&cluster, *root).await {
                let view = cluster.job(&alice(), job).await.unwrap();
                effects += u32::from(member(&view, "op") == r#""t:effect""#);
            }
        }
        assert!(roots.is_empty() || venue.effects() <= effects, "{when}: an effect happened twice");
        assert_eq!(cluster.counters().await.running, 0, "{when}: no run is left");
        let view = invoke(&cluster, "t:wait", r#"{"ms":1}"#).await;
        assert_eq!(view.status(), Status::Complete, "{when}: no slot leaked");
    });
    ended.is_none()
}

#[test]
fn trees_agree_after_a_kill_at_any_commit() {
    for script in SCRIPTS {
        for is_last_durable in [false, true] {
            let is_killed = |n: &u64| kill_at(script, *n, is_last_durable, TREE_COMMIT_MAX);
            let killed = (0..1_000).take_while(is_killed).count();
            assert!((10..1_000).contains(&killed), "{script:?}: {killed} commits");
        }
    }
}

/// A tree that is too large for one commit changes in parts, its root first.
#[test]
fn trees_that_change_in_parts_agree_after_a_kill_at_any_commit() {
    for script in SCRIPTS {
        let killed = (0..1_000).take_while(|n| kill_at(script, *n, true, 1)).count();
        assert!((10..1_000).contains(&killed), "{script:?}: {killed} commits");
    }
}

/// A nested orchestration is resumed before its steps are, and must not pause itself for good because they
/// are still paused.
#[test]
fn a_tree_that_changes_in_parts_is_resumed_as_a_whole() {
    let mut venue = TestVenue::new();
    venue.limits.tree_commit_max = 4;
    venue.run_engines(1, async |cluster| {
        let chat = r#"{"op":"t:chat","input":["const",{}]}"#;
        let steps = format!("[{}]", vec![chat; 150].join(","));
        let nested = register(&cluster, &steps, "[0]", "").await;
        let nested = format!(r#"{{"op":"{nested}","input":["const",{{}}]}}"#);
        let op = register(&cluster, &format!("[{nested},{nested},{nested}]"), "[0]", "").await;
        let mut request = request(&op, "{}");
        request.wait = Some(Duration::ZERO);
        let root = cluster.invoke(request).await.unwrap().view.job.id();
        let all_are = async |status: Status| {
            for job in jobs_below(&cluster, root).await {
                let found = cluster.job(&alice(), job).await.unwrap().status();
                if found != status {
                    return Err(format!("{job} is {found}"));
                }
            }
            Ok(())
        };
        wait_for_status(&cluster, root, Status::InputRequired).await;
        sleep(1_000).await;
        for round in 0..3 {
            cluster.pause(&alice(), root).await.unwrap();
            sleep(1_000).await;
            assert_eq!(all_are(Status::Paused).await, Ok(()), "paused, round {round}");
            cluster.resume(&alice(), root).await.unwrap();
            sleep(1_000).await;
            assert_eq!(all_are(Status::InputRequired).await, Ok(()), "resumed, round {round}");
        }
    });
}

#[test]
fn the_deletion_of_a_large_tree_is_completed_after_a_kill_at_any_commit() {
    let echo = r#"{"op":"t:echo","input":["const",1]}"#;
    let steps = format!("[{}]", vec![echo; 300].join(","));
    for commits in 0.. {
        let venue = TestVenue::new();
        let death = Arc::new(Death::after(u64::MAX, true));
        let known = std::cell::RefCell::new(Vec::new());
        let ended = venue.run_until_death(&death, async |cluster| {
            let op = register(&cluster, &steps, "[0]", "").await;
            let root = invoke(&cluster, &op, "{}").await.job.id();
            wait_for_end(&cluster, root).await;
            *known.borrow_mut() = jobs_below(&cluster, root).await;
            death.postpone(commits);
            cluster.delete(&alice(), root).await.unwrap();
        });
        let known = known.into_inner();
        venue.run_engines(1, async |cluster| {
            for job in &known {
                let left = cluster.job(&alice(), *job).await;
                assert!(left.is_err(), "killed after {commits} commits: {job} is left");
            }
        });
        if ended.is_some() {
            assert!(commits >= 4, "{commits} commits");
            return;
        }
    }
}

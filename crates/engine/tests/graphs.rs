//! Orchestrations of every shape: random graphs, and trouble at every step in turn.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::collections::HashSet;
use std::time::Duration;

use catena_engine::Engine;
use catena_job::{JobId, Status};
use catena_value::Value;
use support::*;

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A step of a random graph: how long it takes, what it needs, whether it breaks.
#[derive(Debug, Clone)]
struct Step {
    ms: u64,
    needs: Vec<usize>,
    breaks: bool,
}

fn graph(dice: &mut Dice, with_failures: bool) -> Vec<Step> {
    let count = 1 + dice.below(60) as usize;
    (0..count)
        .map(|index| {
            let mut needs = Vec::new();
            for _ in 0..dice.below(4) {
                if index > 0 {
                    needs.push(dice.below(index as u64) as usize);
                }
            }
            needs.sort_unstable();
            needs.dedup();
            let breaks = with_failures && dice.below(25) == 0;
            Step { ms: 10 * dice.below(20), needs, breaks }
        })
        .collect()
}

fn definition(steps: &[Step]) -> String {
    let step = |step: &Step| {
        let needs: Vec<String> = step.needs.iter().map(|need| format!("[{need},\"ms\"]")).collect();
        let op = if step.breaks { "t:breaks" } else { "t:wait" };
        let (ms, needs) = (step.ms, needs.join(","));
        let needs = if needs.is_empty() { String::new() } else { format!(",{needs}") };
        format!(r#"{{"op":"{op}","input":{{"ms":["const",{ms}],"needs":["array"{needs}]}}}}"#)
    };
    let steps: Vec<String> = steps.iter().map(step).collect();
    let last = steps.len() - 1;
    let steps = steps.join(",");
    format!(
        r#"{{"operation":{{"adapter":"orchestrator","steps":[{steps}],"result":[{last},"ms"]}}}}"#
    )
}

/// When each step ends if nothing holds it up, and when the first one breaks.
fn ends(steps: &[Step]) -> (Vec<u64>, Option<u64>) {
    let mut ends: Vec<u64> = Vec::new();
    for step in steps {
        let begins = step.needs.iter().map(|need| ends[*need]).max().unwrap_or(0);
        ends.push(begins + step.ms);
    }
    // A step behind one that breaks never begins.
    let mut lost: HashSet<usize> = HashSet::new();
    let mut first = None;
    for (index, step) in steps.iter().enumerate() {
        let is_behind = step.needs.iter().any(|need| lost.contains(need));
        if step.breaks && !is_behind {
            first = Some(first.map_or(ends[index], |at: u64| at.min(ends[index])));
        }
        if step.breaks || is_behind {
            lost.insert(index);
        }
    }
    (ends, first)
}

async fn begin(engine: &Engine, steps: &[Step]) -> JobId {
    let (op, _) = engine.register(&alice(), &definition(steps), None).await.unwrap();
    let mut asked = request(&op.to_string(), "{}");
    asked.wait = Some(Duration::ZERO);
    engine.invoke(asked).await.unwrap().view.job.id()
}

/// What must hold of every run, however it ended: each step ran once, after all it needs, and the
/// chains of the whole tree hold.
async fn checked(engine: &Engine, id: JobId, steps: &[Step]) {
    verified(engine, id).await;
    let view = engine.job(&alice(), id).await.unwrap();
    let mut seen = HashSet::new();
    for (index, state) in view.job.steps() {
        assert!(seen.insert(state.start.job), "step {index} shares its job");
        let child = engine.job(&alice(), state.start.job).await.unwrap();
        verified(engine, state.start.job).await;
        for need in &steps[*index as usize].needs {
            let needed = &view.job.steps()[&u32::try_from(*need).unwrap()];
            let ended = needed.end.as_ref().expect("what it needs has ended");
            assert_eq!(ended.status, Status::Complete);
            assert!(
                needed.ended_at.unwrap() <= child.job.created(),
                "step {index} began too early"
            );
        }
        if let Some(end) = &state.end {
            assert_eq!((end.status, end.record), (child.status(), child.job.head()));
        }
    }
}

#[test]
fn a_random_graph_takes_as_long_as_its_critical_path() {
    for seed in 0..40 {
        let steps = graph(&mut Dice(seed), false);
        let expected = *ends(&steps).0.iter().max().unwrap();
        World::new().live(async |engine| {
            let begun = tokio::time::Instant::now();
            let id = begin(&engine, &steps).await;
            let view = ended(&engine, id).await;
            assert_eq!(
                view.status(),
                Status::Complete,
                "seed {seed}: {:?}",
                view.job.field("error")
            );
            let took = u64::try_from(begun.elapsed().as_millis()).unwrap();
            // Each wait may be rounded up by a millisecond.
            let slack = 2 * steps.len() as u64 + 5;
            assert!(
                (expected..=expected + slack).contains(&took),
                "seed {seed}: {took}, not {expected}"
            );
            checked(&engine, id, &steps).await;
        });
    }
}

#[test]
fn a_random_graph_that_breaks_fails_when_its_first_step_breaks() {
    let mut broken = 0;
    for seed in 100..140 {
        let steps = graph(&mut Dice(seed), true);
        let (ends, first) = ends(&steps);
        World::new().live(async |engine| {
            let begun = tokio::time::Instant::now();
            let id = begin(&engine, &steps).await;
            let view = ended(&engine, id).await;
            let took = u64::try_from(begun.elapsed().as_millis()).unwrap();
            match first {
                None => assert_eq!(view.status(), Status::Complete, "seed {seed}"),
                Some(first) => {
                    broken += 1;
                    assert_eq!(view.status(), Status::Failed, "seed {seed}");
                    let slack = 2 * steps.len() as u64 + 5;
                    assert!((first..=first + slack).contains(&took), "seed {seed}: {took}");
                    let error = view.job.field("error").and_then(Value::as_str).unwrap().to_owned();
                    let index: usize =
                        error.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap();
                    assert!(steps[index].breaks && ends[index] <= first + slack, "{error}");
                }
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(engine.counters().running, 0, "seed {seed}: something runs on");
            checked(&engine, id, &steps).await;
        });
    }
    assert!(broken >= 10, "only {broken} graphs broke");
}

/// A chain with a fork: every kind of neighbourhood, few enough steps to try them all.
fn sample() -> Vec<Step> {
    let step = |ms, needs: &[usize]| Step { ms, needs: needs.to_vec(), breaks: false };
    vec![
        step(100, &[]),
        step(100, &[0]),
        step(150, &[0]),
        step(100, &[1, 2]),
        step(50, &[]),
        step(100, &[3, 4]),
    ]
}

#[test]
fn a_failure_at_every_step_in_turn_fails_the_job_and_nothing_behind_it_runs() {
    for at in 0..sample().len() {
        let mut steps = sample();
        steps[at].breaks = true;
        World::new().live(async |engine| {
            let id = begin(&engine, &steps).await;
            let view = ended(&engine, id).await;
            assert_eq!(view.status(), Status::Failed);
            let error = member(&view, "error");
            assert!(error.contains(&format!("step {at} ended as FAILED")), "{error}");
            for (index, step) in steps.iter().enumerate() {
                let began = view.job.steps().contains_key(&u32::try_from(index).unwrap());
                assert!(!(began && step.needs.contains(&at)), "step {index} began behind {at}");
            }
            checked(&engine, id, &steps).await;
        });
    }
}

/// Moments inside every step of the sample.
const MOMENTS: [u64; 8] = [10, 60, 110, 160, 210, 260, 310, 420];

#[test]
fn a_cancel_at_every_moment_leaves_nothing_running() {
    for at in MOMENTS {
        World::new().live(async |engine| {
            let id = begin(&engine, &sample()).await;
            tokio::time::sleep(Duration::from_millis(at)).await;
            let view = engine.cancel(&alice(), id, None).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(engine.counters().running, 0, "at {at} ms");
            let after = engine.job(&alice(), id).await.unwrap();
            assert_eq!(after.job.head(), view.job.head(), "at {at} ms: something followed the end");
            checked(&engine, id, &sample()).await;
        });
    }
}

#[test]
fn a_pause_at_every_moment_stops_everything_and_costs_no_work() {
    for at in MOMENTS {
        World::new().live(async |engine| {
            let begun = tokio::time::Instant::now();
            let id = begin(&engine, &sample()).await;
            tokio::time::sleep(Duration::from_millis(at)).await;
            engine.pause(&alice(), id).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1000)).await;
            let started = engine.job(&alice(), id).await.unwrap().job.steps().len();
            tokio::time::sleep(Duration::from_secs(1000)).await;
            let view = engine.job(&alice(), id).await.unwrap();
            assert_eq!((view.status(), view.job.steps().len()), (Status::Paused, started));
            engine.resume(&alice(), id).await.unwrap();
            let view = ended(&engine, id).await;
            assert_eq!(
                view.status(),
                Status::Complete,
                "at {at} ms: {:?}",
                view.job.field("error")
            );
            let took = begun.elapsed().as_millis() - 2_000_000;
            assert!((450..490).contains(&took), "paused at {at} ms it ran for {took} ms, not 450");
            checked(&engine, id, &sample()).await;
        });
    }
}

#[test]
fn a_crash_at_every_moment_repeats_no_finished_step() {
    for at in MOMENTS {
        let world = World::new();
        let (id, finished) = world.live(async |engine| {
            let id = begin(&engine, &sample()).await;
            tokio::time::sleep(Duration::from_millis(at)).await;
            let view = engine.job(&alice(), id).await.unwrap();
            let ended = view.job.steps().values().filter(|step| step.end.is_some());
            (id, ended.cloned().collect::<Vec<_>>())
        });
        world.live(async |engine| {
            let view = ended(&engine, id).await;
            assert_eq!(
                view.status(),
                Status::Complete,
                "at {at} ms: {:?}",
                view.job.field("error")
            );
            for before in finished {
                let now = &view.job.steps()[&before.start.step];
                assert_eq!((&now.start, &now.end), (&before.start, &before.end), "at {at} ms");
            }
            checked(&engine, id, &sample()).await;
        });
    }
}

#[test]
fn long_chains_and_wide_fans_run_to_their_end() {
    World::new().live(async |engine| {
        let chain: Vec<String> = (0..1000)
            .map(|n: u32| match n.checked_sub(1) {
                None => r#"{"op":"t:echo","input":{"n":["const",0]}}"#.to_owned(),
                Some(before) => format!(r#"{{"op":"t:echo","input":{{"n":[{before},"n"]}}}}"#),
            })
            .collect();
        let chain = format!(
            r#"{{"operation":{{"adapter":"orchestrator","steps":[{}],"result":[999,"n"]}}}}"#,
            chain.join(",")
        );
        let (op, _) = engine.register(&alice(), &chain, None).await.unwrap();
        let id = invoke(&engine, &op.to_string(), "{}").await.job.id();
        let view = ended(&engine, id).await;
        assert_eq!((view.status(), view.job.steps().len()), (Status::Complete, 1000));
        verified(&engine, id).await;
    });
}

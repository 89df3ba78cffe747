//! Orchestrations of every shape: the examples of COG-12 and generated graphs go through one harness,
//! with an error, a cancel, a timeout, a pause and a crash at every step in turn.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "cog12/examples.rs"]
mod examples;
mod support;

use catena_job::Status;
use support::harness::{Case, KilledWhile, Step};
use support::*;

/// A pseudorandom sequence that depends on the seed only.
struct Random(u64);

impl Random {
    /// Returns the next number from 0 up to, but not including, `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Returns a random graph of at most `steps_max` local steps.
fn local_graph(seed: u64, steps_max: u64) -> Case {
    random_graph(seed, steps_max, |_| false)
}

/// Returns a random graph of at most `steps_max` steps. `is_remote` selects those that run on the
/// remote venue.
fn random_graph(seed: u64, steps_max: u64, is_remote: fn(usize) -> bool) -> Case {
    let mut random = Random(seed);
    let count = 1 + random.below(steps_max) as usize;
    let shape = (0..count).map(|index| {
        let count = if index == 0 { 0 } else { random.below(4) };
        let mut dependencies: Vec<usize> =
            (0..count).map(|_| random.below(index as u64) as usize).collect();
        dependencies.sort_unstable();
        dependencies.dedup();
        (40 * (1 + random.below(10)), dependencies)
    });
    case(&format!("graph {seed}"), &shape.collect::<Vec<_>>(), is_remote)
}

/// Returns an orchestration of agents that pass on their inputs. `shape` has the duration in ms and
/// the dependencies of each step.
fn case(name: &str, shape: &[(u64, Vec<usize>)], is_remote: fn(usize) -> bool) -> Case {
    let definition = |index: usize, dependencies: &[usize]| {
        let sources: String =
            dependencies.iter().map(|dependency| format!(",[{dependency},\"output\"]")).collect();
        let venue = if is_remote(index) { r#""venue":"did:web:remote.example","# } else { "" };
        format!(
            r#"{{"op":"agent:request",{venue}"input":{{"agentId":["const","{index}"],"needs":["array"{sources}]}}}}"#
        )
    };
    let input = |index: usize, dependencies: &[usize]| {
        let outputs: Vec<String> =
            dependencies.iter().map(|dependency| format!("\"from {dependency}\"")).collect();
        value(&format!(r#"{{"agentId":"{index}","needs":[{}]}}"#, outputs.join(",")))
    };
    let mut definitions = Vec::new();
    let mut steps = Vec::new();
    for (index, (duration_ms, dependencies)) in shape.iter().enumerate() {
        definitions.push(definition(index, dependencies));
        steps.push(Step {
            duration_ms: *duration_ms,
            dependencies: dependencies.clone(),
            expected_input: input(index, dependencies),
        });
    }
    let last = shape.len() - 1;
    let definitions = definitions.join(",");
    Case {
        name: name.to_owned(),
        definition: format!(
            r#"{{"operation":{{"adapter":"orchestrator","steps":[{definitions}],"result":[{last},"output"]}}}}"#
        ),
        input: "{}".to_owned(),
        steps,
        output: format!("from {last}").into(),
    }
}

/// Returns a chain with a fork: it has steps with no, one and several dependencies and dependents, and
/// few enough of them to check each.
fn sample(is_remote: fn(usize) -> bool) -> Case {
    let shape = [
        (100, vec![]),
        (100, vec![0]),
        (150, vec![0]),
        (100, vec![1, 2]),
        (60, vec![]),
        (100, vec![3, 4]),
    ];
    case(if is_remote(2) { "sample, partly remote" } else { "sample" }, &shape, is_remote)
}

/// Returns the examples, the samples, and graphs that are small enough to check each step.
fn cases() -> Vec<Case> {
    let mut cases = examples::all();
    assert_eq!(cases.len(), 5, "the examples of COG-12");
    cases.extend([sample(|_| false), sample(|step| step % 3 == 2), sample(|step| step % 2 == 0)]);
    cases.extend((200..202).map(|seed| local_graph(seed, 10)));
    cases.push(random_graph(203, 10, |step| step % 2 == 1));
    cases
}

/// Returns every case with the index of each of its steps.
fn every_step() -> impl Iterator<Item = (Case, usize)> {
    cases().into_iter().flat_map(|case| (0..case.steps.len()).map(move |at| (case.clone(), at)))
}

#[test]
fn every_case_takes_as_long_as_its_critical_path() {
    cases().iter().for_each(Case::check_run);
    (0..25).for_each(|seed| local_graph(seed, 60).check_run());
}

#[test]
fn a_failure_at_every_step_in_turn_fails_the_job_and_no_dependent_step_runs() {
    every_step().for_each(|(case, at)| case.check_failure(&[at]));
}

#[test]
fn a_random_graph_with_several_failing_steps_fails_with_the_first() {
    for seed in 100..125 {
        let case = local_graph(seed, 60);
        let mut random = Random(seed);
        let failing: Vec<usize> = (0..case.steps.len()).filter(|_| random.below(10) == 0).collect();
        if failing.is_empty() {
            case.check_run();
        } else {
            case.check_failure(&failing);
        }
    }
}

#[test]
fn a_cancel_at_every_step_in_turn_leaves_nothing_running() {
    every_step().for_each(|(case, at)| case.check_cancel_at(at));
}

#[test]
fn a_timeout_at_every_step_in_turn_leaves_nothing_running() {
    every_step().for_each(|(case, at)| case.check_timeout_at(at));
}

#[test]
fn a_pause_at_every_step_in_turn_stops_everything_and_repeats_no_work() {
    every_step().for_each(|(case, at)| case.check_pause_at(at));
}

#[test]
fn a_crash_at_every_step_in_turn_repeats_no_finished_step() {
    every_step().for_each(|(case, at)| case.check_crash_at(at, KilledWhile::Running));
}

#[test]
fn a_crash_of_a_paused_orchestration_at_every_step_in_turn_loses_nothing() {
    every_step().for_each(|(case, at)| case.check_crash_at(at, KilledWhile::Paused));
}

#[test]
fn a_chain_of_a_thousand_steps_completes() {
    TestVenue::new().run_process(async |engine| {
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
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), view.job.steps().len()), (Status::Complete, 1000));
        verify_chain(&engine, id).await;
    });
}

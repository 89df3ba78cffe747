//! Orchestrations of every shape: the examples of COG-12 and generated graphs through one harness,
//! with trouble at every step in turn.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "cog12/examples.rs"]
mod examples;
mod support;

use catena_job::Status;
use support::harness::{Case, Mood, Step};
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

/// A random graph of at most so many steps, all of them here.
fn graph(seed: u64, steps_max: u64) -> Case {
    drawn(seed, steps_max, |_| false)
}

/// A random graph of which some steps run at another venue.
fn drawn(seed: u64, steps_max: u64, is_away: fn(usize) -> bool) -> Case {
    let mut dice = Dice(seed);
    let count = 1 + dice.below(steps_max) as usize;
    let shape = (0..count).map(|index| {
        let count = if index == 0 { 0 } else { dice.below(4) };
        let mut needs: Vec<usize> = (0..count).map(|_| dice.below(index as u64) as usize).collect();
        needs.sort_unstable();
        needs.dedup();
        (40 * (1 + dice.below(10)), needs)
    });
    case(&format!("graph {seed}"), &shape.collect::<Vec<_>>(), is_away)
}

/// An orchestration of agents that pass on what they were given.
fn case(name: &str, shape: &[(u64, Vec<usize>)], is_away: fn(usize) -> bool) -> Case {
    let define = |index: usize, needs: &[usize]| {
        let sources: String = needs.iter().map(|need| format!(",[{need},\"output\"]")).collect();
        let venue = if is_away(index) { r#""venue":"did:web:away.example","# } else { "" };
        format!(
            r#"{{"op":"agent:request",{venue}"input":{{"agentId":["const","{index}"],"needs":["array"{sources}]}}}}"#
        )
    };
    let sees = |index: usize, needs: &[usize]| {
        let given: Vec<String> = needs.iter().map(|need| format!("\"from {need}\"")).collect();
        value(&format!(r#"{{"agentId":"{index}","needs":[{}]}}"#, given.join(",")))
    };
    let mut defined = Vec::new();
    let mut steps = Vec::new();
    for (index, (ms, needs)) in shape.iter().enumerate() {
        defined.push(define(index, needs));
        steps.push(Step { ms: *ms, needs: needs.clone(), sees: sees(index, needs) });
    }
    let (last, defined) = (shape.len() - 1, defined.join(","));
    Case {
        name: name.to_owned(),
        definition: format!(
            r#"{{"operation":{{"adapter":"orchestrator","steps":[{defined}],"result":[{last},"output"]}}}}"#
        ),
        input: "{}".to_owned(),
        steps,
        output: format!("from {last}").into(),
    }
}

/// A chain with a fork: every kind of neighbourhood, few enough steps to try them all.
fn sample(is_away: fn(usize) -> bool) -> Case {
    let shape = [
        (100, vec![]),
        (100, vec![0]),
        (150, vec![0]),
        (100, vec![1, 2]),
        (60, vec![]),
        (100, vec![3, 4]),
    ];
    case(if is_away(2) { "sample, partly away" } else { "sample" }, &shape, is_away)
}

/// The examples, the sample, and graphs that are small enough for trouble at every step.
fn cases() -> Vec<Case> {
    let mut cases = examples::all();
    assert_eq!(cases.len(), 5, "the examples of COG-12");
    cases.extend([sample(|_| false), sample(|step| step % 3 == 2), sample(|step| step % 2 == 0)]);
    cases.extend((200..202).map(|seed| graph(seed, 10)));
    cases.push(drawn(203, 10, |step| step % 2 == 1));
    cases
}

/// Every case with every index of its steps.
fn every_step() -> impl Iterator<Item = (Case, usize)> {
    cases().into_iter().flat_map(|case| (0..case.steps.len()).map(move |at| (case.clone(), at)))
}

#[test]
fn every_case_takes_as_long_as_its_critical_path() {
    cases().iter().for_each(Case::runs);
    (0..25).for_each(|seed| graph(seed, 60).runs());
}

#[test]
fn a_failure_at_every_step_in_turn_fails_the_job_and_nothing_behind_it_runs() {
    every_step().for_each(|(case, at)| case.fails(&[at]));
}

#[test]
fn a_random_graph_that_breaks_in_several_places_fails_when_the_first_breaks() {
    for seed in 100..125 {
        let case = graph(seed, 60);
        let mut dice = Dice(seed);
        let broken: Vec<usize> = (0..case.steps.len()).filter(|_| dice.below(10) == 0).collect();
        match broken.is_empty() {
            true => case.runs(),
            false => case.fails(&broken),
        }
    }
}

#[test]
fn a_cancel_at_every_step_in_turn_leaves_nothing_running() {
    every_step().for_each(|(case, at)| case.is_cancelled_in(at));
}

#[test]
fn a_timeout_at_every_step_in_turn_leaves_nothing_running() {
    every_step().for_each(|(case, at)| case.times_out_in(at));
}

#[test]
fn a_pause_at_every_step_in_turn_stops_everything_and_costs_no_work() {
    every_step().for_each(|(case, at)| case.is_paused_in(at));
}

#[test]
fn a_crash_at_every_step_in_turn_repeats_no_finished_step() {
    every_step().for_each(|(case, at)| case.survives_a_crash_in(at, Mood::Running));
}

#[test]
fn a_crash_of_a_paused_orchestration_at_every_step_in_turn_loses_nothing() {
    every_step().for_each(|(case, at)| case.survives_a_crash_in(at, Mood::Paused));
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

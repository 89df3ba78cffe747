//! How many sub-jobs a root may have, and how deep they may be nested.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use catena_engine::Engine;
use catena_job::{JobId, Status};
use support::cluster::Kills;
use support::harness::{children, register, verify_tree};
use support::*;

fn venue_with_total(max: u64) -> TestVenue {
    let mut venue = TestVenue::with_kills(Kills::Any);
    venue.limits.sub_jobs_per_root_max = max;
    venue
}

/// The input of `t:caller` that calls each of these operations with the input `{}`.
fn calls(operations: &[&str]) -> String {
    let call = |op: &&str| format!(r#"{{"op":"{op}","input":{{"ms":10}}}}"#);
    let calls: Vec<String> = operations.iter().map(call).collect();
    format!(r#"{{"calls":[{}]}}"#, calls.join(","))
}

async fn call_count(engine: &Engine, id: JobId) -> usize {
    engine.job(&alice(), id).await.unwrap().job.calls().len()
}

#[test]
fn calls_stop_at_the_total_of_their_root_and_say_so() {
    venue_with_total(20).run_process(async |engine| {
        let id = invoke(&engine, "t:caller", &calls(&["t:echo"; 30])).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(member(&view, "errorCode"), r#""too_many_sub_jobs""#);
        assert!(member(&view, "error").contains("at most 20 sub-jobs"), "{:?}", view.job);
        assert_eq!(call_count(&engine, id).await, 20);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn calls_below_different_steps_share_one_total() {
    venue_with_total(20).run_process(async |engine| {
        let input = calls(&["t:wait"; 15]);
        let step = format!(r#"{{"op":"t:caller","input":["const",{input}]}}"#);
        let op = register(&engine, &format!("[{step},{step}]"), r#"["const",1]"#, "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        assert!(member(&view, "error").contains("at most 20 sub-jobs"), "{:?}", view.job);
        sleep(1_000).await;
        let mut total = children(&view).len();
        for child in children(&view) {
            assert!(engine.job(&alice(), child).await.unwrap().status().is_terminal());
            total += call_count(&engine, child).await;
        }
        assert_eq!(total, 20, "each sub-job was counted once");
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_nested_orchestration_for_which_the_root_has_no_sub_jobs_left_fails() {
    venue_with_total(20).run_process(async |engine| {
        let step = r#"{"op":"t:echo","input":["const",1]}"#;
        let steps = format!("[{}]", [step; 5].join(","));
        let op = register(&engine, &steps, r#"["const",1]"#, "").await;
        let mut operations = vec!["t:echo"; 17];
        operations.push(&op);
        let id = invoke(&engine, "t:caller", &calls(&operations)).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert!(member(&view, "output").ends_with(r#""FAILED"]"#), "{:?}", view.job);
        let nested = view.job.calls()[17].start.job;
        let nested = engine.job(&alice(), nested).await.unwrap();
        assert_eq!(member(&nested, "errorCode"), r#""too_many_sub_jobs""#);
        assert!(children(&nested).is_empty(), "none of a group is started");
        verify_tree(&engine, id).await;
    });
}

#[test]
fn the_total_survives_a_restart() {
    let venue = venue_with_total(20);
    let mut operations = vec!["t:echo"; 15];
    operations.push("t:slow");
    operations.extend(["t:echo"; 15]);
    let id = venue.run_process(async |engine| {
        let input = calls(&operations).replace(
            r#"{"op":"t:slow","input":{"ms":10}}"#,
            r#"{"op":"t:wait","input":{"ms":1000}}"#,
        );
        let id = invoke(&engine, "t:caller", &input).await.job.id();
        sleep(500).await;
        assert_eq!(call_count(&engine, id).await, 16);
        id
    });
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert_eq!(member(&view, "errorCode"), r#""too_many_sub_jobs""#);
        assert_eq!(call_count(&engine, id).await, 20);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_definition_with_too_many_sub_jobs_is_refused_before_it_starts() {
    venue_with_total(20).run_process(async |engine| {
        let wide = async |op: &str, count: usize| {
            let step = format!(r#"{{"op":"{op}","input":["const",1]}}"#);
            let steps = vec![step; count].join(",");
            register(&engine, &format!("[{steps}]"), r#"["const",1]"#, "").await
        };
        let four = wide("t:echo", 4).await;
        let fits = wide(&four, 4).await;
        let id = invoke(&engine, &fits, "{}").await.job.id();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete, "4 + 4 × 4");
        verify_tree(&engine, id).await;
        let five = wide("t:echo", 5).await;
        let view = invoke(&engine, &wide(&five, 4).await, "{}").await;
        assert_eq!(view.status(), Status::Rejected);
        let expected = "24 sub-jobs in total, and a root has at most 20";
        assert!(member(&view, "error").contains(expected), "{}", member(&view, "error"));
        assert!(children(&view).is_empty());
    });
}

#[test]
fn depth_is_counted_through_steps_and_calls_alike() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        // An orchestration whose only step makes the calls of its input.
        let op = register(&engine, r#"[{"op":"t:caller","input":["input"]}]"#, "[0]", "").await;
        let mut input = r#"{"calls":[]}"#.to_owned();
        for _ in 0..6 {
            input = format!(r#"{{"calls":[{{"op":"{op}","input":{input}}}]}}"#);
        }
        let id = invoke(&engine, &op, &input).await.job.id();
        let view = wait_for_end(&engine, id).await;
        // Each of the seven adds a step and a call.
        assert!(member(&view, "output").contains("REJECTED"), "{}", member(&view, "output"));
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_detached_call_of_an_ended_step_is_cancelled_with_its_open_root() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let input = r#"{"calls":[{"op":"t:wait","input":{"ms":600000},"detached":true}]}"#;
        let steps = format!(
            r#"[{{"op":"t:caller","input":["const",{input}]}},
                {{"op":"t:wait","input":{{"ms":["const",600000]}}}}]"#
        );
        let op = register(&engine, &steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(500).await;
        let [caller, _] = children(&engine.job(&alice(), id).await.unwrap())[..] else {
            panic!("two steps")
        };
        let caller = engine.job(&alice(), caller).await.unwrap();
        assert_eq!(caller.status(), Status::Complete);
        let detached = caller.job.calls()[0].start.job;
        engine.cancel(&alice(), id, None).await.unwrap();
        let detached = engine.job(&alice(), detached).await.unwrap();
        assert_eq!(detached.status(), Status::Cancelled);
    });
}

//! What requests, runs and orchestrations hold in memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use catena_engine::error::InvokeError;
use catena_engine::requests::Recording;
use catena_job::Status;
use support::harness::{register, verify_tree};
use support::*;

const MIB: u64 = 1024 * 1024;

fn venue_with_memory(mib: u64) -> TestVenue {
    let mut venue = TestVenue::new();
    venue.limits.memory_per_caller_bytes_max = mib * MIB;
    venue
}

fn text(length: usize) -> String {
    format!("\"{}\"", "x".repeat(length))
}

#[test]
fn an_input_that_does_not_fit_is_refused_and_other_callers_are_served() {
    // Each process has a budget of its own.
    venue_with_memory(2).run_engines(1, async |engine| {
        let input = format!(r#"{{"ms":1000,"text":{}}}"#, text(1_500_000));
        let first = invoke(&engine, "t:wait", &input).await.job.id();
        let refused = engine.invoke(request("t:wait", &input)).await.unwrap_err();
        assert!(matches!(refused, InvokeError::TooMuchMemory(_)), "{refused}");
        let mut other = request("t:wait", &input);
        other.caller = bob();
        engine.invoke(other).await.unwrap();
        // There is room again when the first has ended.
        assert_eq!(wait_for_end(&engine, first).await.status(), Status::Complete);
        sleep(10).await;
        let second = invoke(&engine, "t:wait", &input).await.job.id();
        assert_eq!(wait_for_end(&engine, second).await.status(), Status::Complete);
    });
}

#[test]
fn equal_outputs_of_steps_are_held_once() {
    venue_with_memory(4).run_process(async |engine| {
        let step = r#"{"op":"t:echo","input":["input"]}"#;
        let steps = format!("[{}]", [step; 8].join(","));
        let op = register(&engine, &steps, r#"["const",1]"#, "").await;
        let id = invoke(&engine, &op, &text(1_000_000)).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        verify_tree(&engine, id).await;
    });
}

#[test]
fn an_orchestration_whose_outputs_do_not_fit_fails() {
    let venue = venue_with_memory(4);
    venue.run_process(async |engine| {
        let step =
            |n: u32| format!(r#"{{"op":"t:echo","input":{{"n":["const",{n}],"text":["input"]}}}}"#);
        let steps: Vec<String> = (0..8).map(step).collect();
        let op = register(&engine, &format!("[{}]", steps.join(",")), r#"["const",1]"#, "").await;
        let id = invoke(&engine, &op, &text(1_000_000)).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        let error = member(&view, "error");
        assert!(error.contains("in memory at a time"), "{error}");
        verify_tree(&engine, id).await;
        // Nothing stays reserved.
        sleep(100).await;
        let input = format!(r#"{{"ms":1,"text":{}}}"#, text(3_500_000));
        let id = invoke(&engine, "t:wait", &input).await.job.id();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
    });
}

#[test]
fn steps_wait_for_memory_that_others_hold() {
    venue_with_memory(5).run_process(async |engine| {
        // Each input takes 1 MB while its step runs, and the outputs are small.
        let step = |n: u32| {
            format!(
                r#"{{"op":"t:effect","input":{{"ms":["const",100],"n":["const",{n}],"text":["input"]}}}}"#
            )
        };
        let steps: Vec<String> = (0..12).map(step).collect();
        let op = register(&engine, &format!("[{}]", steps.join(",")), r#"["const",1]"#, "").await;
        let id = invoke(&engine, &op, &text(1_000_000)).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        verify_tree(&engine, id).await;
    });
}

#[test]
fn private_jobs_count_as_live_and_occupy_slots() {
    let mut venue = TestVenue::new();
    venue.limits.live_jobs_per_caller_max = 2;
    venue.limits.running_max = 1;
    venue.run_engines(1, async |engine| {
        let private = |ms: u32| {
            let mut request = request("t:wait", &format!(r#"{{"ms":{ms}}}"#));
            request.recording = Recording::Private;
            request
        };
        engine.invoke(private(1_000)).await.unwrap();
        // The only slot is taken: a recorded job waits for it, a private one cannot.
        let recorded = invoke(&engine, "t:wait", r#"{"ms":10}"#).await;
        assert_eq!(recorded.status(), Status::Pending);
        let refused = engine.invoke(private(10)).await.unwrap_err();
        assert!(matches!(refused, InvokeError::TooManyJobs { live: 2 }), "{refused}");
        assert_eq!(wait_for_end(&engine, recorded.job.id()).await.status(), Status::Complete);
        sleep(100).await;
        engine.invoke(private(10)).await.unwrap();
    });
}

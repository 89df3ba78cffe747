//! Operations that a running job invokes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use catena_job::{JobId, Status};
use support::harness::verify_tree;
use support::*;

async fn called_jobs(engine: &catena_engine::Engine, id: JobId) -> Vec<JobId> {
    let view = engine.job(&alice(), id).await.unwrap();
    view.job.calls().iter().map(|call| call.start.job).collect()
}

#[test]
fn a_call_is_a_sub_job_that_its_caller_commits_to() {
    TestVenue::new().run_process(async |engine| {
        let input = r#"{"calls":[{"op":"t:echo","input":1},{"op":"t:wait","input":{"ms":50}}]}"#;
        let id = invoke(&engine, "t:caller", input).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(member(&view, "output"), r#"[1,{"ms":50}]"#);
        let kinds = record_kinds(&engine, id).await;
        assert_eq!(
            kinds,
            ["PENDING", "STARTED", "(call)", "(call)", "(call)", "COMPLETE"],
            "an inline call starts and ends in one record"
        );
        for (number, called) in called_jobs(&engine, id).await.into_iter().enumerate() {
            let view = engine.job(&alice(), called).await.unwrap();
            let parent = view.job.parent().unwrap();
            assert_eq!((parent.job, parent.step()), (id, None), "call {number}");
        }
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_repeated_turn_takes_ended_calls_from_the_chain_and_makes_only_the_others() {
    let venue = TestVenue::new();
    let input = r#"{"calls":[{"op":"t:effect","input":{"ms":10}},
                             {"op":"t:wait","input":{"ms":1000}},
                             {"op":"t:effect","input":{"ms":10}}]}"#;
    let id = venue.run_process(async |engine| {
        let id = invoke(&engine, "t:caller", input).await.job.id();
        sleep(500).await;
        id
    });
    assert_eq!(venue.effects(), 1, "the process died during the second call");
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert_eq!(member(&view, "output"), r#"[1,{"ms":1000},2]"#);
        assert_eq!(called_jobs(&engine, id).await.len(), 3);
        verify_tree(&engine, id).await;
    });
    assert_eq!(venue.effects(), 2, "no call acted twice");
}

#[test]
fn a_caller_that_cannot_be_repeated_fails_with_its_open_calls() {
    let venue = TestVenue::new();
    let id = venue.run_process(async |engine| {
        let text = r#"{"name":"once","operation":{"adapter":"t:caller","recovery":"fail"}}"#;
        let (op, _) = engine.register(&alice(), text, None).await.unwrap();
        let input = r#"{"calls":[{"op":"t:wait","input":{"ms":50000}}]}"#;
        let id = invoke(&engine, &op.to_string(), input).await.job.id();
        sleep(500).await;
        id
    });
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert!(member(&view, "error").contains("effects are unknown"));
        sleep(1_000).await;
        for called in called_jobs(&engine, id).await {
            let view = engine.job(&alice(), called).await.unwrap();
            assert_eq!(view.status(), Status::Cancelled, "nobody waits for it any more");
        }
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_different_call_under_a_recorded_key_fails() {
    let venue = TestVenue::new();
    let id = venue.run_process(async |engine| {
        let input = r#"{"calls":[{"op":"t:wait","input":{"ms":1}},{"op":"t:nothing"}]}"#;
        let id = invoke(&engine, "t:caller", input).await.job.id();
        wait_for_end(&engine, id).await;
        id
    });
    venue.run_process(async |engine| {
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Failed);
        assert!(member(&view, "error").contains("t:nothing"), "{}", member(&view, "error"));
        verify_tree(&engine, id).await;
    });
}

#[test]
fn control_of_a_job_reaches_its_calls() {
    TestVenue::new().run_process(async |engine| {
        let input = r#"{"calls":[{"op":"t:wait","input":{"ms":1000}}]}"#;
        let id = invoke(&engine, "t:caller", input).await.job.id();
        sleep(100).await;
        let [called] = called_jobs(&engine, id).await[..] else { panic!("one call") };
        let status = async || engine.job(&alice(), called).await.unwrap().status();
        engine.pause(&alice(), id).await.unwrap();
        assert_eq!(status().await, Status::Paused);
        sleep(5_000).await;
        engine.resume(&alice(), id).await.unwrap();
        assert_eq!(status().await, Status::Started);
        engine.cancel(&alice(), id, None).await.unwrap();
        assert_eq!(status().await, Status::Cancelled);
        verify_tree(&engine, id).await;
        sleep(1_000).await;
        assert_eq!(engine.counters().await.running, 0);
    });
}

#[test]
fn a_caller_asks_for_what_its_call_asks_for() {
    let venue = TestVenue::new();
    let id = venue.run_process(async |engine| {
        let input = r#"{"calls":[{"op":"t:chat","input":{}}]}"#;
        let id = invoke(&engine, "t:caller", input).await.job.id();
        let view = wait_for_status(&engine, id, Status::InputRequired).await;
        assert!(member(&view, "message").contains("what?"), "{}", member(&view, "message"));
        engine.send(&alice(), id, value(r#"{"content":"more"}"#), None).await.unwrap();
        sleep(1_000).await;
        let view = wait_for_status(&engine, id, Status::InputRequired).await;
        assert!(member(&view, "message").contains("more?"));
        // Waiting for people takes none of its time.
        sleep(20 * 60_000).await;
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::InputRequired);
        id
    });
    // The turn is lost with its process; the answer starts it again.
    venue.run_process(async |engine| {
        engine.send(&alice(), id, value(r#"{"content":"done"}"#), None).await.unwrap();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        assert_eq!(member(&view, "output"), r#"["bye"]"#);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_caller_waits_without_a_slot_and_a_detached_call_outlives_it() {
    let mut venue = TestVenue::new();
    venue.limits.running_max = 1;
    venue.run_engines(1, async |engine| {
        let nested = r#"{"calls":[{"op":"t:caller",
            "input":{"calls":[{"op":"t:wait","input":{"ms":10}}]}}]}"#;
        let id = invoke(&engine, "t:caller", nested).await.job.id();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        verify_tree(&engine, id).await;
        let input = r#"{"calls":[{"op":"t:wait","input":{"ms":500},"detached":true}]}"#;
        let id = invoke(&engine, "t:caller", input).await.job.id();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        let [called] = called_jobs(&engine, id).await[..] else { panic!("one call") };
        assert_eq!(wait_for_end(&engine, called).await.status(), Status::Complete);
    });
}

#[test]
fn calls_are_nested_to_a_bounded_depth() {
    TestVenue::new().run_process(async |engine| {
        let mut input = r#"{"ms":1}"#.to_owned();
        let mut op = "t:wait";
        for _ in 0..12 {
            input = format!(r#"{{"calls":[{{"op":"{op}","input":{input}}}]}}"#);
            op = "t:caller";
        }
        let id = invoke(&engine, op, &input).await.job.id();
        let view = wait_for_end(&engine, id).await;
        // The innermost call fails; its callers complete with that status as their output.
        assert!(member(&view, "output").contains("FAILED"), "{}", member(&view, "output"));
        verify_tree(&engine, id).await;
    });
}

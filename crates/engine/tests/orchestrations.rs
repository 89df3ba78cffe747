//! Orchestrations: order, parallelism, failures, control, recovery.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::error::ControlError;
use catena_job::Status;
use catena_job::state::Event;
use support::harness::{children, register, step_members, verify_tree};
use support::*;

const FAN: &str = r#"[
  {"op":"t:echo","name":"a","input":{"v":["input","x"]}},
  {"op":"t:echo","name":"b","input":{"v":["const",2]}},
  {"op":"t:echo","name":"join","input":["array",[0,"v"],[1,"v"],["concat","n=",[0,"v"]]]}
]"#;

#[test]
fn inline_steps_and_their_join_are_one_commit() {
    TestVenue::new().run_process(async |engine| {
        let fan = FAN.replace(r#""n=""#, r#"["const","n="]"#);
        let op = register(&engine, &fan, r#"{"all":[2],"given":["input"]}"#, "").await;
        let view = invoke(&engine, &op, r#"{"x":1}"#).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        let output = value(&member(&view, "output"));
        assert_eq!(output, value(r#"{"all":[1,2,"n=1"],"given":{"x":1}}"#));
        let id = view.job.id();
        assert_eq!(record_kinds(&engine, id).await, ["PENDING", "STARTED", "(step)", "COMPLETE"]);
        assert_eq!(step_members(&view, "status"), ["COMPLETE"; 3]);
        assert_eq!(step_members(&view, "name"), ["a", "b", "join"]);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn independent_steps_run_in_parallel_and_a_step_starts_when_its_last_dependency_ends() {
    TestVenue::new().run_process(async |engine| {
        let steps = r#"[
          {"op":"t:wait","input":{"ms":["const",300]}},
          {"op":"t:wait","input":{"ms":["const",100]}},
          {"op":"t:wait","input":{"ms":["const",100],"after":[1]}},
          {"op":"t:wait","input":{"ms":["const",50],"after":["array",[0],[2]]}}
        ]"#;
        let op = register(&engine, steps, r#"[3,"ms"]"#, "").await;
        let started = tokio::time::Instant::now();
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "50".into()));
        let took = started.elapsed().as_millis();
        assert!((350..370).contains(&took), "{took} ms, the critical path is 350");
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_failed_step_fails_the_job_skips_the_rest_and_cancels_what_runs() {
    TestVenue::new().run_process(async |engine| {
        let steps = r#"[
          {"op":"t:wait","input":{"ms":["const",10000]}},
          {"op":"t:wait","input":{"ms":["const",100]}},
          {"op":"t:error","name":"breaks","input":{"after":[1]}},
          {"op":"t:echo","input":[2]}
        ]"#;
        let op = register(&engine, steps, "[3]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(member(&view, "error"), r#""step 2 (breaks) ended as FAILED: it went wrong""#);
        sleep(10).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(step_members(&view, "status"), ["CANCELLED", "COMPLETE", "FAILED", "SKIPPED"]);
        verify_chain(&engine, id).await;
        assert_eq!(engine.counters().await.running, 0);
        // They continue if the definition says so.
        let op = register(&engine, steps, "[3]", r#","onFailure":"leave""#).await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        wait_for_end(&engine, id).await;
        sleep(10).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(step_members(&view, "status"), ["STARTED", "COMPLETE", "FAILED", "SKIPPED"]);
    });
}

#[test]
fn an_orchestration_that_cannot_run_is_refused_before_any_step_runs() {
    TestVenue::new().run_process(async |engine| {
        let steps = r#"[
          {"op":"t:echo","input":["const",1]},
          {"op":"t:nothing","input":["const",1]},
          {"op":"t:strict","input":{"n":["const","x"]}}
        ]"#;
        let op = register(&engine, steps, "[0]", "").await;
        let view = invoke(&engine, &op, "{}").await;
        assert_eq!(view.status(), Status::Rejected);
        let error = member(&view, "error");
        assert!(error.contains("/operation/steps/1/op") && error.contains("/operation/steps/2/input"), "{error}");
        assert_eq!(engine.counters().await.invoked, 1, "no sub-job was created");
        // A definition that is invalid in itself cannot be registered.
        let bad = r#"{"operation":{"adapter":"orchestrator","steps":[{"op":"t:echo","input":[0]}],"result":[7]}}"#;
        let error = engine.register(&alice(), bad, None).await.unwrap_err();
        let catena_engine::error::AssetError::Invalid(problems) = error else { panic!("{error}") };
        let locations: Vec<_> = problems.iter().map(|(location, _)| location.as_str()).collect();
        assert_eq!(locations, ["/operation/steps/0/input/0", "/operation/result/0"]);
    });
}

#[test]
fn an_input_that_violates_the_targets_schema_is_a_rejected_step() {
    TestVenue::new().run_process(async |engine| {
        let steps = r#"[{"op":"t:strict","input":{"n":["input","n"]}}]"#;
        let op = register(&engine, steps, "[0]", "").await;
        let view = invoke(&engine, &op, r#"{"n":"x"}"#).await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(step_members(&view, "status"), ["REJECTED"]);
        assert!(member(&view, "error").contains("step 0 ended as REJECTED"));
        verify_tree(&engine, view.job.id()).await;
        // An optional input that is absent is null, which this target does not accept.
        let view = invoke(&engine, &op, "{}").await;
        assert!(member(&view, "error").contains("step 0 ended as REJECTED"));
        assert_eq!(step_members(&view, "status"), ["REJECTED"]);
    });
}

#[test]
fn pause_resume_and_cancel_reach_the_steps() {
    TestVenue::new().run_process(async |engine| {
        let steps = r#"[
          {"op":"t:wait","input":{"ms":["const",1000]}},
          {"op":"t:wait","input":{"ms":["const",1000],"after":[0]}}
        ]"#;
        let op = register(&engine, steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(500).await;
        let view = engine.pause(&alice(), id).await.unwrap();
        assert_eq!(
            (view.status(), step_members(&view, "status")),
            (Status::Paused, vec!["PAUSED".into(), "PENDING".into()])
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(step_members(&view, "status"), ["PAUSED", "PENDING"]);
        let started = tokio::time::Instant::now();
        engine.resume(&alice(), id).await.unwrap();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        let took = started.elapsed().as_millis();
        assert!((1480..1600).contains(&took), "{took}");
        verify_tree(&engine, id).await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = engine.cancel(&alice(), id, None).await.unwrap();
        assert_eq!(step_members(&view, "status"), ["CANCELLED", "SKIPPED"]);
        let child = children(&view)[0];
        let error = engine.delete(&alice(), child).await.unwrap_err();
        assert!(
            matches!(error, catena_engine::error::ControlError::SubJob { root, .. } if root == id)
        );
        engine.delete(&alice(), id).await.unwrap();
        assert!(engine.job(&alice(), child).await.is_err(), "the tree is deleted with its root");
    });
}

#[test]
fn a_step_whose_work_ends_while_the_parent_job_is_paused_starts_no_other_step() {
    TestVenue::new().run_process(async |engine| {
        let steps = r#"[
          {"op":"t:effect","input":{"ms":["const",100]}},
          {"op":"t:effect","input":{"ms":["const",100],"after":[0]}}
        ]"#;
        let op = register(&engine, steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        for step in 0..2 {
            sleep(50).await;
            let view = engine.pause(&alice(), id).await.unwrap();
            // A step cannot be resumed without the job above it.
            let child = children(&view)[step];
            let refused = engine.resume(&alice(), child).await.unwrap_err();
            assert_eq!(refused, ControlError::ParentPaused { job: child, parent: id });
            // The response to its request arrives anyway, and is held.
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(record_kinds(&engine, child).await.last().unwrap(), "(held)");
            let view = engine.job(&alice(), id).await.unwrap();
            assert_eq!((view.status(), children(&view).len()), (Status::Paused, step + 1));
            let view = engine.resume(&alice(), id).await.unwrap();
            assert!(!view.status().is_terminal() || step == 1);
        }
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "2".into()));
        verify_tree(&engine, id).await;
    });
}

#[test]
fn the_timeout_of_the_parent_job_covers_all_steps() {
    TestVenue::new().run_process(async |engine| {
        let steps = r#"[{"op":"t:wait","input":{"ms":["const",60000]}}]"#;
        let op = register(&engine, steps, "[0]", "").await;
        let mut invocation = request(&op, "{}");
        invocation.timeout = Some(Duration::from_millis(500));
        let id = engine.invoke(invocation).await.unwrap().view.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Timeout);
        sleep(10).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(step_members(&view, "status"), ["CANCELLED"]);
    });
}

#[test]
fn a_step_that_asks_for_input_makes_the_parent_job_ask_and_receives_its_messages() {
    let venue = TestVenue::new();
    let steps = r#"[
      {"op":"t:chat","name":"talk","input":["const",{}]},
      {"op":"t:echo","input":{"said":[0]}}
    ]"#;
    let id = venue.run_process(async |engine| {
        let op = register(&engine, steps, "[1]", "").await;
        let view = invoke(&engine, &op, "{}").await;
        let id = view.job.id();
        let view = wait_for_status(&engine, id, Status::InputRequired).await;
        assert_eq!(member(&view, "message"), r#""step 0 (talk) waits: what?""#);
        engine
            .send(&alice(), id, value(r#"{"content":"hi","messageId":"m1"}"#), None)
            .await
            .unwrap();
        sleep(50).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::InputRequired);
        assert_eq!(step_members(&view, "output"), [r#"hi"#, "-"]);
        verify_tree(&engine, id).await;
        id
    });
    // The next process continues the conversation.
    venue.run_process(async |engine| {
        engine.send(&alice(), id, value(r#"{"content":"done"}"#), None).await.unwrap();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::Complete, r#"{"said":"bye"}"#.into())
        );
        verify_tree(&engine, id).await;
    });
}

#[test]
fn after_a_crash_only_unfinished_steps_run() {
    let venue = TestVenue::new();
    let steps = r#"[
      {"op":"t:effect","input":{"ms":["const",100]}},
      {"op":"t:wait","input":{"ms":["const",1000],"after":[0]}},
      {"op":"t:effect","input":{"ms":["const",100],"after":[1]}}
    ]"#;
    let (id, first) = venue.run_process(async |engine| {
        let op = register(&engine, steps, r#"["array",[0],[2]]"#, "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(500).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(step_members(&view, "status"), ["COMPLETE", "STARTED", "PENDING"]);
        (id, children(&view))
    });
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "[1,2]".into()));
        assert_eq!(children(&view)[..2], first[..], "steps keep their jobs");
        verify_tree(&engine, id).await;
    });
    assert_eq!(venue.effects(), 2);
}

#[test]
fn orchestrations_are_nested_up_to_a_limit() {
    TestVenue::new().run_process(async |engine| {
        let mut op = "t:echo".to_owned();
        for depth in 1..=9 {
            let steps =
                format!(r#"[{{"op":"{op}","input":{{"d":["const",{depth}],"in":["input"]}}}}]"#);
            op = register(&engine, &steps, "[0]", "").await;
            if depth == 8 {
                let id = invoke(&engine, &op, "1").await.job.id();
                let view = wait_for_end(&engine, id).await;
                assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
                verify_tree(&engine, id).await;
            }
        }
        let view = invoke(&engine, &op, "1").await;
        assert_eq!(view.status(), Status::Rejected);
        assert!(member(&view, "error").contains("nested deeper than 8"));
    });
}

#[test]
fn a_wide_fan_out_respects_the_limit_of_concurrent_steps() {
    TestVenue::new().run_process(async |engine| {
        let wide: Vec<String> = (0..600)
            .map(|_| r#"{"op":"t:wait","input":{"ms":["const",100]}}"#.to_owned())
            .collect();
        let op =
            register(&engine, &format!("[{}]", wide.join(",")), r#"["const","done"]"#, "").await;
        let started = tokio::time::Instant::now();
        let id = invoke(&engine, &op, "{}").await.job.id();
        assert!(engine.counters().await.running <= 257);
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Complete);
        let took = started.elapsed().as_millis();
        assert!((300..400).contains(&took), "{took} ms: three waves of at most 256");
        verify_chain(&engine, id).await;
    });
}

#[test]
fn a_declared_output_is_checked_on_the_result() {
    TestVenue::new().run_process(async |engine| {
        let steps = r#"[{"op":"t:echo","input":["const",1]}]"#;
        let op = register(&engine, steps, "[0]", r#","output":{"type":"string"}"#).await;
        let view = invoke(&engine, &op, "{}").await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(member(&view, "errorCode"), r#""invalid_output""#);
    });
}

#[test]
fn a_rerun_reuses_the_outputs_of_earlier_steps_and_records_that() {
    let venue = TestVenue::new();
    let steps = r#"[
      {"op":"t:effect","input":{"ms":["const",10]}},
      {"op":"t:effect","input":{"ms":["const",10],"after":[0]}},
      {"op":"t:effect","input":{"ms":["const",300],"after":[1]}}
    ]"#;
    let id = venue.run_process(async |engine| {
        let op = register(&engine, steps, r#"["array",[0],[1],[2]]"#, "").await;
        let first = invoke(&engine, &op, "{}").await.job.id();
        let view = wait_for_end(&engine, first).await;
        assert_eq!(member(&view, "output"), "[1,2,3]");
        let again = engine.rerun(&alice(), first, Some(2), None).await.unwrap().view;
        let id = again.job.id();
        assert_eq!(step_members(&again, "status"), ["COMPLETE", "COMPLETE", "STARTED"]);
        assert_eq!(children(&again)[..2], children(&view)[..2]);
        let origin = value(&member(&again, "rerunOf"));
        assert_eq!(origin.as_map().unwrap().field("head"), Some(&view.job.head().into()));
        let refused = engine.rerun(&alice(), first, Some(4), None).await.unwrap_err();
        assert!(refused.to_string().contains("no step 4"), "{refused}");
        assert!(engine.rerun(&bob(), first, None, None).await.is_err());
        let running = engine.rerun(&alice(), id, None, None).await.unwrap_err();
        assert!(running.to_string().contains("STARTED"), "{running}");
        id
    });
    // A crash changes nothing about the reused outputs. The step that ran has unknown effects, so it
    // fails, and the parent job with it.
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert_eq!(step_members(&view, "status"), ["COMPLETE", "COMPLETE", "FAILED"]);
        verify_tree(&engine, id).await;
        let again = engine.rerun(&alice(), id, Some(2), None).await.unwrap().view.job.id();
        let view = wait_for_end(&engine, again).await;
        assert_eq!(member(&view, "output"), "[1,2,5]");
        let complete = engine.rerun(&alice(), again, None, None).await.unwrap().view.job.id();
        assert_eq!(member(&wait_for_end(&engine, complete).await, "output"), "[6,7,8]");
        verify_tree(&engine, complete).await;
    });
}

/// Steps that do not end: one runs, one asks for input, one is paused.
const OPEN: &str = r#"[
  {"op":"t:wait","input":{"ms":["const",10000]}},
  {"op":"t:chat","input":["const",{}]},
  {"op":"t:pause","input":["const",{}]}
]"#;

#[test]
fn a_step_does_not_outlive_its_parent_job_if_the_venue_stops_in_between() {
    for event in [
        Event::Cancelled { error: "Job cancelled".to_owned() },
        Event::Expired { error: "too long".to_owned() },
    ] {
        let venue = TestVenue::new();
        let (id, steps) = venue.run_process(async |engine| {
            let op = register(&engine, OPEN, "[0]", "").await;
            let id = invoke(&engine, &op, "{}").await.job.id();
            let view = wait_for_status(&engine, id, Status::InputRequired).await;
            (id, children(&view))
        });
        assert_eq!(steps.len(), 3);
        venue.append(id, event);
        venue.run_process(async |engine| {
            for step in &steps {
                let view = wait_for_end(&engine, *step).await;
                assert_eq!(view.status(), Status::Cancelled);
                assert!(member(&view, "error").contains("the parent job is"));
            }
            verify_tree(&engine, id).await;
        });
    }
}

#[test]
fn a_step_that_the_parent_job_leaves_running_outlives_it() {
    let venue = TestVenue::new();
    let (id, steps) = venue.run_process(async |engine| {
        let op = register(&engine, OPEN, "[0]", r#","onFailure":"leave""#).await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = wait_for_status(&engine, id, Status::InputRequired).await;
        (id, children(&view))
    });
    venue.append(id, Event::Answered);
    venue.append(id, Event::Erred { error: "a step failed".to_owned() });
    venue.run_process(async |engine| {
        assert_eq!(wait_for_end(&engine, steps[0]).await.status(), Status::Complete);
        for step in &steps[1..] {
            assert!(!engine.job(&alice(), *step).await.unwrap().status().is_terminal());
        }
    });
}

#[test]
fn a_message_that_the_step_has_received_before_leaves_the_queue_of_the_parent_job() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let steps = r#"[{"op":"t:chat","name":"talk","input":["const",{}]}]"#;
        let op = register(&engine, steps, "[0]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = wait_for_status(&engine, id, Status::InputRequired).await;
        let child = view.job.steps()[&0].start.job;
        let message = || value(r#"{"content":"hi","messageId":"m1"}"#);
        engine.send(&alice(), child, message(), None).await.unwrap();
        sleep(50).await;
        // The parent job does not know this ID; the step does.
        assert!(!engine.send(&alice(), id, message(), None).await.unwrap().is_duplicate);
        sleep(50).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!((view.status(), view.queue_depth), (Status::InputRequired, 0));
        engine.send(&alice(), id, value(r#"{"content":"done"}"#), None).await.unwrap();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn an_orchestration_ends_even_if_messages_are_queued_for_it() {
    TestVenue::new().run_process(async |engine| {
        let steps = r#"[{"op":"t:wait","input":{"ms":["const",100]}},{"op":"t:echo","input":[0]}]"#;
        let op = register(&engine, steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        for _ in 0..3 {
            engine.send(&alice(), id, value("1"), None).await.unwrap();
        }
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), member(&view, "discarded")), (Status::Complete, "3".into()));
        verify_tree(&engine, id).await;
    });
}

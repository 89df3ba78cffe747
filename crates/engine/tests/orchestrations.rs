//! Orchestrations: order, parallelism, failure, control, recovery.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_job::Status;
use catena_job::state::Event;
use support::harness::{children, define, of_steps, tree_verified};
use support::*;

const FAN: &str = r#"[
  {"op":"t:echo","name":"a","input":{"v":["input","x"]}},
  {"op":"t:echo","name":"b","input":{"v":["const",2]}},
  {"op":"t:echo","name":"join","input":["array",[0,"v"],[1,"v"],["concat","n=",[0,"v"]]]}
]"#;

#[test]
fn instant_steps_and_their_join_are_one_commit() {
    World::new().live(async |engine| {
        let fan = FAN.replace(r#""n=""#, r#"["const","n="]"#);
        let op = define(&engine, &fan, r#"{"all":[2],"given":["input"]}"#, "").await;
        let view = invoke(&engine, &op, r#"{"x":1}"#).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        let output = value(&member(&view, "output"));
        assert_eq!(output, value(r#"{"all":[1,2,"n=1"],"given":{"x":1}}"#));
        let id = view.job.id();
        assert_eq!(story(&engine, id).await, ["PENDING", "STARTED", "(step)", "COMPLETE"]);
        assert_eq!(of_steps(&view, "status"), ["COMPLETE"; 3]);
        assert_eq!(of_steps(&view, "name"), ["a", "b", "join"]);
        tree_verified(&engine, id).await;
    });
}

#[test]
fn independent_steps_run_at_the_same_time_and_a_step_begins_when_its_last_need_ends() {
    World::new().live(async |engine| {
        let steps = r#"[
          {"op":"t:wait","input":{"ms":["const",300]}},
          {"op":"t:wait","input":{"ms":["const",100]}},
          {"op":"t:wait","input":{"ms":["const",100],"after":[1]}},
          {"op":"t:wait","input":{"ms":["const",50],"after":["array",[0],[2]]}}
        ]"#;
        let op = define(&engine, steps, r#"[3,"ms"]"#, "").await;
        let begun = tokio::time::Instant::now();
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = ended(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "50".into()));
        let took = begun.elapsed().as_millis();
        assert!((350..370).contains(&took), "{took} ms, the critical path is 350");
        tree_verified(&engine, id).await;
    });
}

#[test]
fn a_failed_step_fails_the_job_skips_the_rest_and_cancels_what_runs() {
    World::new().live(async |engine| {
        let steps = r#"[
          {"op":"t:wait","input":{"ms":["const",10000]}},
          {"op":"t:wait","input":{"ms":["const",100]}},
          {"op":"t:error","name":"breaks","input":{"after":[1]}},
          {"op":"t:echo","input":[2]}
        ]"#;
        let op = define(&engine, steps, "[3]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = ended(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(member(&view, "error"), r#""step 2 (breaks) ended as FAILED: it went wrong""#);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(of_steps(&view, "status"), ["CANCELLED", "COMPLETE", "FAILED", "SKIPPED"]);
        verified(&engine, id).await;
        assert_eq!(engine.counters().running, 0);
        // Or they are left alone, if the definition says so.
        let op = define(&engine, steps, "[3]", r#","onFailure":"leave""#).await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        ended(&engine, id).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(of_steps(&view, "status"), ["STARTED", "COMPLETE", "FAILED", "SKIPPED"]);
    });
}

#[test]
fn what_cannot_run_is_refused_before_anything_runs() {
    World::new().live(async |engine| {
        let steps = r#"[
          {"op":"t:echo","input":["const",1]},
          {"op":"t:nothing","input":["const",1]},
          {"op":"t:strict","input":{"n":["const","x"]}}
        ]"#;
        let op = define(&engine, steps, "[0]", "").await;
        let view = invoke(&engine, &op, "{}").await;
        assert_eq!(view.status(), Status::Rejected);
        let error = member(&view, "error");
        assert!(error.contains("/operation/steps/1/op") && error.contains("/operation/steps/2/input"), "{error}");
        assert_eq!(engine.counters().invoked, 1, "no sub-job was made");
        // What is wrong by itself cannot even be registered.
        let bad = r#"{"operation":{"adapter":"orchestrator","steps":[{"op":"t:echo","input":[0]}],"result":[7]}}"#;
        let error = engine.register(&alice(), bad, None).await.unwrap_err();
        let catena_engine::error::AssetError::Invalid(problems) = error else { panic!("{error}") };
        let places: Vec<_> = problems.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["/operation/steps/0/input/0", "/operation/result/0"]);
    });
}

#[test]
fn an_input_that_violates_the_targets_schema_is_a_rejected_step() {
    World::new().live(async |engine| {
        let steps = r#"[{"op":"t:strict","input":{"n":["input","n"]}}]"#;
        let op = define(&engine, steps, "[0]", "").await;
        let view = invoke(&engine, &op, r#"{"n":"x"}"#).await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(of_steps(&view, "status"), ["REJECTED"]);
        assert!(member(&view, "error").contains("step 0 ended as REJECTED"));
        tree_verified(&engine, view.job.id()).await;
        let view = invoke(&engine, &op, "{}").await;
        assert!(member(&view, "error").contains("step 0 cannot start: the input has nothing at"));
        assert_eq!(of_steps(&view, "status"), ["SKIPPED"]);
    });
}

#[test]
fn pause_resume_and_cancel_reach_the_steps() {
    World::new().live(async |engine| {
        let steps = r#"[
          {"op":"t:wait","input":{"ms":["const",1000]}},
          {"op":"t:wait","input":{"ms":["const",1000],"after":[0]}}
        ]"#;
        let op = define(&engine, steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let view = engine.pause(&alice(), id).await.unwrap();
        assert_eq!(
            (view.status(), of_steps(&view, "status")),
            (Status::Paused, vec!["PAUSED".into(), "PENDING".into()])
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(of_steps(&view, "status"), ["PAUSED", "PENDING"]);
        let begun = tokio::time::Instant::now();
        engine.resume(&alice(), id).await.unwrap();
        let view = ended(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        let took = begun.elapsed().as_millis();
        assert!((1480..1600).contains(&took), "{took}");
        tree_verified(&engine, id).await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = engine.cancel(&alice(), id, None).await.unwrap();
        assert_eq!(of_steps(&view, "status"), ["CANCELLED", "SKIPPED"]);
        let child = children(&view)[0];
        let error = engine.delete(&alice(), child).await.unwrap_err();
        assert!(
            matches!(error, catena_engine::error::ControlError::SubJob { root, .. } if root == id)
        );
        engine.delete(&alice(), id).await.unwrap();
        assert!(engine.job(&alice(), child).await.is_err(), "the tree goes with its root");
    });
}

#[test]
fn a_step_that_ends_while_the_whole_is_paused_begins_nothing() {
    World::new().live(async |engine| {
        let steps = r#"[
          {"op":"t:wait","input":{"ms":["const",100]}},
          {"op":"t:wait","input":{"ms":["const",100],"after":[0]}}
        ]"#;
        let op = define(&engine, steps, r#"[1,"ms"]"#, "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        for step in 0..2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let view = engine.pause(&alice(), id).await.unwrap();
            // Somebody lets the step alone go on.
            let child = children(&view)[step];
            engine.resume(&alice(), child).await.unwrap();
            assert_eq!(ended(&engine, child).await.status(), Status::Complete);
            tokio::time::sleep(Duration::from_secs(10)).await;
            let view = engine.job(&alice(), id).await.unwrap();
            assert_eq!((view.status(), children(&view).len()), (Status::Paused, step + 1));
            let view = engine.resume(&alice(), id).await.unwrap();
            assert!(!view.status().is_terminal() || step == 1);
        }
        let view = ended(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "100".into()));
        tree_verified(&engine, id).await;
    });
}

#[test]
fn the_parents_timeout_covers_the_whole_run() {
    World::new().live(async |engine| {
        let steps = r#"[{"op":"t:wait","input":{"ms":["const",60000]}}]"#;
        let op = define(&engine, steps, "[0]", "").await;
        let mut asked = request(&op, "{}");
        asked.timeout = Some(Duration::from_millis(500));
        let id = engine.invoke(asked).await.unwrap().view.job.id();
        let view = ended(&engine, id).await;
        assert_eq!(view.status(), Status::Timeout);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(of_steps(&view, "status"), ["CANCELLED"]);
    });
}

#[test]
fn a_step_that_asks_makes_the_whole_ask_and_messages_reach_it() {
    let world = World::new();
    let steps = r#"[
      {"op":"t:chat","name":"talk","input":["const",{}]},
      {"op":"t:echo","input":{"said":[0]}}
    ]"#;
    let id = world.live(async |engine| {
        let op = define(&engine, steps, "[1]", "").await;
        let view = invoke(&engine, &op, "{}").await;
        let id = view.job.id();
        let view = role(&engine, id, Status::InputRequired).await;
        assert_eq!(member(&view, "message"), r#""step 0 (talk) waits: what?""#);
        engine
            .send(&alice(), id, value(r#"{"content":"hi","messageId":"m1"}"#), None)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::InputRequired);
        assert_eq!(of_steps(&view, "output"), [r#"hi"#, "-"]);
        tree_verified(&engine, id).await;
        id
    });
    // The next life goes on with it.
    world.live(async |engine| {
        engine.send(&alice(), id, value(r#"{"content":"done"}"#), None).await.unwrap();
        let view = ended(&engine, id).await;
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::Complete, r#"{"said":"bye"}"#.into())
        );
        tree_verified(&engine, id).await;
    });
}

#[test]
fn after_a_crash_only_unfinished_steps_run() {
    let world = World::new();
    let steps = r#"[
      {"op":"t:effect","input":{"ms":["const",100]}},
      {"op":"t:wait","input":{"ms":["const",1000],"after":[0]}},
      {"op":"t:effect","input":{"ms":["const",100],"after":[1]}}
    ]"#;
    let (id, first) = world.live(async |engine| {
        let op = define(&engine, steps, r#"["array",[0],[2]]"#, "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(of_steps(&view, "status"), ["COMPLETE", "STARTED", "PENDING"]);
        (id, children(&view))
    });
    world.live(async |engine| {
        let view = ended(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "[1,2]".into()));
        assert_eq!(children(&view)[..2], first[..], "steps keep their jobs");
        tree_verified(&engine, id).await;
    });
    assert_eq!(world.effects(), 2);
}

#[test]
fn orchestrations_nest_but_not_too_deep() {
    World::new().live(async |engine| {
        let mut op = "t:echo".to_owned();
        for depth in 1..=9 {
            let steps =
                format!(r#"[{{"op":"{op}","input":{{"d":["const",{depth}],"in":["input"]}}}}]"#);
            op = define(&engine, &steps, "[0]", "").await;
            if depth == 8 {
                let id = invoke(&engine, &op, "1").await.job.id();
                let view = ended(&engine, id).await;
                assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
                tree_verified(&engine, id).await;
            }
        }
        let view = invoke(&engine, &op, "1").await;
        assert_eq!(view.status(), Status::Rejected);
        assert!(member(&view, "error").contains("nested deeper than 8"));
    });
}

#[test]
fn a_wide_fan_out_keeps_to_the_limit_and_ends() {
    World::new().live(async |engine| {
        let wide: Vec<String> = (0..600)
            .map(|_| r#"{"op":"t:wait","input":{"ms":["const",100]}}"#.to_owned())
            .collect();
        let op = define(&engine, &format!("[{}]", wide.join(",")), r#"["const","done"]"#, "").await;
        let begun = tokio::time::Instant::now();
        let id = invoke(&engine, &op, "{}").await.job.id();
        assert!(engine.counters().running <= 257);
        let view = ended(&engine, id).await;
        assert_eq!(view.status(), Status::Complete);
        let took = begun.elapsed().as_millis();
        assert!((300..400).contains(&took), "{took} ms: three waves of at most 256");
        verified(&engine, id).await;
    });
}

#[test]
fn a_declared_output_is_checked_on_the_result() {
    World::new().live(async |engine| {
        let steps = r#"[{"op":"t:echo","input":["const",1]}]"#;
        let op = define(&engine, steps, "[0]", r#","output":{"type":"string"}"#).await;
        let view = invoke(&engine, &op, "{}").await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(member(&view, "errorCode"), r#""invalid_output""#);
    });
}

#[test]
fn a_rerun_takes_over_what_came_before_and_says_so() {
    let world = World::new();
    let steps = r#"[
      {"op":"t:effect","input":{"ms":["const",10]}},
      {"op":"t:effect","input":{"ms":["const",10],"after":[0]}},
      {"op":"t:effect","input":{"ms":["const",300],"after":[1]}}
    ]"#;
    let id = world.live(async |engine| {
        let op = define(&engine, steps, r#"["array",[0],[1],[2]]"#, "").await;
        let first = invoke(&engine, &op, "{}").await.job.id();
        let view = ended(&engine, first).await;
        assert_eq!(member(&view, "output"), "[1,2,3]");
        let again = engine.rerun(&alice(), first, Some(2), None).await.unwrap().view;
        let id = again.job.id();
        assert_eq!(of_steps(&again, "status"), ["COMPLETE", "COMPLETE", "STARTED"]);
        assert_eq!(children(&again)[..2], children(&view)[..2]);
        let of = value(&member(&again, "rerunOf"));
        assert_eq!(of.as_map().unwrap().field("head"), Some(&view.job.head().into()));
        let refused = engine.rerun(&alice(), first, Some(4), None).await.unwrap_err();
        assert!(refused.to_string().contains("no step 4"), "{refused}");
        assert!(engine.rerun(&bob(), first, None, None).await.is_err());
        let running = engine.rerun(&alice(), id, None, None).await.unwrap_err();
        assert!(running.to_string().contains("STARTED"), "{running}");
        id
    });
    // A crash in the middle changes nothing about what was taken over. The step that ran has
    // unknown effects, so it fails, and the whole with it.
    world.live(async |engine| {
        let view = ended(&engine, id).await;
        assert_eq!(of_steps(&view, "status"), ["COMPLETE", "COMPLETE", "FAILED"]);
        tree_verified(&engine, id).await;
        let again = engine.rerun(&alice(), id, Some(2), None).await.unwrap().view.job.id();
        let view = ended(&engine, again).await;
        assert_eq!(member(&view, "output"), "[1,2,5]");
        let whole = engine.rerun(&alice(), again, None, None).await.unwrap().view.job.id();
        assert_eq!(member(&ended(&engine, whole).await, "output"), "[6,7,8]");
        tree_verified(&engine, whole).await;
    });
}

/// Steps that wait, that ask, that run, and that are paused.
const OPEN: &str = r#"[
  {"op":"t:wait","input":{"ms":["const",10000]}},
  {"op":"t:chat","input":["const",{}]},
  {"op":"t:pause","input":["const",{}]}
]"#;

#[test]
fn a_step_does_not_outlive_its_job_when_the_venue_stops_in_between() {
    for event in [
        Event::Cancelled { error: "Job cancelled".to_owned() },
        Event::Expired { error: "too long".to_owned() },
    ] {
        let world = World::new();
        let (id, steps) = world.live(async |engine| {
            let op = define(&engine, OPEN, "[0]", "").await;
            let id = invoke(&engine, &op, "{}").await.job.id();
            let view = role(&engine, id, Status::InputRequired).await;
            (id, children(&view))
        });
        assert_eq!(steps.len(), 3);
        world.append(id, event);
        world.live(async |engine| {
            for step in &steps {
                let view = ended(&engine, *step).await;
                assert_eq!(view.status(), Status::Cancelled);
                assert!(member(&view, "error").contains("the parent job is"));
            }
            tree_verified(&engine, id).await;
        });
    }
}

#[test]
fn a_step_that_its_job_leaves_outlives_it() {
    let world = World::new();
    let (id, steps) = world.live(async |engine| {
        let op = define(&engine, OPEN, "[0]", r#","onFailure":"leave""#).await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = role(&engine, id, Status::InputRequired).await;
        (id, children(&view))
    });
    world.append(id, Event::Answered);
    world.append(id, Event::Erred { error: "a step failed".to_owned() });
    world.live(async |engine| {
        assert_eq!(ended(&engine, steps[0]).await.status(), Status::Complete);
        for step in &steps[1..] {
            assert!(!engine.job(&alice(), *step).await.unwrap().status().is_terminal());
        }
    });
}

#[test]
fn an_orchestration_ends_although_messages_wait_for_it() {
    World::new().live(async |engine| {
        let steps = r#"[{"op":"t:wait","input":{"ms":["const",100]}},{"op":"t:echo","input":[0]}]"#;
        let op = define(&engine, steps, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        for _ in 0..3 {
            engine.send(&alice(), id, value("1"), None).await.unwrap();
        }
        let view = ended(&engine, id).await;
        assert_eq!((view.status(), member(&view, "discarded")), (Status::Complete, "3".into()));
        tree_verified(&engine, id).await;
    });
}

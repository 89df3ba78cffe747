//! Reruns: what runs again is selected by dependency, and what is reused is kept.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::sync::Arc;

use catena_engine::Engine;
use catena_engine::error::RerunError;
use catena_engine::requests::{JobView, RerunScope};
use catena_job::chain::{Change, Job, NewJob};
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::{Effect, Effects, Store as _};
use catena_value::{Map, Value, Vector};
use support::cluster::Kills;
use support::harness::{register, step_members, verify_tree};
use support::*;

/// Step 0 fails the first time. Step 1 is independent, 2 depends on 0, and 3 on 1.
const MIXED: &str = r#"[
  {"op":"t:flaky","input":{"fails":["input","fails"]}},
  {"op":"t:effect","input":{"ms":["const",1]}},
  {"op":"t:effect","input":{"ms":["const",1],"after":[0]}},
  {"op":"t:effect","input":{"ms":["const",1],"after":[1]}}
]"#;

async fn finish(engine: &Engine, view: JobView) -> JobView {
    wait_for_end(engine, view.job.id()).await
}

#[test]
fn what_failed_runs_again_with_what_depends_on_it_and_nothing_else() {
    let venue = TestVenue::with_kills(Kills::Any);
    venue.run_process(async |engine| {
        let leave = r#","onFailure":"leave""#;
        let op = register(&engine, MIXED, r#"["array",[1],[2],[3]]"#, leave).await;
        // All three attempts of step 0 fail, long after steps 1 and 3 have ended.
        let first = finish(&engine, invoke(&engine, &op, r#"{"fails":9}"#).await).await;
        assert_eq!(first.status(), Status::Failed);
        let statuses = ["FAILED", "COMPLETE", "SKIPPED", "COMPLETE"];
        assert_eq!(step_members(&first, "status"), statuses);
        let effects = venue.effects();
        let again = engine.rerun(&alice(), first.job.id(), RerunScope::Unfinished, None).await;
        let again = finish(&engine, again.unwrap().view).await;
        assert_eq!(step_members(&again, "reused"), ["-", "true", "-", "true"]);
        assert_eq!(venue.effects(), effects + 3, "only the attempts of step 0");
        let all = engine.rerun(&alice(), first.job.id(), RerunScope::Everything, None).await;
        let all = finish(&engine, all.unwrap().view).await;
        assert_eq!(step_members(&all, "reused"), ["-"; 4]);
        verify_tree(&engine, again.job.id()).await;
        verify_tree(&engine, all.job.id()).await;
    });
}

#[test]
fn a_step_that_is_named_runs_again_with_what_depends_on_it() {
    let venue = TestVenue::with_kills(Kills::Any);
    venue.run_process(async |engine| {
        let op = register(&engine, MIXED, r#"["array",[1],[2],[3]]"#, "").await;
        let first = finish(&engine, invoke(&engine, &op, r#"{"fails":0}"#).await).await;
        assert_eq!(first.status(), Status::Complete);
        let expected = [
            (0, ["-", "true", "-", "true"]),
            (1, ["true", "-", "true", "-"]),
            (2, ["true", "true", "-", "true"]),
            (4, ["true"; 4]),
        ];
        for (from, reused) in expected {
            let again = engine.rerun(&alice(), first.job.id(), Some(from), None).await.unwrap();
            let again = finish(&engine, again.view).await;
            assert_eq!(again.status(), Status::Complete);
            assert_eq!(step_members(&again, "reused"), reused, "from {from}");
            verify_tree(&engine, again.job.id()).await;
        }
        let again = engine.rerun(&alice(), first.job.id(), None, None).await.unwrap();
        let again = finish(&engine, again.view).await;
        assert_eq!(step_members(&again, "reused"), ["-"; 4], "nothing was unfinished");
    });
}

#[test]
fn a_step_that_outlives_its_job_is_not_run_a_second_time() {
    let venue = TestVenue::with_kills(Kills::Any);
    venue.run_process(async |engine| {
        let steps = r#"[
          {"op":"t:breaks","input":{"ms":["const",10]}},
          {"op":"t:effect","input":{"ms":["const",1000]}}
        ]"#;
        let op = register(&engine, steps, "[1]", r#","onFailure":"leave""#).await;
        let first = finish(&engine, invoke(&engine, &op, "{}").await).await;
        let early = engine.rerun(&alice(), first.job.id(), None, None).await.unwrap_err();
        assert!(early.to_string().contains("step 1 is still STARTED"), "{early}");
        sleep(2_000).await;
        let again = engine.rerun(&alice(), first.job.id(), None, None).await.unwrap();
        let again = finish(&engine, again.view).await;
        assert_eq!(step_members(&again, "reused"), ["-", "true"]);
    });
    assert_eq!(venue.effects(), 1);
}

/// A step with an effect, and one that takes a while.
const EFFECT_THEN_SLOW: &str = r#"[
  {"op":"t:effect","input":{"ms":["const",1]}},
  {"op":"t:wait","input":{"ms":["const",1000],"after":[0]}}
]"#;

#[test]
fn a_rerun_keeps_what_it_reused_when_the_earlier_run_is_deleted() {
    let venue = TestVenue::with_kills(Kills::Any);
    let id = venue.run_process(async |engine| {
        let op = register(&engine, EFFECT_THEN_SLOW, r#"["array",[0],[1,"ms"]]"#, "").await;
        let first = finish(&engine, invoke(&engine, &op, "{}").await).await;
        let again = engine.rerun(&alice(), first.job.id(), Some(1), None).await.unwrap().view;
        engine.delete(&alice(), first.job.id()).await.unwrap();
        again.job.id()
    });
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "[1,1000]".into()));
        assert_eq!(step_members(&view, "output")[0], "1");
        assert_eq!(step_members(&view, "status"), ["COMPLETE"; 2]);
        // The outputs are taken from the rerun, also for a rerun of it.
        let third = engine.rerun(&alice(), id, Some(1), None).await.unwrap().view;
        engine.delete(&alice(), id).await.unwrap();
        let third = finish(&engine, third).await;
        assert_eq!(member(&third, "output"), "[1,1000]");
        verify_tree(&engine, third.job.id()).await;
    });
    assert_eq!(venue.effects(), 1, "the step ran once");
}

#[test]
fn a_rerun_whose_reused_output_is_gone_fails_and_does_not_run_the_step() {
    let venue = TestVenue::with_kills(Kills::Any);
    let (op, child) = venue.run_process(async |engine| {
        let op = register(&engine, EFFECT_THEN_SLOW, r#"[1]"#, "").await;
        let first = finish(&engine, invoke(&engine, &op, "{}").await).await;
        let step = first.job.steps()[&0].clone();
        engine.delete(&alice(), first.job.id()).await.unwrap();
        (op, (step.start.job, step.end.unwrap().record))
    });
    // A rerun as earlier versions created it: it names what it reuses and does not carry it.
    let id = JobId::new(7, [7; 10]);
    let entry: Map =
        [("step", Value::from(0)), ("job", child.0.into()), ("record", child.1.into())]
            .into_iter()
            .collect();
    let reused: Vector = [Value::from(entry)].into_iter().collect();
    let new = NewJob {
        id,
        venue: catena_auth::KeyPair::from_seed(&[venue.seed; 32]).did().as_str().into(),
        op: op.as_str().into(),
        operation: Some(op.as_str().into()),
        input: value("{}"),
        caller: "did:key:alice".into(),
        parent: None,
        extra: vec![("reused", reused.into())],
    };
    venue.commit(async |store| {
        let (mut job, first) = Job::create(new, 5, None).unwrap();
        let started = job.append(Change::new(Event::Started, 6)).unwrap();
        let records = vec![first, started];
        let append = Effect::Append {
            job: Arc::new(job),
            after: None,
            records,
            hold: catena_store::Hold::Unchanged,
        };
        store.commit(Effects::one(append)).await.unwrap();
    });
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(member(&view, "errorCode"), r#""step_gone""#);
        assert!(member(&view, "error").contains("step 0"));
        verify_chain(&engine, id).await;
        let refused = engine.rerun(&alice(), id, None, None).await.unwrap_err();
        assert_eq!(refused, RerunError::StepGone { step: 0 });
        let from_start = engine.rerun(&alice(), id, RerunScope::Everything, None).await.unwrap();
        assert_eq!(finish(&engine, from_start.view).await.status(), Status::Complete);
    });
    assert_eq!(venue.effects(), 2, "it ran again only when everything did");
}

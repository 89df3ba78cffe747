//! The store decides who runs a job: leases, fences, waiting jobs, retries and trees.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::error::ControlError;
use catena_engine::requests::IdempotencyKey;
use catena_job::{JobId, Status};
use support::harness::{children, register, step_members, verify_tree};
use support::*;

#[test]
fn a_second_process_leaves_the_work_of_the_first_alone() {
    let venue = TestVenue::new();
    venue.run_two_processes(async |first, second| {
        let id = invoke(&first, "t:effect", r#"{"ms":3000}"#).await.job.id();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(second.job(&alice(), id).await.unwrap().status(), Status::Started);
        assert_eq!(wait_for_end(&second, id).await.status(), Status::Complete);
        assert_eq!(record_kinds(&first, id).await, ["PENDING", "STARTED", "COMPLETE"]);
    });
    assert_eq!(venue.effects(), 1);
}

#[test]
fn the_end_of_a_lease_follows_the_rule_of_the_operation() {
    let venue = TestVenue::new();
    venue.run_engines(2, async |cluster| {
        let (first, second) = (cluster.node(0), &cluster.node(1).engine);
        // Its time limit is longer than the lease.
        let text = r#"{"name":"once","operation":{"adapter":"t:effect","timeoutMs":60000}}"#;
        let (op, _) = first.engine.register(&alice(), text, None).await.unwrap();
        let once = invoke(&first.engine, &op.to_string(), r#"{"ms":9000}"#).await.job.id();
        let again = invoke(&first.engine, "t:wait", r#"{"ms":9000}"#).await.job.id();
        first.env.kill();
        let view = wait_for_end(second, once).await;
        assert_eq!(view.status(), Status::Failed);
        assert!(member(&view, "error").contains("effects are unknown"));
        assert_eq!(wait_for_end(second, again).await.status(), Status::Complete);
        let kinds = record_kinds(second, again).await;
        assert_eq!(kinds, ["PENDING", "STARTED", "(recovered)", "COMPLETE"]);
    });
    assert_eq!(venue.effects(), 1);
}

#[test]
fn control_through_another_process_reaches_the_holder() {
    let venue = TestVenue::new();
    venue.run_two_processes(async |first, second| {
        let id = invoke(&first, "t:wait", r#"{"ms":1000}"#).await.job.id();
        second.pause(&alice(), id).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(first.job(&alice(), id).await.unwrap().status(), Status::Paused);
        second.resume(&alice(), id).await.unwrap();
        let view = wait_for_end(&second, id).await;
        assert_eq!(view.status(), Status::Complete);
        let kinds = record_kinds(&first, id).await;
        assert_eq!(kinds, ["PENDING", "STARTED", "PAUSED", "STARTED", "COMPLETE"]);
        let id = invoke(&first, "t:wait", r#"{"ms":100000}"#).await.job.id();
        second.cancel(&alice(), id, None).await.unwrap();
        sleep(1_100).await;
        assert_eq!(first.counters().await.running, 0, "the work has stopped");
    });
}

#[test]
fn a_late_outcome_is_refused_and_leaves_nothing_behind() {
    let venue = TestVenue::new();
    venue.run_engines(2, async |cluster| {
        let (first, second) = (cluster.node(0), &cluster.node(1).engine);
        let id = invoke(&first.engine, "t:wait", r#"{"ms":30000}"#).await.job.id();
        // A process that does not renew its lease is taken for dead, although its work goes on.
        first.env.kill();
        wait_for_end(second, id).await;
        let head = second.job(&alice(), id).await.unwrap().job.head();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(second.job(&alice(), id).await.unwrap().job.head(), head);
        verify_chain(second, id).await;
    });
}

#[test]
fn who_waits_at_one_process_hears_of_the_end_at_another() {
    let venue = TestVenue::new();
    venue.run_two_processes(async |first, second| {
        let id = invoke(&first, "t:wait", r#"{"ms":500}"#).await.job.id();
        let started = tokio::time::Instant::now();
        let view = second.wait(&alice(), id, Duration::from_secs(60)).await.unwrap();
        assert_eq!(view.status(), Status::Complete);
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    });
}

#[test]
fn equal_requests_at_two_processes_in_the_same_instant_create_one_job() {
    let venue = TestVenue::new();
    venue.run_two_processes(async |first, second| {
        let key = |endpoint| IdempotencyKey { endpoint, key: "k".into(), body_digest: [1; 32] };
        for operation in ["t:echo", "t:wait", "t:chat"] {
            let mut request = request(operation, r#"{"ms":10}"#);
            request.idempotency = Some(IdempotencyKey { key: operation.into(), ..key("invoke") });
            let (one, other) = tokio::join!(first.invoke(request.clone()), second.invoke(request));
            let (one, other) = (one.unwrap(), other.unwrap());
            assert_eq!(one.view.job.id(), other.view.job.id(), "{operation}");
            assert_ne!(one.is_replay, other.is_replay, "{operation}: one of them made it");
        }
        let id = invoke(&first, "t:chat", "{}").await.job.id();
        let message = || value(r#"{"content":"done"}"#);
        let (alice_one, alice_other) = (alice(), alice());
        let (one, other) = tokio::join!(
            first.send(&alice_one, id, message(), Some(key("send"))),
            second.send(&alice_other, id, message(), Some(key("send"))),
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.message_id, other.message_id);
        assert_ne!(one.is_replay, other.is_replay);
    });
}

#[test]
fn jobs_that_end_at_another_process_do_not_count_for_ever() {
    let mut venue = TestVenue::new();
    venue.limits.live_jobs_per_caller_max = 3;
    venue.run_two_processes(async |first, second| {
        for _ in 0..10 {
            let id = invoke(&first, "t:chat", "{}").await.job.id();
            second.cancel(&alice(), id, None).await.unwrap();
            sleep(1_100).await;
        }
    });
}

#[test]
fn a_workflow_ends_wherever_its_steps_do() {
    let mut venue = TestVenue::new();
    venue.limits.running_max = 2;
    venue.run_two_processes(async |first, second| {
        let step = r#"{"op":"t:wait","input":{"ms":["const",300]}}"#;
        let steps = format!("[{}]", [step; 8].join(","));
        let op = register(&first, &steps, "[7]", "").await;
        let id = invoke(&first, &op, "{}").await.job.id();
        let view = wait_for_end(&second, id).await;
        assert_eq!(view.status(), Status::Complete);
        verify_tree(&second, id).await;
    });
}

/// Returns the job of a flaky operation that waits for its second attempt.
async fn waiting_for_retry(engine: &catena_engine::Engine) -> JobId {
    let text = r#"{"name":"late","operation":{"adapter":"t:flaky",
        "retry":{"attempts":3,"backoffMs":60000,"factor":1,"jitter":0}}}"#;
    let (op, _) = engine.register(&alice(), text, None).await.unwrap();
    let id = invoke(engine, &op.to_string(), r#"{"fails":1}"#).await.job.id();
    sleep(100).await;
    let view = engine.job(&alice(), id).await.unwrap();
    assert_eq!((view.status(), view.job.attempt()), (Status::Started, 2));
    assert!(view.waits_for_attempt());
    let failure = view.job.last_failure().unwrap();
    assert_eq!(failure.reason, "attempt 1 failed");
    assert_eq!(failure.code.as_deref(), Some("shaky"));
    id
}

#[test]
fn a_retry_survives_a_crash_and_a_shutdown_and_runs_when_it_is_due() {
    for is_planned in [false, true] {
        let venue = TestVenue::new();
        let id = venue.run_engines(1, async |engine| {
            let id = waiting_for_retry(&engine).await;
            if is_planned {
                engine.shutdown(Duration::ZERO).await;
            }
            id
        });
        venue.run_engines(1, async |engine| {
            // The clock of a new process starts at the same time.
            tokio::time::sleep(Duration::from_secs(59)).await;
            assert_eq!(venue.effects(), 1, "it is not due");
            let view = wait_for_end(&engine, id).await;
            assert_eq!((view.status(), view.job.attempt()), (Status::Complete, 2));
            let kinds = record_kinds(&engine, id).await;
            assert_eq!(kinds, ["PENDING", "STARTED", "(attempt)", "COMPLETE"]);
            verify_chain(&engine, id).await;
        });
        assert_eq!(venue.effects(), 2);
    }
}

#[test]
fn a_planned_stop_counts_neither_as_an_attempt_nor_as_an_interruption() {
    let venue = TestVenue::new();
    let id = venue.run_engines(1, async |engine| {
        let id = invoke(&engine, "t:wait", r#"{"ms":9000}"#).await.job.id();
        engine.shutdown(Duration::from_millis(10)).await;
        id
    });
    for _ in 0..5 {
        venue.run_engines(1, async |engine| {
            sleep(100).await;
            engine.shutdown(Duration::from_millis(10)).await;
        });
    }
    venue.run_engines(1, async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), view.job.interruptions()), (Status::Complete, 0));
        assert!(engine.summary(&alice(), id).await.unwrap().errors.is_empty());
        verify_chain(&engine, id).await;
    });
}

#[test]
fn an_attempt_that_takes_too_long_is_retried_within_the_time_of_the_job() {
    TestVenue::new().run_process(async |engine| {
        let id = invoke(&engine, "t:slow", r#"{"ms":5000}"#).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        let summary = engine.summary(&alice(), id).await.unwrap();
        let codes: Vec<_> = summary.errors.iter().map(|error| error.code.clone()).collect();
        assert_eq!(codes, [Some("attempt_timeout".to_owned()), Some("attempt_timeout".to_owned())]);
        verify_chain(&engine, id).await;
    });
}

#[test]
fn a_job_times_out_while_it_waits_for_its_next_attempt() {
    TestVenue::new().run_process(async |engine| {
        let text = r#"{"name":"late","operation":{"adapter":"t:flaky","timeoutMs":5000,
            "retry":{"attempts":3,"backoffMs":60000}}}"#;
        let (op, _) = engine.register(&alice(), text, None).await.unwrap();
        let id = invoke(&engine, &op.to_string(), r#"{"fails":9}"#).await.job.id();
        let started = tokio::time::Instant::now();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Timeout);
        assert!(started.elapsed() < Duration::from_secs(7));
    });
}

#[test]
fn jobs_that_wait_occupy_no_slot() {
    let mut venue = TestVenue::new();
    venue.limits.running_max = 1;
    venue.run_engines(1, async |engine| {
        let paused = invoke(&engine, "t:wait", r#"{"ms":500}"#).await.job.id();
        engine.pause(&alice(), paused).await.unwrap();
        let asking = invoke(&engine, "t:chat", "{}").await.job.id();
        wait_for_status(&engine, asking, Status::InputRequired).await;
        let retrying = waiting_for_retry(&engine).await;
        let view = invoke(&engine, "t:wait", r#"{"ms":1}"#).await;
        assert_eq!(view.status(), Status::Complete, "there is a free slot");
        assert_eq!(engine.counters().await.running, 1, "only the paused work is in memory");
        // Pausing and resuming what waits changes nothing about that.
        for _ in 0..100 {
            engine.pause(&alice(), retrying).await.unwrap();
            engine.resume(&alice(), retrying).await.unwrap();
        }
        engine.resume(&alice(), paused).await.unwrap();
        assert_eq!(wait_for_end(&engine, paused).await.status(), Status::Complete);
        assert_eq!(wait_for_end(&engine, retrying).await.status(), Status::Complete);
    });
}

const TWO_STEPS: &str = r#"[
  {"op":"t:wait","input":{"ms":["const",1000]}},
  {"op":"t:wait","input":{"ms":["const",3000]}}
]"#;

#[test]
fn a_paused_step_is_visible_on_its_parent_and_a_resume_of_the_parent_reaches_it() {
    TestVenue::new().run_process(async |engine| {
        let op = register(&engine, TWO_STEPS, "[1]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(100).await;
        let steps = children(&engine.job(&alice(), id).await.unwrap());
        engine.pause(&alice(), steps[1]).await.unwrap();
        sleep(100).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Started, "another step runs");
        assert_eq!(step_members(&view, "status")[1], "PAUSED");
        let refused = engine.resume(&alice(), id).await.unwrap_err();
        let step = steps[1];
        let status = Status::Started;
        assert_eq!(refused, ControlError::StepPaused { job: id, status, step });
        let view = wait_for_status(&engine, id, Status::Paused).await;
        assert!(member(&view, "message").contains(&step.to_string()), "it names the step");
        // Nothing counts its time meanwhile.
        tokio::time::sleep(Duration::from_secs(20 * 60)).await;
        let view = engine.resume(&alice(), id).await.unwrap();
        assert_eq!(step_members(&view, "status")[1], "STARTED");
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_resume_that_ends_a_workflow_cancels_what_is_left_of_it() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let wait = r#"{"op":"t:wait","input":{"ms":["const",100000]}}"#;
        let inner = register(&engine, &format!("[{wait},{wait}]"), "[0]", "").await;
        let nested = format!(r#"{{"op":"{inner}","input":["const",{{}}]}}"#);
        let op = register(&engine, &format!("[{wait},{nested}]"), "[0]", "").await;
        // Either the workflow itself has an outcome that waits for the resume, or a nested one has.
        for at in [0, 1] {
            let id = invoke(&engine, &op, "{}").await.job.id();
            sleep(100).await;
            engine.pause(&alice(), id).await.unwrap();
            let steps = children(&engine.job(&alice(), id).await.unwrap());
            let cancelled = match at {
                0 => steps[0],
                _ => children(&engine.job(&alice(), steps[1]).await.unwrap())[0],
            };
            engine.cancel(&alice(), cancelled, None).await.unwrap();
            sleep(1_000).await;
            engine.resume(&alice(), id).await.unwrap();
            assert_eq!(wait_for_end(&engine, id).await.status(), Status::Failed);
            sleep(1_000).await;
            for step in steps {
                let view = engine.job(&alice(), step).await.unwrap();
                assert!(view.status().is_terminal(), "{at}: a step is {}", view.status());
                for step in children_or_none(&view) {
                    let status = engine.job(&alice(), step).await.unwrap().status();
                    assert_eq!(status, Status::Cancelled, "{at}: a nested step");
                }
            }
            verify_tree(&engine, id).await;
        }
    });
}

/// Returns the jobs of the steps of an orchestration, and none for another job.
fn children_or_none(view: &catena_engine::requests::JobView) -> Vec<JobId> {
    if view.steps.is_some() { children(view) } else { Vec::new() }
}

#[test]
fn a_large_tree_is_paused_resumed_and_cancelled_as_one() {
    TestVenue::new().run_process(async |engine| {
        let step = r#"{"op":"t:wait","input":{"ms":["const",5000]}}"#;
        let leaf = format!("[{}]", [step; 200].join(","));
        let leaf = register(&engine, &leaf, "[0]", "").await;
        let nested = format!(r#"{{"op":"{leaf}","input":["const",{{}}]}}"#);
        let steps = format!("[{}]", vec![nested; 3].join(","));
        let op = register(&engine, &steps, "[0]", "").await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(1_000).await;
        assert!(engine.counters().await.running <= 256 + 4, "one budget for the whole tree");
        let agree = async |expected: Status| {
            let view = engine.job(&alice(), id).await.unwrap();
            assert_eq!(view.status(), expected);
            for inner in children(&view) {
                let view = engine.job(&alice(), inner).await.unwrap();
                assert_eq!(view.status(), expected);
                for step in step_members(&view, "status") {
                    assert!(["PENDING", "COMPLETE", expected.as_str()].contains(&&*step), "{step}");
                }
            }
        };
        for _ in 0..3 {
            engine.pause(&alice(), id).await.unwrap();
            agree(Status::Paused).await;
            engine.resume(&alice(), id).await.unwrap();
            agree(Status::Started).await;
        }
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "no nested workflow starves");
        verify_tree(&engine, id).await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        sleep(1_000).await;
        let view = engine.cancel(&alice(), id, None).await.unwrap();
        for inner in children(&view) {
            let view = engine.job(&alice(), inner).await.unwrap();
            assert_eq!(view.status(), Status::Cancelled);
            assert!(step_members(&view, "status").iter().all(|status| status != "STARTED"));
        }
        sleep(1_500).await;
        assert_eq!(engine.counters().await.running, 0);
    });
}

#[test]
fn a_workflow_that_waits_for_people_uses_none_of_its_time() {
    let mut venue = TestVenue::new();
    venue.limits.interactive = Duration::from_secs(30 * 24 * 3600);
    let steps = r#"[{"op":"t:chat","input":{}},{"op":"t:wait","input":{"ms":["const",1000]}}]"#;
    let id = venue.run_process(async |engine| {
        let op = register(&engine, steps, "[1]", r#","timeoutMs":5000"#).await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        wait_for_status(&engine, id, Status::InputRequired).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::InputRequired);
        assert_eq!(engine.counters().await.running, 0, "it costs no memory");
        id
    });
    venue.run_process(async |engine| {
        engine.send(&alice(), id, value(r#"{"content":"done"}"#), None).await.unwrap();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_deadline_that_is_left_to_its_holder_does_not_hide_the_others() {
    TestVenue::new().run_process(async |engine| {
        let mut ids = Vec::new();
        for ms in [100u64, 100_000] {
            for _ in 0..300 {
                let mut request = request("t:wait", &format!(r#"{{"ms":{ms}}}"#));
                request.timeout = Some(Duration::from_millis(200));
                request.wait = Some(Duration::ZERO);
                ids.push((ms, engine.invoke(request).await.unwrap().view.job.id()));
            }
        }
        for (ms, id) in ids {
            let expected = if ms == 100 { Status::Complete } else { Status::Timeout };
            assert_eq!(wait_for_end(&engine, id).await.status(), expected);
        }
    });
}

#[test]
fn deleting_a_root_ends_what_its_failure_left_running() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let steps = r#"[{"op":"t:breaks","input":{"ms":["const",10]}},
                        {"op":"t:wait","input":{"ms":["const",60000]}}]"#;
        let op = register(&engine, steps, "[1]", r#","onFailure":"leave""#).await;
        let id = invoke(&engine, &op, "{}").await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(engine.counters().await.running, 1, "it was left running");
        engine.delete(&alice(), id).await.unwrap();
        sleep(1_100).await;
        assert_eq!(engine.counters().await.running, 0);
    });
}

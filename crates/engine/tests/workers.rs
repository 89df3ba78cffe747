//! Workers: processes of their own that run jobs of a queue.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use catena_engine::error::WorkerError;
use catena_engine::limits::Limits;
use catena_engine::operations::Environment;
use catena_engine::requests::{AnnouncedExecutor, WorkerEnd, WorkerSignal};
use catena_job::Status;
use catena_store::testing::stepped::Death;
use support::cluster::Kills;
use support::harness::verify_tree;
use support::queue::{Worker, register_queue};
use support::*;

#[test]
fn a_worker_starts_and_ends_a_job_and_both_records_name_it() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        let view = invoke(&engine, &operation, r#"{"to":"ann"}"#).await;
        assert_eq!(view.status(), Status::Pending);
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        assert_eq!((job.id, job.attempt, job.fence), (view.job.id(), 1, 1));
        assert_eq!(job.input, value(r#"{"to":"ann"}"#));
        assert!(job.deadline.is_some());
        worker.expect_nothing(&engine).await;
        assert_eq!(
            wait_for_status(&engine, job.id, Status::Started).await.status(),
            Status::Started
        );
        worker.complete(&engine, &job, r#"{"sent":true}"#).await.unwrap();
        let view = wait_for_end(&engine, job.id).await;
        assert_eq!(member(&view, "output"), r#"{"sent":true}"#);
        assert_eq!(record_kinds(&engine, job.id).await, ["PENDING", "STARTED", "COMPLETE"]);
        let history = engine.history(&alice(), job.id, 0, 10).await.unwrap();
        for record in &history.records[1..] {
            let by = record.fields().field("by").cloned();
            assert_eq!(
                by.and_then(|by| by.as_str().map(str::to_owned)),
                Some(alice().did.to_string())
            );
        }
        verify_tree(&engine, job.id).await;
    });
}

#[test]
fn a_waiting_claim_is_answered_when_a_job_is_queued() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        let worker = Worker::new("w1");
        let (job, view) = tokio::join!(worker.claim(&engine), async {
            sleep(500).await;
            invoke(&engine, &operation, "1").await
        });
        assert_eq!(job.id, view.job.id());
    });
}

#[test]
fn the_same_end_again_is_recognised_and_another_one_is_fenced_off() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        assert!(!worker.complete(&engine, &job, "1").await.unwrap().is_repeated);
        assert!(worker.complete(&engine, &job, "1").await.unwrap().is_repeated);
        let late = worker.complete(&engine, &job, "2").await.unwrap_err();
        assert_eq!(late, WorkerError::Fenced(job.id));
        assert_eq!(member(&wait_for_end(&engine, job.id).await, "output"), "1");
    });
}

#[test]
fn the_job_of_a_lost_worker_is_offered_again_and_its_late_result_is_refused() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        let lost = Worker::new("lost");
        let job = lost.claim(&engine).await;
        let other = Worker::new("other");
        other.expect_nothing(&engine).await;
        let again = other.claim(&engine).await;
        assert_eq!((again.id, again.attempt, again.fence), (job.id, 2, 2));
        let late = lost.complete(&engine, &job, "1").await.unwrap_err();
        assert_eq!(late, WorkerError::Fenced(job.id));
        let signals = lost.beat(&engine, &[&job], 1_000).await.signals;
        assert_eq!(signals, [(job.id, WorkerSignal::Stop)]);
        other.complete(&engine, &again, "2").await.unwrap();
        assert_eq!(member(&wait_for_end(&engine, job.id).await, "output"), "2");
        verify_tree(&engine, job.id).await;
    });
}

#[test]
fn the_job_of_a_lost_worker_is_offered_within_a_second_after_the_end_of_its_lease() {
    TestVenue::with_kills(Kills::None).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        Worker::new("lost").claim(&engine).await;
        let lost = tokio::time::Instant::now();
        Worker::new("other").claim(&engine).await;
        let lease = Limits::default().worker_lease;
        let took = lost.elapsed();
        assert!(lease <= took && took <= lease + Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn a_job_whose_recovery_is_fail_fails_when_its_worker_is_lost() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, r#","recovery":"fail""#).await;
        invoke(&engine, &operation, "1").await;
        let job = Worker::new("lost").claim(&engine).await;
        let view = wait_for_end(&engine, job.id).await;
        assert_eq!(view.status(), Status::Failed);
        assert!(member(&view, "error").contains("the worker was lost"), "{view:?}");
    });
}

#[test]
fn a_worker_that_beats_keeps_its_jobs() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        for _ in 0..10 {
            assert_eq!(worker.beat(&engine, &[&job], 5_000).await.signals, []);
        }
        worker.complete(&engine, &job, "1").await.unwrap();
        verify_tree(&engine, job.id).await;
    });
}

#[test]
fn a_job_that_its_worker_no_longer_mentions_is_offered_again() {
    TestVenue::with_kills(Kills::Any).run_engines(1, async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        for _ in 0..3 {
            worker.beat(&engine, &[], 5_000).await;
        }
        let again = worker.claim(&engine).await;
        assert_eq!((again.id, again.fence), (job.id, 2));
    });
}

#[test]
fn a_worker_that_only_claims_loses_a_job_that_it_never_heard_of() {
    TestVenue::with_kills(Kills::Any).run_engines(1, async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        let worker = Worker::new("w1");
        // The answer to this claim is lost. The worker claims again and again, which renews its lease.
        let lost = worker.claim(&engine).await;
        let claimed = worker.claim_up_to(&engine, 1, 5_000).await;
        assert!(claimed.jobs.is_empty());
        let again = worker.claim(&engine).await;
        assert_eq!((again.id, again.fence), (lost.id, 2));
    });
}

#[test]
fn a_restart_of_the_venue_does_not_disturb_workers() {
    let venue = TestVenue::with_kills(Kills::Any);
    let worker = Worker::new("w1");
    let job = venue.run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        worker.claim(&engine).await
    });
    venue.run_process(async |engine| {
        sleep(5_000).await;
        assert_eq!(worker.beat(&engine, &[&job], 0).await.signals, []);
        sleep(5_000).await;
        worker.complete(&engine, &job, "1").await.unwrap();
        assert_eq!(record_kinds(&engine, job.id).await, ["PENDING", "STARTED", "COMPLETE"]);
    });
}

#[test]
fn a_worker_that_does_not_return_after_a_restart_loses_its_jobs() {
    let venue = TestVenue::with_kills(Kills::Any);
    let job = venue.run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        Worker::new("lost").claim(&engine).await
    });
    venue.run_process(async |engine| {
        let other = Worker::new("other");
        sleep(9_000).await;
        other.expect_nothing(&engine).await;
        let again = other.claim(&engine).await;
        assert_eq!((again.id, again.fence), (job.id, 2));
    });
}

#[test]
fn queued_jobs_are_found_after_a_restart() {
    let venue = TestVenue::with_kills(Kills::Any);
    let id = venue.run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await.job.id()
    });
    venue.run_process(async |engine| {
        assert_eq!(Worker::new("w1").claim(&engine).await.id, id);
    });
}

#[test]
fn pause_resume_and_cancel_reach_a_waiting_beat_within_a_second() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        let id = job.id;
        let answered = async |signal: WorkerSignal| {
            let started = tokio::time::Instant::now();
            let mut signals = worker.beat(&engine, &[&job], 8_000).await.signals;
            while signals == [(id, WorkerSignal::Go)] {
                // Each process tells the worker of the resume.
                signals = worker.beat(&engine, &[&job], 8_000).await.signals;
            }
            assert_eq!(signals, [(id, signal)]);
            assert!(started.elapsed() < Duration::from_millis(1_200), "{:?}", started.elapsed());
        };
        let pause = async {
            sleep(10).await;
            engine.pause(&alice(), id).await.unwrap();
        };
        tokio::join!(answered(WorkerSignal::Pause), pause);
        let resume = async {
            sleep(10).await;
            engine.resume(&alice(), id).await.unwrap();
        };
        tokio::join!(async { worker.beat(&engine, &[&job], 5_000).await }, resume);
        let cancel = async {
            sleep(10).await;
            engine.cancel(&alice(), id, None).await.unwrap();
        };
        tokio::join!(answered(WorkerSignal::Stop), cancel);
        let late = worker.complete(&engine, &job, "1").await.unwrap_err();
        assert_eq!(late, WorkerError::Fenced(id));
        verify_tree(&engine, id).await;
    });
}

#[test]
fn the_result_of_a_paused_job_is_held_until_it_is_resumed() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        engine.pause(&alice(), job.id).await.unwrap();
        worker.complete(&engine, &job, "7").await.unwrap();
        assert_eq!(engine.job(&alice(), job.id).await.unwrap().status(), Status::Paused);
        engine.resume(&alice(), job.id).await.unwrap();
        assert_eq!(member(&wait_for_end(&engine, job.id).await, "output"), "7");
        verify_tree(&engine, job.id).await;
    });
}

#[test]
fn a_job_times_out_while_a_worker_holds_it() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, r#","timeoutMs":3000"#).await;
        invoke(&engine, &operation, "1").await;
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        let reply = worker.beat(&engine, &[&job], 8_000).await;
        assert_eq!(reply.signals, [(job.id, WorkerSignal::Stop)]);
        assert_eq!(wait_for_end(&engine, job.id).await.status(), Status::Timeout);
    });
}

#[test]
fn an_attempt_that_takes_too_long_is_followed_by_the_next() {
    TestVenue::with_kills(Kills::Any).run_engines(1, async |engine| {
        let retry = r#","retry":{"attempts":2,"backoffMs":10,"timeoutMs":2000}"#;
        let operation = register_queue(&engine, retry).await;
        invoke(&engine, &operation, "1").await;
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        worker.beat(&engine, &[&job], 8_000).await;
        let again = Worker::new("w2").claim(&engine).await;
        assert_eq!((again.id, again.attempt), (job.id, 2));
        assert_eq!(worker.beat(&engine, &[&job], 0).await.signals, [(job.id, WorkerSignal::Stop)]);
    });
}

#[test]
fn a_failed_attempt_is_retried_as_the_definition_says() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let retry = r#","retry":{"attempts":2,"backoffMs":1000,"jitter":0}"#;
        let operation = register_queue(&engine, retry).await;
        let id = invoke(&engine, &operation, "1").await.job.id();
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        worker.fail(&engine, &job, "no route").await.unwrap();
        assert!(worker.fail(&engine, &job, "no route").await.unwrap().is_repeated);
        worker.expect_nothing(&engine).await;
        let again = worker.claim(&engine).await;
        assert_eq!((again.id, again.attempt), (id, 2));
        worker.fail(&engine, &again, "still no route").await.unwrap();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(
            (view.status(), member(&view, "error")),
            (Status::Failed, "\"still no route\"".into())
        );
        let kinds = record_kinds(&engine, id).await;
        assert_eq!(kinds, ["PENDING", "STARTED", "(attempt)", "(attempt)", "FAILED"]);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn recorded_steps_come_back_with_the_next_claim() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, "1").await;
        let lost = Worker::new("lost");
        let job = lost.claim(&engine).await;
        let recorded = lost.step(&engine, &job, "charge", r#"{"receipt":7}"#).await.unwrap();
        assert_eq!(recorded.status(), Status::Complete);
        let repeated = lost.step(&engine, &job, "charge", r#"{"receipt":8}"#).await.unwrap();
        assert_eq!(member(&repeated, "output"), r#"{"receipt":7}"#, "the first result counts");
        let other = Worker::new("other");
        let again = other.claim(&engine).await;
        let [step] = &again.steps[..] else { panic!("{:?}", again.steps) };
        assert_eq!(step.key, "charge");
        assert_eq!(step.output, Some(value(r#"{"receipt":7}"#)));
        let late = lost.step(&engine, &job, "mail", "1").await.unwrap_err();
        assert_eq!(late, WorkerError::Fenced(job.id));
        other.complete(&engine, &again, "1").await.unwrap();
        verify_tree(&engine, job.id).await;
    });
}

#[test]
fn a_worker_with_one_slot_can_call_its_own_queue() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        let id = invoke(&engine, &operation, r#"{"outer":true}"#).await.job.id();
        let worker = Worker::new("w1");
        let outer = worker.claim(&engine).await;
        let call = worker.call(&engine, &outer, "inner", &operation, "2").await.unwrap();
        assert_eq!(call.status(), Status::Pending);
        let awaiting = WorkerEnd::Awaiting(vec!["inner".to_owned()]);
        worker.end(&engine, &outer, awaiting.clone()).await.unwrap();
        assert!(worker.end(&engine, &outer, awaiting).await.unwrap().is_repeated);
        let inner = worker.claim(&engine).await;
        assert_eq!(inner.input, value("2"));
        worker.expect_nothing(&engine).await;
        worker.complete(&engine, &inner, "3").await.unwrap();
        let again = worker.claim(&engine).await;
        assert_eq!((again.id, again.attempt), (id, 1), "giving a job back is not a failure");
        assert_eq!(again.steps[0].output, Some(value("3")));
        let known = worker.call(&engine, &again, "inner", &operation, "2").await.unwrap();
        assert_eq!(member(&known, "output"), "3");
        worker.complete(&engine, &again, "4").await.unwrap();
        assert_eq!(member(&wait_for_end(&engine, id).await, "output"), "4");
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_call_that_asks_makes_its_caller_ask_and_the_answer_reaches_it() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        let id = invoke(&engine, &operation, "1").await.job.id();
        let worker = Worker::new("w1");
        let outer = worker.claim(&engine).await;
        worker.call(&engine, &outer, "inner", &operation, "2").await.unwrap();
        worker.end(&engine, &outer, WorkerEnd::Awaiting(vec!["inner".into()])).await.unwrap();
        let inner = worker.claim(&engine).await;
        let ask = WorkerEnd::Ask { message: "sure?".into(), schema: None };
        worker.end(&engine, &inner, ask).await.unwrap();
        wait_for_status(&engine, id, Status::InputRequired).await;
        engine.send(&alice(), id, value(r#"{"content":"yes"}"#), None).await.unwrap();
        // The caller is offered again, too: it waits for the call again.
        for _ in 0..3 {
            let job = worker.claim(&engine).await;
            if job.id == inner.id {
                assert!(job.message.is_some());
                worker.complete(&engine, &job, "3").await.unwrap();
            } else if job.steps.is_empty() {
                let again = WorkerEnd::Awaiting(vec!["inner".into()]);
                worker.end(&engine, &job, again).await.unwrap();
            } else {
                worker.complete(&engine, &job, "4").await.unwrap();
                break;
            }
        }
        assert_eq!(member(&wait_for_end(&engine, id).await, "output"), "4");
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_job_that_asks_is_offered_again_with_the_answer() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        let id = invoke(&engine, &operation, "1").await.job.id();
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        let ask = WorkerEnd::Ask { message: "which colour?".into(), schema: None };
        worker.end(&engine, &job, ask).await.unwrap();
        let view = wait_for_status(&engine, id, Status::InputRequired).await;
        assert_eq!(member(&view, "message"), "\"which colour?\"");
        engine.send(&alice(), id, value(r#"{"content":"blue"}"#), None).await.unwrap();
        let again = worker.claim(&engine).await;
        let message = again.message.clone().unwrap();
        assert_eq!(message.as_map().unwrap().field("content").unwrap().as_str(), Some("blue"));
        worker.complete(&engine, &again, "1").await.unwrap();
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_step_of_an_orchestration_can_be_run_by_a_worker() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        let steps = format!(r#"[{{"op":"{operation}","input":["input"]}}]"#);
        let workflow = support::harness::register(&engine, &steps, r#"[0]"#, "").await;
        let id = invoke(&engine, &workflow, "5").await.job.id();
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        assert_eq!(job.input, value("5"));
        worker.complete(&engine, &job, "6").await.unwrap();
        assert_eq!(member(&wait_for_end(&engine, id).await, "output"), "6");
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_limit_bounds_what_runs_at_a_time_for_each_value() {
    TestVenue::with_kills(Kills::Any).run_engines(1, async |engine| {
        let operation = register_queue(&engine, r#","running":1,"by":["tenant"]"#).await;
        for (tenant, count) in [("a", 3), ("b", 1)] {
            for _ in 0..count {
                invoke(&engine, &operation, &format!(r#"{{"tenant":"{tenant}"}}"#)).await;
            }
        }
        let worker = Worker::new("w1");
        let first = worker.claim_up_to(&engine, 10, 0).await.jobs;
        let mut inputs: Vec<_> = first.iter().map(|job| format!("{:?}", job.input)).collect();
        inputs.sort();
        inputs.dedup();
        assert_eq!((first.len(), inputs.len()), (2, 2), "one of each tenant");
        worker.expect_nothing(&engine).await;
        let of_a = first.iter().find(|job| job.input == value(r#"{"tenant":"a"}"#)).unwrap();
        worker.complete(&engine, of_a, "1").await.unwrap();
        assert_eq!(worker.claim_up_to(&engine, 10, 0).await.jobs.len(), 1);
        // A paused job does not count, and does not wait for its turn to continue.
        let of_b = first.iter().find(|job| job.input == value(r#"{"tenant":"b"}"#)).unwrap();
        engine.pause(&alice(), of_b.id).await.unwrap();
        invoke(&engine, &operation, r#"{"tenant":"b"}"#).await;
        assert_eq!(worker.claim_up_to(&engine, 10, 0).await.jobs.len(), 1);
    });
}

#[test]
fn a_higher_priority_overtakes_and_nothing_starves() {
    TestVenue::with_kills(Kills::Any).run_engines(1, async |engine| {
        let low = register_queue(&engine, r#","priority":-10"#).await;
        let high = register_queue(&engine, r#","priority":10"#).await;
        let old = invoke(&engine, &low, "0").await.job.id();
        sleep(250_000).await;
        invoke(&engine, &low, "1").await;
        invoke(&engine, &high, "2").await;
        let jobs = Worker::new("w1").claim_up_to(&engine, 10, 0).await.jobs;
        let inputs: Vec<_> = jobs.iter().map(|job| job.input.as_i64().unwrap()).collect();
        assert_eq!(inputs, [0, 2, 1], "the oldest has waited longer than any head start");
        assert_eq!(jobs[0].id, old);
    });
}

#[test]
fn a_caller_with_many_jobs_does_not_delay_another() {
    TestVenue::with_kills(Kills::Any).run_engines(1, async |engine| {
        let text = r#"{"name":"mail","operation":{"adapter":"q","queue":"mail"}}"#;
        let (id, _) = engine.register(&alice(), text, None).await.unwrap();
        for number in 0..50 {
            invoke(&engine, &id.to_string(), &number.to_string()).await;
        }
        let mut worker = Worker::new("w1");
        assert_eq!(worker.claim_up_to(&engine, 5, 0).await.jobs.len(), 5);
        // Bob's job goes to his own queue, which Alice's workers do not see.
        let mut request = request(&id.to_string(), "99");
        request.caller = bob();
        let of_bob = engine.invoke(request).await.unwrap().view.job.id();
        assert_eq!(worker.claim_up_to(&engine, 100, 0).await.jobs.len(), 45);
        worker.caller = bob();
        assert_eq!(worker.claim(&engine).await.id, of_bob);
    });
}

#[test]
fn a_worker_sees_and_ends_nothing_of_another_owner() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let operation = register_queue(&engine, "").await;
        invoke(&engine, &operation, r#"{"secret":1}"#).await;
        let mut thief = Worker::new("w1");
        thief.caller = bob();
        thief.expect_nothing(&engine).await;
        let worker = Worker::new("w1");
        let job = worker.claim(&engine).await;
        let refused = thief.complete(&engine, &job, "1").await.unwrap_err();
        assert_eq!(refused, WorkerError::NotFound(job.id));
        let refused = thief.step(&engine, &job, "k", "1").await.unwrap_err();
        assert_eq!(refused, WorkerError::NotFound(job.id));
        let signals = thief.beat(&engine, &[&job], 0).await.signals;
        assert_eq!(signals, [(job.id, WorkerSignal::Stop)]);
        worker.complete(&engine, &job, "1").await.unwrap();
    });
}

/// Registers an operation whose jobs wait for executors.
async fn register_executed(engine: &catena_engine::Engine) -> String {
    register_queue(engine, r#","executed":true,"timeoutMs":60000"#).await
}

/// Returns a worker of the venue itself, as executors are.
fn executor(view: &catena_engine::requests::JobView) -> Worker {
    let venue = view.job.field("venue").and_then(catena_value::Value::as_str).unwrap();
    Worker { caller: catena_engine::Caller::known(venue), name: "e1" }
}

#[test]
fn a_job_that_no_executor_claims_within_a_day_is_cancelled() {
    let venue = TestVenue::with_kills(Kills::None);
    let job = venue.run_process(async |engine| {
        let operation = register_executed(&engine).await;
        invoke(&engine, &operation, "1").await.job.id()
    });
    venue.skip_time(Duration::from_secs(24 * 3600 - 60));
    venue.run_process(async |engine| {
        let view = engine.job(&alice(), job).await.unwrap();
        assert_eq!(view.status(), Status::Pending, "a day is not over");
    });
    venue.skip_time(Duration::from_secs(61));
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, job).await;
        assert_eq!(view.status(), Status::Cancelled);
        assert_eq!(member(&view, "error"), r#""queue_expired""#);
        assert_eq!(record_kinds(&engine, job).await, ["PENDING", "CANCELLED"]);
        executor(&view).expect_nothing(&engine).await;
        verify_tree(&engine, job).await;
    });
}

#[test]
fn a_job_that_was_paused_on_its_queue_may_wait_for_what_was_left_of_the_day() {
    let venue = TestVenue::with_kills(Kills::None);
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let jobs = venue.run_process(async |engine| {
        let operation = register_executed(&engine).await;
        let mut jobs = Vec::new();
        for input in ["1", "2"] {
            jobs.push(invoke(&engine, &operation, input).await.job.id());
        }
        jobs
    });
    venue.skip_time(hours(20));
    venue.run_process(async |engine| {
        for job in &jobs {
            engine.pause(&alice(), *job).await.unwrap();
        }
    });
    // A pause does not count.
    venue.skip_time(hours(10));
    venue.run_process(async |engine| {
        for job in &jobs {
            assert_eq!(engine.job(&alice(), *job).await.unwrap().status(), Status::Paused);
            engine.resume(&alice(), *job).await.unwrap();
        }
    });
    // Its limit of a minute does not count either, until it is claimed.
    venue.skip_time(hours(3));
    let claimed = venue.run_process(async |engine| {
        let view = engine.job(&alice(), jobs[0]).await.unwrap();
        assert!(!view.status().is_terminal(), "{}", view.status());
        let executor = executor(&view);
        let claimed = executor.claim(&engine).await;
        let started = engine.job(&alice(), claimed.id).await.unwrap().job.updated();
        assert_eq!(claimed.deadline.unwrap() - started, 60_000, "its time begins with the claim");
        executor.complete(&engine, &claimed, "1").await.unwrap();
        assert_eq!(wait_for_end(&engine, claimed.id).await.status(), Status::Complete);
        verify_tree(&engine, claimed.id).await;
        claimed.id
    });
    let other = *jobs.iter().find(|job| **job != claimed).unwrap();
    venue.skip_time(hours(1));
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, other).await;
        assert_eq!(view.status(), Status::Cancelled);
        assert_eq!(member(&view, "error"), r#""queue_expired""#);
        verify_tree(&engine, other).await;
    });
}

#[test]
fn a_job_of_a_worker_that_was_paused_on_its_queue_waits_without_a_limit() {
    let venue = TestVenue::with_kills(Kills::None);
    let job = venue.run_process(async |engine| {
        let operation = register_queue(&engine, r#","timeoutMs":60000"#).await;
        let job = invoke(&engine, &operation, "1").await.job.id();
        engine.pause(&alice(), job).await.unwrap();
        engine.resume(&alice(), job).await.unwrap();
        job
    });
    venue.skip_time(Duration::from_secs(7 * 86_400));
    venue.run_process(async |engine| {
        let worker = Worker::new("w1");
        let claimed = worker.claim(&engine).await;
        assert_eq!(claimed.id, job);
        worker.complete(&engine, &claimed, "1").await.unwrap();
        assert_eq!(wait_for_end(&engine, job).await.status(), Status::Complete);
    });
}

#[test]
fn an_executor_is_listed_only_when_its_environments_are_known() {
    let environment = Environment {
        version: "py-bare@1".into(),
        profile: "bare".into(),
        job_types: vec!["object_execute".into()],
        announced: 5,
    };
    let executor = AnnouncedExecutor {
        worker: "e1".into(),
        slots: 1,
        versions: vec!["py-bare@1".into()],
        tier: None,
        tiers: Vec::new(),
        unavailable: None,
    };
    let venue = TestVenue::with_kills(Kills::None);
    let death = Arc::new(Death::after(u64::MAX, false));
    let listed = Cell::new(None);
    venue.run_until_death(&death, async |cluster| {
        let engine = &cluster.node(0).engine;
        death.postpone(0);
        let announcing = engine.announce(executor.clone(), vec![environment.clone()]);
        tokio::select! {
            biased;
            _ = announcing => panic!("its commit is not answered"),
            () = std::future::ready(()) => listed.set(Some(engine.executors(&alice()).len())),
        }
    });
    assert_eq!(listed.get(), Some(0), "its environment is not stored yet");
    // Each process knows the executors that announced themselves to it.
    venue.run_engines(1, async |cluster| {
        let engine = &cluster.node(0).engine;
        engine.announce(executor, vec![environment]).await.unwrap();
        assert_eq!(engine.executors(&alice()).len(), 1);
        assert_eq!(engine.environments().versions(), ["py-bare@1"]);
    });
}

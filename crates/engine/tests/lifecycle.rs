//! The lifecycle of a job: start, end, pause, resume, cancel, timeout, delete.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::error::{ControlError, IdempotencyError, InvokeError, JobError};
use catena_engine::requests::{IdempotencyKey, JobFilter, ListJobs, Recording};
use catena_engine::views::{JobEvent, Reader};
use catena_job::Status;
use catena_store::ListOrder;
use support::cluster::Kills;
use support::*;

#[test]
fn an_inline_operation_is_complete_in_the_response() {
    TestVenue::new().run_process(async |engine| {
        let view = invoke(&engine, "t:echo", r#"{"a":[1,2.5,null]}"#).await;
        assert_eq!(view.status(), Status::Complete);
        assert_eq!(member(&view, "output"), r#"{"a":[1,2.5,null]}"#);
        let id = view.job.id();
        assert_eq!(record_kinds(&engine, id).await, ["PENDING", "STARTED", "COMPLETE"]);
        verify_chain(&engine, id).await;
        let failed = invoke(&engine, "t:error", "{}").await;
        assert_eq!(member(&failed, "error"), r#""it went wrong""#);
        assert_eq!(member(&failed, "errorCode"), r#""asked_for""#);
    });
}

#[test]
fn an_input_that_violates_the_schema_creates_a_rejected_job() {
    TestVenue::new().run_process(async |engine| {
        let view = invoke(&engine, "t:strict", r#"{"n":"x"}"#).await;
        assert_eq!(view.status(), Status::Rejected);
        assert!(member(&view, "error").contains("/n"), "{}", member(&view, "error"));
        assert_eq!(record_kinds(&engine, view.job.id()).await, ["REJECTED"]);
        verify_chain(&engine, view.job.id()).await;
        // An output that violates the operation's output schema fails the job.
        let view = invoke(&engine, "t:strict", r#"{"n":1}"#).await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(member(&view, "errorCode"), r#""invalid_output""#);
    });
}

#[test]
fn an_unknown_operation_creates_no_job_and_suggests_similar_names() {
    TestVenue::new().run_process(async |engine| {
        let error = engine.invoke(request("t:ecko", "{}")).await.unwrap_err();
        let InvokeError::Resolve(catena_engine::error::ResolveError::Unknown { nearest, .. }) =
            error
        else {
            panic!("{error:?}")
        };
        assert!(nearest.contains(&"t:echo".to_owned()), "{nearest:?}");
        assert_eq!(engine.counters().await.invoked, 0);
    });
}

#[test]
fn a_quick_operation_is_answered_complete_and_a_slow_one_started() {
    TestVenue::new().run_process(async |engine| {
        let quick = invoke(&engine, "t:wait", r#"{"ms":5}"#).await;
        assert_eq!(quick.status(), Status::Complete);
        let slow = invoke(&engine, "t:wait", r#"{"ms":500}"#).await;
        assert_eq!(slow.status(), Status::Started);
        assert_eq!(wait_for_end(&engine, slow.job.id()).await.status(), Status::Complete);
        let mut waited = request("t:wait", r#"{"ms":500}"#);
        waited.wait = Some(Duration::from_secs(1));
        assert_eq!(engine.invoke(waited).await.unwrap().view.status(), Status::Complete);
    });
}

#[test]
fn a_paused_job_does_not_run_and_continues_where_it_stopped() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let id = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        sleep(400).await;
        assert_eq!(engine.pause(&alice(), id).await.unwrap().status(), Status::Paused);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::Paused);
        let again = engine.pause(&alice(), id).await.unwrap_err();
        assert!(matches!(again, ControlError::Conflict { status: Status::Paused, .. }));
        let started = tokio::time::Instant::now();
        assert_eq!(engine.resume(&alice(), id).await.unwrap().status(), Status::Started);
        wait_for_end(&engine, id).await;
        let took = started.elapsed();
        assert!((500..700).contains(&took.as_millis()), "{took:?}");
        assert_eq!(
            record_kinds(&engine, id).await,
            ["PENDING", "STARTED", "PAUSED", "STARTED", "COMPLETE"]
        );
        verify_chain(&engine, id).await;
        let late = engine.resume(&alice(), id).await.unwrap_err();
        assert!(matches!(late, ControlError::Conflict { status: Status::Complete, .. }));
    });
}

#[test]
fn an_outcome_that_arrives_during_a_pause_is_held_and_not_visible() {
    let venue = TestVenue::new();
    let id = venue.run_process(async |engine| {
        let id = invoke(&engine, "t:effect", r#"{"ms":100}"#).await.job.id();
        engine.pause(&alice(), id).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Paused);
        assert!(view.job.field("output").is_none());
        assert_eq!(record_kinds(&engine, id).await, ["PENDING", "STARTED", "PAUSED", "(held)"]);
        id
    });
    // It is durable: the next process resumes with it and does not repeat the work.
    venue.run_process(async |engine| {
        let view = engine.resume(&alice(), id).await.unwrap();
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "1".into()));
        verify_chain(&engine, id).await;
    });
    assert_eq!(venue.effects(), 1);
}

#[test]
fn a_cancelled_job_ends_at_once_and_does_not_change_again() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let id = invoke(&engine, "t:wait", r#"{"ms":100}"#).await.job.id();
        engine.cancel(&alice(), id, Some("no need".into())).await.unwrap();
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(member(&view, "error"), r#""Job cancelled: no need""#);
        assert_eq!(member(&view, "by"), r#""did:key:alice""#);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(record_kinds(&engine, id).await, ["PENDING", "STARTED", "CANCELLED"]);
        let again = engine.cancel(&alice(), id, None).await.unwrap();
        assert_eq!(again.job.head(), view.job.head(), "a second cancel changes nothing");
        assert_eq!(engine.counters().await.running, 0);
    });
}

#[test]
fn a_late_result_of_a_cancelled_job_is_dropped() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let id = invoke(&engine, "t:effect", r#"{"ms":100}"#).await.job.id();
        engine.pause(&alice(), id).await.unwrap();
        engine.cancel(&alice(), id, None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(record_kinds(&engine, id).await, ["PENDING", "STARTED", "PAUSED", "CANCELLED"]);
        verify_chain(&engine, id).await;
    });
}

#[test]
fn an_operation_that_runs_too_long_times_out_but_not_while_it_is_paused() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let mut invocation = request("t:wait", r#"{"ms":60000}"#);
        invocation.timeout = Some(Duration::from_millis(300));
        let id = engine.invoke(invocation).await.unwrap().view.job.id();
        sleep(100).await;
        engine.pause(&alice(), id).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        engine.resume(&alice(), id).await.unwrap();
        let started = tokio::time::Instant::now();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Timeout);
        assert!((150..250).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
        assert!(member(&view, "error").contains("limit"));
        verify_chain(&engine, id).await;
    });
}

#[test]
fn a_job_that_waits_for_input_times_out_after_the_interactive_limit() {
    let mut venue = TestVenue::new();
    venue.limits.interactive = Duration::from_secs(600);
    venue.run_process(async |engine| {
        let id = invoke(&engine, "t:chat", "{}").await.job.id();
        tokio::time::sleep(Duration::from_secs(590)).await;
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::InputRequired);
        tokio::time::sleep(Duration::from_secs(12)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Timeout);
        verify_chain(&engine, id).await;
    });
}

#[test]
fn a_transient_failure_is_retried_and_each_attempt_is_recorded() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let started = tokio::time::Instant::now();
        let id = invoke(&engine, "t:flaky", r#"{"fails":2}"#).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "3".into()));
        // 100 ms and 200 ms of backoff, each up to a tenth longer.
        let took = started.elapsed().as_millis();
        assert!((300..=340).contains(&took), "{took} ms");
        let kinds = record_kinds(&engine, id).await;
        assert_eq!(kinds, ["PENDING", "STARTED", "(attempt)", "(attempt)", "COMPLETE"]);
        verify_chain(&engine, id).await;
        let id = invoke(&engine, "t:flaky", r#"{"fails":9}"#).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(member(&view, "error"), r#""attempt 3 failed""#);
    });
}

#[test]
fn an_adapter_that_panics_fails_its_job_and_nothing_else() {
    TestVenue::new().run_process(async |engine| {
        let id = invoke(&engine, "t:broken", "{}").await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(member(&view, "errorCode"), r#""adapter_broken""#);
        assert_eq!(invoke(&engine, "t:echo", "1").await.status(), Status::Complete);
    });
}

#[test]
fn a_job_that_pauses_itself_is_completed_by_a_resume() {
    TestVenue::new().run_process(async |engine| {
        let view = invoke(&engine, "t:pause", r#"{"x":1}"#).await;
        assert_eq!(view.status(), Status::Paused);
        let id = view.job.id();
        engine.resume(&alice(), id).await.unwrap();
        assert_eq!(member(&wait_for_end(&engine, id).await, "output"), r#"{"x":1}"#);
        verify_chain(&engine, id).await;
    });
}

#[test]
fn the_job_of_another_caller_is_not_found() {
    TestVenue::new().run_process(async |engine| {
        let id = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        assert_eq!(engine.job(&bob(), id).await.unwrap_err(), JobError::NotFound(id));
        let not_found = ControlError::NotFound(id);
        assert_eq!(engine.pause(&bob(), id).await.unwrap_err(), not_found);
        assert_eq!(engine.resume(&bob(), id).await.unwrap_err(), not_found);
        assert_eq!(engine.cancel(&bob(), id, None).await.unwrap_err(), not_found);
        assert_eq!(engine.delete(&bob(), id).await.unwrap_err(), not_found);
        assert!(engine.history(&bob(), id, 0, 1).await.is_err());
        assert!(engine.follow(Reader::Caller(&bob()), id, None).await.is_err());
        assert!(engine.send(&bob(), id, value("1"), None).await.is_err());
        assert_eq!(
            wait_for_end(&engine, id).await.status(),
            Status::Complete,
            "nothing was disturbed"
        );
    });
}

#[test]
fn a_deleted_job_is_gone_and_one_that_runs_is_cancelled_first() {
    // A stream ends with its process.
    TestVenue::with_kills(Kills::None).run_process(async |engine| {
        let id = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        let mut follow = engine.follow(Reader::Bearer, id, None).await.unwrap();
        engine.delete(&alice(), id).await.unwrap();
        let deleted = engine.job(&alice(), id).await.unwrap_err();
        assert!(matches!(deleted, JobError::Deleted { job, .. } if job == id), "{deleted}");
        assert_eq!(engine.job(&bob(), id).await.unwrap_err(), JobError::NotFound(id));
        while follow.next().await.unwrap().is_some() {}
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(engine.counters().await.running, 0);
        let list = ListJobs::all(ListOrder::Oldest, 0, 10);
        assert_eq!(engine.jobs(&alice(), &list).await.unwrap().total, 0);
    });
}

#[test]
fn a_follower_receives_every_record_once_and_in_order() {
    // A stream ends with its process.
    TestVenue::with_kills(Kills::None).run_process(async |engine| {
        let id = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        let mut from_now = engine.follow(Reader::Caller(&alice()), id, None).await.unwrap();
        let mut from_first = engine.follow(Reader::Caller(&alice()), id, Some(0)).await.unwrap();
        engine.pause(&alice(), id).await.unwrap();
        engine.resume(&alice(), id).await.unwrap();
        let mut seen = Vec::new();
        while let Some(JobEvent::Record { index, job, .. }) = from_now.next().await.unwrap() {
            seen.push((index, job.status()));
        }
        let expected = [Status::Started, Status::Paused, Status::Started, Status::Complete];
        assert_eq!(seen, (1..).zip(expected).collect::<Vec<_>>());
        let mut seen = Vec::new();
        while let Some(JobEvent::Record { index, job, .. }) = from_first.next().await.unwrap() {
            seen.push((index, job.status()));
        }
        assert_eq!(seen, (1..).zip(expected).collect::<Vec<_>>());
        assert_eq!(engine.counters().await.watchers, 2);
        drop((from_now, from_first));
        assert_eq!(engine.counters().await.watchers, 0);
    });
}

#[test]
fn progress_is_reported_to_followers_and_stored_in_the_last_record() {
    // A stream ends with its process.
    TestVenue::with_kills(Kills::None).run_process(async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":300}"#).await.job.id();
        let mut follow = engine.follow(Reader::Bearer, id, None).await.unwrap();
        let mut reports = 0;
        while let Some(event) = follow.next().await.unwrap() {
            reports += u32::from(matches!(event, JobEvent::Progress(_)));
        }
        assert!((5..=10).contains(&reports), "{reports}");
        let view = engine.job(&alice(), id).await.unwrap();
        assert!(member(&view, "progress").contains(r#""processedItems":10"#));
        assert_eq!(record_kinds(&engine, id).await, ["PENDING", "STARTED", "COMPLETE"]);
    });
}

#[test]
fn a_private_job_leaves_no_trace() {
    TestVenue::new().run_engines(1, async |engine| {
        let mut invocation = request("t:wait", r#"{"ms":500}"#);
        invocation.recording = Recording::Private;
        let id = engine.invoke(invocation.clone()).await.unwrap().view.job.id();
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::Started);
        assert!(matches!(engine.pause(&alice(), id).await, Err(ControlError::Private { .. })));
        let view = engine.cancel(&alice(), id, None).await.unwrap();
        assert_eq!(view.status(), Status::Cancelled);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(engine.job(&alice(), id).await.is_err());
        invocation.wait = Some(Duration::from_secs(1));
        let view = engine.invoke(invocation).await.unwrap().view;
        assert_eq!(view.status(), Status::Complete);
        assert!(engine.job(&alice(), view.job.id()).await.is_err());
        let mut invocation = request("t:echo", "1");
        invocation.recording = Recording::Private;
        let view = engine.invoke(invocation).await.unwrap().view;
        assert_eq!(view.status(), Status::Complete);
        assert!(engine.job(&alice(), view.job.id()).await.is_err());
    });
}

#[test]
fn a_repeated_request_with_the_same_key_returns_the_same_job() {
    let venue = TestVenue::new();
    let keyed = |input: &str, digest: u8| {
        let mut invocation = request("t:echo", input);
        invocation.idempotency = Some(IdempotencyKey {
            endpoint: "invoke",
            key: "k1".into(),
            body_digest: [digest; 32],
        });
        invocation
    };
    let id = venue.run_process(async |engine| {
        let first = engine.invoke(keyed("1", 1)).await.unwrap();
        let second = engine.invoke(keyed("1", 1)).await.unwrap();
        assert_eq!((first.is_replay, second.is_replay), (false, true));
        assert_eq!(first.view.job.id(), second.view.job.id());
        let other = engine.invoke(keyed("2", 2)).await.unwrap_err();
        assert_eq!(other, InvokeError::Key(IdempotencyError::Reused));
        first.view.job.id()
    });
    venue.run_process(async |engine| {
        let third = engine.invoke(keyed("1", 1)).await.unwrap();
        assert_eq!((third.is_replay, third.view.job.id()), (true, id));
    });
    venue.skip_time(Duration::from_secs(25 * 3600));
    venue.run_process(async |engine| {
        sleep(100).await;
        let later = engine.invoke(keyed("2", 2)).await.unwrap();
        assert!(!later.is_replay, "a key is forgotten after a day");
    });
}

#[test]
fn live_jobs_and_rates_are_bounded_per_caller() {
    let mut venue = TestVenue::new();
    venue.limits.live_jobs_per_caller_max = 2;
    venue.run_engines(1, async |engine| {
        let id = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        invoke(&engine, "t:wait", r#"{"ms":1000}"#).await;
        let error = engine.invoke(request("t:wait", r#"{"ms":1}"#)).await.unwrap_err();
        assert_eq!(error, InvokeError::TooManyJobs { live: 2 });
        let mut of_bob = request("t:wait", r#"{"ms":1}"#);
        of_bob.caller = bob();
        assert!(engine.invoke(of_bob).await.is_ok(), "other callers are not affected");
        engine.cancel(&alice(), id, None).await.unwrap();
        assert!(engine.invoke(request("t:wait", r#"{"ms":1}"#)).await.is_ok());
    });
    let mut venue = TestVenue::new();
    venue.limits.rate = Some(catena_engine::limits::Rate { per_second: 1.0, burst: 2 });
    venue.run_engines(1, async |engine| {
        invoke(&engine, "t:echo", "1").await;
        invoke(&engine, "t:echo", "1").await;
        let before = engine.counters().await.invoked;
        let error = engine.invoke(request("t:echo", "1")).await.unwrap_err();
        assert!(matches!(error, InvokeError::RateLimited(_)), "{error:?}");
        assert_eq!(engine.counters().await.invoked, before);
        tokio::time::sleep(Duration::from_secs(1)).await;
        invoke(&engine, "t:echo", "1").await;
    });
}

#[test]
fn jobs_without_a_slot_wait_in_the_queue_and_all_end() {
    let mut venue = TestVenue::new();
    venue.limits.running_max = 2;
    venue.run_process(async |engine| {
        let mut jobs = Vec::new();
        for _ in 0..6 {
            jobs.push(invoke(&engine, "t:wait", r#"{"ms":500}"#).await.job.id());
        }
        assert_eq!(engine.job(&alice(), jobs[5]).await.unwrap().status(), Status::Pending);
        engine.pause(&alice(), jobs[5]).await.unwrap();
        for id in &jobs[..5] {
            assert_eq!(wait_for_end(&engine, *id).await.status(), Status::Complete);
            verify_chain(&engine, *id).await;
        }
        assert_eq!(record_kinds(&engine, jobs[5]).await, ["PENDING", "PAUSED"]);
        engine.resume(&alice(), jobs[5]).await.unwrap();
        assert_eq!(wait_for_end(&engine, jobs[5]).await.status(), Status::Complete);
        verify_chain(&engine, jobs[5]).await;
    });
}

#[test]
fn jobs_are_listed_by_page_tag_status_and_operation() {
    TestVenue::new().run_process(async |engine| {
        for n in 0..5 {
            let mut invocation = request("t:echo", &n.to_string());
            invocation.tags = vec![if n % 2 == 0 { "even" } else { "odd" }.to_owned()];
            engine.invoke(invocation).await.unwrap();
        }
        invoke(&engine, "t:error", "{}").await;
        let query = |tag: Option<&str>, status, op: Option<&str>, offset, limit| ListJobs {
            filter: JobFilter {
                status,
                op: op.map(str::to_owned),
                tag: tag.map(str::to_owned),
                ..JobFilter::default()
            },
            order: ListOrder::Oldest,
            after: None,
            offset,
            limit,
        };
        let count = async |query: ListJobs| {
            let list = engine.jobs(&alice(), &query).await.unwrap();
            (list.jobs.len(), list.total)
        };
        assert_eq!(count(query(None, None, None, 0, 100)).await, (6, 6));
        assert_eq!(count(query(None, None, None, 4, 100)).await, (2, 6));
        assert_eq!(count(query(None, None, None, 1, 2)).await, (2, 6));
        assert_eq!(count(query(None, None, None, 9, 2)).await, (0, 6));
        assert_eq!(count(query(Some("even"), None, None, 0, 9)).await, (3, 3));
        assert_eq!(count(query(None, Some(Status::Failed), None, 0, 9)).await, (1, 1));
        assert_eq!(count(query(None, Some(Status::Complete), None, 0, 9)).await, (5, 5));
        assert_eq!(count(query(None, None, Some("t:error"), 0, 9)).await, (1, 1));
        let of_bob = engine.jobs(&bob(), &query(None, None, None, 0, 9)).await.unwrap();
        assert_eq!(of_bob.total, 0);
    });
}

#[test]
fn old_jobs_are_deleted_if_the_operator_set_a_retention() {
    let mut venue = TestVenue::new();
    venue.limits.retention = Some(Duration::from_secs(3600));
    venue.run_process(async |engine| {
        let old = invoke(&engine, "t:echo", "1").await.job.id();
        let live = invoke(&engine, "t:chat", "{}").await.job.id();
        tokio::time::sleep(Duration::from_secs(3000)).await;
        let young = invoke(&engine, "t:echo", "2").await.job.id();
        tokio::time::sleep(Duration::from_secs(1000)).await;
        assert!(engine.job(&alice(), old).await.is_err());
        assert!(engine.job(&alice(), live).await.is_ok());
        assert!(engine.job(&alice(), young).await.is_ok());
    });
}

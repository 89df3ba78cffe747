//! Recovery of jobs that were live when the venue stopped.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::requests::{NewSchedule, When};
use catena_job::Status;
use catena_job::state::Event;
use support::*;

#[test]
fn a_repeatable_job_runs_again_and_records_that() {
    let venue = TestVenue::new();
    let id = venue
        .run_process(async |engine| invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id());
    venue.run_process(async |engine| {
        let summary = engine.recovery();
        assert_eq!((summary.scanned, summary.requeued, summary.failed), (1, 1, 0));
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        assert_eq!(
            record_kinds(&engine, id).await,
            ["PENDING", "STARTED", "(recovered)", "COMPLETE"]
        );
        verify_chain(&engine, id).await;
    });
}

#[test]
fn a_job_with_unknown_effects_fails_with_a_reason() {
    let venue = TestVenue::new();
    let id = venue
        .run_process(async |engine| invoke(&engine, "t:effect", r#"{"ms":1000}"#).await.job.id());
    venue.run_process(async |engine| {
        assert_eq!(engine.recovery().failed, 1);
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Failed);
        assert!(member(&view, "error").contains("effects are unknown"));
        verify_chain(&engine, id).await;
    });
    assert_eq!(venue.effects(), 1);
}

#[test]
fn a_definition_without_a_recovery_rule_has_that_of_the_operation_it_runs() {
    for (more, expected) in [
        ("", Status::Complete),
        (r#","idempotent":false"#, Status::Failed),
        (r#","recovery":"fail""#, Status::Failed),
    ] {
        let venue = TestVenue::new();
        let id = venue.run_process(async |engine| {
            let text = format!(r#"{{"name":"mine","operation":{{"adapter":"t:wait"{more}}}}}"#);
            let (operation, _) = engine.register(&alice(), &text, None).await.unwrap();
            invoke(&engine, &operation.to_string(), r#"{"ms":1000}"#).await.job.id()
        });
        venue.run_process(async |engine| {
            assert_eq!(wait_for_end(&engine, id).await.status(), expected, "{more}");
        });
    }
}

#[test]
fn a_job_whose_rule_is_pause_is_paused_and_runs_again_when_it_is_resumed() {
    let venue = TestVenue::new();
    let id = venue
        .run_process(async |engine| invoke(&engine, "t:careful", r#"{"ms":1000}"#).await.job.id());
    venue.run_process(async |engine| {
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::Paused);
        engine.resume(&alice(), id).await.unwrap();
        assert_eq!(member(&wait_for_end(&engine, id).await, "output"), "2");
        verify_chain(&engine, id).await;
    });
}

#[test]
fn a_job_fails_after_the_venue_stopped_during_three_attempts() {
    let venue = TestVenue::new();
    let id = venue
        .run_process(async |engine| invoke(&engine, "t:wait", r#"{"ms":9000}"#).await.job.id());
    for _ in 0..2 {
        venue.run_process(async |engine| wait_for_status(&engine, id, Status::Started).await);
    }
    venue.run_process(async |engine| {
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Failed);
        assert!(member(&view, "error").contains("3 attempts"), "{}", member(&view, "error"));
        verify_chain(&engine, id).await;
    });
}

#[test]
fn a_job_that_never_started_is_always_requeued() {
    let mut venue = TestVenue::new();
    venue.limits.running_max = 1;
    venue.limits.attempts_max = 100;
    let (first, second) = venue.run_engines(1, async |engine| {
        let first = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        let second = invoke(&engine, "t:effect", r#"{"ms":1}"#).await.job.id();
        assert_eq!(engine.job(&alice(), second).await.unwrap().status(), Status::Pending);
        (first, second)
    });
    for _ in 0..5 {
        venue.run_engines(1, async |engine| assert_eq!(engine.recovery().failed, 0));
        if venue.effects() > 0 {
            break;
        }
    }
    venue.limits.running_max = 10;
    venue.run_engines(1, async |engine| {
        wait_for_end(&engine, first).await;
        assert_eq!(wait_for_end(&engine, second).await.status(), Status::Complete);
        verify_chain(&engine, second).await;
    });
}

#[test]
fn paused_and_interactive_jobs_are_left_unchanged() {
    let venue = TestVenue::new();
    let (paused, asking) = venue.run_process(async |engine| {
        let paused = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        engine.pause(&alice(), paused).await.unwrap();
        (paused, invoke(&engine, "t:chat", "{}").await.job.id())
    });
    venue.run_process(async |engine| {
        let summary = engine.recovery();
        assert_eq!((summary.scanned, summary.requeued, summary.skipped), (2, 0, 0));
        assert_eq!(record_kinds(&engine, paused).await, ["PENDING", "STARTED", "PAUSED"]);
        assert_eq!(record_kinds(&engine, asking).await, ["PENDING", "STARTED", "INPUT_REQUIRED"]);
        engine.resume(&alice(), paused).await.unwrap();
        assert_eq!(wait_for_end(&engine, paused).await.status(), Status::Complete);
        verify_chain(&engine, paused).await;
        engine.send(&alice(), asking, value(r#"{"content":"done"}"#), None).await.unwrap();
        assert_eq!(wait_for_end(&engine, asking).await.status(), Status::Complete);
    });
}

#[test]
fn queued_messages_survive_and_finished_turns_are_not_repeated() {
    let venue = TestVenue::new();
    let id = venue.run_process(async |engine| {
        let id = invoke(&engine, "t:chat", r#"{"ms":1000}"#).await.job.id();
        for n in 1..=3 {
            let message = format!(r#"{{"content":"{n}","messageId":"m{n}"}}"#);
            engine.send(&alice(), id, value(&message), None).await.unwrap();
        }
        // The first is answered; the turn of the second runs when the venue stops.
        sleep(1500).await;
        id
    });
    assert_eq!(venue.effects(), 1);
    venue.run_process(async |engine| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(venue.effects(), 3);
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::InputRequired, r#""3""#.into())
        );
        let again = value(r#"{"content":"2","messageId":"m2"}"#);
        assert!(engine.send(&alice(), id, again, None).await.unwrap().is_duplicate);
        verify_chain(&engine, id).await;
    });
}

#[test]
fn a_job_whose_secrets_were_sealed_with_another_key_is_paused_with_a_reason() {
    let mut venue = TestVenue::new();
    let input = r#"{"ms":1000,"key":"open sesame"}"#;
    let id = venue.run_process(async |engine| invoke(&engine, "t:secret", input).await.job.id());
    // With another key, the sealed secrets cannot be decrypted.
    venue.seed = 10;
    venue.run_process(async |engine| {
        assert_eq!(engine.recovery().failed, 0);
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Paused);
        assert!(member(&view, "message").contains("the key that sealed them is missing"));
        verify_chain(&engine, id).await;
    });
}

#[test]
fn secrets_from_before_they_had_a_key_are_sealed_again_at_the_first_start() {
    let mut venue = TestVenue::new();
    let input = r#"{"ms":1000,"key":"open sesame"}"#;
    let id = venue.run_process(async |engine| {
        let id = invoke(&engine, "t:secret", input).await.job.id();
        engine.pause(&alice(), id).await.unwrap();
        id
    });
    venue.secrets_key = Some([5; 32]);
    venue.run_process(async |_| {});
    // The key of the venue, from which the first one was derived, is not needed any more.
    venue.seed = 10;
    venue.run_process(async |engine| {
        engine.resume(&alice(), id).await.unwrap();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
    });
}

#[test]
fn a_suspect_is_started_alone_before_everything_else() {
    let mut venue = TestVenue::new();
    let (suspect, other) = venue.run_engines(1, async |engine| {
        let suspect = invoke(&engine, "t:wait", r#"{"ms":100000}"#).await.job.id();
        (suspect, invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id())
    });
    venue.aborts.by_job.insert(suspect, 2);
    venue.run_engines(1, async |engine| {
        let task = invoke(&engine, "t:wait", r#"{"ms":10}"#).await;
        assert_eq!(task.status(), Status::Pending);
        // What ends inside the request is not affected.
        assert_eq!(invoke(&engine, "t:echo", "1").await.status(), Status::Complete);
        engine.env().sleep(Duration::from_millis(9_500)).await;
        for job in [task.job.id(), other] {
            assert!(!engine.job(&alice(), job).await.unwrap().status().is_terminal());
        }
        engine.env().sleep(Duration::from_millis(2_000)).await;
        for job in [task.job.id(), other] {
            assert_eq!(engine.job(&alice(), job).await.unwrap().status(), Status::Complete);
        }
        assert!(engine.suspects().contains_key(&suspect));
        engine.env().sleep(Duration::from_secs(60)).await;
        assert!(engine.suspects().is_empty(), "the process has survived it for a minute");
        assert_eq!(wait_for_end(&engine, suspect).await.status(), Status::Complete);
    });
}

#[test]
fn a_suspect_that_aborts_again_is_paused_and_can_be_resumed() {
    let mut venue = TestVenue::new();
    let suspect = venue
        .run_engines(1, async |engine| invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id());
    venue.aborts.by_job.insert(suspect, 3);
    venue.run_engines(1, async |engine| {
        engine.env().sleep(Duration::from_millis(100)).await;
        let view = engine.job(&alice(), suspect).await.unwrap();
        assert_eq!(view.status(), Status::Paused);
        assert!(member(&view, "message").contains("aborted 3 times"));
        engine.resume(&alice(), suspect).await.unwrap();
        assert_eq!(wait_for_end(&engine, suspect).await.status(), Status::Complete);
        verify_chain(&engine, suspect).await;
    });
}

#[test]
fn a_job_whose_operation_is_missing_is_left_unchanged_and_reported() {
    let mut venue = TestVenue::new();
    let id = venue
        .run_process(async |engine| invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id());
    venue.missing_operation = Some("wait");
    venue.run_process(async |engine| {
        let summary = engine.recovery();
        assert_eq!((summary.scanned, summary.skipped, summary.requeued), (1, 1, 0));
        let skipped = &summary.skipped_jobs[0];
        assert_eq!((skipped.job, skipped.op.as_str()), (id, "t:wait"));
        assert_eq!(skipped.owner, "did:key:alice");
        assert_eq!(record_kinds(&engine, id).await, ["PENDING", "STARTED"]);
    });
    venue.missing_operation = None;
    venue.run_process(async |engine| {
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
    });
}

#[test]
fn the_summary_of_a_recovered_job_has_the_attempt_and_the_reason() {
    let venue = TestVenue::new();
    let id = venue
        .run_process(async |engine| invoke(&engine, "t:wait", r#"{"ms":9000}"#).await.job.id());
    for attempt in 2..=3 {
        venue.run_process(async |engine| {
            let summary = engine.summary(&alice(), id).await.unwrap();
            let recovery = summary.recovery.unwrap();
            assert_eq!(recovery.attempt, attempt);
            assert_eq!(recovery.reason, "the venue was restarted");
            assert_eq!(recovery.at, summary.view.job.updated());
            assert!(summary.started.is_some_and(|at| at <= recovery.at));
            wait_for_status(&engine, id, Status::Started).await;
        });
    }
    venue.run_process(async |engine| {
        let errors = engine.summary(&alice(), id).await.unwrap().errors;
        let attempts: Vec<u32> = errors.iter().map(|error| error.attempt).collect();
        assert_eq!(attempts, [1, 2, 3]);
        assert_eq!(errors[2].code.as_deref(), Some("interrupted"));
    });
}

#[test]
fn new_jobs_run_during_recovery_and_no_job_runs_twice() {
    const JOBS: usize = 600;
    let venue = TestVenue::new();
    let ids = venue.run_process(async |engine| {
        let mut ids = Vec::new();
        for _ in 0..JOBS {
            ids.push(invoke(&engine, "t:wait", r#"{"ms":50000}"#).await.job.id());
        }
        ids
    });
    venue.run_process_during_recovery(async |engine| {
        assert!(!engine.recovery().is_done());
        let echo = invoke(&engine, "t:echo", "1").await;
        assert_eq!(echo.status(), Status::Complete);
        let effect = invoke(&engine, "t:effect", "{}").await.job.id();
        assert_eq!(wait_for_end(&engine, effect).await.status(), Status::Complete);
        let summary = engine.recovered().await;
        assert!(summary.is_done());
        assert_eq!(summary.requeued, JOBS as u64);
        // The new job that was live may be among those that were read.
        assert!((JOBS..=JOBS + 1).contains(&(summary.scanned as usize)), "{summary:?}");
        for id in &ids {
            assert_eq!(wait_for_end(&engine, *id).await.status(), Status::Complete);
            let expected = ["PENDING", "STARTED", "(recovered)", "COMPLETE"];
            assert_eq!(record_kinds(&engine, *id).await, expected);
        }
    });
    assert_eq!(venue.effects(), 1);
}

#[test]
fn a_request_that_changes_a_job_before_it_is_recovered_takes_precedence() {
    let venue = TestVenue::new();
    let ids = venue.run_process(async |engine| {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id());
        }
        ids
    });
    venue.run_process_during_recovery(async |engine| {
        engine.cancel(&alice(), ids[0], None).await.unwrap();
        engine.pause(&alice(), ids[1]).await.unwrap();
        engine.pause(&alice(), ids[2]).await.unwrap();
        engine.resume(&alice(), ids[2]).await.unwrap();
        let summary = engine.recovered().await;
        // The one that was cancelled is not live any more; the one that was resumed is on the queue.
        assert_eq!((summary.scanned, summary.requeued, summary.left), (2, 1, 1));
        assert_eq!(record_kinds(&engine, ids[0]).await, ["PENDING", "STARTED", "CANCELLED"]);
        assert_eq!(record_kinds(&engine, ids[1]).await, ["PENDING", "STARTED", "PAUSED"]);
        assert_eq!(wait_for_end(&engine, ids[2]).await.status(), Status::Complete);
        let resumed = ["PENDING", "STARTED", "PAUSED", "STARTED", "(recovered)", "COMPLETE"];
        assert_eq!(record_kinds(&engine, ids[2]).await, resumed);
        engine.cancel(&alice(), ids[1], None).await.unwrap();
    });
    venue.run_process(async |engine| assert_eq!(engine.recovery().found, 0));
}

#[test]
fn a_recovered_job_counts_among_the_live_jobs_of_its_owner() {
    let mut venue = TestVenue::new();
    venue.limits.live_jobs_per_caller_max = 2;
    let ids = venue.run_process(async |engine| {
        let first = invoke(&engine, "t:wait", r#"{"ms":9000}"#).await.job.id();
        (first, invoke(&engine, "t:chat", "{}").await.job.id())
    });
    venue.run_process_during_recovery(async |engine| {
        engine.cancel(&alice(), ids.0, None).await.unwrap();
        engine.recovered().await;
        invoke(&engine, "t:wait", r#"{"ms":9000}"#).await;
        let refused = engine.invoke(request("t:wait", "{}")).await;
        assert!(refused.is_err(), "two are live");
    });
}

#[test]
fn secrets_survive_for_recovery_and_are_erased_at_the_end() {
    let venue = TestVenue::new();
    let input = r#"{"ms":1000,"key":"open sesame"}"#;
    let id = venue.run_process(async |engine| invoke(&engine, "t:secret", input).await.job.id());
    assert!(!venue.disk_contains("open sesame"));
    venue.run_process(async |engine| {
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "11".into()));
        let input = value(&member(&view, "input"));
        assert_eq!(input, value(r#"{"ms":1000,"key":{"redacted":true}}"#));
        verify_chain(&engine, id).await;
    });
    venue.run_process(async |engine| {
        assert_eq!(engine.recovery().scanned, 0);
    });
    assert!(!venue.disk_contains("open sesame"));
}

#[test]
fn a_schedule_survives_a_restart_and_missed_invocations_are_made_up_for_once() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let when = When::At(engine.env().now() + 3_600_000);
        let once = NewSchedule::new("t:echo", value("1"), when);
        engine.schedule(&alice(), once).await.unwrap();
        let when = When::Cron { expression: "* * * * *".to_owned(), time_zone: None };
        let every_minute = NewSchedule::new("t:echo", value("2"), when);
        engine.schedule(&alice(), every_minute).await.unwrap();
        tokio::time::sleep(Duration::from_secs(150)).await;
        assert_eq!(engine.counters().await.invoked, 3, "three minutes started");
    });
    // The clock of the next process starts over: times in its future have not been missed.
    venue.run_process(async |engine| {
        tokio::time::sleep(Duration::from_secs(3_650)).await;
        let list = engine.scheduled(&alice(), None).await.unwrap();
        assert_eq!(list.len(), 1, "the schedule without repetition is removed");
        let handle = &list[0].handle;
        assert!(engine.trigger(&alice(), handle).await.unwrap().is_some());
        assert!(engine.trigger(&bob(), handle).await.unwrap().is_none());
        assert!(!engine.unschedule(&bob(), handle).await.unwrap());
        assert!(engine.unschedule(&alice(), handle).await.unwrap());
        assert!(engine.scheduled(&alice(), None).await.unwrap().is_empty());
    });
}

#[test]
fn each_turn_of_a_conversation_has_its_own_attempts() {
    let venue = TestVenue::new();
    let id = venue.run_process(async |engine| {
        let id = invoke(&engine, "t:chat", "{}").await.job.id();
        wait_for_status(&engine, id, Status::InputRequired).await;
        id
    });
    // The venue stops during five turns, one after the other.
    for _ in 0..5 {
        venue.append(id, Event::Answered);
        venue.run_process(async |engine| {
            wait_for_status(&engine, id, Status::InputRequired).await;
            verify_chain(&engine, id).await;
        });
    }
}

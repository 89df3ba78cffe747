//! What a venue does with jobs that were live when it stopped.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::requests::When;
use catena_job::Status;
use catena_job::state::Event;
use support::*;

#[test]
fn a_repeatable_job_runs_again_and_says_so() {
    let world = World::new();
    let id = world.live(async |engine| invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id());
    world.live(async |engine| {
        let summary = engine.recovery();
        assert_eq!((summary.scanned, summary.requeued, summary.failed), (1, 1, 0));
        assert_eq!(ended(&engine, id).await.status(), Status::Complete);
        assert_eq!(story(&engine, id).await, ["PENDING", "STARTED", "(recovered)", "COMPLETE"]);
        verified(&engine, id).await;
    });
}

#[test]
fn a_job_with_unknown_effects_fails_and_says_why() {
    let world = World::new();
    let id =
        world.live(async |engine| invoke(&engine, "t:effect", r#"{"ms":1000}"#).await.job.id());
    world.live(async |engine| {
        assert_eq!(engine.recovery().failed, 1);
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Failed);
        assert!(member(&view, "error").contains("effects are unknown"));
        verified(&engine, id).await;
    });
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_definition_that_does_not_say_recovers_like_what_it_runs() {
    for (more, expected) in [
        ("", Status::Complete),
        (r#","idempotent":false"#, Status::Failed),
        (r#","recovery":"fail""#, Status::Failed),
    ] {
        let world = World::new();
        let id = world.live(async |engine| {
            let text = format!(r#"{{"name":"mine","operation":{{"adapter":"t:wait"{more}}}}}"#);
            let (operation, _) = engine.register(&alice(), &text, None).await.unwrap();
            invoke(&engine, &operation.to_string(), r#"{"ms":1000}"#).await.job.id()
        });
        world.live(async |engine| {
            assert_eq!(ended(&engine, id).await.status(), expected, "{more}");
        });
    }
}

#[test]
fn a_job_that_asks_for_it_is_paused_and_resumed_by_somebody() {
    let world = World::new();
    let id =
        world.live(async |engine| invoke(&engine, "t:careful", r#"{"ms":1000}"#).await.job.id());
    world.live(async |engine| {
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::Paused);
        engine.resume(&alice(), id).await.unwrap();
        assert_eq!(member(&ended(&engine, id).await, "output"), "2");
        verified(&engine, id).await;
    });
}

#[test]
fn after_three_tries_that_the_venue_did_not_survive_a_job_fails() {
    let world = World::new();
    let id = world.live(async |engine| invoke(&engine, "t:wait", r#"{"ms":9000}"#).await.job.id());
    for _ in 0..2 {
        world.live(async |engine| role(&engine, id, Status::Started).await);
    }
    world.live(async |engine| {
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Failed);
        assert!(member(&view, "error").contains("3 tries"), "{}", member(&view, "error"));
        verified(&engine, id).await;
    });
}

#[test]
fn a_job_that_never_started_is_always_put_back() {
    let mut world = World::new();
    world.limits.running_max = 1;
    world.limits.attempts_max = 100;
    let (first, second) = world.live(async |engine| {
        let first = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        let second = invoke(&engine, "t:effect", r#"{"ms":1}"#).await.job.id();
        assert_eq!(engine.job(&alice(), second).await.unwrap().status(), Status::Pending);
        (first, second)
    });
    for _ in 0..5 {
        world.live(async |engine| assert_eq!(engine.recovery().failed, 0));
        if world.effects() > 0 {
            break;
        }
    }
    world.limits.running_max = 10;
    world.live(async |engine| {
        ended(&engine, first).await;
        assert_eq!(ended(&engine, second).await.status(), Status::Complete);
        verified(&engine, second).await;
    });
}

#[test]
fn paused_and_interactive_jobs_stay_as_they_are() {
    let world = World::new();
    let (paused, asking) = world.live(async |engine| {
        let paused = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        engine.pause(&alice(), paused).await.unwrap();
        (paused, invoke(&engine, "t:chat", "{}").await.job.id())
    });
    world.live(async |engine| {
        let summary = engine.recovery();
        assert_eq!((summary.scanned, summary.requeued, summary.skipped), (2, 0, 0));
        assert_eq!(story(&engine, paused).await, ["PENDING", "STARTED", "PAUSED"]);
        assert_eq!(story(&engine, asking).await, ["PENDING", "STARTED", "INPUT_REQUIRED"]);
        engine.resume(&alice(), paused).await.unwrap();
        assert_eq!(ended(&engine, paused).await.status(), Status::Complete);
        verified(&engine, paused).await;
        engine.send(&alice(), asking, value(r#"{"content":"done"}"#), None).await.unwrap();
        assert_eq!(ended(&engine, asking).await.status(), Status::Complete);
    });
}

#[test]
fn queued_messages_survive_and_finished_turns_are_not_repeated() {
    let world = World::new();
    let id = world.live(async |engine| {
        let id = invoke(&engine, "t:chat", r#"{"ms":1000}"#).await.job.id();
        for n in 1..=3 {
            let message = format!(r#"{{"content":"{n}","messageId":"m{n}"}}"#);
            engine.send(&alice(), id, value(&message), None).await.unwrap();
        }
        // The first is answered; the second is being worked on when the venue stops.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        id
    });
    assert_eq!(world.effects(), 1);
    world.live(async |engine| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(world.effects(), 3);
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::InputRequired, r#""3""#.into())
        );
        let again = value(r#"{"content":"2","messageId":"m2"}"#);
        assert!(engine.send(&alice(), id, again, None).await.unwrap().is_duplicate);
        verified(&engine, id).await;
    });
}

#[test]
fn a_job_whose_payload_is_incomplete_fails_with_a_diagnosis() {
    let mut world = World::new();
    let input = r#"{"ms":1000,"key":"open sesame"}"#;
    let id = world.live(async |engine| invoke(&engine, "t:secret", input).await.job.id());
    // Another key: what was sealed with the old one cannot be opened.
    world.seed = 10;
    world.live(async |engine| {
        assert_eq!(engine.recovery().failed, 1);
        let outline = engine.summary(&alice(), id).await.unwrap();
        assert_eq!(outline.view.status(), Status::Failed);
        let last = outline.errors.last().unwrap();
        assert_eq!(last.code.as_deref(), Some("incomplete_payload"));
        assert!(last.error.contains("incomplete"), "{last:?}");
        verified(&engine, id).await;
    });
}

#[test]
fn a_job_whose_operation_is_gone_is_left_as_it_was_and_named() {
    let mut world = World::new();
    let id = world.live(async |engine| invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id());
    world.without = Some("wait");
    world.live(async |engine| {
        let summary = engine.recovery();
        assert_eq!((summary.scanned, summary.skipped, summary.requeued), (1, 1, 0));
        let skipped = &summary.skipped_jobs[0];
        assert_eq!((skipped.job, skipped.op.as_str()), (id, "t:wait"));
        assert_eq!(skipped.owner, "did:key:alice");
        assert_eq!(story(&engine, id).await, ["PENDING", "STARTED"]);
    });
    world.without = None;
    world.live(async |engine| {
        assert_eq!(ended(&engine, id).await.status(), Status::Complete);
    });
}

#[test]
fn a_recovered_job_says_which_try_it_is_on_and_why() {
    let world = World::new();
    let id = world.live(async |engine| invoke(&engine, "t:wait", r#"{"ms":9000}"#).await.job.id());
    for attempt in 2..=3 {
        world.live(async |engine| {
            let outline = engine.summary(&alice(), id).await.unwrap();
            let recovery = outline.recovery.unwrap();
            assert_eq!(recovery.attempt, attempt);
            assert_eq!(recovery.reason, "the venue was restarted");
            assert_eq!(recovery.at, outline.view.job.updated());
            assert!(outline.started.is_some_and(|at| at <= recovery.at));
            role(&engine, id, Status::Started).await;
        });
    }
    world.live(async |engine| {
        let errors = engine.summary(&alice(), id).await.unwrap().errors;
        let attempts: Vec<u32> = errors.iter().map(|error| error.attempt).collect();
        assert_eq!(attempts, [1, 2, 3]);
        assert_eq!(errors[2].code.as_deref(), Some("attempts_used_up"));
    });
}

#[test]
fn new_work_is_done_while_recovery_is_under_way_and_nothing_runs_twice() {
    const JOBS: usize = 600;
    let world = World::new();
    let ids = world.live(async |engine| {
        let mut ids = Vec::new();
        for _ in 0..JOBS {
            ids.push(invoke(&engine, "t:wait", r#"{"ms":50000}"#).await.job.id());
        }
        ids
    });
    world.live_at_once(async |engine| {
        assert!(!engine.recovery().is_done());
        let echo = invoke(&engine, "t:echo", "1").await;
        assert_eq!(echo.status(), Status::Complete);
        let begun = invoke(&engine, "t:effect", "{}").await.job.id();
        assert_eq!(ended(&engine, begun).await.status(), Status::Complete);
        let summary = engine.recovered().await;
        assert!(summary.is_done());
        assert_eq!((summary.scanned, summary.requeued), (JOBS as u64, JOBS as u64));
        for id in &ids {
            assert_eq!(ended(&engine, *id).await.status(), Status::Complete);
            let expected = ["PENDING", "STARTED", "(recovered)", "COMPLETE"];
            assert_eq!(story(&engine, *id).await, expected);
        }
    });
    assert_eq!(world.effects(), 1);
}

#[test]
fn what_people_do_with_a_job_before_it_is_recovered_stands() {
    let world = World::new();
    let ids = world.live(async |engine| {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id());
        }
        ids
    });
    world.live_at_once(async |engine| {
        engine.cancel(&alice(), ids[0], None).await.unwrap();
        engine.pause(&alice(), ids[1]).await.unwrap();
        engine.pause(&alice(), ids[2]).await.unwrap();
        engine.resume(&alice(), ids[2]).await.unwrap();
        let summary = engine.recovered().await;
        assert_eq!((summary.scanned, summary.requeued, summary.left), (3, 0, 3));
        assert_eq!(story(&engine, ids[0]).await, ["PENDING", "STARTED", "CANCELLED"]);
        assert_eq!(story(&engine, ids[1]).await, ["PENDING", "STARTED", "PAUSED"]);
        assert_eq!(ended(&engine, ids[2]).await.status(), Status::Complete);
        let resumed = ["PENDING", "STARTED", "PAUSED", "STARTED", "(recovered)", "COMPLETE"];
        assert_eq!(story(&engine, ids[2]).await, resumed);
        engine.cancel(&alice(), ids[1], None).await.unwrap();
    });
    world.live(async |engine| assert_eq!(engine.recovery().found, 0));
}

#[test]
fn a_job_that_was_live_counts_among_its_owners_however_it_is_taken_over() {
    let mut world = World::new();
    world.limits.live_jobs_per_caller_max = 2;
    let ids = world.live(async |engine| {
        let first = invoke(&engine, "t:wait", r#"{"ms":9000}"#).await.job.id();
        (first, invoke(&engine, "t:chat", "{}").await.job.id())
    });
    world.live_at_once(async |engine| {
        engine.cancel(&alice(), ids.0, None).await.unwrap();
        engine.recovered().await;
        invoke(&engine, "t:wait", r#"{"ms":9000}"#).await;
        let refused = engine.invoke(request("t:wait", "{}")).await;
        assert!(refused.is_err(), "two are live");
    });
}

#[test]
fn secrets_survive_for_recovery_and_are_erased_at_the_end() {
    let world = World::new();
    let input = r#"{"ms":1000,"key":"open sesame"}"#;
    let id = world.live(async |engine| invoke(&engine, "t:secret", input).await.job.id());
    assert!(!world.disk_contains("open sesame"));
    world.live(async |engine| {
        let view = ended(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "11".into()));
        let shown = value(&member(&view, "input"));
        assert_eq!(shown, value(r#"{"ms":1000,"key":{"redacted":true}}"#));
        verified(&engine, id).await;
    });
    world.live(async |engine| {
        assert_eq!(engine.recovery().scanned, 0);
    });
    assert!(!world.disk_contains("open sesame"));
}

#[test]
fn a_schedule_survives_and_what_was_missed_is_caught_up_once() {
    let world = World::new();
    world.live(async |engine| {
        let when = When::At(engine.env().now() + 3_600_000);
        engine.schedule(&alice(), "t:echo", value("1"), when).await.unwrap();
        let every_minute = When::Cron("* * * * *".to_owned());
        engine.schedule(&alice(), "t:echo", value("2"), every_minute).await.unwrap();
        tokio::time::sleep(Duration::from_secs(150)).await;
        assert_eq!(engine.counters().invoked, 3, "three minutes began");
    });
    // Time begins again for the next life: what lies in its future has not been missed.
    world.live(async |engine| {
        tokio::time::sleep(Duration::from_secs(3_650)).await;
        let list = engine.scheduled(&alice()).await.unwrap();
        assert_eq!(list.len(), 1, "the one that was to be invoked once is gone");
        let handle = &list[0].handle;
        assert!(engine.trigger(&alice(), handle).await.unwrap().is_some());
        assert!(engine.trigger(&bob(), handle).await.unwrap().is_none());
        assert!(!engine.unschedule(&bob(), handle).await.unwrap());
        assert!(engine.unschedule(&alice(), handle).await.unwrap());
        assert!(engine.scheduled(&alice()).await.unwrap().is_empty());
    });
}

#[test]
fn each_turn_of_a_conversation_has_its_own_tries() {
    let world = World::new();
    let id = world.live(async |engine| {
        let id = invoke(&engine, "t:chat", "{}").await.job.id();
        role(&engine, id, Status::InputRequired).await;
        id
    });
    // The venue stops during five turns, one after the other.
    for _ in 0..5 {
        world.append(id, Event::Answered);
        world.live(async |engine| {
            role(&engine, id, Status::InputRequired).await;
            verified(&engine, id).await;
        });
    }
}

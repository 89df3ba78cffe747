//! Messages: one durable queue per job, first in, first out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::Engine;
use catena_engine::error::SendError;
use catena_engine::requests::MessageReceipt;
use catena_job::{JobId, Status};
use support::*;

async fn send(engine: &Engine, id: JobId, message: &str) -> MessageReceipt {
    engine.send(&alice(), id, value(message), None).await.unwrap()
}

#[test]
fn each_message_is_a_turn_and_the_record_that_consumes_it_contains_it() {
    TestVenue::new().run_process(async |engine| {
        let id = invoke(&engine, "t:chat", "{}").await.job.id();
        let sent = send(&engine, id, r#"{"content":"hello","messageId":"m1","role":"user"}"#).await;
        assert_eq!((sent.message_id.as_str(), sent.is_duplicate), ("m1", false));
        assert_eq!((sent.status, sent.queue_depth), (Status::InputRequired, 1));
        sleep(1).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::InputRequired, r#""hello""#.into())
        );
        send(&engine, id, r#"{"content":"done"}"#).await;
        assert_eq!(member(&wait_for_end(&engine, id).await, "output"), r#""bye""#);
        let expected = [
            "PENDING",
            "STARTED",
            "INPUT_REQUIRED",
            "STARTED",
            "INPUT_REQUIRED",
            "STARTED",
            "COMPLETE",
        ];
        assert_eq!(record_kinds(&engine, id).await, expected);
        let page = engine.history(&alice(), id, 3, 1).await.unwrap();
        let trigger = page.records[0].field("trigger").unwrap().clone();
        assert_eq!(trigger, value(r#"{"messageId":"m1","role":"user","from":"did:key:alice"}"#));
        let received = page.records[0].field("received").unwrap().clone();
        assert_eq!(received, value(r#"{"content":"hello","messageId":"m1","role":"user"}"#));
        verify_chain(&engine, id).await;
    });
}

#[test]
fn messages_wait_while_a_turn_runs_and_are_consumed_in_order() {
    TestVenue::new().run_process(async |engine| {
        let id = invoke(&engine, "t:chat", r#"{"ms":100}"#).await.job.id();
        for n in 1..=5 {
            send(&engine, id, &format!(r#"{{"content":"{n}","messageId":"m{n}"}}"#)).await;
        }
        let again = send(&engine, id, r#"{"content":"3","messageId":"m3"}"#).await;
        assert!(again.is_duplicate);
        send(&engine, id, r#"{"content":"done"}"#).await;
        wait_for_end(&engine, id).await;
        let page = engine.history(&alice(), id, 0, 100).await.unwrap();
        let answers: Vec<String> = page
            .records
            .iter()
            .filter(|record| record.status() == Status::InputRequired)
            .filter_map(|record| Some(record.field("output")?.as_str()?.to_owned()))
            .collect();
        assert_eq!(answers, ["1", "2", "3", "4", "5"]);
        verify_chain(&engine, id).await;
    });
}

#[test]
fn messages_to_a_paused_job_wait_until_it_is_resumed() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let id = invoke(&engine, "t:chat", "{}").await.job.id();
        engine.pause(&alice(), id).await.unwrap();
        let sent = send(&engine, id, r#"{"content":"hello"}"#).await;
        assert_eq!((sent.status, sent.queue_depth), (Status::Paused, 1));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(venue.effects(), 0);
        engine.resume(&alice(), id).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(
            (view.status(), member(&view, "output")),
            (Status::InputRequired, r#""hello""#.into())
        );
        verify_chain(&engine, id).await;
    });
}

#[test]
fn messages_left_at_the_end_are_counted_and_a_job_that_ended_accepts_none() {
    TestVenue::new().run_process(async |engine| {
        let id = invoke(&engine, "t:wait", r#"{"ms":1000}"#).await.job.id();
        for _ in 0..3 {
            send(&engine, id, r#""are you ready?""#).await;
        }
        let view = wait_for_end(&engine, id).await;
        assert_eq!(member(&view, "discarded"), "3");
        assert_eq!(view.queue_depth, 0);
        let error = engine.send(&alice(), id, value("1"), None).await.unwrap_err();
        assert_eq!(error, SendError::Ended { job: id, status: Status::Complete });
        let cancelled = invoke(&engine, "t:chat", "{}").await.job.id();
        engine.pause(&alice(), cancelled).await.unwrap();
        send(&engine, cancelled, "1").await;
        let view = engine.cancel(&alice(), cancelled, None).await.unwrap();
        assert_eq!(member(&view, "discarded"), "1");
        verify_chain(&engine, cancelled).await;
    });
}

#[test]
fn a_message_that_is_too_large_and_a_queue_that_is_full_are_refused() {
    let mut venue = TestVenue::new();
    venue.limits.message_bytes_max = 100;
    venue.run_process(async |engine| {
        let id = invoke(&engine, "t:wait", r#"{"ms":100000}"#).await.job.id();
        let large = value(&format!("\"{}\"", "x".repeat(200)));
        let error = engine.send(&alice(), id, large, None).await.unwrap_err();
        assert_eq!(error, SendError::TooLarge { bytes: 202, max: 100 });
        for _ in 0..1000 {
            send(&engine, id, "1").await;
        }
        let error = engine.send(&alice(), id, value("1"), None).await.unwrap_err();
        assert_eq!(error, SendError::QueueFull { job: id, waiting: 1000 });
    });
}

#[test]
fn credentials_reach_the_adapter_and_never_the_chain() {
    let venue = TestVenue::new();
    let id = venue.run_process(async |engine| {
        let id = invoke(&engine, "t:auth", "{}").await.job.id();
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::AuthRequired);
        // The message is queued but not consumed when the venue stops.
        engine.pause(&alice(), id).await.unwrap();
        let message = r#"{"type":"auth/complete","credentials":"very secret words"}"#;
        send(&engine, id, message).await;
        id
    });
    assert!(!venue.disk_contains("very secret words"));
    venue.run_process(async |engine| {
        engine.resume(&alice(), id).await.unwrap();
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "17".into()));
        assert_eq!(member(&view, "received"), r#"{"redacted":true}"#, "secret as a whole");
        assert_eq!(member(&view, "redacted"), r#"["/received/credentials"]"#);
        verify_chain(&engine, id).await;
    });
    assert!(!venue.disk_contains("very secret words"));
}

#[test]
fn credentials_may_be_longer_than_one_cell() {
    TestVenue::new().run_process(async |engine| {
        let id = invoke(&engine, "t:auth", "{}").await.job.id();
        let long = "x".repeat(10_000);
        send(&engine, id, &format!(r#"{{"type":"auth/complete","credentials":"{long}"}}"#)).await;
        let view = wait_for_end(&engine, id).await;
        assert_eq!((view.status(), member(&view, "output")), (Status::Complete, "10000".into()));
    });
}

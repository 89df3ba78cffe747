//! The events of all jobs: order, slow readers, several processes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::requests::JobFilter;
use catena_engine::views::{Events, ListEventKind};
use catena_engine::{Engine, limits::EVENT_BACKLOG_MAX};
use catena_job::{JobId, Status};
use support::cluster::Kills;
use support::*;

async fn follow_all(engine: &Engine) -> Events {
    let mut events = engine.events(&alice(), &JobFilter::default(), None).await.unwrap().unwrap();
    let ready = events.next().await.unwrap().unwrap();
    assert_eq!(ready.kind, ListEventKind::Ready);
    events
}

/// Reads up to the event of this job with this status.
async fn until(events: &mut Events, id: JobId, status: Status) {
    loop {
        let event = events.next().await.unwrap().unwrap();
        if let ListEventKind::Changed(job) = &event.kind
            && (job.id, job.status) == (id, status)
        {
            return;
        }
    }
}

#[test]
fn what_happens_at_one_process_is_seen_at_another_within_a_second() {
    TestVenue::new().run_two_processes(async |first, second| {
        let mut events = follow_all(&second).await;
        let begun = tokio::time::Instant::now();
        let id = invoke(&first, "t:wait", r#"{"ms":5000}"#).await.job.id();
        until(&mut events, id, Status::Started).await;
        assert!(begun.elapsed() <= Duration::from_millis(1_100), "{:?}", begun.elapsed());
        first.cancel(&alice(), id, None).await.unwrap();
        until(&mut events, id, Status::Cancelled).await;
        first.delete(&alice(), id).await.unwrap();
        let deleted = events.next().await.unwrap().unwrap();
        assert_eq!(deleted.kind, ListEventKind::Deleted(id));
    });
}

/// A reader that does not read costs nothing but its own place in the stream.
#[test]
fn a_slow_reader_finds_everything_in_the_store() {
    // A stream ends with its process.
    TestVenue::with_kills(Kills::None).run_process(async |engine| {
        let mut slow = follow_all(&engine).await;
        let mut jobs = 0;
        // More frames than are kept for it.
        for _ in 0..2 * EVENT_BACKLOG_MAX {
            invoke(&engine, "t:echo", "1").await;
            jobs += 1;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let mut seen = 0;
        let mut position = 0;
        while seen < jobs {
            let event = slow.next().await.unwrap().unwrap();
            assert!(event.position > position);
            position = event.position;
            seen += match &event.kind {
                ListEventKind::Changed(_) => 1,
                ListEventKind::Counts(counts) => counts.by_status[&Status::Complete],
                other => panic!("{other:?}"),
            };
        }
        assert_eq!(seen, jobs);
    });
}

#[test]
fn readers_of_other_owners_see_nothing() {
    // A stream ends with its process.
    TestVenue::with_kills(Kills::None).run_process(async |engine| {
        let mut events = engine.events(&bob(), &JobFilter::default(), None).await.unwrap().unwrap();
        events.next().await.unwrap();
        invoke(&engine, "t:echo", "1").await;
        let nothing = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
        assert!(nothing.is_err());
        let all = JobFilter { owner: Some("*".to_owned()), ..JobFilter::default() };
        assert!(engine.events(&bob(), &all, None).await.unwrap().is_none());
    });
}

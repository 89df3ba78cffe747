//! Progress of running jobs: what is shown, what is kept, and when.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::Engine;
use catena_job::progress::{ProgressView, Stage};
use catena_job::{JobId, Status};
use support::*;

async fn shown(engine: &Engine, id: JobId) -> ProgressView {
    let outline = engine.summary(&alice(), id).await.unwrap();
    ProgressView::new(outline.view.progress.as_ref(), outline.steps, Stage::Running)
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[test]
fn what_was_reported_last_is_shown_at_once_and_never_goes_back() {
    World::new().live(async |engine| {
        let reports = r#"{"ms":100,"reports":[
            {"processedItems":5,"totalItems":10},{"processedItems":3,"totalItems":10},
            {"processedItems":6,"totalItems":20},{"processedItems":15,"totalItems":20}]}"#;
        let id = invoke(&engine, "t:reports", reports).await.job.id();
        let mut seen = Vec::new();
        for _ in 0..4 {
            let now = shown(&engine, id).await;
            seen.push((now.percent, now.processed_items, now.total_items));
            sleep(100).await;
        }
        assert_eq!(seen, [(50, 5, 10), (50, 5, 10), (50, 6, 20), (75, 15, 20)]);
    });
}

#[test]
fn reports_make_no_records() {
    World::new().live(async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":300}"#).await.job.id();
        ended(&engine, id).await;
        assert_eq!(story(&engine, id).await, ["PENDING", "STARTED", "COMPLETE"]);
    });
}

#[test]
fn a_pause_keeps_the_last_value_over_a_restart() {
    let world = World::new();
    let id = world.live(async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":300}"#).await.job.id();
        sleep(1000).await;
        let paused = engine.pause(&alice(), id).await.unwrap();
        let told = ProgressView::new(paused.progress.as_ref(), None, Stage::Waiting);
        assert_eq!(told.processed_items, 3, "the answer has it, too");
        id
    });
    world.live(async |engine| {
        let now = shown(&engine, id).await;
        assert_eq!((now.percent, now.processed_items), (30, 3));
        engine.resume(&alice(), id).await.unwrap();
        // A new try begins from the beginning, and the old value stands until it reports.
        assert_eq!(shown(&engine, id).await.processed_items, 3);
        sleep(400).await;
        assert_eq!(shown(&engine, id).await.processed_items, 1);
    });
}

#[test]
fn a_pause_does_not_count_for_the_rate() {
    World::new().live(async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":500}"#).await.job.id();
        sleep(1100).await;
        engine.pause(&alice(), id).await.unwrap();
        sleep(60_000).await;
        engine.resume(&alice(), id).await.unwrap();
        sleep(1000).await;
        let now = shown(&engine, id).await;
        assert_eq!(now.processed_items, 4);
        let rate = now.rate_per_second.unwrap();
        assert!((1.5..=2.5).contains(&rate), "{rate}");
        assert!(now.remaining_ms.is_some_and(|time| (2_000..=4_000).contains(&time)), "{now:?}");
    });
}

#[test]
fn a_shutdown_keeps_the_last_value_over_a_restart() {
    let world = World::new();
    let id = world.live(async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":300}"#).await.job.id();
        sleep(1000).await;
        engine.shutdown(Duration::ZERO).await;
        id
    });
    world.live(async |engine| {
        let outline = engine.summary(&alice(), id).await.unwrap();
        let kept = ProgressView::new(outline.view.progress.as_ref(), None, Stage::Waiting);
        assert_eq!((kept.percent, kept.processed_items), (30, 3));
    });
}

#[test]
fn a_cancel_folds_the_last_value_into_the_end() {
    World::new().live(async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":300}"#).await.job.id();
        sleep(1000).await;
        let view = engine.cancel(&alice(), id, None).await.unwrap();
        let last = value(&member(&view, "progress"));
        assert_eq!(last, value(r#"{"processedItems":3,"totalItems":10}"#));
        assert_eq!(view.status(), Status::Cancelled);
        verified(&engine, id).await;
    });
}

//! Progress of running jobs: what is visible, what is stored, and when.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::Engine;
use catena_job::progress::{ProgressView, Stage};
use catena_job::{JobId, Status};
use support::*;

/// Returns the progress that a client sees.
async fn visible_progress(engine: &Engine, id: JobId) -> ProgressView {
    let summary = engine.summary(&alice(), id).await.unwrap();
    ProgressView::new(summary.view.progress.as_ref(), summary.steps, Stage::Running)
}

#[test]
fn the_last_report_is_visible_at_once_and_the_percentage_never_decreases() {
    TestVenue::new().run_engines(1, async |engine| {
        let reports = r#"{"ms":100,"reports":[
            {"processedItems":5,"totalItems":10},{"processedItems":3,"totalItems":10},
            {"processedItems":6,"totalItems":20},{"processedItems":15,"totalItems":20}]}"#;
        let id = invoke(&engine, "t:reports", reports).await.job.id();
        let mut seen = Vec::new();
        for _ in 0..4 {
            let now = visible_progress(&engine, id).await;
            seen.push((now.percent, now.processed_items, now.total_items));
            sleep(100).await;
        }
        assert_eq!(seen, [(50, 5, 10), (50, 5, 10), (50, 6, 20), (75, 15, 20)]);
    });
}

#[test]
fn reports_create_no_records() {
    TestVenue::new().run_process(async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":300}"#).await.job.id();
        wait_for_end(&engine, id).await;
        assert_eq!(record_kinds(&engine, id).await, ["PENDING", "STARTED", "COMPLETE"]);
    });
}

#[test]
fn the_last_value_before_a_pause_survives_a_restart() {
    let venue = TestVenue::new();
    let id = venue.run_engines(1, async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":300}"#).await.job.id();
        sleep(1000).await;
        let paused = engine.pause(&alice(), id).await.unwrap();
        let progress = ProgressView::new(paused.progress.as_ref(), None, Stage::Waiting);
        assert_eq!(progress.processed_items, 3, "the response contains it");
        id
    });
    venue.run_engines(1, async |engine| {
        let now = visible_progress(&engine, id).await;
        assert_eq!((now.percent, now.processed_items), (30, 3));
        engine.resume(&alice(), id).await.unwrap();
        // A new attempt starts over; the old value is visible until it reports.
        assert_eq!(visible_progress(&engine, id).await.processed_items, 3);
        sleep(400).await;
        assert_eq!(visible_progress(&engine, id).await.processed_items, 1);
    });
}

#[test]
fn a_pause_does_not_count_for_the_rate() {
    TestVenue::new().run_engines(1, async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":500}"#).await.job.id();
        sleep(1100).await;
        engine.pause(&alice(), id).await.unwrap();
        sleep(60_000).await;
        engine.resume(&alice(), id).await.unwrap();
        sleep(1000).await;
        let now = visible_progress(&engine, id).await;
        assert_eq!(now.processed_items, 4);
        let rate = now.rate_per_second.unwrap();
        assert!((1.5..=2.5).contains(&rate), "{rate}");
        assert!(now.remaining_ms.is_some_and(|time| (2_000..=4_000).contains(&time)), "{now:?}");
    });
}

#[test]
fn the_last_value_before_a_shutdown_survives_a_restart() {
    let mut venue = TestVenue::new();
    let id = venue.run_engines(1, async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":300}"#).await.job.id();
        sleep(1000).await;
        engine.shutdown(Duration::ZERO).await;
        id
    });
    // The next attempt would start over.
    venue.missing_operation = Some("progress");
    venue.run_engines(1, async |engine| {
        let summary = engine.summary(&alice(), id).await.unwrap();
        let stored = ProgressView::new(summary.view.progress.as_ref(), None, Stage::Waiting);
        assert_eq!((stored.percent, stored.processed_items), (30, 3));
    });
}

#[test]
fn the_record_of_a_cancel_contains_the_last_value() {
    TestVenue::new().run_engines(1, async |engine| {
        let id = invoke(&engine, "t:progress", r#"{"ms":300}"#).await.job.id();
        sleep(1000).await;
        let view = engine.cancel(&alice(), id, None).await.unwrap();
        let last = value(&member(&view, "progress"));
        assert_eq!(last, value(r#"{"processedItems":3,"totalItems":10}"#));
        assert_eq!(view.status(), Status::Cancelled);
        verify_chain(&engine, id).await;
    });
}

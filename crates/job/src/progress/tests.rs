//! How progress is derived, bounded and measured, and that it never decreases within an attempt.
#![allow(clippy::unwrap_used, reason = "tests say what must hold")]

use super::*;

fn read(text: &str) -> Value {
    json::read(text.as_bytes()).unwrap()
}

fn view(text: &str, stage: Stage) -> ProgressView {
    ProgressView::new(Some(&read(text)), None, stage)
}

#[test]
fn progress_is_derived_from_bytes_then_from_items() {
    for (report, percent) in [
        (
            r#"{"outputStats":{"bytesProcessed":25,"bytesTotal":100},"processedItems":9,"totalItems":10}"#,
            25,
        ),
        (r#"{"outputStats":{"bytesProcessed":25},"processedItems":9,"totalItems":10}"#, 90),
        (
            r#"{"outputStats":{"bytesProcessed":0,"bytesTotal":0},"processedItems":1,"totalItems":2}"#,
            50,
        ),
        (r#"{"outputStats":null,"processedItems":1,"totalItems":3}"#, 33),
        (r#"{"processedItems":5}"#, 0),
        (r#"{"totalItems":5}"#, 0),
        (r#"{"processedItems":5,"totalItems":0}"#, 0),
        (r#"{"processedItems":-5,"totalItems":10}"#, 0),
        (r#"{"processedItems":2.0,"totalItems":4.0}"#, 50),
        (r#"{"processedItems":"5","totalItems":10}"#, 0),
        ("{}", 0),
        ("7", 0),
        ("null", 0),
    ] {
        assert_eq!(view(report, Stage::Running).percent, percent, "{report}");
    }
    assert_eq!(ProgressView::new(None, None, Stage::Running).percent, 0);
}

#[test]
fn an_active_job_shows_99_at_most_and_one_that_ended_100() {
    let full = r#"{"processedItems":12,"totalItems":10}"#;
    assert_eq!(view(full, Stage::Running).percent, 99);
    assert_eq!(view(full, Stage::Waiting).percent, 99);
    assert_eq!(view(full, Stage::Ended).percent, 100);
    assert_eq!(view(r#"{"processedItems":1,"totalItems":10}"#, Stage::Ended).percent, 100);
    assert_eq!(ProgressView::new(None, None, Stage::Ended).percent, 100);
}

#[test]
fn steps_count_when_nothing_else_does() {
    let steps = ProgressView::new(None, Some((3, 4)), Stage::Running);
    assert_eq!((steps.percent, steps.processed_items, steps.total_items), (75, 3, 4));
    let reported = read(r#"{"processedItems":1,"totalItems":10}"#);
    assert_eq!(ProgressView::new(Some(&reported), Some((3, 4)), Stage::Running).percent, 10);
}

fn meter_view(meter: &Meter) -> ProgressView {
    ProgressView::new(meter.value(), None, Stage::Running)
}

#[test]
fn within_an_attempt_nothing_decreases() {
    let mut meter = Meter::new(1, None);
    assert!(meter.value().is_none());
    meter.report(&read(r#"{"processedItems":5,"totalItems":10}"#), 100, 1);
    meter.report(&read(r#"{"processedItems":3,"totalItems":10}"#), 200, 2);
    let now = meter_view(&meter);
    assert_eq!((now.percent, now.processed_items, now.total_items), (50, 5, 10));
    // The total grew: the counts change, the percentage stays.
    meter.report(&read(r#"{"processedItems":6,"totalItems":20}"#), 300, 3);
    let now = meter_view(&meter);
    assert_eq!((now.percent, now.processed_items, now.total_items), (50, 6, 20));
    meter.report(&read(r#"{"outputStats":{"bytesProcessed":1,"bytesTotal":100}}"#), 400, 4);
    assert_eq!(meter_view(&meter).percent, 50);
    meter.report(&read("null"), 500, 5);
    assert_eq!(meter_view(&meter).percent, 50);
}

#[test]
fn a_meter_continues_its_own_attempt_and_restarts_with_another() {
    let mut meter = Meter::new(2, None);
    meter.report(&read(r#"{"processedItems":5,"totalItems":10}"#), 1000, 1);
    let stored = meter.value().unwrap().clone();
    let low = read(r#"{"processedItems":1,"totalItems":10}"#);
    let mut same = Meter::new(2, Some(&stored));
    same.report(&low, 100, 2);
    assert_eq!(meter_view(&same).percent, 50);
    let mut next = Meter::new(3, Some(&stored));
    next.report(&low, 100, 2);
    assert_eq!(meter_view(&next).percent, 10);
}

#[test]
fn rate_and_time_left_follow_from_what_was_reported() {
    let mut meter = Meter::new(1, None);
    meter.report(&read(r#"{"processedItems":2,"totalItems":10}"#), 1000, 1_000);
    let now = meter_view(&meter);
    assert_eq!(
        (now.rate_per_second, now.remaining_ms, now.at),
        (Some(2.0), Some(4000), Some(1_000))
    );
    // Two reports at the same moment change the figures, not the rate.
    meter.report(&read(r#"{"processedItems":3,"totalItems":10}"#), 1000, 1_000);
    assert_eq!(meter_view(&meter).rate_per_second, Some(2.0));
    meter.report(&read(r#"{"processedItems":4,"totalItems":10}"#), 2000, 2_000);
    assert_eq!(meter_view(&meter).rate_per_second, Some(2.0));
    meter.report(&read(r#"{"processedItems":10,"totalItems":10}"#), 3000, 3_000);
    assert_eq!(meter_view(&meter).remaining_ms, Some(0));
    let waiting = ProgressView::new(meter.value(), None, Stage::Waiting);
    assert_eq!((waiting.rate_per_second, waiting.remaining_ms), (None, None));
    let mut still = Meter::new(1, None);
    still.report(&read(r#"{"processedItems":0,"totalItems":10}"#), 1000, 1);
    assert_eq!(meter_view(&still).remaining_ms, None);
}

#[test]
fn bytes_are_what_is_measured_when_there_are_any() {
    let mut meter = Meter::new(1, None);
    let report = r#"{"processedItems":1,"totalItems":2,"outputStats":{"bytesProcessed":500,"bytesTotal":2000}}"#;
    meter.report(&read(report), 500, 1);
    let now = meter_view(&meter);
    assert_eq!((now.rate_per_second, now.remaining_ms), (Some(1000.0), Some(1500)));
    assert_eq!(now.output_stats, Some(read(r#"{"bytesProcessed":500,"bytesTotal":2000}"#)));
}

#[test]
fn other_reported_fields_are_stored_unless_the_report_is_long() {
    let mut meter = Meter::new(1, None);
    meter.report(
        &read(r#"{"processedItems":1,"totalItems":2,"file":"a.csv","outputStats":{"rows":3}}"#),
        5,
        1,
    );
    let stored = meter.value().unwrap();
    assert_eq!(stored.as_map().unwrap().field("file"), Some(&"a.csv".into()));
    assert_eq!(
        last_report(stored),
        read(r#"{"processedItems":1,"totalItems":2,"file":"a.csv","outputStats":{"rows":3}}"#)
    );
    let long = format!(
        r#"{{"processedItems":2,"totalItems":2,"log":"{}"}}"#,
        "x".repeat(REPORT_BYTES_MAX)
    );
    meter.report(&read(&long), 6, 2);
    assert_eq!(last_report(meter.value().unwrap()), read(r#"{"processedItems":2,"totalItems":2}"#));
}

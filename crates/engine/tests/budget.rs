//! What the tree of one root may run at a time, whichever processes drive it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::Engine;
use catena_engine::limits::CONCURRENT_STEPS_MAX;
use catena_job::{JobId, Status};
use support::harness::{children, register, verify_tree};
use support::*;

/// Starts a workflow of nested workflows of 200 parallel steps each.
async fn start_nested(engine: &Engine, nested: usize, ms: u64) -> JobId {
    let step = format!(r#"{{"op":"t:wait","input":{{"ms":["const",{ms}]}}}}"#);
    let policy = r#","timeoutMs":86400000"#;
    let inner = format!("[{}]", vec![step; 200].join(","));
    let inner = register(engine, &inner, "[0]", policy).await;
    let outer = format!(r#"{{"op":"{inner}","input":["const",{{}}]}}"#);
    let outer = format!("[{}]", vec![outer; nested].join(","));
    let op = register(engine, &outer, "[0]", policy).await;
    let mut request = request(&op, "{}");
    request.wait = Some(Duration::ZERO);
    engine.invoke(request).await.unwrap().view.job.id()
}

/// Waits for the end of a workflow and checks that it completed within its budget.
async fn assert_completes(venue: &TestVenue, engine: &Engine, id: JobId, within: Duration) {
    let begun = tokio::time::Instant::now();
    let mut view = engine.job(&alice(), id).await.unwrap();
    while !view.status().is_terminal() && begun.elapsed() < within {
        view = engine.wait(&alice(), id, Duration::from_secs(100)).await.unwrap();
    }
    assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("message"));
    let peak = venue.waits.peak() as usize;
    assert!(peak <= CONCURRENT_STEPS_MAX, "{peak} steps ran at a time");
    assert!(peak > CONCURRENT_STEPS_MAX / 2, "only {peak} steps ran at a time");
}

#[test]
fn a_nested_workflow_keeps_its_place_in_line_however_long_it_waits() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        // The last of them finds no room for more than a minute.
        let id = start_nested(&engine, 4, 60_000).await;
        assert_completes(&venue, &engine, id, Duration::from_secs(300)).await;
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_tree_has_one_budget_after_another_process_took_a_part_of_it_over() {
    let venue = TestVenue::new();
    venue.run_engines(2, async |cluster| {
        let id = start_nested(&cluster, 3, 30_000).await;
        sleep(1_000).await;
        // Whoever is left and whoever starts share what the dead process drove.
        for place in [0, 1] {
            cluster.replace(&venue, place).await;
            sleep(13_000).await;
        }
        assert_completes(&venue, &cluster, id, Duration::from_secs(600)).await;
        verify_tree(&cluster, id).await;
        let nested = children(&cluster.job(&alice(), id).await.unwrap());
        assert_eq!(nested.len(), 3);
    });
}

#[test]
fn a_tree_has_one_budget_after_a_restart() {
    let venue = TestVenue::new();
    let id = venue.run_engines(1, async |engine| {
        let id = start_nested(&engine, 3, 10_000).await;
        sleep(12_000).await;
        id
    });
    assert_eq!(venue.waits.now(), 0, "the process is dead");
    venue.run_engines(2, async |cluster| {
        assert_completes(&venue, &cluster, id, Duration::from_secs(300)).await;
    });
}

#[test]
fn the_steps_of_a_nested_workflow_that_was_cancelled_leave_their_room() {
    let venue = TestVenue::new();
    venue.run_engines(2, async |cluster| {
        let step = r#"{"op":"t:wait","input":{"ms":["const",100000]}}"#;
        let policy = r#","timeoutMs":86400000"#;
        // The calling step takes the last place.
        let full = format!("[{}]", vec![step; CONCURRENT_STEPS_MAX - 1].join(","));
        let full = register(&cluster, &full, "[0]", policy).await;
        let short = r#"[{"op":"t:wait","input":{"ms":["const",10]}}]"#;
        let short = register(&cluster, short, "[0]", policy).await;
        let calls = format!(
            r#"{{"calls":[{{"op":"{full}","input":{{}}}},{{"op":"{short}","input":{{}}}}]}}"#
        );
        let steps = format!(r#"[{{"op":"t:caller","input":["const",{calls}]}}]"#);
        let op = register(&cluster, &steps, "[0]", policy).await;
        let id = invoke(&cluster, &op, "{}").await.job.id();
        sleep(1_000).await;
        let caller = children(&cluster.job(&alice(), id).await.unwrap())[0];
        let first = cluster.job(&alice(), caller).await.unwrap().job.calls()[0].start.job;
        assert_eq!(venue.waits.now() as usize, CONCURRENT_STEPS_MAX - 1);
        cluster.cancel(&alice(), first, None).await.unwrap();
        assert_eq!(wait_for_end(&cluster, id).await.status(), Status::Complete);
    });
}

#[test]
fn what_a_process_held_when_its_lease_ended_continues_when_it_has_one_again() {
    let venue = TestVenue::new();
    venue.run_engines(1, async |cluster| {
        let id = invoke(&cluster, "t:wait", r#"{"ms":30000}"#).await.job.id();
        let op =
            register(&cluster, r#"[{"op":"t:wait","input":{"ms":["const",30000]}}]"#, "[0]", "");
        let op = op.await;
        let tree = invoke(&cluster, &op, "{}").await.job.id();
        cluster.store().refuse_leases(true);
        sleep(15_000).await;
        assert_eq!(venue.waits.now(), 0, "its work has stopped, because others may continue it");
        cluster.store().refuse_leases(false);
        for job in [id, tree] {
            assert_eq!(wait_for_end(&cluster, job).await.status(), Status::Complete);
            verify_tree(&cluster, job).await;
        }
        let kinds = record_kinds(&cluster, id).await;
        assert_eq!(kinds, ["PENDING", "STARTED", "(recovered)", "COMPLETE"]);
    });
}

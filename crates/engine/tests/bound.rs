//! Jobs that are bound to roots: what they hold never names a job that has ended.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::sync::Arc;

use catena_engine::requests::ListJobs;
use catena_engine::{Engine, RootId};
use catena_job::{JobId, Status};
use catena_store::ListOrder;
use catena_store::testing::stepped::Death;
use support::bound::Thing;
use support::harness::verify_tree;
use support::*;

const SHORT: &str = r#"{"name":"thing","ms":20}"#;
const LONG: &str = r#"{"name":"thing","ms":100000}"#;

async fn thing(engine: &Engine) -> Thing {
    let roots = engine.roots(&alice(), vec![RootId::workspace()]).await.unwrap();
    Thing::read(&roots, "thing")
}

async fn hold(engine: &Engine, input: &str) -> JobId {
    invoke(engine, "b:hold", input).await.job.id()
}

async fn status(engine: &Engine, id: JobId) -> Status {
    engine.job(&alice(), id).await.unwrap().status()
}

#[test]
fn bound_jobs_run_one_after_the_other() {
    let venue = TestVenue::new();
    venue.run_process(async |engine| {
        let mut jobs = Vec::new();
        for _ in 0..4 {
            jobs.push(hold(&engine, SHORT).await);
        }
        for id in &jobs {
            assert_eq!(wait_for_end(&engine, *id).await.status(), Status::Complete);
            verify_tree(&engine, *id).await;
        }
        let expected = Thing { done: 4, ..Thing::default() };
        assert_eq!(thing(&engine).await, expected);
    });
    assert_eq!(venue.effects(), 4);
}

#[test]
fn a_bound_job_that_waits_occupies_nothing_and_can_be_cancelled() {
    let mut venue = TestVenue::new();
    venue.limits.running_max = 2;
    venue.run_engines(1, async |engine| {
        let first = hold(&engine, LONG).await;
        wait_for_status(&engine, first, Status::Started).await;
        let second = hold(&engine, SHORT).await;
        let third = hold(&engine, SHORT).await;
        sleep(100).await;
        assert_eq!(thing(&engine).await.waiting, [second, third]);
        let view = invoke(&engine, "t:echo", "1").await;
        assert_eq!(view.status(), Status::Complete);
        engine.cancel(&alice(), second, None).await.unwrap();
        assert_eq!(thing(&engine).await.waiting, [third]);
        engine.cancel(&alice(), first, None).await.unwrap();
        assert_eq!(thing(&engine).await.lost, 1, "released in the commit of the cancellation");
        assert_eq!(wait_for_end(&engine, third).await.status(), Status::Complete);
        let expected = Thing { done: 1, lost: 1, ..Thing::default() };
        assert_eq!(thing(&engine).await, expected);
    });
}

#[test]
fn a_paused_job_keeps_what_it_holds_and_leaves_the_queue_of_those_that_wait() {
    TestVenue::new().run_engines(1, async |engine| {
        let first = hold(&engine, r#"{"name":"thing","ms":500}"#).await;
        wait_for_status(&engine, first, Status::Started).await;
        let second = hold(&engine, SHORT).await;
        let third = hold(&engine, SHORT).await;
        sleep(100).await;
        engine.pause(&alice(), second).await.unwrap();
        assert_eq!(thing(&engine).await.waiting, [third], "it does not delay the others");
        engine.pause(&alice(), first).await.unwrap();
        assert_eq!(thing(&engine).await.holder, Some(first));
        engine.resume(&alice(), first).await.unwrap();
        assert_eq!(wait_for_end(&engine, third).await.status(), Status::Complete);
        assert_eq!(status(&engine, second).await, Status::Paused);
        engine.resume(&alice(), second).await.unwrap();
        assert_eq!(wait_for_end(&engine, second).await.status(), Status::Complete);
        assert_eq!(thing(&engine).await, Thing { done: 3, ..Thing::default() });
    });
}

#[test]
fn a_change_of_roots_cancels_jobs_in_its_commit() {
    TestVenue::new().run_process(async |engine| {
        let first = hold(&engine, LONG).await;
        wait_for_status(&engine, first, Status::Started).await;
        let second = hold(&engine, SHORT).await;
        sleep(100).await;
        let view = invoke(&engine, "b:free", "{}").await;
        assert_eq!(view.status(), Status::Complete);
        for id in [first, second] {
            assert_eq!(status(&engine, id).await, Status::Cancelled);
            verify_tree(&engine, id).await;
        }
        assert_eq!(thing(&engine).await, Thing { lost: 1, ..Thing::default() });
    });
}

/// Runs three jobs in a process that is killed at its n-th commit, and checks what the next process
/// makes of it. Returns true if the process was killed.
fn kill_at(commits: u64, is_last_durable: bool) -> bool {
    let when = format!("killed after {commits} commits, {is_last_durable}");
    let venue = TestVenue::new();
    let death = Arc::new(Death::after(commits, is_last_durable));
    let ended = venue.run_until_death(&death, async |engine| {
        let mut jobs = Vec::new();
        for _ in 0..3 {
            jobs.push(hold(&engine, SHORT).await);
        }
        engine.cancel(&alice(), jobs[1], None).await.unwrap();
        for id in jobs {
            wait_for_end(&engine, id).await;
        }
    });
    venue.run_engines(1, async |engine| {
        let list = ListJobs::all(ListOrder::Oldest, 0, 100);
        let mut done = 0;
        let mut works = 0;
        for listed in engine.jobs(&alice(), &list).await.unwrap().jobs {
            let view = wait_for_end(&engine, listed.id).await;
            if view.job.parent().is_none() {
                done += i64::from(view.status() == Status::Complete);
                works += u32::try_from(view.job.calls().len()).unwrap();
                verify_tree(&engine, listed.id).await;
            }
        }
        let thing = thing(&engine).await;
        assert_eq!((thing.holder, thing.waiting), (None, vec![]), "{when}");
        assert_eq!(thing.done, done, "{when}: a completed job and what it changed are one commit");
        assert!(venue.effects() <= works, "{when}: work was done twice");
        let next = hold(&engine, SHORT).await;
        assert_eq!(wait_for_end(&engine, next).await.status(), Status::Complete, "{when}");
    });
    ended.is_none()
}

#[test]
fn what_is_held_is_released_after_a_kill_at_any_commit() {
    for is_last_durable in [false, true] {
        let killed = (0..200).take_while(|commits| kill_at(*commits, is_last_durable)).count();
        assert!((8..200).contains(&killed), "{killed} commits");
    }
}

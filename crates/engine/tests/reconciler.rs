//! What a job's end, pause or resume means for the jobs below it, if they change afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use catena_engine::Engine;
use catena_engine::limits::TREE_COMMIT_MAX;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::testing::stepped::{Death, Verdict};
use catena_store::{CommitError, Effect, Effects};
use support::cluster::Cluster;
use support::harness::{assert_agreement, children, jobs_below, register, verify_tree};
use support::*;
use tokio::sync::Notify;

/// A step that takes ten minutes.
const LONG: &str = r#"{"op":"t:wait","input":{"ms":["const",600000]}}"#;

/// Starts an orchestration, waits until its first steps run, and returns it and its steps.
async fn start(engine: &Engine, steps: &str, more: &str) -> (JobId, Vec<JobId>) {
    let op = register(engine, steps, "[0]", more).await;
    let mut request = request(&op, "{}");
    request.wait = Some(Duration::ZERO);
    let id = engine.invoke(request).await.unwrap().view.job.id();
    sleep(500).await;
    (id, children(&engine.job(&alice(), id).await.unwrap()))
}

async fn statuses(engine: &Engine, jobs: &[JobId]) -> Vec<Status> {
    let mut statuses = Vec::new();
    for job in jobs {
        statuses.push(engine.job(&alice(), *job).await.unwrap().status());
    }
    statuses
}

/// Returns true if a commit appends to one of these jobs.
fn changes_one_of(effects: &Effects, jobs: &HashSet<JobId>) -> bool {
    let is_change =
        |effect: &Effect| matches!(effect, Effect::Append { job, .. } if jobs.contains(&job.id()));
    effects.0.iter().any(is_change)
}

/// A commit that is delayed.
struct Delayed {
    /// Notified when there is such a commit.
    begun: Arc<Notify>,
    /// The commit waits until this is notified.
    released: Arc<Notify>,
}

/// Delays the next commit that changes one of these jobs.
fn delay_next_change(cluster: &Cluster, jobs: &[JobId]) -> Delayed {
    let delayed = Delayed { begun: Arc::default(), released: Arc::default() };
    let begun = Arc::clone(&delayed.begun);
    let mut released = Some(Arc::clone(&delayed.released));
    let jobs: HashSet<JobId> = jobs.iter().copied().collect();
    cluster.store().intercept(move |effects| {
        match released.take_if(|_| changes_one_of(effects, &jobs)) {
            Some(released) => {
                begun.notify_one();
                Verdict::Delay(released)
            }
            None => Verdict::Commit,
        }
    });
    delayed
}

#[test]
fn steps_are_cancelled_if_the_parent_cannot_continue_after_a_restart() {
    let mut venue = TestVenue::new();
    let steps = format!(r#"[{LONG},{{"op":"t:strict","input":{{"n":[0]}}}}]"#);
    let (id, steps) = venue.run_engines(1, async |engine| start(&engine, &steps, "").await);
    venue.missing_operation = Some("strict");
    venue.run_engines(1, async |engine| {
        sleep(5_000).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Failed);
        assert!(member(&view, "error").contains("strict"), "{}", member(&view, "error"));
        assert_eq!(statuses(&engine, &steps).await, [Status::Cancelled]);
        assert_agreement(&engine, id).await;
        assert_eq!(engine.counters().await.running, 0);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_parent_that_cannot_continue_fails_although_the_store_is_busy_at_first() {
    let mut venue = TestVenue::new();
    let steps = format!(r#"[{LONG},{{"op":"t:strict","input":{{"n":[0]}}}}]"#);
    let (id, steps) = venue.run_engines(1, async |engine| start(&engine, &steps, "").await);
    venue.missing_operation = Some("strict");
    venue.run_process_during_recovery(async |cluster| {
        let jobs = HashSet::from([id]);
        let mut refused = 0;
        cluster.store().intercept(move |effects| {
            let fails = effects.0.iter().any(|effect| {
                matches!(effect, Effect::Append { job, .. } if job.status() == Status::Failed)
            });
            if fails && changes_one_of(effects, &jobs) && refused < 3 {
                refused += 1;
                return Verdict::Refuse(CommitError::Busy);
            }
            Verdict::Commit
        });
        sleep(5_000).await;
        assert_eq!(cluster.job(&alice(), id).await.unwrap().status(), Status::Failed);
        assert_eq!(statuses(&cluster, &steps).await, [Status::Cancelled]);
        assert_agreement(&cluster, id).await;
        verify_tree(&cluster, id).await;
    });
}

#[test]
fn steps_go_on_if_the_parent_that_leaves_them_cannot_continue_after_a_restart() {
    let mut venue = TestVenue::new();
    let steps = format!(r#"[{LONG},{{"op":"t:strict","input":{{"n":[0]}}}}]"#);
    let leave = r#","onFailure":"leave""#;
    let (id, steps) = venue.run_engines(1, async |engine| start(&engine, &steps, leave).await);
    venue.missing_operation = Some("strict");
    venue.run_engines(1, async |engine| {
        sleep(5_000).await;
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::Failed);
        assert_eq!(statuses(&engine, &steps).await, [Status::Started]);
    });
}

#[test]
fn a_parent_that_asks_fails_too_if_it_cannot_continue_after_a_restart() {
    let mut venue = TestVenue::new();
    let chat = r#"{"op":"t:chat","input":["const",{}]}"#;
    let steps = format!(r#"[{LONG},{{"op":"t:strict","input":{{"n":[0]}}}},{chat}]"#);
    let (id, steps) = venue.run_engines(1, async |engine| {
        let (id, steps) = start(&engine, &steps, "").await;
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::InputRequired);
        (id, steps)
    });
    venue.missing_operation = Some("strict");
    venue.run_engines(1, async |engine| {
        sleep(5_000).await;
        assert_eq!(engine.job(&alice(), id).await.unwrap().status(), Status::Failed);
        assert_eq!(statuses(&engine, &steps).await, [Status::Cancelled; 2]);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn the_steps_of_a_job_with_which_the_process_aborted_too_often_are_paused_with_it() {
    let mut venue = TestVenue::new();
    let step = r#"{"op":"t:wait","input":{"ms":["const",20000]}}"#;
    let steps = format!("[{step},{step}]");
    let (id, steps) = venue.run_engines(1, async |engine| start(&engine, &steps, "").await);
    venue.aborts.by_job.insert(id, 3);
    venue.run_engines(1, async |engine| {
        sleep(5_000).await;
        let view = engine.job(&alice(), id).await.unwrap();
        assert_eq!(view.status(), Status::Paused);
        assert!(member(&view, "message").contains("aborted 3 times"));
        assert_eq!(statuses(&engine, &steps).await, [Status::Paused; 2]);
        assert_agreement(&engine, id).await;
        engine.resume(&alice(), id).await.unwrap();
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_resume_that_a_later_pause_overtakes_resumes_nothing() {
    let mut venue = TestVenue::new();
    venue.limits.tree_commit_max = 1;
    venue.run_engines(1, async |cluster| {
        let (id, steps) = start(&cluster, &format!("[{LONG},{LONG}]"), "").await;
        cluster.pause(&alice(), id).await.unwrap();
        assert_eq!(statuses(&cluster, &steps).await, [Status::Paused; 2]);
        let delayed = delay_next_change(&cluster, &steps);
        let (alice_one, alice_other) = (alice(), alice());
        let (resumed, ()) = tokio::join!(cluster.resume(&alice_one, id), async {
            // At once: the driver would pause the job itself, because nothing below it can run yet.
            delayed.begun.notified().await;
            cluster.pause(&alice_other, id).await.unwrap();
            delayed.released.notify_one();
        });
        resumed.unwrap();
        sleep(5_000).await;
        assert_eq!(cluster.job(&alice(), id).await.unwrap().status(), Status::Paused);
        assert_eq!(statuses(&cluster, &steps).await, [Status::Paused; 2]);
        cluster.resume(&alice(), id).await.unwrap();
        assert_eq!(statuses(&cluster, &steps).await, [Status::Started; 2]);
        verify_tree(&cluster, id).await;
    });
}

#[test]
fn a_pause_that_a_later_resume_overtakes_pauses_nothing() {
    let mut venue = TestVenue::new();
    venue.limits.tree_commit_max = 1;
    venue.run_engines(1, async |cluster| {
        let (id, steps) = start(&cluster, &format!("[{LONG},{LONG}]"), "").await;
        let delayed = delay_next_change(&cluster, &steps);
        let (alice_one, alice_other) = (alice(), alice());
        let (paused, ()) = tokio::join!(cluster.pause(&alice_one, id), async {
            delayed.begun.notified().await;
            cluster.resume(&alice_other, id).await.unwrap();
            delayed.released.notify_one();
        });
        paused.unwrap();
        sleep(5_000).await;
        assert_eq!(cluster.job(&alice(), id).await.unwrap().status(), Status::Started);
        assert_eq!(statuses(&cluster, &steps).await, [Status::Started; 2]);
        assert_agreement(&cluster, id).await;
        verify_tree(&cluster, id).await;
    });
}

#[test]
fn a_pause_that_a_dead_process_left_is_overtaken_by_a_resume_of_the_parent() {
    let mut venue = TestVenue::new();
    venue.limits.tree_commit_max = 1;
    let death = Arc::new(Death::after(u64::MAX, true));
    let started = std::cell::RefCell::new(None);
    let ended = venue.run_until_death(&death, async |cluster| {
        let nested = register(&cluster, &format!("[{LONG},{LONG}]"), "[0]", "").await;
        let nested = format!(r#"{{"op":"{nested}","input":["const",{{}}]}}"#);
        let (id, steps) = start(&cluster, &format!("[{nested},{LONG}]"), "").await;
        let inner = children(&cluster.job(&alice(), steps[0]).await.unwrap());
        *started.borrow_mut() = Some((id, steps[0], inner));
        death.postpone(0);
        cluster.pause(&alice(), steps[0]).await
    });
    assert!(ended.is_none(), "it is killed right after the nested job was paused");
    let (id, nested, inner) = started.into_inner().unwrap();
    venue.limits.tree_commit_max = TREE_COMMIT_MAX;
    venue.run_process_during_recovery(async |engine| {
        assert_eq!(engine.job(&alice(), nested).await.unwrap().status(), Status::Paused);
        engine.pause(&alice(), id).await.unwrap();
        engine.resume(&alice(), id).await.unwrap();
        sleep(5_000).await;
        assert_eq!(engine.job(&alice(), nested).await.unwrap().status(), Status::Started);
        assert_eq!(statuses(&engine, &inner).await, [Status::Started; 2]);
        assert_agreement(&engine, id).await;
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_resume_that_ended_a_nested_job_does_not_resume_its_steps_after_an_interruption() {
    let mut venue = TestVenue::new();
    venue.limits.tree_commit_max = 4;
    venue.run_engines(1, async |cluster| {
        let chat = r#"{"op":"t:chat","input":["const",{}]}"#;
        let nested =
            register(&cluster, &format!("[{}]", vec![chat; 300].join(",")), "[0]", "").await;
        let nested = format!(r#"{{"op":"{nested}","input":["const",{{}}]}}"#);
        let leave = r#","onFailure":"leave""#;
        let (id, steps) = start(&cluster, &format!("[{nested},{LONG}]"), leave).await;
        let nested = steps[0];
        sleep(2_000).await;
        let inner = children(&cluster.job(&alice(), nested).await.unwrap());
        assert_eq!(inner.len(), 300);
        cluster.pause(&alice(), id).await.unwrap();
        cluster.cancel(&alice(), inner[0], None).await.unwrap();
        sleep(2_000).await;
        let view = cluster.job(&alice(), nested).await.unwrap();
        assert_eq!(view.status(), Status::Paused);
        assert_eq!(view.job.held().map(|held| held.status), Some(Status::Failed));
        // The resume ends the nested job with its first batch, and is interrupted at the second.
        let jobs: HashSet<JobId> = inner.iter().copied().collect();
        let mut seen = 0;
        cluster.store().intercept(move |effects| {
            seen += u32::from(changes_one_of(effects, &jobs));
            if seen == 2 && changes_one_of(effects, &jobs) {
                return Verdict::Refuse(CommitError::Busy);
            }
            Verdict::Commit
        });
        cluster.resume(&alice(), id).await.unwrap();
        sleep(5_000).await;
        assert_eq!(cluster.job(&alice(), nested).await.unwrap().status(), Status::Failed);
        let mut left = statuses(&cluster, &inner).await;
        left.dedup();
        assert_eq!(left, [Status::Cancelled]);
        let kinds = record_kinds(&cluster, inner[299]).await;
        assert_eq!(kinds[kinds.len() - 2..], ["PAUSED", "CANCELLED"], "it was not resumed");
    });
}

#[test]
fn a_step_that_changes_meanwhile_does_not_make_the_others_end_one_by_one() {
    let venue = TestVenue::new();
    venue.run_engines(1, async |cluster| {
        let breaks = r#"{"op":"t:breaks","input":{"ms":["const",1000]}}"#;
        let (id, steps) =
            start(&cluster, &format!("[{breaks},{}]", vec![LONG; 40].join(",")), "").await;
        let jobs: HashSet<JobId> = steps[1..].iter().copied().collect();
        let commits = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&commits);
        let changed = steps[7];
        cluster.store().intercept(move |effects| {
            if !changes_one_of(effects, &jobs) {
                return Verdict::Commit;
            }
            if counted.fetch_add(1, Ordering::Relaxed) > 0 {
                return Verdict::Commit;
            }
            let after = effects.0.iter().find_map(|effect| match effect {
                Effect::Append { job, after, .. } if job.id() == changed => *after,
                _ => None,
            });
            let expected = after.unwrap();
            Verdict::Refuse(CommitError::HeadMoved {
                job: changed,
                expected: Some(expected),
                found: Some(expected),
            })
        });
        assert_eq!(wait_for_end(&cluster, id).await.status(), Status::Failed);
        sleep(5_000).await;
        let expected = [Status::Cancelled; 40];
        assert_eq!(statuses(&cluster, &steps[1..]).await, expected);
        assert!(commits.load(Ordering::Relaxed) <= 3, "{commits:?} commits");
        assert_eq!(jobs_below(&cluster, id).await.len(), 42);
        assert_agreement(&cluster, id).await;
        verify_tree(&cluster, id).await;
    });
}

#[test]
fn a_failed_step_ends_the_job_although_a_resume_is_not_carried_out_yet() {
    let mut venue = TestVenue::new();
    venue.limits.tree_commit_max = 1;
    venue.run_engines(1, async |cluster| {
        let breaks = r#"{"op":"t:breaks","input":{"ms":["const",1000]}}"#;
        let (id, steps) = start(&cluster, &format!("[{breaks},{LONG}]"), "").await;
        cluster.pause(&alice(), id).await.unwrap();
        // The resume cannot be forgotten for some seconds after it was carried out.
        let mut refused = 0;
        cluster.store().intercept(move |effects| match &effects.0[..] {
            [Effect::SetRoot { value: None, .. }] if refused < 5 => {
                refused += 1;
                Verdict::Refuse(CommitError::Busy)
            }
            _ => Verdict::Commit,
        });
        cluster.resume(&alice(), id).await.unwrap();
        sleep(1_500).await;
        assert_eq!(cluster.job(&alice(), id).await.unwrap().status(), Status::Failed);
        assert_eq!(statuses(&cluster, &steps).await, [Status::Failed, Status::Cancelled]);
        sleep(10_000).await;
        assert_agreement(&cluster, id).await;
        verify_tree(&cluster, id).await;
    });
}

#[test]
fn a_step_on_the_queue_is_cancelled_if_its_parent_has_ended() {
    let mut venue = TestVenue::new();
    venue.limits.running_max = 1;
    let steps = format!("[{LONG},{LONG}]");
    let (id, steps) = venue.run_engines(1, async |engine| start(&engine, &steps, "").await);
    venue.append(id, Event::Cancelled { error: "Job cancelled".into() });
    venue.run_engines(1, async |engine| {
        sleep(5_000).await;
        assert_eq!(statuses(&engine, &steps).await, [Status::Cancelled; 2]);
        assert_agreement(&engine, id).await;
        assert_eq!(venue.waits.peak(), 1, "it did not run");
    });
}

#[test]
fn a_parked_nested_job_is_cancelled_if_its_parent_has_ended() {
    let venue = TestVenue::new();
    let (id, jobs) = venue.run_engines(1, async |engine| {
        let chat = r#"[{"op":"t:chat","input":["const",{}]}]"#;
        let nested = register(&engine, chat, "[0]", "").await;
        let nested = format!(r#"[{{"op":"{nested}","input":["const",{{}}]}}]"#);
        let (id, _) = start(&engine, &nested, "").await;
        sleep(10_000).await;
        (id, jobs_below(&engine, id).await)
    });
    venue.append(id, Event::Cancelled { error: "Job cancelled".into() });
    venue.run_engines(1, async |engine| {
        sleep(5_000).await;
        assert_eq!(statuses(&engine, &jobs).await, [Status::Cancelled; 3]);
        assert_agreement(&engine, id).await;
    });
}

#[test]
fn a_call_ends_with_its_caller_although_the_store_was_busy() {
    let venue = TestVenue::new();
    venue.run_engines(1, async |cluster| {
        let input = r#"{"calls":[{"op":"t:wait","input":{"ms":600000}}],"leavesAfterMs":1000}"#;
        let id = invoke(&cluster, "t:caller", input).await.job.id();
        sleep(500).await;
        let called = cluster.job(&alice(), id).await.unwrap().job.calls()[0].start.job;
        let jobs = HashSet::from([called]);
        let mut is_busy = true;
        cluster.store().intercept(move |effects| {
            if changes_one_of(effects, &jobs) && std::mem::take(&mut is_busy) {
                return Verdict::Refuse(CommitError::Busy);
            }
            Verdict::Commit
        });
        assert_eq!(wait_for_end(&cluster, id).await.status(), Status::Complete);
        assert_eq!(statuses(&cluster, &[called]).await, [Status::Cancelled]);
        assert_agreement(&cluster, id).await;
    });
}

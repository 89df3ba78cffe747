//! Schedules: every run starts once, whatever stops the process, and no owner waits for another.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use catena_engine::limits::Rate;
use catena_engine::requests::{
    Invoke, ListJobs, NewSchedule, Overlap, ScheduleState, Scheduled, When,
};
use catena_engine::{Caller, Engine, Role};
use catena_job::{JobId, Status};
use catena_store::ListOrder;
use catena_store::testing::{Crash, SimOp};
use support::*;

fn at(engine: &Engine, ms: i64) -> When {
    When::At(engine.env().now() + ms)
}

fn cron(expression: &str) -> When {
    When::Cron { expression: expression.to_owned(), time_zone: None }
}

fn new(operation: &str, input: &str, when: When) -> NewSchedule {
    NewSchedule::new(operation, value(input), when)
}

async fn schedules(engine: &Engine) -> Vec<Scheduled> {
    engine.scheduled(&alice(), None).await.unwrap()
}

/// The IDs and statuses of all jobs of a caller, oldest first.
async fn jobs_of(engine: &Engine, caller: &Caller) -> Vec<(JobId, Status)> {
    let all = engine.jobs(caller, &ListJobs::all(ListOrder::Oldest, 0, 1000)).await.unwrap();
    all.jobs.iter().map(|job| (job.id, job.status)).collect()
}

async fn count(engine: &Engine) -> usize {
    jobs_of(engine, &alice()).await.len()
}

#[test]
fn of_two_processes_one_starts_a_run() {
    TestVenue::new().run_two_processes(async |first, second| {
        first.schedule(&alice(), new("t:echo", "1", at(&first, 500))).await.unwrap();
        second.schedule(&alice(), new("t:echo", "2", cron("* * * * *"))).await.unwrap();
        // Both processes read the list at the same time, because they see the same clock.
        sleep(10 * 60_000).await;
        assert_eq!(count(&first).await, 1 + 10);
        let started = first.counters().await.invoked + second.counters().await.invoked;
        assert_eq!(started, 11, "every run was created by one process");
        assert_eq!(schedules(&second).await.len(), 1);
    });
}

#[test]
fn a_process_finds_what_another_one_scheduled_within_a_second() {
    TestVenue::new().run_two_processes(async |first, second| {
        second.shutdown(Duration::ZERO).await;
        drop(second);
        sleep(60_000).await;
        first.schedule(&alice(), new("t:echo", "1", at(&first, 100))).await.unwrap();
        sleep(1_200).await;
        assert_eq!(count(&first).await, 1);
    });
}

#[test]
fn a_run_is_created_once_wherever_the_process_dies() {
    for when in ["once", "cron"] {
        let mut points = 0;
        for operations in 1.. {
            let mut venue = TestVenue::new();
            let has_crashed = venue.run_process(async |engine| {
                let when = if when == "once" { at(&engine, 1_000) } else { cron("* * * * *") };
                engine.schedule(&alice(), new("t:effect", "{}", when)).await.unwrap();
                venue.disk.crash_after(operations);
                sleep(70_000).await;
                let has_crashed = venue.disk.has_crashed();
                venue.disk.cancel_crash();
                has_crashed
            });
            if !has_crashed {
                break;
            }
            points += 1;
            venue.disk = Arc::new(venue.disk.crash(Crash::ProcessKill, operations));
            let (jobs, left) = venue.run_process(async |engine| {
                sleep(70_000).await;
                (jobs_of(&engine, &alice()).await, schedules(&engine).await.len())
            });
            // The clock starts over in the second process, so that it sees the same minute.
            let expected = if when == "once" { (1, 0) } else { (1, 1) };
            assert_eq!((jobs.len(), left), expected, "{when}, operation {operations}: {jobs:?}");
            assert!(
                venue.effects() <= u32::try_from(jobs.len()).unwrap(),
                "operation {operations}"
            );
        }
        assert!(points > 5, "the process died at {points} points only");
    }
}

#[test]
fn a_schedule_that_stopped_the_process_at_three_starts_is_set_aside() {
    let mut venue = TestVenue::new();
    let handle = venue.run_process(async |engine| {
        let made = engine.schedule(&alice(), new("t:echo", "1", at(&engine, 100))).await.unwrap();
        made.handle
    });
    for start in 1..=3 {
        // The process dies after the commit of the mark, when the job is written.
        venue.run_process(async |engine| {
            let other = new("t:echo", "2", at(&engine, 1_000_000));
            // The first commit of a process also begins a segment of the journal.
            engine.schedule(&bob(), other.clone()).await.unwrap();
            venue.disk.fail(SimOp::Write, "journal", 1, std::io::ErrorKind::Other);
            sleep(60_000).await;
            assert!(engine.schedule(&bob(), other).await.is_err(), "start {start}");
        });
        venue.disk = Arc::new(venue.disk.crash(Crash::ProcessKill, start));
    }
    venue.run_process(async |engine| {
        sleep(60_000).await;
        assert_eq!(count(&engine).await, 0, "no further start");
        let list = schedules(&engine).await;
        assert_eq!(list[0].state, ScheduleState::SetAside);
        assert!(list[0].reason.as_ref().unwrap().contains("3 consecutive starts"), "{list:?}");
        engine.resume_schedule(&alice(), &handle).await.unwrap().unwrap();
        sleep(2_000).await;
        assert_eq!(count(&engine).await, 1, "a resume tries again");
        assert!(schedules(&engine).await.is_empty());
    });
}

#[test]
fn a_schedule_that_two_processes_did_not_survive_is_started_alone() {
    let venue = TestVenue::new();
    venue.run_engines(1, async |engine| {
        let long = new("t:wait", r#"{"ms":5000000}"#, cron("* * * * *"));
        engine.schedule(&alice(), long).await.unwrap();
    });
    // Each process dies before the run has lasted for a minute.
    for runs in 1..=2 {
        venue.run_engines(1, async |engine| {
            while count(&engine).await < runs {
                sleep(100).await;
            }
            sleep(1_000).await;
        });
    }
    venue.run_engines(1, async |engine| {
        while count(&engine).await < 3 {
            sleep(100).await;
        }
        let task = engine.invoke(Invoke::new(bob(), "t:wait", value(r#"{"ms":10}"#)));
        let task = task.await.unwrap().view.job.id();
        sleep(8_000).await;
        assert_eq!(jobs_of(&engine, &bob()).await, [(task, Status::Pending)]);
        assert_eq!(schedules(&engine).await[0].state, ScheduleState::Active);
        sleep(3_000).await;
        assert_eq!(jobs_of(&engine, &bob()).await, [(task, Status::Complete)]);
        // The process survives it, and the next run is an ordinary one.
        sleep(120_000).await;
        assert_eq!(schedules(&engine).await[0].state, ScheduleState::Active);
    });
}

#[test]
fn a_run_that_ends_at_once_or_goes_on_does_not_count_as_an_abort() {
    TestVenue::new().run_process(async |engine| {
        engine.schedule(&alice(), new("t:echo", "1", cron("* * * * *"))).await.unwrap();
        let long = new("t:wait", r#"{"ms":500000}"#, cron("* * * * *"));
        engine.schedule(&alice(), long).await.unwrap();
        sleep(10 * 60_000).await;
        assert_eq!(count(&engine).await, 20);
        let states: Vec<_> = schedules(&engine).await.iter().map(|found| found.state).collect();
        assert_eq!(states, [ScheduleState::Active; 2]);
    });
}

#[test]
fn an_owner_whose_quota_or_rate_is_used_up_delays_nobody_else() {
    let mut venue = TestVenue::new();
    venue.limits.live_jobs_per_caller_max = 1;
    venue.limits.rate = Some(Rate { per_second: 0.001, burst: 40 });
    venue.run_process(async |engine| {
        invoke(&engine, "t:wait", r#"{"ms":3600000}"#).await;
        for n in 0..30 {
            engine.schedule(&alice(), new("t:echo", "1", at(&engine, 1_000 + n))).await.unwrap();
        }
        engine.schedule(&bob(), new("t:echo", "2", at(&engine, 1_500))).await.unwrap();
        sleep(1_600).await;
        assert_eq!(jobs_of(&engine, &bob()).await.len(), 1);
        assert_eq!(count(&engine).await, 1, "only the job that uses up the quota");
        let waiting = schedules(&engine).await;
        assert_eq!(waiting.len(), 30);
        assert!(waiting.iter().all(|found| found.reason.is_some()), "{waiting:?}");
        assert!(waiting.iter().all(|found| found.state == ScheduleState::Active));
    });
}

#[test]
fn a_run_that_was_refused_starts_when_there_is_room() {
    let mut venue = TestVenue::new();
    venue.limits.live_jobs_per_caller_max = 1;
    venue.run_process(async |engine| {
        invoke(&engine, "t:wait", r#"{"ms":30000}"#).await;
        engine.schedule(&alice(), new("t:echo", "1", at(&engine, 1_000))).await.unwrap();
        sleep(29_000).await;
        assert_eq!(count(&engine).await, 1);
        sleep(62_000).await;
        assert_eq!(count(&engine).await, 2);
        assert!(schedules(&engine).await.is_empty());
    });
}

#[test]
fn a_run_that_cannot_be_created_is_shown_and_the_next_one_is_tried() {
    let mut venue = TestVenue::new();
    let one_time = venue.run_process(async |engine| {
        engine.schedule(&alice(), new("t:echo", "1", cron("* * * * *"))).await.unwrap();
        let once = engine.schedule(&alice(), new("t:echo", "2", at(&engine, 1_000))).await.unwrap();
        engine.schedule(&bob(), new("t:error", "3", at(&engine, 1_000))).await.unwrap();
        once.handle
    });
    venue.missing_operation = Some("echo");
    venue.run_process(async |engine| {
        sleep(70_000).await;
        assert_eq!(count(&engine).await, 0);
        assert_eq!(jobs_of(&engine, &bob()).await.len(), 1, "another owner is not delayed");
        for found in schedules(&engine).await {
            let is_once = found.handle == one_time;
            let state = if is_once { ScheduleState::SetAside } else { ScheduleState::Active };
            assert_eq!(found.state, state);
            assert!(found.reason.unwrap().contains("t:echo"));
        }
    });
    venue.missing_operation = None;
    venue.run_process(async |engine| {
        sleep(130_000).await;
        let minutes = count(&engine).await;
        assert!(minutes >= 1, "the schedule that repeats goes on");
        engine.resume_schedule(&alice(), &one_time).await.unwrap().unwrap();
        sleep(2_000).await;
        assert_eq!(count(&engine).await, minutes + 1);
    });
}

#[test]
fn a_trigger_is_a_run_of_its_own() {
    TestVenue::new().run_process(async |engine| {
        let once =
            engine.schedule(&alice(), new("t:echo", "1", at(&engine, 60_000))).await.unwrap();
        let yearly =
            engine.schedule(&alice(), new("t:echo", "2", cron("0 0 1 1 *"))).await.unwrap();
        let before = schedules(&engine).await;
        for handle in [&once.handle, &yearly.handle] {
            let first = engine.trigger(&alice(), handle).await.unwrap().unwrap();
            let second = engine.trigger(&alice(), handle).await.unwrap().unwrap();
            assert_ne!(first, second);
        }
        assert_eq!(schedules(&engine).await, before, "the schedules have not changed");
        assert_eq!(count(&engine).await, 4);
        sleep(61_000).await;
        assert_eq!(count(&engine).await, 5, "the run at its time starts as well");
    });
}

#[test]
fn the_overlap_policy_decides_what_happens_if_the_previous_run_goes_on() {
    TestVenue::new().run_process(async |engine| {
        // Every run takes a minute and a half, and one is due every minute.
        for overlap in Overlap::ALL {
            let request = new("t:wait", r#"{"ms":90000}"#, cron("* * * * *"));
            let request = NewSchedule { overlap, ..request };
            let handle = engine.schedule(&alice(), request).await.unwrap().handle;
            let started = count(&engine).await;
            sleep(6 * 60_000 + 1_000).await;
            let found = schedules(&engine).await.into_iter().find(|found| found.handle == handle);
            let runs = count(&engine).await - started;
            let (expected, skipped) = match overlap {
                Overlap::Allow => (6, 0),
                // Minutes 1, 3 and 5 start; 2, 4 and 6 are left out.
                Overlap::Skip => (3, 3),
                // Each starts right after the previous one: 0, 1:30, 3:00, 4:30.
                Overlap::Queue => (4, 0),
            };
            assert_eq!((runs, found.unwrap().skipped), (expected, skipped), "{overlap:?}");
            engine.unschedule(&alice(), &handle).await.unwrap();
        }
    });
}

#[test]
fn a_paused_schedule_starts_nothing_until_it_is_resumed() {
    let venue = TestVenue::new();
    let handle = venue.run_process(async |engine| {
        let made = engine.schedule(&alice(), new("t:echo", "1", cron("* * * * *"))).await.unwrap();
        let paused = engine.pause_schedule(&alice(), &made.handle).await.unwrap().unwrap();
        assert_eq!(paused.state, ScheduleState::Paused);
        assert!(engine.pause_schedule(&bob(), &made.handle).await.unwrap().is_none());
        sleep(180_000).await;
        assert_eq!(count(&engine).await, 0);
        made.handle
    });
    venue.run_process(async |engine| {
        sleep(180_000).await;
        assert_eq!(count(&engine).await, 0, "also after a restart");
        engine.resume_schedule(&alice(), &handle).await.unwrap().unwrap();
        sleep(60_000).await;
        assert_eq!(count(&engine).await, 1, "what was missed is left out");
    });
}

#[test]
fn jitter_delays_each_run_within_its_bound() {
    TestVenue::new().run_process(async |engine| {
        let request = new("t:echo", "1", cron("* * * * *"));
        let request = NewSchedule { jitter_ms: 30_000, ..request };
        let mut previous = engine.schedule(&alice(), request).await.unwrap().time;
        let mut offsets = vec![previous % 60_000];
        for _ in 0..20 {
            sleep(60_000).await;
            let time = schedules(&engine).await[0].time;
            assert!(time > previous);
            offsets.push(time % 60_000);
            previous = time;
        }
        assert!(offsets.iter().all(|offset| *offset <= 30_000), "{offsets:?}");
        assert!(offsets.iter().any(|offset| *offset > 0), "{offsets:?}");
        assert!(count(&engine).await >= 19, "no minute is lost");
    });
}

#[test]
fn an_admin_lists_and_removes_the_schedules_of_all_owners() {
    TestVenue::new().run_process(async |engine| {
        let admin = Caller { role: Role::Admin, ..Caller::known("did:key:admin") };
        let hers =
            engine.schedule(&alice(), new("t:echo", "1", at(&engine, 60_000))).await.unwrap();
        let his = engine.schedule(&bob(), new("t:echo", "2", cron("0 0 1 1 *"))).await.unwrap();
        engine.pause_schedule(&alice(), &hers.handle).await.unwrap();
        let all = engine.scheduled(&admin, Some("*")).await.unwrap();
        assert_eq!(all.len(), 2);
        let of_bob = engine.scheduled(&admin, Some("did:key:bob")).await.unwrap();
        assert_eq!(of_bob[0].handle, his.handle);
        assert!(engine.scheduled(&alice(), Some("*")).await.unwrap().is_empty());
        assert!(engine.scheduled(&alice(), Some("did:key:bob")).await.unwrap().is_empty());
        assert!(engine.scheduled(&admin, None).await.unwrap().is_empty());
        assert!(engine.unschedule(&admin, &hers.handle).await.unwrap());
        assert!(engine.unschedule(&admin, &his.handle).await.unwrap());
        assert!(!engine.unschedule(&admin, &his.handle).await.unwrap());
        assert!(engine.scheduled(&admin, Some("*")).await.unwrap().is_empty());
    });
}

#[test]
fn many_runs_of_one_owner_start_and_do_not_delay_another() {
    TestVenue::new().run_process(async |engine| {
        for n in 0..300 {
            engine
                .schedule(&alice(), new("t:echo", "1", at(&engine, 10_000 + n % 3)))
                .await
                .unwrap();
        }
        engine.schedule(&bob(), new("t:echo", "2", at(&engine, 10_002))).await.unwrap();
        sleep(12_000).await;
        assert_eq!((count(&engine).await, jobs_of(&engine, &bob()).await.len()), (300, 1));
        assert!(schedules(&engine).await.is_empty());
    });
}

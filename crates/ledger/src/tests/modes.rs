//! One suite, both modes: what a caller can rely on does not depend on where the sync happens.

use std::sync::Arc;

use parking_lot::Mutex;

use super::support::{
    JOBS, LIVE, OWNERS, commit, delete, get, open, open_with, options, put, queue,
};
use crate::testing::sim_disk::{Crash, SimDisk};
use crate::{
    CommitStep, Direction, Failure, KeyRange, ManualLedger, Mode, Observer, Options, SubmitError,
    Tx, Write,
};

fn both(check: impl Fn(&SimDisk, ManualLedger, Mode)) {
    for mode in [Mode::Journal, Mode::Direct] {
        let disk = SimDisk::new(1);
        let ledger = open_with(&disk, Options { mode, ..options() }).unwrap();
        check(&disk, ledger, mode);
    }
}

#[test]
fn everything_queued_is_committed_with_one_sync() {
    both(|_, mut ledger, _| {
        let answers: Vec<_> =
            (0..10u8).map(|key| queue(&ledger, move |tx| tx.put(JOBS, [key], [key]))).collect();
        assert_eq!(ledger.step_commit(), CommitStep::Answered(10));
        assert!(answers.iter().all(|answer| *answer.lock() == Some(Ok(()))));
        let counters = ledger.counters();
        assert_eq!(
            (counters.commits, counters.syncs, counters.entries, counters.batch_entries_max),
            (1, 1, 10, 10)
        );
    });
}

#[test]
fn a_batch_ends_at_its_limit_of_entries() {
    both(|_, mut ledger, _| {
        for key in 0..20u8 {
            queue(&ledger, move |tx| tx.put(JOBS, [key], [key]));
        }
        assert_eq!(
            (ledger.step_commit(), ledger.step_commit()),
            (CommitStep::Answered(16), CommitStep::Answered(4))
        );
        assert_eq!(ledger.step_commit(), CommitStep::Idle);
    });
}

#[test]
fn work_sees_what_came_before_it_in_the_same_batch() {
    both(|_, mut ledger, _| {
        put(&mut ledger, "a", "old").unwrap();
        queue(&ledger, |tx| {
            tx.put(JOBS, *b"a", *b"new");
            tx.put(JOBS, *b"b", *b"1");
        });
        let seen = queue(&ledger, |tx| {
            assert_eq!(tx.get(JOBS, b"a").unwrap().as_deref(), Some(&b"new"[..]));
            let rows = tx.range(JOBS, &KeyRange::all(), Direction::Backward, 9).unwrap();
            assert_eq!(rows.iter().map(|(key, _)| key[0]).collect::<Vec<_>>(), *b"ba");
        });
        ledger.step_commit();
        assert_eq!(*seen.lock(), Some(Ok(())));
    });
}

#[test]
fn work_that_refuses_leaves_no_trace_and_only_it_is_told() {
    both(|_, mut ledger, _| {
        put(&mut ledger, "a", "1").unwrap();
        let answered = Arc::new(Mutex::new(None));
        let slot = answered.clone();
        let work = |tx: &mut Tx<'_>| {
            tx.delete(JOBS, *b"a");
            tx.put(JOBS, *b"b", *b"2");
            tx.put(JOBS, *b"b", *b"3");
            Err::<(), _>("changed my mind")
        };
        ledger.try_submit(work, move |answer| *slot.lock() = Some(answer)).unwrap();
        let after = queue(&ledger, |tx| assert!(tx.get(JOBS, b"b").unwrap().is_none()));
        assert_eq!(ledger.step_commit(), CommitStep::Answered(2));
        assert_eq!(*answered.lock(), Some(Err(Failure::Work("changed my mind"))));
        assert_eq!(*after.lock(), Some(Ok(())));
        assert_eq!((get(&ledger, "a").as_deref(), get(&ledger, "b")), (Some("1"), None));
        assert_eq!(ledger.counters().syncs, 1, "a batch without writes needs no sync");
    });
}

#[test]
fn answers_come_in_order_and_after_the_rows_can_be_read() {
    both(|_, mut ledger, _| {
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in 0..5u8 {
            let order = order.clone();
            let work = move |tx: &mut Tx<'_>| {
                tx.put(JOBS, [number], [number]);
                Ok::<u8, ()>(number)
            };
            ledger.try_submit(work, move |answer| order.lock().push(answer.unwrap())).unwrap();
        }
        ledger.step_commit();
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn a_full_queue_says_busy_before_any_work() {
    both(|_, mut ledger, _| {
        for key in 0..64u8 {
            queue(&ledger, move |tx| tx.put(JOBS, [key], [key]));
        }
        let refused =
            ledger.try_submit(|_| -> Result<(), ()> { panic!("ran") }, |_| panic!("answered"));
        assert_eq!(refused, Err(SubmitError::Busy { queue_entries_max: 64 }));
        while ledger.step_commit() != CommitStep::Idle {}
        put(&mut ledger, "a", "1").unwrap();
    });
}

#[test]
fn ranges_respect_bounds_direction_limit_and_deletions() {
    both(|_, mut ledger, _| {
        for key in ["a", "b", "c", "d", "e"] {
            put(&mut ledger, key, key).unwrap();
        }
        ledger.step_flush().unwrap();
        delete(&mut ledger, "c").unwrap();
        put(&mut ledger, "bb", "x").unwrap();
        let keys = |range: &KeyRange, direction, limit| -> Vec<String> {
            let rows = ledger.range(JOBS, range, direction, limit).unwrap();
            rows.into_iter().map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()).collect()
        };
        assert_eq!(keys(&KeyRange::between(*b"b", *b"e"), Direction::Forward, 9), ["b", "bb", "d"]);
        assert_eq!(keys(&KeyRange::prefix(b"b"), Direction::Backward, 9), ["bb", "b"]);
        assert_eq!(keys(&KeyRange::all(), Direction::Backward, 2), ["e", "d"]);
        assert_eq!(keys(&KeyRange::between(*b"z", *b"a"), Direction::Forward, 9), [""; 0]);
    });
}

#[test]
fn a_view_keeps_its_moment() {
    both(|_, mut ledger, _| {
        put(&mut ledger, "a", "1").unwrap();
        let view = ledger.view();
        put(&mut ledger, "a", "2").unwrap();
        delete(&mut ledger, "a").unwrap();
        ledger.step_flush().unwrap();
        assert_eq!(view.get(JOBS, b"a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(view.range(JOBS, &KeyRange::all(), Direction::Forward).unwrap().count(), 1);
        assert_eq!((view.sequence(), get(&ledger, "a")), (1, None));
    });
}

#[test]
fn a_folder_changes_mode_at_any_open_without_migration() {
    let mut disk = SimDisk::new(1);
    for round in 0..6u8 {
        let mode = if round % 2 == 0 { Mode::Direct } else { Mode::Journal };
        let mut ledger = open_with(&disk, Options { mode, ..options() }).unwrap();
        for earlier in 0..round {
            assert_eq!(
                ledger.get(JOBS, &[earlier]).unwrap().as_deref(),
                Some(&[earlier][..]),
                "{mode:?}"
            );
        }
        commit(&mut ledger, move |tx| tx.put(JOBS, [round], [round])).unwrap();
        disk = disk.crash(Crash::PowerLoss, u64::from(round));
    }
}

#[test]
fn a_folder_opens_with_other_segment_sizes_and_old_segments_disappear() {
    let mut disk = SimDisk::new(1);
    for (round, kib) in [32u64, 64, 48, 32].into_iter().enumerate() {
        let round = round as u8;
        let mut ledger =
            open_with(&disk, Options { segment_bytes: kib << 10, ..options() }).unwrap();
        for earlier in 0..round {
            assert!(ledger.get(JOBS, &[earlier]).unwrap().is_some());
        }
        commit(&mut ledger, move |tx| tx.put(JOBS, [round], [round])).unwrap();
        ledger.step_flush().unwrap();
        commit(&mut ledger, move |tx| tx.put(JOBS, [round], [round])).unwrap();
        disk = disk.crash(Crash::PowerLoss, 1);
    }
}

#[derive(Default)]
struct Counting {
    durable: u64,
}

impl Observer for Counting {
    fn on_durable(&mut self, sequence: u64) {
        self.durable = sequence;
    }

    fn on_batch(&mut self, sequence: u64, writes: &[Write], tx: &mut Tx<'_>) -> Result<(), String> {
        assert_eq!(sequence, self.durable + 1, "a refused batch does not take a sequence");
        if writes.iter().any(|write| write.table == LIVE) {
            return Err("no live rows today".to_owned());
        }
        tx.put(OWNERS, sequence.to_be_bytes(), (writes.len() as u64).to_be_bytes());
        Ok(())
    }
}

#[test]
fn an_observer_adds_rows_to_the_same_frame_or_refuses_the_batch() {
    for mode in [Mode::Journal, Mode::Direct] {
        let disk = SimDisk::new(1);
        let options = Options { mode, ..options() };
        let mut ledger = ManualLedger::open(
            Arc::new(disk.clone()),
            options.clone(),
            Some(Box::<Counting>::default()),
        )
        .unwrap();
        put(&mut ledger, "a", "1").unwrap();
        assert!(commit(&mut ledger, |tx| tx.put(LIVE, *b"x", *b"1")).is_err());
        put(&mut ledger, "b", "1").unwrap();
        assert_eq!(ledger.counters().syncs, 2);
        let ledger = open_with(&disk.crash(Crash::PowerLoss, 1), options).unwrap();
        assert_eq!(ledger.range(OWNERS, &KeyRange::all(), Direction::Forward, 9).unwrap().len(), 2);
        assert_eq!(ledger.get(LIVE, b"x").unwrap(), None);
    }
}

#[test]
fn a_row_that_comes_and_goes_within_one_window_never_reaches_the_index() {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    put(&mut ledger, "brief", "1").unwrap();
    delete(&mut ledger, "brief").unwrap();
    ledger.step_flush().unwrap();
    let counters = ledger.counters();
    assert_eq!(
        (counters.flush_rows_put, counters.flush_rows_removed, counters.flush_rows_skipped),
        (0, 0, 1)
    );
}

/// A row that lives only between two flushes leaves no tombstone, and one that was flushed does.
#[test]
fn a_new_row_that_is_deleted_before_the_next_flush_leaves_nothing_to_flush() {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    let put = |ledger: &mut ManualLedger, key: u8| {
        commit(ledger, move |tx| tx.put_new(JOBS, [key], [1])).unwrap();
    };
    let delete = |ledger: &mut ManualLedger, key: u8| {
        // What is changed before it is deleted is still new.
        commit(ledger, move |tx| tx.put(JOBS, [key], [2])).unwrap();
        commit(ledger, move |tx| tx.delete(JOBS, [key])).unwrap();
        assert_eq!(ledger.get(JOBS, &[key]).unwrap(), None);
    };
    let flushed = |ledger: &mut ManualLedger| {
        ledger.step_flush().unwrap();
        let counters = ledger.counters();
        (counters.flush_rows_put, counters.flush_rows_removed, counters.flush_rows_skipped)
    };
    put(&mut ledger, 1);
    put(&mut ledger, 2);
    delete(&mut ledger, 1);
    assert_eq!(flushed(&mut ledger), (1, 0, 0), "only row 2");
    delete(&mut ledger, 2);
    // The index has it, so a row in its place is not new for this layer.
    put(&mut ledger, 2);
    delete(&mut ledger, 2);
    put(&mut ledger, 3);
    assert_eq!(flushed(&mut ledger), (2, 1, 0), "row 2 is removed, row 3 is put");
    delete(&mut ledger, 3);
    put(&mut ledger, 4);
    delete(&mut ledger, 4);
    let ledger = open(&disk.crash(Crash::PowerLoss, 1));
    assert!((1..5).all(|key| ledger.get(JOBS, &[key]).unwrap().is_none()));
}

#[test]
fn the_committer_waits_at_the_memory_limit_until_a_flush() {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    let mut stalled = false;
    for number in 0..40u32 {
        queue(&ledger, move |tx| tx.put(JOBS, number.to_be_bytes(), vec![0; 3000]));
        if ledger.step_commit() == CommitStep::Stalled {
            stalled = true;
            ledger.step_flush().unwrap();
            assert_eq!(ledger.step_commit(), CommitStep::Answered(1));
        }
    }
    assert!(stalled && ledger.counters().stalls > 0);
}

#[test]
fn a_backup_opens_as_a_ledger_and_shows_one_moment() {
    both(|_, mut ledger, _| {
        for number in 0..50u32 {
            commit(&mut ledger, move |tx| tx.put(JOBS, number.to_be_bytes(), vec![1; 100]))
                .unwrap();
            if number % 20 == 0 {
                ledger.step_flush().unwrap();
            }
        }
        let copy = SimDisk::new(2);
        let report = ledger.backup_to(Arc::new(copy.clone())).unwrap();
        put(&mut ledger, "late", "1").unwrap();
        assert_eq!((report.rows, report.sequence), (50, 50));
        let mut copied = open(&copy.crash(Crash::PowerLoss, 1));
        assert_eq!(copied.range(JOBS, &KeyRange::all(), Direction::Forward, 99).unwrap().len(), 50);
        put(&mut copied, "late", "2").unwrap();
        assert!(ledger.backup_to(Arc::new(copy)).is_err(), "the destination is not empty any more");
    });
}

#[test]
fn a_backup_that_was_interrupted_is_refused_at_open() {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    put(&mut ledger, "a", "1").unwrap();
    let whole = SimDisk::new(2);
    ledger.backup_to(Arc::new(whole.clone())).unwrap();
    for operation in 1..=whole.operations() {
        let copy = SimDisk::new(2);
        copy.crash_after(operation);
        assert!(ledger.backup_to(Arc::new(copy.clone())).is_err());
        let copy = copy.crash(Crash::PowerLoss, operation);
        // Either refused, or an empty folder in which nothing was durable, or the complete copy with its stamp.
        if let Ok(ledger) = open_with(&copy, options()) {
            let rows = ledger.range(JOBS, &KeyRange::all(), Direction::Forward, 9).unwrap().len();
            assert!(rows == 1 || ledger.report().last_sequence == 0, "operation {operation}");
        }
    }
}

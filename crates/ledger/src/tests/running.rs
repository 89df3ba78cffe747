//! The real thing: threads, and a folder of the operating system.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;

use super::support::{JOBS, OWNERS, options};
use crate::folder::write_stamp_of_version;
use crate::testing::scratch::Scratch;
use crate::testing::sim_disk::{Crash, SimDisk};
use crate::{
    Direction, Failure, Health, KeyRange, Ledger, LedgerError, Mode, OpenError, Options, RealDisk,
    SubmitError, Tx,
};

const THREADS: u64 = 8;
const ROUNDS: u64 = 50;

fn quick(mode: Mode) -> Options {
    Options { mode, flush_interval: Duration::from_millis(2), queue_entries_max: 16, ..options() }
}

/// Adds one to a number, and writes a second row that always equals it.
fn add_one(tx: &mut Tx<'_>) -> Result<u64, crate::RowReadError> {
    let old = tx
        .get(JOBS, b"count")?
        .map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()));
    tx.put(JOBS, *b"count", (old + 1).to_be_bytes());
    tx.put(OWNERS, *b"count", (old + 1).to_be_bytes());
    Ok(old + 1)
}

fn count_in(ledger: &Ledger) -> u64 {
    let view = ledger.view();
    let read = |table| {
        view.get(table, b"count")
            .unwrap()
            .map_or(0, |v| u64::from_be_bytes(v[..].try_into().unwrap()))
    };
    assert_eq!(read(JOBS), read(OWNERS), "one moment shows whole batches");
    read(JOBS)
}

#[test]
fn the_last_handle_may_be_dropped_on_the_committers_thread() {
    let scratch = Scratch::new("dropped");
    let ledger = Arc::new(Ledger::open(scratch.path(), quick(Mode::Journal)).unwrap());
    let handle = Arc::clone(&ledger);
    let (answer, answered) = mpsc::channel();
    // The work waits until the other handle is gone, so that its end drops the last one.
    let (dropped, is_dropped) = mpsc::channel();
    let work = move |tx: &mut Tx<'_>| {
        is_dropped.recv().unwrap();
        add_one(tx)
    };
    let done = move |outcome: Result<u64, Failure<crate::RowReadError>>| {
        drop(handle);
        answer.send(outcome.unwrap()).unwrap();
    };
    ledger.submit(work, done).unwrap();
    drop(ledger);
    dropped.send(()).unwrap();
    assert_eq!(answered.recv().unwrap(), 1);
    // The folder is free as soon as the ledger has closed.
    let reopened = (0..500).find_map(|_| {
        let opened = Ledger::open(scratch.path(), quick(Mode::Journal)).ok();
        if opened.is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        opened
    });
    assert_eq!(count_in(&reopened.expect("it closed")), 1);
}

#[test]
fn many_writers_are_ordered_durable_and_grouped() {
    for mode in [Mode::Journal, Mode::Direct] {
        let scratch = Scratch::new("writers");
        let ledger = Ledger::open(scratch.path(), quick(mode)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mine = ledger.transact(add_one).unwrap();
                        assert!(count_in(&ledger) >= mine, "what was acknowledged can be read");
                    }
                });
            }
        });
        assert_eq!(count_in(&ledger), THREADS * ROUNDS);
        let counters = ledger.counters();
        assert_eq!(counters.entries, THREADS * ROUNDS);
        assert!(counters.syncs <= counters.entries);
        ledger.close().unwrap();
        drop(ledger);
        let ledger = Ledger::open(scratch.path(), quick(mode)).unwrap();
        assert_eq!((count_in(&ledger), ledger.report().frames_replayed), (THREADS * ROUNDS, 0));
    }
}

#[test]
fn a_folder_is_open_in_one_place_only() {
    let scratch = Scratch::new("lock");
    let ledger = Ledger::open(scratch.path(), options()).unwrap();
    let second = Ledger::open(scratch.path(), options()).err().unwrap();
    assert!(matches!(second, OpenError::Locked { .. }));
    assert!(second.to_string().contains("in use by another process"), "{second}");
    ledger.close().unwrap();
    Ledger::open(scratch.path(), options()).unwrap();
}

#[test]
fn a_newer_format_and_a_foreign_folder_are_refused() {
    let scratch = Scratch::new("format");
    let disk = RealDisk::new(scratch.path()).unwrap();
    std::fs::write(scratch.path().join("holiday.txt"), "sun").unwrap();
    assert!(matches!(Ledger::open(scratch.path(), options()), Err(OpenError::NotALedger { .. })));
    write_stamp_of_version(&disk, 3).unwrap();
    let refused = Ledger::open(scratch.path(), options()).err().unwrap();
    assert!(matches!(refused, OpenError::NewerFormat { found: 3, supported: 2, .. }));
    std::fs::write(scratch.path().join("FORMAT"), "short").unwrap();
    assert!(matches!(Ledger::open(scratch.path(), options()), Err(OpenError::NotALedger { .. })));
}

#[test]
fn a_folder_of_an_earlier_format_is_stamped_with_the_current_one() {
    let scratch = Scratch::new("upgrade");
    Ledger::open(scratch.path(), options()).unwrap();
    let current = std::fs::read(scratch.path().join("FORMAT")).unwrap();
    let disk = RealDisk::new(scratch.path()).unwrap();
    write_stamp_of_version(&disk, 1).unwrap();
    assert_ne!(std::fs::read(scratch.path().join("FORMAT")).unwrap(), current);
    Ledger::open(scratch.path(), options()).unwrap();
    assert_eq!(std::fs::read(scratch.path().join("FORMAT")).unwrap(), current);
}

#[test]
fn a_fresh_volume_with_a_folder_in_it_is_good_enough() {
    let scratch = Scratch::new("volume");
    std::fs::create_dir_all(scratch.path().join("lost+found")).unwrap();
    Ledger::open(scratch.path(), options()).unwrap();
}

#[test]
fn closing_answers_everything_that_was_handed_in() {
    let scratch = Scratch::new("close");
    let ledger = Ledger::open(scratch.path(), options()).unwrap();
    let (answer, answers) = mpsc::channel();
    for key in 0..60u8 {
        let answer = answer.clone();
        let work = move |tx: &mut Tx<'_>| {
            tx.put(JOBS, [key], [key]);
            Ok::<(), ()>(())
        };
        ledger.submit(work, move |outcome| answer.send(outcome).unwrap()).unwrap();
    }
    ledger.close().unwrap();
    drop(answer);
    assert_eq!(answers.iter().filter(Result::is_ok).count(), 60);
    assert_eq!(ledger.close(), Ok(()));
    assert_eq!(ledger.try_submit(|_| Ok::<(), ()>(()), |_| ()), Err(SubmitError::Closed));
    assert_eq!(ledger.transact(|_| Ok::<(), ()>(())), Err(Failure::Ledger(LedgerError::Closed)));
}

#[test]
fn a_backup_taken_while_writers_run_is_consistent() {
    let (scratch, copy) = (Scratch::new("source"), Scratch::new("copy"));
    let ledger = Arc::new(Ledger::open(scratch.path(), quick(Mode::Journal)).unwrap());
    let report = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..ROUNDS).for_each(|_| assert!(ledger.transact(add_one).is_ok())));
        }
        ledger.backup(copy.path()).unwrap()
    });
    let copied = Ledger::open(copy.path(), options()).unwrap();
    assert_eq!(copied.report().last_sequence, report.sequence);
    assert!(count_in(&copied) <= 4 * ROUNDS);
    assert_eq!(
        copied.range(JOBS, &KeyRange::all(), Direction::Forward, 9).unwrap().len() as u64 * 2,
        report.rows
    );
}

#[test]
fn threads_on_a_dying_disk_lose_nothing_they_acknowledged() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let ledger = Ledger::open_on(Arc::new(disk.clone()), quick(Mode::Journal)).unwrap();
        disk.crash_after(20 + seed * 7);
        let acknowledged = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let (ledger, acknowledged) = (&ledger, &acknowledged);
                scope.spawn(move || write_until_refused(ledger, writer, acknowledged));
            }
        });
        assert!(ledger.close().is_err() && matches!(ledger.health(), Health::Poisoned { .. }));
        drop(ledger);
        let survived = disk.crash(Crash::PowerLoss, seed);
        let ledger = Ledger::open_on(Arc::new(survived), options()).unwrap();
        for key in acknowledged.into_inner() {
            assert!(ledger.get(JOBS, &key).unwrap().is_some(), "seed {seed}");
        }
    }
}

fn write_until_refused(ledger: &Ledger, writer: u8, acknowledged: &Mutex<Vec<[u8; 5]>>) {
    for number in 0u32.. {
        let mut key = [writer; 5];
        key[1..].copy_from_slice(&number.to_be_bytes());
        let write = move |tx: &mut Tx<'_>| {
            tx.put(JOBS, key, [7; 300]);
            Ok::<(), ()>(())
        };
        match ledger.transact(write) {
            Ok(()) => acknowledged.lock().push(key),
            Err(error) => {
                assert!(
                    matches!(error, Failure::Ledger(LedgerError::Poisoned { .. })),
                    "{error:?}"
                );
                return;
            }
        }
    }
}

#[test]
fn rows_outlive_a_ledger_that_was_dropped_without_closing() {
    let scratch = Scratch::new("drop");
    let ledger = Ledger::open(scratch.path(), options()).unwrap();
    assert_eq!(ledger.transact(add_one).unwrap(), 1);
    drop(ledger);
    assert_eq!(count_in(&Ledger::open(scratch.path(), options()).unwrap()), 1);
}

#[test]
fn pieces_of_a_batch_share_a_row_and_those_of_a_refused_entry_are_left_out() {
    let scratch = Scratch::new("gathered");
    let ledger = Ledger::open(scratch.path(), quick(Mode::Journal)).unwrap();
    let (sender, receiver) = mpsc::channel();
    for number in 0..8_u8 {
        let sender = sender.clone();
        let work = move |tx: &mut Tx<'_>| {
            tx.put(OWNERS, [number], [number]);
            tx.gather(JOBS, [number], &[number; 2]);
            if number % 3 == 1 { Err(number) } else { Ok(number) }
        };
        let done = move |outcome: Result<u8, Failure<u8>>| sender.send(outcome.is_ok()).unwrap();
        ledger.try_submit(work, done).unwrap();
    }
    let accepted = (0..8).filter(|_| receiver.recv().unwrap()).count();
    assert_eq!(accepted, 5);
    let view = ledger.view();
    let rows: Vec<_> = view
        .range(JOBS, &KeyRange::all(), Direction::Forward)
        .unwrap()
        .map(|row| row.unwrap())
        .collect();
    let pieces: Vec<u8> = rows.iter().flat_map(|(_, row)| row.to_vec()).collect();
    assert_eq!(pieces, [0, 0, 2, 2, 3, 3, 5, 5, 6, 6], "in order, without what was refused");
    for (key, row) in &rows {
        assert_eq!(key[0], row[0], "a row has the key of its first piece");
    }
}

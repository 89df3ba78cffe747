//! A full disk: accepted rows stay, new ones wait and are then refused, and all is well again when space returns.

use std::sync::Arc;
use std::time::Duration;

use super::support::{JOBS, get, open, open_with, options, put, queue};
use crate::disk::Disk;
use crate::testing::sim_disk::{Crash, SimDisk};
use crate::{
    CommitStep, Failure, FlushError, Health, Ledger, LedgerError, ManualLedger, Mode, Options,
    SubmitError,
};

/// Writes rows until one is refused. Returns how many were accepted.
fn fill(ledger: &mut ManualLedger, from: u32) -> u32 {
    for number in from.. {
        let answer =
            queue(ledger, move |tx| tx.put(JOBS, number.to_be_bytes(), vec![number as u8; 3000]));
        loop {
            match ledger.step_commit() {
                CommitStep::Stalled => drop(ledger.step_flush()),
                step => break assert_eq!(step, CommitStep::Answered(1)),
            }
        }
        match answer.lock().take().expect("answered") {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, LedgerError::Full);
                return number;
            }
        }
    }
    unreachable!("the disk is never full")
}

fn assert_all_there(ledger: &ManualLedger, rows: u32) {
    for number in 0..rows {
        let value = ledger.get(JOBS, &number.to_be_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&vec![number as u8; 3000][..]), "row {number} of {rows}");
    }
    assert_eq!(ledger.get(JOBS, &rows.to_be_bytes()).unwrap(), None, "the refused row is nowhere");
}

#[test]
fn a_full_disk_refuses_new_rows_keeps_accepted_ones_and_recovers() {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    put(&mut ledger, "a", "1").unwrap();
    disk.limit_space(Some(disk.used_bytes() + 100_000));
    let accepted = fill(&mut ledger, 0);
    assert!(accepted > 10, "{accepted}");
    assert_eq!(ledger.health(), Health::Full);
    assert_all_there(&ledger, accepted);
    disk.limit_space(None);
    ledger.step_flush().unwrap();
    assert_eq!(ledger.health(), Health::Good);
    put(&mut ledger, "b", "2").unwrap();
    let ledger = open(&disk.crash(Crash::PowerLoss, 1));
    assert_all_there(&ledger, accepted);
    assert_eq!(get(&ledger, "b").as_deref(), Some("2"));
}

#[test]
fn reads_in_work_are_answered_while_writes_are_refused() {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    put(&mut ledger, "a", "1").unwrap();
    disk.limit_space(Some(disk.used_bytes()));
    fill(&mut ledger, 0);
    let read = queue(&ledger, |tx| assert!(tx.get(JOBS, b"a").unwrap().is_some()));
    let write = queue(&ledger, |tx| tx.put(JOBS, *b"a", *b"2"));
    assert_eq!(ledger.step_commit(), CommitStep::Answered(2));
    assert_eq!(
        (read.lock().take(), write.lock().take()),
        (Some(Ok(())), Some(Err(LedgerError::Full)))
    );
    assert!(ledger.counters().refused_full > 0);
    assert_eq!(get(&ledger, "a").as_deref(), Some("1"));
}

#[test]
fn a_crash_while_the_disk_is_full_loses_nothing() {
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        let mut ledger = open(&disk);
        disk.limit_space(Some(disk.used_bytes() + 30_000 * seed));
        let accepted = fill(&mut ledger, 0);
        let disk = disk.crash(Crash::PowerLoss, seed);
        disk.limit_space(Some(disk.used_bytes()));
        assert_all_there(&open(&disk), accepted);
    }
}

#[test]
fn a_folder_on_a_full_disk_opens_and_recovers() {
    let disk = SimDisk::new(1);
    let unlimited = Options { mode: Mode::Direct, ..options() };
    drop(open_with(&disk, unlimited).unwrap());
    disk.limit_space(Some(disk.used_bytes() + 1000));
    let mut ledger = open(&disk);
    assert_eq!(
        (ledger.health(), put(&mut ledger, "a", "1")),
        (Health::Full, Err(LedgerError::Full))
    );
    disk.limit_space(None);
    ledger.step_flush().unwrap();
    put(&mut ledger, "a", "1").unwrap();
}

#[test]
fn a_flush_that_met_a_full_disk_is_taken_up_again() {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    put(&mut ledger, "a", "1").unwrap();
    disk.fail(crate::testing::sim_disk::SimOp::Write, "index", 0, std::io::ErrorKind::StorageFull);
    assert_eq!(ledger.step_flush(), Err(FlushError::Full));
    put(&mut ledger, "b", "2").unwrap();
    assert_eq!(
        (get(&ledger, "a").as_deref(), get(&ledger, "b").as_deref()),
        (Some("1"), Some("2"))
    );
    ledger.step_flush().unwrap();
    ledger.step_flush().unwrap();
    let ledger = open(&disk.crash(Crash::PowerLoss, 1));
    assert_eq!((ledger.report().indexed_sequence, get(&ledger, "b").as_deref()), (2, Some("2")));
}

#[test]
fn without_a_journal_a_full_disk_refuses_and_recovers_too() {
    let disk = SimDisk::new(1);
    let mut ledger = open_with(&disk, Options { mode: Mode::Direct, ..options() }).unwrap();
    disk.limit_space(Some(disk.used_bytes()));
    let accepted = fill(&mut ledger, 0);
    assert_all_there(&ledger, accepted);
    disk.limit_space(None);
    put(&mut ledger, "a", "1").unwrap();
    assert_all_there(&ledger, accepted);
}

#[test]
fn readers_never_notice_that_flushes_meet_a_full_disk() {
    let disk = SimDisk::new(1);
    let options =
        Options { flush_interval: Duration::from_millis(1), index_cache_bytes: 0, ..options() };
    let ledger = Ledger::open_on(Arc::new(disk.clone()) as Arc<dyn Disk>, options).unwrap();
    let write = |number: u32| {
        ledger.transact(move |tx| {
            tx.put(JOBS, number.to_be_bytes(), vec![number as u8; 1000]);
            Ok::<(), SubmitError>(())
        })
    };
    (0..100).for_each(|number| write(number).unwrap());
    while ledger.counters().flush_rows_put < 100 {}
    disk.limit_space(Some(disk.used_bytes()));
    let mut number = 0;
    while ledger.counters().index_reopens < 50 {
        let _ = write(1000 + number);
        number += 1;
        for row in 0..100u32 {
            assert_eq!(ledger.get(JOBS, &row.to_be_bytes()).unwrap().unwrap()[0], row as u8);
        }
        let page =
            ledger.range(JOBS, &crate::KeyRange::all(), crate::Direction::Forward, 100).unwrap();
        assert_eq!(page.len(), 100);
    }
}

#[test]
fn the_threads_refuse_and_recover_by_themselves() {
    let disk = SimDisk::new(1);
    let options = Options { flush_interval: Duration::from_millis(1), ..options() };
    let ledger = Ledger::open_on(Arc::new(disk.clone()) as Arc<dyn Disk>, options).unwrap();
    disk.limit_space(Some(disk.used_bytes()));
    let write = |number: u32| {
        ledger.transact(move |tx| {
            tx.put(JOBS, number.to_be_bytes(), vec![1; 3000]);
            Ok::<(), SubmitError>(())
        })
    };
    let accepted =
        (0..).find(|number| write(*number) == Err(Failure::Ledger(LedgerError::Full))).unwrap();
    disk.limit_space(None);
    while write(accepted).is_err() {}
    assert_eq!(
        ledger.range(JOBS, &crate::KeyRange::all(), crate::Direction::Forward, 9999).unwrap().len()
            as u32,
        accepted + 1
    );
    ledger.close().unwrap();
}

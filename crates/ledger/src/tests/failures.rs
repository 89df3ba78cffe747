//! Failed writes and syncs: nothing is acknowledged, nothing is retried, everything says so, reads go on.

use std::io::ErrorKind;
use std::sync::Arc;

use parking_lot::Mutex;

use super::support::{JOBS, commit, get, open, put, queue};
use crate::testing::sim_disk::{Crash, SimDisk, SimOp};
use crate::{
    CommitStep, FlushError, Health, LedgerError, ManualLedger, Transaction, Tx, WorkOutcome,
};

fn is_poisoned(answer: &Option<Result<(), LedgerError>>) -> bool {
    matches!(answer, Some(Err(LedgerError::Poisoned { .. })))
}

fn with_one_row(disk: &SimDisk) -> ManualLedger {
    let mut ledger = open(disk);
    put(&mut ledger, "a", "1").unwrap();
    ledger
}

/// Fails one operation of the journal and checks everything that must follow.
fn poison_through(operation: SimOp) {
    let disk = SimDisk::new(1);
    let mut ledger = with_one_row(&disk);
    disk.fail(operation, "journal", 0, ErrorKind::Other);
    let first = queue(&ledger, |tx| tx.put(JOBS, *b"b", *b"2"));
    let read_only = queue(&ledger, |tx| drop(tx.get(JOBS, b"b")));
    ledger.step_commit();
    assert!(is_poisoned(&first.lock()) && is_poisoned(&read_only.lock()));
    let later = queue(&ledger, |tx| tx.put(JOBS, *b"c", *b"3"));
    let operations = disk.operations();
    ledger.step_commit();
    assert!(is_poisoned(&later.lock()));
    assert!(matches!(ledger.step_flush(), Err(FlushError::Poisoned { .. })));
    assert_eq!(disk.operations(), operations, "nothing is tried again");
    assert!(matches!(ledger.health(), Health::Poisoned { .. }));
    assert_eq!((get(&ledger, "a").as_deref(), get(&ledger, "b")), (Some("1"), None));
    assert_eq!(get(&open(&disk.crash(Crash::PowerLoss, 1)), "a").as_deref(), Some("1"));
}

#[test]
fn a_failed_journal_sync_poisons_the_ledger() {
    poison_through(SimOp::Sync);
}

#[test]
fn a_failed_journal_write_poisons_the_ledger() {
    poison_through(SimOp::Write);
}

#[test]
fn the_reason_names_the_frame_and_where_it_was_to_go() {
    let disk = SimDisk::new(1);
    let mut ledger = with_one_row(&disk);
    disk.fail(SimOp::Sync, "journal", 0, ErrorKind::Other);
    let Err(LedgerError::Poisoned { reason }) = put(&mut ledger, "b", "2") else {
        panic!("not poisoned")
    };
    assert_eq!(
        &*reason,
        "could not write and sync frame 2 in segment journal-000000.seg at offset 8192: simulated failure"
    );
}

#[test]
fn a_failed_index_sync_poisons_the_ledger_but_reads_go_on() {
    let disk = SimDisk::new(1);
    let mut ledger = with_one_row(&disk);
    ledger.step_flush().unwrap();
    put(&mut ledger, "b", "2").unwrap();
    disk.fail(SimOp::Sync, "index", 0, ErrorKind::Other);
    assert!(matches!(ledger.step_flush(), Err(FlushError::Poisoned { .. })));
    assert!(matches!(put(&mut ledger, "c", "3"), Err(LedgerError::Poisoned { .. })));
    assert_eq!(
        (get(&ledger, "a").as_deref(), get(&ledger, "b").as_deref()),
        (Some("1"), Some("2"))
    );
    let ledger = open(&disk.crash(Crash::PowerLoss, 1));
    assert_eq!(
        (get(&ledger, "a").as_deref(), get(&ledger, "b").as_deref()),
        (Some("1"), Some("2"))
    );
}

#[test]
fn every_failing_operation_of_a_flush_either_poisons_or_changes_nothing() {
    for operation in [SimOp::Write, SimOp::Sync, SimOp::SetLen] {
        for skip in 0..12 {
            let disk = SimDisk::new(skip);
            let mut ledger = with_one_row(&disk);
            disk.fail(operation, "index", skip, ErrorKind::Other);
            let flushed = ledger.step_flush();
            assert_eq!(get(&ledger, "a").as_deref(), Some("1"), "{operation:?} {skip}");
            let accepted = put(&mut ledger, "b", "2").is_ok();
            assert!(flushed.is_err() || accepted, "{operation:?} {skip}");
            let ledger = open(&disk.crash(Crash::PowerLoss, skip));
            assert_eq!(get(&ledger, "a").as_deref(), Some("1"), "{operation:?} {skip}");
            assert!(!accepted || get(&ledger, "b").is_some(), "{operation:?} {skip}");
        }
    }
}

#[test]
fn work_that_panics_fails_alone() {
    let disk = SimDisk::new(1);
    let mut ledger = open(&disk);
    let before = queue(&ledger, |tx| tx.put(JOBS, *b"a", *b"1"));
    let panics = queue(&ledger, |tx| {
        tx.put(JOBS, *b"a", *b"2");
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    let after = queue(&ledger, |tx| tx.put(JOBS, *b"b", *b"3"));
    assert_eq!(ledger.step_commit(), CommitStep::Answered(3));
    assert_eq!(*panics.lock(), Some(Err(LedgerError::Panicked)));
    assert_eq!((before.lock().take(), after.lock().take()), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(
        (get(&ledger, "a").as_deref(), get(&ledger, "b").as_deref()),
        (Some("1"), Some("3"))
    );
}

#[test]
fn an_entry_that_is_too_large_fails_alone() {
    let disk = SimDisk::new(1);
    let mut ledger = with_one_row(&disk);
    let answer = commit(&mut ledger, |tx| tx.put(JOBS, *b"b", vec![0; 9000]));
    assert!(matches!(answer, Err(LedgerError::EntryTooLarge { bytes: 9009, bytes_max: 8192 })));
    let unknown = commit(&mut ledger, |tx| tx.put(crate::TableId(9), *b"b", *b"1"));
    assert_eq!(unknown, Err(LedgerError::UnknownTable(crate::TableId(9))));
    put(&mut ledger, "b", "2").unwrap();
}

/// A transaction that keeps what it has written in memory, too.
struct Remembering {
    value: Vec<u8>,
    known: Arc<Mutex<Option<usize>>>,
}

impl Transaction for Remembering {
    fn run(&mut self, tx: &mut Tx<'_>) -> WorkOutcome {
        tx.put(JOBS, *b"b", self.value.clone());
        *self.known.lock() = Some(self.value.len());
        WorkOutcome::Accepted
    }

    fn on_rollback(&mut self) {
        *self.known.lock() = None;
    }

    fn complete(&mut self, _: Result<(), LedgerError>) {}
}

#[test]
fn a_transaction_hears_of_its_rollback_before_the_next_one_runs() {
    let disk = SimDisk::new(1);
    let mut ledger = with_one_row(&disk);
    let known = Arc::new(Mutex::new(None));
    for bytes in [10, 9000] {
        let transaction = Remembering { value: vec![0; bytes], known: known.clone() };
        assert!(ledger.try_submit_transaction(Box::new(transaction)).is_ok());
        let seen = known.clone();
        let next = queue(&ledger, move |tx| {
            let stored = tx.get(JOBS, b"b").unwrap().map(|row| row.len());
            let expected = if bytes == 10 { Some(10) } else { None };
            assert_eq!(*seen.lock(), expected, "{bytes} bytes");
            assert_eq!(stored, Some(10), "{bytes} bytes");
        });
        assert_eq!(ledger.step_commit(), CommitStep::Answered(2));
        assert_eq!(next.lock().take(), Some(Ok(())), "{bytes} bytes");
    }
}

//! Short words for the tests.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::testing::driver::small_options;
use crate::testing::sim_disk::SimDisk;
use crate::{CommitStep, Failure, LedgerError, ManualLedger, OpenError, Options, TableId, Tx};

pub const JOBS: TableId = TableId(1);
pub const OWNERS: TableId = TableId(2);
pub const LIVE: TableId = TableId(7);

pub type Answer = Result<(), LedgerError>;

pub fn options() -> Options {
    small_options()
}

pub fn open(disk: &SimDisk) -> ManualLedger {
    open_with(disk, options()).unwrap()
}

pub fn open_with(disk: &SimDisk, options: Options) -> Result<ManualLedger, OpenError> {
    ManualLedger::open(Arc::new(disk.clone()), options, None)
}

/// Queues work and returns where its answer will be.
pub fn queue(
    ledger: &ManualLedger,
    work: impl FnOnce(&mut Tx<'_>) + Send + 'static,
) -> Arc<Mutex<Option<Answer>>> {
    let answer = Arc::new(Mutex::new(None));
    let place = answer.clone();
    let done = move |outcome: Result<(), Failure<()>>| {
        *place.lock() = Some(outcome.map_err(|failure| match failure {
            Failure::Ledger(error) => error,
            Failure::Work(()) => panic!("this work never refuses"),
        }));
    };
    let work = move |tx: &mut Tx<'_>| {
        work(tx);
        Ok::<(), ()>(())
    };
    ledger.try_submit(work, done).unwrap();
    answer
}

/// Commits one entry by itself.
pub fn commit(
    ledger: &mut ManualLedger,
    work: impl FnOnce(&mut Tx<'_>) + Send + 'static,
) -> Answer {
    let answer = queue(ledger, work);
    assert_eq!(ledger.step_commit(), CommitStep::Answered(1));
    answer.lock().take().expect("answered")
}

/// Puts one row in a batch of its own.
pub fn put(ledger: &mut ManualLedger, key: &'static str, value: &'static str) -> Answer {
    commit(ledger, move |tx| tx.put(JOBS, key.as_bytes(), value.as_bytes()))
}

/// Deletes one row in a batch of its own.
pub fn delete(ledger: &mut ManualLedger, key: &'static str) -> Answer {
    commit(ledger, move |tx| tx.delete(JOBS, key.as_bytes()))
}

/// A job row as text.
pub fn get(ledger: &ManualLedger, key: &str) -> Option<String> {
    let value = ledger.get(JOBS, key.as_bytes()).unwrap()?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

//! The ledger below a store: run by its own threads or, in tests, stepped by the caller.

#[cfg(feature = "testing")]
use catena_ledger::{CommitStep, ManualLedger};
use catena_ledger::{
    Direction, Failure, KeyRange, Ledger, LedgerError, Reads, RowBytes, RowPage, RowReadError,
    SubmitError, TableId, Transaction, Tx, View,
};
#[cfg(feature = "testing")]
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::effects::CommitError;
use crate::store::ReadError;

/// A ledger, and how it is run. Reading is the same either way.
pub(super) struct LedgerDriver {
    reads: Reads,
    runner: Runner,
}

enum Runner {
    Threads(Box<Ledger>),
    #[cfg(feature = "testing")]
    Manual(Box<Mutex<ManualLedger>>),
}

/// The outcome of a submission, as it is sent to the submitter.
pub(super) type Outcome<T> = Result<T, Failure<CommitError>>;

impl LedgerDriver {
    pub(super) fn threaded(ledger: Ledger) -> Self {
        LedgerDriver { reads: Reads::clone(&ledger), runner: Runner::Threads(Box::new(ledger)) }
    }

    #[cfg(feature = "testing")]
    pub(super) fn manual(ledger: ManualLedger) -> Self {
        let reads = Reads::clone(&ledger);
        LedgerDriver { reads, runner: Runner::Manual(Box::new(Mutex::new(ledger))) }
    }

    pub(super) fn reads(&self) -> &Reads {
        &self.reads
    }

    /// Submits work. The future resolves when its effects are durable.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, CommitError> + Send + 'static,
    ) -> impl Future<Output = Result<T, CommitError>> + Send + 'static {
        self.submit_then(work, std::convert::identity)
    }

    /// Submits work. When its effects are durable, `then` runs in the committer, before that of what
    /// was submitted later; then the future resolves.
    pub(super) fn submit_then<T: Send + 'static, U: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, CommitError> + Send + 'static,
        then: impl FnOnce(T) -> U + Send + 'static,
    ) -> impl Future<Output = Result<U, CommitError>> + Send + 'static {
        let (sender, receiver) = oneshot::channel();
        // The submitter may have stopped waiting; the effects are durable all the same.
        let done = move |outcome: Outcome<T>| drop(sender.send(outcome.map(then)));
        let submitted = match &self.runner {
            Runner::Threads(ledger) => ledger.try_submit(work, done),
            #[cfg(feature = "testing")]
            Runner::Manual(ledger) => ledger.lock().try_submit(work, done),
        };
        outcome(submitted, receiver)
    }

    /// Submits a transaction, or returns at once why it was not accepted.
    pub(super) fn submit_transaction(
        &self,
        transaction: Box<dyn Transaction>,
    ) -> Result<(), SubmitError> {
        match &self.runner {
            Runner::Threads(ledger) => ledger.try_submit_transaction(transaction),
            #[cfg(feature = "testing")]
            Runner::Manual(ledger) => ledger.lock().try_submit_transaction(transaction),
        }
    }

    pub(super) fn get(&self, table: TableId, key: &[u8]) -> Result<Option<RowBytes>, ReadError> {
        self.reads.get(table, key).map_err(unavailable_error)
    }

    pub(super) fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, ReadError> {
        self.reads.range(table, range, direction, limit).map_err(unavailable_error)
    }

    pub(super) fn view(&self) -> View {
        self.reads.view()
    }

    pub(super) fn close(&self) -> Result<(), CommitError> {
        match &self.runner {
            Runner::Threads(ledger) => {
                ledger.close().map_err(|error| CommitError::Stopped { reason: error.to_string() })
            }
            #[cfg(feature = "testing")]
            Runner::Manual(_) => Ok(()),
        }
    }

    /// Commits one batch. Returns whether something was completed.
    #[cfg(feature = "testing")]
    pub(super) fn step_commit(&self) -> bool {
        match &self.runner {
            Runner::Threads(_) => false,
            Runner::Manual(ledger) => {
                matches!(ledger.lock().step_commit(), CommitStep::Answered(_))
            }
        }
    }

    /// Flushes the overlay. Returns whether the flush succeeded.
    #[cfg(feature = "testing")]
    pub(super) fn step_flush(&self) -> bool {
        match &self.runner {
            Runner::Threads(_) => false,
            Runner::Manual(ledger) => ledger.lock().step_flush().is_ok(),
        }
    }
}

/// The outcome of a submission: why it was not accepted, or what the committer sent.
pub(super) async fn outcome<T>(
    submitted: Result<(), SubmitError>,
    receiver: oneshot::Receiver<Outcome<T>>,
) -> Result<T, CommitError> {
    submitted.map_err(submit_error)?;
    match receiver.await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Failure::Work(refusal))) => Err(refusal),
        Ok(Err(Failure::Ledger(error))) => Err(durability_error(error)),
        Err(_) => Err(CommitError::Stopped { reason: "the ledger is closed".to_owned() }),
    }
}

/// Calls `visit` with the key and the value of every row of a table, in order.
pub(super) fn for_each_row(
    view: &View,
    table: TableId,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let rows =
        view.range(table, &KeyRange::all(), Direction::Forward).map_err(unavailable_error)?;
    for row in rows {
        let (key, value) = row.map_err(unavailable_error)?;
        visit(&key, &value)?;
    }
    Ok(())
}

fn submit_error(error: SubmitError) -> CommitError {
    match error {
        SubmitError::Busy { .. } => CommitError::Busy,
        SubmitError::Closed => CommitError::Stopped { reason: "the ledger is closed".to_owned() },
        SubmitError::Poisoned { reason } => CommitError::Stopped { reason: reason.to_string() },
    }
}

fn durability_error(error: LedgerError) -> CommitError {
    match error {
        LedgerError::Full => CommitError::Full,
        LedgerError::EntryTooLarge { .. } | LedgerError::KeyTooLong { .. } => {
            CommitError::TooLarge { reason: error.to_string() }
        }
        LedgerError::Poisoned { .. }
        | LedgerError::Closed
        | LedgerError::Panicked
        | LedgerError::UnknownTable(_)
        | LedgerError::Observer { .. } => CommitError::Stopped { reason: error.to_string() },
    }
}

pub(super) fn unavailable_error(error: RowReadError) -> ReadError {
    ReadError::Unavailable { reason: error.to_string() }
}

//! The ledger behind a store: with its threads, or driven by hand.

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::effects::CommitError;
use crate::store::ReadError;
use catena_ledger::{
    CommitError as LedgerError, CommitStep, Direction, Failure, KeyRange, Ledger, ManualLedger,
    ReadError as LedgerReadError, Reads, RowPage, SubmitError, TableId, Tx, Value as Row, View,
};

/// A ledger, and how it is driven. Reading is the same either way.
pub(super) struct Engine {
    reads: Reads,
    driver: Driver,
}

enum Driver {
    Threads(Box<Ledger>),
    Hand(Box<Mutex<ManualLedger>>),
}

impl Engine {
    pub(super) fn threaded(ledger: Ledger) -> Self {
        Engine { reads: Reads::clone(&ledger), driver: Driver::Threads(Box::new(ledger)) }
    }

    pub(super) fn manual(ledger: ManualLedger) -> Self {
        let reads = Reads::clone(&ledger);
        Engine { reads, driver: Driver::Hand(Box::new(Mutex::new(ledger))) }
    }

    pub(super) fn reads(&self) -> &Reads {
        &self.reads
    }

    /// Hands in work now; the answer comes when its effects are durable.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, CommitError> + Send + 'static,
    ) -> impl Future<Output = Result<T, CommitError>> + Send + 'static {
        self.submit_then(work, |_| {})
    }

    /// The same. Before the answer, and whether or not somebody waits for it, `then` is called on
    /// the committer's thread with what is now durable.
    pub(super) fn submit_then<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, CommitError> + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> impl Future<Output = Result<T, CommitError>> + Send + 'static {
        let (answer, answered) = oneshot::channel();
        let done = move |outcome: Result<T, Failure<CommitError>>| {
            if let Ok(value) = &outcome {
                then(value);
            }
            // Nobody may be waiting any more; the effects are durable all the same.
            drop(answer.send(outcome));
        };
        let taken = match &self.driver {
            Driver::Threads(ledger) => ledger.try_submit(work, done),
            Driver::Hand(ledger) => ledger.lock().try_submit(work, done),
        };
        async move {
            taken.map_err(not_taken)?;
            match answered.await {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(Failure::Work(refusal))) => Err(refusal),
                Ok(Err(Failure::Ledger(error))) => Err(not_durable(error)),
                Err(_) => Err(CommitError::Stopped { reason: "the ledger is closed".to_owned() }),
            }
        }
    }

    pub(super) fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Row>, ReadError> {
        self.reads.get(table, key).map_err(unavailable)
    }

    pub(super) fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, ReadError> {
        self.reads.range(table, range, direction, limit).map_err(unavailable)
    }

    pub(super) fn view(&self) -> View {
        self.reads.view()
    }

    pub(super) fn close(&self) -> Result<(), CommitError> {
        match &self.driver {
            Driver::Threads(ledger) => {
                ledger.close().map_err(|error| CommitError::Stopped { reason: error.to_string() })
            }
            Driver::Hand(_) => Ok(()),
        }
    }

    /// Whether something was answered.
    pub(super) fn step_commit(&self) -> bool {
        match &self.driver {
            Driver::Threads(_) => false,
            Driver::Hand(ledger) => {
                matches!(ledger.lock().step_commit(), CommitStep::Answered(_))
            }
        }
    }

    /// Whether the flush went well.
    pub(super) fn step_flush(&self) -> bool {
        match &self.driver {
            Driver::Threads(_) => false,
            Driver::Hand(ledger) => ledger.lock().step_flush().is_ok(),
        }
    }
}

fn not_taken(error: SubmitError) -> CommitError {
    match error {
        SubmitError::Busy { .. } => CommitError::Busy,
        SubmitError::Closed => CommitError::Stopped { reason: "the ledger is closed".to_owned() },
        SubmitError::Poisoned { reason } => CommitError::Stopped { reason: reason.to_string() },
    }
}

fn not_durable(error: LedgerError) -> CommitError {
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

pub(super) fn unavailable(error: LedgerReadError) -> ReadError {
    ReadError::Unavailable { reason: error.to_string() }
}

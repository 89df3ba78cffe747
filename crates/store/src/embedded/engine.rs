//! The ledger behind a store: with its threads, or driven by hand.

use std::path::Path;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::effects::CommitError;
use crate::embedded::ledger::{
    BackupError, BackupReport, CommitError as LedgerError, CommitStep, CounterSnapshot, Direction,
    Failure, Health, KeyRange, Ledger, ManualLedger, OpenReport, ReadError as LedgerReadError,
    RowPage, SubmitError, TableId, Tx, Value as Row, View,
};
use crate::store::{Answer, ReadError};

pub(super) enum Engine {
    Threaded(Box<Ledger>),
    Manual(Box<Mutex<ManualLedger>>),
}

impl Engine {
    /// Hands in work now; the answer comes when its effects are durable.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, CommitError> + Send + 'static,
    ) -> Answer<'static, T, CommitError> {
        let (answer, answered) = oneshot::channel();
        // Nobody may be waiting any more; the effects are durable all the same.
        let done = move |outcome: Result<T, Failure<CommitError>>| drop(answer.send(outcome));
        let taken = match self {
            Engine::Threaded(ledger) => ledger.try_submit(work, done),
            Engine::Manual(ledger) => ledger.lock().try_submit(work, done),
        };
        Box::pin(async move {
            taken.map_err(not_taken)?;
            match answered.await {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(Failure::Work(refusal))) => Err(refusal),
                Ok(Err(Failure::Ledger(error))) => Err(not_durable(error)),
                Err(_) => Err(CommitError::Stopped { reason: "the ledger is closed".to_owned() }),
            }
        })
    }

    pub(super) fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Row>, ReadError> {
        let row = match self {
            Engine::Threaded(ledger) => ledger.get(table, key),
            Engine::Manual(ledger) => ledger.lock().get(table, key),
        };
        row.map_err(unavailable)
    }

    pub(super) fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, ReadError> {
        let rows = match self {
            Engine::Threaded(ledger) => ledger.range(table, range, direction, limit),
            Engine::Manual(ledger) => ledger.lock().range(table, range, direction, limit),
        };
        rows.map_err(unavailable)
    }

    pub(super) fn view(&self) -> View {
        match self {
            Engine::Threaded(ledger) => ledger.view(),
            Engine::Manual(ledger) => ledger.lock().view(),
        }
    }

    pub(super) fn report(&self) -> OpenReport {
        match self {
            Engine::Threaded(ledger) => ledger.report().clone(),
            Engine::Manual(ledger) => ledger.lock().report().clone(),
        }
    }

    pub(super) fn counters(&self) -> CounterSnapshot {
        match self {
            Engine::Threaded(ledger) => ledger.counters(),
            Engine::Manual(ledger) => ledger.lock().counters(),
        }
    }

    pub(super) fn health(&self) -> Health {
        match self {
            Engine::Threaded(ledger) => ledger.health(),
            Engine::Manual(ledger) => ledger.lock().health(),
        }
    }

    pub(super) fn backup(&self, destination: &Path) -> Result<BackupReport, BackupError> {
        match self {
            Engine::Threaded(ledger) => ledger.backup(destination),
            Engine::Manual(ledger) => {
                let io =
                    |source| BackupError::Io { folder: destination.display().to_string(), source };
                let disk = crate::embedded::ledger::RealDisk::new(destination).map_err(io)?;
                ledger.lock().backup_to(std::sync::Arc::new(disk))
            }
        }
    }

    pub(super) fn close(&self) -> Result<(), CommitError> {
        match self {
            Engine::Threaded(ledger) => {
                ledger.close().map_err(|error| CommitError::Stopped { reason: error.to_string() })
            }
            Engine::Manual(_) => Ok(()),
        }
    }

    /// Whether something was answered.
    pub(super) fn step_commit(&self) -> bool {
        match self {
            Engine::Threaded(_) => false,
            Engine::Manual(ledger) => {
                matches!(ledger.lock().step_commit(), CommitStep::Answered(_))
            }
        }
    }

    /// Whether the flush went well.
    pub(super) fn step_flush(&self) -> bool {
        match self {
            Engine::Threaded(_) => false,
            Engine::Manual(ledger) => ledger.lock().step_flush().is_ok(),
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

//! A submission: a transaction on its way through the committer.
//!
//! Every transaction that was accepted into the queue is completed exactly once in every case: one that is
//! dropped on the way is completed with `Closed`. Otherwise a writer could wait for ever on a ledger that is shutting
//! down.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Failure, LedgerError};
use crate::tx::Tx;

/// What a transaction decided about its own writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkOutcome {
    /// The writes are to be made durable.
    Accepted,
    /// The transaction refused itself; its writes are rolled back.
    Refused,
}

/// A unit of work for the committer: it runs once and is completed once, both on the committer's thread.
pub trait Transaction: Send {
    /// Reads and writes rows. Runs alone and in submission order, so what it reads here is current.
    fn run(&mut self, tx: &mut Tx<'_>) -> WorkOutcome;

    /// The transaction has run, and its writes were rolled back although it accepted them: one of them cannot be stored, or
    /// the disk is full. Called before any other transaction runs, so that none relies on what this one has written.
    fn on_rollback(&mut self) {}

    /// Called exactly once: with `Ok` when everything that the transaction read or wrote is durable (also after it refused
    /// itself), with the error otherwise. It must be short and must not wait for the ledger.
    fn complete(&mut self, durability: Result<(), LedgerError>);
}

/// A transaction made of two closures.
struct ClosureTransaction<T, E, W, D> {
    work: Option<W>,
    outcome: Option<Result<T, E>>,
    done: Option<D>,
}

impl<T, E, W, D> Transaction for ClosureTransaction<T, E, W, D>
where
    T: Send,
    E: Send,
    W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send,
    D: FnOnce(Result<T, Failure<E>>) + Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> WorkOutcome {
        let Some(work) = self.work.take() else { return WorkOutcome::Refused };
        let outcome = work(tx);
        let decision = if outcome.is_ok() { WorkOutcome::Accepted } else { WorkOutcome::Refused };
        self.outcome = Some(outcome);
        decision
    }

    fn complete(&mut self, durability: Result<(), LedgerError>) {
        let Some(done) = self.done.take() else { return };
        done(match (durability, self.outcome.take()) {
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Ok(()), Some(Err(refusal))) => Err(Failure::Work(refusal)),
            (Ok(()), None) => Err(Failure::Ledger(LedgerError::Closed)),
            (Err(error), _) => Err(Failure::Ledger(error)),
        });
    }
}

/// Makes a transaction of work and of a completion that receives its outcome.
pub(crate) fn closure_transaction<T, E, W, D>(work: W, done: D) -> Box<dyn Transaction>
where
    T: Send + 'static,
    E: Send + 'static,
    W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    D: FnOnce(Result<T, Failure<E>>) + Send + 'static,
{
    Box::new(ClosureTransaction { work: Some(work), outcome: None, done: Some(done) })
}

/// A queued transaction.
pub(crate) struct Submission {
    transaction: Option<Box<dyn Transaction>>,
}

impl Submission {
    pub fn new(transaction: Box<dyn Transaction>) -> Self {
        Self { transaction: Some(transaction) }
    }

    pub fn run(&mut self, tx: &mut Tx<'_>) -> WorkOutcome {
        self.transaction.as_mut().map_or(WorkOutcome::Refused, |transaction| transaction.run(tx))
    }

    /// Tells the transaction that its writes were rolled back.
    pub fn on_rollback(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            let _ = catch_unwind(AssertUnwindSafe(|| transaction.on_rollback()));
        }
    }

    /// Completes the transaction. A completion that panics harms only its own transaction: the others of the batch are
    /// durable too.
    pub fn complete(mut self, durability: Result<(), LedgerError>) {
        if let Some(mut transaction) = self.transaction.take() {
            let _ = catch_unwind(AssertUnwindSafe(|| transaction.complete(durability)));
        }
    }

    /// Drops the transaction without completing it: the submitter gets an error from `submit` instead.
    pub fn discard(mut self) {
        self.transaction = None;
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        if let Some(mut transaction) = self.transaction.take() {
            transaction.complete(Err(LedgerError::Closed));
        }
    }
}

//! One submission: the work, and the completion that hears how it ended.
//!
//! Every completion is called exactly once, whatever happens to the submission: a submission that is dropped on the way
//! answers `Closed`. Otherwise a writer could wait for ever on a ledger that is going down.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{CommitError, Failure};
use crate::tx::Tx;

/// How running the work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    /// Its writes stand.
    Accepted,
    /// It refused; its writes are to be taken back.
    Refused,
}

/// Work with its types forgotten.
trait Erased: Send {
    fn run(&mut self, tx: &mut Tx<'_>) -> Ran;
    fn answer(&mut self, verdict: Result<(), CommitError>);
}

struct Typed<T, E, W, D> {
    work: Option<W>,
    outcome: Option<Result<T, E>>,
    done: Option<D>,
}

impl<T, E, W, D> Erased for Typed<T, E, W, D>
where
    T: Send,
    E: Send,
    W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send,
    D: FnOnce(Result<T, Failure<E>>) + Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> Ran {
        let Some(work) = self.work.take() else { return Ran::Refused };
        let outcome = work(tx);
        let ran = if outcome.is_ok() { Ran::Accepted } else { Ran::Refused };
        self.outcome = Some(outcome);
        ran
    }

    fn answer(&mut self, verdict: Result<(), CommitError>) {
        let Some(done) = self.done.take() else { return };
        done(match (verdict, self.outcome.take()) {
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Ok(()), Some(Err(refusal))) => Err(Failure::Work(refusal)),
            (Ok(()), None) => Err(Failure::Ledger(CommitError::Closed)),
            (Err(error), _) => Err(Failure::Ledger(error)),
        });
    }
}

/// Work on its way through the committer.
pub(crate) struct Submission {
    inner: Option<Box<dyn Erased>>,
}

impl Submission {
    pub fn new<T, E, W, D>(work: W, done: D) -> Self
    where
        T: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        D: FnOnce(Result<T, Failure<E>>) + Send + 'static,
    {
        Self { inner: Some(Box::new(Typed { work: Some(work), outcome: None, done: Some(done) })) }
    }

    pub fn run(&mut self, tx: &mut Tx<'_>) -> Ran {
        self.inner.as_mut().map_or(Ran::Refused, |inner| inner.run(tx))
    }

    /// Tells the submitter. A completion that panics harms only itself: others in the batch are durable too.
    pub fn answer(mut self, verdict: Result<(), CommitError>) {
        if let Some(mut inner) = self.inner.take() {
            let _ = catch_unwind(AssertUnwindSafe(|| inner.answer(verdict)));
        }
    }

    /// Drops the submission without calling its completion: the submitter is told in another way.
    pub fn forget(mut self) {
        self.inner = None;
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        if let Some(mut inner) = self.inner.take() {
            inner.answer(Err(CommitError::Closed));
        }
    }
}

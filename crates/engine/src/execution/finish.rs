//! Records how a turn ended: its outcome, or that the job is retried later. This venue's own runs and
//! workers end their turns here.

use std::time::Duration;

use catena_job::chain::{AppendError, Change};
use catena_job::note::{Attempt, Note};
use catena_job::signature::SignedEnd;
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use catena_store::Hold;
use catena_value::Value;

use crate::error::StoreError;
use crate::execution::record::{RecordContext, TurnOutcome, record_outcome};
use crate::execution::{Execution, offer};
use crate::jobs::{Changed, Current, append_error, milliseconds, truncate_text};
use crate::operations::{Failure, Operation, RetryAdvice, Turn};

/// How long to wait before an outcome that could not be stored is stored again.
pub(super) const STORE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// A failed attempt that is followed by another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retry<'a> {
    /// The time until the next attempt.
    pub(crate) delay: Duration,
    pub(crate) failure: &'a Failure,
    /// The fence under which the job ran.
    pub(crate) fence: u64,
    /// The DID of the worker that ran the attempt. `None` if this venue did.
    pub(crate) by: Option<&'a str>,
}

/// A turn that has ended for good.
#[derive(Debug, Clone)]
pub(crate) struct EndedTurn<'a> {
    pub(crate) outcome: &'a TurnOutcome,
    /// The last progress report.
    pub(crate) progress: Option<Value>,
    /// The fence under which the job ran.
    pub(crate) fence: u64,
    /// The DID of the worker that ran the turn. `None` if this venue did.
    pub(crate) by: Option<&'a str>,
    /// The end of what the worker has logged.
    pub(crate) log: Option<&'a str>,
    /// What the worker has signed, and its signature.
    pub(crate) signature: Option<(&'a SignedEnd, &'a str)>,
    /// What an executor says about the execution.
    pub(crate) execution: Option<&'a Value>,
}

impl Execution {
    /// Checks the output of a turn.
    pub(crate) async fn check_turn(
        &self,
        caller: &str,
        operation: &std::sync::Arc<Operation>,
        turn: Turn,
    ) -> TurnOutcome {
        match turn {
            Turn::Complete(output) => {
                let checked = self.operations.check_output(caller, operation, &output).await;
                TurnOutcome::Done(checked.map(|()| output))
            }
            Turn::Failed(failure) => TurnOutcome::Done(Err(failure)),
            Turn::NeedsInput(ask) => TurnOutcome::NeedsInput(ask),
            Turn::NeedsAuth(ask) => TurnOutcome::NeedsAuth(ask),
            Turn::Pause => TurnOutcome::Pause,
        }
    }

    /// Returns the delay before the next attempt, and why this one failed. `None` if there is no
    /// next attempt.
    pub(crate) fn retry_delay(
        &self,
        operation: &Operation,
        job: &Job,
        outcome: &TurnOutcome,
    ) -> Option<(Duration, Failure)> {
        let TurnOutcome::Done(Err(failure)) = outcome else { return None };
        let policy = operation.retry()?;
        let may_retry = if policy.on.is_empty() {
            failure.retry == RetryAdvice::MaySucceed
        } else {
            policy.on.contains(&failure.code)
        };
        // Interrupted attempts are counted separately, except for those of executors.
        let failed = job.failures() + 1;
        let counted = if operation.counts_all_attempts() { job.attempt() } else { failed };
        if !may_retry || counted >= policy.attempts {
            return None;
        }
        let mut random = [0; 8];
        self.runtime.env.random(&mut random);
        let delay = policy.delay_after(failed, u64::from_be_bytes(random));
        Some((delay.max(failure.after.unwrap_or_default()), failure.clone()))
    }

    /// Records that an attempt failed and when the next one is due, and gives the job back to its
    /// queue. All of that is one commit.
    pub(crate) async fn record_retry(
        &self,
        id: JobId,
        known: Option<Current>,
        retry: Retry<'_>,
    ) -> Result<Changed, StoreError> {
        let Retry { delay, failure, fence, by } = retry;
        let change = |current: &Current| {
            if current.job.status() != Status::Started {
                return Ok(None);
            }
            let now = self.runtime.now();
            let note = Note::Attempt(Attempt {
                attempt: Some(current.job.attempt() + 1),
                reason: Some(truncate_text(&failure.error)),
                code: Some(failure.code.clone()),
                ..Attempt::default()
            });
            let mut change = Change::new(Event::Noted(note), now);
            change.by = by.map(str::to_owned);
            let mut draft = current.draft();
            match draft.append(change) {
                Ok(()) => {}
                Err(AppendError::HistoryFull) => {
                    let interactive = Duration::ZERO;
                    let (log, execution) = (None, None);
                    let context = RecordContext { now, interactive, fence, by, log, execution };
                    let failed = TurnOutcome::Done(Err(failure.clone()));
                    return record_outcome(current, failed, context);
                }
                Err(error) => return Err(append_error(error)),
            }
            draft.set_hold(Hold::Release(fence));
            draft.add(offer(&current.job, now.saturating_add(milliseconds(delay))));
            Ok(Some(draft))
        };
        self.jobs.change(id, known, change).await
    }

    /// Stores an outcome, however long the store is busy.
    pub(crate) async fn store_outcome(
        &self,
        id: JobId,
        mut known: Option<Current>,
        ended: EndedTurn<'_>,
    ) -> Result<Changed, StoreError> {
        let interactive = self.runtime.limits.interactive;
        let EndedTurn { outcome, progress, fence, by, log, signature, execution } = ended;
        loop {
            let decide = |current: &Current| {
                let mut current = current.clone();
                current.progress = progress.clone().or(current.progress);
                let now = self.runtime.now();
                let context = RecordContext { now, interactive, fence, by, log, execution };
                let mut draft = record_outcome(&current, outcome.clone(), context)?;
                if let (Some(draft), Some((end, signature))) = (&mut draft, signature) {
                    self.jobs.keep_signature(draft, end, signature);
                }
                Ok(draft)
            };
            match self.jobs.change(id, known.take(), decide).await {
                Err(StoreError::Busy | StoreError::Full | StoreError::Contended) => {
                    self.runtime.env.sleep(STORE_RETRY_DELAY).await;
                }
                done => return done,
            }
        }
    }
}

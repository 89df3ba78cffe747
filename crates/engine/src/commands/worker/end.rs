//! Records how a worker's turn ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use catena_job::signature::SignedEnd;
use catena_job::state::Ask;
use catena_job::{Job, JobId, Status};
use catena_store::{Effect, Effects, Hold};
use catena_value::{Map, Value};
use futures_util::future::join_all;

use crate::commands::Commands;
use crate::error::{ControlError, ResolveError, StoreError, WorkerError};
use crate::execution::finish::{EndedTurn, Retry};
use crate::execution::workers::claims::{may_work_on, worker_of};
use crate::execution::{TurnOutcome, offer_now};
use crate::jobs::{
    Changed, Current, attempt_time_exceeded, is_live, unless_overtaken, waits_for_message,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::{Failure, Operation, ResolvedSecrets, RetryAdvice, Turn};
use crate::requests::{Caller, EndTurn, Ended, RetryRequest, WorkerEnd};

/// The failure code of a worker that gives none.
const WORKER_FAILED: &str = "worker_failed";

impl Commands {
    /// Ends several turns, and returns the result of each.
    pub(super) async fn end_turns(
        self: &Arc<Self>,
        caller: &Caller,
        turns: Vec<EndTurn>,
    ) -> Vec<(JobId, Result<Ended, WorkerError>)> {
        let ends = turns.into_iter().map(|turn| {
            let caller = caller.clone();
            async move { (turn.job, self.end_turn(&caller, turn).await) }
        });
        join_all(ends).await
    }

    /// Ends a turn. What has begun is finished even if the worker disconnects.
    pub(crate) async fn end_turn(
        self: &Arc<Self>,
        caller: &Caller,
        turn: EndTurn,
    ) -> Result<Ended, WorkerError> {
        let commands = Arc::clone(self);
        let caller = caller.clone();
        let ending = async move { commands.record_end_of_turn(&caller, turn).await };
        self.runtime.finish_even_if_dropped(ending).await
    }

    async fn record_end_of_turn(
        self: &Arc<Self>,
        caller: &Caller,
        turn: EndTurn,
    ) -> Result<Ended, WorkerError> {
        let EndTurn { job, fence, end, signature, execution } = turn;
        let Some(current) = self.jobs.current(job).await? else {
            return Err(WorkerError::NotFound(job));
        };
        let Some((session, handle)) =
            self.execution.adopt_worker_run(caller, &current, fence).await?
        else {
            return late(&current, caller, &end);
        };
        let signed = match &signature {
            Some(signature) => {
                Some((check_signature(caller, job, fence, &end, signature)?, signature))
            }
            None => None,
        };
        let end = redacted(end, &handle.secrets);
        // What was signed is not what is recorded.
        let signed = signed.filter(|(signed, _)| matches_end(signed, &end));
        let is_ended = match end {
            WorkerEnd::Awaiting(keys) => self.give_back(&current, fence, &keys).await?,
            end => {
                let operation = self.operations.operation_of(&current.job).await;
                let operation = operation.map_err(resolve_error)?;
                let owner = current.text("caller").to_owned();
                let outcome = match end {
                    WorkerEnd::TimedOut { error } => TurnOutcome::TimedOut(error),
                    end => self.execution.check_turn(&owner, &operation, turn_of(end)).await,
                };
                let progress = handle.progress.newest(&*self.runtime.env);
                let by = Some(&*caller.did);
                let log = handle.logged();
                let ended = EndedTurn {
                    outcome: &outcome,
                    progress,
                    fence,
                    by,
                    log: log.as_deref(),
                    signature: signed.as_ref().map(|(end, signature)| (end, signature.as_str())),
                    execution: execution.as_ref(),
                };
                let is_ended = self.end_with(current, &operation, ended).await?;
                if let Some(execution) = execution.as_ref().filter(|_| is_ended) {
                    self.count_cpu(&owner, execution).await?;
                }
                is_ended
            }
        };
        session.remove(job, fence);
        if is_ended { Ok(Ended { is_repeated: false }) } else { Err(WorkerError::Fenced(job)) }
    }

    /// Records an outcome, or that the job is retried later. Returns false if it came too late.
    async fn end_with(
        self: &Arc<Self>,
        current: Current,
        operation: &Operation,
        ended: EndedTurn<'_>,
    ) -> Result<bool, WorkerError> {
        let id = current.job.id();
        let EndedTurn { fence, by, .. } = ended;
        let known = if current.job.calls().is_empty() {
            Some(current.clone())
        } else {
            let ending = self.execution.end_open_calls(id, fence, ended.outcome).await;
            ending.map_err(control_error)?;
            None
        };
        if let Some((delay, failure)) =
            self.execution.retry_delay(operation, &current.job, ended.outcome)
        {
            let retry = Retry { delay, failure: &failure, fence, by };
            return match self.execution.record_retry(id, known, retry).await? {
                Changed::Done(view) => {
                    self.runtime.counters.retries.fetch_add(1, Ordering::Relaxed);
                    self.execution.notify_queued(&view.job);
                    Ok(true)
                }
                // The job is paused. Its resume follows the recovery rule, which starts an attempt.
                Changed::Unchanged(current) => self.release(&current, fence).await,
                Changed::Gone => Ok(false),
            };
        }
        let known = known.map(|mut known| {
            known.progress = ended.progress.clone().or(known.progress);
            known
        });
        match self.execution.store_outcome(id, known, ended).await? {
            Changed::Done(view) => {
                if waits_for_message(view.status()) {
                    self.execution.wake(id).await;
                }
                Ok(true)
            }
            Changed::Unchanged(_) | Changed::Gone => Ok(false),
        }
    }

    /// Ends the turn of a worker whose attempt took too long.
    pub(crate) async fn end_overdue_attempt(
        self: &Arc<Self>,
        job: JobId,
        fence: u64,
    ) -> Result<(), WorkerError> {
        let Some(current) = self.jobs.current(job).await? else { return Ok(()) };
        let worker = worker_of(&current).filter(|_| current.hold.fence == fence);
        let Some(holder) = worker else { return Ok(()) };
        let operation = self.operations.operation_of(&current.job).await.map_err(resolve_error)?;
        let limit = operation.retry().and_then(|policy| policy.timeout).unwrap_or_default();
        let outcome = TurnOutcome::Done(Err(attempt_time_exceeded(limit)));
        let ended = EndedTurn {
            outcome: &outcome,
            progress: None,
            fence,
            by: None,
            log: None,
            signature: None,
            execution: None,
        };
        self.end_with(current, &operation, ended).await?;
        let session = self.execution.workers.session(&holder);
        session.stop(job, fence);
        Ok(())
    }

    /// Makes nobody the holder of a paused job. Returns false if it came too late.
    async fn release(&self, current: &Current, fence: u64) -> Result<bool, WorkerError> {
        if !is_live(&current.job) {
            return Ok(false);
        }
        let (job, after) = (current.job.id(), current.job.head());
        let effect = Effect::SetHold { job, after, hold: Hold::Release(fence) };
        let released = unless_overtaken(self.jobs.store.commit(Effects::one(effect)).await);
        Ok(released?.is_some())
    }

    /// Gives a job back until its calls with these keys have ended. Returns false if it came too late.
    async fn give_back(
        self: &Arc<Self>,
        current: &Current,
        fence: u64,
        keys: &[String],
    ) -> Result<bool, WorkerError> {
        let id = current.job.id();
        if let Some(unknown) = keys.iter().find(|key| call_named(&current.job, key).is_none()) {
            return Err(WorkerError::Invalid(format!("the job has made no call `{unknown}`")));
        }
        let mut known = Some(current.clone());
        for _ in 0..CONTENTION_TRIES_MAX {
            let current = match known.take() {
                Some(current) => current,
                None => match self.jobs.current(id).await? {
                    Some(current) => current,
                    None => return Ok(false),
                },
            };
            if !is_live(&current.job) || current.hold.fence != fence {
                return Ok(false);
            }
            let mut draft = current.draft();
            let mut is_offered = false;
            if current.job.status() != Status::Started {
                draft.set_hold(Hold::Release(fence));
            } else if keys.is_empty() {
                draft.set_hold(Hold::Release(fence));
                draft.add(offer_now(&current.job, self.runtime.now()));
                is_offered = true;
            } else {
                draft.set_hold(Hold::Park(fence));
                let earlier = self.jobs.awaited(id).await?;
                draft.add(self.jobs.store_awaited(id, keys, earlier.as_ref()));
            }
            if unless_overtaken(self.jobs.commit(draft).await)?.is_some() {
                if is_offered {
                    self.execution.notify_queued(&current.job);
                } else if !keys.is_empty() {
                    // Calls may have ended before the job was parked.
                    self.execution.continue_caller(id).await?;
                }
                return Ok(true);
            }
        }
        Err(StoreError::Contended.into())
    }
}

/// Returns what a worker has signed. Fails unless the signature was made with the key of its DID.
fn check_signature(
    caller: &Caller,
    job: JobId,
    fence: u64,
    end: &WorkerEnd,
    signature: &str,
) -> Result<SignedEnd, WorkerError> {
    let result = match end {
        WorkerEnd::Output(output) => Ok(output.clone()),
        WorkerEnd::Error { error, .. } => Err(error.clone()),
        WorkerEnd::Ask { .. } | WorkerEnd::Awaiting(_) | WorkerEnd::TimedOut { .. } => {
            let text = "`signature` is for an `output` or an `error`";
            return Err(WorkerError::Invalid(text.to_owned()));
        }
    };
    let signed = SignedEnd { job, fence, result };
    if !signed.is_signed_by(&caller.did, signature) {
        let text = format!("`signature` was not made with the key of {}", caller.did);
        return Err(WorkerError::Invalid(text));
    }
    Ok(signed)
}

/// Removes the secrets that a worker was given from how it ended a turn.
fn redacted(end: WorkerEnd, secrets: &ResolvedSecrets) -> WorkerEnd {
    if secrets.is_empty() {
        return end;
    }
    let text = |text: String| secrets.redact_text(&text);
    match end {
        WorkerEnd::Output(output) => WorkerEnd::Output(secrets.redact(output)),
        WorkerEnd::Error { error, code, retry } => {
            WorkerEnd::Error { error: text(error), code: code.map(text), retry }
        }
        WorkerEnd::TimedOut { error } => WorkerEnd::TimedOut { error: text(error) },
        WorkerEnd::Ask { message, schema } => WorkerEnd::Ask {
            message: text(message),
            schema: schema.map(|schema| secrets.redact(schema)),
        },
        WorkerEnd::Awaiting(keys) => WorkerEnd::Awaiting(keys),
    }
}

/// Returns true if a worker has signed this end.
fn matches_end(signed: &SignedEnd, end: &WorkerEnd) -> bool {
    match (&signed.result, end) {
        (Ok(signed), WorkerEnd::Output(output)) => signed == output,
        (Err(signed), WorkerEnd::Error { error, .. }) => signed == error,
        _ => false,
    }
}

/// Returns the call with a key.
fn call_named<'a>(job: &'a Job, key: &str) -> Option<&'a catena_job::chain::CallState> {
    job.calls().iter().find(|call| call.start.key == key)
}

fn turn_of(end: WorkerEnd) -> Turn {
    match end {
        WorkerEnd::Output(output) => Turn::Complete(output),
        WorkerEnd::Error { error, code, retry } => {
            let code = code.unwrap_or_else(|| WORKER_FAILED.to_owned());
            let after = match retry {
                RetryRequest::After(time) => Some(time),
                RetryRequest::Never | RetryRequest::May => None,
            };
            let retry = if retry == RetryRequest::Never {
                RetryAdvice::Never
            } else {
                RetryAdvice::MaySucceed
            };
            Turn::Failed(Failure { code, error, retry, after })
        }
        WorkerEnd::Ask { message, schema } => {
            let output = schema.map(|schema| Value::from(Map::from_iter([("schema", schema)])));
            Turn::NeedsInput(Ask { message: Some(message), output })
        }
        // Neither ends a turn in this way.
        WorkerEnd::Awaiting(_) | WorkerEnd::TimedOut { .. } => Turn::Pause,
    }
}

/// Returns the result of an end that came when the worker no longer held the job: the same end may have
/// been recorded before, and its answer lost.
fn late(current: &Current, caller: &Caller, end: &WorkerEnd) -> Result<Ended, WorkerError> {
    let job = current.job.id();
    let is_repeated = match end {
        WorkerEnd::Output(output) => {
            current.job.status() == Status::Complete
                && current.job.field("output").map(Value::id) == Some(output.id())
        }
        WorkerEnd::Error { error, .. } => {
            let is_failed = current.job.status() == Status::Failed;
            let is_retried = current.job.status() == Status::Started && !current.is_held();
            let last = current.job.last_failure().map(|failure| failure.reason.as_str());
            is_failed && current.text("error") == error || is_retried && last == Some(&**error)
        }
        WorkerEnd::TimedOut { error } => {
            current.job.status() == Status::Timeout && current.text("error") == error
        }
        WorkerEnd::Ask { message, .. } => {
            waits_for_message(current.job.status()) && current.text("message") == message
        }
        WorkerEnd::Awaiting(_) => current.hold.is_parked,
    };
    // Nobody else can have ended it in the same words.
    let is_own = may_work_on(caller, &current.job);
    if is_repeated && is_own {
        return Ok(Ended { is_repeated: true });
    }
    if is_own { Err(WorkerError::Fenced(job)) } else { Err(WorkerError::NotFound(job)) }
}

fn resolve_error(error: ResolveError) -> WorkerError {
    match error {
        ResolveError::Store(error) => error.into(),
        other => WorkerError::Invalid(other.to_string()),
    }
}

fn control_error(error: ControlError) -> WorkerError {
    match error {
        ControlError::Store(error) => error.into(),
        other => WorkerError::Invalid(other.to_string()),
    }
}

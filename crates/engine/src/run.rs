//! A job is carried out: turn after turn, until it ends or waits for somebody.
//!
//! Whoever holds the reins of a job runs it. They are taken before the commit that makes the job
//! STARTED and let go before the one that makes it wait, so that a pause or a cancel always finds
//! whom to tell, and whoever brings what the job waits for can take them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catena_job::chain::{AppendError, Change};
use catena_job::note::{Note, Outcome};
use catena_job::state::{Ask, Event};
use catena_job::{Job, JobId, Status};
use catena_store::{Effect, JobCells};
use catena_value::{Map, Value};
use futures_util::FutureExt;
use tokio::sync::OwnedSemaphorePermit;

use crate::adapter::{Call, Cause, Failure, RetryAdvice, Turn};
use crate::caller::{Caller, Role};
use crate::change::{Changed, Current, Draft};
use crate::control::RunControl;
use crate::engine::Engine;
use crate::env::Task;
use crate::error::StoreError;
use crate::operation::Operation;
use crate::progress::Reports;
use crate::running::Held;
use crate::submit::{broken, check_output, deadline, outcome};

/// How long to wait before an outcome that could not be stored is tried again.
const STORE_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A job that is being carried out.
pub(crate) struct Run {
    pub(crate) job: Job,
    pub(crate) cells: Option<JobCells>,
    pub(crate) operation: Arc<Operation>,
    pub(crate) caller: Caller,
    pub(crate) input: Value,
    pub(crate) cause: Cause,
    /// How long the turn may still take.
    pub(crate) left: Duration,
    pub(crate) held: Held,
    pub(crate) slot: Option<OwnedSemaphorePermit>,
}

/// How a turn came to its end.
enum Ended {
    Turn(Turn),
    Late,
}

/// What is to be written down about it.
#[derive(Clone)]
enum Verdict {
    Done(Result<Value, Failure>),
    NeedsInput(Ask),
    NeedsAuth(Ask),
    Pause,
    Late(String),
}

impl Run {
    /// Carries the job out, boxed: what runs may begin other runs.
    pub(crate) fn carry_out_boxed(self, engine: Engine) -> Task {
        Box::pin(self.carry_out(engine))
    }

    /// Carries the job out until it ends or waits.
    pub(crate) async fn carry_out(mut self, engine: Engine) {
        if self.operation.plan().is_some() {
            let id = self.job.id();
            // Those who only wait for others take no place of those who work.
            self.slot = None;
            if let Err(trouble) = engine.weave_on(self).await {
                tracing::error!(job = %id, %trouble, "an orchestration cannot go on");
            }
            return;
        }
        loop {
            let control = self.held.reins.control(&engine.0.env);
            let Some((ended, progress)) = self.turn(&engine, &control).await else { return };
            let verdict = match ended {
                Ended::Late => Verdict::Late(too_long(self.left)),
                Ended::Turn(turn) => self.judge(turn),
            };
            if let Some(backoff) = self.backoff(&verdict) {
                if self.repeat(&engine, &control, &verdict, backoff).await {
                    continue;
                }
                return;
            }
            return self.conclude(&engine, verdict, progress).await;
        }
    }

    /// One turn; nothing when it was stopped. Also the last progress that was reported.
    async fn turn(&self, engine: &Engine, control: &RunControl) -> Option<(Ended, Option<Value>)> {
        let call = Call {
            engine: engine.clone(),
            operation: Arc::clone(&self.operation),
            caller: self.caller.clone(),
            job: Some(self.job.id()),
            input: self.input.clone(),
            cause: self.cause.clone(),
            attempt: self.job.attempt(),
            last_output: self.job.field("output").cloned(),
            control: control.clone(),
        };
        let carrier = Arc::clone(self.operation.carrier());
        let turning = async { carrier.run(call).await };
        let mut turning = Box::pin(AssertUnwindSafe(turning).catch_unwind());
        let mut limit = Box::pin(control.sleep(self.left));
        let mut stopped = Box::pin(self.held.reins.stopped());
        let reins = &self.held.reins;
        let mut signal = reins.watch();
        let (job, attempt) = (self.job.id(), self.job.attempt());
        let mut reports = Reports::new(engine, job, attempt, &reins.progress);
        let ended = loop {
            tokio::select! {
                biased;
                () = &mut stopped => return None,
                turn = &mut turning => {
                    let broke = |_| Turn::Failed(broken(carrier.name()));
                    break Ended::Turn(turn.unwrap_or_else(broke));
                }
                () = &mut limit => break Ended::Late,
                Ok(()) = signal.changed() => reports.signalled(*signal.borrow_and_update()),
                () = reports.wait() => reports.go_on().await,
            }
        };
        Some((ended, reports.last().await))
    }

    fn judge(&self, turn: Turn) -> Verdict {
        match turn {
            Turn::Complete(output) => {
                Verdict::Done(check_output(&self.operation, &output).map(|()| output))
            }
            Turn::Failed(failure) => Verdict::Done(Err(failure)),
            Turn::NeedsInput(ask) => Verdict::NeedsInput(ask),
            Turn::NeedsAuth(ask) => Verdict::NeedsAuth(ask),
            Turn::Pause => Verdict::Pause,
        }
    }

    /// How long to wait before another try, when there is to be one.
    fn backoff(&self, verdict: &Verdict) -> Option<Duration> {
        let Verdict::Done(Err(failure)) = verdict else { return None };
        let retry = self.operation.retry()?;
        let may_help = match retry.on.is_empty() {
            true => failure.retry == RetryAdvice::MaySucceed,
            false => retry.on.contains(&failure.code),
        };
        let next = self.job.attempt() + 1;
        (may_help && next <= retry.attempts).then(|| retry.backoff_before(next))
    }

    /// Begins another try after a wait. Whether there is one.
    async fn repeat(
        &mut self,
        engine: &Engine,
        control: &RunControl,
        verdict: &Verdict,
        backoff: Duration,
    ) -> bool {
        let stopped = Arc::clone(&self.held.reins);
        tokio::select! {
            () = stopped.stopped() => return false,
            () = control.sleep(backoff) => {}
        }
        let reason = match verdict {
            Verdict::Done(Err(failure)) => failure.error.clone(),
            _ => String::new(),
        };
        let (fence, attempt) = (self.held.reins.fence, self.job.attempt() + 1);
        let done: Result<Changed, StoreError> = engine
            .change(self.job.id(), Some(self.known(None)), |current| {
                if current.job.status() != Status::Started {
                    return Ok(None);
                }
                let note = Note::Attempt { attempt: Some(attempt), reason: Some(reason.clone()) };
                let mut draft = current.draft();
                draft.fenced(fence);
                draft.append(Change::new(Event::Noted(note), engine.now())).map_err(unwritten)?;
                Ok(Some(draft))
            })
            .await;
        engine.0.counts.retries.fetch_add(1, Ordering::Relaxed);
        match done {
            Ok(Changed::Done(view)) => {
                self.job = (*view.job).clone();
                self.cause = match std::mem::replace(&mut self.cause, Cause::Retry) {
                    Cause::Message(message) => Cause::Message(message),
                    _ => Cause::Retry,
                };
                true
            }
            // Paused while it waited: try again when it goes on.
            Ok(Changed::Left(current)) if current.job.status() == Status::Paused => {
                self.job = Arc::unwrap_or_clone(current.job);
                control.proceed().await;
                Box::pin(self.repeat(engine, control, verdict, Duration::ZERO)).await
            }
            _ => false,
        }
    }

    /// The job as this run knows it.
    pub(crate) fn known_current(&self) -> Current {
        self.known(None)
    }

    /// The job as this run knows it, with progress that it has not told.
    fn known(&self, progress: Option<Value>) -> Current {
        let mut current = Current::known(self.job.clone());
        current.cells = self.cells.clone();
        current.progress = progress;
        current
    }

    /// Writes down how the run ended, and lets go.
    async fn conclude(self, engine: &Engine, verdict: Verdict, progress: Option<Value>) {
        let known = self.known(progress.clone());
        let id = self.job.id();
        let fence = self.held.reins.fence;
        let parks =
            matches!(verdict, Verdict::NeedsInput(_) | Verdict::NeedsAuth(_) | Verdict::Pause);
        let Run { held, slot, .. } = self;
        if parks {
            held.reins.park();
        }
        let changed = write_down(engine, id, known, fence, &verdict, progress).await;
        drop(held);
        match changed {
            Ok(Changed::Done(view))
                if view.status() == Status::InputRequired
                    || view.status() == Status::AuthRequired =>
            {
                engine.wake(id, slot).await;
            }
            Ok(_) => {}
            Err(trouble) => {
                tracing::error!(job = %id, %trouble, "an outcome could not be stored");
            }
        }
    }
}

/// Writes down a verdict, however long the store is busy.
async fn write_down(
    engine: &Engine,
    id: JobId,
    known: Current,
    fence: Option<u64>,
    verdict: &Verdict,
    progress: Option<Value>,
) -> Result<Changed, StoreError> {
    let mut known = Some(known);
    loop {
        let done = engine
            .change(id, known.take(), |current| {
                let mut current = current.clone();
                current.progress = progress.clone().or(current.progress);
                write(engine, &current, fence, verdict.clone())
            })
            .await;
        match done {
            Err(StoreError::Busy | StoreError::Full | StoreError::Contended) => {
                engine.0.env.sleep(STORE_AGAIN_AFTER).await;
            }
            done => return done,
        }
    }
}

/// The records of a verdict about a job as it is.
fn write(
    engine: &Engine,
    current: &Current,
    fence: Option<u64>,
    verdict: Verdict,
) -> Result<Option<Draft>, StoreError> {
    let now = engine.now();
    let mut draft = current.draft();
    draft.fenced(fence);
    match current.job.status() {
        Status::Started => {}
        Status::Paused if current.job.held().is_none() => {
            let Some(outcome) = held_outcome(verdict) else { return Ok(None) };
            let note = Note::Held(Some(outcome));
            draft.append(Change::new(Event::Noted(note), now)).map_err(unwritten)?;
            draft.keep_progress();
            return Ok(Some(draft));
        }
        // Ended, or another's by now: a late result is dropped.
        _ => return Ok(None),
    }
    let waits = deadline(now, engine.0.limits.interactive);
    let mut change = match verdict {
        Verdict::Done(done) => outcome(done, now),
        Verdict::Late(error) => Change::new(Event::Expired { error }, now),
        Verdict::NeedsInput(ask) => Change::new(Event::AskedForInput(ask), now),
        Verdict::NeedsAuth(ask) => Change::new(Event::AskedForAuth(ask), now),
        Verdict::Pause => {
            let mut change = Change::new(Event::Paused, now);
            change.extra.push(("paused", paused(Status::Started, TurnState::Ended, None, None)));
            change
        }
    };
    let parks =
        matches!(change.event, Event::AskedForInput(_) | Event::AskedForAuth(_) | Event::Paused);
    if parks {
        draft.keep_progress();
        change.extra.push(("deadline", waits));
        if fence.is_some() {
            draft.with(Effect::Withdraw { job: current.job.id() });
        }
    }
    match draft.append(change) {
        Ok(()) => Ok(Some(draft)),
        Err(AppendError::HistoryFull) => {
            let mut draft = current.draft();
            draft.fenced(fence);
            let full = Failure::new("history_full", AppendError::HistoryFull.to_string());
            draft.append(outcome(Err(full), now)).map_err(unwritten)?;
            Ok(Some(draft))
        }
        Err(error) => Err(unwritten(error)),
    }
}

/// What is kept of a verdict while the job is paused.
fn held_outcome(verdict: Verdict) -> Option<Outcome> {
    let ask = |status, ask: Ask| {
        Some(Outcome { status, output: ask.output, error: None, message: ask.message })
    };
    match verdict {
        Verdict::Done(Ok(output)) => Some(Outcome::complete(output)),
        Verdict::Done(Err(failure)) => Some(Outcome::failed(&failure.error)),
        Verdict::NeedsInput(asked) => ask(Status::InputRequired, asked),
        Verdict::NeedsAuth(asked) => ask(Status::AuthRequired, asked),
        Verdict::Pause | Verdict::Late(_) => None,
    }
}

/// Where a turn stood when its job was paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnState {
    /// In the middle.
    Open,
    /// At its end.
    Ended,
}

/// The member that says what was paused, so that a resume knows what to go on with.
pub(crate) fn paused(
    from: Status,
    turn: TurnState,
    left: Option<i64>,
    trigger: Option<&Value>,
) -> Value {
    let turn = if turn == TurnState::Open { "open" } else { "ended" };
    let mut members = vec![("from", Value::from(from)), ("turn", turn.into())];
    members.extend(left.map(|left| ("leftMs", left.into())));
    members.extend(trigger.map(|trigger| ("trigger", trigger.clone())));
    members.into_iter().collect::<Map>().into()
}

pub(crate) fn too_long(limit: Duration) -> String {
    format!("the operation ran longer than its limit of {} ms", limit.as_millis())
}

pub(crate) fn unwritten(error: AppendError) -> StoreError {
    StoreError::Damaged(format!("a record cannot be made: {error}"))
}

/// The bare output of a turn that nothing is recorded of.
pub(crate) fn bare(turn: Turn) -> Result<Value, Failure> {
    match turn {
        Turn::Complete(output) => Ok(output),
        Turn::Failed(failure) => Err(failure),
        Turn::NeedsInput(_) | Turn::NeedsAuth(_) | Turn::Pause => Err(Failure::new(
            "needs_a_job",
            "the operation waits for somebody; invoke it as a recorded job",
        )),
    }
}

impl Engine {
    /// The operation of a job, by the definition that its first record names.
    pub(crate) async fn operation_of(
        &self,
        job: &Job,
    ) -> Result<Arc<Operation>, crate::error::ResolveError> {
        let text = |name: &str| job.field(name).and_then(Value::as_str).unwrap_or_default();
        let reference = text("op");
        match format!("0x{}", text("operation")).parse() {
            Ok(id) => self.operation_by_id(&id, reference).await,
            Err(_) => self.resolve(&Caller::known(text("caller")), reference).await,
        }
    }

    /// Whom a job belongs to.
    pub(crate) fn owner_of(&self, job: &Job) -> Caller {
        let did = job.field("caller").and_then(Value::as_str).unwrap_or_default();
        let is_public = did.strip_prefix(&*self.0.did) == Some(":public");
        let role = if is_public { Role::Anonymous } else { Role::Known };
        Caller { did: did.into(), role, delegations: Vec::new() }
    }

    /// How long a job may run in all, or a turn of it.
    pub(crate) fn limit_of(&self, job: &Job, operation: &Operation) -> Duration {
        let asked = job.field("timeoutMs").and_then(Value::as_i64);
        let asked = asked.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        self.execution_limit(asked, operation)
    }
}

//! Recovery: what was live when the venue stopped is found and goes on.
//!
//! Only live jobs are looked at, so the cost does not grow with history. A job that was never
//! STARTED is always put back. One that was follows its operation's rule. Those that wait for
//! somebody stay as they are.

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::CommitError;

use crate::adapter::{Cause, Failure};
use crate::change::{Changed, Current, Draft, waits_for_message};
use crate::engine::{Engine, RecoverySummary};
use crate::error::{ResolveError, StoreTrouble};
use crate::operation::{Operation, Recovery};
use crate::run::{Run, TurnState, paused, unwritten};
use crate::submit::{deadline, offer, outcome};

/// Live jobs read in one go.
const SCAN_BATCH: usize = 1_000;

/// Jobs whose changes are on their way to the store at the same time, so that they share syncs.
const AT_ONCE: usize = 512;

/// What was done with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Requeued,
    Failed,
    Left,
    Skipped,
}

/// Recovers all live jobs.
pub(crate) async fn recover(engine: &Engine) -> Result<RecoverySummary, StoreTrouble> {
    let begun = engine.0.env.monotonic();
    let mut summary = RecoverySummary::default();
    let mut after = None;
    loop {
        let page = engine.0.store.live(after, SCAN_BATCH).await?;
        let Some(last) = page.last() else { break };
        after = Some(*last);
        for jobs in page.chunks(AT_ONCE) {
            let done = futures_util::future::join_all(jobs.iter().map(|job| one(engine, *job)));
            for done in done.await {
                summary.scanned += 1;
                match done? {
                    Done::Requeued => summary.requeued += 1,
                    Done::Failed => summary.failed += 1,
                    Done::Skipped => summary.skipped += 1,
                    Done::Left => {}
                }
            }
        }
    }
    summary.took = engine.0.env.monotonic().saturating_sub(begun);
    if summary.scanned > 0 {
        let RecoverySummary { scanned, requeued, failed, skipped, took } = summary;
        tracing::info!(scanned, requeued, failed, skipped, ?took, "live jobs recovered");
    }
    Ok(summary)
}

/// Recovers one job.
async fn one(engine: &Engine, id: JobId) -> Result<Done, StoreTrouble> {
    let Some(current) = engine.current(id).await? else { return Ok(Done::Left) };
    if current.job.parent().is_none() {
        engine.0.admission.enter(current.text("caller"));
    }
    match current.job.status() {
        Status::Pending | Status::Started => {}
        status => {
            if waits_for_message(status) {
                go_on_waiting(engine, current).await?;
            }
            return Ok(Done::Left);
        }
    }
    let operation = match engine.operation_of(&current.job).await {
        Ok(operation) => operation,
        Err(ResolveError::Store(StoreTrouble::Damaged(reason))) => {
            return fail(engine, current, incomplete(&reason)).await;
        }
        Err(ResolveError::Store(trouble)) => return Err(trouble),
        Err(reason) => {
            tracing::warn!(job = %id, %reason, "a live job is left as it is: its operation is not here");
            return Ok(Done::Skipped);
        }
    };
    if let Err(StoreTrouble::Damaged(reason)) = engine.input_of(&current).await {
        return fail(engine, current, incomplete(&reason)).await;
    }
    decide(engine, current, &operation).await
}

/// A job that waits for somebody goes on when there is a message, or when it has steps that run.
async fn go_on_waiting(engine: &Engine, current: Current) -> Result<(), StoreTrouble> {
    let id = current.job.id();
    if current.job.steps().is_empty() {
        if current.queue_depth > 0 {
            engine.spawn(engine.wake(id, None));
        }
        return Ok(());
    }
    let (Ok(operation), Some(held)) =
        (engine.operation_of(&current.job).await, engine.0.running.take(id, None))
    else {
        return Ok(());
    };
    let run = Run {
        left: engine.limit_of(&current.job, &operation),
        input: engine.input_of(&current).await?,
        caller: engine.owner_of(&current.job),
        cells: current.cells,
        job: current.job,
        operation,
        cause: Cause::Repeated,
        held,
        slot: None,
    };
    engine.spawn(run.carry_out_boxed(engine.clone()));
    Ok(())
}

async fn decide(
    engine: &Engine,
    current: Current,
    operation: &Operation,
) -> Result<Done, StoreTrouble> {
    if current.job.status() == Status::Pending {
        return requeue(engine, current).await;
    }
    match operation.recovery() {
        Recovery::Rerun if operation.plan().is_some() => requeue(engine, current).await,
        Recovery::Rerun if current.job.attempt() >= engine.0.limits.attempts_max => {
            let tries = current.job.attempt();
            let text = format!("the venue stopped during each of {tries} tries");
            fail(engine, current, Failure::new("attempts_used_up", text)).await
        }
        Recovery::Rerun => requeue(engine, current).await,
        Recovery::Fail => fail(engine, current, interrupted()).await,
        Recovery::Pause => pause(engine, current).await,
    }
}

/// What a job says that was interrupted and may not be repeated.
pub(crate) fn interrupted() -> Failure {
    Failure::new(
        "interrupted",
        "the venue stopped while the operation ran; its effects are unknown",
    )
}

fn incomplete(reason: &str) -> Failure {
    Failure::new(
        "incomplete_payload",
        format!("the job cannot be recovered: its payload is incomplete ({reason})"),
    )
}

async fn requeue(engine: &Engine, current: Current) -> Result<Done, StoreTrouble> {
    let draft = requeued(engine, &current)?;
    commit(engine, draft).await?;
    engine.has_queued();
    Ok(Done::Requeued)
}

/// The draft that puts a job back on the queue.
fn requeued(engine: &Engine, current: &Current) -> Result<Draft, StoreTrouble> {
    let now = engine.now();
    // A job that never began has used up no try.
    let attempt = match current.job.status() {
        Status::Pending => current.job.attempt(),
        _ => current.job.attempt() + 1,
    };
    let reason = Some("the venue was restarted".to_owned());
    let note = Note::Recovered { attempt: Some(attempt), reason };
    let mut draft = current.draft();
    draft.append(Change::new(Event::Noted(note), now)).map_err(unwritten)?;
    draft.with(offer(current.job.id(), now));
    Ok(draft)
}

async fn fail(engine: &Engine, current: Current, failure: Failure) -> Result<Done, StoreTrouble> {
    let now = engine.now();
    let mut draft = current.draft();
    match current.job.status() {
        // A job that must fail before it ever started is refused.
        Status::Pending => draft.append(Change::new(Event::Refused { error: failure.error }, now)),
        _ => draft.append(outcome(Err(failure), now)),
    }
    .map_err(unwritten)?;
    commit(engine, draft).await?;
    Ok(Done::Failed)
}

async fn pause(engine: &Engine, current: Current) -> Result<Done, StoreTrouble> {
    let now = engine.now();
    let mut change = Change::new(Event::Paused, now);
    let trigger = current.job.field("trigger");
    change.extra.push(("paused", paused(Status::Started, TurnState::Open, None, trigger)));
    change.extra.push(("deadline", deadline(now, engine.0.limits.interactive)));
    let mut draft = current.draft();
    draft.append(change).map_err(unwritten)?;
    commit(engine, draft).await?;
    Ok(Done::Left)
}

async fn commit(engine: &Engine, draft: Draft) -> Result<(), StoreTrouble> {
    match engine.commit(draft).await {
        // Somebody else has it already.
        Ok(_) | Err(CommitError::HeadMoved { .. } | CommitError::NoSuchJob { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Puts a job whose lease ended back on the queue. Whether it did.
pub(crate) async fn put_back(engine: &Engine, id: JobId) -> Result<bool, StoreTrouble> {
    let changed = engine
        .change(id, None, |current| match current.job.status() {
            Status::Pending | Status::Started => requeued(engine, current).map(Some),
            _ => Ok(None),
        })
        .await?;
    let did = matches!(changed, Changed::Done(_));
    if did {
        engine.has_queued();
    }
    Ok(did)
}

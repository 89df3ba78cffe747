//! Recovery: what was live when the venue stopped is found and goes on.
//!
//! Only live jobs are looked at, so the cost does not grow with history. A job that was never
//! STARTED is always put back. One that was follows its operation's rule. Those that wait for
//! somebody stay as they are.
//!
//! New work is not held up by it. What was live is found before anybody is let in; it is recovered
//! while others come, and each job is changed on the condition that nobody else changed it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::plan::OnFailure;
use catena_job::state::Event;
use catena_job::{Job, JobId, Status};
use catena_store::CommitError;
use futures_util::StreamExt as _;

use crate::adapter::{Cause, Failure};
use crate::change::{Changed, Current, Draft, waits_for_message};
use crate::engine::Engine;
use crate::error::{ControlError, ResolveError, StoreError};
use crate::operation::{Operation, Recovery};
use crate::recovery::{RecoverySummary, SKIPPED_NAMED_MAX, SkippedJob};
use crate::run::{Run, TurnState, paused, unwritten};
use crate::submit::{deadline, offer, outcome};

/// Live jobs read in one go.
const SCAN_BATCH: usize = 1_000;

/// Jobs whose changes are on their way to the store at the same time, so that they share syncs.
const AT_ONCE: usize = 512;

/// How long to wait before a job is tried again when the store had too much to do.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What was done with a job.
enum Done {
    Requeued,
    Failed,
    Left,
    Skipped(SkippedJob),
}

/// Every job that is live now: nobody has been let in yet, so they are all of the life before.
pub(crate) async fn find(engine: &Engine) -> Result<Vec<JobId>, StoreError> {
    let mut found: Vec<JobId> = Vec::new();
    loop {
        let page = engine.0.store.live(found.last().copied(), SCAN_BATCH).await?;
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    engine.0.leftover.fill(&found);
    let (count, now) = (found.len() as u64, engine.now());
    engine.0.heartbeat.store(now, Ordering::Relaxed);
    engine.0.recovery.send_modify(|summary| {
        summary.found = count;
        summary.began = now;
    });
    Ok(found)
}

/// There was nothing to recover.
pub(crate) fn nothing(engine: &Engine) {
    engine.0.recovery.send_modify(|summary| summary.took = Some(Duration::ZERO));
}

/// Recovers these jobs.
pub(crate) async fn recover(engine: &Engine, live: Vec<JobId>) {
    let begun = engine.0.env.monotonic();
    let jobs = futures_util::stream::iter(live);
    let mut done = jobs.map(|job| one(engine, job)).buffer_unordered(AT_ONCE);
    while let Some(done) = done.next().await {
        engine.0.recovery.send_modify(|summary| count(summary, done));
    }
    engine.0.leftover.clear();
    let took = engine.0.env.monotonic().saturating_sub(begun);
    engine.0.recovery.send_modify(|summary| summary.took = Some(took));
    let RecoverySummary { scanned, requeued, failed, skipped, left, .. } = engine.recovery();
    tracing::info!(scanned, requeued, failed, skipped, left, ?took, "live jobs recovered");
}

fn count(summary: &mut RecoverySummary, done: Done) {
    summary.scanned += 1;
    match done {
        Done::Requeued => summary.requeued += 1,
        Done::Failed => summary.failed += 1,
        Done::Left => summary.left += 1,
        Done::Skipped(skipped) => {
            summary.skipped += 1;
            if summary.skipped_jobs.len() < SKIPPED_NAMED_MAX {
                summary.skipped_jobs.push(skipped);
            }
        }
    }
}

/// Recovers one job, however long the store is busy.
async fn one(engine: &Engine, id: JobId) -> Done {
    loop {
        match attempt(engine, id).await {
            Ok(done) => return done,
            Err(StoreError::Busy | StoreError::Full | StoreError::Contended) => {
                engine.0.env.sleep(AGAIN_AFTER).await;
            }
            Err(trouble) => {
                tracing::error!(job = %id, %trouble, "a live job cannot be recovered");
                return Done::Skipped(SkippedJob {
                    job: id,
                    owner: String::new(),
                    op: String::new(),
                    reason: trouble.to_string(),
                });
            }
        }
    }
}

async fn attempt(engine: &Engine, id: JobId) -> Result<Done, StoreError> {
    let Some(current) = engine.current(id).await? else { return Ok(Done::Left) };
    // Whoever changed it in this life has seen to it. What is asked after the job was read holds
    // of what was read: a run holds the reins from before its first commit to after its last.
    if !engine.0.leftover.contains(id) || engine.0.running.get(id).is_some() {
        return Ok(Done::Left);
    }
    if let Some(reason) = orphaned(engine, &current.job).await? {
        tracing::info!(job = %id, reason, "a step outlived the job that it was a step of");
        return match engine.cancel(&engine.itself(), id, Some(reason)).await {
            Err(ControlError::Store(trouble)) => Err(trouble),
            _ => Ok(Done::Left),
        };
    }
    match current.job.status() {
        Status::Pending | Status::Started => {}
        status => {
            engine.adopt(&current.job);
            if waits_for_message(status) {
                go_on_waiting(engine, current).await?;
            }
            return Ok(Done::Left);
        }
    }
    let operation = match engine.operation_of(&current.job).await {
        Ok(operation) => operation,
        Err(ResolveError::Store(StoreError::Damaged(reason))) => {
            return fail(engine, current, incomplete(&reason)).await;
        }
        Err(ResolveError::Store(trouble)) => return Err(trouble),
        Err(reason) => return Ok(skip(engine, &current, &reason)),
    };
    if let Err(StoreError::Damaged(reason)) = engine.input_of(&current).await {
        return fail(engine, current, incomplete(&reason)).await;
    }
    decide(engine, current, &operation).await
}

/// Why a step must not go on, when the venue stopped after its job had ended and before it had ended
/// the step.
async fn orphaned(engine: &Engine, job: &Job) -> Result<Option<String>, StoreError> {
    let Some(parent) = job.parent() else { return Ok(None) };
    let Some(whole) = engine.current(parent.job).await? else {
        return Ok(Some("the job that it is a step of is gone".to_owned()));
    };
    let status = whole.job.status();
    if !status.is_terminal() {
        return Ok(None);
    }
    let operation = engine.operation_of(&whole.job).await.ok();
    let plan = operation.as_ref().and_then(|operation| operation.plan());
    let is_left = plan.is_some_and(|plan| plan.on_failure == OnFailure::Leave);
    match status == Status::Failed && is_left {
        true => Ok(None),
        false => Ok(Some(format!("the job that it is a step of is {status}"))),
    }
}

/// Leaves a job as it is and says why.
fn skip(engine: &Engine, current: &Current, reason: &ResolveError) -> Done {
    let job = current.job.id();
    tracing::warn!(%job, %reason, "a live job is left as it is: its operation is not here");
    engine.adopt(&current.job);
    Done::Skipped(SkippedJob {
        job,
        owner: current.text("caller").to_owned(),
        op: current.text("op").to_owned(),
        reason: format!("the operation is not here: {reason}"),
    })
}

/// A job that waits for somebody goes on when there is a message, or when it has steps that run.
async fn go_on_waiting(engine: &Engine, current: Current) -> Result<(), StoreError> {
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
        job: Arc::unwrap_or_clone(current.job),
        operation,
        cause: Cause::Retry,
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
) -> Result<Done, StoreError> {
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

async fn requeue(engine: &Engine, current: Current) -> Result<Done, StoreError> {
    let draft = requeued(engine, &current)?;
    if !commit(engine, draft).await? {
        return Ok(Done::Left);
    }
    engine.has_queued(&current.job);
    Ok(Done::Requeued)
}

/// The draft that puts a job back on the queue.
fn requeued(engine: &Engine, current: &Current) -> Result<Draft, StoreError> {
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

async fn fail(engine: &Engine, current: Current, failure: Failure) -> Result<Done, StoreError> {
    let now = engine.now();
    let mut draft = current.draft();
    match current.job.status() {
        // A job that must fail before it ever started is refused.
        Status::Pending => draft.append(Change::new(Event::Refused { error: failure.error }, now)),
        _ => draft.append(outcome(Err(failure), now)),
    }
    .map_err(unwritten)?;
    let did = commit(engine, draft).await?;
    Ok(if did { Done::Failed } else { Done::Left })
}

async fn pause(engine: &Engine, current: Current) -> Result<Done, StoreError> {
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

/// Whether it was this that changed the job, and not somebody else first.
async fn commit(engine: &Engine, draft: Draft) -> Result<bool, StoreError> {
    match engine.commit(draft).await {
        Ok(_) => Ok(true),
        Err(
            CommitError::HeadMoved { .. }
            | CommitError::NoSuchJob { .. }
            | CommitError::Ended { .. }
            | CommitError::QueueMoved { .. },
        ) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Puts a job whose lease ended back on the queue. Whether it did.
pub(crate) async fn put_back(engine: &Engine, id: JobId) -> Result<bool, StoreError> {
    let changed = engine
        .change(id, None, |current| match current.job.status() {
            Status::Pending | Status::Started => requeued(engine, current).map(Some),
            _ => Ok(None),
        })
        .await?;
    let Changed::Done(view) = changed else { return Ok(false) };
    engine.has_queued(&view.job);
    Ok(true)
}

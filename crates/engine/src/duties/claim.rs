//! Claims jobs from the queue and runs them, as many as there are places for.
//!
//! A claim is a lease: it ends unless it is renewed, and everything that is written under it shows
//! its fence. Jobs come here when there was no place for them at once, when recovery put them back,
//! or when a message arrived and all places were taken.

use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::{Claim, CommitError, Effect, Effects};
use tokio::sync::OwnedSemaphorePermit;

use crate::adapter::Cause;
use crate::change::Current;
use crate::engine::Engine;
use crate::error::{ResolveError, StoreError};
use crate::message::is_answering;
use crate::operation::Operation;
use crate::resume::left_until;
use crate::run::{Run, unwritten};
use crate::running::Held;
use crate::submit::{QUEUE, deadline, outcome};

/// How many claim at the same time, so that claims share syncs.
pub(crate) const CLAIMERS: usize = 16;

/// How long a lease lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// How often the queue is looked at when nobody said that there is something on it: only another
/// process could have put it there.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long after a failure a claimer tries again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Claims and runs, again and again.
pub(crate) async fn claim(engine: Engine) {
    loop {
        let Ok(slot) = Arc::clone(&engine.0.slots).acquire_owned().await else { return };
        match claim_one(&engine, slot).await {
            Ok(true) => {}
            Ok(false) => {
                tokio::select! {
                    () = engine.0.queued.notified() => {}
                    () = engine.0.env.sleep(LOOK_EVERY) => {}
                }
            }
            Err(trouble) => {
                tracing::error!(%trouble, "the queue cannot be claimed from");
                engine.0.env.sleep(AGAIN_AFTER).await;
            }
        }
    }
}

/// Claims one job and begins to run it. Whether there was one.
async fn claim_one(engine: &Engine, slot: OwnedSemaphorePermit) -> Result<bool, StoreError> {
    let now = engine.now();
    let until = now + i64::try_from(LEASE.as_millis()).unwrap_or(0);
    let Some(claim) = engine.0.store.claim(QUEUE, &engine.0.worker, now, until).await? else {
        return Ok(false);
    };
    // There may be more: let another claimer look.
    engine.0.queued.notify_one();
    let id = claim.job;
    let running = &engine.0.running;
    let held = running.take_after_lookers(id, Some(claim.fence), &engine.0.env).await;
    engine.0.waiting.take(id);
    let Some(held) = held else {
        // It runs here already; what it was queued for is done by whoever has it.
        withdraw(engine, id).await?;
        return Ok(true);
    };
    match begin(engine, &claim, held, slot).await {
        Ok(Some(run)) => engine.spawn(run.carry_out(engine.clone())),
        Ok(None) => {}
        Err(trouble) => tracing::error!(job = %id, %trouble, "a claimed job cannot begin"),
    }
    Ok(true)
}

async fn withdraw(engine: &Engine, job: JobId) -> Result<(), StoreError> {
    match engine.0.store.commit(Effects::one(Effect::Withdraw { job })).await {
        Ok(_) | Err(CommitError::NoSuchJob { .. } | CommitError::Ended { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn begin(
    engine: &Engine,
    claim: &Claim,
    held: Held,
    slot: OwnedSemaphorePermit,
) -> Result<Option<Run>, StoreError> {
    let id = claim.job;
    let Some(current) = engine.current(id).await? else { return Ok(None) };
    let operation = match engine.operation_of(&current.job).await {
        Ok(operation) => operation,
        Err(ResolveError::Store(trouble)) => return Err(trouble),
        Err(reason) => {
            tracing::warn!(job = %id, %reason, "a job's operation is not here; it is left alone");
            withdraw(engine, id).await?;
            return Ok(None);
        }
    };
    let mut run = match current.job.status() {
        Status::Pending => begun(engine, current, held, operation).await?,
        Status::Started => again(engine, current, held, operation).await?,
        Status::InputRequired | Status::AuthRequired => {
            let waiting = engine.0.store.messages(id, 1).await?.into_iter().next();
            match waiting {
                Some(message) => engine.answered(current, message, held, operation).await?,
                None => None,
            }
        }
        _ => None,
    };
    match &mut run {
        Some(run) => run.slot = Some(slot),
        None => withdraw(engine, id).await?,
    }
    Ok(run)
}

/// A job that begins.
async fn begun(
    engine: &Engine,
    current: Current,
    held: Held,
    operation: Arc<Operation>,
) -> Result<Option<Run>, StoreError> {
    let now = engine.now();
    let left = engine.limit_of(&current.job, &operation);
    let mut change = Change::new(Event::Started, now);
    change.extra.push(("deadline", deadline(now, left)));
    let mut draft = current.draft();
    draft.fenced(held.reins.fence);
    draft.append(change).map_err(unwritten)?;
    let input = engine.input_of(&current).await?;
    let view = match engine.commit(draft).await {
        Ok((view, _)) => view,
        Err(CommitError::HeadMoved { .. } | CommitError::Fenced { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(Run {
        job: (*view.job).clone(),
        cells: view.cells,
        caller: engine.owner_of(&current.job),
        operation,
        input,
        cause: Cause::Start,
        left,
        held,
        slot: None,
    }))
}

/// A job that was running before.
async fn again(
    engine: &Engine,
    current: Current,
    held: Held,
    operation: Arc<Operation>,
) -> Result<Option<Run>, StoreError> {
    let limit = engine.limit_of(&current.job, &operation);
    let cause = match is_answering(&current.job) {
        true => engine.last_message(&current).await?.map_or(Cause::Retry, Cause::Message),
        false => Cause::Retry,
    };
    let input = match engine.input_of(&current).await {
        Ok(input) => input,
        Err(StoreError::Damaged(reason)) => {
            incomplete(engine, &current, held.reins.fence, &reason).await?;
            return Ok(None);
        }
        Err(trouble) => return Err(trouble),
    };
    Ok(Some(Run {
        left: left_until(current.number("deadline"), engine.now(), limit),
        cells: current.cells.clone(),
        caller: engine.owner_of(&current.job),
        job: Arc::unwrap_or_clone(current.job),
        operation,
        input,
        cause,
        held,
        slot: None,
    }))
}

/// A job whose payload cannot be read fails, and says so.
async fn incomplete(
    engine: &Engine,
    current: &Current,
    fence: Option<u64>,
    reason: &str,
) -> Result<(), StoreError> {
    let mut draft = current.draft();
    draft.fenced(fence);
    let failure = crate::adapter::Failure::new(
        "incomplete_payload",
        format!("the job cannot be run: its payload is incomplete ({reason})"),
    );
    draft.append(outcome(Err(failure), engine.now())).map_err(unwritten)?;
    match engine.commit(draft).await {
        Ok(_) | Err(CommitError::HeadMoved { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

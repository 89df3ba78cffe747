//! Runs the next turn of a job that waits for a message.
//!
//! A message is consumed when the job waits for one: the record that makes the job STARTED again
//! contains the message, which leaves the queue in the same commit.

use std::sync::Arc;

use catena_job::JobId;
use catena_job::chain::Change;
use catena_job::state::Event;
use catena_store::{Effect, Effects, Message};
use catena_value::Value;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::{ResolveError, StoreError};
use crate::execution::{Execution, Run, RunGuard, RunSpec, offer};
use crate::jobs::{
    CREDENTIALS, Current, append_error, deadline, recorded_limit, redacted_paths, unless_overtaken,
    waits_for_message,
};
use crate::operations::{Cause, Operation};
use crate::runtime::Task;

/// The result of an attempt to consume a message.
enum Consumed {
    /// A turn to run.
    Run(Box<Run>),
    /// There was no message, or another process consumed it.
    Nothing,
    /// The job does not wait for a message.
    NotWaiting,
    /// The job was queued, is gone, or the process stops.
    Deferred,
}

impl Execution {
    /// Runs the next turn of a job that waits for a message, if there is one. Boxed, because the
    /// turn may end here again.
    pub(crate) fn wake(self: &Arc<Self>, id: JobId, slot: Option<OwnedSemaphorePermit>) -> Task {
        let execution = Arc::clone(self);
        Box::pin(async move { execution.consume_messages(id, slot).await })
    }

    async fn consume_messages(self: &Arc<Self>, id: JobId, slot: Option<OwnedSemaphorePermit>) {
        let mut slot = slot;
        loop {
            // The holder of the claim checks for messages before and after releasing it.
            let Some(guard) = self.registry.try_claim_idle(id) else {
                return self.jobs.notify_driver(id);
            };
            match self.consume_message(id, guard, &mut slot).await {
                Ok(Consumed::Run(run)) => {
                    run.guard.handle.mark_running();
                    return self.runtime.spawn(run.execute(Arc::clone(self)));
                }
                Ok(Consumed::Nothing) => {}
                // A run that made the job wait meanwhile found it claimed and left it to us.
                Ok(Consumed::NotWaiting) => match self.jobs.current(id).await {
                    Ok(Some(current)) if waits_for_message(current.job.status()) => {}
                    _ => return,
                },
                Ok(Consumed::Deferred) => return,
                Err(error) => {
                    tracing::error!(job = %id, %error, "cannot consume a message");
                    return;
                }
            }
            match self.jobs.store.messages(id, 1).await {
                Ok(queued) if !queued.is_empty() => {}
                _ => return,
            }
        }
    }

    async fn consume_message(
        &self,
        id: JobId,
        guard: RunGuard,
        slot: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Consumed, StoreError> {
        let Some(current) = self.jobs.current(id).await? else { return Ok(Consumed::Deferred) };
        if self.runtime.is_stopping() {
            return Ok(Consumed::Deferred);
        }
        if !waits_for_message(current.job.status()) {
            return Ok(Consumed::NotWaiting);
        }
        let queued = self.jobs.store.messages(id, 1).await?;
        let Some(message) = queued.into_iter().next() else { return Ok(Consumed::Nothing) };
        let Some(claimed) = slot.take().or_else(|| self.try_claim_slot()) else {
            self.jobs.store.commit(Effects::one(offer(id, self.runtime.now()))).await?;
            self.notify_queued(&current.job);
            return Ok(Consumed::Deferred);
        };
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error),
            Err(reason) => {
                tracing::warn!(job = %id, %reason, "a waiting job has no operation at this venue");
                return Ok(Consumed::Deferred);
            }
        };
        match self.start_answer(current, message, guard, operation).await? {
            Some(run) => Ok(Consumed::Run(Box::new(run.with_slot(claimed)))),
            None => {
                *slot = Some(claimed);
                Ok(Consumed::Nothing)
            }
        }
    }

    /// Commits that a message is consumed and returns the run of its turn. `None` if the job has
    /// changed meanwhile.
    pub(crate) async fn start_answer(
        &self,
        current: Current,
        message: Message,
        guard: RunGuard,
        operation: Arc<Operation>,
    ) -> Result<Option<Run>, StoreError> {
        let id = current.job.id();
        let opened = self.jobs.open_message(id, &message);
        let now = self.runtime.now();
        let time_left = recorded_limit(&self.runtime.limits, &current.job, &operation);
        let mut change = Change::new(Event::Answered, now);
        change.trigger = Some(opened.trigger);
        change.extra.push(("received", opened.public));
        change.extra.push(("deadline", deadline(now, time_left)));
        let mut draft = current.draft();
        if let Some(sealed) = &opened.sealed {
            let paths = vec![Value::from(format!("/received/{CREDENTIALS}"))];
            change.extra.push(("redacted", redacted_paths(current.job.field("redacted"), paths)));
            draft.add(self.jobs.store_more_secrets(id, CREDENTIALS, sealed).await?);
        }
        draft.set_fence(guard.handle.fence);
        draft.append(change).map_err(append_error)?;
        draft.add(Effect::TakeMessage { job: id, number: message.number });
        let input = self.jobs.input_of(&current).await?;
        let Some(committed) = unless_overtaken(self.jobs.commit(draft).await)? else {
            return Ok(None);
        };
        let view = committed.view;
        let spec = RunSpec {
            operation,
            caller: self.jobs.owner_of(&current.job),
            input,
            cause: Cause::Message(opened.complete),
            time_left,
        };
        Ok(Some(Run::new((*view.job).clone(), view.cells, spec, guard)))
    }
}

//! Runs the next turn of a job that waits for a message.
//!
//! A message is consumed when the job waits for one: the record that makes the job STARTED again
//! contains the message, which leaves the queue in the same commit. Whoever queues a message, and
//! whoever makes a job wait for one, checks afterwards whether the other came first; of two that
//! find a message, the store lets one consume it.

use std::sync::Arc;

use catena_job::JobId;
use catena_job::chain::Change;
use catena_job::state::Event;
use catena_store::{Effect, Effects, Message};
use catena_value::Value;

use crate::error::{ResolveError, StoreError};
use crate::execution::{Execution, Run, RunSpec, offer};
use crate::jobs::{
    CREDENTIALS, Current, append_error, deadline, recorded_limit, redacted_paths, unless_overtaken,
    waits_for_message,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::{Cause, Operation};
use crate::runtime::Task;

/// The result of an attempt to consume a message.
enum Consumed {
    /// A turn to run.
    Run(Box<Run>),
    /// The job changed meanwhile.
    Conflict,
    /// There is nothing to do here.
    Nothing,
}

impl Execution {
    /// Runs the next turn of a job that waits for a message, if there is one. Boxed, because the
    /// turn may end here again.
    pub(crate) fn wake(self: &Arc<Self>, id: JobId) -> Task {
        let execution = Arc::clone(self);
        Box::pin(async move {
            if let Err(error) = execution.consume_messages(id).await {
                tracing::error!(job = %id, %error, "cannot consume a message");
            }
        })
    }

    async fn consume_messages(self: &Arc<Self>, id: JobId) -> Result<(), StoreError> {
        for _ in 0..CONTENTION_TRIES_MAX {
            match self.consume_message(id).await? {
                Consumed::Run(run) => {
                    self.runtime.spawn(run.execute(Arc::clone(self)));
                    return Ok(());
                }
                Consumed::Nothing => return Ok(()),
                Consumed::Conflict => {}
            }
        }
        Err(StoreError::Contended)
    }

    async fn consume_message(self: &Arc<Self>, id: JobId) -> Result<Consumed, StoreError> {
        let Some(current) = self.jobs.current(id).await? else { return Ok(Consumed::Nothing) };
        if self.runtime.is_stopping() || !waits_for_message(current.job.status()) {
            // A driver that waits for its steps forwards the message when one of them asks.
            self.jobs.notify_driver(id);
            return Ok(Consumed::Nothing);
        }
        let Some(message) = self.jobs.store.messages(id, 1).await?.into_iter().next() else {
            return Ok(Consumed::Nothing);
        };
        let operation = match self.operations.operation_of(&current.job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error),
            Err(reason) => {
                tracing::warn!(job = %id, %reason, "a waiting job has no operation at this venue");
                return Ok(Consumed::Nothing);
            }
        };
        if operation.plan().is_some() {
            if let Some(plans) = self.plan_runner() {
                plans.drive(id).await;
            }
            return Ok(Consumed::Nothing);
        }
        if let Some(called) = self.asking_call(&current.job).await? {
            let forwarded = self.forward_to_call(&current, called, message).await?;
            return Ok(if forwarded { Consumed::Nothing } else { Consumed::Conflict });
        }
        let Some(slot) = self.try_claim_slot() else {
            let queued = Effects::one(offer(id, self.runtime.now()));
            unless_overtaken(self.jobs.store.commit(queued).await)?;
            self.notify_queued();
            return Ok(Consumed::Nothing);
        };
        match self.start_answer(current, message, operation).await? {
            Some(run) => Ok(Consumed::Run(Box::new(run.with_slot(slot)))),
            None => Ok(Consumed::Conflict),
        }
    }

    /// Commits that a message is consumed and returns the run of its turn. `None` if the job has
    /// changed meanwhile.
    pub(crate) async fn start_answer(
        &self,
        current: Current,
        message: Message,
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
        draft.append(change).map_err(append_error)?;
        draft.add(Effect::TakeMessage { job: id, number: message.number });
        let guard = self.acquire(&mut draft);
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

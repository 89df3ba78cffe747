//! Runs the next turn of a job that waits for a message.
//!
//! A message is consumed when the job waits for one: the record that makes the job STARTED again
//! contains the message, which leaves the queue in the same commit. Whoever queues a message, and
//! whoever makes a job wait for one, checks afterwards whether the other came first; of two that
//! find a message, the store lets one consume it.

use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_job::chain::Change;
use catena_job::state::Event;
use catena_store::{Effect, Effects, Hold, Message};
use catena_value::Value;

use crate::error::{ResolveError, StoreError};
use crate::execution::{Execution, Run, RunSpec, offer_now};
use crate::jobs::{
    CREDENTIALS, Current, Draft, OpenedMessage, append_error, deadline, recorded_limit,
    redacted_paths, unless_overtaken, waits_for_message,
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
                    self.runtime.spawn_task(run.execute(Arc::clone(self)));
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
        if operation.queue().is_some() {
            return self.queue_answer(&current, message, &operation).await;
        }
        let Some(slot) = self.try_claim_slot(current.text("caller")) else {
            let queued = Effects::one(offer_now(&current.job, self.runtime.now()));
            unless_overtaken(self.jobs.store.commit(queued).await)?;
            self.notify_queued(&current.job);
            return Ok(Consumed::Nothing);
        };
        match self.start_answer(current, message, operation).await? {
            Some(run) => Ok(Consumed::Run(Box::new(run.with_slot(slot)))),
            None => Ok(Consumed::Conflict),
        }
    }

    /// Commits that a message is consumed and offers the job to the workers of its queue.
    async fn queue_answer(
        &self,
        current: &Current,
        message: Message,
        operation: &Operation,
    ) -> Result<Consumed, StoreError> {
        let id = current.job.id();
        let message = self.jobs.settle_message(id, current.job.status(), message)?;
        let opened = self.jobs.open_message(id, &message);
        let time_left = recorded_limit(&self.runtime.limits, &current.job, operation);
        let mut draft = self.answer_draft(current, &message, opened, time_left).await?.0;
        draft.set_hold(Hold::Vacant(current.hold.fence));
        draft.add(offer_now(&current.job, self.runtime.now()));
        if unless_overtaken(self.jobs.commit(draft).await)?.is_none() {
            return Ok(Consumed::Conflict);
        }
        self.notify_queued(&current.job);
        Ok(Consumed::Nothing)
    }

    /// Returns the change by which a message is consumed, and the complete message.
    async fn answer_draft(
        &self,
        current: &Current,
        message: &Message,
        opened: OpenedMessage,
        time_left: Duration,
    ) -> Result<(Draft, Value), StoreError> {
        let id = current.job.id();
        let now = self.runtime.now();
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
        Ok((draft, opened.complete))
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
        let message = self.jobs.settle_message(id, current.job.status(), message)?;
        let opened = self.jobs.open_message(id, &message);
        let time_left = recorded_limit(&self.runtime.limits, &current.job, &operation);
        let (mut draft, complete) =
            self.answer_draft(&current, &message, opened, time_left).await?;
        let guard = self.acquire(&mut draft);
        let input = self.jobs.input_of(&current).await?;
        let caller = self.jobs.caller_of(&current.job).await?;
        let Some(committed) = unless_overtaken(self.jobs.commit(draft).await)? else {
            return Ok(None);
        };
        let view = committed.view;
        let spec = RunSpec { operation, caller, input, cause: Cause::Message(complete), time_left };
        Ok(Some(Run::new(view.job, view.cells, spec, guard)))
    }
}

//! Messages of an orchestration to a remote step.
//!
//! A message stays first in the parent's queue while it is sent to the job there under its own ID.
//! Only when the other venue has replied does one commit remove it from the queue and record it.
//! After a crash in between it is sent again, and the other venue recognises the ID. Credentials are
//! never sent: they do not leave this venue.

use std::sync::Arc;

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::state::Event;
use catena_job::{JobId, RecordId, Status};
use catena_store::{Effect, Message};
use catena_value::{Map, NoCells, Value};

use crate::error::StoreError;
use crate::jobs::{
    Current, append_error, message_record, truncate_text, unless_overtaken, waits_for_message,
};
use crate::operations::Failure;
use crate::operations::federation::{Delivery, RemoteJob};
use crate::orchestration::Orchestration;
use crate::orchestration::driver::{Next, OrchestrationDriver};
use crate::orchestration::remote::RemoteEvent;

/// A message that is being delivered to a remote step.
pub(in crate::orchestration) struct PendingDelivery {
    step: u32,
    number: u64,
    /// The record with which the step asked for it.
    asked: RecordId,
    /// A change of the step during the delivery, which may be its reaction to this message.
    changed: Option<Box<RemoteJob>>,
    /// The outcome, or a failure if the venue did not answer. `None` while the message is being sent.
    delivery: Option<Result<Delivery, Failure>>,
}

/// Returns true if a message may be sent to another venue.
fn may_leave(message: &Message) -> bool {
    message.body.as_map().is_none_or(|body| body.field("sealed").is_none())
}

/// Why a message with credentials is not sent.
const CREDENTIALS_STAY: &str =
    "credentials are not sent to other venues; send them to the job there";

impl Orchestration {
    /// Returns the remote job that the next message to a job goes to, and its venue's DID. `None` if
    /// the message goes to a local job.
    pub(crate) async fn remote_recipient(
        &self,
        current: &Current,
    ) -> Result<Option<(JobId, String)>, StoreError> {
        if !waits_for_message(current.job.status()) {
            return Ok(None);
        }
        for (step, state) in current.job.steps().iter().filter(|(_, state)| state.end.is_none()) {
            if state.start.venue.is_some() {
                let known = self
                    .jobs
                    .remote_snapshot(current.job.id(), *step)
                    .await?
                    .map(|(known, _)| known);
                if let Some(known) = known.filter(|known| waits_for_message(known.state.status)) {
                    return Ok(Some((known.job, known.venue)));
                }
            } else if let Some(child) = self.jobs.current(state.start.job).await?
                && waits_for_message(child.job.status())
            {
                return Box::pin(self.remote_recipient(&child)).await;
            }
        }
        Ok(None)
    }
}

impl OrchestrationDriver {
    /// Notes an event that concerns the pending delivery. Returns all other events.
    pub(in crate::orchestration) fn note_delivery(
        &mut self,
        step: u32,
        event: RemoteEvent,
    ) -> Option<RemoteEvent> {
        match (self.delivery.as_mut(), event) {
            (Some(pending), RemoteEvent::Changed(state))
                if pending.step == step && pending.delivery.is_none() =>
            {
                pending.changed = Some(state);
                None
            }
            (Some(pending), RemoteEvent::Delivered { number, delivery })
                if pending.number == number =>
            {
                pending.delivery = Some(delivery);
                None
            }
            (_, RemoteEvent::Delivered { .. }) => None,
            (_, event) => Some(event),
        }
    }

    /// Sends a message to the remote step that waits for one.
    pub(in crate::orchestration) async fn forward_to_remote(
        &mut self,
        orchestration: &Arc<Orchestration>,
        message: Message,
    ) -> Result<Option<Next>, StoreError> {
        let Some((step, _)) = self.state.asking() else { return Ok(Some(Next::Listen)) };
        if !may_leave(&message) {
            let refused =
                self.record_message(orchestration, step, &message, Some(CREDENTIALS_STAY)).await?;
            return Ok(refused.then_some(Next::Listen));
        }
        if self.delivery.is_some() {
            return Ok(Some(Next::Listen));
        }
        let Some(known) = self.state.snapshot(step) else { return Ok(Some(Next::Listen)) };
        let number = message.number;
        let asked = known.state.record;
        let control = orchestration.control_of(&self.run.guard);
        let outgoing = (number, outgoing_message(&message)?);
        orchestration.deliver_remote(self.run.job.id(), step, outgoing, known, control);
        let pending = PendingDelivery { step, number, asked, changed: None, delivery: None };
        self.delivery = Some(pending);
        Ok(Some(Next::Listen))
    }

    /// Records the outcome of the pending delivery. Returns `None` if there is nothing to record,
    /// and false if the job has changed.
    pub(in crate::orchestration) async fn record_delivery(
        &mut self,
        orchestration: &Orchestration,
    ) -> Result<Option<bool>, StoreError> {
        let status = self.run.job.status();
        let may_record = waits_for_message(status) || status == Status::Started;
        let is_recordable =
            |pending: &mut PendingDelivery| pending.delivery.is_some() && may_record;
        let Some(pending) = self.delivery.take_if(is_recordable) else { return Ok(None) };
        let (jobs, id) = (&orchestration.jobs, self.run.job.id());
        let first = jobs.store.messages(id, 1).await?.into_iter().next();
        let message = first.filter(|message| message.number == pending.number);
        let settle = |message| jobs.settle_message(id, Status::InputRequired, message);
        let message = message.map(settle).transpose()?;
        let done = match (&pending.delivery, message) {
            (Some(Ok(delivery)), Some(message)) => {
                let refused = match delivery {
                    Delivery::Accepted => None,
                    Delivery::Refused(failure) => Some(failure.error.as_str()),
                };
                let done =
                    self.record_message(orchestration, pending.step, &message, refused).await?;
                if done && refused.is_none() {
                    self.state.mark_answered(pending.step, pending.asked);
                }
                done
            }
            // The venue does not answer: the message stays in the queue.
            _ => true,
        };
        if !done {
            // It was sent but not recorded, so it is not sent again.
            self.delivery = Some(pending);
            return Ok(Some(false));
        }
        if let Some(state) = pending.changed {
            let event = RemoteEvent::Changed(state);
            let now = orchestration.runtime.now();
            self.state.update_remote(&self.run.job, pending.step, event, now);
        }
        self.remote_tasks.sync(pending.step).nudge.notify_one();
        Ok(Some(true))
    }

    /// Removes a message from the queue and records it as accepted by the step or as refused.
    /// Returns false if the job has changed.
    pub(in crate::orchestration) async fn record_message(
        &mut self,
        orchestration: &Orchestration,
        step: u32,
        message: &Message,
        refused: Option<&str>,
    ) -> Result<bool, StoreError> {
        let (trigger, public) = message_record(message);
        let is_answer = refused.is_none() && waits_for_message(self.run.job.status());
        let event = if is_answer { Event::Answered } else { Event::Noted(Note::Message) };
        let mut change = Change::new(event, orchestration.runtime.now());
        change.trigger = Some(trigger);
        if is_answer {
            change.extra.push(("received", public));
        }
        if let Some(refused) = refused {
            let text = format!(
                "{}; the last message was refused: {refused}",
                self.state.waiting_message(step)
            );
            change.extra.push(("message", truncate_text(&text).into()));
        }
        let current = self.current();
        let mut draft = current.draft();
        draft.append(change).map_err(append_error)?;
        draft.add(Effect::TakeMessage { job: self.run.job.id(), number: message.number });
        draft.set_hold(catena_store::Hold::Under(self.run.guard.handle.fence));
        let committed = unless_overtaken(orchestration.jobs.commit(draft).await)?;
        let Some(committed) = committed else { return Ok(false) };
        self.run.job = Arc::clone(&committed.view.job);
        Ok(true)
    }
}

/// Returns a message as it is sent: without credentials, under the ID it has here.
fn outgoing_message(message: &Message) -> Result<Value, StoreError> {
    let (_, public) = message_record(message);
    let members: Map = public.as_map().cloned().unwrap_or_default();
    let members = members.insert("messageId".into(), message.id.as_str().into(), &NoCells);
    members.map(Value::from).map_err(|error| StoreError::Damaged(error.to_string()))
}

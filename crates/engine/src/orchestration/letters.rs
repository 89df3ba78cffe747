//! Messages to the whole that are for a step on another venue.
//!
//! A message stays first on the whole's queue while it is offered to the job there, under its own
//! ID; only when that has answered does one commit take it from the queue and record it. A crash in
//! between offers it again, which the other venue knows by the ID. Credentials are never offered:
//! they do not leave this venue.

use catena_job::chain::Change;
use catena_job::note::Note;
use catena_job::state::Event;
use catena_job::{JobId, RecordId, Status};
use catena_store::{CommitError, Effect, Message};
use catena_value::{Map, NoCells, Value};

use super::remote::Tidings;
use super::weaver::{Next, Weaver};
use crate::adapter::Failure;
use crate::change::{Current, cut, waits_for_message};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::federation::{Delivery, RemoteJob};
use crate::run::unwritten;

/// A message that is on its way to a step on another venue.
pub(crate) struct Letter {
    step: u32,
    number: u64,
    /// The record with which the step asked.
    asked: RecordId,
    /// What was heard of the step meanwhile: it may be about this message.
    heard: Option<Box<RemoteJob>>,
    /// What became of it.
    delivery: Option<Result<Delivery, Failure>>,
}

/// Whether a message is offered to another venue.
pub(crate) fn may_leave(message: &Message) -> bool {
    message.body.as_map().is_none_or(|body| body.field("sealed").is_none())
}

/// Why one is not.
pub(crate) const CREDENTIALS_STAY: &str =
    "credentials are not sent to other venues; send them to the job there";

impl Engine {
    /// The job on another venue that the next message to a job goes to, and the venue's DID;
    /// nothing when it goes to one here.
    pub(crate) async fn asks_from_elsewhere(
        &self,
        whole: &Current,
    ) -> Result<Option<(JobId, String)>, StoreError> {
        if !waits_for_message(whole.job.status()) {
            return Ok(None);
        }
        for (step, state) in whole.job.steps().iter().filter(|(_, state)| state.end.is_none()) {
            if state.start.venue.is_some() {
                let known = self.snapshot(whole.job.id(), *step).await?.map(|(known, _)| known);
                if let Some(known) = known.filter(|known| waits_for_message(known.seen.status)) {
                    return Ok(Some((known.job, known.venue)));
                }
            } else if let Some(child) = self.current(state.start.job).await?
                && waits_for_message(child.job.status())
            {
                return Box::pin(self.asks_from_elsewhere(&child)).await;
            }
        }
        Ok(None)
    }
}

impl Weaver {
    /// Hears what concerns the message that is on its way; gives back what does not.
    pub(super) fn hear_of_letter(&mut self, step: u32, tidings: Tidings) -> Option<Tidings> {
        match (self.letter.as_mut(), tidings) {
            (Some(letter), Tidings::Seen(seen))
                if letter.step == step && letter.delivery.is_none() =>
            {
                letter.heard = Some(seen);
                None
            }
            (Some(letter), Tidings::Delivered { number, delivery }) if letter.number == number => {
                letter.delivery = Some(delivery);
                None
            }
            (_, Tidings::Delivered { .. }) => None,
            (_, tidings) => Some(tidings),
        }
    }

    /// Offers a message to the step on another venue that waits for one.
    pub(super) async fn route_away(
        &mut self,
        engine: &Engine,
        message: Message,
    ) -> Result<Option<Next>, StoreError> {
        let Some((step, _)) = self.weave.asking() else { return Ok(Some(Next::Listen)) };
        if !may_leave(&message) {
            let refused = self.record(engine, step, &message, Some(CREDENTIALS_STAY)).await?;
            return Ok(refused.then_some(Next::Listen));
        }
        if self.letter.is_some() {
            return Ok(Some(Next::Listen));
        }
        let Some(known) = self.weave.snapshot(step) else { return Ok(Some(Next::Listen)) };
        let (number, asked) = (message.number, known.seen.record);
        let control = self.run.held.reins.control(&engine.0.env);
        let offered = (number, offered(&message)?);
        engine.deliver_out(self.run.job.id(), step, offered, known, control);
        self.letter = Some(Letter { step, number, asked, heard: None, delivery: None });
        Ok(Some(Next::Listen))
    }

    /// Records what became of the message that was on its way. Nothing when there is nothing to
    /// record now; false when the job is no longer what we know.
    pub(super) async fn settle(&mut self, engine: &Engine) -> Result<Option<bool>, StoreError> {
        let status = self.run.job.status();
        let may_record = waits_for_message(status) || status == Status::Started;
        let Some(letter) = self.letter.take_if(|letter| letter.delivery.is_some() && may_record)
        else {
            return Ok(None);
        };
        let first = engine.0.store.messages(self.run.job.id(), 1).await?.into_iter().next();
        let message = first.filter(|message| message.number == letter.number);
        let done = match (&letter.delivery, message) {
            (Some(Ok(delivery)), Some(message)) => {
                let refused = match delivery {
                    Delivery::Taken => None,
                    Delivery::Refused(failure) => Some(failure.error.as_str()),
                };
                let done = self.record(engine, letter.step, &message, refused).await?;
                if done && refused.is_none() {
                    self.weave.is_answered(letter.step, letter.asked);
                }
                done
            }
            // The venue does not answer: the message waits where it is.
            _ => true,
        };
        if !done {
            // Offered, but not recorded: it is not offered again for that.
            self.letter = Some(letter);
            return Ok(Some(false));
        }
        if let Some(seen) = letter.heard {
            let tidings = Tidings::Seen(seen);
            self.weave.learn_remote(&self.run.job, letter.step, tidings, engine.now());
        }
        self.envoys.post(letter.step).nudge.notify_one();
        Ok(Some(true))
    }

    /// Takes a message from the queue and records it: as taken by the step, or as refused. Whether
    /// the job was what we know.
    async fn record(
        &mut self,
        engine: &Engine,
        step: u32,
        message: &Message,
        refused: Option<&str>,
    ) -> Result<bool, StoreError> {
        let (trigger, shown) = crate::message::shown(message);
        let is_answer = refused.is_none() && waits_for_message(self.run.job.status());
        let event = if is_answer { Event::Answered } else { Event::Noted(Note::Message) };
        let mut change = Change::new(event, engine.now());
        change.trigger = Some(trigger);
        if is_answer {
            change.extra.push(("received", shown));
        }
        if let Some(refused) = refused {
            let text =
                format!("{}; the last message was not taken: {refused}", self.weave.asked(step));
            change.extra.push(("message", cut(&text).into()));
        }
        let current = self.current();
        let mut draft = current.draft();
        draft.append(change).map_err(unwritten)?;
        draft.with(Effect::Take { job: self.run.job.id(), number: message.number });
        draft.fenced(self.run.held.reins.fence);
        match engine.commit(draft).await {
            Ok((view, _)) => {
                self.run.job = (*view.job).clone();
                Ok(true)
            }
            Err(
                CommitError::HeadMoved { .. }
                | CommitError::NotNext { .. }
                | CommitError::Ended { .. }
                | CommitError::NoSuchJob { .. },
            ) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// A message as it is offered: what was said, under the ID it has here.
fn offered(message: &Message) -> Result<Value, StoreError> {
    let (_, said) = crate::message::shown(message);
    let said: Map = said.as_map().cloned().unwrap_or_default();
    let said = said.insert("messageId".into(), message.id.as_str().into(), &NoCells);
    said.map(Value::from).map_err(|error| StoreError::Damaged(error.to_string()))
}

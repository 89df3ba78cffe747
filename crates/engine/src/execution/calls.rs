//! The calls of a job whose turn ends or asks.

use std::sync::Arc;
use std::time::Duration;

use catena_job::chain::Change;
use catena_job::note::{CallEnd, Note};
use catena_job::state::{Ask, Event};
use catena_job::{Job, JobId, Status};
use catena_store::{Effect, Hold, Message};
use catena_value::Value;

use crate::error::{ControlError, StoreError};
use crate::execution::record::TurnOutcome;
use crate::execution::{Execution, offer_now};
use crate::jobs::{
    Current, append_error, is_live, left_ms, message_record, restart_clock, stop_clock,
    truncate_text, unless_overtaken, waits_for_message,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::requests::JobView;

/// Returns the calls of a job that have not ended and that it does not leave behind.
fn open_calls(job: &Job) -> Vec<(u32, JobId)> {
    let open = job.calls().iter().filter(|call| call.end.is_none() && !call.start.is_detached);
    open.map(|call| (call.start.call, call.start.job)).collect()
}

/// Returns the change by which a job asks for what one of its calls asks for.
pub(crate) fn ask_like_call(
    current: &Current,
    key: &str,
    called: &JobView,
    now: i64,
    interactive: Duration,
) -> Change {
    let message = called.job.field("message").and_then(Value::to_text);
    let text = match message {
        Some(message) => format!("call {key} waits: {message}"),
        None => format!("call {key} waits"),
    };
    let output = called.job.field("output").cloned();
    let output = output.and_then(|output| output.fully_loaded(called.cells()).ok());
    let ask = Ask { message: Some(truncate_text(&text)), output };
    let event = match called.status() {
        Status::AuthRequired => Event::AskedForAuth(ask),
        _ => Event::AskedForInput(ask),
    };
    let mut change = Change::new(event, now);
    stop_clock(&current.job, now, interactive, &mut change);
    change
}

impl Execution {
    /// Ends the calls that a turn left open, and records their ends. A turn that asks keeps them.
    pub(crate) async fn end_open_calls(
        self: &Arc<Self>,
        id: JobId,
        fence: u64,
        outcome: &TurnOutcome,
    ) -> Result<(), ControlError> {
        if outcome.waits() {
            return Ok(());
        }
        let Some(current) = self.jobs.current(id).await? else { return Ok(()) };
        let error = "Job cancelled: the job that called it has ended".to_owned();
        let event = Event::Cancelled { error };
        let by = self.jobs.did.to_string();
        for (call, job) in open_calls(&current.job) {
            let may = |current: &Current| Ok(is_live(&current.job));
            self.end(job, &event, Some(by.clone()), may).await?;
            let Some(called) = self.jobs.current(job).await? else { continue };
            let end = CallEnd { call, status: called.job.status(), record: called.job.head() };
            let decide = |current: &Current| -> Result<_, StoreError> {
                let is_open = open_calls(&current.job).iter().any(|(open, _)| *open == call);
                if !is_open || !is_live(&current.job) {
                    return Ok(None);
                }
                let note = Note::Call { started: Vec::new(), ended: vec![end.clone()] };
                let mut draft = current.draft();
                let change = Change::new(Event::Noted(note), self.runtime.now());
                draft.append(change).map_err(append_error)?;
                draft.set_hold(Hold::Under(fence));
                Ok(Some(draft))
            };
            self.jobs.change(id, None, decide).await?;
        }
        Ok(())
    }

    /// Returns the job of a call that waits for a message.
    pub(super) async fn asking_call(&self, job: &Job) -> Result<Option<JobId>, StoreError> {
        for (_, called) in open_calls(job) {
            let current = self.jobs.current(called).await?;
            if current.is_some_and(|current| waits_for_message(current.job.status())) {
                return Ok(Some(called));
            }
        }
        Ok(None)
    }

    /// Forwards a message of a job to the call that waits for one. Returns false if the job has
    /// changed meanwhile.
    pub(super) async fn forward_to_call(
        self: &Arc<Self>,
        current: &Current,
        called: JobId,
        message: Message,
    ) -> Result<bool, StoreError> {
        let id = current.job.id();
        let now = self.runtime.now();
        let status = current.job.status();
        let message = self.jobs.settle_message(id, status, message)?;
        let (trigger, public) = message_record(&message);
        let mut change = Change::new(Event::Answered, now);
        change.trigger = Some(trigger);
        change.extra.push(("received", public));
        restart_clock(&current.job, now, &mut change);
        let mut draft = current.draft();
        draft.append(change).map_err(append_error)?;
        draft.add(Effect::TakeMessage { job: id, number: message.number });
        let body = self.jobs.forwarded_body(id, called, status, &message)?;
        draft.add(Effect::SendMessage {
            job: called,
            message: Message { number: 0, id: message.id, body },
        });
        if !current.is_held() {
            // Its turn was lost: it is repeated, and finds the call in the chain.
            draft.set_hold(Hold::Vacant(current.hold.fence));
            draft.add(offer_now(&current.job, now));
        }
        if unless_overtaken(self.jobs.commit(draft).await)?.is_none() {
            return Ok(false);
        }
        self.notify_queued(&current.job);
        self.runtime.spawn(self.wake(called));
        Ok(true)
    }

    /// Repeats the turn of a job that asked for what a call needed, if that call needs nothing any
    /// more and the turn was lost.
    pub(crate) async fn continue_caller(&self, id: JobId) -> Result<(), StoreError> {
        let Some(current) = self.jobs.current(id).await? else { return Ok(()) };
        if current.hold.is_parked && current.job.status() == Status::Started {
            return self.continue_parked(current).await;
        }
        let waits = waits_for_message(current.job.status()) && left_ms(&current.job).is_some();
        if !waits || current.is_held() || self.asking_call(&current.job).await?.is_some() {
            return Ok(());
        }
        let now = self.runtime.now();
        let mut change = Change::new(Event::Answered, now);
        restart_clock(&current.job, now, &mut change);
        let mut draft = current.draft();
        draft.append(change).map_err(append_error)?;
        draft.set_hold(Hold::Vacant(current.hold.fence));
        draft.add(offer_now(&current.job, now));
        unless_overtaken(self.jobs.commit(draft).await)?;
        self.notify_queued(&current.job);
        Ok(())
    }

    /// Continues a job that its worker has given back until calls end: records the calls that have
    /// ended, and offers the job again if it waits for no others. If a call asks for something, so does
    /// the job.
    async fn continue_parked(&self, current: Current) -> Result<(), StoreError> {
        let id = current.job.id();
        let mut current = current;
        for _ in 0..CONTENTION_TRIES_MAX {
            let awaited = self.jobs.awaited(id).await?;
            let keys = awaited.as_ref().map_or(&[][..], |awaited| &awaited.keys);
            let now = self.runtime.now().max(current.job.updated());
            let mut ended = Vec::new();
            let mut has_open = false;
            let mut asking = None;
            for (call, job) in open_calls(&current.job) {
                let start = &current.job.calls()[call as usize].start;
                let Some(called) = self.jobs.current(job).await? else { continue };
                let status = called.job.status();
                if status.is_terminal() {
                    ended.push(CallEnd { call, status, record: called.job.head() });
                } else {
                    has_open |= keys.contains(&start.key);
                    if waits_for_message(status) {
                        asking = Some((start.key.clone(), JobView::from(called)));
                    }
                }
            }
            let mut draft = current.draft();
            if !ended.is_empty() {
                let note = Note::Call { started: Vec::new(), ended };
                draft.append(Change::new(Event::Noted(note), now)).map_err(append_error)?;
            }
            if !has_open {
                draft.set_hold(Hold::Vacant(current.hold.fence));
                draft.add(offer_now(&current.job, now));
                awaited.iter().for_each(|awaited| draft.add(awaited.clear()));
            } else if let Some((key, called)) = &asking {
                let interactive = self.runtime.limits.interactive;
                let change = ask_like_call(&current, key, called, now, interactive);
                draft.append(change).map_err(append_error)?;
            }
            if draft.is_unchanged() {
                return Ok(());
            }
            if unless_overtaken(self.jobs.commit(draft).await)?.is_some() {
                if !has_open {
                    self.notify_queued(&current.job);
                }
                return Ok(());
            }
            current = match self.jobs.current(id).await? {
                Some(current) if current.hold.is_parked && is_live(&current.job) => current,
                _ => return Ok(()),
            };
        }
        Err(StoreError::Contended)
    }
}

//! Steps that wait for people: the orchestration asks for what they ask for, and pauses if only a
//! paused step can continue it.

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_store::Effect;
use catena_value::Value;

use super::{Asking, OrchestrationState, StepHost, StepPhase};
use crate::error::StoreError;
use crate::execution::{PausedTurn, paused_member};
use crate::jobs::{
    Current, Draft, Jobs, LEFT_MS, append_error, deadline, left_ms, message_record, restart_clock,
    stop_clock, time_left_ms, truncate_text,
};

impl OrchestrationState {
    /// Returns true if nothing can happen before somebody answers or resumes a step.
    pub(in crate::orchestration) fn waits_for_people(&self) -> bool {
        let waits = |phase: &StepPhase| match phase {
            StepPhase::Running(_) => false,
            StepPhase::Asking(asking) => asking.is_idle,
            StepPhase::Waiting | StepPhase::Paused(_) | StepPhase::Ended(_) => true,
        };
        self.open > 0
            && self.ready.is_empty()
            && self.starting.is_empty()
            && self.phases.iter().all(waits)
    }

    /// Returns the steps that are paused, with their sub-jobs.
    pub(in crate::orchestration) fn paused(&self) -> impl Iterator<Item = (u32, JobId)> {
        self.phases.iter().enumerate().filter_map(|(step, phase)| match phase {
            StepPhase::Paused(job) => Some((u32::try_from(step).ok()?, *job)),
            _ => None,
        })
    }

    /// Returns the message of a step that waits.
    pub(in crate::orchestration) fn waiting_message(&self, step: u32) -> String {
        let message = match self.phases.get(step as usize) {
            Some(StepPhase::Asking(asking)) => asking.message.as_deref(),
            _ => None,
        };
        let message = message.map_or_else(String::new, |message| format!(": {message}"));
        format!("{} waits{message}", self.step_name(step))
    }

    /// Returns the first step that waits for a message.
    pub(in crate::orchestration) fn asking(&self) -> Option<(u32, &Asking)> {
        self.phases.iter().enumerate().find_map(|(step, phase)| match phase {
            StepPhase::Asking(asking) => Some((u32::try_from(step).ok()?, asking)),
            _ => None,
        })
    }

    /// Makes the orchestration wait for a message if a step does, continue if none does any more, and
    /// pause if nothing can happen before a paused step is resumed.
    pub(super) fn ask_or_continue(
        &self,
        host: &dyn StepHost,
        parent: &mut Draft,
    ) -> Result<(), StoreError> {
        let status = parent.job().status();
        let is_interactive = matches!(status, Status::InputRequired | Status::AuthRequired);
        let is_clock_stopped = left_ms(parent.job()).is_some();
        match self.asking() {
            Some((step, asking)) if status == Status::Started => {
                self.ask(host, parent, step, asking)
            }
            // The last step that ran has ended, or another one runs: the clock stops or starts.
            Some((step, asking))
                if is_interactive && is_clock_stopped != self.waits_for_people() =>
            {
                self.answer(host, parent)?;
                self.ask(host, parent, step, asking)
            }
            None if is_interactive => self.answer(host, parent),
            None if status == Status::Started && self.waits_for_people() => {
                match self.paused().next() {
                    Some((step, job)) => self.pause(host, parent, step, job),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Makes the orchestration wait for a message. Its clock stops if everything below it waits.
    fn ask(
        &self,
        host: &dyn StepHost,
        parent: &mut Draft,
        step: u32,
        asking: &Asking,
    ) -> Result<(), StoreError> {
        let now = host.now();
        let ask = catena_job::state::Ask {
            message: Some(truncate_text(&self.waiting_message(step))),
            output: asking.output.clone(),
        };
        let event = match asking.status {
            Status::AuthRequired => Event::AskedForAuth(ask),
            _ => Event::AskedForInput(ask),
        };
        let mut change = Change::new(event, now);
        if self.waits_for_people() {
            stop_clock(parent.job(), now, host.limits().interactive, &mut change);
        } else if left_ms(parent.job()).is_some() {
            change.extra.push((LEFT_MS, Value::Nil));
        }
        parent.append(change).map_err(append_error)
    }

    /// Makes the orchestration continue. Its clock starts again if it had stopped.
    fn answer(&self, host: &dyn StepHost, parent: &mut Draft) -> Result<(), StoreError> {
        let mut change = Change::new(Event::Answered, host.now());
        restart_clock(parent.job(), host.now(), &mut change);
        parent.append(change).map_err(append_error)
    }

    /// Pauses the orchestration because only a resume of this step can continue it.
    fn pause(
        &self,
        host: &dyn StepHost,
        parent: &mut Draft,
        step: u32,
        job: JobId,
    ) -> Result<(), StoreError> {
        let now = host.now();
        let mut paused = PausedTurn::new(Status::Started, "open");
        paused.left_ms = time_left_ms(parent.job(), now);
        paused.since = Some(now);
        let mut change = Change::new(Event::Paused, now);
        let message = format!("{} is paused: job {job}", self.step_name(step));
        change.extra.push(("message", message.into()));
        change.extra.push(("paused", paused_member(&paused, None)));
        change.extra.push(("deadline", deadline(now, host.limits().interactive)));
        parent.append(change).map_err(append_error)
    }

    /// Returns the change that forwards a message of the orchestration to the local step that waits
    /// for one, and that step.
    pub(in crate::orchestration) fn forward_message(
        &self,
        jobs: &Jobs,
        current: &Current,
        message: catena_store::Message,
    ) -> Result<Option<(Draft, u32)>, StoreError> {
        let Some((step, child)) = self.asking().map(|(step, asking)| (step, asking.job)) else {
            return Ok(None);
        };
        let parent = current.job.id();
        let status = current.job.status();
        let (trigger, public) = message_record(&message);
        let mut change = Change::new(Event::Answered, jobs.runtime.now());
        restart_clock(&current.job, jobs.runtime.now(), &mut change);
        change.trigger = Some(trigger);
        change.extra.push(("received", public));
        let mut draft = current.draft();
        draft.append(change).map_err(append_error)?;
        draft.add(Effect::TakeMessage { job: parent, number: message.number });
        let body = jobs.forwarded_body(parent, child, status, &message)?;
        let message = catena_store::Message { number: 0, id: message.id, body };
        draft.add(Effect::SendMessage { job: child, message });
        Ok(Some((draft, step)))
    }

    /// Marks a local step as running because a message was forwarded to it. Returns its sub-job.
    pub(in crate::orchestration) fn mark_forwarded(&mut self, step: u32) -> Option<JobId> {
        let phase = self.phases.get_mut(step as usize)?;
        let StepPhase::Asking(asking) = phase else { return None };
        let child = asking.job;
        *phase = StepPhase::Running(child);
        Some(child)
    }
}

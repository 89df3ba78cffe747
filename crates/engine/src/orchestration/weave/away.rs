//! The steps of a run that are on other venues.

use std::sync::Arc;

use catena_job::chain::StepState;
use catena_job::note::{StepEnd, StepStart};
use catena_job::{Job, JobId, RecordId};
use catena_store::Effect;
use catena_value::{Value, json};

use super::{Asking, StepPhase, Weave};
use crate::adapter::Failure;
use crate::change::{Draft, waits_for_message};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::federation::{RemoteCall, RemoteJob, RemoteStart};
use crate::orchestration::depth_of;
use crate::orchestration::elsewhere::RemoteSnapshot;
use crate::orchestration::remote::{Errand, Tidings};

/// Bytes of what a job on another venue gives in an interactive turn that are recorded here.
const TURN_OUTPUT_BYTES_MAX: usize = 64 * 1024;

impl Asking {
    fn away(job: JobId, seen: &RemoteJob) -> Asking {
        Asking {
            job,
            status: seen.status,
            message: seen.message.clone(),
            output: seen.output.clone().filter(is_short),
            is_away: true,
        }
    }
}

/// Whether what a job on another venue says in a turn may stand in a record here. It may say as much
/// as it likes, as often as it likes; `steps` shows all of the last turn.
fn is_short(output: &Value) -> bool {
    json::to_string(output).is_ok_and(|text| text.len() <= TURN_OUTPUT_BYTES_MAX)
}

impl Weave {
    /// Takes over what is known of a step on another venue. One that is known to have ended is not
    /// asked for again.
    pub(super) async fn catch_up_away(
        &mut self,
        engine: &Engine,
        parent: &Job,
        step: u32,
        state: &StepState,
    ) -> Result<(), StoreError> {
        let plan = Arc::clone(&self.plan);
        let place = plan.steps[step as usize].venue.as_deref().unwrap_or_default();
        let (mut known, kept_as) = match engine.snapshot(parent.id(), step).await? {
            Some((known, kept_as)) => (known, Some(kept_as)),
            None => (RemoteSnapshot::of_chain(state, place), None),
        };
        self.away.insert(step, (known.clone(), kept_as));
        let seen = known.seen.clone();
        if seen.status.is_terminal() {
            let is_it = |end: &StepEnd| end.status == seen.status && end.record == seen.record;
            if state.end.as_ref().is_none_or(is_it) {
                self.see(parent, step, seen, known.at);
                return Ok(());
            }
            known = RemoteSnapshot {
                requester: known.requester,
                ..RemoteSnapshot::of_chain(state, place)
            };
        } else if waits_for_message(seen.status) {
            self.phases[step as usize] = StepPhase::Asking(Asking::away(known.job, &seen));
        }
        self.errands.push((step, Errand::Follow(Box::new(known))));
        Ok(())
    }

    /// Learns what became of a step on another venue.
    pub(crate) fn learn_remote(&mut self, parent: &Job, step: u32, tidings: Tidings, now: i64) {
        let index = step as usize;
        if matches!(self.phases.get(index), None | Some(StepPhase::Ended(_))) {
            return;
        }
        match tidings {
            // Somebody who was recalled meanwhile may still tell what is known, or how a job stands
            // whose beginning is not: whoever was sent instead tells both.
            Tidings::Started(_) if self.phases[index] != StepPhase::Waiting => {}
            Tidings::Seen(_) if self.phases[index] == StepPhase::Waiting => {}
            Tidings::Started(start) => {
                self.phases[index] = StepPhase::Running(start.job);
                let place = self.plan.steps[index].venue.as_deref().unwrap_or_default();
                let snapshot = RemoteSnapshot::first(&start, place, now);
                let RemoteStart { job, record, venue, seen, .. } = *start;
                self.starts.push(StepStart { step, job, record, venue: Some(venue) });
                self.away.insert(step, (snapshot, None));
                self.unkept.insert(step);
                // An end is told by itself.
                if !seen.status.is_terminal() {
                    self.see(parent, step, seen, now);
                }
            }
            Tidings::Seen(seen) => self.see(parent, step, *seen, now),
            Tidings::Delivered { .. } => {}
            Tidings::Failed(failure) => {
                let text = format!("{} failed elsewhere: {}", self.called(step), failure.error);
                self.failure = Some(Failure::new(&failure.code, text));
            }
        }
    }

    /// A job on another venue now stands like this.
    fn see(&mut self, parent: &Job, step: u32, seen: RemoteJob, now: i64) {
        let Some((known, _)) = self.away.get_mut(&step) else { return };
        let job = known.job;
        if known.seen != seen {
            *known = RemoteSnapshot { seen: seen.clone(), at: now, ..known.clone() };
            self.unkept.insert(step);
        }
        let RemoteJob { status, record, output, error, .. } = seen.clone();
        if status.is_terminal() {
            let told = StepEnd { step, status, record };
            let recorded = parent.steps().get(&step).and_then(|step| step.end.as_ref());
            if recorded.is_some_and(|recorded| *recorded != told) {
                let called = self.called(step);
                let text = format!("{called} ended with another record than it did before");
                self.failure = Some(Failure::new("step_changed", text));
                return;
            }
            if recorded.is_none() {
                self.ends.push(told);
            }
            self.end(step, status, output, error.as_deref().unwrap_or_default());
        } else if waits_for_message(status) {
            self.phases[step as usize] = StepPhase::Asking(Asking::away(job, &seen));
            self.permits.remove(&step);
        } else {
            self.phases[step as usize] = StepPhase::Running(job);
        }
    }

    /// What is known of a step on another venue.
    pub(crate) fn snapshot(&self, step: u32) -> Option<&RemoteSnapshot> {
        self.away.get(&step).map(|(known, _)| known)
    }

    /// A message has reached a step on another venue: unless it is known to stand elsewhere by
    /// now, it works on it.
    pub(crate) fn is_answered(&mut self, step: u32, asked: RecordId) {
        let Some((known, _)) = self.away.get(&step) else { return };
        let phase = &mut self.phases[step as usize];
        if matches!(phase, StepPhase::Asking(_)) && known.seen.record == asked {
            *phase = StepPhase::Running(known.job);
        }
    }

    /// Keeps what is new of jobs on other venues, in the commit that says what follows from it.
    pub(super) fn keep_sightings(&mut self, parent: &mut Draft) {
        if self.unkept.is_empty() {
            return;
        }
        let job = parent.job().id();
        if !parent.is_new() {
            parent.with(Effect::Touch { job });
        }
        for step in std::mem::take(&mut self.unkept) {
            let Some((known, kept_as)) = self.away.get_mut(&step) else { continue };
            parent.with(known.keep(job, step, *kept_as));
            *kept_as = Some(known.to_value().id());
        }
    }

    /// What to do about a step that runs elsewhere.
    pub(super) fn errand(&self, engine: &Engine, parent: &Job, step: u32, input: Value) -> Errand {
        let definition = &self.plan.steps[step as usize];
        Errand::Begin(Box::new(RemoteCall {
            venue: definition.venue.clone().unwrap_or_default(),
            operation: definition.op.clone(),
            input,
            key: format!("{}-{step}", parent.id().to_hex()),
            depth: depth_of(parent) + 1,
            delegations: engine.delegated(&self.caller),
            identity: engine.0.identity.clone(),
            control: engine.0.free.clone(),
            free: engine.0.free.clone(),
        }))
    }
}

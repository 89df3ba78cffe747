//! The remote steps of a run.

use std::sync::Arc;

use catena_job::chain::StepState;
use catena_job::note::{StepEnd, StepStart};
use catena_job::{Job, JobId, RecordId};
use catena_store::Effect;
use catena_value::{Value, json};

use super::{Asking, OrchestrationState, StepHost, StepPhase};
use crate::error::StoreError;
use crate::jobs::{Draft, RemoteSnapshot, depth_of, waits_for_message};
use crate::limits::TURN_OUTPUT_BYTES_MAX;
use crate::operations::Failure;
use crate::operations::federation::{RemoteCall, RemoteJob, RemoteStart};
use crate::orchestration::Orchestration;
use crate::orchestration::remote::{RemoteEvent, RemoteWork};

impl Asking {
    fn from_remote(job: JobId, state: &RemoteJob) -> Asking {
        Asking {
            job,
            status: state.status,
            message: state.message.clone(),
            output: state.output.clone().filter(is_short),
            is_remote: true,
            is_idle: true,
        }
    }
}

/// Returns true if the output of a remote turn may be recorded here. A remote job may return as much
/// as it likes, as often as it likes; `steps` shows the complete output of the last turn.
fn is_short(output: &Value) -> bool {
    json::to_string(output).is_ok_and(|text| text.len() <= TURN_OUTPUT_BYTES_MAX)
}

impl OrchestrationState {
    /// Reads what is stored of a remote step. A step that is known to have ended is not followed
    /// again.
    pub(super) async fn catch_up_remote(
        &mut self,
        orchestration: &Orchestration,
        parent: &Job,
        step: u32,
        state: &StepState,
    ) -> Result<(), StoreError> {
        let plan = Arc::clone(&self.plan);
        let location = plan.steps[step as usize].venue.as_deref().unwrap_or_default();
        let (mut known, stored_as) =
            match orchestration.jobs.remote_snapshot(parent.id(), step).await? {
                Some((known, stored_as)) => (known, Some(stored_as)),
                None => (RemoteSnapshot::from_chain(state, location), None),
            };
        self.remote.insert(step, (known.clone(), stored_as));
        let remote = known.state.clone();
        if remote.status.is_terminal() {
            let is_same_end =
                |end: &StepEnd| end.status == remote.status && end.record == remote.record;
            if state.end.as_ref().is_none_or(is_same_end) {
                self.apply_remote(parent, step, remote, known.at);
                return Ok(());
            }
            known = RemoteSnapshot {
                requester: known.requester,
                ..RemoteSnapshot::from_chain(state, location)
            };
        } else if waits_for_message(remote.status) {
            self.phases[step as usize] = StepPhase::Asking(Asking::from_remote(known.job, &remote));
        }
        self.remote_work.push((step, RemoteWork::Follow(Box::new(known))));
        Ok(())
    }

    /// Applies an event of a remote step.
    pub(crate) fn update_remote(&mut self, parent: &Job, step: u32, event: RemoteEvent, now: i64) {
        let index = step as usize;
        if matches!(self.phases.get(index), None | Some(StepPhase::Ended(_))) {
            return;
        }
        match event {
            // A task that was replaced may still report a start that is known, or the state of a
            // job whose start is not: its successor reports both.
            RemoteEvent::Started(_) if self.phases[index] != StepPhase::Waiting => {}
            RemoteEvent::Changed(_) if self.phases[index] == StepPhase::Waiting => {}
            RemoteEvent::Started(start) => {
                self.starting.remove(&index);
                self.phases[index] = StepPhase::Running(start.job);
                let location = self.plan.steps[index].venue.as_deref().unwrap_or_default();
                let snapshot = RemoteSnapshot::from_start(&start, location, now);
                let RemoteStart { job, record, venue, state, .. } = *start;
                self.starts.push(StepStart { step, job, record, venue: Some(venue) });
                self.remote.insert(step, (snapshot, None));
                self.unsaved.insert(step);
                // The end is reported by an event of its own.
                if !state.status.is_terminal() {
                    self.apply_remote(parent, step, state, now);
                }
            }
            RemoteEvent::Changed(state) => self.apply_remote(parent, step, *state, now),
            RemoteEvent::Delivered { .. } => {}
            RemoteEvent::Failed(failure) => {
                self.starting.remove(&index);
                let text =
                    format!("{} failed on its venue: {}", self.step_name(step), failure.error);
                self.failure = Some(Failure::new(&failure.code, text));
            }
        }
    }

    /// Applies the current state of a remote job.
    fn apply_remote(&mut self, parent: &Job, step: u32, remote: RemoteJob, now: i64) {
        let Some((known, _)) = self.remote.get_mut(&step) else { return };
        let job = known.job;
        if known.state != remote {
            *known = RemoteSnapshot { state: remote.clone(), at: now, ..known.clone() };
            self.unsaved.insert(step);
        }
        let RemoteJob { status, record, output, error, .. } = remote.clone();
        if status.is_terminal() {
            let end = StepEnd { step, status, record };
            let recorded = parent.steps().get(&step).and_then(|step| step.end.as_ref());
            if recorded.is_some_and(|recorded| *recorded != end) {
                let name = self.step_name(step);
                let text = format!("{name} reported another final record than before");
                self.failure = Some(Failure::new("step_changed", text));
                return;
            }
            if recorded.is_none() {
                self.ends.push(end);
            }
            self.end(step, status, output, error.as_deref().unwrap_or_default());
        } else if waits_for_message(status) {
            self.phases[step as usize] = StepPhase::Asking(Asking::from_remote(job, &remote));
            self.release(step);
        } else {
            self.phases[step as usize] = StepPhase::Running(job);
        }
    }

    /// Returns what is known of a remote step.
    pub(crate) fn snapshot(&self, step: u32) -> Option<&RemoteSnapshot> {
        self.remote.get(&step).map(|(known, _)| known)
    }

    /// Marks a remote step as running because it accepted a message, unless its state has changed since
    /// the record `asked`, with which it asked for the message.
    pub(crate) fn mark_answered(&mut self, step: u32, asked: RecordId) {
        let Some((known, _)) = self.remote.get(&step) else { return };
        let phase = &mut self.phases[step as usize];
        if matches!(phase, StepPhase::Asking(_)) && known.state.record == asked {
            *phase = StepPhase::Running(known.job);
        }
    }

    /// Stores new states of remote steps, in the commit that records what follows from them.
    pub(super) fn store_snapshots(&mut self, parent: &mut Draft) {
        if self.unsaved.is_empty() {
            return;
        }
        let job = parent.job().id();
        if !parent.is_new() {
            parent.add(Effect::Touch { job });
        }
        for step in std::mem::take(&mut self.unsaved) {
            let Some((known, stored_as)) = self.remote.get_mut(&step) else { continue };
            parent.add(known.store(job, step, *stored_as));
            *stored_as = Some(known.to_value().id());
        }
    }

    /// Returns the work of the task that starts a remote step.
    pub(super) fn start_remote(
        &self,
        host: &dyn StepHost,
        parent: &Job,
        step: u32,
        input: Value,
    ) -> RemoteWork {
        let definition = &self.plan.steps[step as usize];
        let venue = definition.venue.as_deref().unwrap_or_default();
        let call = host.remote_call(&self.caller, venue, &definition.op, input);
        RemoteWork::Start(Box::new(RemoteCall {
            key: format!("{}-{step}", parent.id().to_hex()),
            depth: depth_of(parent) + 1,
            ..call
        }))
    }
}

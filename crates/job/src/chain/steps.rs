//! What a chain says about the steps of its job: each starts once, ends once, and a job completes
//! only after all of them did.

use std::collections::BTreeMap;

use super::ChainError;
use crate::note::{StepEnd, StepStart};
use crate::state::Status;

/// What a chain says about one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepState {
    /// The commitment to the sub-job.
    pub start: StepStart,
    /// How it ended, once it has.
    pub end: Option<StepEnd>,
    /// When the record that started it was made.
    pub started_at: i64,
    /// When the record that ended it was made.
    pub ended_at: Option<i64>,
}

/// The steps by their index.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps(BTreeMap<u32, StepState>);

impl Steps {
    pub(super) fn from_states(states: Vec<StepState>) -> Self {
        Steps(states.into_iter().map(|state| (state.start.step, state)).collect())
    }

    pub(super) fn by_index(&self) -> &BTreeMap<u32, StepState> {
        &self.0
    }

    /// Whether these may start and end now.
    pub(super) fn check(
        &self,
        started: &[StepStart],
        ended: &[StepEnd],
        is_outcome_held: bool,
    ) -> Result<(), ChainError> {
        let again = |step: u32, what: &str| ChainError::Commitment(format!("step {step} {what}"));
        if let (true, Some(start)) = (is_outcome_held, started.first()) {
            return Err(again(start.step, "starts although the job's outcome is already held"));
        }
        for (at, start) in started.iter().enumerate() {
            let earlier = started[..at].iter().any(|other| other.step == start.step);
            if earlier || self.0.contains_key(&start.step) {
                return Err(again(start.step, "starts a second time"));
            }
        }
        for (at, end) in ended.iter().enumerate() {
            let earlier = ended[..at].iter().any(|other| other.step == end.step);
            let state = self.0.get(&end.step);
            if earlier || state.is_some_and(|state| state.end.is_some()) {
                return Err(again(end.step, "ends a second time"));
            }
            if state.is_none() && !started.iter().any(|start| start.step == end.step) {
                return Err(again(end.step, "ends without having started"));
            }
        }
        Ok(())
    }

    /// Whether every step that started has ended well.
    pub(super) fn check_complete(&self) -> Result<(), ChainError> {
        let unfinished = self
            .0
            .iter()
            .find(|(_, state)| state.end.as_ref().is_none_or(|end| end.status != Status::Complete));
        match unfinished {
            None => Ok(()),
            Some((step, StepState { end: None, .. })) => Err(ChainError::Commitment(format!(
                "the job is COMPLETE, but step {step} has not ended"
            ))),
            Some((step, StepState { end: Some(end), .. })) => Err(ChainError::Commitment(format!(
                "the job is COMPLETE, but step {step} ended as {}",
                end.status
            ))),
        }
    }

    pub(super) fn take(&mut self, started: Vec<StepStart>, ended: Vec<StepEnd>, at: i64) {
        for start in started {
            let step = start.step;
            let state = StepState { start, end: None, started_at: at, ended_at: None };
            self.0.insert(step, state);
        }
        for end in ended {
            if let Some(state) = self.0.get_mut(&end.step) {
                state.ended_at = Some(at);
                state.end = Some(end);
            }
        }
    }
}

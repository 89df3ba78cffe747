//! The steps of a job as recorded in its chain: each starts once and ends once, and the job becomes
//! COMPLETE only after all of its steps are COMPLETE.

use std::collections::BTreeMap;

use super::ChainError;
use crate::note::{StepEnd, StepStart};
use crate::state::Status;

/// The state of one step as recorded in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepState {
    /// Commitment to the sub-job that runs the step.
    pub start: StepStart,
    /// How the step ended. `None` if it has not ended.
    pub end: Option<StepEnd>,
    /// Time of the record that started the step: Unix time in ms.
    pub started_at: i64,
    /// Time of the record that ended the step: Unix time in ms. `None` if it has not ended.
    pub ended_at: Option<i64>,
}

/// The steps that have started, by step index.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps(BTreeMap<u32, StepState>);

impl Steps {
    pub(super) fn from_states(states: Vec<StepState>) -> Self {
        Steps(states.into_iter().map(|state| (state.start.step, state)).collect())
    }

    pub(super) fn by_index(&self) -> &BTreeMap<u32, StepState> {
        &self.0
    }

    /// Checks that these steps may start and end now.
    pub(super) fn check(
        &self,
        started: &[StepStart],
        ended: &[StepEnd],
        is_outcome_held: bool,
    ) -> Result<(), ChainError> {
        let refused = |step: u32, what: &str| ChainError::Commitment(format!("step {step} {what}"));
        if let (true, Some(start)) = (is_outcome_held, started.first()) {
            return Err(refused(start.step, "starts although the job's outcome is already held"));
        }
        for (at, start) in started.iter().enumerate() {
            let earlier = started[..at].iter().any(|other| other.step == start.step);
            if earlier || self.0.contains_key(&start.step) {
                return Err(refused(start.step, "starts a second time"));
            }
        }
        for (at, end) in ended.iter().enumerate() {
            let earlier = ended[..at].iter().any(|other| other.step == end.step);
            let state = self.0.get(&end.step);
            if earlier || state.is_some_and(|state| state.end.is_some()) {
                return Err(refused(end.step, "ends a second time"));
            }
            if state.is_none() && !started.iter().any(|start| start.step == end.step) {
                return Err(refused(end.step, "ends without having started"));
            }
        }
        Ok(())
    }

    /// Checks that every step that started is COMPLETE.
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

    /// Records steps that started and ended at `at`, Unix time in ms. They must have been checked.
    pub(super) fn record(&mut self, started: Vec<StepStart>, ended: Vec<StepEnd>, at: i64) {
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

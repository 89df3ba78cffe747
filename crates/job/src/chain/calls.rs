//! The operations that a job invoked, as recorded in its chain: each call starts once and ends once,
//! and the job becomes COMPLETE only after all calls that are not detached have ended.

use super::ChainError;
use crate::note::{CallEnd, CallStart};

/// The state of one call as recorded in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallState {
    /// Commitment to the called job.
    pub start: CallStart,
    /// How the called job ended. `None` if it has not ended.
    pub end: Option<CallEnd>,
    /// Time of the record that started the call: Unix time in ms.
    pub started_at: i64,
    /// Time of the record that ended the call: Unix time in ms. `None` if it has not ended.
    pub ended_at: Option<i64>,
}

/// The calls, in the order of their numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls(Vec<CallState>);

impl Calls {
    pub(super) fn from_states(states: Vec<CallState>) -> Self {
        Calls(states)
    }

    pub(super) fn all(&self) -> &[CallState] {
        &self.0
    }

    /// Checks that these calls may start and end now.
    pub(super) fn check(
        &self,
        started: &[CallStart],
        ended: &[CallEnd],
        is_outcome_held: bool,
    ) -> Result<(), ChainError> {
        let refused = |call: u32, what: &str| ChainError::Commitment(format!("call {call} {what}"));
        if let (true, Some(start)) = (is_outcome_held, started.first()) {
            return Err(refused(start.call, "starts although the job's outcome is already held"));
        }
        for (at, start) in started.iter().enumerate() {
            if start.call as usize != self.0.len() + at {
                return Err(refused(start.call, "is not the next call"));
            }
            let is_used = |other: &CallStart| other.key == start.key;
            if self.0.iter().any(|known| is_used(&known.start)) || started[..at].iter().any(is_used)
            {
                return Err(refused(start.call, "has the key of an earlier call"));
            }
        }
        for (at, end) in ended.iter().enumerate() {
            let number = end.call as usize;
            let is_repeated = ended[..at].iter().any(|other| other.call == end.call)
                || self.0.get(number).is_some_and(|known| known.end.is_some());
            if is_repeated {
                return Err(refused(end.call, "ends a second time"));
            }
            if number >= self.0.len() + started.len() {
                return Err(refused(end.call, "ends without having started"));
            }
        }
        Ok(())
    }

    /// Checks that every call that is not detached has ended.
    pub(super) fn check_complete(&self) -> Result<(), ChainError> {
        let is_open = |call: &&CallState| call.end.is_none() && !call.start.is_detached;
        match self.0.iter().find(is_open) {
            None => Ok(()),
            Some(open) => Err(ChainError::Commitment(format!(
                "the job is COMPLETE, but call {} has not ended",
                open.start.call
            ))),
        }
    }

    /// Records calls that started and ended at `at`, Unix time in ms. They must have been checked.
    pub(super) fn record(&mut self, started: Vec<CallStart>, ended: Vec<CallEnd>, at: i64) {
        let new = started.into_iter();
        self.0.extend(new.map(|start| CallState {
            start,
            end: None,
            started_at: at,
            ended_at: None,
        }));
        for end in ended {
            if let Some(state) = self.0.get_mut(end.call as usize) {
                state.ended_at = Some(at);
                state.end = Some(end);
            }
        }
    }
}

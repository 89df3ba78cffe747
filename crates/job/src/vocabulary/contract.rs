//! The status vocabulary of the contract between platform and executor.

use super::{Phase, State};
use crate::state::Status;

/// The status of a job in the executor contract. It never moves backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContractStatus {
    /// Created but not on the queue.
    Pending,
    /// Waiting on the queue.
    Queued,
    /// Claimed by a worker at least once.
    Running,
    /// Ended successfully.
    Succeeded,
    /// Ended with an error, or refused.
    Failed,
    /// Ended by a request to cancel it.
    Cancelled,
    /// Ended because its time limit or deadline passed.
    TimedOut,
}

impl ContractStatus {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ContractStatus::Pending => "PENDING",
            ContractStatus::Queued => "QUEUED",
            ContractStatus::Running => "RUNNING",
            ContractStatus::Succeeded => "SUCCEEDED",
            ContractStatus::Failed => "FAILED",
            ContractStatus::Cancelled => "CANCELLED",
            ContractStatus::TimedOut => "TIMED_OUT",
        }
    }

    /// Whether the job has ended.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, ContractStatus::Pending | ContractStatus::Queued | ContractStatus::Running)
    }
}

pub(super) fn translate(state: State) -> ContractStatus {
    match state.status {
        // A leased job has not started until the chain says so.
        Status::Pending => match state.phase {
            Phase::Admitted => ContractStatus::Pending,
            Phase::Queued | Phase::Leased => ContractStatus::Queued,
        },
        Status::Started | Status::InputRequired | Status::AuthRequired => ContractStatus::Running,
        // A paused job keeps the last status it reached.
        Status::Paused if state.has_started => ContractStatus::Running,
        Status::Paused => ContractStatus::Queued,
        Status::Complete => ContractStatus::Succeeded,
        Status::Failed | Status::Rejected => ContractStatus::Failed,
        Status::Cancelled => ContractStatus::Cancelled,
        Status::Timeout => ContractStatus::TimedOut,
    }
}

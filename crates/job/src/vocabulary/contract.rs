//! The words of the platform/executor contract.

use super::{Phase, State};
use crate::state::Status;

/// Where a job stands, in contract words. It never moves backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContractStatus {
    /// Made, not on the queue.
    Pending,
    /// On the queue.
    Queued,
    /// Claimed by a worker at least once.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended with an error, or refused.
    Failed,
    /// Ended because somebody wanted it to.
    Cancelled,
    /// Ended because its time was up.
    TimedOut,
}

impl ContractStatus {
    /// The word.
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
        // A worker that holds a job has not begun it until the chain says so.
        Status::Pending => match state.phase {
            Phase::Admitted => ContractStatus::Pending,
            Phase::Queued | Phase::Leased => ContractStatus::Queued,
        },
        Status::Started | Status::InputRequired | Status::AuthRequired => ContractStatus::Running,
        // The last one reached.
        Status::Paused if state.has_started => ContractStatus::Running,
        Status::Paused => ContractStatus::Queued,
        Status::Complete => ContractStatus::Succeeded,
        Status::Failed | Status::Rejected => ContractStatus::Failed,
        Status::Cancelled => ContractStatus::Cancelled,
        Status::Timeout => ContractStatus::TimedOut,
    }
}

//! The words of the canvas lifecycle.

use super::Phase;
use crate::state::Status;

/// Where a job stands, in canvas words. A job that recovery put back is pending again: the phase
/// says so, the chain is not rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CanvasStatus {
    /// Waits to run.
    Pending,
    /// A worker has it.
    Processing,
    /// Suspended, or waiting for somebody.
    Paused,
    /// Ended well.
    Completed,
    /// Ended with an error, refused, or out of time.
    Failed,
    /// Ended because somebody wanted it to.
    Cancelled,
}

impl CanvasStatus {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            CanvasStatus::Pending => "pending",
            CanvasStatus::Processing => "processing",
            CanvasStatus::Paused => "paused",
            CanvasStatus::Completed => "completed",
            CanvasStatus::Failed => "failed",
            CanvasStatus::Cancelled => "cancelled",
        }
    }

    /// Whether the job has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, CanvasStatus::Completed | CanvasStatus::Failed | CanvasStatus::Cancelled)
    }
}

/// What a paused job waits for, when it is not a resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitingFor {
    /// A message.
    Input,
    /// Authorisation.
    Auth,
}

impl WaitingFor {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            WaitingFor::Input => "input",
            WaitingFor::Auth => "auth",
        }
    }
}

pub(super) fn translate(status: Status, phase: Phase) -> CanvasStatus {
    match status {
        Status::Pending => CanvasStatus::Pending,
        Status::Started => match phase {
            Phase::Leased => CanvasStatus::Processing,
            Phase::Queued | Phase::Admitted => CanvasStatus::Pending,
        },
        Status::Paused | Status::InputRequired | Status::AuthRequired => CanvasStatus::Paused,
        Status::Complete => CanvasStatus::Completed,
        Status::Failed | Status::Rejected | Status::Timeout => CanvasStatus::Failed,
        Status::Cancelled => CanvasStatus::Cancelled,
    }
}

pub(super) fn waiting_for(status: Status) -> Option<WaitingFor> {
    match status {
        Status::InputRequired => Some(WaitingFor::Input),
        Status::AuthRequired => Some(WaitingFor::Auth),
        _ => None,
    }
}

//! The status vocabulary of the canvas API.

use super::{Phase, State};
use crate::state::Status;

/// The status of a job in the canvas API. A job that was put back on the queue after a restart is
/// pending again; that follows from its phase, not from the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CanvasStatus {
    /// Waiting to run.
    Pending,
    /// Leased to a worker.
    Processing,
    /// Suspended, or waiting for input or authorisation.
    Paused,
    /// Ended successfully.
    Completed,
    /// Ended with an error, refused, or timed out.
    Failed,
    /// Ended by a request to cancel it.
    Cancelled,
}

impl CanvasStatus {
    /// All statuses.
    pub const ALL: [CanvasStatus; 6] = [
        CanvasStatus::Pending,
        CanvasStatus::Processing,
        CanvasStatus::Paused,
        CanvasStatus::Completed,
        CanvasStatus::Failed,
        CanvasStatus::Cancelled,
    ];

    /// The status with this name. `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        CanvasStatus::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// The statuses in the chain that can have this canvas status.
    pub const fn grid(self) -> &'static [Status] {
        match self {
            CanvasStatus::Pending => &[Status::Pending, Status::Started],
            CanvasStatus::Processing => &[Status::Started],
            CanvasStatus::Paused => &[Status::Paused, Status::InputRequired, Status::AuthRequired],
            CanvasStatus::Completed => &[Status::Complete],
            CanvasStatus::Failed => &[Status::Failed, Status::Rejected, Status::Timeout],
            CanvasStatus::Cancelled => &[Status::Cancelled],
        }
    }

    /// The name on the wire.
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

/// An action that a client can perform on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Suspend the job.
    Pause,
    /// Continue a suspended job.
    Resume,
    /// End the job.
    Cancel,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 3] = [Action::Pause, Action::Resume, Action::Cancel];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::Pause => "pause",
            Action::Resume => "resume",
            Action::Cancel => "cancel",
        }
    }

    /// The action with this name. `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        Action::ALL.into_iter().find(|action| action.as_str() == name)
    }
}

/// What a paused job waits for, other than a resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitingFor {
    /// The job waits for a message.
    Input,
    /// The job waits for authorisation.
    Auth,
}

impl WaitingFor {
    /// The name on the wire.
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

pub(super) fn actions(state: State) -> &'static [Action] {
    match state.canvas() {
        CanvasStatus::Pending | CanvasStatus::Processing => &[Action::Pause, Action::Cancel],
        // A job that waits for a message is continued by a message.
        CanvasStatus::Paused if state.waiting_for().is_some() => &[Action::Cancel],
        CanvasStatus::Paused => &[Action::Resume, Action::Cancel],
        CanvasStatus::Completed | CanvasStatus::Failed | CanvasStatus::Cancelled => &[],
    }
}

pub(super) fn waiting_for(status: Status) -> Option<WaitingFor> {
    match status {
        Status::InputRequired => Some(WaitingFor::Input),
        Status::AuthRequired => Some(WaitingFor::Auth),
        _ => None,
    }
}

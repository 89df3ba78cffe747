//! The words of the canvas lifecycle.

use super::{Phase, State};
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
    /// All of them.
    pub const ALL: [CanvasStatus; 6] = [
        CanvasStatus::Pending,
        CanvasStatus::Processing,
        CanvasStatus::Paused,
        CanvasStatus::Completed,
        CanvasStatus::Failed,
        CanvasStatus::Cancelled,
    ];

    /// The status with this word.
    pub fn parse(word: &str) -> Option<Self> {
        CanvasStatus::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// The statuses in the chain that may be called so.
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

/// What people can do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Suspend it.
    Pause,
    /// Let it go on.
    Resume,
    /// End it.
    Cancel,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 3] = [Action::Pause, Action::Resume, Action::Cancel];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::Pause => "pause",
            Action::Resume => "resume",
            Action::Cancel => "cancel",
        }
    }

    /// The action with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Action::ALL.into_iter().find(|action| action.as_str() == word)
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

pub(super) fn actions(state: State) -> &'static [Action] {
    match state.canvas() {
        CanvasStatus::Pending | CanvasStatus::Processing => &[Action::Pause, Action::Cancel],
        // Whoever waits for a message goes on by a message.
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

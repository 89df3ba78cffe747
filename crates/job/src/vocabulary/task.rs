//! The status vocabulary of MCP tasks.

use crate::state::Status;

/// The status of a job as an MCP task. The status of a tool call that returned an error depends on
/// the revision of the protocol; see [`ToolErrorStatus`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// The task is running or waits on the queue. A paused job also has this status, because no
    /// input from the client continues it.
    Working,
    /// The task waits for input or authorisation.
    InputRequired,
    /// The task has ended with a result.
    Completed,
    /// The task has ended without a result.
    Failed,
    /// The task was cancelled.
    Cancelled,
}

/// The task status that a revision of MCP uses for a tool call that returned an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolErrorStatus {
    /// A failed task (revision 2025-11-25).
    Failed,
    /// A completed task whose result is marked as an error (the extension of 2026-07-28, where a
    /// failed task means an error of the protocol itself).
    Completed,
}

impl ToolErrorStatus {
    /// All variants.
    pub const ALL: [ToolErrorStatus; 2] = [ToolErrorStatus::Failed, ToolErrorStatus::Completed];
}

impl TaskStatus {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            TaskStatus::Working => "working",
            TaskStatus::InputRequired => "input_required",
            TaskStatus::Completed => "completed",
            TaskStatus::Failed => "failed",
            TaskStatus::Cancelled => "cancelled",
        }
    }

    /// Whether the job has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled)
    }
}

pub(super) fn translate(status: Status, tool_error: ToolErrorStatus) -> TaskStatus {
    match status {
        Status::Pending | Status::Started | Status::Paused => TaskStatus::Working,
        Status::InputRequired | Status::AuthRequired => TaskStatus::InputRequired,
        Status::Complete => TaskStatus::Completed,
        Status::Failed | Status::Rejected | Status::Timeout => match tool_error {
            ToolErrorStatus::Failed => TaskStatus::Failed,
            ToolErrorStatus::Completed => TaskStatus::Completed,
        },
        Status::Cancelled => TaskStatus::Cancelled,
    }
}

//! The words of MCP tasks.

use crate::state::Status;

/// Where a job stands, in the words of an MCP task. One that was asked for and could not be done
/// depends on the revision: see [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// It is being worked on, or waits for its turn; a paused one is, too, since no input helps.
    Working,
    /// It waits for somebody.
    InputRequired,
    /// It has ended, and there is a result.
    Completed,
    /// It has ended without one.
    Failed,
    /// Ended because somebody wanted it to.
    Cancelled,
}

/// What a revision calls a tool call that ran and did not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A failed task (2025-11-25).
    Failed,
    /// A completed task whose result says that it is an error (the extension of 2026-07-28, where a
    /// failed task is one that the protocol itself failed).
    Completed,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 2] = [Fault::Failed, Fault::Completed];
}

impl TaskStatus {
    /// The word.
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

pub(super) fn translate(status: Status, fault: Fault) -> TaskStatus {
    match status {
        Status::Pending | Status::Started | Status::Paused => TaskStatus::Working,
        Status::InputRequired | Status::AuthRequired => TaskStatus::InputRequired,
        Status::Complete => TaskStatus::Completed,
        Status::Failed | Status::Rejected | Status::Timeout => match fault {
            Fault::Failed => TaskStatus::Failed,
            Fault::Completed => TaskStatus::Completed,
        },
        Status::Cancelled => TaskStatus::Cancelled,
    }
}

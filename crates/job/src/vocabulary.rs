//! The status vocabularies: grid, contract, canvas, and MCP tasks.
//!
//! The chain contains grid statuses and nothing else. The other vocabularies are functions of the
//! status, the phase, and whether the job has ever started; they translate and are never stored.
//! Each is total: every combination has a status, including those that should not occur.

mod canvas;
mod contract;
mod task;

pub use canvas::{Action, CanvasStatus, WaitingFor};
pub use contract::ContractStatus;
pub use task::{TaskStatus, ToolErrorStatus};

use crate::state::Status;

/// The progress of a job towards a worker. It is not part of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Durable but not on the queue. This includes jobs that have ended or wait for a client.
    Admitted,
    /// Waiting on the queue.
    Queued,
    /// Leased to a worker.
    Leased,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 3] = [Phase::Admitted, Phase::Queued, Phase::Leased];
}

/// The state of a job that the vocabularies translate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// Status in the chain.
    pub status: Status,
    /// Phase on the way to a worker.
    pub phase: Phase,
    /// Whether the chain has a STARTED record.
    pub has_started: bool,
}

impl State {
    /// The status in the grid API.
    pub fn grid(self) -> Status {
        self.status
    }

    /// The status in the executor contract.
    pub fn contract(self) -> ContractStatus {
        contract::translate(self)
    }

    /// The status in the canvas API.
    pub fn canvas(self) -> CanvasStatus {
        canvas::translate(self.status, self.phase)
    }

    /// The status of the job as an MCP task.
    pub fn task(self, tool_error: ToolErrorStatus) -> TaskStatus {
        task::translate(self.status, tool_error)
    }

    /// The actions that the canvas API currently offers.
    pub fn canvas_actions(self) -> &'static [Action] {
        canvas::actions(self)
    }

    /// What a job that is `paused` in the canvas API waits for. `None` if a resume continues it.
    pub fn waiting_for(self) -> Option<WaitingFor> {
        canvas::waiting_for(self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_these_names() {
        let mut table = String::new();
        for status in Status::ALL {
            for phase in Phase::ALL {
                for has_started in [false, true] {
                    let state = State { status, phase, has_started };
                    let waiting = state.waiting_for().map_or("", |waiting| waiting.as_str());
                    table += &format!(
                        "{status} {phase:?} {has_started}: {} {} {} {} {waiting}\n",
                        state.contract().as_str(),
                        state.canvas().as_str(),
                        state.task(ToolErrorStatus::Failed).as_str(),
                        state.task(ToolErrorStatus::Completed).as_str(),
                    );
                }
            }
        }
        let expected = include_str!("vocabulary/table.txt");
        assert_eq!(table, expected);
    }

    #[test]
    fn actions_are_those_of_the_canvas_lifecycle() {
        for status in Status::ALL {
            for phase in Phase::ALL {
                let state = State { status, phase, has_started: true };
                let expected: &[Action] = match (state.canvas(), state.waiting_for()) {
                    (CanvasStatus::Pending | CanvasStatus::Processing, _) => {
                        &[Action::Pause, Action::Cancel]
                    }
                    (CanvasStatus::Paused, None) => &[Action::Resume, Action::Cancel],
                    (CanvasStatus::Paused, Some(_)) => &[Action::Cancel],
                    _ => &[],
                };
                assert_eq!(state.canvas_actions(), expected, "{status} {phase:?}");
                assert!(state.canvas().grid().contains(&status), "{status} {phase:?}");
            }
        }
        for status in CanvasStatus::ALL {
            assert_eq!(CanvasStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(CanvasStatus::parse("done"), None);
        for action in Action::ALL {
            assert_eq!(Action::parse(action.as_str()), Some(action));
        }
        assert_eq!(Action::parse("stop"), None);
    }

    #[test]
    fn each_category_keeps_its_meaning_in_every_vocabulary() {
        for status in Status::ALL {
            for phase in Phase::ALL {
                for has_started in [false, true] {
                    let state = State { status, phase, has_started };
                    assert_eq!(state.grid(), status);
                    assert_eq!(state.contract().is_terminal(), status.is_terminal());
                    assert_eq!(state.canvas().is_terminal(), status.is_terminal());
                    let waits = matches!(status, Status::InputRequired | Status::AuthRequired);
                    assert_eq!(state.waiting_for().is_some(), waits);
                    for tool_error in ToolErrorStatus::ALL {
                        let task = state.task(tool_error);
                        assert_eq!(task.is_terminal(), status.is_terminal());
                        assert_eq!(task == TaskStatus::InputRequired, waits);
                        assert_eq!(task == TaskStatus::Cancelled, status == Status::Cancelled);
                    }
                }
            }
        }
    }
}

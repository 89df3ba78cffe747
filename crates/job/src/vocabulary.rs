//! Ways to name where a job stands: grid, contract, canvas, and the tasks of MCP.
//!
//! The chain holds grid statuses and nothing else. The others are functions of the status, of
//! where the job is in the queue, and of whether it ever started; they translate, they never
//! store. Each is total: every combination has an answer, also those that should not occur.

mod canvas;
mod contract;
mod task;

pub use canvas::{Action, CanvasStatus, WaitingFor};
pub use contract::ContractStatus;
pub use task::{Fault, TaskStatus};

use crate::state::Status;

/// Where a job is on its way to a worker. Not part of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Durable, not on the queue: also every job that has ended or waits for somebody.
    Admitted,
    /// On the queue.
    Queued,
    /// With a worker.
    Leased,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 3] = [Phase::Admitted, Phase::Queued, Phase::Leased];
}

/// What the vocabularies look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// The status in the chain.
    pub status: Status,
    /// Where it is on its way to a worker.
    pub phase: Phase,
    /// Whether the chain has a STARTED record.
    pub has_started: bool,
}

impl State {
    /// The word at the grid door.
    pub fn grid(self) -> Status {
        self.status
    }

    /// The word at the contract door.
    pub fn contract(self) -> ContractStatus {
        contract::translate(self)
    }

    /// The word at the canvas door.
    pub fn canvas(self) -> CanvasStatus {
        canvas::translate(self.status, self.phase)
    }

    /// The word for it as an MCP task.
    pub fn task(self, fault: Fault) -> TaskStatus {
        task::translate(self.status, fault)
    }

    /// What the canvas door lets people do with it now.
    pub fn canvas_actions(self) -> &'static [Action] {
        canvas::actions(self)
    }

    /// What a job that the canvas door calls paused waits for, when a resume will not do.
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
                        state.task(Fault::Failed).as_str(),
                        state.task(Fault::Completed).as_str(),
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
                    for fault in Fault::ALL {
                        let task = state.task(fault);
                        assert_eq!(task.is_terminal(), status.is_terminal());
                        assert_eq!(task == TaskStatus::InputRequired, waits);
                        assert_eq!(task == TaskStatus::Cancelled, status == Status::Cancelled);
                    }
                }
            }
        }
    }
}

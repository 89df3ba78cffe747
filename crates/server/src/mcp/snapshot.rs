//! A job as of one of its records.

use catena_engine::requests::JobView;
use catena_job::Job;
use catena_store::JobCells;
use catena_value::{CellSource, NoCells, Value};

use crate::tools::{Tool, Tools};

/// A job as of the last record that was read.
#[derive(Clone)]
pub(super) struct JobSnapshot {
    pub(super) job: Job,
    /// Where the parts of the job are loaded from that are not in memory.
    pub(super) cells: Option<JobCells>,
}

impl From<JobView> for JobSnapshot {
    fn from(view: JobView) -> Self {
        JobSnapshot { job: (*view.job).clone(), cells: view.cells }
    }
}

impl JobSnapshot {
    pub(super) fn cells(&self) -> &dyn CellSource {
        self.cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells)
    }

    /// A member of the job, if it is a string.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.job.field(name).and_then(Value::as_str)
    }

    /// The tool that the job is a call of. `None` if its operation is not exposed as a tool.
    pub(super) fn tool<'a>(&self, tools: &'a Tools) -> Option<&'a Tool> {
        self.text("operation").and_then(|hex| tools.by_operation(hex)).map(|tool| &**tool)
    }
}

//! The requests that create or change jobs: one file per command.
//!
//! A command checks the request, decides on the current job, commits and returns the job as a view.
//! A change that has started is finished even if the client disconnects.

mod call;
mod cancel;
mod change;
mod delete;
mod due_schedules;
mod import;
mod invoke;
mod name;
pub mod offline;
mod pause;
mod rerun;
mod resume;
mod schedule;
mod send;
mod submit;
mod worker;

pub use name::NamedOperation;

use std::sync::Arc;

use crate::commands::due_schedules::ScheduleStarts;
use crate::execution::Execution;
use crate::jobs::Jobs;
use crate::operations::Operations;
use crate::orchestration::Orchestration;
use crate::requests::{Admission, IdempotencyKeys};
use crate::runtime::Runtime;
use crate::views::Views;

/// The commands of a venue.
pub(crate) struct Commands {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) execution: Arc<Execution>,
    pub(crate) views: Arc<Views>,
    pub(crate) orchestration: Arc<Orchestration>,
    admission: Arc<Admission>,
    keys: Arc<IdempotencyKeys>,
    schedule_starts: ScheduleStarts,
}

impl Commands {
    pub(crate) fn new(orchestration: Arc<Orchestration>) -> Arc<Self> {
        let operations = Arc::clone(&orchestration.operations);
        Arc::new(Commands {
            runtime: Arc::clone(&orchestration.runtime),
            jobs: Arc::clone(&orchestration.jobs),
            execution: Arc::clone(&orchestration.execution),
            views: Arc::clone(&orchestration.views),
            admission: Arc::clone(&operations.admission),
            keys: Arc::clone(&operations.keys),
            operations,
            orchestration,
            schedule_starts: ScheduleStarts::default(),
        })
    }
}

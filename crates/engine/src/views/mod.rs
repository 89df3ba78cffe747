//! What callers see of jobs: single jobs, lists, event streams, summaries and steps. Reading
//! changes nothing and creates no job.

mod events;
mod follow;
mod health;
mod list;
mod read;
mod records;
mod stats;
mod steps;
mod summary;

use std::sync::Arc;

use crate::execution::Execution;
use crate::jobs::Jobs;
use crate::operations::Operations;
use crate::runtime::Runtime;

pub use events::{EventCounts, Events, ListEvent, ListEventKind};
pub use follow::{Follow, JobEvent, Reader};
pub use health::{Health, OldestQueued, QueueDepths};
pub use list::CanvasQuery;
pub use records::RecordSearch;
pub use stats::HourStats;
pub(crate) use steps::{CANNOT_START, STEP_INPUT};
pub use summary::{AttemptFailure, FailureKind, JobSummary, RecoveryNote};

/// The views of a venue's jobs.
pub(crate) struct Views {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) execution: Arc<Execution>,
    topics: events::Topics,
    output_sizes: steps::OutputSizes,
}

impl Views {
    pub(crate) fn new(execution: Arc<Execution>) -> Arc<Self> {
        Arc::new(Views {
            runtime: Arc::clone(&execution.runtime),
            operations: Arc::clone(&execution.operations),
            jobs: Arc::clone(&execution.jobs),
            execution,
            topics: events::Topics::default(),
            output_sizes: steps::OutputSizes::default(),
        })
    }
}

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "views of {}", self.jobs.did)
    }
}

//! A sub-job that was decided to run, until it is durable.

use std::sync::Arc;

use catena_job::JobId;
use catena_value::Value;

use crate::execution::{Run, RunGuard, RunSlot, RunSpec};
use crate::jobs::recorded_limit;
use crate::limits::Limits;
use crate::operations::{Cause, Operation};
use crate::requests::{Caller, JobView};
use crate::runtime::Reservation;

/// A sub-job to run once it is durable.
pub(crate) struct ChildRun {
    pub(crate) job: JobId,
    pub(super) operation: Arc<Operation>,
    pub(super) input: Value,
    pub(super) memory: Reservation,
    pub(super) guard: RunGuard,
    pub(super) slot: Option<RunSlot>,
}

impl ChildRun {
    /// Returns the run of the sub-job, which is durable now.
    pub(crate) fn into_run(self, limits: &Limits, caller: &Caller, view: &JobView) -> Run {
        let spec = RunSpec {
            time_left: recorded_limit(limits, &view.job, &self.operation),
            operation: self.operation,
            caller: caller.clone(),
            input: self.input,
            cause: Cause::Start,
        };
        let run = Run::new(Arc::clone(&view.job), None, spec, self.guard);
        let run = run.with_memory(Arc::new(self.memory));
        match self.slot {
            Some(slot) => run.with_slot(slot),
            None => run,
        }
    }
}

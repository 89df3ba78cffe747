//! Runs a job of an operation on roots that is durably STARTED: a step, a call, a job that was
//! queued, or a new attempt. Its outcome and the new roots are one commit, under its fence, so a
//! job without an outcome has changed nothing and can be run again.

use std::sync::Arc;
use std::time::Duration;

use catena_job::Status;
use catena_store::Hold;
use parking_lot::Mutex;

use crate::error::StoreError;
use crate::execution::Execution;
use crate::execution::record::{RecordContext, TurnOutcome, record_outcome};
use crate::jobs::{
    CommitFailure, Current, Draft, RootFailure, RootWork, ownership_refusal, prepare_roots,
    roots_owner, run_on_roots,
};
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::{Call, Failure, RootId, Roots};

/// The outcome of a job that runs.
struct RootOutcome {
    current: Current,
    fence: u64,
    call: Call,
    roots: Vec<RootId>,
    failure: Arc<Mutex<Option<Failure>>>,
}

impl RootWork for RootOutcome {
    fn roots(&self) -> &[RootId] {
        &self.roots
    }

    fn needs_compute_thread(&self) -> bool {
        self.call.operation.needs_compute_thread(&self.call.input)
    }

    fn apply(&mut self, roots: &mut Roots) -> Result<Option<Draft>, RootFailure> {
        self.failure.lock().take();
        match self.current.job.status() {
            Status::Started => {}
            Status::Paused => {
                // It has done nothing yet: it runs when it is resumed.
                let mut draft = self.current.draft();
                draft.set_hold(Hold::Release(self.fence));
                return Ok(Some(draft));
            }
            _ => return Ok(None),
        }
        let savepoint = roots.savepoint();
        match run_on_roots(&self.call, roots) {
            Ok(output) => {
                let now = roots.now();
                let context = RecordContext {
                    now,
                    interactive: Duration::ZERO,
                    fence: self.fence,
                    by: None,
                    log: None,
                    execution: None,
                };
                let outcome = TurnOutcome::Done(Ok(output));
                let draft = record_outcome(&self.current, outcome, context)?;
                let is_complete =
                    draft.as_ref().is_some_and(|draft| draft.job().status() == Status::Complete);
                if !is_complete {
                    // There is no room for the output in the chain.
                    roots.restore(savepoint);
                }
                Ok(draft)
            }
            Err(failure) => {
                *self.failure.lock() = Some(failure);
                Ok(None)
            }
        }
    }
}

impl Execution {
    /// Executes an operation on roots and commits its outcome. Returns the failure of the operation,
    /// which is to be recorded or retried. `None` if the outcome is committed or the job is no longer
    /// this run's.
    pub(super) async fn change_roots(
        &self,
        mut call: Call,
        fence: u64,
        current: Current,
    ) -> Result<Option<Failure>, StoreError> {
        if let Some(refusal) =
            ownership_refusal(&self.runtime.limits, &call.caller, &call.operation)
        {
            return Ok(Some(Failure::new("forbidden", refusal)));
        }
        let roots = match prepare_roots(&mut call).await {
            Ok(roots) => roots,
            Err(failure) => return Ok(Some(failure)),
        };
        let owner = roots_owner(&call);
        let id = current.job.id();
        let mut current = current;
        for _ in 0..CONTENTION_TRIES_MAX {
            let failure = Arc::default();
            let work = RootOutcome {
                current,
                fence,
                call: call.clone(),
                roots: roots.clone(),
                failure: Arc::clone(&failure),
            };
            let changed = self.roots.change(&owner, Box::new(work)).await;
            match changed {
                Ok(_) => return Ok(failure.lock().take()),
                Err(RootFailure::Append(error)) => {
                    return Err(StoreError::Damaged(error.to_string()));
                }
                Err(RootFailure::Store(error)) => return Err(error),
                Err(RootFailure::Commit(error)) => match CommitFailure::from(*error) {
                    CommitFailure::Gone => return Ok(None),
                    CommitFailure::Conflict => {}
                    CommitFailure::Busy(error) | CommitFailure::Fatal(error) => return Err(error),
                },
            }
            match self.jobs.current(id).await? {
                Some(read) => current = read,
                None => return Ok(None),
            }
        }
        Err(StoreError::Contended)
    }
}

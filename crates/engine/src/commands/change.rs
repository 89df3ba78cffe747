//! Invokes an operation on roots: its job and what it changes are one commit.

use std::sync::Arc;

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_value::Value;
use parking_lot::Mutex;

use crate::commands::Commands;
use crate::commands::invoke::invalid_job;
use crate::error::{ChangeError, InvokeError, StoreError};
use crate::jobs::{
    Draft, Rerun, RootFailure, RootWork, outcome_change, ownership_refusal, prepare_roots,
    refusal_change, roots_owner, run_on_roots,
};
use crate::operations::{Call, Failure, Operation, RootId, Roots, Turn};
use crate::requests::{Caller, ClaimedKey, Invoke, JobView, commit_error, response_for_job};

/// A new job of an operation on roots.
struct NewRootJob {
    /// The job as it is before it starts.
    draft: Draft,
    call: Call,
    roots: Vec<RootId>,
    /// Claimed until the job is committed.
    _key: Option<Box<ClaimedKey>>,
}

impl RootWork for NewRootJob {
    fn roots(&self) -> &[RootId] {
        &self.roots
    }

    fn needs_compute_thread(&self) -> bool {
        self.call.operation.needs_compute_thread(&self.call.input)
    }

    fn apply(&mut self, roots: &mut Roots) -> Result<Option<Draft>, RootFailure> {
        let result = run_on_roots(&self.call, roots);
        let adapter = self.call.operation.adapter();
        match result {
            Err(failure) if adapter.is_refusal(&failure) => {
                let mut draft = self.draft.clone();
                let now = roots.now().max(draft.job().updated());
                draft.append(refusal_change(failure, now))?;
                Ok(Some(draft))
            }
            result => Ok(Some(ended(self.draft.clone(), result, roots.now())?)),
        }
    }
}

/// A change of roots without a job.
struct Closure<T, F> {
    roots: Vec<RootId>,
    change: F,
    result: Arc<Mutex<Option<Result<T, Failure>>>>,
    needs_compute_thread: bool,
}

impl<T: Send, F: FnMut(&mut Roots) -> Result<T, Failure> + Send> RootWork for Closure<T, F> {
    fn roots(&self) -> &[RootId] {
        &self.roots
    }

    fn needs_compute_thread(&self) -> bool {
        self.needs_compute_thread
    }

    fn apply(&mut self, roots: &mut Roots) -> Result<Option<Draft>, RootFailure> {
        let savepoint = roots.savepoint();
        let result = (self.change)(roots);
        if result.is_err() {
            roots.restore(savepoint);
        }
        *self.result.lock() = Some(result);
        Ok(None)
    }
}

impl Commands {
    /// Fails if a caller may own nothing that an operation changes.
    pub(super) fn check_ownership(
        &self,
        caller: &Caller,
        operation: &Operation,
    ) -> Result<(), InvokeError> {
        match ownership_refusal(&self.runtime.limits, caller, operation) {
            Some(refusal) => Err(InvokeError::Forbidden(refusal)),
            None => Ok(()),
        }
    }

    /// Returns why a caller cannot own something, or change it as its owner: beyond loopback, the anonymous
    /// identity is everyone's and owns nothing.
    pub(super) fn anonymous_refusal(&self, caller: &Caller, what: &str) -> Option<String> {
        if self.runtime.limits.anonymous_owns || caller.is_authenticated() {
            return None;
        }
        Some(format!(
            "{what} belongs to a caller, and the anonymous identity owns nothing here; send a token of \
             your own"
        ))
    }

    /// Invokes an operation on roots.
    pub(super) async fn invoke_on_roots(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
        key: Option<Box<ClaimedKey>>,
        rerun: Option<Box<Rerun>>,
    ) -> Result<JobView, InvokeError> {
        let id = self.id_for(request);
        let now = self.runtime.now();
        let (mut draft, _) = self.new_draft(id, request, &operation, rerun.as_deref(), now)?;
        let call = self.execution.unpaused_call(request, Arc::clone(&operation), Some(id));
        let mut call = call.ok_or(InvokeError::ShuttingDown)?;
        // A job that changes nothing is committed alone.
        if operation.is_read_only() {
            let result = match self.operations.execute(call).await {
                Turn::Complete(output) => Ok(output),
                Turn::Failed(failure) => Err(failure),
                _ => Err(Failure::new("adapter_broken", "the operation cannot wait")),
            };
            let draft = ended(draft, result, self.runtime.now()).map_err(invalid_job)?;
            return self.commit_new(draft, key).await;
        }
        let roots = match prepare_roots(&mut call).await {
            Ok(roots) => roots,
            Err(failure) => {
                let draft = ended(draft, Err(failure), self.runtime.now()).map_err(invalid_job)?;
                return self.commit_new(draft, key).await;
            }
        };
        if let Some(key) = &key {
            draft.add(key.remember(response_for_job(id)));
        }
        let owner = roots_owner(&call);
        let work = NewRootJob { draft, call, roots, _key: key };
        let changed = self.execution.roots.change(&owner, Box::new(work)).await;
        let stopped = || StoreError::Stopped("the venue is stopping".to_owned());
        match changed {
            Ok(view) => Ok(view.ok_or_else(stopped)?),
            Err(RootFailure::Commit(error)) => Err(commit_error(*error)),
            Err(RootFailure::Append(error)) => Err(invalid_job(error)),
            Err(RootFailure::Store(error)) => Err(error.into()),
        }
    }

    /// Changes roots of a caller in one commit, without a job. `change` is called again if another
    /// commit came first.
    pub(crate) async fn change_roots<T: Send + 'static>(
        &self,
        caller: &Caller,
        roots: Vec<RootId>,
        change: impl FnMut(&mut Roots) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, ChangeError> {
        let result = Arc::default();
        let work = Closure { roots, change, result, needs_compute_thread: false };
        self.commit_closure(caller, work).await
    }

    /// The same for a change that takes long to compute: a compute thread does it.
    pub(super) async fn change_roots_computed<T: Send + 'static>(
        &self,
        caller: &Caller,
        roots: Vec<RootId>,
        change: impl FnMut(&mut Roots) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, ChangeError> {
        let result = Arc::default();
        let work = Closure { roots, change, result, needs_compute_thread: true };
        self.commit_closure(caller, work).await
    }

    async fn commit_closure<T, F>(
        &self,
        caller: &Caller,
        work: Closure<T, F>,
    ) -> Result<T, ChangeError>
    where
        T: Send + 'static,
        F: FnMut(&mut Roots) -> Result<T, Failure> + Send + 'static,
    {
        if self.runtime.is_stopping() {
            return Err(StoreError::Stopped("the venue is stopping".to_owned()).into());
        }
        let result = Arc::clone(&work.result);
        match self.execution.roots.change(caller.did.text(), Box::new(work)).await {
            Ok(_) => {}
            Err(RootFailure::Commit(error)) => return Err(StoreError::from(*error).into()),
            Err(RootFailure::Append(error)) => {
                return Err(StoreError::Damaged(error.to_string()).into());
            }
            Err(RootFailure::Store(error)) => return Err(error.into()),
        }
        let done = result.lock().take();
        let lost = || StoreError::Damaged("a change has no result".to_owned());
        let refused =
            |failure: Failure| ChangeError::Refused { code: failure.code, error: failure.error };
        done.ok_or_else(lost)?.map_err(refused)
    }
}

/// Appends the start and the end of a job.
fn ended(
    mut draft: Draft,
    result: Result<Value, Failure>,
    now: i64,
) -> Result<Draft, catena_job::chain::AppendError> {
    let now = now.max(draft.job().updated());
    draft.append(Change::new(Event::Started, now))?;
    draft.append(outcome_change(result, now))?;
    Ok(draft)
}

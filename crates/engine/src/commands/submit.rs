//! Creates a job unless one with the same key exists.
//!
//! A key belongs to a user and a scope. The last job of a key is a root, which is swapped in the commit
//! that creates the next one: of any number of equal requests at the same time, one creates a job and
//! the others find it.

use std::sync::Arc;

use catena_job::Status;
use catena_store::{CommitError, Effect, Effects, RootKey, RootSpace};
use catena_value::{Map, Value, ValueId};

use crate::commands::Commands;
use crate::commands::invoke::Admitted;
use crate::error::{InvokeError, StoreError};
use crate::execution::offer_now;
use crate::limits::CONTENTION_TRIES_MAX;
use crate::operations::Operation;
use crate::requests::{
    ClaimedKey, Invoke, JobView, SubmitOnce, Submitted, commit_error, job_from_response,
};

/// The owner of the roots that hold the last job of each key.
const SUBMITTED: &str = "submitted";

/// The member of a stored response that says whether the job existed before.
const REUSED: &str = "reused";

impl Commands {
    /// Creates a job, or returns an earlier one with the same key that is good enough.
    pub(crate) async fn submit_once(
        self: &Arc<Self>,
        request: SubmitOnce,
    ) -> Result<Submitted, InvokeError> {
        let commands = Arc::clone(self);
        let submitting = async move { commands.submit_now(request).await };
        self.runtime.finish_even_if_dropped(submitting).await
    }

    async fn submit_now(self: &Arc<Self>, once: SubmitOnce) -> Result<Submitted, InvokeError> {
        let request = &once.invoke;
        let key = match self.admit(request).await? {
            Admitted::New(key) => key,
            Admitted::Answered(answer) => return self.replay_submitted(request, &answer).await,
        };
        let operation = self.operations.resolve(&request.caller, &request.operation).await?;
        if operation.queue().is_none() {
            let text = "only operations that workers run can be submitted once";
            return Err(InvokeError::Invalid(text.to_owned()));
        }
        self.check_ownership(&request.caller, &operation)?;
        let root = root_key(&request.caller.did, &once);
        for _ in 0..CONTENTION_TRIES_MAX {
            let stored = self.jobs.store.root(&root).await.map_err(StoreError::from)?;
            if let Some(stored) = &stored
                && let Some(view) = self.submitted_before(&stored.value, &once).await?
            {
                self.remember_reuse(key.as_deref(), &view).await?;
                return Ok(Submitted { view, is_replay: false, is_reused: true });
            }
            let live = self.admission.live_count(&request.caller.did);
            if live >= self.runtime.limits.live_jobs_per_caller_max {
                return Err(InvokeError::TooManyJobs { live });
            }
            self.operations.check_stored_bytes(&request.caller.did).await?;
            let expected = stored.map(|root| root.id);
            let swap = (root.clone(), expected);
            match self.create_submitted(request, &operation, key.as_deref(), swap).await? {
                Some(view) => return Ok(Submitted { view, is_replay: false, is_reused: false }),
                None => continue,
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Creates the job and makes it the last one of its key. `None` if another request came first.
    async fn create_submitted(
        &self,
        request: &Invoke,
        operation: &Operation,
        key: Option<&ClaimedKey>,
        (root, expected): (RootKey, Option<ValueId>),
    ) -> Result<Option<JobView>, InvokeError> {
        let id = self.id_for(request);
        let now = self.runtime.now();
        let (mut draft, secrets) = self.new_draft(id, request, operation, None, now)?;
        if let Some(stored) = self.jobs.store_secrets(id, &secrets)? {
            draft.add(stored);
        }
        draft.add(offer_now(draft.job(), now));
        draft.add(Effect::SetRoot { key: root, expected, value: Some(id.into()) });
        if let Some(key) = key {
            draft.add(key.remember(answer(draft.job().id().into(), false)));
        }
        match self.jobs.commit(draft).await {
            Ok(committed) => {
                self.execution.notify_queued(&committed.view.job);
                Ok(Some(committed.view))
            }
            Err(CommitError::RootMoved { .. }) => Ok(None),
            Err(error) => Err(commit_error(error)),
        }
    }

    /// Returns the job that a root names, if it is good enough. A deleted job never is.
    async fn submitted_before(
        &self,
        stored: &Value,
        once: &SubmitOnce,
    ) -> Result<Option<JobView>, InvokeError> {
        let Some(id) = stored.as_str().and_then(|id| id.parse().ok()) else { return Ok(None) };
        let Some(current) = self.jobs.current(id).await? else { return Ok(None) };
        let is_reusable = match current.job.status() {
            Status::Complete => true,
            Status::Failed | Status::Timeout | Status::Rejected => once.reuses_failed,
            Status::Cancelled => false,
            _ => true,
        };
        Ok(is_reusable.then(|| self.views.view(current)))
    }

    async fn remember_reuse(
        &self,
        key: Option<&ClaimedKey>,
        view: &JobView,
    ) -> Result<(), InvokeError> {
        let Some(key) = key else { return Ok(()) };
        let effect = key.remember(answer(view.job.id().into(), true));
        let committed = self.jobs.store.commit(Effects::one(effect)).await;
        committed.map(drop).map_err(commit_error)
    }

    async fn replay_submitted(
        &self,
        request: &Invoke,
        stored: &Value,
    ) -> Result<Submitted, InvokeError> {
        let deleted = || InvokeError::Invalid("the job of this idempotency key was deleted".into());
        let id = job_from_response(stored).ok_or_else(deleted)?;
        let current = self.jobs.current(id).await?.ok_or_else(deleted)?;
        if !request.caller.may_touch(current.text("caller")) {
            return Err(deleted());
        }
        let is_reused = stored.as_map().and_then(|map| map.field(REUSED)?.as_bool());
        let is_reused = is_reused.unwrap_or(false);
        Ok(Submitted { view: self.views.view(current), is_replay: true, is_reused })
    }
}

fn root_key(owner: &str, once: &SubmitOnce) -> RootKey {
    let name = format!("{owner} {} {}", once.scope, once.key);
    RootKey { space: RootSpace::Venue, owner: SUBMITTED.to_owned(), name }
}

fn answer(job: Value, is_reused: bool) -> Value {
    [("job", job), (REUSED, is_reused.into())].into_iter().collect::<Map>().into()
}

//! Calls and steps that a worker makes for the job that it holds.

use std::sync::Arc;

use catena_job::{JobId, Status};

use crate::commands::Commands;
use crate::error::WorkerError;
use crate::execution::workers::claims::may_work_on;
use crate::limits::{CALL_KEY_BYTES_MAX, WORKER_WAIT_MAX};
use crate::operations::{Failure, Signal};
use crate::requests::{CallIdentity, CallRequest, Caller, JobView, WorkerCall};

impl Commands {
    /// Makes a call for a job that a worker holds, or finds the one that was made before under the same
    /// key, and returns the called job: once it has ended, or as it is after a time.
    pub(crate) async fn worker_call(
        self: &Arc<Self>,
        call: WorkerCall,
    ) -> Result<JobView, WorkerError> {
        if call.key.is_empty() || call.key.len() > CALL_KEY_BYTES_MAX {
            let text = format!("`key` must be a text of 1 to {CALL_KEY_BYTES_MAX} bytes");
            return Err(WorkerError::Invalid(text));
        }
        let Some(current) = self.jobs.current(call.job).await? else {
            return Err(WorkerError::NotFound(call.job));
        };
        let run = self.execution.adopt_worker_run(&call.caller, &current, call.fence).await?;
        let Some((_, handle)) = run else {
            let is_own = may_work_on(&call.caller, &current.job);
            let job = call.job;
            return Err(if is_own { WorkerError::Fenced(job) } else { WorkerError::NotFound(job) });
        };
        if handle.signal() == Signal::Pause {
            return Err(WorkerError::Paused(call.job));
        }
        let input = match call.identity {
            CallIdentity::Key => handle.secrets.redact(call.input),
            CallIdentity::KeyAndInput => call.input,
        };
        if handle.secrets.occur_in(&input) || handle.secrets.occur_in(&call.key.as_str().into()) {
            let code = "secret_refused".to_owned();
            let error = "a secret that the worker was given cannot be part of a call, which is \
                         recorded; the called operation can declare it itself"
                .to_owned();
            return Err(WorkerError::Failed { code, error });
        }
        let request = CallRequest {
            job: call.job,
            // The job acts for the caller who invoked it, not for its worker.
            caller: self.jobs.caller_of(&current.job).await?,
            authority: None,
            key: call.key,
            operation: call.operation,
            input,
            is_detached: false,
        };
        let called = match call.identity {
            CallIdentity::Key => self.recorded_call(&current, &request.key).await?,
            CallIdentity::KeyAndInput => None,
        };
        let view = match called {
            Some(view) => view,
            None => self.start_call(&request, &handle).await.map_err(|failure| {
                let Failure { code, error, .. } = failure;
                WorkerError::Failed { code, error }
            })?,
        };
        let wait = call.wait.min(WORKER_WAIT_MAX);
        let view = self.wait_for_call(view, wait).await?;
        if view.status().is_terminal() {
            self.record_end(&request, &handle, &view).await?;
        }
        Ok(view)
    }

    /// Returns a job that a worker of the caller holds under a fence.
    pub(crate) async fn held_job(
        &self,
        caller: &Caller,
        job: JobId,
        fence: u64,
    ) -> Result<JobView, WorkerError> {
        let Some(current) = self.jobs.current(job).await? else {
            return Err(WorkerError::NotFound(job));
        };
        match self.execution.adopt_worker_run(caller, &current, fence).await? {
            Some(_) => Ok(self.views.view(current)),
            None if may_work_on(caller, &current.job) => Err(WorkerError::Fenced(job)),
            None => Err(WorkerError::NotFound(job)),
        }
    }

    /// Returns the call that a job has made under a key.
    async fn recorded_call(
        &self,
        current: &crate::jobs::Current,
        key: &str,
    ) -> Result<Option<JobView>, WorkerError> {
        let call = current.job.calls().iter().find(|call| call.start.key == *key);
        let Some(call) = call else { return Ok(None) };
        let called = self.jobs.current(call.start.job).await?;
        Ok(called.map(|called| self.views.view(called)))
    }

    async fn wait_for_call(
        &self,
        view: JobView,
        wait: std::time::Duration,
    ) -> Result<JobView, WorkerError> {
        if view.status().is_terminal() || wait.is_zero() {
            return Ok(view);
        }
        let id = view.job.id();
        let mut watch = self.jobs.watchers.watch(id);
        let view = match self.jobs.current(id).await? {
            Some(current) => self.views.view(current),
            None => view,
        };
        Ok(self.jobs.watch_until(view, &mut watch, wait, Status::is_terminal).await)
    }
}

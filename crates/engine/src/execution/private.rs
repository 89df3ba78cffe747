//! Private jobs: they exist in memory only, are absent from lists and are forgotten when they end.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use catena_job::chain::Change;
use catena_job::state::Event;
use catena_job::vocabulary::Phase;
use catena_job::{JobId, Status};
use futures_util::FutureExt;
use parking_lot::Mutex;

use crate::error::{ControlError, InvokeError, StoreError};
use crate::execution::{Execution, RunHandle, require_output};
use crate::jobs::{
    Draft, adapter_panicked, append_error, check_visible, execution_limit, outcome_change,
    time_limit_exceeded, too_much_memory,
};
use crate::limits::WAIT_MAX;
use crate::operations::{Operation, Turn};
use crate::requests::{Caller, Invoke, JobView, PrivateLive};

/// The private jobs that run.
#[derive(Default)]
pub(crate) struct PrivateJobs {
    jobs: Mutex<HashMap<JobId, Arc<PrivateJob>>>,
    count: AtomicUsize,
}

/// A job of which nothing is recorded.
pub(crate) struct PrivateJob {
    view: Mutex<JobView>,
    handle: Arc<RunHandle>,
}

impl PrivateJob {
    pub(crate) fn view(&self) -> JobView {
        self.view.lock().clone()
    }

    /// Appends a change, unless the job has ended.
    fn append(&self, change: Change) -> Result<JobView, StoreError> {
        let mut view = self.view.lock();
        if !view.status().is_terminal() {
            let mut job = (*view.job).clone();
            job.append(change).map_err(append_error)?;
            view.job = Arc::new(job);
        }
        Ok(view.clone())
    }
}

impl PrivateJobs {
    pub(crate) fn get(&self, job: JobId) -> Option<Arc<PrivateJob>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.jobs.lock().get(&job).cloned()
    }

    fn insert(&self, job: JobId, private: Arc<PrivateJob>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.jobs.lock().insert(job, private);
    }

    fn remove(&self, job: JobId) {
        if self.jobs.lock().remove(&job).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Execution {
    /// Runs an operation as a private job. It counts as live and occupies a slot like any other; it
    /// cannot wait for a slot, because nothing is stored of it.
    pub(crate) async fn start_private(
        self: &Arc<Self>,
        request: &Invoke,
        operation: Arc<Operation>,
        live: PrivateLive,
    ) -> Result<JobView, InvokeError> {
        let id = self.runtime.new_id();
        let now = self.runtime.now();
        let (new_job, _) = self.jobs.new_job(id, request, &operation, &[]);
        let refused = |error| InvokeError::Store(append_error(error));
        let mut draft = Draft::new(new_job, now, None).map_err(refused)?;
        let call = self.unpaused_call(request, Arc::clone(&operation), Some(id));
        let mut call = call.ok_or(InvokeError::ShuttingDown)?;
        if draft.append_inline(&call, now).map_err(refused)? {
            return Ok(draft.into_parts().1);
        }
        let slot = self.try_claim_slot(&request.caller.did).ok_or(StoreError::Busy)?;
        let mut memory = self.runtime.memory.open(request.caller.did.text());
        let reserved = request.reserved.clone();
        if reserved.is_none() {
            memory.grow_for(&request.input)?;
        }
        draft.append(Change::new(Event::Started, now)).map_err(refused)?;
        let mut view = draft.into_parts().1;
        view.phase = Phase::Leased;
        let guard = self.registry.register(id, 0);
        call.control = guard.handle.control(&self.runtime.env);
        let handle = Arc::clone(&guard.handle);
        let private = Arc::new(PrivateJob { view: Mutex::new(view.clone()), handle });
        self.private.insert(id, Arc::clone(&private));
        let mut watch = self.jobs.watchers.watch(id);
        let limit = execution_limit(&self.runtime.limits, request.timeout, &operation);
        let execution = Arc::clone(self);
        self.runtime.spawn(async move {
            let runtime = &execution.runtime;
            let adapter = Arc::clone(operation.adapter());
            let caller = call.caller.did.clone();
            let control = call.control.clone();
            let turn = async { execution.operations.execute(call).await };
            let turn = AssertUnwindSafe(turn).catch_unwind();
            let change = tokio::select! {
                turn = turn => {
                    let panicked = |_| Turn::Failed(adapter_panicked(adapter.name()));
                    let turn = turn.unwrap_or_else(panicked).redacted(&control);
                    let output = require_output(turn);
                    let output = match output {
                        Ok(output) => match memory.grow_for(&output) {
                            Err(error) => Err(too_much_memory(error)),
                            Ok(()) => {
                                let operations = &execution.operations;
                                let checked = operations.check_output(&caller, &operation, &output);
                                checked.await.map(|()| output)
                            }
                        },
                        Err(failure) => Err(failure),
                    };
                    Some(outcome_change(output, runtime.now()))
                }
                () = runtime.env.sleep(limit) => {
                    let error = time_limit_exceeded(limit);
                    Some(Change::new(Event::Expired { error }, runtime.now()))
                }
                () = guard.handle.stopped() => None,
            };
            if let Some(Ok(view)) = change.map(|change| private.append(change)) {
                execution.jobs.watchers.announce(&view);
            }
            execution.private.remove(id);
            drop((slot, live, memory));
        });
        let time = request.wait.unwrap_or(self.runtime.limits.grace).min(WAIT_MAX);
        Ok(self.jobs.watch_until(view, &mut watch, time, Status::is_terminal).await)
    }

    /// Fails if a job is private, for an action that only recorded jobs support. To anybody but its owner
    /// there is no such job.
    pub(crate) fn check_recorded(
        &self,
        caller: &Caller,
        job: JobId,
        action: &'static str,
    ) -> Result<(), ControlError> {
        let Some(private) = self.private.get(job) else { return Ok(()) };
        check_visible(caller, &private.view().job).map_err(|_| ControlError::NotFound(job))?;
        Err(ControlError::Private { job, action })
    }

    /// Cancels a private job and returns it.
    pub(crate) fn cancel_private(
        &self,
        caller: &Caller,
        id: JobId,
        private: &PrivateJob,
        error: &str,
    ) -> Result<JobView, ControlError> {
        let view = private.view();
        check_visible(caller, &view.job).map_err(|_| ControlError::NotFound(id))?;
        let event = Event::Cancelled { error: error.to_owned() };
        let mut change = Change::new(event, self.runtime.now());
        change.by = Some(caller.did.to_string());
        let view = private.append(change)?;
        self.jobs.watchers.announce(&view);
        private.handle.stop();
        Ok(view)
    }
}

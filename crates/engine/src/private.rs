//! Private jobs: in memory only, absent from lists, forgotten at their end.

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

use crate::adapter::{ExecutionMode, Turn};
use crate::caller::Caller;
use crate::change::Draft;
use crate::control::Signal;
use crate::engine::Engine;
use crate::error::{ControlError, InvokeError, StoreError};
use crate::limits::WAIT_MAX;
use crate::operation::Operation;
use crate::request::{Invoke, JobView};
use crate::run::{bare, too_long, unwritten};
use crate::running::Reins;
use crate::submit::{broken, check_output, compute, outcome};

/// Private jobs that run now.
#[derive(Default)]
pub(crate) struct PrivateJobs {
    jobs: Mutex<HashMap<JobId, Arc<PrivateJob>>>,
    count: AtomicUsize,
}

/// A job that nothing is written of.
pub(crate) struct PrivateJob {
    view: Mutex<JobView>,
    reins: Arc<Reins>,
}

impl PrivateJob {
    pub(crate) fn view(&self) -> JobView {
        self.view.lock().clone()
    }

    /// Appends a change, if the job still lives.
    fn append(&self, change: Change) -> Result<JobView, StoreError> {
        let mut view = self.view.lock();
        if !view.status().is_terminal() {
            let mut job = (*view.job).clone();
            job.append(change).map_err(unwritten)?;
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

impl Engine {
    /// Runs an operation of which nothing is recorded.
    pub(crate) async fn begin_private(
        &self,
        request: &Invoke,
        operation: Arc<Operation>,
    ) -> Result<JobView, InvokeError> {
        let (id, now) = (self.new_id(), self.now());
        let (opening, _) = self.opening(id, request, &operation, &[])?;
        let trouble = |error| InvokeError::Store(unwritten(error));
        let mut draft = Draft::open(opening, now, None).map_err(trouble)?;
        draft.append(Change::new(Event::Started, now)).map_err(trouble)?;
        let mut call = self.call(request, Arc::clone(&operation), Some(id));
        if operation.mode() == ExecutionMode::Inline {
            draft.append(outcome(compute(&call), self.now())).map_err(trouble)?;
            return Ok(draft.into_parts().1);
        }
        let mut view = draft.into_parts().1;
        view.phase = Phase::Leased;
        let held = self.0.running.take(id, None).ok_or(StoreError::Contended)?;
        call.control = held.reins.control(&self.0.env);
        let private =
            Arc::new(PrivateJob { view: Mutex::new(view.clone()), reins: Arc::clone(&held.reins) });
        self.0.private.insert(id, Arc::clone(&private));
        let mut watch = self.0.hub.watch(id);
        let limit = self.execution_limit(request.timeout, &operation);
        let engine = self.clone();
        self.spawn(async move {
            let carrier = Arc::clone(operation.carrier());
            let turning = AssertUnwindSafe(async { carrier.run(call).await }).catch_unwind();
            let change = tokio::select! {
                turn = turning => {
                    let turn = turn.unwrap_or_else(|_| Turn::Failed(broken(carrier.name())));
                    let done = bare(turn).and_then(|output| {
                        check_output(&operation, &output).map(|()| output)
                    });
                    Some(outcome(done, engine.now()))
                }
                () = engine.0.env.sleep(limit) => {
                    Some(Change::new(Event::Expired { error: too_long(limit) }, engine.now()))
                }
                () = held.reins.stopped() => None,
            };
            if let Some(Ok(view)) = change.map(|change| private.append(change)) {
                engine.0.hub.announce(&view);
            }
            engine.0.private.remove(id);
        });
        let time = request.wait.unwrap_or(self.0.limits.grace).min(WAIT_MAX);
        Ok(self.watch_until(view, &mut watch, time, Status::is_terminal).await)
    }

    pub(crate) fn cancel_private(
        &self,
        caller: &Caller,
        id: JobId,
        private: &PrivateJob,
        error: &str,
    ) -> Result<JobView, ControlError> {
        let view = private.view();
        self.visible(caller, &view.job).map_err(|_| ControlError::NotFound(id))?;
        let mut change = Change::new(Event::Cancelled { error: error.to_owned() }, self.now());
        change.by = Some(caller.did.to_string());
        let view = private.append(change)?;
        self.0.hub.announce(&view);
        private.reins.signal(Signal::Stop);
        Ok(view)
    }
}

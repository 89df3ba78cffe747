//! Operations that another operation runs on this venue, with the same authority.
//!
//! Each becomes a sub-job to which the running job commits. If nothing is recorded of the running
//! job, it becomes a job of its own, which is cancelled with the one that waits for it.

use std::sync::Arc;

use catena_engine::limits::WAIT_MAX;
use catena_engine::requests::{CallRequest, Invoke, JobView};
use catena_engine::{Call, Caller, Failure, Host};
use catena_job::{Job, JobId, Status};
use catena_value::{CellSource, Value};

use crate::failures::{invoke_failure, job_failure};
use crate::fields::{load_failure, text};

/// Whether a call is awaited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    ForEnd,
    Detached,
}

/// Makes a call of the running job. `None` if nothing is recorded of that job.
async fn make_call(
    call: &Call,
    operation: &str,
    input: &Value,
    wait: Wait,
) -> Result<Option<JobView>, Failure> {
    let Some(job) = call.job else { return Ok(None) };
    let request = CallRequest {
        job,
        caller: call.caller.clone(),
        // Each of these operations makes one call.
        authority: None,
        key: format!("{}-1", call.operation.name()),
        operation: operation.to_owned(),
        input: input.clone(),
        is_detached: wait == Wait::Detached,
    };
    match call.host.call(request).await {
        Ok(view) => Ok(Some(view)),
        Err(failure) if failure.code == "unrecorded" => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Invokes an operation as a call and returns the new job without waiting for its end.
pub(crate) async fn invoke(
    call: &Call,
    operation: String,
    input: Value,
) -> Result<JobView, Failure> {
    match make_call(call, &operation, &input, Wait::Detached).await? {
        Some(view) => Ok(view),
        None => invoke_unrecorded(call, operation, input).await,
    }
}

async fn invoke_unrecorded(
    call: &Call,
    operation: String,
    input: Value,
) -> Result<JobView, Failure> {
    call.control.proceed().await;
    let mut request = Invoke::new(call.caller.clone(), operation, input);
    request.depth = call.depth.saturating_add(1);
    call.host.invoke(request).await.map(|invoked| invoked.view).map_err(invoke_failure)
}

/// Runs an operation to its end, as a call, and returns its output.
pub(crate) async fn run(call: &Call, operation: String, input: Value) -> Result<Value, Failure> {
    if let Some(view) = make_call(call, &operation, &input, Wait::ForEnd).await? {
        return outcome(&view.job, view.cells());
    }
    let mut view = invoke_unrecorded(call, operation, input).await?;
    let guard = CancelOnDrop::new(call, view.job.id());
    while !view.status().is_terminal() {
        view = call.host.wait(&call.caller, view.job.id(), WAIT_MAX).await.map_err(job_failure)?;
    }
    guard.disarm();
    outcome(&view.job, view.cells())
}

/// The output of a job that has ended, or the failure that explains why it has none.
pub(crate) fn outcome(job: &Job, cells: &dyn CellSource) -> Result<Value, Failure> {
    if job.status() == Status::Complete {
        let output = job.field("output").cloned().unwrap_or(Value::Nil);
        return output.fully_loaded(cells).map_err(load_failure);
    }
    let error = job.field("error").and_then(|error| text(&error.fully_loaded(cells).ok()?));
    Err(ended_without_output(&job.id().to_string(), job.status(), error.as_deref()))
}

/// The failure of an operation that waited for a job without an output. The job's own error comes
/// first, because it says most.
pub(crate) fn ended_without_output(id: &str, status: Status, error: Option<&str>) -> Failure {
    let text = match error {
        Some(error) => format!("{error} (job {id} is {status})"),
        None => format!("job {id} is {status}"),
    };
    Failure::new("job_not_complete", text)
}

/// The job's JSON as clients see it, completely in memory.
pub(crate) fn job_document(view: &JobView) -> Result<Value, Failure> {
    view.job.to_value().fully_loaded(view.cells()).map_err(load_failure)
}

/// The failure of an operation that the adapter does not have.
pub(crate) fn unsupported_operation(call: &Call) -> Failure {
    let reference = call.operation.adapter_ref();
    Failure::new("unsupported", format!("there is no operation {reference}"))
}

/// Cancels a job when it is dropped.
struct CancelOnDrop {
    host: Arc<dyn Host>,
    caller: Caller,
    job: Option<JobId>,
}

impl CancelOnDrop {
    fn new(call: &Call, job: JobId) -> Self {
        CancelOnDrop { host: Arc::clone(&call.host), caller: call.caller.clone(), job: Some(job) }
    }

    fn disarm(mut self) {
        self.job = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(job) = self.job else { return };
        if !self.host.is_ready() {
            // The venue is stopping and nothing was cancelled: the job is recovered by its own rule.
            return;
        }
        let host = Arc::clone(&self.host);
        let caller = self.caller.clone();
        let env = host.env().clone();
        env.spawn(Box::pin(async move {
            let reason = "the job that waited for it ended".to_owned();
            // A job that has ended meanwhile cannot be cancelled, which is fine.
            drop(host.cancel(&caller, job, Some(reason)).await);
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_an_output_fails_with_its_own_error_first() {
        let failure = ended_without_output("0x01", Status::Failed, Some("no such file"));
        assert_eq!(failure.error, "no such file (job 0x01 is FAILED)");
        assert_eq!(
            ended_without_output("0x01", Status::Cancelled, None).error,
            "job 0x01 is CANCELLED"
        );
    }
}

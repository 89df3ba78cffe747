//! An operation that another one runs here, with the same authority.
//!
//! It becomes a job of its own. When the one that waits for it is cancelled, so is it.

use catena_engine::limits::WAIT_MAX;
use catena_engine::request::{Invoke, JobView};
use catena_engine::{Call, Caller, Engine, Failure};
use catena_job::{Job, JobId, Status};
use catena_value::{CellSource, Value};

use crate::failures::{of_invoke, of_job};
use crate::fields::{not_in_memory, text};

/// Makes a job of an operation, and does not wait for its end.
pub(crate) async fn invoke(
    call: &Call,
    operation: String,
    input: Value,
) -> Result<JobView, Failure> {
    call.control.proceed().await;
    let request = Invoke::new(call.caller.clone(), operation, input);
    call.engine.invoke(request).await.map(|invoked| invoked.view).map_err(of_invoke)
}

/// Runs an operation and gives its output.
pub(crate) async fn run(call: &Call, operation: String, input: Value) -> Result<Value, Failure> {
    let mut view = invoke(call, operation, input).await?;
    let guard = Guard::new(call, view.job.id());
    while !view.status().is_terminal() {
        view = call.engine.wait(&call.caller, view.job.id(), WAIT_MAX).await.map_err(of_job)?;
    }
    guard.disarm();
    outcome(&view.job, view.cells())
}

/// The output of a job that has ended, or why it has none.
pub(crate) fn outcome(job: &Job, cells: &dyn CellSource) -> Result<Value, Failure> {
    if job.status() == Status::Complete {
        let output = job.field("output").cloned().unwrap_or(Value::Nil);
        return output.fully_loaded(cells).map_err(not_in_memory);
    }
    let error = job.field("error").and_then(|error| text(&error.fully_loaded(cells).ok()?));
    Err(ended(&job.id().to_string(), job.status(), error.as_deref()))
}

/// The failure that a job without an output is to whoever waits for it. Its own words come first:
/// they say most.
pub(crate) fn ended(id: &str, status: Status, error: Option<&str>) -> Failure {
    let text = match error {
        Some(error) => format!("{error} (job {id} is {status})"),
        None => format!("job {id} is {status}"),
    };
    Failure::new("job_not_complete", text)
}

/// The job as clients see it, wholly in memory.
pub(crate) fn record(view: &JobView) -> Result<Value, Failure> {
    view.job.to_value().fully_loaded(view.cells()).map_err(not_in_memory)
}

/// An operation that an adapter does not have.
pub(crate) fn unsupported(call: &Call) -> Failure {
    let reference = call.operation.adapter();
    Failure::new("unsupported", format!("there is no operation {reference}"))
}

/// Cancels a job when it is dropped.
struct Guard {
    engine: Engine,
    caller: Caller,
    job: Option<JobId>,
}

impl Guard {
    fn new(call: &Call, job: JobId) -> Self {
        Guard { engine: call.engine.clone(), caller: call.caller.clone(), job: Some(job) }
    }

    fn disarm(mut self) {
        self.job = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(job) = self.job else { return };
        if !self.engine.is_ready() {
            // The venue stops, nobody cancelled anything: the job is recovered by its own rule.
            return;
        }
        let (engine, caller) = (self.engine.clone(), self.caller.clone());
        let env = engine.env().clone();
        env.spawn(Box::pin(async move {
            let reason = "the job that waited for it ended".to_owned();
            // A job that has ended meanwhile needs no cancelling, and nobody waits to be told.
            drop(engine.cancel(&caller, job, Some(reason)).await);
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_an_output_fails_with_its_own_words_first() {
        let failure = ended("0x01", Status::Failed, Some("no such file"));
        assert_eq!(failure.error, "no such file (job 0x01 is FAILED)");
        assert_eq!(ended("0x01", Status::Cancelled, None).error, "job 0x01 is CANCELLED");
    }
}

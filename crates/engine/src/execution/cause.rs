//! Why the next turn of a job runs, by what its chain says.

use catena_job::Status;

use crate::error::StoreError;
use crate::execution::{PausedTurn, is_resumed_by_notice};
use crate::jobs::{Current, Jobs, is_answering};
use crate::operations::Cause;

/// Returns the cause of the next turn of a job that is STARTED and that nobody runs: it was retried,
/// recovered or resumed.
pub(crate) async fn next_cause(jobs: &Jobs, current: &Current) -> Result<Cause, StoreError> {
    let paused = PausedTurn::from_job(current);
    let answers_message =
        is_answering(&current.job) || paused.as_ref().is_some_and(|paused| paused.is_answering);
    if answers_message {
        return Ok(jobs.last_message(current).await?.map_or(Cause::Retry, Cause::Message));
    }
    if is_resumed_by_notice(&current.job) {
        return Ok(Cause::Retry);
    }
    let is_first = current.job.attempt() == 1;
    Ok(match paused {
        Some(paused) if paused.from == Status::Pending && is_first => Cause::Start,
        Some(paused) if paused.turn == "ended" && paused.from != Status::Pending => Cause::Resume,
        _ => Cause::Retry,
    })
}

//! Execution limits and deadlines.

use std::time::Duration;

use catena_job::Job;
use catena_job::chain::Change;
use catena_value::Value;

use crate::limits::Limits;
use crate::operations::Operation;

/// Returns a duration in ms.
pub(crate) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the `deadline` member of a record: `now` plus the limit, as Unix time in ms.
pub(crate) fn deadline(now: i64, limit: Duration) -> Value {
    now.saturating_add(milliseconds(limit)).into()
}

/// Returns how long an operation may run: as requested, as declared, or the venue's default.
pub(crate) fn execution_limit(
    limits: &Limits,
    requested: Option<Duration>,
    operation: &Operation,
) -> Duration {
    requested.or(operation.timeout()).unwrap_or(limits.execution)
}

/// Returns how long a job, or a turn of it, may run, by what its first record says.
pub(crate) fn recorded_limit(limits: &Limits, job: &Job, operation: &Operation) -> Duration {
    let requested = job.field("timeoutMs").and_then(Value::as_i64);
    let requested = requested.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    execution_limit(limits, requested, operation)
}

/// Returns the time until a deadline, for a turn that starts now: at least 1 ms, at most the limit.
pub(crate) fn time_until(deadline: Option<i64>, now: i64, limit: Duration) -> Duration {
    let Some(at) = deadline else { return limit };
    let left = at.saturating_sub(now).clamp(1, milliseconds(limit).max(1));
    Duration::from_millis(u64::try_from(left).unwrap_or(1))
}

/// The member of an interactive record with the execution time that is left, in ms: the clock of a
/// job stops while everything below it waits for people.
pub(crate) const LEFT_MS: &str = "leftMs";

/// Returns the execution time that was left when the clock of an interactive job stopped, in ms.
pub(crate) fn left_ms(job: &Job) -> Option<i64> {
    job.field(LEFT_MS).and_then(Value::as_i64)
}

/// Returns the execution time that is left of a job whose clock runs, in ms.
pub(crate) fn time_left_ms(job: &Job, now: i64) -> Option<i64> {
    let deadline = job.field("deadline").and_then(Value::as_i64);
    deadline.map(|at| at.saturating_sub(now).max(1))
}

/// Stops the clock of a job that waits for people, for at most `interactive`.
pub(crate) fn stop_clock(job: &Job, now: i64, interactive: Duration, change: &mut Change) {
    let left = time_left_ms(job, now);
    change.extra.push((LEFT_MS, left.map_or(Value::Nil, Value::from)));
    change.extra.push(("deadline", deadline(now, interactive)));
}

/// Starts the clock of an interactive job again, if it had stopped.
pub(crate) fn restart_clock(job: &Job, now: i64, change: &mut Change) {
    if let Some(left) = left_ms(job) {
        change.extra.push((LEFT_MS, Value::Nil));
        change.extra.push(("deadline", now.saturating_add(left).into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_until_a_deadline_is_between_one_millisecond_and_the_limit() {
        let limit = Duration::from_millis(500);
        let check = |deadline: Option<i64>, expected: u64| {
            assert_eq!(time_until(deadline, 1_000, limit), Duration::from_millis(expected));
        };
        check(None, 500);
        check(Some(1_200), 200);
        check(Some(1_500), 500);
        check(Some(9_000), 500);
        check(Some(1_000), 1);
        check(Some(0), 1);
    }
}

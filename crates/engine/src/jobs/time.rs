//! Execution limits and deadlines.

use std::time::Duration;

use catena_job::Job;
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

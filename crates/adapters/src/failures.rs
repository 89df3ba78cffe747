//! Maps the engine's errors to failures of an operation.

use catena_engine::Failure;
use catena_engine::error::{IdempotencyError, InvokeError, JobError, ResolveError, StoreError};

/// The failure of an operation that could not invoke another one.
pub(crate) fn invoke_failure(error: InvokeError) -> Failure {
    let text = error.to_string();
    match error {
        InvokeError::Resolve(error) => resolve_failure(error),
        InvokeError::Store(error) => store_failure(&error),
        InvokeError::TooManyJobs { .. }
        | InvokeError::VenueFull { .. }
        | InvokeError::Key(IdempotencyError::TooMany) => Failure::transient("too_many", text),
        InvokeError::TooMuchMemory(_) => Failure::transient("too_much_memory", text),
        InvokeError::RateLimited(_) => Failure::transient("too_fast", text),
        InvokeError::ShuttingDown => Failure::transient("shutting_down", text),
        InvokeError::Key(IdempotencyError::InFlight) => Failure::transient("key_in_flight", text),
        InvokeError::Key(IdempotencyError::Reused) => Failure::new("key_reused", text),
        InvokeError::Forbidden(_) => Failure::new("forbidden", text),
        InvokeError::Invalid(_) => Failure::new("invalid_input", text),
        InvokeError::UnknownMember(_) => Failure::new("unknown_member", text),
    }
}

fn resolve_failure(error: ResolveError) -> Failure {
    let text = error.to_string();
    match error {
        ResolveError::Unknown { nearest, .. } if !nearest.is_empty() => {
            let nearest = nearest.join(", ");
            Failure::new("unknown_operation", format!("{text}; the nearest are {nearest}"))
        }
        ResolveError::Unknown { .. } => Failure::new("unknown_operation", text),
        ResolveError::NotAnOperation { .. }
        | ResolveError::Unusable { .. }
        | ResolveError::Malformed { .. } => Failure::new("unusable_operation", text),
        ResolveError::Store(error) => store_failure(&error),
    }
}

/// The failure of an operation that could not read a job.
pub(crate) fn job_failure(error: JobError) -> Failure {
    match error {
        JobError::NotFound(_) | JobError::Deleted { .. } => {
            Failure::new("job_not_found", error.to_string())
        }
        JobError::Store(error) => store_failure(&error),
    }
}

pub(crate) fn store_failure(error: &StoreError) -> Failure {
    let text = error.to_string();
    match error {
        StoreError::Busy | StoreError::Full | StoreError::Stopped(_) | StoreError::Contended => {
            Failure::transient("venue_trouble", text)
        }
        StoreError::QuotaExceeded { .. } => Failure::new("storage_full", text),
        StoreError::Damaged(_) | StoreError::TooLarge(_) => Failure::new("venue_trouble", text),
    }
}

#[cfg(test)]
mod tests {
    use catena_engine::RetryAdvice;

    use super::*;

    #[test]
    fn an_unknown_operation_is_reported_with_similar_names() {
        let nearest = vec!["test:echo".to_owned()];
        let error = ResolveError::Unknown { reference: "test:ecko".to_owned(), nearest };
        let failure = invoke_failure(error.into());
        assert_eq!(failure.error, "there is no operation test:ecko; the nearest are test:echo");
        assert_eq!(failure.retry, RetryAdvice::Never);
    }

    #[test]
    fn transient_errors_may_be_retried() {
        assert_eq!(invoke_failure(StoreError::Busy.into()).retry, RetryAdvice::MaySucceed);
        assert_eq!(invoke_failure(InvokeError::ShuttingDown).retry, RetryAdvice::MaySucceed);
        let damaged = StoreError::Damaged("a page".to_owned());
        assert_eq!(job_failure(damaged.into()).retry, RetryAdvice::Never);
    }
}

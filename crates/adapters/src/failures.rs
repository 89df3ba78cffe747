//! The engine's errors as failures of a turn.

use catena_engine::Failure;
use catena_engine::error::{IdempotencyError, InvokeError, JobError, ResolveError, StoreError};

/// Why an operation was not invoked.
pub(crate) fn of_invoke(error: InvokeError) -> Failure {
    let text = error.to_string();
    match error {
        InvokeError::Resolve(error) => of_resolve(error),
        InvokeError::Store(trouble) => of_store(&trouble),
        InvokeError::TooManyJobs { .. } | InvokeError::Key(IdempotencyError::TooMany) => {
            Failure::transient("too_many", text)
        }
        InvokeError::RateLimited(_) => Failure::transient("too_fast", text),
        InvokeError::ShuttingDown => Failure::transient("shutting_down", text),
        InvokeError::Key(IdempotencyError::InFlight) => Failure::transient("key_in_flight", text),
        InvokeError::Key(IdempotencyError::Reused) => Failure::new("key_reused", text),
        InvokeError::Forbidden(_) => Failure::new("forbidden", text),
        InvokeError::Invalid(_) => Failure::new("invalid_input", text),
    }
}

fn of_resolve(error: ResolveError) -> Failure {
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
        ResolveError::Store(trouble) => of_store(&trouble),
    }
}

/// Why a job could not be read.
pub(crate) fn of_job(error: JobError) -> Failure {
    match error {
        JobError::NotFound(_) => Failure::new("job_not_found", error.to_string()),
        JobError::Store(trouble) => of_store(&trouble),
    }
}

fn of_store(trouble: &StoreError) -> Failure {
    let text = trouble.to_string();
    match trouble {
        StoreError::Busy | StoreError::Full | StoreError::Stopped(_) | StoreError::Contended => {
            Failure::transient("venue_trouble", text)
        }
        StoreError::Damaged(_) | StoreError::TooLarge(_) => Failure::new("venue_trouble", text),
    }
}

#[cfg(test)]
mod tests {
    use catena_engine::RetryAdvice;

    use super::*;

    #[test]
    fn an_unknown_operation_is_told_with_what_is_near() {
        let nearest = vec!["test:echo".to_owned()];
        let error = ResolveError::Unknown { reference: "test:ecko".to_owned(), nearest };
        let failure = of_invoke(error.into());
        assert_eq!(failure.error, "there is no operation test:ecko; the nearest are test:echo");
        assert_eq!(failure.retry, RetryAdvice::Never);
    }

    #[test]
    fn what_passes_may_be_tried_again() {
        assert_eq!(of_invoke(StoreError::Busy.into()).retry, RetryAdvice::MaySucceed);
        assert_eq!(of_invoke(InvokeError::ShuttingDown).retry, RetryAdvice::MaySucceed);
        let damaged = StoreError::Damaged("a page".to_owned());
        assert_eq!(of_job(damaged.into()).retry, RetryAdvice::Never);
    }
}

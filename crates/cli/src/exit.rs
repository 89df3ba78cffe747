//! The codes a command ends with, the same for all of them.

use catena_api::wire::JobOutcome;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The job did not do what it was to do.
    JobFailed = 1,
    /// Wrong usage or invalid input, or something that cannot be done as things stand.
    Invalid = 2,
    /// Something that was named does not exist.
    NotFound = 3,
    /// Who asks is not known, not believed, or may not.
    Auth = 4,
    /// The job's time was over, or whoever waited for it waited no longer.
    Timeout = 5,
    /// A proof does not hold.
    VerificationFailed = 6,
    /// The venue cannot be reached, or cannot do anything now.
    Unreachable = 7,
    /// Somebody pressed Ctrl-C: 128 and the number of the signal, as shells have it.
    Interrupted = 130,
}

impl Exit {
    /// How a command ends whose job ended like this; nothing when all is well or it goes on.
    pub(crate) fn of(outcome: JobOutcome) -> Option<Self> {
        match outcome {
            JobOutcome::Failed => Some(Exit::JobFailed),
            JobOutcome::TimedOut => Some(Exit::Timeout),
            JobOutcome::Done | JobOutcome::Active | JobOutcome::Waiting => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_job::Status;

    #[test]
    fn clients_and_the_engine_agree_on_what_a_status_means() {
        for status in Status::ALL {
            let outcome = JobOutcome::of(status.as_str());
            assert_eq!(outcome.is_terminal(), status.is_terminal(), "{status}");
            assert_eq!(outcome == JobOutcome::Done, status == Status::Complete, "{status}");
        }
        assert_eq!(Exit::of(JobOutcome::of("CANCELLED")), Some(Exit::JobFailed));
        assert_eq!(Exit::of(JobOutcome::of("TIMEOUT")), Some(Exit::Timeout));
        assert_eq!(Exit::of(JobOutcome::of("COMPLETE")), None);
    }
}

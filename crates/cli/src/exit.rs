//! The exit codes of all commands.

use catena_api::wire::JobOutcome;

/// The exit code of a command that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The job failed, was rejected or was cancelled.
    JobFailed = 1,
    /// Wrong usage, invalid input, or an action that the current state does not allow.
    Invalid = 2,
    /// The named object does not exist.
    NotFound = 3,
    /// Authentication is missing or invalid, or access is denied.
    Auth = 4,
    /// The job exceeded its time limit, or the wait for it did.
    Timeout = 5,
    /// Verification failed.
    VerificationFailed = 6,
    /// The venue cannot be reached, or cannot handle the request now.
    Unreachable = 7,
    /// Interrupted by Ctrl-C: 128 plus the number of the signal, as in shells.
    Interrupted = 130,
}

impl Exit {
    /// The exit code for a job's outcome; `None` if the job succeeded or has not ended.
    pub(crate) fn from_outcome(outcome: JobOutcome) -> Option<Self> {
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
    fn the_client_and_the_engine_agree_on_outcomes() {
        for status in Status::ALL {
            let outcome = JobOutcome::from_status(status.as_str());
            assert_eq!(outcome.is_terminal(), status.is_terminal(), "{status}");
            assert_eq!(outcome == JobOutcome::Done, status == Status::Complete, "{status}");
        }
        assert_eq!(Exit::from_outcome(JobOutcome::from_status("CANCELLED")), Some(Exit::JobFailed));
        assert_eq!(Exit::from_outcome(JobOutcome::from_status("TIMEOUT")), Some(Exit::Timeout));
        assert_eq!(Exit::from_outcome(JobOutcome::from_status("COMPLETE")), None);
    }
}

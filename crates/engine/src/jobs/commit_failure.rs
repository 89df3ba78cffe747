//! Why a commit was refused, by what the caller has to do about it.

use catena_store::CommitError;

use crate::error::StoreError;

/// Why a commit was refused.
#[derive(Debug)]
pub(crate) enum CommitFailure {
    /// The job, its queue or a root has changed: read it again and decide again.
    Conflict,
    /// The job was deleted, has ended or belongs to another holder: there is nothing to do.
    Gone,
    /// The store has no capacity at the moment: try again later.
    Busy(StoreError),
    /// The commit can never succeed.
    Fatal(StoreError),
}

impl From<CommitError> for CommitFailure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::HeadMoved { found: None, .. }
            | CommitError::NoSuchJob { .. }
            | CommitError::Ended { .. }
            | CommitError::Fenced { .. } => CommitFailure::Gone,
            CommitError::HeadMoved { .. }
            | CommitError::HoldMoved { .. }
            | CommitError::QueueMoved { .. }
            | CommitError::NotNext { .. }
            | CommitError::RootMoved { .. }
            | CommitError::DuplicateMessage { .. } => CommitFailure::Conflict,
            CommitError::Busy | CommitError::Full => CommitFailure::Busy(error.into()),
            error => CommitFailure::Fatal(error.into()),
        }
    }
}

/// Returns `None` if the job changed or went away first, which ends an attempt without an error.
pub(crate) fn unless_overtaken<T>(result: Result<T, CommitError>) -> Result<Option<T>, StoreError> {
    match result.map_err(CommitFailure::from) {
        Ok(done) => Ok(Some(done)),
        Err(CommitFailure::Conflict | CommitFailure::Gone) => Ok(None),
        Err(CommitFailure::Busy(error) | CommitFailure::Fatal(error)) => Err(error),
    }
}

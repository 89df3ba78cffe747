//! What recovery has done.

use std::time::Duration;

use catena_job::JobId;

/// What recovery has done since the venue started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoverySummary {
    /// The number of jobs that were live when the process started.
    pub found: u64,
    /// The number of jobs that were processed so far.
    pub scanned: u64,
    /// The number of jobs that are on the queue: put back, or still there.
    pub requeued: u64,
    /// The number of jobs that failed.
    pub failed: u64,
    /// The number of jobs that could not be recovered and were left as they were.
    pub skipped: u64,
    /// The number of jobs that were left as they were because they wait, or because a request changed
    /// them first.
    pub left: u64,
    /// The first of the jobs that could not be recovered.
    pub skipped_jobs: Vec<SkippedJob>,
    /// When recovery started, as Unix time in ms.
    pub began: i64,
    /// How long it took. `None` while it is in progress.
    pub took: Option<Duration>,
}

impl RecoverySummary {
    /// Returns true if all jobs were processed.
    pub fn is_done(&self) -> bool {
        self.took.is_some()
    }
}

/// A job that could not be recovered and was left as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedJob {
    /// The job.
    pub job: JobId,
    /// The owner's DID.
    pub owner: String,
    /// Its operation reference, as the caller wrote it.
    pub op: String,
    /// Why it could not be recovered.
    pub reason: String,
}

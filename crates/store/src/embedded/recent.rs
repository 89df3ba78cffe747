//! A cache of jobs that were read recently.
//!
//! Reading a job means looking up its row, decoding it and folding its records, and a client that
//! waits for a job requests the same one again and again.
//!
//! The chain of a job that has ended never changes again. The job can be deleted, and a late commit
//! can change its off-chain state. So an ended job is returned without a lookup in the store, and a
//! commit that could do one of these two things removes it from the cache before it is acknowledged.
//! The epoch keeps a reader that read the job before such a commit from inserting it afterwards.
//!
//! Of any other job only the decoded row is cached, and returned if the row has the same bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use catena_job::{Job, JobId};

use crate::cache::RecentCache;
use crate::limits::{RECENT_JOBS_MAX, RECENT_ROW_BYTES_MAX};
use crate::store::{HoldState, JobCells, StoredJob};
use catena_ledger::RowBytes;

/// The decoded form of a job's row.
#[derive(Clone)]
pub(super) struct DecodedJob {
    pub(super) job: Arc<Job>,
    pub(super) cells: JobCells,
    pub(super) order: u64,
    pub(super) hold: HoldState,
}

/// The cached form of a job.
enum CachedJob {
    /// A job that has ended, with its off-chain state.
    Ended(StoredJob),
    /// A job that has not ended: its row, and what was decoded from it.
    Live(RowBytes, DecodedJob),
}

/// Jobs that were read recently.
pub(super) struct RecentJobs {
    jobs: RecentCache<CachedJob>,
    /// The random parts of job IDs that were requested recently, indexed by themselves.
    requested: Box<[AtomicU64]>,
    epoch: AtomicU64,
}

impl Default for RecentJobs {
    fn default() -> Self {
        RecentJobs {
            jobs: RecentCache::new(RECENT_JOBS_MAX),
            requested: (0..RECENT_JOBS_MAX).map(|_| AtomicU64::new(0)).collect(),
            epoch: AtomicU64::new(0),
        }
    }
}

impl RecentJobs {
    /// A job that has ended, if it is cached.
    pub(super) fn get_ended(&self, id: JobId) -> Option<StoredJob> {
        self.jobs.get(id, |cached| match cached {
            CachedJob::Ended(job) => Some(job.clone()),
            CachedJob::Live(..) => None,
        })
    }

    /// The decoded form of exactly this row, if it is cached.
    pub(super) fn get_decoded(&self, id: JobId, row: &RowBytes) -> Option<DecodedJob> {
        self.jobs.get(id, |cached| match cached {
            CachedJob::Live(cached_row, decoded) if cached_row == row => Some(decoded.clone()),
            _ => None,
        })
    }

    /// Records a request for a job. Returns whether it was requested recently before: a job that is
    /// read once, as the steps of an orchestration are, would only evict jobs that are read again and
    /// again.
    pub(super) fn note_request(&self, id: JobId) -> bool {
        let [_, _, _, _, _, _, _, _, random @ ..] = *id.as_bytes();
        let random = u64::from_be_bytes(random);
        let slot = &self.requested[random as usize % RECENT_JOBS_MAX];
        slot.swap(random, Ordering::Relaxed) == random
    }

    /// The number of commits so far that could have changed an ended job. Read it before reading the
    /// job.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Inserts a job, evicting another if necessary. `epoch` is the epoch before it was read.
    pub(super) fn insert(&self, id: JobId, row: RowBytes, stored: &StoredJob, epoch: u64) {
        if row.len() > RECENT_ROW_BYTES_MAX {
            return;
        }
        let cached = if stored.job.status().is_terminal() {
            CachedJob::Ended(stored.clone())
        } else {
            let job = Arc::clone(&stored.job);
            let cells = stored.cells.clone();
            let hold = stored.hold.clone();
            CachedJob::Live(row, DecodedJob { job, cells, order: stored.order, hold })
        };
        self.jobs.insert_if(id, cached, || self.epoch() == epoch);
    }

    /// Removes jobs from the cache: a commit that changed them has become visible.
    pub(super) fn invalidate(&self, jobs: &[JobId]) {
        // First the epoch, then the jobs: a reader that inserts one in between holds the lock of its
        // set, and has either seen the new epoch or is found here.
        self.epoch.fetch_add(1, Ordering::SeqCst);
        jobs.iter().for_each(|id| self.jobs.remove(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_job::NewJob;
    use catena_value::{NoCells, Value};
    use std::collections::HashMap;

    fn id(last: u8, first: u8) -> JobId {
        let mut bytes = [last; 16];
        bytes[0] = first;
        JobId::from_bytes(bytes)
    }

    /// A job that has not ended, or one that was refused.
    fn stored(id: JobId, refusal: Option<&str>) -> StoredJob {
        let opening = NewJob {
            id,
            venue: "did:key:venue".into(),
            op: "test:echo".into(),
            operation: None,
            input: Value::Nil,
            caller: "did:key:caller".into(),
            parent: None,
            extra: Vec::new(),
        };
        let (job, _) = Job::create(opening, 1, refusal).unwrap();
        StoredJob {
            job: Arc::new(job),
            order: 7,
            changes: 0,
            queue_depth: 0,
            progress: None,
            hold: HoldState::default(),
            ready_at: None,
            cells: JobCells::new(HashMap::new(), Arc::new(NoCells)),
        }
    }

    #[test]
    fn a_decoded_row_is_returned_for_that_row_only() {
        let recent = RecentJobs::default();
        let (job, row): (_, RowBytes) = (id(1, 1), [1, 2, 3].into());
        assert!(recent.get_decoded(job, &row).is_none());
        recent.insert(job, row.clone(), &stored(job, None), 0);
        assert_eq!(recent.get_decoded(job, &row).unwrap().order, 7);
        assert!(recent.get_decoded(job, &[1, 2, 4].into()).is_none(), "the job has changed");
        assert!(recent.get_decoded(id(1, 2), &row).is_none(), "another job, same set");
        assert!(recent.get_ended(job).is_none(), "it has not ended");
        recent.insert(job, row.clone(), &stored(job, Some("no")), 0);
        assert_eq!(recent.get_ended(job).unwrap().order, 7);
        assert!(recent.get_decoded(job, &row).is_none(), "a job has one entry");
    }

    #[test]
    fn a_deleted_job_is_not_returned_and_not_cached_by_a_late_reader() {
        let recent = RecentJobs::default();
        let job = id(1, 1);
        let before = recent.epoch();
        recent.insert(job, [1].into(), &stored(job, Some("no")), before);
        recent.invalidate(&[job]);
        assert!(recent.get_ended(job).is_none());
        recent.insert(job, [1].into(), &stored(job, Some("no")), before);
        assert!(recent.get_ended(job).is_none(), "it was read before it was deleted");
    }

    #[test]
    fn a_job_is_worth_caching_when_it_is_requested_again() {
        let recent = RecentJobs::default();
        let (one, other) = (id(1, 1), id(2, 1));
        assert!(!recent.note_request(one));
        assert!(!recent.note_request(other));
        assert!(recent.note_request(one) && recent.note_request(other));
    }

    #[test]
    fn jobs_with_long_rows_are_not_cached() {
        let recent = RecentJobs::default();
        let (job, row): (_, RowBytes) = (id(1, 1), vec![0; RECENT_ROW_BYTES_MAX + 1].into());
        recent.insert(job, row, &stored(job, Some("no")), 0);
        assert!(recent.get_ended(job).is_none());
    }
}

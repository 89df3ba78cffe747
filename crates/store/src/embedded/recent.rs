//! Jobs that were read lately.
//!
//! Reading a job means looking up its row, decoding it and following its records, and whoever waits
//! for a job asks for the same one again and again.
//!
//! A job that has ended never changes again: its chain is final. It can be deleted, and what stands
//! beside the chain can be touched by somebody who is late. So an ended job is given without any
//! look at the store, and a commit that could do one of these two things takes it out before it is
//! answered. Whoever read the job before such a commit and comes to keep it after is told apart by
//! the epoch.
//!
//! Of any other job only what was made of its row is kept, and given when the row has the same
//! bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use catena_job::{Job, JobId};

use crate::lately::Lately;
use crate::store::{JobCells, StoredJob};
use catena_ledger::Value as Row;

/// Jobs that are kept.
const JOBS: usize = 8_192;

/// Longest row whose job is kept: a place then holds 20 kB at most, and 2 kB as a rule.
const ROW_BYTES_MAX: usize = 4_096;

/// What is made of a row.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) job: Arc<Job>,
    pub(super) cells: JobCells,
    pub(super) order: u64,
}

/// What is kept of a job.
enum Kept {
    /// All of it: it has ended.
    Ended(StoredJob),
    /// What was made of this row.
    OfRow(Row, Made),
}

pub(super) struct Recent {
    jobs: Lately<Kept>,
    /// The random parts of IDs that were asked for lately, in places by the same.
    asked: Box<[AtomicU64]>,
    epoch: AtomicU64,
}

impl Default for Recent {
    fn default() -> Self {
        Recent {
            jobs: Lately::new(JOBS),
            asked: (0..JOBS).map(|_| AtomicU64::new(0)).collect(),
            epoch: AtomicU64::new(0),
        }
    }
}

impl Recent {
    /// A job that has ended, if it is still here.
    pub(super) fn ended(&self, id: JobId) -> Option<StoredJob> {
        self.jobs.get(id, |kept| match kept {
            Kept::Ended(job) => Some(job.clone()),
            Kept::OfRow(..) => None,
        })
    }

    /// What was made of this very row, if it is still here.
    pub(super) fn made(&self, id: JobId, row: &Row) -> Option<Made> {
        self.jobs.get(id, |kept| match kept {
            Kept::OfRow(of, made) if of == row => Some(made.clone()),
            _ => None,
        })
    }

    /// Whether a job was asked for before, not long ago. One that is read once, as the steps of an
    /// orchestration are, would only drive out those that are read again and again.
    pub(super) fn is_asked_again(&self, id: JobId) -> bool {
        let [_, _, _, _, _, _, _, _, random @ ..] = *id.as_bytes();
        let random = u64::from_be_bytes(random);
        let place = &self.asked[random as usize % JOBS];
        place.swap(random, Ordering::Relaxed) == random
    }

    /// Where the commits stand that could change an ended job: to be asked before it is read.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Keeps a job, in place of another if need be. `epoch` is from before it was read.
    pub(super) fn keep(&self, id: JobId, row: Row, stored: &StoredJob, epoch: u64) {
        if row.len() > ROW_BYTES_MAX {
            return;
        }
        let kept = match stored.job.status().is_terminal() {
            true => Kept::Ended(stored.clone()),
            false => {
                let (job, cells) = (Arc::clone(&stored.job), stored.cells.clone());
                Kept::OfRow(row, Made { job, cells, order: stored.order })
            }
        };
        self.jobs.put(id, kept, || self.epoch() == epoch);
    }

    /// Takes jobs out: a commit that concerns them can be read from now on.
    pub(super) fn forget(&self, jobs: &[JobId]) {
        // First the epoch, then the jobs: whoever keeps one in between holds the lock of its
        // place, and has either seen the epoch or is found here.
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

    /// A job that lives, or one that was refused.
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
        let (job, _) = Job::open(opening, 1, refusal).unwrap();
        StoredJob {
            job: Arc::new(job),
            order: 7,
            changes: 0,
            queue_depth: 0,
            progress: None,
            lease: None,
            cells: JobCells::new(HashMap::new(), Arc::new(NoCells)),
        }
    }

    #[test]
    fn what_was_made_of_a_row_is_given_for_that_row_only() {
        let recent = Recent::default();
        let (job, row): (_, Row) = (id(1, 1), [1, 2, 3].into());
        assert!(recent.made(job, &row).is_none());
        recent.keep(job, row.clone(), &stored(job, None), 0);
        assert_eq!(recent.made(job, &row).unwrap().order, 7);
        assert!(recent.made(job, &[1, 2, 4].into()).is_none(), "the job has changed");
        assert!(recent.made(id(1, 2), &row).is_none(), "another job, same set");
        assert!(recent.ended(job).is_none(), "it lives");
        recent.keep(job, row.clone(), &stored(job, Some("no")), 0);
        assert_eq!(recent.ended(job).unwrap().order, 7);
        assert!(recent.made(job, &row).is_none(), "it has one place");
    }

    #[test]
    fn a_job_that_was_deleted_is_not_given_and_not_kept_by_somebody_late() {
        let recent = Recent::default();
        let job = id(1, 1);
        let before = recent.epoch();
        recent.keep(job, [1].into(), &stored(job, Some("no")), before);
        recent.forget(&[job]);
        assert!(recent.ended(job).is_none());
        recent.keep(job, [1].into(), &stored(job, Some("no")), before);
        assert!(recent.ended(job).is_none(), "it was read before it was deleted");
    }

    #[test]
    fn a_job_is_worth_keeping_when_it_is_asked_for_again() {
        let recent = Recent::default();
        let (one, other) = (id(1, 1), id(2, 1));
        assert!(!recent.is_asked_again(one));
        assert!(!recent.is_asked_again(other));
        assert!(recent.is_asked_again(one) && recent.is_asked_again(other));
    }

    #[test]
    fn jobs_with_long_rows_are_not_kept() {
        let recent = Recent::default();
        let (job, row): (_, Row) = (id(1, 1), vec![0; ROW_BYTES_MAX + 1].into());
        recent.keep(job, row, &stored(job, Some("no")), 0);
        assert!(recent.ended(job).is_none());
    }
}

//! Jobs that were read lately.
//!
//! Reading a job means decoding its row and following its records, and whoever waits for a job
//! asks for the same one again and again. A job is a pure function of its row, so what was made of
//! a row before is right for as long as the row has the same bytes. The row itself is looked up
//! every time: nothing has to be told here when a job changes or is deleted, and nothing can be
//! seen that is not stored.

use catena_job::{Job, JobId};
use parking_lot::Mutex;

use crate::embedded::ledger::Value as Row;
use crate::store::JobCells;

/// Places for jobs; each job has one, which it shares with others.
const PLACES: usize = 1_024;

/// Longest row that is kept: with what is made of it, a place then holds 20 kB at most, and 3 kB
/// as a rule.
const ROW_BYTES_MAX: usize = 4_096;

/// What is made of a row.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) job: Job,
    pub(super) cells: JobCells,
    pub(super) order: u64,
}

struct Kept {
    id: JobId,
    row: Row,
    made: Made,
}

pub(super) struct Recent {
    places: Box<[Mutex<Option<Kept>>]>,
}

impl Default for Recent {
    fn default() -> Self {
        Recent { places: (0..PLACES).map(|_| Mutex::default()).collect() }
    }
}

impl Recent {
    /// The last bytes of an ID are random, so jobs spread evenly.
    fn place(&self, id: JobId) -> &Mutex<Option<Kept>> {
        let [.., high, low] = *id.as_bytes();
        &self.places[usize::from(u16::from_be_bytes([high, low])) % PLACES]
    }

    /// What was made of this very row, if it is still here.
    pub(super) fn get(&self, id: JobId, row: &Row) -> Option<Made> {
        let place = self.place(id).lock();
        let kept = place.as_ref().filter(|kept| kept.id == id && kept.row == *row)?;
        Some(kept.made.clone())
    }

    /// Keeps what was made of a row, in place of whatever was there.
    pub(super) fn keep(&self, id: JobId, row: Row, made: &Made) {
        if row.len() <= ROW_BYTES_MAX {
            let kept = Kept { id, row, made: made.clone() };
            // What was there before is dropped after the lock.
            let _before = self.place(id).lock().replace(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_job::Opening;
    use catena_value::{NoCells, Value};
    use std::collections::HashMap;
    use std::sync::Arc;

    fn made(id: JobId) -> Made {
        let opening = Opening {
            id,
            venue: "did:key:venue".to_owned(),
            op: "test:echo".to_owned(),
            operation: None,
            input: Value::Nil,
            caller: "did:key:caller".to_owned(),
            parent: None,
            extra: Vec::new(),
        };
        let (job, _) = Job::open(opening, 1, None).unwrap();
        Made { job, cells: JobCells::new(HashMap::new(), Arc::new(NoCells)), order: 7 }
    }

    #[test]
    fn what_was_made_of_a_row_is_given_for_that_row_only() {
        let recent = Recent::default();
        let (id, row): (_, Row) = (JobId::from_bytes([1; 16]), [1, 2, 3].into());
        assert!(recent.get(id, &row).is_none());
        recent.keep(id, row.clone(), &made(id));
        assert_eq!(recent.get(id, &row).unwrap().order, 7);
        assert!(recent.get(id, &[1, 2, 4].into()).is_none(), "the job has changed");
        let mut other = [1; 16];
        other[0] = 2;
        assert!(recent.get(JobId::from_bytes(other), &row).is_none(), "another job, same place");
        recent.keep(JobId::from_bytes(other), row.clone(), &made(JobId::from_bytes(other)));
        assert!(recent.get(id, &row).is_none(), "it has made room");
    }

    #[test]
    fn long_rows_are_not_kept() {
        let recent = Recent::default();
        let (id, row): (_, Row) = (JobId::from_bytes([1; 16]), vec![0; ROW_BYTES_MAX + 1].into());
        recent.keep(id, row.clone(), &made(id));
        assert!(recent.get(id, &row).is_none());
    }
}

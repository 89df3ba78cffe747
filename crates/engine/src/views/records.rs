//! Finds a record by its Value ID alone.
//!
//! Records are stored with their jobs, and no index leads from a record to its job: it would add a row per
//! record to every commit, for a question that is asked rarely. The search reads the caller's jobs,
//! newest first, with their sub-jobs. It is bounded, and can be continued where it stopped.

use std::collections::VecDeque;

use catena_job::note::Note;
use catena_job::{JobId, Record, RecordId};
use catena_store::{Filter, JobCells, ListOrder, ListQuery};

use crate::error::StoreError;
use crate::limits::{PAGE_MAX, RECORD_SEARCH_MAX};
use crate::requests::Caller;
use crate::views::Views;

/// The result of a search for a record.
#[derive(Debug)]
pub enum RecordSearch {
    /// The record, and the job that it belongs to.
    Found {
        /// The job.
        job: JobId,
        /// The record.
        record: Box<Record>,
        /// Where the parts of the record are loaded from that are not in memory.
        cells: JobCells,
    },
    /// It is not among the records that were read. `next` is where to continue; `None` if all were read.
    Missing {
        /// A position in the order of the caller's jobs.
        next: Option<u64>,
    },
}

impl Views {
    /// Searches the caller's jobs for a record, newest first, from the position `after` on.
    pub(crate) async fn find_record(
        &self,
        caller: &Caller,
        wanted: RecordId,
        after: Option<u64>,
    ) -> Result<RecordSearch, StoreError> {
        let mut after = after;
        let mut left = RECORD_SEARCH_MAX;
        loop {
            let query = ListQuery {
                owner: Some(caller.did.to_string()),
                filter: Filter::All,
                order: ListOrder::Newest,
                after,
                limit: PAGE_MAX,
            };
            let page = self.jobs.store.list(&query).await?;
            for listed in &page.jobs {
                if left == 0 {
                    return Ok(RecordSearch::Missing { next: after });
                }
                if let Some(found) = self.find_in_tree(listed.id, wanted, &mut left).await? {
                    return Ok(found);
                }
                after = Some(listed.order);
            }
            if page.next.is_none() {
                return Ok(RecordSearch::Missing { next: None });
            }
            // A long search must not delay other requests.
            tokio::task::yield_now().await;
        }
    }

    /// Searches a job and its sub-jobs. A tree that was begun is searched to its end, so that a search can
    /// be continued with the next one; the sub-jobs of a root are bounded. `left` is the number of
    /// records that may still be read.
    async fn find_in_tree(
        &self,
        root: JobId,
        wanted: RecordId,
        left: &mut usize,
    ) -> Result<Option<RecordSearch>, StoreError> {
        let mut jobs = VecDeque::from([root]);
        while let Some(job) = jobs.pop_front() {
            let mut from = 0;
            // A job that was deleted meanwhile has no records.
            while let Some(page) = self.jobs.store.records(job, from, PAGE_MAX).await? {
                from += page.records.len() as u64;
                *left = left.saturating_sub(page.records.len());
                let is_last = page.records.is_empty() || from >= page.total;
                for record in page.records {
                    jobs.extend(local_subjobs(&record));
                    if record.id() == wanted {
                        let record = Box::new(record);
                        return Ok(Some(RecordSearch::Found { job, record, cells: page.cells }));
                    }
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(None)
    }
}

/// The sub-jobs that a record says have started here.
fn local_subjobs(record: &Record) -> Vec<JobId> {
    match record.note() {
        Some(Note::Step { started, .. }) => {
            let local = started.iter().filter(|start| start.venue.is_none());
            local.map(|start| start.job).collect()
        }
        Some(Note::Call { started, .. }) => started.iter().map(|start| start.job).collect(),
        _ => Vec::new(),
    }
}

//! Following a job: everything that happens to it, in order, out of the durable chain.

use catena_job::Job;
use catena_store::JobCells;
use catena_value::Value;

use crate::caller::Caller;
use crate::error::StoreTrouble;

/// Who wants to follow.
#[derive(Debug, Clone, Copy)]
pub enum Reader<'a> {
    /// Somebody who must be allowed to see the job.
    Caller(&'a Caller),
    /// Anybody who knows its ID.
    Bearer,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Happening {
    /// A record was appended.
    Record {
        /// Its index in the chain.
        index: u64,
        /// The job as of this record.
        job: Box<Job>,
        /// The cells of its large members.
        cells: JobCells,
    },
    /// Progress was reported.
    Progress(Value),
}

/// A follower of one job. It holds the job as of the last record it gave, and reads the next ones
/// from the store when it is told that there are some: a slow follower slows nobody.
#[derive(Debug)]
pub struct Follow {}

impl Follow {
    /// The next thing that happened; nothing after the record that ends the job, when the job is
    /// deleted, or when the venue stops.
    pub async fn next(&mut self) -> Result<Option<Happening>, StoreTrouble> { unimplemented!() }
}

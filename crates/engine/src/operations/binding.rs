//! Jobs that are bound to stored data, such as the run of an agent.
//!
//! A bound job changes roots of its owner when it starts and when it ends, each in the commit that says
//! so, however it ends: by its outcome, a cancellation, a time limit or a recovery that gives up. What
//! it is bound to therefore never names a job that has ended. The first record of such a job has the
//! member `bound`, so that whoever ends the job finds the adapter without reading its definition.

use catena_job::{JobId, Status};
use catena_value::Value;

use crate::operations::failure::Failure;

/// The member of a first record that names what a job is bound to: the adapter, `/` and a name.
pub(crate) const BOUND: &str = "bound";

/// A job that is bound to stored data.
#[derive(Debug, Clone, Copy)]
pub struct BoundJob<'a> {
    /// The job.
    pub id: JobId,
    /// What it is bound to, as the adapter named it.
    pub name: &'a str,
    /// The DID of its owner.
    pub owner: &'a str,
}

/// What becomes of a bound job when its turn to start has come.
#[derive(Debug, Clone, PartialEq)]
pub enum BoundStart {
    /// It runs.
    Run,
    /// It stays PENDING, occupies no slot, and is started when a change of the roots offers it
    /// ([`Roots::offer`](crate::Roots::offer)).
    Wait,
    /// There is nothing to do: it ends at once with this output.
    Complete(Value),
    /// It ends as FAILED.
    Fail(Failure),
    /// It ends as REJECTED.
    Refuse(Failure),
}

/// How a bound job ended.
#[derive(Debug)]
pub struct BoundEnd<'a> {
    /// The status that it ended with. PAUSED if it was paused before it started.
    pub status: Status,
    /// The error, if there is one.
    pub error: Option<&'a str>,
    /// The code of the failure, if there is one.
    pub code: Option<&'a str>,
    /// The calls of a job that is COMPLETE, in their order.
    pub calls: Vec<EndedCall>,
}

/// A call of a bound job.
#[derive(Debug, Clone)]
pub struct EndedCall {
    /// The key under which it was made.
    pub key: String,
    /// The output of the called job, completely in memory. `None` if it has none.
    pub output: Option<Value>,
    /// The input of the called job as its record has it, if parts of it are secret.
    pub redacted_input: Option<Value>,
}

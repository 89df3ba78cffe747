//! What can be asked of the engine, who asks, and how much they may ask for.

mod admission;
mod caller;
mod idempotency;
mod request;
mod schedule;

pub(crate) use admission::Admission;
pub use caller::{Caller, Did, Role};
pub(crate) use idempotency::{
    ClaimedKey, IdempotencyKeys, KeyLookup, commit_error, job_from_response, response_for_job,
};
pub use request::{
    HistoryPage, IdempotencyKey, Invoke, Invoked, JobList, JobView, ListJobs, MessageReceipt,
    Recording, RunOutput,
};
pub use schedule::{Scheduled, When};

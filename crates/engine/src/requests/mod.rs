//! The requests that the engine accepts, the callers that make them, and their quotas.

mod admission;
mod caller;
mod filter;
mod idempotency;
mod quota;
mod request;
mod schedule;
mod schedule_entry;
mod worker;

pub(crate) use admission::{Admission, PrivateLive};
pub use caller::{Caller, Did, HeldJob, Restriction, Role, capabilities};
pub(crate) use filter::contains;
pub use filter::{ALL_OWNERS, JobFilter};
pub(crate) use idempotency::{
    ClaimedKey, IdempotencyKeys, KeyLookup, commit_error, job_from_response, response_for_job,
};
pub(crate) use quota::check_stored_bytes;
pub use request::{
    CallRequest, HistoryPage, IdempotencyKey, ImportedHistory, Invoke, Invoked, JobList, JobView,
    ListJobs, MessageReceipt, Recording, RerunScope, RunOutput, SubmitOnce, Submitted,
};
pub use schedule::{NewSchedule, Overlap, ScheduleState, Scheduled, When};
pub(crate) use schedule_entry::{
    DUE, Entry, IDLE, StoredEntry, list_key, name_after, own_key, owner_list, time_of_name,
};
pub use worker::{
    AnnouncedExecutor, AnnouncedTier, Beat, BeatJob, BeatReply, CallIdentity, Claim, Claimed,
    ClaimedJob, ClaimedStep, ConnectedExecutor, EndTurn, Ended, ExecutorAbout, RetryRequest,
    WorkerCall, WorkerEnd, WorkerSignal,
};

//! Which engine error becomes which response. No arm is a catch-all.

use std::time::Duration;

use axum::http::{HeaderName, StatusCode, header};
use catena_engine::error::RerunError;
use catena_engine::error::{
    AssetError, ControlError, IdempotencyError, InvokeError, JobError, NoOutput, RateLimited,
    ResolveError, RunError, SendError, StoreError, TooMuchMemory, WorkerError,
};
use catena_job::Status;
use catena_job::members::describes_unknown_member;
use catena_value::{Map, Value};

use super::{ApiError, Code};
use crate::http::response::{IDEMPOTENT_REPLAYED, job_location};

/// `Retry-After` if the venue is overloaded or the same request is in progress.
const BUSY: Duration = Duration::from_secs(1);

/// `Retry-After` if a queue or a quota is full: it drains only as jobs proceed.
const FULL: Duration = Duration::from_secs(2);

/// `Retry-After` during a restart or while the disk is full.
const RESTART: Duration = Duration::from_secs(5);

const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let text = error.to_string();
        match error {
            StoreError::Busy => ApiError::new(Code::VenueBusy, text).retry_after(BUSY),
            StoreError::Full => ApiError::new(Code::StoreFull, text).retry_after(RESTART),
            StoreError::Stopped(reason) => {
                tracing::warn!(%reason, "refused a request because the venue is stopping");
                ApiError::new(Code::Stopping, "the venue is stopping").retry_after(RESTART)
            }
            StoreError::Damaged(reason) => {
                tracing::error!(%reason, "stored data is damaged");
                ApiError::new(Code::StoreDamaged, "stored data is damaged")
            }
            StoreError::Contended => ApiError::new(Code::Contended, text),
            StoreError::TooLarge(_) => ApiError::new(Code::TooLargeToStore, text),
            StoreError::QuotaExceeded { .. } => {
                ApiError::new(Code::StorageFull, text).retry_after(FULL)
            }
        }
    }
}

impl From<WorkerError> for ApiError {
    fn from(error: WorkerError) -> Self {
        let text = error.to_string();
        match error {
            WorkerError::NotFound(_) => ApiError::new(Code::JobNotFound, text),
            WorkerError::NoSuchQueue(_) => ApiError::new(Code::QueueNotFound, text),
            WorkerError::Fenced(_) => ApiError::new(Code::Fenced, text),
            WorkerError::Paused(_) => ApiError::new(Code::JobPaused, text),
            WorkerError::Failed { code, .. } => {
                ApiError::new(Code::CallFailed, text).member("failure", code)
            }
            WorkerError::Invalid(_) => ApiError::bad_request(text),
            WorkerError::Store(error) => error.into(),
        }
    }
}

/// An unresolvable reference in the body makes the request invalid; one in the path names a thing
/// that does not exist. `operation_in_path` is for the latter.
impl From<ResolveError> for ApiError {
    fn from(error: ResolveError) -> Self {
        let text = error.to_string();
        match error {
            ResolveError::Unknown { nearest, .. } => {
                let nearest = nearest.iter().map(|name| Value::from(name.as_str()));
                ApiError::new(Code::OperationNotFound, text)
                    .with_status(StatusCode::BAD_REQUEST)
                    .member("nearest", Value::Vector(nearest.collect()))
            }
            ResolveError::NotAnOperation { .. } => ApiError::new(Code::NotAnOperation, text),
            ResolveError::Unusable { .. } => ApiError::new(Code::OperationUnusable, text),
            ResolveError::Malformed { .. } => ApiError::new(Code::InvalidReference, text),
            ResolveError::Store(error) => error.into(),
        }
    }
}

/// The error for a reference in the path of the request.
pub(crate) fn operation_in_path(error: ResolveError) -> ApiError {
    let is_unknown = matches!(
        error,
        ResolveError::Unknown { .. }
            | ResolveError::NotAnOperation { .. }
            | ResolveError::Malformed { .. }
    );
    let error = ApiError::from(error);
    if is_unknown { error.with_status(StatusCode::NOT_FOUND) } else { error }
}

impl From<InvokeError> for ApiError {
    fn from(error: InvokeError) -> Self {
        let text = error.to_string();
        match error {
            InvokeError::Resolve(error) => error.into(),
            InvokeError::Invalid(_) => ApiError::bad_request(text),
            InvokeError::UnknownMember(unknown) => ApiError::unknown_member(&unknown),
            InvokeError::TooManyJobs { .. } => {
                ApiError::new(Code::TooManyJobs, text).retry_after(FULL)
            }
            InvokeError::VenueFull { .. } => ApiError::new(Code::VenueFull, text).retry_after(FULL),
            InvokeError::RateLimited(limited) => limited.into(),
            InvokeError::TooMuchMemory(error) => error.into(),
            InvokeError::Key(error) => error.into(),
            InvokeError::Forbidden(_) => ApiError::new(Code::Forbidden, text),
            InvokeError::ShuttingDown => ApiError::new(Code::Stopping, text).retry_after(RESTART),
            InvokeError::Store(error) => error.into(),
        }
    }
}

impl From<TooMuchMemory> for ApiError {
    fn from(error: TooMuchMemory) -> Self {
        ApiError::new(Code::TooMuchMemory, error.to_string()).retry_after(FULL)
    }
}

impl From<RateLimited> for ApiError {
    fn from(limited: RateLimited) -> Self {
        let seconds = limited.after.as_millis().div_ceil(1000).max(1);
        ApiError::new(Code::RateLimited, "too many requests")
            .retry_after(limited.after)
            .header(RATE_LIMIT_POLICY, format!("\"caller\";q={}", limited.burst))
            .header(RATE_LIMIT, format!("\"caller\";r=0;t={seconds}"))
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Invoke(error) => error.into(),
            RunError::Ended(ended) => no_output(*ended),
        }
    }
}

fn no_output(ended: NoOutput) -> ApiError {
    let code = match ended.status {
        Status::Rejected => Code::JobRejected,
        Status::Failed => Code::JobFailed,
        Status::Cancelled => Code::JobCancelled,
        Status::Timeout => Code::JobTimeout,
        Status::Pending
        | Status::Started
        | Status::Paused
        | Status::InputRequired
        | Status::AuthRequired
        | Status::Complete => Code::JobRunning,
    };
    let job = ended.job.map_or(Value::Nil, Value::from);
    let mut error =
        ApiError::new(code, ended.error).member("job", job).member("status", ended.status);
    if let Some(code) = ended.code {
        error = error.member("errorCode", code);
    }
    match ended.job {
        Some(job) => error = error.header(header::LOCATION, job_location(job)),
        // A read-only operation at `POST /run` creates no job, also if its input is refused.
        None if code == Code::JobRejected => {
            error = error.hint("Correct the input as `error` says.");
        }
        None if code == Code::JobFailed => error = error.hint("`error` says why; there is no job."),
        None => {}
    }
    if ended.is_replay {
        error = error.header(IDEMPOTENT_REPLAYED, "true");
    }
    error
}

impl From<JobError> for ApiError {
    fn from(error: JobError) -> Self {
        let text = error.to_string();
        match error {
            JobError::NotFound(_) => ApiError::new(Code::JobNotFound, text),
            JobError::Deleted { job, head, by, at } => ApiError::new(Code::JobDeleted, text)
                .member("id", job)
                .member("head", head)
                .member("by", by.as_str())
                .member("at", at),
            JobError::Store(error) => error.into(),
        }
    }
}

impl From<RerunError> for ApiError {
    fn from(error: RerunError) -> Self {
        match error {
            RerunError::Control(error) => error.into(),
            RerunError::Invoke(error) => error.into(),
            RerunError::StepGone { step } => {
                let text = RerunError::StepGone { step }.to_string();
                ApiError::new(Code::StepGone, text).member("step", step)
            }
        }
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let text = error.to_string();
        match error {
            ControlError::NotFound(_) => ApiError::new(Code::JobNotFound, text),
            ControlError::Conflict { job, status, .. } => {
                let hint = match status {
                    Status::InputRequired | Status::AuthRequired => {
                        "Send the job a message with POST /api/v1/jobs/{id} to continue it."
                    }
                    _ => Code::JobConflict.hint(),
                };
                ApiError::new(Code::JobConflict, text)
                    .member("id", job)
                    .member("status", status)
                    .hint(hint)
            }
            ControlError::ParentPaused { job, parent } => ApiError::new(Code::JobConflict, text)
                .member("id", job)
                .member("status", Status::Paused)
                .member("parent", parent)
                .hint("Resume the job above it: that resumes everything below."),
            ControlError::StepPaused { job, status, step } => {
                let hint = format!("Resume its sub-job {step}, which is paused.");
                ApiError::new(Code::JobConflict, text)
                    .member("id", job)
                    .member("status", status)
                    .member("step", step)
                    .hint(hint)
            }
            ControlError::SubJob { job, root } => {
                ApiError::new(Code::SubJob, text).member("id", job).member("root", root)
            }
            ControlError::Private { job, .. } => {
                ApiError::new(Code::PrivateJob, text).member("id", job)
            }
            ControlError::HistoryFull(job) => {
                ApiError::new(Code::HistoryFull, text).member("id", job)
            }
            ControlError::Invalid(_) => ApiError::bad_request(text),
            ControlError::Store(error) => error.into(),
        }
    }
}

impl From<IdempotencyError> for ApiError {
    fn from(error: IdempotencyError) -> Self {
        let text = error.to_string();
        match error {
            IdempotencyError::Reused => ApiError::new(Code::KeyReused, text),
            IdempotencyError::InFlight => ApiError::new(Code::KeyInFlight, text).retry_after(BUSY),
            IdempotencyError::TooMany => ApiError::new(Code::TooManyKeys, text).retry_after(FULL),
        }
    }
}

impl From<SendError> for ApiError {
    fn from(error: SendError) -> Self {
        let text = error.to_string();
        match error {
            SendError::NotFound(_) => ApiError::new(Code::JobNotFound, text),
            SendError::Ended { job, status } => {
                ApiError::new(Code::JobEnded, text).member("id", job).member("status", status)
            }
            SendError::Private(job) => ApiError::new(Code::PrivateJob, text).member("id", job),
            SendError::TooLarge { .. } => ApiError::new(Code::MessageTooLarge, text),
            SendError::QueueFull { job, waiting } => ApiError::new(Code::QueueFull, text)
                .retry_after(FULL)
                .member("id", job)
                .member("queueDepth", waiting),
            SendError::CredentialsStay { job, asking, venue } => {
                ApiError::new(Code::CredentialsStay, text)
                    .member("id", job)
                    .member("asking", asking)
                    .member("venue", venue)
            }
            SendError::RateLimited(limited) => limited.into(),
            SendError::Key(error) => error.into(),
            SendError::Invalid(_) => ApiError::bad_request(text),
            SendError::Store(error) => error.into(),
        }
    }
}

impl From<AssetError> for ApiError {
    fn from(error: AssetError) -> Self {
        let text = error.to_string();
        match error {
            AssetError::NotFound(_) => ApiError::new(Code::AssetNotFound, text),
            AssetError::NoContent(_) => ApiError::new(Code::ContentNotFound, text),
            AssetError::Malformed(_) => ApiError::new(Code::InvalidReference, text),
            AssetError::Invalid(problems) => {
                let problem = |(place, problem): &(String, String)| {
                    let members = [("path", place.as_str()), ("problem", problem.as_str())];
                    Value::from(members.into_iter().collect::<Map>())
                };
                let is_unknown =
                    problems.iter().all(|(_, problem)| describes_unknown_member(problem));
                let code = if is_unknown { Code::UnknownMember } else { Code::AssetInvalid };
                let problems = problems.iter().map(problem).collect();
                ApiError::new(code, text).member("problems", Value::Vector(problems))
            }
            AssetError::WrongContent { .. } => ApiError::new(Code::ContentMismatch, text),
            AssetError::TooLarge { .. } => ApiError::new(Code::ContentTooLarge, text),
            AssetError::Forbidden(_) => ApiError::new(Code::Forbidden, text),
            AssetError::RateLimited(limited) => limited.into(),
            AssetError::Key(error) => error.into(),
            AssetError::Store(error) => error.into(),
        }
    }
}

//! A job in outline: when it began, whether it was recovered, what went wrong.
//!
//! The resolved job does not show its notes. What they say is read from the chain itself, within
//! bounds: the first records and the last ones.

use catena_job::note::Note;
use catena_job::{Job, JobId, Record, Status};
use catena_value::Value;

use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::{JobError, ResolveError, StoreError};
use crate::request::JobView;

/// Records that are read from the beginning: a job starts among them.
const FIRST_RECORDS: u64 = 16;

/// Records that are read from the end.
const LAST_RECORDS: u64 = 64;

/// Errors that are told, the newest ones.
pub const ERRORS_MAX: usize = 50;

/// Bytes of one error.
pub const ERROR_BYTES_MAX: usize = 2_048;

/// A job in outline.
#[derive(Debug, Clone)]
pub struct JobSummary {
    /// The job. Steps are not listed, they are counted.
    pub view: JobView,
    /// Steps that ended, and all, when it is an orchestration.
    pub steps: Option<(u64, u64)>,
    /// When it first started.
    pub started: Option<i64>,
    /// How it was recovered last, if it was.
    pub recovery: Option<Recovered>,
    /// What went wrong, oldest first.
    pub errors: Vec<AttemptFailure>,
}

/// How a job was recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The try that began then.
    pub attempt: u32,
    /// What had happened.
    pub reason: String,
    /// When.
    pub at: i64,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    /// When.
    pub at: i64,
    /// The try that it ended.
    pub attempt: u32,
    /// What kind of end.
    pub kind: FailureKind,
    /// A word for the failure, when there is one.
    pub code: Option<String>,
    /// What was said.
    pub error: String,
}

/// What a mishap ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// One try; another followed.
    Attempt,
    /// One try, with the venue that carried it out.
    Interrupted,
    /// The job.
    End(Status),
}

impl Engine {
    /// A job in outline.
    pub async fn summary(&self, caller: &Caller, id: JobId) -> Result<JobSummary, JobError> {
        if let Some(private) = self.0.private.get(id) {
            let view = private.view();
            self.visible(caller, &view.job)?;
            return Ok(self.summarize(view).await?);
        }
        let current = self.current(id).await?.ok_or(JobError::NotFound(id))?;
        self.visible(caller, &current.job)?;
        Ok(self.summarize(self.view(current)).await?)
    }

    /// The outline of a job that somebody was shown.
    pub async fn summarize(&self, mut view: JobView) -> Result<JobSummary, StoreError> {
        if !view.status().is_terminal() {
            // What is kept may be a second old.
            let reins = self.0.running.get(view.job.id());
            let known = reins.and_then(|reins| reins.progress.known(self));
            view.progress = known.or(view.progress);
        }
        let steps = self.step_counts(&view.job).await?;
        let (first, last) = self.ends_of_chain(&view.job).await?;
        let records = || first.iter().chain(&last);
        let started = records().find(|record| record.status() == Status::Started);
        let mut errors: Vec<AttemptFailure> = records().filter_map(noted).collect();
        errors.extend(ending(&view.job));
        errors.drain(..errors.len().saturating_sub(ERRORS_MAX));
        Ok(JobSummary {
            steps,
            started: started.map(Record::updated),
            recovery: records().rev().find_map(recovered),
            errors,
            view,
        })
    }

    /// The first records of a chain and the last ones, none twice.
    async fn ends_of_chain(&self, job: &Job) -> Result<(Vec<Record>, Vec<Record>), StoreError> {
        let whole = FIRST_RECORDS + LAST_RECORDS;
        let is_short = job.count() <= whole;
        let first = if is_short { whole } else { FIRST_RECORDS };
        let first = self.records_from(job.id(), 0, first).await?;
        if is_short {
            return Ok((first, Vec::new()));
        }
        let last = self.records_from(job.id(), job.count() - LAST_RECORDS, LAST_RECORDS).await?;
        Ok((first, last))
    }

    async fn records_from(
        &self,
        job: JobId,
        from: u64,
        count: u64,
    ) -> Result<Vec<Record>, StoreError> {
        let limit = usize::try_from(count).unwrap_or(usize::MAX);
        let page = self.0.store.records(job, from, limit).await?;
        Ok(page.map_or_else(Vec::new, |page| page.records))
    }

    /// Steps that ended, and all; nothing when the job is not an orchestration.
    async fn step_counts(&self, job: &Job) -> Result<Option<(u64, u64)>, StoreError> {
        let id = job.field("operation").and_then(Value::as_str).unwrap_or_default();
        if self.0.catalogue.is_plain(id) {
            return Ok(None);
        }
        let operation = match self.operation_of(job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(trouble)) => return Err(trouble),
            Err(_) => return Ok(None),
        };
        let ended = job.steps().values().filter(|step| step.end.is_some()).count();
        Ok(operation.plan().map(|plan| (ended as u64, plan.steps.len() as u64)))
    }
}

fn recovered(record: &Record) -> Option<Recovered> {
    let Some(Note::Recovered { attempt, reason }) = record.note() else { return None };
    Some(Recovered {
        attempt: attempt.unwrap_or(1),
        reason: cut(reason.as_deref().unwrap_or_default()),
        at: record.updated(),
    })
}

/// What a note says went wrong with the try before.
fn noted(record: &Record) -> Option<AttemptFailure> {
    let (kind, attempt, reason) = match record.note()? {
        Note::Attempt { attempt, reason } => (FailureKind::Attempt, attempt, reason),
        // A job that had not started lost nothing.
        Note::Recovered { attempt, reason } if record.status() == Status::Started => {
            (FailureKind::Interrupted, attempt, reason)
        }
        _ => return None,
    };
    Some(AttemptFailure {
        at: record.updated(),
        attempt: attempt.map_or(1, |attempt| attempt.saturating_sub(1).max(1)),
        kind,
        code: None,
        error: cut(reason.as_deref().unwrap_or_default()),
    })
}

/// What the end of a job says went wrong.
fn ending(job: &Job) -> Option<AttemptFailure> {
    let status = job.status();
    let error = job.field("error").filter(|_| status.is_terminal())?;
    Some(AttemptFailure {
        at: job.updated(),
        attempt: job.attempt(),
        kind: FailureKind::End(status),
        code: job.field("errorCode").and_then(Value::as_str).map(str::to_owned),
        error: cut(&error.to_text().unwrap_or_default()),
    })
}

fn cut(text: &str) -> String {
    if text.len() <= ERROR_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(ERROR_BYTES_MAX)])
}

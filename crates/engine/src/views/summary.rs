//! The summary of a job: when it started, whether it was recovered, and which attempts failed.
//!
//! The resolved job does not contain its annotations. They are read from the chain, within bounds:
//! the first records and the last ones.

use catena_job::note::Note;
use catena_job::{Job, JobId, Record, Status};
use catena_value::Value;

use crate::error::{JobError, ResolveError, StoreError};
use crate::jobs::{check_visible, reused_steps};
use crate::limits::{SUMMARY_ERROR_BYTES_MAX, SUMMARY_ERRORS_MAX};
use crate::requests::{Caller, JobView};
use crate::views::Views;

/// Records that are read from the start of the chain. The job's start is among them.
const FIRST_RECORDS: u64 = 16;

/// Records that are read from the end of the chain.
const LAST_RECORDS: u64 = 64;

/// The summary of a job.
#[derive(Debug, Clone)]
pub struct JobSummary {
    /// The job, without steps.
    pub view: JobView,
    /// The number of ended steps and of all steps. `None` if the job is not an orchestration.
    pub steps: Option<(u64, u64)>,
    /// When it first started, as Unix time in ms.
    pub started: Option<i64>,
    /// Its last recovery, if it was recovered.
    pub recovery: Option<RecoveryNote>,
    /// The failures, oldest first.
    pub errors: Vec<AttemptFailure>,
}

/// A recovery of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryNote {
    /// The attempt that started then.
    pub attempt: u32,
    /// Why it was recovered.
    pub reason: String,
    /// When, as Unix time in ms.
    pub at: i64,
}

/// A failure of an attempt or of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    /// When, as Unix time in ms.
    pub at: i64,
    /// The attempt that failed.
    pub attempt: u32,
    /// What failed.
    pub kind: FailureKind,
    /// The failure code, if there is one.
    pub code: Option<String>,
    /// The error text.
    pub error: String,
}

/// What a failure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// An attempt that was retried.
    Attempt,
    /// An attempt that was interrupted because the process stopped.
    Interrupted,
    /// The job, with this status.
    End(Status),
}

impl Views {
    /// Returns the summary of a job.
    pub(crate) async fn summary(&self, caller: &Caller, id: JobId) -> Result<JobSummary, JobError> {
        if let Some(private) = self.execution.private.get(id) {
            let view = private.view();
            check_visible(caller, &view.job)?;
            return Ok(self.summarize(view).await?);
        }
        let current = self.jobs.current(id).await?.ok_or(JobError::NotFound(id))?;
        check_visible(caller, &current.job)?;
        Ok(self.summarize(self.view(current)).await?)
    }

    /// Returns the summary of a job whose view was returned before.
    pub(crate) async fn summarize(&self, mut view: JobView) -> Result<JobSummary, StoreError> {
        if !view.status().is_terminal() {
            // The stored progress may be a second old.
            let handle = self.execution.registry.get(view.job.id());
            let env = &*self.runtime.env;
            let newest = handle.and_then(|handle| handle.progress.measured(env));
            view.progress = newest.or(view.progress);
        }
        let steps = self.step_counts(&view.job).await?;
        let (first, last) = self.ends_of_chain(&view.job).await?;
        let records = || first.iter().chain(&last);
        let started = records().find(|record| record.status() == Status::Started);
        let mut interruptions = 0;
        let mut errors: Vec<AttemptFailure> =
            records().filter_map(|record| attempt_failure(record, &mut interruptions)).collect();
        errors.extend(final_failure(&view.job));
        errors.drain(..errors.len().saturating_sub(SUMMARY_ERRORS_MAX));
        Ok(JobSummary {
            steps,
            started: started.map(Record::updated),
            recovery: records().rev().find_map(recovery_note),
            errors,
            view,
        })
    }

    /// Returns the first and the last records of a chain, without overlap.
    async fn ends_of_chain(&self, job: &Job) -> Result<(Vec<Record>, Vec<Record>), StoreError> {
        let total = FIRST_RECORDS + LAST_RECORDS;
        let is_short = job.count() <= total;
        let first = if is_short { total } else { FIRST_RECORDS };
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
        let page = self.jobs.store.records(job, from, limit).await?;
        Ok(page.map_or_else(Vec::new, |page| page.records))
    }

    /// Returns the number of ended steps and of all steps. `None` if the job is not an orchestration.
    async fn step_counts(&self, job: &Job) -> Result<Option<(u64, u64)>, StoreError> {
        if self.has_no_steps(job) {
            return Ok(None);
        }
        let operation = match self.operations.operation_of(job).await {
            Ok(operation) => operation,
            Err(ResolveError::Store(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let ended = job.steps().values().filter(|step| step.end.is_some()).count();
        let ended = ended + reused_steps(job.field("reused")).len();
        Ok(operation.plan().map(|plan| (ended as u64, plan.steps.len() as u64)))
    }
}

fn recovery_note(record: &Record) -> Option<RecoveryNote> {
    let Some(Note::Recovered { attempt, reason, .. }) = record.note() else { return None };
    Some(RecoveryNote {
        attempt: attempt.unwrap_or(1),
        reason: truncate(reason.as_deref().unwrap_or_default()),
        at: record.updated(),
    })
}

/// Returns the failure of the previous attempt that an annotation names. `known` is the number of
/// interruptions so far: a planned stop does not add to it.
fn attempt_failure(record: &Record, known: &mut u32) -> Option<AttemptFailure> {
    let (kind, attempt, reason, code) = match record.note()? {
        Note::Attempt(note) if note.reason.is_some() => {
            (FailureKind::Attempt, &note.attempt, &note.reason, note.code.clone())
        }
        // A job that had not started lost no attempt.
        Note::Recovered { attempt, reason, interruptions }
            if record.status() == Status::Started =>
        {
            let before = std::mem::replace(known, interruptions.unwrap_or(*known + 1));
            if *known <= before {
                return None;
            }
            (FailureKind::Interrupted, attempt, reason, None)
        }
        _ => return None,
    };
    Some(AttemptFailure {
        at: record.updated(),
        attempt: attempt.map_or(1, |attempt| attempt.saturating_sub(1).max(1)),
        kind,
        code,
        error: truncate(reason.as_deref().unwrap_or_default()),
    })
}

/// Returns the failure that ended a job.
fn final_failure(job: &Job) -> Option<AttemptFailure> {
    let status = job.status();
    let error = job.field("error").filter(|_| status.is_terminal())?;
    Some(AttemptFailure {
        at: job.updated(),
        attempt: job.attempt(),
        kind: FailureKind::End(status),
        code: job.field("errorCode").and_then(Value::as_str).map(str::to_owned),
        error: truncate(&error.to_text().unwrap_or_default()),
    })
}

fn truncate(text: &str) -> String {
    if text.len() <= SUMMARY_ERROR_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(SUMMARY_ERROR_BYTES_MAX)])
}

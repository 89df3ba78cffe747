//! A job as the canvas API returns it: its own statuses, and the same members for every job.

use std::fmt::Write as _;

use catena_engine::requests::JobView;
use catena_engine::views::{AttemptFailure, FailureKind, JobSummary, RecoveryNote};
use catena_job::Status;
use catena_job::progress::{ProgressView, Stage};
use catena_job::vocabulary::{CanvasStatus, State};
use catena_value::{CellSource, NoCells, Value, json};

use crate::http::error::ApiResult;
use crate::http::json::write_value;
use crate::limits::LISTED_VALUE_BYTES_MAX;
use crate::values::{list, object};

/// The state of a job, from which its canvas status is derived.
pub(super) fn state_of(view: &JobView) -> State {
    State { status: view.status(), phase: view.phase, has_started: view.job.has_started() }
}

/// The progress of a job, as clients see it.
fn visible_progress(summary: &JobSummary) -> ProgressView {
    let view = &summary.view;
    // When a job has ended, its last progress is in the chain.
    let in_chain =
        || view.job.field("progress").and_then(|report| report.fully_loaded(view.cells()).ok());
    let report = view.progress.clone().or_else(in_chain);
    let stage = match state_of(view).canvas() {
        CanvasStatus::Processing => Stage::Running,
        status if status.is_terminal() => Stage::Ended,
        _ => Stage::Waiting,
    };
    ProgressView::new(report.as_ref(), summary.steps, stage)
}

/// How much of a job is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    Full,
    /// An entry of a list: long values are omitted and named.
    Listed,
}

/// Appends a job.
pub(super) fn write_job(summary: &JobSummary, extent: Extent, text: &mut String) -> ApiResult<()> {
    let job = &summary.view.job;
    let cells = summary.view.cells();
    let state = state_of(&summary.view);
    let ended = state.canvas().is_terminal().then(|| job.updated());
    let mut head = vec![
        ("id", Value::from(job.id())),
        ("type", job.field("op").cloned().unwrap_or_default()),
        ("status", state.canvas().as_str().into()),
        ("errorLog", list(summary.errors.iter().map(failure_value))),
        ("recovery", summary.recovery.as_ref().map_or(Value::Nil, recovery_value)),
        ("createdAt", job.created().into()),
        ("startedAt", or_nil(summary.started)),
        ("completedAt", or_nil(ended)),
    ];
    head.extend(state.waiting_for().map(|waiting| ("waitingFor", waiting.as_str().into())));
    head.extend(progress_members(&visible_progress(summary)));
    write_value(&object(head), &NoCells, text)?;
    text.pop();
    let mut omitted = Vec::new();
    for (name, field) in [("data", "input"), ("output", "output")] {
        let value = job.field(field).unwrap_or(&Value::Nil);
        if extent == Extent::Listed && is_long(value, cells) {
            omitted.push(Value::from(name));
            continue;
        }
        let _ = write!(text, ",\"{name}\":");
        write_value(value, cells, text)?;
    }
    if !omitted.is_empty() {
        text.push_str(",\"omitted\":");
        write_value(&list(omitted), &NoCells, text)?;
    }
    text.push('}');
    Ok(())
}

fn is_long(value: &Value, cells: &dyn CellSource) -> bool {
    let mut text = String::new();
    matches!(
        json::write(value, cells, LISTED_VALUE_BYTES_MAX, &mut text),
        Err(json::WriteError::TooLarge { .. })
    )
}

/// The progress of a job.
pub(super) fn progress_value(summary: &JobSummary) -> Value {
    let job = &summary.view.job;
    let progress = visible_progress(summary);
    let updated = progress.at.unwrap_or(0).max(job.updated());
    let mut members = vec![
        ("id", Value::from(job.id())),
        ("status", state_of(&summary.view).canvas().as_str().into()),
        ("updatedAt", updated.into()),
    ];
    members.extend(progress.rate_per_second.map(|rate| ("ratePerSecond", rate.into())));
    members.extend(progress.remaining_ms.map(|time| ("remainingMs", time.into())));
    members.extend(progress_members(&progress));
    object(members)
}

fn progress_members(progress: &ProgressView) -> [(&'static str, Value); 4] {
    [
        ("progress", i64::from(progress.percent).into()),
        ("processedItems", progress.processed_items.into()),
        ("totalItems", progress.total_items.into()),
        ("outputStats", progress.output_stats.clone().unwrap_or_default()),
    ]
}

/// An entry of the error log.
fn failure_value(failure: &AttemptFailure) -> Value {
    let kind = match failure.kind {
        FailureKind::Attempt => "attempt",
        FailureKind::Interrupted => "interrupted",
        FailureKind::End(Status::Cancelled) => "cancelled",
        FailureKind::End(Status::Rejected) => "rejected",
        FailureKind::End(Status::Timeout) => "timeout",
        FailureKind::End(_) => "failed",
    };
    let mut members = vec![
        ("at", Value::from(failure.at)),
        ("attempt", failure.attempt.into()),
        ("kind", kind.into()),
        ("error", failure.error.as_str().into()),
    ];
    members.extend(failure.code.as_deref().map(|code| ("code", code.into())));
    object(members)
}

fn recovery_value(recovered: &RecoveryNote) -> Value {
    object([
        ("attempt", Value::from(recovered.attempt)),
        ("reason", recovered.reason.as_str().into()),
        ("at", recovered.at.into()),
    ])
}

fn or_nil(time: Option<i64>) -> Value {
    time.map_or(Value::Nil, Value::from)
}

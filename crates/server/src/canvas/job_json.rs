//! A job as the canvas door shows it: its own words, and the same members for every job.

use std::fmt::Write as _;

use catena_engine::request::JobView;
use catena_engine::summary::{AttemptFailure, FailureKind, JobSummary, Recovered};
use catena_job::Status;
use catena_job::progress::{Shown, Stage};
use catena_job::vocabulary::{CanvasStatus, State};
use catena_value::{CellSource, Map, NoCells, Value, json};

use crate::grid::job_json::write_value;
use crate::http::error::ApiResult;
use crate::limits::LISTED_VALUE_BYTES_MAX;

/// Where a job stands, for the vocabularies.
pub(crate) fn state_of(view: &JobView) -> State {
    State { status: view.status(), phase: view.phase, has_started: view.job.has_started() }
}

/// What is shown of a job's progress.
fn shown(outline: &JobSummary) -> Shown {
    let view = &outline.view;
    // At the end the chain carries the last progress.
    let in_chain =
        || view.job.field("progress").and_then(|kept| kept.fully_loaded(view.cells()).ok());
    let kept = view.progress.clone().or_else(in_chain);
    let stage = match state_of(view).canvas() {
        CanvasStatus::Processing => Stage::Moving,
        status if status.is_terminal() => Stage::Ended,
        _ => Stage::Waiting,
    };
    Shown::of(kept.as_ref(), outline.steps, stage)
}

/// How much of a job is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// As one of many: long values are left out and named.
    Line,
}

/// A job.
pub(crate) fn write_job(outline: &JobSummary, extent: Extent, text: &mut String) -> ApiResult<()> {
    let (job, cells) = (&outline.view.job, outline.view.cells());
    let state = state_of(&outline.view);
    let ended = state.canvas().is_terminal().then(|| job.updated());
    let mut head = vec![
        ("id", Value::from(job.id())),
        ("type", job.field("op").cloned().unwrap_or_default()),
        ("status", state.canvas().as_str().into()),
        ("errorLog", list(outline.errors.iter().map(mishap))),
        ("recovery", outline.recovery.as_ref().map_or(Value::Nil, recovered)),
        ("createdAt", job.created().into()),
        ("startedAt", or_nil(outline.started)),
        ("completedAt", or_nil(ended)),
    ];
    head.extend(state.waiting_for().map(|waiting| ("waitingFor", waiting.as_str().into())));
    head.extend(figures(&shown(outline)));
    write_value(&head.into_iter().collect::<Map>().into(), &NoCells, text)?;
    text.pop();
    let mut omitted = Vec::new();
    for (name, field) in [("data", "input"), ("output", "output")] {
        let value = job.field(field).unwrap_or(&Value::Nil);
        if extent == Extent::Line && is_long(value, cells) {
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
pub(crate) fn progress(outline: &JobSummary) -> Value {
    let job = &outline.view.job;
    let shown = shown(outline);
    let updated = shown.at.unwrap_or(0).max(job.updated());
    let mut members = vec![
        ("id", Value::from(job.id())),
        ("status", state_of(&outline.view).canvas().as_str().into()),
        ("updatedAt", updated.into()),
    ];
    members.extend(shown.rate_per_second.map(|rate| ("ratePerSecond", rate.into())));
    members.extend(shown.remaining_ms.map(|time| ("remainingMs", time.into())));
    members.extend(figures(&shown));
    members.into_iter().collect::<Map>().into()
}

fn figures(shown: &Shown) -> [(&'static str, Value); 4] {
    [
        ("progress", i64::from(shown.percent).into()),
        ("processedItems", shown.processed_items.into()),
        ("totalItems", shown.total_items.into()),
        ("outputStats", shown.output_stats.clone().unwrap_or_default()),
    ]
}

fn mishap(mishap: &AttemptFailure) -> Value {
    let kind = match mishap.kind {
        FailureKind::Attempt => "attempt",
        FailureKind::Interrupted => "interrupted",
        FailureKind::End(Status::Cancelled) => "cancelled",
        FailureKind::End(Status::Rejected) => "rejected",
        FailureKind::End(Status::Timeout) => "timeout",
        FailureKind::End(_) => "failed",
    };
    let mut members = vec![
        ("at", Value::from(mishap.at)),
        ("attempt", mishap.attempt.into()),
        ("kind", kind.into()),
        ("error", mishap.error.as_str().into()),
    ];
    members.extend(mishap.code.as_deref().map(|code| ("code", code.into())));
    members.into_iter().collect::<Map>().into()
}

fn recovered(recovered: &Recovered) -> Value {
    let members = [
        ("attempt", Value::from(recovered.attempt)),
        ("reason", recovered.reason.as_str().into()),
        ("at", recovered.at.into()),
    ];
    members.into_iter().collect::<Map>().into()
}

fn or_nil(time: Option<i64>) -> Value {
    time.map_or(Value::Nil, Value::from)
}

pub(crate) fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::Vector(items.into_iter().collect())
}

//! What recovery did, and the health of queues, workers and the store.

use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::background::SkippedJob;
use catena_engine::views::Health;
use catena_engine::{QueueDepths, Role};
use catena_store::embedded::CounterSnapshot;
use catena_value::Value;

use crate::grid::health::{recovery_members, store_status};
use crate::grid::stats::executors_value;
use crate::http::error::ApiResult;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::limits::QUEUE_TYPES_MAX;
use crate::values::{count, list, object};

/// Handles `GET /canvas/v1/recovery`.
pub(super) async fn read_recovery(request: ApiRequest) -> ApiResult<Response> {
    let summary = request.state.engine.recovery();
    let is_visible = |skipped: &&SkippedJob| request.caller.may_touch(&skipped.owner);
    let skipped = list(summary.skipped_jobs.iter().filter(is_visible).map(skipped_value));
    let mut members = recovery_members(&summary);
    members.push(("skippedJobs", skipped));
    Ok(response::value(StatusCode::OK, &object(members)))
}

fn skipped_value(skipped: &SkippedJob) -> Value {
    object([
        ("id", Value::from(skipped.job)),
        ("type", skipped.op.as_str().into()),
        ("reason", skipped.reason.as_str().into()),
    ])
}

/// Handles `GET /canvas/v1/health`.
pub(super) async fn read_health(request: ApiRequest) -> ApiResult<Response> {
    let engine = &request.state.engine;
    let store = &request.state.store;
    let store_status = store_status(&store.health());
    let is_healthy = engine.is_ready() && store_status == "ok";
    let status = ("status", Value::from(if is_healthy { "ok" } else { "degraded" }));
    let is_stranger = request.caller.role == Role::Anonymous && !engine.limits().anonymous_owns;
    if is_stranger {
        return Ok(response::value(StatusCode::OK, &object([status])));
    }
    let health = engine.health().await?;
    let oldest = match &health.queue.oldest {
        Some(oldest) if engine.job(&request.caller, oldest.job).await.is_ok() => {
            oldest_value(&health.queue, engine.env().now())
        }
        _ => Value::Nil,
    };
    // How callers name operations of their own is for admins.
    let is_shown = |op: &str| request.caller.role == Role::Admin || engine.is_listed_operation(op);
    let queue = queue_value(&health.queue, is_shown);
    let members = [
        status,
        ("queue", queue),
        ("oldestWaiting", oldest),
        ("workers", list([worker_value(&health)])),
        ("executors", executors_value(&engine.executors(&request.caller))),
        ("store", store_value(store_status, &store.counters())),
    ];
    Ok(response::value(StatusCode::OK, &object(members)))
}

/// The depths of the queue.
fn queue_value(depths: &QueueDepths, is_shown: impl Fn(&str) -> bool) -> Value {
    let by_priority = depths
        .by_priority
        .iter()
        .map(|(priority, jobs)| depth_value("priority", i64::from(*priority).into(), *jobs));
    let (shown, hidden): (Vec<_>, Vec<_>) = depths.by_op.iter().partition(|(op, _)| is_shown(op));
    let (listed, rest) = shown.split_at(shown.len().min(QUEUE_TYPES_MAX));
    let rest = rest.iter().chain(&hidden);
    let by_type = listed.iter().map(|(op, jobs)| depth_value("type", op.as_str().into(), *jobs));
    object([
        ("total", count(depths.total)),
        ("byPriority", list(by_priority)),
        ("byType", list(by_type)),
        ("otherTypes", count(rest.map(|(_, jobs)| jobs).sum())),
    ])
}

fn depth_value(name: &'static str, value: Value, jobs: u64) -> Value {
    object([(name, value), ("jobs", count(jobs))])
}

/// The job that has waited longest. `now` is Unix time in milliseconds.
fn oldest_value(depths: &QueueDepths, now: i64) -> Value {
    let Some(oldest) = &depths.oldest else { return Value::Nil };
    object([
        ("id", Value::from(oldest.job)),
        ("type", oldest.op.as_str().into()),
        ("since", oldest.since.into()),
        ("waitingMs", now.saturating_sub(oldest.since).max(0).into()),
    ])
}

fn worker_value(health: &Health) -> Value {
    object([
        ("id", Value::from(health.worker.as_str())),
        ("running", count(health.running)),
        ("slots", count(health.slots)),
        ("lastHeartbeat", health.heartbeat.into()),
    ])
}

fn store_value(status: &str, counters: &CounterSnapshot) -> Value {
    let milliseconds = |nanos: u64| (nanos as f64 / 1e3).round() / 1e3;
    let mean = counters.sync_nanos.checked_div(counters.syncs).unwrap_or(0);
    object([
        ("status", Value::from(status)),
        ("syncs", count(counters.syncs)),
        ("syncMsMean", milliseconds(mean).into()),
        ("syncMsMax", milliseconds(counters.sync_nanos_max).into()),
    ])
}

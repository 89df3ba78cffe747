//! Probes and metrics for monitoring.

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use catena_engine::background::RecoverySummary;
use catena_store::embedded::Health;
use catena_value::Value;

use crate::http::error::ApiResult;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{Access, ROUTE, Reply, Route, query, reply};
use crate::http::state::ServerState;
use crate::values::{count, object};

const METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const STATUS: &str = r#"{"type":"object","required":["status"]}"#;

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/livez",
        tag: "Health",
        summary: "Liveness probe",
        access: Access::Probe,
        replies: &[reply(200, "The process is alive.", STATUS)],
        handler: |_| {
            Box::pin(std::future::ready(Ok(response::json(StatusCode::OK, r#"{"status":"ok"}"#))))
        },
        ..ROUTE
    },
    Route {
        path: "/readyz",
        tag: "Health",
        summary: "Readiness probe",
        about: "The venue is ready as soon as it listens. Jobs from before a restart are recovered \
                in the background; `recovery` in the verbose response shows how far that is.",
        access: Access::Probe,
        parameters: &[query(
            "verbose",
            r#"{"type":"boolean"}"#,
            "Includes every check and the state of recovery.",
        )],
        replies: &[
            reply(200, "The venue accepts work.", STATUS),
            reply(503, "The venue does not accept work.", STATUS),
        ],
        handler: |request| Box::pin(ready(request)),
        ..ROUTE
    },
    Route {
        path: "/metrics",
        tag: "Health",
        summary: "Metrics for Prometheus",
        access: Access::Metrics,
        replies: &[Reply {
            status: 200,
            about: "Metrics in the OpenMetrics text format.",
            body: Some(("application/openmetrics-text", r#"{"type":"string"}"#)),
        }],
        handler: |request| Box::pin(metrics(request)),
        ..ROUTE
    },
];

async fn ready(request: ApiRequest) -> ApiResult<Response> {
    let is_verbose = request.flag("verbose")?;
    let store = store_status(&request.state.store.health());
    let is_engine_ready = request.state.engine.is_ready();
    let is_ready = is_engine_ready && store == "ok";
    let mut members = vec![("status", Value::from(if is_ready { "ready" } else { "not ready" }))];
    if is_verbose {
        members.extend(details(&request.state, is_engine_ready, store));
    }
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(response::value(status, &object(members)))
}

/// The health of the store, as clients see it.
pub(crate) fn store_status(health: &Health) -> &'static str {
    match health {
        Health::Good => "ok",
        Health::Full => "full",
        Health::Poisoned { .. } => "failed",
    }
}

fn details(state: &ServerState, is_engine_ready: bool, store: &str) -> [(&'static str, Value); 2] {
    let engine = if is_engine_ready { "ok" } else { "stopping" };
    let summary = state.engine.recovery();
    let mut recovery = recovery_members(&summary);
    // The name that this route has always used for the duration.
    let took = summary.took.unwrap_or_default().as_millis();
    recovery.push(("tookMs", i64::try_from(took).unwrap_or(i64::MAX).into()));
    let checks = object([("engine", engine.into()), ("store", store.into())]);
    [("checks", checks), ("recovery", object(recovery))]
}

/// The members that describe what recovery did.
pub(crate) fn recovery_members(summary: &RecoverySummary) -> Vec<(&'static str, Value)> {
    let took = summary.took.map(|took| i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    let ended = took.map(|took| summary.began.saturating_add(took));
    let status = if summary.is_done() { "done" } else { "running" };
    vec![
        ("status", status.into()),
        ("found", count(summary.found)),
        ("scanned", count(summary.scanned)),
        ("requeued", count(summary.requeued)),
        ("failed", count(summary.failed)),
        ("skipped", count(summary.skipped)),
        ("left", count(summary.left)),
        ("durationMs", took.map_or(Value::Nil, Value::from)),
        ("startedAt", summary.began.into()),
        ("completedAt", ended.map_or(Value::Nil, Value::from)),
    ]
}

async fn metrics(request: ApiRequest) -> ApiResult<Response> {
    let state = &request.state;
    let text = state.metrics.to_openmetrics(&state.engine, &state.store).await;
    Ok(response::with_type(StatusCode::OK, METRICS, text))
}

//! What monitors ask: is it alive, is it ready, what has it counted.

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use catena_store::embedded::ledger::Health;
use catena_value::{Map, Value, json};

use crate::canvas::routes::summary_members;
use crate::http::error::ApiResult;
use crate::http::request::Call;
use crate::http::response;
use crate::http::service::Door;
use crate::routes::{Access, ROUTE, Reply, Route, query, reply};

const METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const STATE: &str = r#"{"type":"object","required":["status"]}"#;

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/livez",
        tag: "Health",
        summary: "Whether the process answers",
        access: Access::Probe,
        replies: &[reply(200, "It does.", STATE)],
        handler: |_| {
            Box::pin(std::future::ready(Ok(response::json(StatusCode::OK, r#"{"status":"ok"}"#))))
        },
        ..ROUTE
    },
    Route {
        path: "/readyz",
        tag: "Health",
        summary: "Whether the venue takes work",
        about: "It does from the start: jobs of the life before are recovered meanwhile, see \
                `recovery` with `verbose`.",
        access: Access::Probe,
        parameters: &[query(
            "verbose",
            r#"{"type":"boolean"}"#,
            "Every check, and what recovery did.",
        )],
        replies: &[reply(200, "It does.", STATE), reply(503, "Not now.", STATE)],
        handler: |call| Box::pin(ready(call)),
        ..ROUTE
    },
    Route {
        path: "/metrics",
        tag: "Health",
        summary: "Counters for Prometheus",
        access: Access::Metrics,
        replies: &[Reply {
            status: 200,
            about: "OpenMetrics text.",
            body: Some(("application/openmetrics-text", r#"{"type":"string"}"#)),
        }],
        handler: |call| Box::pin(metrics(call)),
        ..ROUTE
    },
];

async fn ready(call: Call) -> ApiResult<Response> {
    let is_verbose = call.flag("verbose")?;
    let store = store_state(&call.door.store.health());
    let is_engine_ready = call.door.engine.is_ready();
    let is_ready = is_engine_ready && store == "ok";
    let mut members = vec![("status", Value::from(if is_ready { "ready" } else { "not ready" }))];
    if is_verbose {
        members.extend(details(&call.door, is_engine_ready, store));
    }
    let text = json::to_string(&members.into_iter().collect::<Map>().into()).unwrap_or_default();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(response::json(status, text))
}

pub(crate) fn store_state(health: &Health) -> &'static str {
    match health {
        Health::Good => "ok",
        Health::Full => "full",
        Health::Poisoned { .. } => "failed",
    }
}

fn details(door: &Door, is_engine_ready: bool, store: &str) -> [(&'static str, Value); 2] {
    let engine = if is_engine_ready { "ok" } else { "stopping" };
    let summary = door.engine.recovery();
    let mut recovery = summary_members(&summary);
    // The name that this route has always had for it.
    let took = summary.took.unwrap_or_default().as_millis();
    recovery.push(("tookMs", i64::try_from(took).unwrap_or(i64::MAX).into()));
    let checks = [("engine", engine), ("store", store)].into_iter().collect::<Map>();
    [("checks", checks.into()), ("recovery", recovery.into_iter().collect::<Map>().into())]
}

async fn metrics(call: Call) -> ApiResult<Response> {
    let text = call.door.metrics.text(&call.door.engine, &call.door.store);
    Ok(response::with_type(StatusCode::OK, METRICS, text))
}

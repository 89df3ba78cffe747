//! Statistics of the last hour.

use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::requests::ConnectedExecutor;
use catena_engine::runtime::{MinuteStats, Percentiles};
use catena_engine::views::HourStats;
use catena_job::Status;
use catena_store::embedded::EmbeddedStore;
use catena_value::{Map, Value, Vector};

use crate::http::error::ApiResult;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{ROUTE, Route, reply};
use crate::values::{count, list, object};

/// The terminal statuses, in the order in which they are counted.
const ENDED: [Status; 5] =
    [Status::Complete, Status::Failed, Status::Cancelled, Status::Rejected, Status::Timeout];

pub(crate) const ROUTES: &[Route] = &[Route {
    path: "/api/v1/stats",
    tag: "Health",
    summary: "Statistics of the last hour",
    about: "What the process that answers did in the last hour, by minute: jobs created, started and \
            ended by status, upper bounds of the time they waited and ran, and the depth of the \
            queue. Admins see all jobs and the store, others their own jobs. Sub-jobs are included. \
            `executors` names those that are connected.",
    replies: &[reply(
        200,
        "The statistics.",
        r#"{"type":"object","required":["scope","now","minutes","queued","executors"]}"#,
    )],
    handler: |request| Box::pin(stats(request)),
    ..ROUTE
}];

async fn stats(request: ApiRequest) -> ApiResult<Response> {
    let stats = request.state.engine.stats(&request.caller).await?;
    let store = stats.is_everyone.then(|| store_value(&request.state.store));
    let executors = executors_value(&request.state.engine.executors(&request.caller));
    Ok(response::value(StatusCode::OK, &stats_value(&stats, executors, store)))
}

/// The executors that are connected, in short: `/contract/v1/executors` has more about them.
pub(crate) fn executors_value(executors: &[ConnectedExecutor]) -> Value {
    list(executors.iter().map(|executor| {
        let announced = &executor.announced;
        object([
            ("executor", Value::from(announced.worker.as_str())),
            ("tier", announced.tier.as_deref().map_or(Value::Nil, Value::from)),
            ("slots", count(announced.slots as u64)),
            ("running", count(executor.running as u64)),
            ("heartbeatAt", executor.heard_at.into()),
        ])
    }))
}

fn stats_value(stats: &HourStats, executors: Value, store: Option<Value>) -> Value {
    let minutes = stats.minutes.iter().map(minute_value).collect();
    let mut members = vec![
        ("scope", Value::from(if stats.is_everyone { "all" } else { "own" })),
        ("now", stats.now.into()),
        ("minutes", Vector::from_items(minutes).into()),
        ("queued", count(stats.queued)),
        ("executors", executors),
    ];
    members.extend(stats.running.map(|running| ("running", count(running))));
    members.extend(store.map(|store| ("store", store)));
    object(members)
}

fn minute_value(minute: &MinuteStats) -> Value {
    let ended = ENDED.into_iter().zip(minute.ended).filter(|(_, jobs)| *jobs > 0);
    let ended: Map = ended.map(|(status, jobs)| (status.as_str(), count(jobs))).collect();
    let mut members = vec![
        ("at", Value::from(minute.at)),
        ("created", count(minute.created)),
        ("started", count(minute.started)),
        ("ended", ended.into()),
    ];
    members.extend(minute.waiting.map(|times| ("waitingMs", percentiles_value(times))));
    members.extend(minute.running.map(|times| ("runningMs", percentiles_value(times))));
    members.extend(minute.queue_depth.map(|depth| ("queueDepth", count(depth))));
    object(members)
}

fn percentiles_value(times: Percentiles) -> Value {
    object([("p50", count(times.p50_ms)), ("p99", count(times.p99_ms))])
}

/// The size of the store, and what it has written and how long its syncs took since the venue started.
fn store_value(store: &EmbeddedStore) -> Value {
    let counters = store.counters();
    let micros = |nanos: u64| count(nanos / 1_000);
    let mean = counters.sync_nanos.checked_div(counters.syncs).unwrap_or(0);
    object([
        ("diskBytes", count(store.disk_bytes())),
        ("journalBytes", count(counters.journal_bytes)),
        ("payloadBytes", count(counters.payload_bytes)),
        ("commits", count(counters.commits)),
        ("syncs", count(counters.syncs)),
        ("syncMeanUs", micros(mean)),
        ("syncMaxUs", micros(counters.sync_nanos_max)),
    ])
}

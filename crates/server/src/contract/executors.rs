//! The executors that are connected, and the environments that are known.

use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::operations::Environment;
use catena_engine::requests::{AnnouncedTier, ConnectedExecutor};
use catena_job::contract::format_time;
use catena_value::Value;

use crate::http::error::ApiResult;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::values::{count, list, object};

pub(super) async fn list_executors(request: ApiRequest) -> ApiResult<Response> {
    let engine = &request.state.engine;
    let executors = engine.executors(&request.caller);
    let known = engine.environments();
    let default = known.newest(&request.state.default_environment);
    let default = default.map(|environment| environment.version);
    let environments = known.list();
    let environments =
        environments.iter().map(|known| environment_value(known, default.as_deref(), &executors));
    let total = |number: fn(&ConnectedExecutor) -> usize| {
        count(executors.iter().map(number).sum::<usize>() as u64)
    };
    let members = [
        ("slots", total(|executor| executor.announced.slots)),
        ("running", total(|executor| executor.running)),
        ("executors", list(executors.iter().map(executor_value))),
        ("environments", list(environments)),
    ];
    Ok(response::value(StatusCode::OK, &object(members)))
}

fn executor_value(executor: &ConnectedExecutor) -> Value {
    let announced = &executor.announced;
    let time = |at: i64| Value::from(format_time(at));
    let mut members = vec![
        ("executor", Value::from(announced.worker.as_str())),
        ("tier", announced.tier.as_deref().map_or(Value::Nil, Value::from)),
        ("tiers", list(announced.tiers.iter().map(tier_value))),
        ("slots", count(announced.slots as u64)),
        ("running", count(executor.running as u64)),
        ("announced_at", time(executor.announced_at)),
        ("heartbeat_at", time(executor.heard_at)),
        ("lease_until", executor.lease_until.map_or(Value::Nil, time)),
        ("environments", list(announced.versions.iter().map(|version| version.as_str().into()))),
    ];
    members.extend(announced.unavailable.as_deref().map(|why| ("unavailable", why.into())));
    object(members)
}

fn tier_value(tier: &AnnouncedTier) -> Value {
    object([
        ("tier", Value::from(tier.tier.as_str())),
        ("available", tier.is_available.into()),
        ("reason", tier.reason.as_str().into()),
    ])
}

fn environment_value(
    environment: &Environment,
    default: Option<&str>,
    executors: &[ConnectedExecutor],
) -> Value {
    let version = environment.version.as_str();
    let has_it = |executor: &&ConnectedExecutor| {
        executor.announced.versions.iter().any(|known| known == version)
    };
    let connected = executors.iter().filter(has_it).count();
    object([
        ("env_version", Value::from(version)),
        ("profile", environment.profile.as_str().into()),
        ("job_types", list(environment.job_types.iter().map(|kind| kind.as_str().into()))),
        ("is_default", (default == Some(version)).into()),
        ("executors", count(connected as u64)),
        ("announced_at", format_time(environment.announced).into()),
    ])
}

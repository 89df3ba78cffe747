//! What executors send beyond the requests of every worker: their environments, and the data and files
//! of the jobs that they hold. A claim grants access to what its payload names, while it lasts.

use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::operations::{Environment, is_name};
use catena_engine::requests::{AnnouncedExecutor, AnnouncedTier, JobView};
use catena_value::{Map, NoCells, Value};

use crate::contract::blobs::{not_found, parse_digest, receive, send, stored};
use crate::contract::jobs::loaded;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::limits::{
    ANNOUNCED_MAX, ARTIFACT_BYTES_MAX, EXECUTOR_SLOTS_MAX, REASON_BYTES_MAX, TIER_BYTES_MAX,
    TIERS_MAX,
};
use crate::values::object;
use crate::worker::routes::is_executor;

/// Refuses everyone but executors.
fn check_executor(request: &ApiRequest) -> ApiResult<()> {
    if is_executor(request) {
        return Ok(());
    }
    let text = "only executors of this venue may do this";
    let error = ApiError::new(Code::Forbidden, text);
    Err(error.hint("Create a token with `catena token create --executor`."))
}

pub(super) async fn announce(mut request: ApiRequest) -> ApiResult<Response> {
    check_executor(&request)?;
    let body = request.read_body().await?;
    let value = json::parse(&body)?;
    let error = || ApiError::bad_request("`environments` must be an array of objects");
    let map = value.as_map().ok_or_else(error)?;
    let given = map.field("environments").and_then(Value::as_vector).ok_or_else(error)?;
    let announced = request.state.engine.env().now();
    let environments = given.iter(&NoCells).flatten().map(|one| parse_environment(&one, announced));
    let environments: Option<Vec<Environment>> = environments.collect();
    let environments = environments.filter(|list| list.len() <= ANNOUNCED_MAX).ok_or_else(error)?;
    let unavailable = map.field("unavailable").and_then(|why| short(why, REASON_BYTES_MAX));
    if let Some(reason) = &unavailable {
        tracing::warn!(reason, "an executor cannot run code");
    }
    let worker = map.field("worker").and_then(Value::to_text).filter(|name| is_name(name));
    let worker = worker.ok_or_else(|| ApiError::bad_request("`worker` must be a name"))?;
    let slots = map.field("slots").and_then(Value::as_i64).unwrap_or(1);
    let slots = usize::try_from(slots).ok().filter(|slots| *slots <= EXECUTOR_SLOTS_MAX);
    let slots = slots.ok_or_else(|| {
        ApiError::bad_request(format!("`slots` must be from 0 to {EXECUTOR_SLOTS_MAX}"))
    })?;
    let executor = AnnouncedExecutor {
        worker: worker.into_owned(),
        slots,
        versions: environments.iter().map(|known| known.version.clone()).collect(),
        tier: map.field("tier").and_then(|tier| short(tier, TIER_BYTES_MAX)),
        tiers: parse_tiers(map)?,
        unavailable,
    };
    request.state.engine.announce(executor, environments).await?;
    Ok(response::value(StatusCode::OK, &object([("ok", true.into())])))
}

/// A text, without what is beyond a number of bytes.
fn short(value: &Value, max: usize) -> Option<String> {
    let text = value.to_text()?;
    Some(text[..text.floor_char_boundary(max)].to_owned())
}

/// What the executor found out about each tier, if it says so.
fn parse_tiers(announcement: &Map) -> ApiResult<Vec<AnnouncedTier>> {
    let Some(given) = announcement.field("tiers").filter(|tiers| !tiers.is_nil()) else {
        return Ok(Vec::new());
    };
    let parse = |tier: Value| {
        let map = tier.as_map()?;
        Some(AnnouncedTier {
            tier: short(map.field("tier")?, TIER_BYTES_MAX)?,
            is_available: map.field("available")?.as_bool()?,
            reason: short(map.field("reason")?, REASON_BYTES_MAX)?,
        })
    };
    let tiers = given.as_vector().map(|tiers| tiers.iter(&NoCells).flatten().map(parse));
    let tiers: Option<Vec<AnnouncedTier>> = tiers.and_then(Iterator::collect);
    let tiers = tiers.filter(|tiers| tiers.len() <= TIERS_MAX);
    tiers.ok_or_else(|| {
        ApiError::bad_request("`tiers` must be a short array of {tier, available, reason}")
    })
}

fn parse_environment(value: &Value, announced: i64) -> Option<Environment> {
    let map = value.as_map()?;
    let text = |name: &str| Some(map.field(name)?.to_text()?.into_owned());
    let types = map.field("job_types")?.as_vector()?.iter(&NoCells).flatten();
    let is_short = |text: &String| !text.is_empty() && text.len() <= 128;
    Some(Environment {
        version: text("version").filter(is_short)?,
        profile: text("profile").filter(is_short)?,
        job_types: types.filter_map(|kind| Some(kind.to_text()?.into_owned())).collect(),
        announced,
    })
}

/// The job in the path, which the executor must hold under the fence in the query.
async fn held_job(request: &ApiRequest) -> ApiResult<JobView> {
    check_executor(request)?;
    let job = request.job_id()?;
    let fence = request.number("fence")?;
    let fence = fence.ok_or_else(|| ApiError::bad_request("`fence` is missing"))?;
    Ok(request.state.engine.held_job(&request.caller, job, fence).await?)
}

pub(super) async fn dataset(request: ApiRequest) -> ApiResult<Response> {
    let view = held_job(&request).await?;
    let text = request.second_path_argument()?.into_owned();
    let digest = parse_digest(&text)?;
    let input = loaded(&view, "input")?.unwrap_or_default();
    if !names(&input, &digest.to_string()) {
        return Err(ApiError::new(Code::BlobNotFound, "the job does not name this dataset"));
    }
    let owner = view.job.field("caller").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !request.state.engine.may_read_blob(&owner, digest).await? {
        return Err(not_found(digest));
    }
    send(&request, digest).await
}

/// Whether a text occurs in a value.
fn names(value: &Value, text: &str) -> bool {
    if let Some(map) = value.as_map() {
        return map.fields().into_iter().any(|(_, value)| names(value, text));
    }
    match value.as_vector() {
        Some(items) => items.iter(&NoCells).flatten().any(|item| names(&item, text)),
        None => value.as_str() == Some(text),
    }
}

pub(super) async fn artifact(mut request: ApiRequest) -> ApiResult<Response> {
    let job = held_job(&request).await?.job;
    let text = request.second_path_argument()?.into_owned();
    let digest = parse_digest(&text)?;
    let size = receive(&mut request, digest, ARTIFACT_BYTES_MAX, Some(&job)).await?;
    Ok(stored(digest, size))
}

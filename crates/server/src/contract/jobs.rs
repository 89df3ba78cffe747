//! Creating, reading, listing and cancelling contract jobs.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::Response;
use catena_engine::operations::{Environment, Environments};
use catena_engine::requests::{Invoke, JobFilter, JobView, ListJobs, SubmitOnce};
use catena_engine::{Caller, Engine};
use catena_job::contract::envelope::{Keyed, input_of_body};
use catena_job::contract::result::{JobResult, is_contract_job};
use catena_job::contract::{
    ContractError, ENV_VERSION, EXECUTION, EXECUTION_KEY, Envelope, JobType, envelope,
};
use catena_job::vocabulary::{ContractStatus, State};
use catena_job::{JobId, Status};
use catena_store::ListOrder;
use catena_value::{Map, Value};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::limits::{CONTRACT_PAGE_MAX, SUPERSEDED_MAX};
use crate::values::{list, object, with_member};

/// The operation of the contract jobs of a type.
fn operation_of(job_type: JobType) -> String {
    format!("contract:{}", job_type.as_str())
}

/// How much longer than the limit of its cell a job may take: fetching data, uploading files, and an
/// executor that has to be noticed to be lost.
const EXECUTION_GRACE: Duration = Duration::from_secs(60);

/// When to ask again whether an environment was announced.
const NO_ENVIRONMENT_DELAY: Duration = Duration::from_secs(2);

/// The page size if a request names none.
const DEFAULT_LIMIT: usize = 50;

pub(super) async fn create(mut request: ApiRequest) -> ApiResult<Response> {
    let body = request.read_body().await?;
    let key = request.idempotency_key("contract/jobs", &[], &body)?;
    let value = json::parse(&body)?;
    let map = value.as_map().ok_or_else(|| {
        ApiError::invalid_payload(ContractError::invalid(
            "INVALID_PAYLOAD",
            "the body must be an object",
        ))
    })?;
    let envelope = Envelope::read(map, &request.state.plan).map_err(ApiError::invalid_payload)?;
    let engine = request.state.engine.clone();
    let profile = envelope.job_type.profile(&request.state.default_environment);
    let environment = environment_for(&envelope, engine.environments(), profile)?;
    let keyed = envelope.keyed(&environment.version);
    let caller = request.caller.clone();
    let operation = operation_of(envelope.job_type);
    let mut invoke = Invoke::new(caller.clone(), &operation, input_of_body(map).into());
    invoke.idempotency = key;
    invoke.tags = tags(&envelope);
    invoke.timeout = Some(Duration::from_millis(envelope.limits.timeout_ms) + EXECUTION_GRACE);
    let once = SubmitOnce {
        invoke,
        scope: envelope.text("workspace_id"),
        key: keyed.execution_key.clone(),
        reuses_failed: envelope.reuse_failed,
    };
    drop((body, request));
    let submitted = engine.submit_once(once).await?;
    let superseded = if envelope.supersede && !submitted.is_replay {
        supersede(&engine, &caller, &envelope, submitted.view.job.id()).await?
    } else {
        Vec::new()
    };
    let status = if submitted.is_reused { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut members = created_members(&submitted.view, &envelope, &keyed);
    members.push(("deduplicated", submitted.is_reused.into()));
    members.extend(waiting_hint(&engine, &submitted.view).map(|hint| ("hint", hint.into())));
    if envelope.supersede {
        members.push(("superseded", list(superseded.into_iter().map(Value::from))));
    }
    let mut response = response::value(status, &object(members));
    let location = format!("/contract/v1/jobs/{}", submitted.view.job.id().to_uuid());
    response::set_header(&mut response, header::LOCATION, location);
    response::mark_replay(&mut response, submitted.is_replay);
    Ok(response)
}

/// What to do about a job that waits for an environment which no connected executor has.
fn waiting_hint(engine: &Engine, view: &JobView) -> Option<String> {
    let version = view.job.field(ENV_VERSION).and_then(Value::as_str)?;
    if view.job.status() != Status::Pending || engine.has_executor(version) {
        return None;
    }
    Some(format!(
        "No executor with the environment {version} is connected. The job waits for one for up to 24 \
         hours; start one with `catena executor`, or name another env_version."
    ))
}

/// The environment in which a job runs. Fails if it is not known, or if none is.
fn environment_for(
    envelope: &Envelope,
    known: &Environments,
    default_profile: &str,
) -> ApiResult<Environment> {
    let versions = known.versions();
    if versions.is_empty() {
        let reason = known.unavailable();
        let reason = reason.unwrap_or_else(|| "no executor has announced an environment".into());
        let error = ApiError::new(Code::NoEnvironment, format!("code cannot run: {reason}"));
        return Err(error.retry_after(NO_ENVIRONMENT_DELAY));
    }
    let job_type = envelope.job_type.as_str();
    let is_code = envelope.job_type == JobType::ObjectExecute;
    let reason = known.unavailable().filter(|_| is_code).map(|why| format!(": {why}"));
    let reason = reason.unwrap_or_default();
    if !known.has_job_type(job_type) {
        let text = format!("no executor supports jobs of type {job_type}{reason}");
        let error = ContractError::invalid("UNSUPPORTED_JOB_TYPE", text).with("field", "job_type");
        return Err(ApiError::invalid_payload(error));
    }
    let can_run = |known: &Environment| known.job_types.iter().any(|known| known == job_type);
    let found = match &envelope.env_version {
        Some(version) => known.get(version).filter(can_run),
        None => known.newest(default_profile),
    };
    found.ok_or_else(|| {
        let asked = envelope.env_version.as_deref().unwrap_or(default_profile);
        let reason = if envelope.env_version.is_none() { reason.as_str() } else { "" };
        let text =
            format!("no environment {asked:?} that runs {job_type} is known to this venue{reason}");
        let available = list(versions.iter().map(|version| version.as_str().into()));
        let error = ContractError::invalid("UNKNOWN_ENV_VERSION", text);
        let error = error.with("field", "environment.env_version").with("available", available);
        ApiError::invalid_payload(error)
    })
}

/// The tags by which jobs are listed.
fn tags(envelope: &Envelope) -> Vec<String> {
    let workspace = envelope.text("workspace_id");
    let document = envelope.text("document_id");
    let mut tags =
        vec![workspace_tag(&workspace), document_tag(&document), pair_tag(&workspace, &document)];
    // More objects than a job may have tags are found through the others.
    tags.extend(envelope.object_ids.iter().take(8).map(|id| object_tag(&workspace, id)));
    tags
}

fn workspace_tag(id: &str) -> String {
    format!("workspace:{id}")
}

fn document_tag(id: &str) -> String {
    format!("document:{id}")
}

fn pair_tag(workspace: &str, document: &str) -> String {
    format!("workspace:{workspace}/document:{document}")
}

fn object_tag(workspace: &str, id: &str) -> String {
    format!("workspace:{workspace}/object:{id}")
}

fn created_members(
    view: &JobView,
    envelope: &Envelope,
    keyed: &Keyed,
) -> Vec<(&'static str, Value)> {
    let job = &view.job;
    vec![
        ("job_id", job.id().to_uuid().into()),
        ("job_type", envelope.job_type.as_str().into()),
        ("status", status_of(view).as_str().into()),
        ("execution_key", keyed.execution_key.as_str().into()),
        ("created_at", catena_job::contract::format_time(job.created()).into()),
    ]
}

/// Cancels the earlier jobs of the same objects that have not ended. Returns their IDs.
async fn supersede(
    engine: &Engine,
    caller: &Caller,
    envelope: &Envelope,
    new: JobId,
) -> ApiResult<Vec<String>> {
    let mut superseded = Vec::new();
    for id in envelope.object_ids.iter().take(8) {
        let tag = Some(object_tag(&envelope.text("workspace_id"), id));
        for status in [Status::Pending, Status::Started, Status::Paused] {
            let filter =
                JobFilter { tag: tag.clone(), status: Some(status), ..JobFilter::default() };
            let query = ListJobs {
                filter,
                order: ListOrder::Newest,
                after: None,
                offset: 0,
                limit: SUPERSEDED_MAX,
            };
            for job in engine.jobs(caller, &query).await?.jobs {
                if job.id == new || superseded.contains(&job.id) {
                    continue;
                }
                let reason = format!("superseded by {}", new.to_uuid());
                engine.cancel(caller, job.id, Some(reason)).await?;
                superseded.push(job.id);
            }
        }
    }
    Ok(superseded.into_iter().map(|job| job.to_uuid()).collect())
}

pub(super) fn status_of(view: &JobView) -> ContractStatus {
    let job = &view.job;
    State { status: job.status(), phase: view.phase, has_started: job.has_started() }.contract()
}

/// A member of a job, completely in memory.
pub(super) fn loaded(view: &JobView, name: &str) -> ApiResult<Option<Value>> {
    let Some(value) = view.job.field(name) else { return Ok(None) };
    let loaded = value.fully_loaded(view.cells());
    loaded.map(Some).map_err(|error| {
        tracing::error!(%error, job = %view.job.id(), "a member of a job cannot be read");
        ApiError::new(Code::StoreDamaged, "stored data is damaged")
    })
}

/// The result envelope of a job.
pub(super) fn result_of(view: &JobView) -> ApiResult<Value> {
    let result = JobResult {
        job: &view.job,
        status: status_of(view),
        input: loaded(view, "input")?.unwrap_or_default(),
        output: loaded(view, "output")?,
        execution: loaded(view, EXECUTION)?,
        progress: view.progress.clone(),
    };
    Ok(result.to_value())
}

pub(super) async fn read(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let wait = request.number("wait")?;
    let caller = request.caller.clone();
    let engine = request.state.engine.clone();
    drop(request);
    let view = match wait {
        None => engine.job(&caller, id).await?,
        Some(ms) => engine.wait(&caller, id, Duration::from_millis(ms)).await?,
    };
    let mut result = result_of(&view)?;
    if let (Some(hint), Some(map)) = (waiting_hint(&engine, &view), result.as_map()) {
        result = with_member(map, "hint", hint.into()).into();
    }
    respond(StatusCode::OK, &result)
}

fn respond(status: StatusCode, value: &Value) -> ApiResult<Response> {
    let mut text = String::new();
    json::write_value(value, &catena_value::NoCells, &mut text)?;
    Ok(response::json(status, text))
}

pub(super) async fn payload(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let view = request.state.engine.job(&request.caller, id).await?;
    let input = loaded(&view, "input")?.unwrap_or_default();
    let job = &view.job;
    let text = |name: &str| job.field(name).and_then(Value::as_str).unwrap_or_default();
    let members: Map = match input.as_map().filter(|_| is_contract_job(job)) {
        Some(map) => {
            let envelope = Envelope::read(map, &request.state.plan.accepting())
                .map_err(ApiError::invalid_payload)?;
            envelope.keyed(text(ENV_VERSION)).members
        }
        None => {
            [("job_type", Value::from(text("op"))), ("inputs", input.clone())].into_iter().collect()
        }
    };
    let key = job.field(EXECUTION_KEY).and_then(Value::as_str);
    let payload = envelope::payload(&members, job.id(), job.created(), text("caller"), key);
    respond(StatusCode::OK, &payload)
}

pub(super) async fn cancel(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let reason = Some("cancelled by its owner".to_owned());
    let view = request.state.engine.cancel(&request.caller, id, reason).await?;
    respond(StatusCode::OK, &result_of(&view)?)
}

pub(super) async fn list_jobs(request: ApiRequest) -> ApiResult<Response> {
    let workspace = request.text_parameter("workspace_id")?;
    let document = request.text_parameter("document_id")?;
    let tag = match (&workspace, &document) {
        (Some(workspace), Some(document)) => Some(pair_tag(workspace, document)),
        (Some(workspace), None) => Some(workspace_tag(workspace)),
        (None, Some(document)) => Some(document_tag(document)),
        (None, None) => None,
    };
    let status = request.parameter("status")?.as_deref().map(parse_status).transpose()?;
    let cursor = request.number("cursor")?;
    let limit = request.number("limit")?.map_or(Ok(DEFAULT_LIMIT), |limit| {
        let limit = usize::try_from(limit).ok();
        let error =
            || ApiError::bad_request(format!("`limit` must be from 1 to {CONTRACT_PAGE_MAX}"));
        limit.filter(|limit| (1..=CONTRACT_PAGE_MAX).contains(limit)).ok_or_else(error)
    })?;
    let filter = JobFilter { tag, status, ..JobFilter::default() };
    let query = ListJobs { filter, order: ListOrder::Newest, after: cursor, offset: 0, limit };
    let engine = &request.state.engine;
    let page = engine.jobs(&request.caller, &query).await?;
    let mut jobs = Vec::new();
    for listed in page.jobs {
        // A job that was deleted since is not listed.
        let Ok(view) = engine.job(&request.caller, listed.id).await else { continue };
        jobs.push(summary_of(&result_of(&view)?));
    }
    let mut members = vec![("jobs", list(jobs))];
    members.extend(page.next.map(|next| ("next", next.to_string().into())));
    respond(StatusCode::OK, &object(members))
}

/// What a list shows of a job.
fn summary_of(result: &Value) -> Value {
    const SHOWN: [&str; 12] = [
        "job_id",
        "job_type",
        "status",
        "created_at",
        "started_at",
        "finished_at",
        "workspace_id",
        "project_id",
        "document_id",
        "document_revision_id",
        "object_id",
        "execution_key",
    ];
    let map = result.as_map().cloned().unwrap_or_default();
    object(SHOWN.iter().filter_map(|name| Some((*name, map.field(name)?.clone()))))
}

fn parse_status(word: &str) -> ApiResult<Status> {
    Ok(match word {
        "PENDING" | "QUEUED" => Status::Pending,
        "RUNNING" => Status::Started,
        "SUCCEEDED" => Status::Complete,
        "FAILED" => Status::Failed,
        "CANCELLED" => Status::Cancelled,
        "TIMED_OUT" => Status::Timeout,
        _ => {
            let text = "`status` must be PENDING, QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED or TIMED_OUT";
            return Err(ApiError::bad_request(text));
        }
    })
}

//! The canvas door: the same jobs under pending, processing, paused, completed, failed and
//! cancelled, with progress, control, recovery and health.

use std::fmt::Write as _;

use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use catena_engine::error::ControlError;
use catena_engine::recovery::{RecoverySummary, SkippedJob};
use catena_engine::request::{Invoke, JobView};
use catena_engine::select::Selection;
use catena_engine::waiting::{Depths, Health};
use catena_job::vocabulary::{Action, CanvasStatus, State, WaitingFor};
use catena_job::{JobId, Status};
use catena_store::ListOrder;
use catena_store::embedded::ledger::CounterSnapshot;
use catena_value::{Map, Value, json};

use crate::canvas::job_json::{self, Extent, list, state_of};
use crate::grid::health::store_state;
use crate::grid::invoke::{MAKING_ERRORS, mark_replay};
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::{Call, read_json};
use crate::http::response;
use crate::routes::{Access, IDEMPOTENCY, JSON, LIMIT, OFFSET, ROUTE, Route, Taken, query, reply};

const ID: &str = "The job's ID: 32 hex digits, with or without `0x`, or a UUID.";
const JOB: &str = r##"{"$ref":"#/components/schemas/CanvasJob"}"##;
const STATUS: &str = r##"{"$ref":"#/components/schemas/CanvasStatus"}"##;

/// Types that are told by name in the health of the queue; the rest are counted together.
const TYPES_MAX: usize = 100;

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/canvas/v1/jobs",
        tag: "Canvas",
        summary: "List jobs in canvas words",
        about: "Newest first. Filters may be combined. Values of more than 16 kB are left out of \
                a line and named in `omitted`.",
        parameters: &[
            query("type", r#"{"type":"string"}"#, "Only those of this operation, as it was named."),
            query("status", STATUS, "Only those that stand here."),
            query(
                "createdById",
                r#"{"type":"string"}"#,
                "Only those of this caller, by DID; whose jobs you may not see has none.",
            ),
            LIMIT,
            OFFSET,
        ],
        replies: &[reply(200, "A page.", r##"{"$ref":"#/components/schemas/CanvasPage"}"##)],
        errors: &[Code::BadRequest],
        handler: |call| Box::pin(list_jobs(call)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/canvas/v1/jobs",
        tag: "Canvas",
        summary: "Make a job",
        about: "`type` is any reference to an operation, `data` its input.",
        parameters: &[IDEMPOTENCY],
        body: Some(Taken {
            about: "What to do. Members that are not listed are ignored.",
            media: JSON,
            schema: r#"{"type":"object","required":["type"],"properties":{
              "type":{"type":"string"},"data":{},"isDynamic":{"type":["boolean","null"]}}}"#,
            is_required: true,
        }),
        replies: &[reply(202, "The job, as it stands.", JOB)],
        errors: MAKING_ERRORS,
        handler: |call| Box::pin(create(call)),
        ..ROUTE
    },
    Route {
        path: "/canvas/v1/jobs/{id}",
        argument: ID,
        tag: "Canvas",
        summary: "Read a job in canvas words",
        replies: &[reply(200, "The job.", JOB)],
        errors: &[Code::InvalidJobId, Code::JobNotFound],
        handler: |call| Box::pin(read(call)),
        ..ROUTE
    },
    Route {
        method: Method::DELETE,
        path: "/canvas/v1/jobs/{id}",
        argument: ID,
        tag: "Canvas",
        summary: "Cancel a job",
        about: "The same as the action `cancel`; the job stays readable.",
        replies: &[reply(200, "The job, as it stands now.", JOB)],
        errors: &[Code::InvalidJobId, Code::JobNotFound, Code::JobConflict],
        handler: |call| Box::pin(cancel(call)),
        ..ROUTE
    },
    Route {
        path: "/canvas/v1/jobs/{id}/progress",
        argument: ID,
        tag: "Canvas",
        summary: "Read how far a job is",
        about: "To be told instead of asking, follow the job at /api/v1/jobs/{id}/sse?progress=1.",
        replies: &[reply(
            200,
            "Its progress.",
            r##"{"$ref":"#/components/schemas/CanvasProgress"}"##,
        )],
        errors: &[Code::InvalidJobId, Code::JobNotFound],
        handler: |call| Box::pin(progress(call)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/canvas/v1/jobs/{id}/control",
        argument: ID,
        tag: "Canvas",
        summary: "Pause, resume or cancel a job",
        about: "`pause` is for pending and processing jobs, `resume` for paused ones, `cancel` for \
                all three. A job that waits for input or authority goes on by a message.",
        body: Some(Taken {
            about: "What to do.",
            media: JSON,
            schema: r#"{"type":"object","required":["action"],"properties":{
              "action":{"enum":["pause","resume","cancel"]}}}"#,
            is_required: true,
        }),
        replies: &[reply(200, "The job, as it stands now.", JOB)],
        errors: &[
            Code::BadRequest,
            Code::UnknownAction,
            Code::InvalidJobId,
            Code::JobNotFound,
            Code::JobConflict,
        ],
        handler: |call| Box::pin(control(call)),
        ..ROUTE
    },
    Route {
        path: "/canvas/v1/recovery",
        tag: "Canvas",
        summary: "What recovery did when the venue started",
        about: "Jobs that were skipped are named to those who may see them.",
        replies: &[reply(
            200,
            "The summary so far; `status` says whether it is done.",
            r#"{"type":"object","required":["status","scanned","requeued","failed","skipped"]}"#,
        )],
        handler: |call| Box::pin(recovery(call)),
        ..ROUTE
    },
    Route {
        path: "/canvas/v1/health",
        tag: "Canvas",
        summary: "Queues, workers and the store",
        access: Access::Metrics,
        replies: &[reply(
            200,
            "How the venue does, as far as this process knows.",
            r#"{"type":"object","required":["status","queue","workers","store"]}"#,
        )],
        handler: |call| Box::pin(health(call)),
        ..ROUTE
    },
];

async fn list_jobs(call: Call) -> ApiResult<Response> {
    let (offset, limit) = call.page()?;
    let text = |name| Ok::<_, ApiError>(call.parameter(name)?.map(|text| text.into_owned()));
    let selection = Selection {
        owner: text("createdById")?,
        op: text("type")?,
        status: call.parameter("status")?.map(|word| status(&word)).transpose()?,
        order: ListOrder::Newest,
        offset,
        limit,
    };
    let engine = &call.door.engine;
    let page = engine.select(&call.caller, &selection).await?;
    let mut text = String::from("{\"jobs\":[");
    let mut is_first = true;
    for job in &page.jobs {
        // One that was deleted since is no longer there.
        let Ok(outline) = engine.summary(&call.caller, job.id).await else { continue };
        if !std::mem::take(&mut is_first) {
            text.push(',');
        }
        job_json::write_job(&outline, Extent::Line, &mut text)?;
    }
    let total = page.total;
    let _ = write!(text, "],\"total\":{total},\"limit\":{limit},\"offset\":{offset}}}");
    Ok(response::json(StatusCode::OK, text))
}

fn status(word: &str) -> ApiResult<CanvasStatus> {
    CanvasStatus::parse(word).ok_or_else(|| {
        let words = CanvasStatus::ALL.map(CanvasStatus::as_str).join(", ");
        ApiError::bad_request(format!("`status` must be one of {words}"))
    })
}

async fn create(mut call: Call) -> ApiResult<Response> {
    let body = call.read_body().await?;
    let idempotency = call.idempotency("canvas", &[], &body)?;
    let (operation, input) = wanted(&read_json(&body)?)?;
    let request = Invoke { idempotency, ..Invoke::new(call.caller.clone(), operation, input) };
    let engine = &call.door.engine;
    let invoked = engine.invoke(request).await?;
    let location = format!("/canvas/v1/jobs/{}", invoked.view.job.id().to_hex());
    let mut response = shown(&call, invoked.view, StatusCode::ACCEPTED).await?;
    response::set(&mut response, header::LOCATION, location);
    mark_replay(&mut response, invoked.is_replay);
    Ok(response)
}

/// The operation and its input.
fn wanted(body: &Value) -> ApiResult<(String, Value)> {
    let bad = |text: &str| ApiError::bad_request(text);
    let body = body.as_map().ok_or_else(|| bad("the body must be an object"))?;
    let operation = body.field("type").ok_or_else(|| bad("`type` is missing"))?;
    let operation = operation.as_str().ok_or_else(|| bad("`type` must be a string"))?;
    match body.field("isDynamic") {
        None | Some(Value::Nil | Value::Bool(_)) => {}
        Some(_) => return Err(bad("`isDynamic` must be true or false")),
    }
    Ok((operation.to_owned(), body.field("data").cloned().unwrap_or_default()))
}

async fn shown(call: &Call, view: JobView, status: StatusCode) -> ApiResult<Response> {
    let outline = call.door.engine.summarize(view).await?;
    let mut text = String::new();
    job_json::write_job(&outline, Extent::Whole, &mut text)?;
    Ok(response::json(status, text))
}

async fn read(call: Call) -> ApiResult<Response> {
    let outline = call.door.engine.summary(&call.caller, call.job_id()?).await?;
    let mut text = String::new();
    job_json::write_job(&outline, Extent::Whole, &mut text)?;
    Ok(response::json(StatusCode::OK, text))
}

async fn progress(call: Call) -> ApiResult<Response> {
    let outline = call.door.engine.summary(&call.caller, call.job_id()?).await?;
    Ok(object(job_json::progress(&outline)))
}

async fn control(mut call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    let action = action(&read_json(&call.read_body().await?)?)?;
    act(&call, id, action).await
}

async fn cancel(call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    act(&call, id, Action::Cancel).await
}

fn action(body: &Value) -> ApiResult<Action> {
    let body = body.as_map().ok_or_else(|| ApiError::bad_request("the body must be an object"))?;
    let word = body.field("action").ok_or_else(|| ApiError::bad_request("`action` is missing"))?;
    let word = word.as_str().ok_or_else(|| ApiError::bad_request("`action` must be a string"))?;
    Action::parse(word).ok_or_else(|| {
        ApiError::new(Code::UnknownAction, format!("there is no action `{word}`"))
            .member("actions", words(&Action::ALL))
    })
}

/// Does something to a job, if it stands where that may be done.
async fn act(call: &Call, id: JobId, action: Action) -> ApiResult<Response> {
    let (engine, caller) = (&call.door.engine, &call.caller);
    let before = engine.summary(caller, id).await?.view;
    let state = state_of(&before);
    if !state.canvas_actions().contains(&action) {
        return Err(not_allowed(id, action, state));
    }
    let may_pause = |from| matches!(from, Status::Pending | Status::Started);
    let done = match action {
        Action::Pause => engine.pause_if(caller, id, may_pause).await,
        Action::Resume => engine.resume(caller, id).await,
        Action::Cancel => engine.cancel(caller, id, None).await,
    };
    match done {
        // It ended by itself just before.
        Ok(view) if action == Action::Cancel && view.status() != Status::Cancelled => {
            Err(not_allowed(id, action, state_of(&view)))
        }
        Ok(view) => shown(call, view, StatusCode::OK).await,
        Err(ControlError::Conflict { status, .. }) => {
            let state = State { status, ..state };
            Err(not_allowed(id, action, state))
        }
        Err(error) => Err(error.into()),
    }
}

/// The answer to an action that is not allowed where the job stands.
fn not_allowed(id: JobId, action: Action, state: State) -> ApiError {
    let (status, allowed) = (state.canvas().as_str(), state.canvas_actions());
    let names = allowed.iter().map(|action| action.as_str()).collect::<Vec<_>>().join(", ");
    let names = if allowed.is_empty() { "nothing".to_owned() } else { names };
    let action = action.as_str();
    let error = format!("job {id} is {status}; {action} is not allowed, allowed now: {names}");
    let hint = match state.waiting_for() {
        Some(WaitingFor::Input) => {
            "The job waits for input: send it a message with POST /api/v1/jobs/{id}, or cancel it."
                .to_owned()
        }
        Some(WaitingFor::Auth) => "The job waits for authority: send it a message of type \
             auth/complete with POST /api/v1/jobs/{id}, or cancel it."
            .to_owned(),
        None if allowed.is_empty() => {
            "The job has ended. Make a new one with POST /canvas/v1/jobs.".to_owned()
        }
        None => format!("Allowed now: {names}."),
    };
    let mut error = ApiError::new(Code::JobConflict, error)
        .member("id", id)
        .member("status", status)
        .member("action", action)
        .member("allowed", words(allowed))
        .hint(hint);
    if let Some(waiting) = state.waiting_for() {
        error = error.member("waitingFor", waiting.as_str());
    }
    error
}

fn words(actions: &[Action]) -> Value {
    list(actions.iter().map(|action| Value::from(action.as_str())))
}

async fn recovery(call: Call) -> ApiResult<Response> {
    let summary = call.door.engine.recovery();
    let is_named = |skipped: &&SkippedJob| call.caller.may_touch(&skipped.owner);
    let named = list(summary.skipped_jobs.iter().filter(is_named).map(skipped));
    let mut members = summary_members(&summary);
    members.push(("skippedJobs", named));
    Ok(object(members.into_iter().collect::<Map>().into()))
}

/// What recovery did, as members of an answer.
pub(crate) fn summary_members(summary: &RecoverySummary) -> Vec<(&'static str, Value)> {
    let took = summary.took.map(|took| i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    let ended = took.map(|took| summary.began.saturating_add(took));
    let status = if summary.is_done() { "done" } else { "running" };
    vec![
        ("status", status.into()),
        ("found", number(summary.found)),
        ("scanned", number(summary.scanned)),
        ("requeued", number(summary.requeued)),
        ("failed", number(summary.failed)),
        ("skipped", number(summary.skipped)),
        ("left", number(summary.left)),
        ("durationMs", took.map_or(Value::Nil, Value::from)),
        ("startedAt", summary.began.into()),
        ("completedAt", ended.map_or(Value::Nil, Value::from)),
    ]
}

fn skipped(skipped: &SkippedJob) -> Value {
    let members = [
        ("id", Value::from(skipped.job)),
        ("type", skipped.op.as_str().into()),
        ("reason", skipped.reason.as_str().into()),
    ];
    members.into_iter().collect::<Map>().into()
}

async fn health(call: Call) -> ApiResult<Response> {
    let engine = &call.door.engine;
    let store = store_state(&call.door.store.health());
    let is_good = engine.is_ready() && store == "ok";
    let health = engine.health();
    let members = [
        ("status", Value::from(if is_good { "ok" } else { "degraded" })),
        ("queue", queue(&health.queue)),
        ("oldestWaiting", oldest(&health.queue, engine.env().now())),
        ("workers", list([worker(&health)])),
        ("executors", list([])),
        ("store", syncs(store, &call.door.store.counters())),
    ];
    Ok(object(members.into_iter().collect::<Map>().into()))
}

fn queue(depths: &Depths) -> Value {
    let by_priority = depths
        .by_priority
        .iter()
        .map(|(priority, jobs)| pair("priority", i64::from(*priority).into(), *jobs));
    let (named, rest) = depths.by_op.split_at(depths.by_op.len().min(TYPES_MAX));
    let by_type = named.iter().map(|(op, jobs)| pair("type", op.as_str().into(), *jobs));
    let members = [
        ("total", number(depths.total)),
        ("byPriority", list(by_priority)),
        ("byType", list(by_type)),
        ("otherTypes", number(rest.iter().map(|(_, jobs)| jobs).sum())),
    ];
    members.into_iter().collect::<Map>().into()
}

fn pair(name: &'static str, value: Value, jobs: u64) -> Value {
    [(name, value), ("jobs", number(jobs))].into_iter().collect::<Map>().into()
}

fn oldest(depths: &Depths, now: i64) -> Value {
    let Some(oldest) = &depths.oldest else { return Value::Nil };
    let members = [
        ("id", Value::from(oldest.job)),
        ("type", oldest.op.as_str().into()),
        ("since", oldest.since.into()),
        ("waitingMs", now.saturating_sub(oldest.since).max(0).into()),
    ];
    members.into_iter().collect::<Map>().into()
}

fn worker(health: &Health) -> Value {
    let members = [
        ("id", Value::from(health.worker.as_str())),
        ("running", number(health.running)),
        ("slots", number(health.slots)),
        ("lastHeartbeat", health.heartbeat.into()),
    ];
    members.into_iter().collect::<Map>().into()
}

fn syncs(status: &str, counters: &CounterSnapshot) -> Value {
    let milliseconds = |nanos: u64| (nanos as f64 / 1e3).round() / 1e3;
    let mean = counters.sync_nanos.checked_div(counters.syncs).unwrap_or(0);
    let members = [
        ("status", Value::from(status)),
        ("syncs", number(counters.syncs)),
        ("syncMsMean", milliseconds(mean).into()),
        ("syncMsMax", milliseconds(counters.sync_nanos_max).into()),
    ];
    members.into_iter().collect::<Map>().into()
}

fn number(count: u64) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}

fn object(value: Value) -> Response {
    response::json(StatusCode::OK, json::to_string(&value).unwrap_or_default())
}

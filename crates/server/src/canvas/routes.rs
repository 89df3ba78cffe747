//! The routes of the canvas API.

use std::fmt::Write as _;

use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use catena_engine::error::ControlError;
use catena_engine::requests::{Invoke, JobView};
use catena_engine::views::CanvasQuery;
use catena_job::vocabulary::{Action, CanvasStatus, State, WaitingFor};
use catena_job::{JobId, Status};
use catena_store::ListOrder;
use catena_value::Value;

use crate::canvas::health::{read_health, read_recovery};
use crate::canvas::job_json::{self, Extent, state_of};
use crate::grid::invoke::CREATE_JOB_ERRORS;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{
    Access, IDEMPOTENCY_KEY, JSON, LIMIT, OFFSET, ROUTE, RequestBody, Route, query, reply,
};
use crate::values::list;

const ID: &str = "The job's ID: 32 hex digits, with or without `0x`, or a UUID.";
const JOB: &str = r##"{"$ref":"#/components/schemas/CanvasJob"}"##;
const STATUS: &str = r##"{"$ref":"#/components/schemas/CanvasStatus"}"##;

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/canvas/v1/jobs",
        tag: "Canvas",
        summary: "List jobs",
        about: "Newest first. Filters can be combined. Values of more than 16 kB are omitted from \
                list entries and named in `omitted`.",
        parameters: &[
            query(
                "type",
                r#"{"type":"string"}"#,
                "Only jobs of this operation, as its caller named it.",
            ),
            query("status", STATUS, "Only jobs with this status."),
            query(
                "createdById",
                r#"{"type":"string"}"#,
                "Only jobs of the caller with this DID. The list is empty if you may not see them.",
            ),
            LIMIT,
            OFFSET,
        ],
        replies: &[reply(
            200,
            "A page of jobs.",
            r##"{"$ref":"#/components/schemas/CanvasPage"}"##,
        )],
        errors: &[Code::BadRequest],
        handler: |request| Box::pin(list_jobs(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/canvas/v1/jobs",
        tag: "Canvas",
        summary: "Create a job",
        about: "`type` is any reference to an operation, `data` its input.",
        parameters: &[IDEMPOTENCY_KEY],
        body: Some(RequestBody {
            about: "The operation and its input. Unknown members are ignored.",
            media: JSON,
            schema: r#"{"type":"object","required":["type"],"properties":{
              "type":{"type":"string"},"data":{},"isDynamic":{"type":["boolean","null"]}}}"#,
            is_required: true,
        }),
        replies: &[reply(202, "The job in its current status.", JOB)],
        errors: CREATE_JOB_ERRORS,
        handler: |request| Box::pin(create(request)),
        ..ROUTE
    },
    Route {
        path: "/canvas/v1/jobs/{id}",
        path_parameter: ID,
        tag: "Canvas",
        summary: "Read a job",
        replies: &[reply(200, "The job.", JOB)],
        errors: &[Code::InvalidJobId, Code::JobNotFound],
        handler: |request| Box::pin(read(request)),
        ..ROUTE
    },
    Route {
        method: Method::DELETE,
        path: "/canvas/v1/jobs/{id}",
        path_parameter: ID,
        tag: "Canvas",
        summary: "Cancel a job",
        about: "The same as the action `cancel`. The job can still be read.",
        replies: &[reply(200, "The job in its new status.", JOB)],
        errors: &[Code::InvalidJobId, Code::JobNotFound, Code::JobConflict],
        handler: |request| Box::pin(cancel(request)),
        ..ROUTE
    },
    Route {
        path: "/canvas/v1/jobs/{id}/progress",
        path_parameter: ID,
        tag: "Canvas",
        summary: "Read the progress of a job",
        about: "To receive progress as events, follow the job at \
                `/api/v1/jobs/{id}/sse?progress=1`.",
        replies: &[reply(
            200,
            "The progress.",
            r##"{"$ref":"#/components/schemas/CanvasProgress"}"##,
        )],
        errors: &[Code::InvalidJobId, Code::JobNotFound],
        handler: |request| Box::pin(progress(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/canvas/v1/jobs/{id}/control",
        path_parameter: ID,
        tag: "Canvas",
        summary: "Pause, resume or cancel a job",
        about: "`pause` applies to pending and processing jobs, `resume` to paused jobs, and \
                `cancel` to all three. A job that waits for input or authorisation continues when \
                it receives a message.",
        body: Some(RequestBody {
            about: "The action.",
            media: JSON,
            schema: r#"{"type":"object","required":["action"],"properties":{
              "action":{"enum":["pause","resume","cancel"]}}}"#,
            is_required: true,
        }),
        replies: &[reply(200, "The job in its new status.", JOB)],
        errors: &[
            Code::BadRequest,
            Code::UnknownAction,
            Code::InvalidJobId,
            Code::JobNotFound,
            Code::JobConflict,
        ],
        handler: |request| Box::pin(control(request)),
        ..ROUTE
    },
    Route {
        path: "/canvas/v1/recovery",
        tag: "Canvas",
        summary: "Read what recovery did at the start of the venue",
        about: "Skipped jobs are listed only for callers who may see them.",
        replies: &[reply(
            200,
            "The summary so far; `status` says whether recovery is done.",
            r#"{"type":"object","required":["status","scanned","requeued","failed","skipped"]}"#,
        )],
        handler: |request| Box::pin(read_recovery(request)),
        ..ROUTE
    },
    Route {
        path: "/canvas/v1/health",
        tag: "Canvas",
        summary: "Read the health of queues, workers and the store",
        access: Access::Metrics,
        replies: &[reply(
            200,
            "The health of the venue, as far as this process knows.",
            r#"{"type":"object","required":["status","queue","workers","store"]}"#,
        )],
        handler: |request| Box::pin(read_health(request)),
        ..ROUTE
    },
];

async fn list_jobs(request: ApiRequest) -> ApiResult<Response> {
    let (offset, limit) = request.page()?;
    let selection = CanvasQuery {
        owner: request.text_parameter("createdById")?,
        op: request.text_parameter("type")?,
        status: request.parameter("status")?.map(|word| parse_status(&word)).transpose()?,
        order: ListOrder::Newest,
        offset,
        limit,
    };
    let engine = &request.state.engine;
    let page = engine.canvas_jobs(&request.caller, &selection).await?;
    let mut text = String::from("{\"jobs\":[");
    let mut is_first = true;
    for job in &page.jobs {
        // A job that was deleted in the meantime is left out.
        let Ok(summary) = engine.summary(&request.caller, job.id).await else { continue };
        if !std::mem::take(&mut is_first) {
            text.push(',');
        }
        job_json::write_job(&summary, Extent::Listed, &mut text)?;
    }
    let total = page.total;
    let _ = write!(text, "],\"total\":{total},\"limit\":{limit},\"offset\":{offset}}}");
    Ok(response::json(StatusCode::OK, text))
}

fn parse_status(word: &str) -> ApiResult<CanvasStatus> {
    CanvasStatus::parse(word).ok_or_else(|| {
        let words = CanvasStatus::ALL.map(CanvasStatus::as_str).join(", ");
        ApiError::bad_request(format!("`status` must be one of {words}"))
    })
}

async fn create(mut request: ApiRequest) -> ApiResult<Response> {
    let body = request.read_body().await?;
    let idempotency = request.idempotency_key("canvas", &[], &body)?;
    let (operation, input) = parse_new_job(&json::parse(&body)?)?;
    let invoke = Invoke { idempotency, ..Invoke::new(request.caller.clone(), operation, input) };
    let invoked = request.state.engine.invoke(invoke).await?;
    let location = format!("/canvas/v1/jobs/{}", invoked.view.job.id().to_hex());
    let mut response = job_response(&request, invoked.view, StatusCode::ACCEPTED).await?;
    response::set_header(&mut response, header::LOCATION, location);
    response::mark_replay(&mut response, invoked.is_replay);
    Ok(response)
}

/// The operation and the input that a body names.
fn parse_new_job(body: &Value) -> ApiResult<(String, Value)> {
    let error = |text: &str| ApiError::bad_request(text);
    let body = body.as_map().ok_or_else(|| error("the body must be an object"))?;
    let operation = body.field("type").ok_or_else(|| error("`type` is missing"))?;
    let operation = operation.as_str().ok_or_else(|| error("`type` must be a string"))?;
    match body.field("isDynamic") {
        None | Some(Value::Nil | Value::Bool(_)) => {}
        Some(_) => return Err(error("`isDynamic` must be true or false")),
    }
    Ok((operation.to_owned(), body.field("data").cloned().unwrap_or_default()))
}

async fn job_response(
    request: &ApiRequest,
    view: JobView,
    status: StatusCode,
) -> ApiResult<Response> {
    let summary = request.state.engine.summarize(view).await?;
    let mut text = String::new();
    job_json::write_job(&summary, Extent::Full, &mut text)?;
    Ok(response::json(status, text))
}

async fn read(request: ApiRequest) -> ApiResult<Response> {
    let summary = request.state.engine.summary(&request.caller, request.job_id()?).await?;
    let mut text = String::new();
    job_json::write_job(&summary, Extent::Full, &mut text)?;
    Ok(response::json(StatusCode::OK, text))
}

async fn progress(request: ApiRequest) -> ApiResult<Response> {
    let summary = request.state.engine.summary(&request.caller, request.job_id()?).await?;
    Ok(response::value(StatusCode::OK, &job_json::progress_value(&summary)))
}

async fn control(mut request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let action = parse_action(&json::parse(&request.read_body().await?)?)?;
    apply(&request, id, action).await
}

async fn cancel(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    apply(&request, id, Action::Cancel).await
}

fn parse_action(body: &Value) -> ApiResult<Action> {
    let body = body.as_map().ok_or_else(|| ApiError::bad_request("the body must be an object"))?;
    let word = body.field("action").ok_or_else(|| ApiError::bad_request("`action` is missing"))?;
    let word = word.as_str().ok_or_else(|| ApiError::bad_request("`action` must be a string"))?;
    Action::parse(word).ok_or_else(|| {
        ApiError::new(Code::UnknownAction, format!("there is no action `{word}`"))
            .member("actions", action_names(&Action::ALL))
    })
}

/// Applies an action to a job, if the job's status allows it.
async fn apply(request: &ApiRequest, id: JobId, action: Action) -> ApiResult<Response> {
    let engine = &request.state.engine;
    let caller = &request.caller;
    let before = engine.summary(caller, id).await?.view;
    let state = state_of(&before);
    if !state.canvas_actions().contains(&action) {
        return Err(not_allowed(id, action, state));
    }
    let may_pause = |from| matches!(from, Status::Pending | Status::Started);
    let result = match action {
        Action::Pause => engine.pause_if(caller, id, may_pause).await,
        Action::Resume => engine.resume(caller, id).await,
        Action::Cancel => engine.cancel(caller, id, None).await,
    };
    match result {
        // The job ended just before it could be cancelled.
        Ok(view) if action == Action::Cancel && view.status() != Status::Cancelled => {
            Err(not_allowed(id, action, state_of(&view)))
        }
        Ok(view) => job_response(request, view, StatusCode::OK).await,
        Err(ControlError::Conflict { status, .. }) => {
            let state = State { status, ..state };
            Err(not_allowed(id, action, state))
        }
        Err(error) => Err(error.into()),
    }
}

/// The error for an action that the job's status does not allow.
fn not_allowed(id: JobId, action: Action, state: State) -> ApiError {
    let status = state.canvas().as_str();
    let allowed = state.canvas_actions();
    let action = action.as_str();
    let names = if allowed.is_empty() {
        "none".to_owned()
    } else {
        allowed.iter().map(|action| action.as_str()).collect::<Vec<_>>().join(", ")
    };
    let error = format!("job {id} is {status}, which does not allow {action}; allowed: {names}");
    let hint = match state.waiting_for() {
        Some(WaitingFor::Input) => "The job is waiting for input: send it a message with \
             POST /api/v1/jobs/{id}, or cancel it."
            .to_owned(),
        Some(WaitingFor::Auth) => {
            "The job is waiting for authorisation: send it a message of type \
             auth/complete with POST /api/v1/jobs/{id}, or cancel it."
                .to_owned()
        }
        None if allowed.is_empty() => {
            "The job has ended. Create a new one with POST /canvas/v1/jobs.".to_owned()
        }
        None => format!("Use one of the allowed actions: {names}."),
    };
    let mut error = ApiError::new(Code::JobConflict, error)
        .member("id", id)
        .member("status", status)
        .member("action", action)
        .member("allowed", action_names(allowed))
        .hint(hint);
    if let Some(waiting) = state.waiting_for() {
        error = error.member("waitingFor", waiting.as_str());
    }
    error
}

fn action_names(actions: &[Action]) -> Value {
    list(actions.iter().map(|action| Value::from(action.as_str())))
}

//! Invoking operations: as a job, or for the bare output.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use catena_engine::Role;
use catena_engine::limits::{TIMEOUT_MAX, WAIT_MAX};
use catena_engine::request::{IdempotencyKey, Invoke, Recording};
use catena_job::{JobId, Status};
use catena_value::{CellSource, Map, NoCells, Value};

use crate::grid::job_json;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::{Call, read_json, whole_number};
use crate::http::response;
use crate::limits::DELEGATIONS_MAX;
use crate::routes::{
    ANY, DEPTH, IDEMPOTENCY, JOB, JSON, PREFER, ROUTE, Route, Taken, query, reply,
};

const INVOCATION: &str = r##"{"$ref":"#/components/schemas/Invocation"}"##;

/// What can be wrong with a request that makes a job.
pub(crate) const MAKING_ERRORS: &[Code] = &[
    Code::BadRequest,
    Code::InvalidJson,
    Code::OperationNotFound,
    Code::Forbidden,
    Code::KeyInFlight,
    Code::BodyTooLarge,
    Code::KeyReused,
    Code::RateLimited,
    Code::TooManyJobs,
    Code::TooManyKeys,
];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/api/v1/invoke",
        tag: "Jobs",
        summary: "Make a job of an operation",
        about: "The job is durable before the answer. Instant operations are COMPLETE in it; \
                `wait` waits longer, and a wait that ends changes nothing about the job.",
        parameters: &[
            query(
                "wait",
                r#"{"anyOf":[{"type":"boolean"},{"type":"integer","minimum":0}]}"#,
                "As `wait` in the body, which wins.",
            ),
            PREFER,
            IDEMPOTENCY,
            DEPTH,
        ],
        body: Some(Taken {
            about: "What to invoke. Members that are not listed are ignored.",
            media: JSON,
            schema: INVOCATION,
            is_required: true,
        }),
        replies: &[
            reply(200, "`wait` was asked for and the job is COMPLETE.", JOB),
            reply(201, "The job, as it stands.", JOB),
        ],
        errors: MAKING_ERRORS,
        handler: |call| Box::pin(invoke(call)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/api/v1/run",
        tag: "Jobs",
        summary: "Carry out an operation and give its bare output",
        about: "Of an operation marked `readOnly` no job is made. A job that has not ended after \
                120 s goes on; the answer is then 504 and names it.",
        parameters: &[IDEMPOTENCY],
        body: Some(Taken {
            about: "What to run.",
            media: JSON,
            schema: INVOCATION,
            is_required: true,
        }),
        replies: &[reply(200, "The output: any JSON.", ANY)],
        errors: &[
            Code::JobRejected,
            Code::OperationNotFound,
            Code::Forbidden,
            Code::KeyInFlight,
            Code::BodyTooLarge,
            Code::JobFailed,
            Code::RateLimited,
            Code::JobRunning,
        ],
        handler: |call| Box::pin(run(call)),
        ..ROUTE
    },
];

pub(crate) const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

async fn invoke(mut call: Call) -> ApiResult<Response> {
    let body = call.read_body().await?;
    let key = call.idempotency("invoke", &[], &body)?;
    let (request, applied) = request(&call, &read_json(&body)?, key)?;
    let has_waited = request.wait.is_some();
    let door = call.into_door();
    drop(body);
    let invoked = door.engine.invoke(request).await?;
    let is_done = has_waited && invoked.view.status() == Status::Complete;
    let status = if is_done { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = response::json(status, job_json::of_view(&invoked.view)?);
    response::set(&mut response, header::LOCATION, location(invoked.view.job.id()));
    if let Some(applied) = applied {
        response::set(&mut response, PREFERENCE_APPLIED, applied);
    }
    mark_replay(&mut response, invoked.is_replay);
    Ok(response)
}

async fn run(mut call: Call) -> ApiResult<Response> {
    let body = call.read_body().await?;
    let key = call.idempotency("run", &[], &body)?;
    let (request, _) = request(&call, &read_json(&body)?, key)?;
    let door = call.into_door();
    drop(body);
    let ran = door.engine.run(request).await?;
    let cells = ran.cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells);
    let mut text = String::new();
    job_json::write_value(&ran.output, cells, &mut text)?;
    let mut response = response::json(StatusCode::OK, text);
    if let Some(job) = ran.job {
        response::set(&mut response, header::LOCATION, location(job));
    }
    mark_replay(&mut response, ran.is_replay);
    Ok(response)
}

/// Where a job is read.
pub(crate) fn location(job: JobId) -> String {
    const FOLDER: &str = "/api/v1/jobs/";
    let text = job.text();
    let hex = &text.as_str()[2..];
    // Of the right size at once: the header takes it over as it is.
    let mut location = String::with_capacity(FOLDER.len() + hex.len());
    location.push_str(FOLDER);
    location.push_str(hex);
    location
}

/// Says that an earlier request was answered again.
pub(crate) fn mark_replay(response: &mut Response, is_replay: bool) {
    if is_replay {
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
}

/// What was asked, and which preference was applied.
fn request(
    call: &Call,
    body: &Value,
    idempotency: Option<IdempotencyKey>,
) -> ApiResult<(Invoke, Option<String>)> {
    let body = body.as_map().ok_or_else(|| ApiError::bad_request("the body must be an object"))?;
    let operation = match body.field("operation") {
        Some(operation) => operation.as_str(),
        None => return Err(ApiError::bad_request("`operation` is missing")),
    };
    let operation =
        operation.ok_or_else(|| ApiError::bad_request("`operation` must be a string"))?;
    let mut caller = call.caller.clone();
    caller.delegations = texts(body, "ucans", DELEGATIONS_MAX)?;
    // Who shows delegations asks for what they allow, and not for what an operator may.
    if !caller.delegations.is_empty() && caller.role == Role::Admin {
        caller.role = Role::Known;
    }
    let asked = match body.field("wait").map(wait_of) {
        Some(wait) => Some(wait?),
        None => call.parameter("wait")?.map(|text| wait_of_text(&text)).transpose()?,
    };
    let (wait, applied) = match (asked, call.preferred_wait()) {
        (Some(wait), _) => (wait, None),
        (None, Some((wait, applied))) => (Some(wait), Some(applied)),
        (None, None) => (None, None),
    };
    let request = Invoke {
        caller,
        operation: operation.to_owned(),
        input: body.field("input").cloned().unwrap_or(Value::Nil),
        wait,
        timeout: body.field("timeoutMs").map(timeout_of).transpose()?.flatten(),
        tags: texts(body, "tags", usize::MAX)?,
        recording: recording(body)?,
        idempotency,
        depth: call.depth()?,
    };
    Ok((request, applied))
}

/// `true`, `false`, or a time in milliseconds that is cut at the longest one.
fn wait_of(value: &Value) -> ApiResult<Option<Duration>> {
    match value {
        Value::Nil | Value::Bool(false) => Ok(None),
        Value::Bool(true) => Ok(Some(WAIT_MAX)),
        other => match other.as_i64().and_then(|ms| u64::try_from(ms).ok()) {
            Some(ms) => Ok(Some(Duration::from_millis(ms).min(WAIT_MAX))),
            None => Err(bad_wait()),
        },
    }
}

fn wait_of_text(text: &str) -> ApiResult<Option<Duration>> {
    match text {
        "true" | "" => Ok(Some(WAIT_MAX)),
        "false" => Ok(None),
        digits => match whole_number(digits) {
            Some(ms) => Ok(Some(Duration::from_millis(ms).min(WAIT_MAX))),
            None => Err(bad_wait()),
        },
    }
}

fn bad_wait() -> ApiError {
    ApiError::bad_request("`wait` must be true, false, or a number of milliseconds")
}

fn timeout_of(value: &Value) -> ApiResult<Option<Duration>> {
    if value.is_nil() {
        return Ok(None);
    }
    let time = value.as_i64().and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    match time.filter(|time| !time.is_zero() && *time <= TIMEOUT_MAX) {
        Some(time) => Ok(Some(time)),
        None => {
            let most = TIMEOUT_MAX.as_millis();
            Err(ApiError::bad_request(format!("`timeoutMs` must be 1 to {most} milliseconds")))
        }
    }
}

fn recording(body: &Map) -> ApiResult<Recording> {
    match body.field("private") {
        None | Some(Value::Nil | Value::Bool(false)) => Ok(Recording::Durable),
        Some(Value::Bool(true)) => Ok(Recording::Private),
        Some(_) => Err(ApiError::bad_request("`private` must be true or false")),
    }
}

/// A member that is an array of strings, at most so many.
fn texts(body: &Map, name: &str, most: usize) -> ApiResult<Vec<String>> {
    let bad = || ApiError::bad_request(format!("`{name}` must be an array of strings"));
    let Some(value) = body.field(name).filter(|value| !value.is_nil()) else {
        return Ok(Vec::new());
    };
    let items = value.as_vector().ok_or_else(bad)?;
    if items.len() > most as u64 {
        return Err(ApiError::bad_request(format!("`{name}` has more than {most} entries")));
    }
    let text = |item: Result<Value, _>| Some(item.ok()?.to_text()?.into_owned());
    items.iter(&NoCells).map(|item| text(item).ok_or_else(bad)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_value::json;

    fn ms(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    #[test]
    fn a_wait_is_a_boolean_or_milliseconds_and_nothing_else() {
        let of = |text: &str| wait_of(&json::read(text.as_bytes()).unwrap());
        for (text, expected) in [
            ("true", Some(WAIT_MAX)),
            ("false", None),
            ("null", None),
            ("0", ms(0)),
            ("250", ms(250)),
            ("900000", Some(WAIT_MAX)),
        ] {
            assert_eq!(of(text).unwrap(), expected, "{text}");
        }
        for bad in ["-1", "1.5", "\"true\"", "[]", "123456789012345678901234567890"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert_eq!(wait_of_text("true").unwrap(), Some(WAIT_MAX));
        assert_eq!(wait_of_text("500").unwrap(), ms(500));
        assert!(wait_of_text("soon").is_err());
    }

    #[test]
    fn the_other_members_are_checked_too() {
        let of = |text: &str| match json::read(text.as_bytes()).unwrap() {
            Value::Map(map) => map,
            other => panic!("{other:?}"),
        };
        assert_eq!(texts(&of(r#"{"tags":["a","b"]}"#), "tags", 2).unwrap(), ["a", "b"]);
        assert!(texts(&of("{}"), "tags", 2).unwrap().is_empty());
        for bad in [r#"{"tags":"a"}"#, r#"{"tags":[1]}"#, r#"{"tags":["a","b","c"]}"#] {
            assert!(texts(&of(bad), "tags", 2).is_err(), "{bad}");
        }
        assert_eq!(recording(&of(r#"{"private":true}"#)).unwrap(), Recording::Private);
        assert!(recording(&of(r#"{"private":"yes"}"#)).is_err());
        assert_eq!(timeout_of(&5.into()).unwrap(), ms(5));
        assert!(timeout_of(&0.into()).is_err());
        assert!(timeout_of(&i64::MAX.into()).is_err());
    }
}

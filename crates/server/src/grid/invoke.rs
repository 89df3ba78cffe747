//! Invoking operations: as a job, or for the output alone.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use catena_engine::limits::{TIMEOUT_MAX, WAIT_MAX};
use catena_engine::requests::{IdempotencyKey, Invoke, Recording};
use catena_job::Status;
use catena_job::members::{Members, UnknownMember};
use catena_value::{CellSource, Map, NoCells, Value};

use crate::grid::job_json;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::{self, write_value};
use crate::http::request::{ApiRequest, ContentMemory, parse_whole_number};
use crate::http::response::{self, PREFERENCE_APPLIED};
use crate::http::route::{
    ANY, Access, DEPTH, IDEMPOTENCY_KEY, JOB, JSON, PREFER, ROUTE, RequestBody, Route, query, reply,
};
use crate::limits::DELEGATIONS_MAX;
use crate::values::list;

const INVOCATION: &str = r##"{"$ref":"#/components/schemas/Invocation"}"##;

/// The error codes of requests that create a job.
pub(crate) const CREATE_JOB_ERRORS: &[Code] = &[
    Code::BadRequest,
    Code::InvalidJson,
    Code::UnknownMember,
    Code::OperationNotFound,
    Code::Forbidden,
    Code::KeyInFlight,
    Code::BodyTooLarge,
    Code::KeyReused,
    Code::RateLimited,
    Code::TooManyJobs,
    Code::VenueFull,
    Code::StorageFull,
    Code::TooManyKeys,
];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/api/v1/invoke",
        tag: "Jobs",
        access: Access::Delegated,
        summary: "Invoke an operation as a job",
        about: "The job is durable before the response is sent. Operations that run inline are \
                already COMPLETE in it. `wait` waits longer; when the wait ends, the job continues.",
        parameters: &[
            query(
                "wait",
                r#"{"anyOf":[{"type":"boolean"},{"type":"integer","minimum":0}]}"#,
                "The same as `wait` in the body, which takes precedence.",
            ),
            PREFER,
            IDEMPOTENCY_KEY,
            DEPTH,
        ],
        body: Some(RequestBody {
            about: "The operation and its input. Unknown members are ignored and listed in \
                    `ignored` of the response, unless they are similar to a known one.",
            media: JSON,
            schema: INVOCATION,
            is_required: true,
        }),
        replies: &[
            reply(200, "The request waited and the job is COMPLETE.", JOB),
            reply(201, "The job in its current status.", JOB),
        ],
        errors: CREATE_JOB_ERRORS,
        handler: |request| Box::pin(invoke(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/api/v1/run",
        tag: "Jobs",
        access: Access::Delegated,
        summary: "Run an operation and return its output",
        about: "An operation marked `readOnly` runs without creating a job. If a job has not ended \
                after 120 s, it continues and the response is a 504 that names it.",
        parameters: &[IDEMPOTENCY_KEY],
        body: Some(RequestBody {
            about: "The operation and its input. `Catena-Warnings` names unknown members that were \
                    ignored.",
            media: JSON,
            schema: INVOCATION,
            is_required: true,
        }),
        replies: &[reply(200, "The output, which can be any JSON value.", ANY)],
        errors: &[
            Code::JobRejected,
            Code::UnknownMember,
            Code::OperationNotFound,
            Code::Forbidden,
            Code::KeyInFlight,
            Code::BodyTooLarge,
            Code::JobFailed,
            Code::RateLimited,
            Code::JobRunning,
        ],
        handler: |request| Box::pin(run(request)),
        ..ROUTE
    },
];

async fn invoke(mut request: ApiRequest) -> ApiResult<Response> {
    let body = request.read_body().await?;
    let key = request.idempotency_key("invoke", &[], &body)?;
    let Invocation { mut invoke, applied, ignored } =
        parse_invocation(&request, &json::parse(&body)?, key)?;
    let has_waited = invoke.wait.is_some();
    let (state, ContentMemory { decoded, encoded: _encoded }) = request.into_state();
    invoke.reserved = Some(Arc::new(decoded));
    drop(body);
    let invoked = state.engine.invoke(invoke).await?;
    let is_done = has_waited && invoked.view.status() == Status::Complete;
    let status = if is_done { StatusCode::OK } else { StatusCode::CREATED };
    let mut text = job_json::changed_to_json(&invoked.view)?;
    if !ignored.is_empty() {
        job_json::add_member("ignored", &list(ignored.into_iter().map(Value::from)), &mut text)?;
    }
    let mut response = response::json(status, text);
    let location = response::job_location(invoked.view.job.id());
    response::set_header(&mut response, header::LOCATION, location);
    if let Some(applied) = applied {
        response::set_header(&mut response, PREFERENCE_APPLIED, applied);
    }
    response::mark_replay(&mut response, invoked.is_replay);
    Ok(response)
}

async fn run(mut request: ApiRequest) -> ApiResult<Response> {
    let body = request.read_body().await?;
    let key = request.idempotency_key("run", &[], &body)?;
    let Invocation { mut invoke, ignored, .. } =
        parse_invocation(&request, &json::parse(&body)?, key)?;
    let (state, ContentMemory { decoded, encoded: _encoded }) = request.into_state();
    invoke.reserved = Some(Arc::new(decoded));
    drop(body);
    let ran = state.engine.run(invoke).await?;
    let cells = ran.cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells);
    let mut text = String::new();
    write_value(&ran.output, cells, &mut text).map_err(|error| match ran.job {
        Some(job) => error.member("job", job),
        None => error,
    })?;
    let mut response = response::json(StatusCode::OK, text);
    if let Some(job) = ran.job {
        response::set_header(&mut response, header::LOCATION, response::job_location(job));
    }
    response::mark_replay(&mut response, ran.is_replay);
    // The body is the output alone and has no place for them.
    let warnings: Vec<String> =
        ignored.iter().map(|name| format!("unknown member `{name}` was ignored")).collect();
    response::set_warnings(&mut response, &warnings);
    Ok(response)
}

/// The members of a body.
const MEMBERS: Members = Members {
    known: &["operation", "input", "wait", "timeoutMs", "tags", "private", "ucans"],
    mistaken: &[("op", Some("operation"))],
};

/// What a body asks for.
struct Invocation {
    invoke: Invoke,
    /// The value of `Preference-Applied`.
    applied: Option<String>,
    /// The names of members that are not known.
    ignored: Vec<String>,
}

/// The names of members that are not known. Fails if one of them was probably meant to be a known one.
fn ignored_members(body: &Map) -> ApiResult<Vec<String>> {
    let name = |unknown: UnknownMember| {
        if unknown.is_near_miss {
            Err(ApiError::unknown_member(&unknown))
        } else {
            Ok(unknown.name)
        }
    };
    MEMBERS.unknown(body).into_iter().map(name).collect()
}

fn parse_invocation(
    request: &ApiRequest,
    body: &Value,
    idempotency: Option<IdempotencyKey>,
) -> ApiResult<Invocation> {
    let body = body.as_map().ok_or_else(|| ApiError::bad_request("the body must be an object"))?;
    let ignored = ignored_members(body)?;
    let operation =
        body.field("operation").ok_or_else(|| ApiError::bad_request("`operation` is missing"))?;
    let operation =
        operation.as_str().ok_or_else(|| ApiError::bad_request("`operation` must be a string"))?;
    let caller = request.act_under(parse_texts(body, "ucans", DELEGATIONS_MAX)?)?;
    let requested = match body.field("wait").map(parse_wait) {
        Some(wait) => Some(wait?),
        None => request.parameter("wait")?.map(|text| parse_wait_text(&text)).transpose()?,
    };
    let (wait, applied) = match (requested, request.preferred_wait()) {
        (Some(wait), _) => (wait, None),
        (None, Some((wait, applied))) => (Some(wait), Some(applied)),
        (None, None) => (None, None),
    };
    let invoke = Invoke {
        caller,
        operation: operation.to_owned(),
        input: body.field("input").cloned().unwrap_or(Value::Nil),
        wait,
        timeout: body.field("timeoutMs").map(parse_timeout).transpose()?.flatten(),
        tags: parse_texts(body, "tags", usize::MAX)?,
        recording: parse_recording(body)?,
        idempotency,
        depth: request.depth()?,
        id: None,
        reserved: None,
    };
    Ok(Invocation { invoke, applied, ignored })
}

/// A boolean or a time in milliseconds, which is reduced to the longest wait.
fn parse_wait(value: &Value) -> ApiResult<Option<Duration>> {
    match value {
        Value::Nil | Value::Bool(false) => Ok(None),
        Value::Bool(true) => Ok(Some(WAIT_MAX)),
        other => match other.as_i64().and_then(|ms| u64::try_from(ms).ok()) {
            Some(ms) => Ok(Some(Duration::from_millis(ms).min(WAIT_MAX))),
            None => Err(invalid_wait()),
        },
    }
}

/// The same for the query parameter.
fn parse_wait_text(text: &str) -> ApiResult<Option<Duration>> {
    match text {
        "true" | "" => Ok(Some(WAIT_MAX)),
        "false" => Ok(None),
        digits => match parse_whole_number(digits) {
            Some(ms) => Ok(Some(Duration::from_millis(ms).min(WAIT_MAX))),
            None => Err(invalid_wait()),
        },
    }
}

fn invalid_wait() -> ApiError {
    ApiError::bad_request("`wait` must be true, false, or a number of milliseconds")
}

fn parse_timeout(value: &Value) -> ApiResult<Option<Duration>> {
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

fn parse_recording(body: &Map) -> ApiResult<Recording> {
    match body.field("private") {
        None | Some(Value::Nil | Value::Bool(false)) => Ok(Recording::Durable),
        Some(Value::Bool(true)) => Ok(Recording::Private),
        Some(_) => Err(ApiError::bad_request("`private` must be true or false")),
    }
}

/// A member that is an array of at most `items_max` strings.
fn parse_texts(body: &Map, name: &str, items_max: usize) -> ApiResult<Vec<String>> {
    let error = || ApiError::bad_request(format!("`{name}` must be an array of strings"));
    let Some(value) = body.field(name).filter(|value| !value.is_nil()) else {
        return Ok(Vec::new());
    };
    let items = value.as_vector().ok_or_else(error)?;
    if items.len() > items_max as u64 {
        return Err(ApiError::bad_request(format!("`{name}` has more than {items_max} entries")));
    }
    let text = |item: Result<Value, _>| Some(item.ok()?.to_text()?.into_owned());
    items.iter(&NoCells).map(|item| text(item).ok_or_else(error)).collect()
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
        let of = |text: &str| parse_wait(&json::read(text.as_bytes()).unwrap());
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
        assert_eq!(parse_wait_text("true").unwrap(), Some(WAIT_MAX));
        assert_eq!(parse_wait_text("500").unwrap(), ms(500));
        assert!(parse_wait_text("soon").is_err());
    }

    #[test]
    fn a_near_miss_is_refused_and_other_unknown_members_are_listed() {
        let of = |text: &str| match json::read(text.as_bytes()).unwrap() {
            Value::Map(map) => ignored_members(&map),
            other => panic!("{other:?}"),
        };
        let body = r#"{"operation":"x","input":1,"retries":3,"colour":1,"x-team":"blue"}"#;
        assert_eq!(of(body).unwrap(), ["colour", "retries"]);
        for near in ["timeout", "timeoutms", "inputs", "tag", "op", "Private", "ucan"] {
            let error = of(&format!(r#"{{"operation":"x","{near}":1}}"#)).unwrap_err();
            assert_eq!(error.code(), Code::UnknownMember, "{near}");
            assert!(error.text().starts_with(&format!("unknown member `{near}`")), "{near}");
        }
    }

    #[test]
    fn the_other_members_are_checked_too() {
        let of = |text: &str| match json::read(text.as_bytes()).unwrap() {
            Value::Map(map) => map,
            other => panic!("{other:?}"),
        };
        assert_eq!(parse_texts(&of(r#"{"tags":["a","b"]}"#), "tags", 2).unwrap(), ["a", "b"]);
        assert!(parse_texts(&of("{}"), "tags", 2).unwrap().is_empty());
        for bad in [r#"{"tags":"a"}"#, r#"{"tags":[1]}"#, r#"{"tags":["a","b","c"]}"#] {
            assert!(parse_texts(&of(bad), "tags", 2).is_err(), "{bad}");
        }
        assert_eq!(parse_recording(&of(r#"{"private":true}"#)).unwrap(), Recording::Private);
        assert!(parse_recording(&of(r#"{"private":"yes"}"#)).is_err());
        assert_eq!(parse_timeout(&5.into()).unwrap(), ms(5));
        assert!(parse_timeout(&0.into()).is_err());
        assert!(parse_timeout(&i64::MAX.into()).is_err());
    }
}

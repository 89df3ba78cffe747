//! Reading values at paths of the caller, without creating a job.

use axum::http::{StatusCode, header};
use axum::response::Response;
use catena_engine::error::RunError;
use catena_engine::requests::Invoke;
use catena_value::{CellSource, Map, NoCells, Value};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::write_value;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{
    IF_NONE_MATCH, Parameter, ROUTE, Reply, Route, empty_reply, query, reply,
};

const PATH: Parameter = query(
    "path",
    r#"{"type":"string","maxLength":2048}"#,
    "Such as `w/records/1/name`. It may begin with a slash or the caller's own DID; `/` is the root.",
);
const OFFSET: Parameter =
    query("offset", r#"{"type":"integer","minimum":0}"#, "The number of entries to skip.");
const LIMIT: Parameter =
    query("limit", r#"{"type":"integer","minimum":0,"maximum":10000}"#, "The page size.");
const MAX_SIZE: Parameter = query(
    "maxSize",
    r#"{"type":"integer","minimum":0,"maximum":16777216}"#,
    "The most bytes to read. Defaults to 1,000,000.",
);
const DEPTH: Parameter = query(
    "depth",
    r#"{"type":"integer","minimum":1,"maximum":16}"#,
    "The number of steps below the path at which entries are counted. Defaults to 1.",
);

const REPLIES: &[Reply] = &[
    reply(200, "What is at the path; `exists` is false if nothing is.", r#"{"type":"object"}"#),
    empty_reply(304, "The value still matches `If-None-Match`."),
];
const ERRORS: &[Code] = &[Code::BadRequest, Code::Forbidden];

const READ: Route = Route { tag: "Values", replies: REPLIES, errors: ERRORS, ..ROUTE };

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/values/read",
        summary: "Read a value",
        about: "If the value is larger than `maxSize`, it is null and `truncated` is true. The entity tag \
                is the Value ID.",
        parameters: &[PATH, MAX_SIZE, IF_NONE_MATCH],
        handler: |request| Box::pin(read(request, "covia:read")),
        ..READ
    },
    Route {
        path: "/api/v1/values/list",
        summary: "List the keys of an object",
        about: "Other values are described by their type and the number of their entries.",
        parameters: &[PATH, OFFSET, LIMIT, IF_NONE_MATCH],
        handler: |request| Box::pin(read(request, "covia:list")),
        ..READ
    },
    Route {
        path: "/api/v1/values/slice",
        summary: "Read a page of entries",
        about: "Entries of an object are `{key, value}`.",
        parameters: &[PATH, OFFSET, LIMIT, MAX_SIZE, IF_NONE_MATCH],
        handler: |request| Box::pin(read(request, "covia:slice")),
        ..READ
    },
    Route {
        path: "/api/v1/values/inspect",
        summary: "Show a value as text",
        about: "The text is JSON5 and says what was left out.",
        parameters: &[
            PATH,
            query(
                "budget",
                r#"{"type":"integer","minimum":1}"#,
                "Bytes of the text. Defaults to 1,000.",
            ),
            query("compact", r#"{"type":"boolean"}"#, "Without line breaks."),
            IF_NONE_MATCH,
        ],
        handler: |request| Box::pin(read(request, "covia:inspect")),
        ..READ
    },
    Route {
        path: "/api/v1/values/count",
        summary: "Count entries",
        parameters: &[PATH, DEPTH, IF_NONE_MATCH],
        handler: |request| Box::pin(read(request, "covia:count")),
        ..READ
    },
    Route {
        path: "/api/v1/values/aggregate",
        summary: "Count entries by group",
        parameters: &[
            PATH,
            DEPTH,
            query("groupBy", r#"{"type":"string"}"#, "The path of the group below each entry."),
            IF_NONE_MATCH,
        ],
        handler: |request| Box::pin(read(request, "covia:aggregate")),
        ..READ
    },
];

/// Runs a read-only operation with the query as its input.
async fn read(request: ApiRequest, operation: &'static str) -> ApiResult<Response> {
    let invoke = Invoke::new(request.caller.clone(), operation, input(&request)?);
    let ran = request.state.engine.run(invoke).await.map_err(refused)?;
    let id = ran.output.as_map().and_then(|output| output.field("id")).and_then(Value::as_str);
    let etag = id.map(|id| format!("\"{id}\""));
    if let Some(etag) = etag.as_ref().filter(|etag| request.matches_etag(etag)) {
        let mut response = response::empty(StatusCode::NOT_MODIFIED);
        response::set_header(&mut response, header::ETAG, etag.clone());
        return Ok(response);
    }
    let cells = ran.cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells);
    let mut text = String::new();
    write_value(&ran.output, cells, &mut text)?;
    let mut response = response::json(StatusCode::OK, text);
    if let Some(etag) = etag {
        response::set_header(&mut response, header::ETAG, etag);
    }
    Ok(response)
}

/// The input that a query describes. The operation ignores members that it does not know.
fn input(request: &ApiRequest) -> ApiResult<Value> {
    let mut members = Vec::new();
    let path = request.text_parameter("path")?;
    let path = path.ok_or_else(|| ApiError::bad_request("`path` is missing"))?;
    members.push(("path", Value::from(path)));
    for name in ["offset", "limit", "maxSize", "budget", "depth"] {
        if let Some(number) = request.number(name)? {
            let number = i64::try_from(number);
            let error = |_| ApiError::bad_request(format!("`{name}` is too large"));
            members.push((name, number.map_err(error)?.into()));
        }
    }
    if let Some(group) = request.text_parameter("groupBy")? {
        members.push(("groupBy", group.into()));
    }
    if request.flag("compact")? {
        members.push(("compact", true.into()));
    }
    Ok(members.into_iter().collect::<Map>().into())
}

/// A read that failed because of the request is the client's error, not that of a job.
pub(super) fn refused(error: RunError) -> ApiError {
    match error {
        RunError::Ended(ended) if ended.code.as_deref() == Some("forbidden") => {
            ApiError::new(Code::Forbidden, ended.error)
        }
        RunError::Ended(ended)
            if ended.status == catena_job::Status::Rejected
                || matches!(
                    ended.code.as_deref(),
                    Some("invalid_path" | "invalid_input" | "too_many_entries")
                ) =>
        {
            ApiError::bad_request(ended.error)
        }
        error => error.into(),
    }
}

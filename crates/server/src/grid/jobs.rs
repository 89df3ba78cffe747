//! Jobs: reading, listing, following, controlling them, and sending them messages.

use std::fmt::Write as _;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use catena_engine::Tombstone;
use catena_engine::error::ControlError;
use catena_engine::requests::{JobFilter, JobList, JobView, ListJobs, MessageReceipt, RerunScope};
use catena_engine::views::Reader;
use catena_job::JobId;
use catena_store::{ListOrder, ListedJob};
use catena_value::{NoCells, Value};

use crate::grid::follow::{self, Progress};
use crate::grid::job_json::{self, StepOutputs, VALUES, Values};
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::{self, write_value};
use crate::http::request::{ApiRequest, parse_whole_number};
use crate::http::response::{self, PREFERENCE_APPLIED};
use crate::http::response_cache::{self, RenderedJob};
use crate::http::route::{
    ANY, Access, IDEMPOTENCY_KEY, IF_NONE_MATCH, JOB, JSON, LIMIT, OFFSET, PREFER, Parameter,
    ROUTE, Reply, RequestBody, Route, empty_reply, in_header, query, reply,
};
use crate::http::sse;
use crate::values::{list, object};

pub(crate) const ID: &str = "The job's ID: 32 hex digits, with or without `0x`, or a UUID.";
const CHANGED: &[Reply] = &[reply(200, "The job in its new status.", JOB)];
const CONTROL_ERRORS: &[Code] = &[Code::InvalidJobId, Code::JobNotFound, Code::JobConflict];
pub(crate) const READ_ERRORS: &[Code] = &[Code::InvalidJobId, Code::JobNotFound, Code::JobDeleted];

/// The filter of jobs, by the names that the input of `jobs:control` and the command line use, too.
pub(crate) const FILTER: [Parameter; 8] = [
    query(
        "owner",
        r#"{"type":"string"}"#,
        "The DID whose jobs to show, or `*` for all owners. Only admins can see the jobs of others.",
    ),
    query("status", r##"{"$ref":"#/components/schemas/Status"}"##, "Only jobs with this status."),
    query("op", r#"{"type":"string"}"#, "Only jobs of this operation, as its caller named it."),
    query("tag", r#"{"type":"string"}"#, "Only jobs with this tag."),
    query(
        "since",
        r#"{"type":"string"}"#,
        "Only jobs that were created at this time or later: Unix time in ms, or a text such as \
         `2026-01-31T09:00Z`.",
    ),
    query("until", r#"{"type":"string"}"#, "Only jobs that were created before this time."),
    query("parent", r#"{"type":"string"}"#, "Only sub-jobs of this job."),
    query(
        "text",
        r#"{"type":"string"}"#,
        "Only jobs whose operation, tags or error contain this text, or whose ID begins with it.",
    ),
];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/jobs",
        tag: "Jobs",
        summary: "List jobs",
        about: "Lists jobs that match the filter, the caller's own by default, in the order in which \
                they were created. Items are hex IDs without `0x` or, with `expand`, objects with the \
                main members of the job. `total` is `{\"atLeast\": n}` if not all were counted.",
        parameters: &[
            OFFSET,
            LIMIT,
            FILTER[0],
            FILTER[1],
            FILTER[2],
            FILTER[3],
            FILTER[4],
            FILTER[5],
            FILTER[6],
            FILTER[7],
            query(
                "order",
                r#"{"enum":["oldest","newest"]}"#,
                "Which jobs come first. Defaults to `oldest`.",
            ),
            query("expand", r#"{"type":"boolean"}"#, "Returns objects instead of IDs."),
            query(
                "cursor",
                r#"{"type":"string"}"#,
                "`next` of the previous page. A page is then found without counting those before it.",
            ),
        ],
        replies: &[reply(200, "A page of jobs.", r##"{"$ref":"#/components/schemas/JobPage"}"##)],
        errors: &[Code::BadRequest, Code::Forbidden],
        handler: |request| Box::pin(list_jobs(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/tombstones",
        tag: "Jobs",
        summary: "List deleted jobs",
        about: "Lists what is left of the caller's deleted jobs, in the order of their IDs: `id`, \
                `head` (the ID of the last record, which every complete copy of the history ends \
                with), `owner`, `by` and `at`.",
        parameters: &[
            LIMIT,
            query("after", r#"{"type":"string"}"#, "Only jobs after this ID: `next` of a page."),
            query(
                "owner",
                r#"{"type":"string"}"#,
                "The DID whose jobs to list, or `*` for all. Only admins can list those of others.",
            ),
        ],
        replies: &[reply(
            200,
            "A page of tombstones.",
            r#"{"type":"object","required":["tombstones"],"properties":{"tombstones":{"type":"array","items":{"type":"object"}},"next":{"type":"string"}}}"#,
        )],
        errors: &[Code::BadRequest, Code::Forbidden],
        handler: |request| Box::pin(list_tombstones(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/jobs/{id}",
        path_parameter: ID,
        tag: "Jobs",
        summary: "Read a job",
        about: "With `Prefer: wait=N` the response is sent when the job no longer matches \
                `If-None-Match`, when it has ended, or after N seconds.",
        parameters: &[IF_NONE_MATCH, PREFER, STEPS, VALUES],
        replies: &[
            reply(200, "The job.", JOB),
            empty_reply(304, "The job still matches `If-None-Match`."),
        ],
        errors: READ_ERRORS,
        handler: |request| Box::pin(read(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/api/v1/jobs/{id}",
        path_parameter: ID,
        tag: "Jobs",
        summary: "Send a message to a job",
        about: "The message can be any JSON value; one that is not an object becomes \
                `{\"content\": …}`. Messages are queued in order until the job is ready for one. A \
                repeated `messageId` has no effect.",
        parameters: &[IDEMPOTENCY_KEY],
        body: Some(RequestBody {
            about: "The message.",
            media: JSON,
            schema: ANY,
            is_required: true,
        }),
        replies: &[reply(
            202,
            "The message is in the job's queue.",
            r##"{"$ref":"#/components/schemas/Queued"}"##,
        )],
        errors: &[
            Code::InvalidJson,
            Code::JobNotFound,
            Code::JobEnded,
            Code::MessageTooLarge,
            Code::KeyInFlight,
            Code::KeyReused,
            Code::TooManyKeys,
            Code::QueueFull,
        ],
        handler: |request| Box::pin(send(request)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/jobs/{id}/cancel",
        path_parameter: ID,
        tag: "Jobs",
        summary: "Cancel a job",
        about: "Stops the running work and cancels the sub-jobs. A job that has ended is not \
                changed.",
        body: Some(RequestBody {
            about: "An optional reason.",
            media: JSON,
            schema: r#"{"type":"object","properties":{"reason":{"type":["string","null"]}}}"#,
            is_required: false,
        }),
        replies: CHANGED,
        errors: READ_ERRORS,
        handler: |request| Box::pin(cancel(request)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/jobs/{id}/pause",
        path_parameter: ID,
        tag: "Jobs",
        summary: "Pause a job",
        replies: CHANGED,
        errors: CONTROL_ERRORS,
        handler: |request| Box::pin(pause(request)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/jobs/{id}/resume",
        path_parameter: ID,
        tag: "Jobs",
        summary: "Resume a paused job",
        replies: CHANGED,
        errors: CONTROL_ERRORS,
        handler: |request| Box::pin(resume(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/api/v1/jobs/{id}/rerun",
        path_parameter: ID,
        tag: "Jobs",
        summary: "Run a job again",
        about: "Creates a new job with the same definition and input, which names the old one in \
                `rerunOf`. An orchestration runs the steps that did not complete and what depends \
                on them, and with `from` also that step and what depends on it. It reuses and keeps \
                the outputs of all others, and names their last records in `reused`. If nothing is \
                unfinished, or with `all`, everything runs.",
        parameters: &[IDEMPOTENCY_KEY],
        body: Some(RequestBody {
            about: "What runs again. By default, what did not complete.",
            media: JSON,
            schema: r#"{"type":"object","properties":{"from":{"type":["integer","null"],"minimum":0},"all":{"type":["boolean","null"]}}}"#,
            is_required: false,
        }),
        replies: &[reply(201, "The new job.", JOB)],
        errors: &[Code::InvalidJobId, Code::JobNotFound, Code::JobConflict, Code::StepGone],
        handler: |request| Box::pin(rerun(request)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/jobs/{id}/delete",
        path_parameter: ID,
        tag: "Jobs",
        summary: "Delete a job",
        about: "A job that has not ended is cancelled first. Its sub-jobs are deleted with it.",
        replies: &[reply(
            200,
            "The job was deleted.",
            r#"{"type":"object","required":["id","deleted"]}"#,
        )],
        errors: CONTROL_ERRORS,
        handler: |request| Box::pin(delete(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/jobs/{id}/log",
        path_parameter: ID,
        tag: "Jobs",
        summary: "Read the end of a job's log",
        about: "What its worker has reported last with its beats, up to 4 kB. While a job runs this is \
                kept in memory; its last record contains it as `log`.",
        replies: &[reply(
            200,
            "The end of the log; empty if there is none.",
            r#"{"type":"object","required":["id","log"],"properties":{
                "id":{"type":"string"},"log":{"type":"string"}}}"#,
        )],
        errors: READ_ERRORS,
        handler: |request| Box::pin(log(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/jobs/{id}/sse",
        path_parameter: ID,
        tag: "Jobs",
        summary: "Follow a job",
        about: "Streams a `job-update` event with the job's JSON for the current record and for \
                each record that is appended; `id` is the record's index. With `Last-Event-ID`, \
                starts after that record. The stream ends after the job's last record.",
        access: Access::JobId,
        parameters: &[
            in_header(
                "Last-Event-ID",
                r#"{"type":"string"}"#,
                "The index of the last record that the client has received.",
            ),
            query(
                "after",
                r#"{"type":"integer","minimum":0}"#,
                "The same, for clients that cannot set headers.",
            ),
            query("progress", r#"{"type":"boolean"}"#, "Includes `progress` events."),
            STEPS,
            VALUES,
        ],
        replies: &[
            Reply {
                status: 200,
                about: "The event stream.",
                body: Some(("text/event-stream", r#"{"type":"string"}"#)),
            },
            empty_reply(204, "The job has ended, and the client has its last event."),
        ],
        errors: &[Code::InvalidJobId, Code::JobNotFound, Code::NotAcceptable],
        handler: |request| Box::pin(follow_job(request)),
        ..ROUTE
    },
];

const STEPS: Parameter = query(
    "steps",
    r#"{"enum":["full","brief"]}"#,
    "`brief` omits the outputs of steps. Otherwise those of more than 64 KiB, and those beyond 1 MiB \
     in total, are omitted. An omitted output has its size as `outputBytes` and, if it is on this \
     venue, the path where it can be read as `outputLink`.",
);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What a list contains of each job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Items {
    Ids,
    Jobs,
}

async fn list_jobs(request: ApiRequest) -> ApiResult<Response> {
    let (offset, limit) = request.page()?;
    let query = ListJobs {
        filter: job_filter(&request)?,
        order: parse_order(request.parameter("order")?.as_deref())?,
        after: request.parameter("cursor")?.as_deref().map(parse_cursor).transpose()?,
        offset,
        limit,
    };
    let items = if request.flag("expand")? { Items::Jobs } else { Items::Ids };
    if !query.filter.is_allowed(&request.caller) {
        return Err(ApiError::new(Code::Forbidden, "only admins can list the jobs of others"));
    }
    let page = request.state.engine.jobs(&request.caller, &query).await?;
    Ok(response::json(StatusCode::OK, page_to_json(&page, &query, items)?))
}

/// The filter in the query of a request.
pub(crate) fn job_filter(request: &ApiRequest) -> ApiResult<JobFilter> {
    let mut members = Vec::with_capacity(JobFilter::NAMES.len());
    for name in JobFilter::NAMES {
        members.push((name, request.text_parameter(name)?));
    }
    let member = |name| members.iter().find(|(own, _)| *own == name)?.1.clone();
    JobFilter::parse(member).map_err(ApiError::bad_request)
}

fn parse_cursor(text: &str) -> ApiResult<u64> {
    parse_whole_number(text)
        .ok_or_else(|| ApiError::bad_request("`cursor` must be `next` of another page"))
}

async fn list_tombstones(request: ApiRequest) -> ApiResult<Response> {
    let limit = request.limit()?;
    let after = match request.text_parameter("after")? {
        None => None,
        Some(text) => {
            let error = |_| ApiError::bad_request("`after` must be the ID of a job");
            Some(text.parse::<JobId>().map_err(error)?)
        }
    };
    let owner = request.text_parameter("owner")?;
    if owner.as_deref().is_some_and(|owner| !request.caller.may_touch(owner)) {
        let error = "only admins can list the deleted jobs of others";
        return Err(ApiError::new(Code::Forbidden, error));
    }
    let engine = &request.state.engine;
    let found = engine.tombstones(&request.caller, owner.as_deref(), after, limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.job);
    let entry = |tombstone: &Tombstone| {
        object([
            ("id", Value::from(tombstone.job)),
            ("head", tombstone.head.into()),
            ("owner", tombstone.owner.as_str().into()),
            ("by", tombstone.by.as_str().into()),
            ("at", tombstone.at.into()),
        ])
    };
    let entries = list(found.iter().map(entry));
    let mut members = vec![("tombstones", entries)];
    members.extend(next.map(|next| ("next", next.into())));
    Ok(response::value(StatusCode::OK, &object(members)))
}

fn parse_order(word: Option<&str>) -> ApiResult<ListOrder> {
    match word {
        None | Some("oldest") => Ok(ListOrder::Oldest),
        Some("newest") => Ok(ListOrder::Newest),
        Some(_) => Err(ApiError::bad_request("`order` must be oldest or newest")),
    }
}

fn page_to_json(page: &JobList, query: &ListJobs, items: Items) -> ApiResult<String> {
    let mut text = String::with_capacity(64 + page.jobs.len() * 40);
    text.push_str("{\"items\":[");
    for (at, job) in page.jobs.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        match items {
            Items::Jobs => write_listed_job(job, query.filter.owner.is_some(), &mut text)?,
            // Writing to a string cannot fail.
            Items::Ids => write!(text, "\"{}\"", job.id.to_hex()).unwrap_or_default(),
        }
    }
    text.push_str("],\"total\":");
    let (total, offset, limit) = (page.total, query.offset, query.limit);
    let _ = if page.is_at_least {
        write!(text, "{{\"atLeast\":{total}}}")
    } else {
        write!(text, "{total}")
    };
    let _ = write!(text, ",\"offset\":{offset},\"limit\":{limit}");
    if let Some(next) = page.next {
        let _ = write!(text, ",\"next\":\"{next}\"");
    }
    text.push('}');
    Ok(text)
}

fn write_listed_job(job: &ListedJob, has_owner: bool, text: &mut String) -> ApiResult<()> {
    write_value(&listed_value(job, has_owner), &NoCells, text)
}

/// The entry of a list, with the owner if it is not obvious.
pub(crate) fn listed_value(job: &ListedJob, has_owner: bool) -> Value {
    let mut members = vec![
        ("id", Value::from(job.id)),
        ("status", job.status.into()),
        ("op", job.op.as_str().into()),
        ("created", job.created.into()),
        ("updated", job.updated.into()),
    ];
    if has_owner {
        members.push(("owner", job.owner.as_str().into()));
    }
    object(members)
}

async fn read(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let engine = &request.state.engine;
    let caller = &request.caller;
    let preferred = request.preferred_wait();
    let has_etag = request.head.headers.contains_key(header::IF_NONE_MATCH);
    let outputs = step_outputs(&request)?;
    let values = Values::from_request(&request)?;
    // The waits are boxed, so that the future of a read without a wait stays small.
    let mut view = match &preferred {
        None => engine.job(caller, id).await?,
        Some((time, _)) if has_etag => {
            let is_known = |view: &JobView| request.matches_etag(view.etag());
            Box::pin(engine.wait_for_change(caller, id, *time, is_known)).await?
        }
        Some((time, _)) => Box::pin(engine.wait(caller, id, *time)).await?,
    };
    view.steps = outputs.apply(view.steps.take());
    let cache = &request.state.response_cache;
    let to_json = |view: &JobView| job_json::view_to_json(view, values);
    let RenderedJob { etag, body } = match values {
        Values::Full => cache.get_or_render(&view, to_json)?,
        Values::Brief => response_cache::render(&view, to_json)?,
    };
    let mut response = if request.matches_etag(&etag) {
        response::empty(StatusCode::NOT_MODIFIED)
    } else {
        response::json(StatusCode::OK, body)
    };
    response::set_header(&mut response, header::ETAG, etag);
    if let Some((_, applied)) = preferred {
        response::set_header(&mut response, PREFERENCE_APPLIED, applied);
    }
    Ok(response)
}

/// Whether outputs of steps are wanted: `steps=brief` omits them.
fn step_outputs(request: &ApiRequest) -> ApiResult<StepOutputs> {
    match request.parameter("steps")?.as_deref() {
        None | Some("full") => Ok(StepOutputs::Bounded),
        Some("brief") => Ok(StepOutputs::Omitted),
        Some(_) => Err(ApiError::bad_request("`steps` must be brief or full")),
    }
}

async fn send(mut request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let body = request.read_body().await?;
    let message = match json::parse(&body)? {
        Value::Map(message) => Value::Map(message),
        other => object([("content", other)]),
    };
    let key = request.idempotency_key("message", id.as_bytes(), &body)?;
    let sent = request.state.engine.send(&request.caller, id, message, key).await?;
    let mut response = response::value(StatusCode::ACCEPTED, &sent_value(&sent));
    response::mark_replay(&mut response, sent.is_replay);
    Ok(response)
}

fn sent_value(sent: &MessageReceipt) -> Value {
    let mut members = vec![
        ("id", Value::from(sent.job)),
        ("status", sent.status.into()),
        ("queued", true.into()),
        ("queueDepth", sent.queue_depth.into()),
        ("messageId", sent.message_id.as_str().into()),
    ];
    if sent.is_duplicate {
        members.push(("duplicate", true.into()));
    }
    object(members)
}

async fn cancel(mut request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let body = json::parse_optional(&request.read_body().await?)?;
    let reason = parse_reason(body.as_ref())?;
    changed_response(request.state.engine.cancel(&request.caller, id, reason).await)
}

fn parse_reason(body: Option<&Value>) -> ApiResult<Option<String>> {
    let error = || ApiError::bad_request("`reason` must be a string");
    match body {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Map(members)) => match members.field("reason") {
            None | Some(Value::Nil) => Ok(None),
            Some(reason) => Ok(Some(reason.to_text().ok_or_else(error)?.into_owned())),
        },
        Some(_) => Err(ApiError::bad_request("the body must be an object")),
    }
}

async fn pause(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    changed_response(request.state.engine.pause(&request.caller, id).await)
}

async fn resume(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    changed_response(request.state.engine.resume(&request.caller, id).await)
}

async fn rerun(mut request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let body = request.read_body().await?;
    let key = request.idempotency_key("rerun", id.as_bytes(), &body)?;
    let scope = parse_scope(json::parse_optional(&body)?.as_ref())?;
    let invoked = request.state.engine.rerun(&request.caller, id, scope, key).await?;
    let text = job_json::changed_to_json(&invoked.view)?;
    let mut response = response::json(StatusCode::CREATED, text);
    let location = response::job_location(invoked.view.job.id());
    response::set_header(&mut response, header::LOCATION, location);
    response::mark_replay(&mut response, invoked.is_replay);
    Ok(response)
}

/// What a rerun runs again.
fn parse_scope(body: Option<&Value>) -> ApiResult<RerunScope> {
    let members = match body {
        None | Some(Value::Nil) => return Ok(RerunScope::Unfinished),
        Some(Value::Map(members)) => members,
        Some(_) => return Err(ApiError::bad_request("the body must be an object")),
    };
    let from = match members.field("from") {
        None | Some(Value::Nil) => None,
        Some(from) => {
            let from = from.as_i64().and_then(|from| u32::try_from(from).ok());
            let error = || ApiError::bad_request("`from` must be the index of a step");
            Some(from.ok_or_else(error)?)
        }
    };
    match (members.field("all"), from) {
        (None | Some(Value::Nil | Value::Bool(false)), from) => Ok(from.into()),
        (Some(Value::Bool(true)), None) => Ok(RerunScope::Everything),
        (Some(Value::Bool(true)), Some(_)) => {
            Err(ApiError::bad_request("give one of `from` and `all`"))
        }
        (Some(_), _) => Err(ApiError::bad_request("`all` must be a boolean")),
    }
}

/// The response to an action that changed a job.
fn changed_response(result: Result<JobView, ControlError>) -> ApiResult<Response> {
    let view = result?;
    let mut response = response::json(StatusCode::OK, job_json::changed_to_json(&view)?);
    response::set_header(&mut response, header::ETAG, view.etag());
    Ok(response)
}

async fn delete(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    request.state.engine.delete(&request.caller, id).await?;
    Ok(response::json(StatusCode::OK, format!("{{\"id\":\"{id}\",\"deleted\":true}}")))
}

async fn log(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let log = request.state.engine.log(&request.caller, id).await?;
    let value = object([("id", Value::from(id.to_string())), ("log", log.into())]);
    Ok(response::value(StatusCode::OK, &value))
}

async fn follow_job(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    sse::check_accept(&request.head.headers)?;
    let progress = if request.flag("progress")? { Progress::Included } else { Progress::Omitted };
    let after = last_event_id(&request)?;
    let reader =
        if request.is_job_id_bearer { Reader::Bearer } else { Reader::Caller(&request.caller) };
    let follow = request.state.engine.follow(reader, id, after).await?;
    if follow.is_over() {
        // An `EventSource` stops reconnecting.
        return Ok(response::empty(StatusCode::NO_CONTENT));
    }
    let memory = request.memory.open_another();
    Ok(follow::response(
        follow,
        progress,
        step_outputs(&request)?,
        Values::from_request(&request)?,
        memory,
        request.state.metrics.count_stream(),
    ))
}

/// The ID of the last event that the client has received.
pub(crate) fn last_event_id(request: &ApiRequest) -> ApiResult<Option<u64>> {
    match request.head.headers.get(LAST_EVENT_ID).map(HeaderValue::to_str) {
        None => request.number("after"),
        Some(Ok("")) => Ok(None),
        Some(text) => text.ok().and_then(parse_whole_number).map(Some).ok_or_else(|| {
            ApiError::bad_request("`Last-Event-ID` must be the ID of an event of this stream")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_job::Status;
    use catena_value::json;

    fn read_back(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_list_shows_bare_hex_and_records_show_0x() {
        let job = ListedJob {
            id: JobId::from_bytes([7; 16]),
            owner: "did:key:a".to_owned(),
            order: 1,
            status: Status::Started,
            op: "test:\"echo\"".to_owned(),
            created: 5,
            updated: 6,
        };
        let page =
            JobList { jobs: vec![job.clone(), job], total: 12, is_at_least: false, next: Some(9) };
        let query = ListJobs::all(ListOrder::Oldest, 10, 2);
        let hex = "07".repeat(16);
        let plain =
            format!(r#"{{"items":["{hex}","{hex}"],"total":12,"offset":10,"limit":2,"next":"9"}}"#);
        assert_eq!(page_to_json(&page, &query, Items::Ids).unwrap(), plain);
        let expanded = read_back(&page_to_json(&page, &query, Items::Jobs).unwrap());
        let items = expanded.as_map().unwrap().field("items").unwrap().clone();
        let line = items.as_vector().unwrap().get(0, &NoCells).unwrap().unwrap();
        assert_eq!(line.as_map().unwrap().field("id"), Some(&format!("0x{hex}").into()));
        assert_eq!(line.as_map().unwrap().field("op"), Some(&"test:\"echo\"".into()));
    }

    #[test]
    fn a_message_is_acknowledged_as_cog_9_says() {
        let sent = MessageReceipt {
            job: JobId::from_bytes([7; 16]),
            status: Status::Started,
            queue_depth: 3,
            message_id: "m1".to_owned(),
            is_duplicate: false,
            is_replay: false,
        };
        let expected = format!(
            r#"{{"id":"0x{}","status":"STARTED","queued":true,"queueDepth":3,"messageId":"m1"}}"#,
            "07".repeat(16)
        );
        assert_eq!(sent_value(&sent), read_back(&expected));
        let again = sent_value(&MessageReceipt { is_duplicate: true, ..sent });
        assert_eq!(again.as_map().unwrap().field("duplicate"), Some(&true.into()));
    }

    #[test]
    fn a_reason_is_a_string_if_it_is_there() {
        let of = |text: &str| parse_reason(Some(&read_back(text)));
        assert_eq!(parse_reason(None).unwrap(), None);
        assert_eq!(of(r#"{"reason":"late"}"#).unwrap().as_deref(), Some("late"));
        assert_eq!(of(r#"{"reason":null}"#).unwrap(), None);
        assert_eq!(of("null").unwrap(), None);
        assert!(of(r#"{"reason":5}"#).is_err());
        assert!(of(r#""late""#).is_err());
    }

    #[test]
    fn unknown_words_are_refused() {
        assert_eq!(parse_order(None).unwrap(), ListOrder::Oldest);
        assert!(parse_order(Some("up")).is_err());
    }
}

//! Jobs: reading, listing, following, controlling them, and sending them messages.

use std::fmt::Write as _;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use catena_engine::error::ControlError;
use catena_engine::follow::Reader;
use catena_engine::limits::PAGE_MAX;
use catena_engine::request::{HistoryPage, JobList, JobView, ListJobs, Sent};
use catena_job::Status;
use catena_store::{ListOrder, ListedJob};
use catena_value::{Map, NoCells, Value, json};

use crate::grid::invoke::{location, mark_replay};
use crate::grid::job_json;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::request::{Call, read_json, read_optional_json, whole_number};
use crate::http::response;
use crate::http::response_cache::Rendered;
use crate::http::sse::{self, Progress};
use crate::limits::HISTORY_PAGE_BYTES_MAX;
use crate::routes::{
    ANY, Access, IDEMPOTENCY, IF_NONE_MATCH, JOB, JSON, LIMIT, OFFSET, PREFER, ROUTE, Reply, Route,
    Taken, bare, in_header, query, reply,
};

const ID: &str = "The job's ID: 32 hex digits, with or without `0x`, or a UUID.";
const CHANGED: &[Reply] = &[reply(200, "The job, as it stands now.", JOB)];
const CONTROL_ERRORS: &[Code] = &[Code::InvalidJobId, Code::JobNotFound, Code::JobConflict];
const READ_ERRORS: &[Code] = &[Code::InvalidJobId, Code::JobNotFound];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/jobs",
        tag: "Jobs",
        summary: "List jobs",
        about: "The caller's own, in the order in which they were made. Items are bare hex IDs, \
                or with `expand` objects of the job's main members.",
        parameters: &[
            OFFSET,
            LIMIT,
            query(
                "status",
                r##"{"$ref":"#/components/schemas/Status"}"##,
                "Only those that stand here.",
            ),
            query("op", r#"{"type":"string"}"#, "Only those of this operation, as it was named."),
            query("tag", r#"{"type":"string"}"#, "Only those with this tag."),
            query(
                "order",
                r#"{"enum":["oldest","newest"]}"#,
                "The direction; oldest first when not said.",
            ),
            query("expand", r#"{"type":"boolean"}"#, "Objects instead of IDs."),
            query("owner", r#"{"type":"string"}"#, "Somebody else's jobs; for admins."),
        ],
        replies: &[reply(200, "A page.", r##"{"$ref":"#/components/schemas/JobPage"}"##)],
        errors: &[Code::BadRequest, Code::Forbidden],
        handler: |call| Box::pin(list(call)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/jobs/{id}",
        argument: ID,
        tag: "Jobs",
        summary: "Read a job",
        about: "With `Prefer: wait=N` the answer comes when the job changed from what \
                `If-None-Match` names, when it ended, or after N seconds.",
        parameters: &[IF_NONE_MATCH, PREFER],
        replies: &[
            reply(200, "The job.", JOB),
            bare(304, "The job is what `If-None-Match` names."),
        ],
        errors: READ_ERRORS,
        handler: |call| Box::pin(read(call)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/api/v1/jobs/{id}",
        argument: ID,
        tag: "Jobs",
        summary: "Send a job a message",
        about: "Any JSON; what is not an object becomes `{\"content\": …}`. Messages are kept in \
                order until the job is ready for one. A repeated `messageId` changes nothing.",
        parameters: &[IDEMPOTENCY],
        body: Some(Taken { about: "The message.", media: JSON, schema: ANY, is_required: true }),
        replies: &[reply(
            202,
            "It waits for the job.",
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
        handler: |call| Box::pin(send(call)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/jobs/{id}/cancel",
        argument: ID,
        tag: "Jobs",
        summary: "End a job",
        about: "Reaches the work and its sub-jobs. A job that has ended stays as it is.",
        body: Some(Taken {
            about: "Why, if you want to say so.",
            media: JSON,
            schema: r#"{"type":"object","properties":{"reason":{"type":["string","null"]}}}"#,
            is_required: false,
        }),
        replies: CHANGED,
        errors: READ_ERRORS,
        handler: |call| Box::pin(cancel(call)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/jobs/{id}/pause",
        argument: ID,
        tag: "Jobs",
        summary: "Suspend a job",
        replies: CHANGED,
        errors: CONTROL_ERRORS,
        handler: |call| Box::pin(pause(call)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/jobs/{id}/resume",
        argument: ID,
        tag: "Jobs",
        summary: "Let a paused job go on",
        replies: CHANGED,
        errors: CONTROL_ERRORS,
        handler: |call| Box::pin(resume(call)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/api/v1/jobs/{id}/rerun",
        argument: ID,
        tag: "Jobs",
        summary: "Run a job again",
        about: "A new job of the same definition and input, which names the old one in `rerunOf`. \
                With `from`, an orchestration takes over the outputs of the steps before that one \
                and names their last records in `reused`.",
        parameters: &[IDEMPOTENCY],
        body: Some(Taken {
            about: "From which step, if not from the start.",
            media: JSON,
            schema: r#"{"type":"object","properties":{"from":{"type":["integer","null"],"minimum":0}}}"#,
            is_required: false,
        }),
        replies: &[reply(201, "The new job.", JOB)],
        errors: CONTROL_ERRORS,
        handler: |call| Box::pin(rerun(call)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/api/v1/jobs/{id}/delete",
        argument: ID,
        tag: "Jobs",
        summary: "Forget a job",
        about: "One that has not ended is cancelled first. Its sub-jobs go with it.",
        replies: &[reply(200, "It is gone.", r#"{"type":"object","required":["id","deleted"]}"#)],
        errors: CONTROL_ERRORS,
        handler: |call| Box::pin(delete(call)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/jobs/{id}/history",
        argument: ID,
        tag: "Jobs",
        summary: "Read a job's records",
        about: "Oldest first. `record` is exactly the JSON whose Value ID is `id`. When there are \
                more, `next` is where to go on.",
        parameters: &[
            query("from", r#"{"type":"integer","minimum":0}"#, "The index of the first record."),
            LIMIT,
        ],
        replies: &[reply(200, "Records.", r##"{"$ref":"#/components/schemas/History"}"##)],
        errors: READ_ERRORS,
        handler: |call| Box::pin(history(call)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/jobs/{id}/sse",
        argument: ID,
        tag: "Jobs",
        summary: "Follow a job",
        about: "An event `job-update` with the job's JSON for the current record, then for each \
                one that is appended; `id` is the record's index. With `Last-Event-ID` every \
                record after that one. Ends after the record that ends the job.",
        access: Access::JobId,
        parameters: &[
            in_header(
                "Last-Event-ID",
                r#"{"type":"string"}"#,
                "The index of the last record seen.",
            ),
            query(
                "after",
                r#"{"type":"integer","minimum":0}"#,
                "The same, for those who cannot set headers.",
            ),
            query("progress", r#"{"type":"boolean"}"#, "Also events `progress`."),
        ],
        replies: &[Reply {
            status: 200,
            about: "The stream.",
            body: Some(("text/event-stream", r#"{"type":"string"}"#)),
        }],
        errors: &[Code::InvalidJobId, Code::JobNotFound, Code::NotAcceptable],
        handler: |call| Box::pin(follow(call)),
        ..ROUTE
    },
];

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

async fn list(call: Call) -> ApiResult<Response> {
    let (offset, limit) = call.page()?;
    let text = |name| Ok::<_, ApiError>(call.parameter(name)?.map(|text| text.into_owned()));
    let query = ListJobs {
        owner: text("owner")?,
        status: call.parameter("status")?.map(|word| status(&word)).transpose()?,
        op: text("op")?,
        tag: text("tag")?,
        order: order(call.parameter("order")?.as_deref())?,
        offset,
        limit,
    };
    let is_expanded = call.flag("expand")?;
    let is_others = query.owner.as_deref().is_some_and(|owner| !call.caller.may_touch(owner));
    if is_others {
        return Err(ApiError::new(Code::Forbidden, "only admins list the jobs of others"));
    }
    let page = call.door.engine.jobs(&call.caller, &query).await?;
    Ok(response::json(StatusCode::OK, page_json(&page, &query, is_expanded)?))
}

fn status(word: &str) -> ApiResult<Status> {
    Status::parse(word).ok_or_else(|| {
        let words = Status::ALL.map(Status::as_str).join(", ");
        ApiError::bad_request(format!("`status` must be one of {words}"))
    })
}

fn order(word: Option<&str>) -> ApiResult<ListOrder> {
    match word {
        None | Some("oldest") => Ok(ListOrder::Oldest),
        Some("newest") => Ok(ListOrder::Newest),
        Some(_) => Err(ApiError::bad_request("`order` must be oldest or newest")),
    }
}

fn page_json(page: &JobList, query: &ListJobs, is_expanded: bool) -> ApiResult<String> {
    let mut text = String::with_capacity(64 + page.jobs.len() * 40);
    text.push_str("{\"items\":[");
    for (at, job) in page.jobs.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        match is_expanded {
            true => write_line(job, &mut text)?,
            // Writing to a string cannot fail.
            false => write!(text, "\"{}\"", job.id.to_hex()).unwrap_or_default(),
        }
    }
    let (total, offset, limit) = (page.total, query.offset, query.limit);
    let _ = write!(text, "],\"total\":{total},\"offset\":{offset},\"limit\":{limit}}}");
    Ok(text)
}

fn write_line(job: &ListedJob, text: &mut String) -> ApiResult<()> {
    let members = [
        ("id", Value::from(job.id)),
        ("status", job.status.into()),
        ("op", job.op.as_str().into()),
        ("created", job.created.into()),
        ("updated", job.updated.into()),
    ];
    job_json::write_value(&members.into_iter().collect::<Map>().into(), &NoCells, text)
}

async fn read(call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    let (engine, caller) = (&call.door.engine, &call.caller);
    let preferred = call.preferred_wait();
    let has_tag = call.head.headers.contains_key(header::IF_NONE_MATCH);
    // Boxed, so that a read which does not wait is short of memory.
    let view = match &preferred {
        None => engine.job(caller, id).await?,
        Some((time, _)) if has_tag => {
            let is_known = |view: &JobView| call.has_tag(view.etag());
            Box::pin(engine.wait_for_change(caller, id, *time, is_known)).await?
        }
        Some((time, _)) => Box::pin(engine.wait(caller, id, *time)).await?,
    };
    let Rendered { tag, body } = call.door.answers.of(&view)?;
    let mut response = match call.has_tag(&tag) {
        true => response::empty(StatusCode::NOT_MODIFIED),
        false => response::json(StatusCode::OK, body),
    };
    response::set(&mut response, header::ETAG, tag);
    if let Some((_, applied)) = preferred {
        response::set(&mut response, PREFERENCE_APPLIED, applied);
    }
    Ok(response)
}

async fn send(mut call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    let body = call.read_body().await?;
    let message = match read_json(&body)? {
        Value::Map(message) => Value::Map(message),
        other => [("content", other)].into_iter().collect::<Map>().into(),
    };
    let key = call.idempotency("message", id.as_bytes(), &body)?;
    let sent = call.door.engine.send(&call.caller, id, message, key).await?;
    let text = json::to_string(&sent_value(&sent)).unwrap_or_default();
    let mut response = response::json(StatusCode::ACCEPTED, text);
    mark_replay(&mut response, sent.is_replay);
    Ok(response)
}

fn sent_value(sent: &Sent) -> Value {
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
    members.into_iter().collect::<Map>().into()
}

async fn cancel(mut call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    let body = read_optional_json(&call.read_body().await?)?;
    let reason = reason(body.as_ref())?;
    changed(call.door.engine.cancel(&call.caller, id, reason).await)
}

fn reason(body: Option<&Value>) -> ApiResult<Option<String>> {
    let bad = || ApiError::bad_request("`reason` must be a string");
    match body {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Map(members)) => match members.field("reason") {
            None | Some(Value::Nil) => Ok(None),
            Some(reason) => Ok(Some(reason.to_text().ok_or_else(bad)?.into_owned())),
        },
        Some(_) => Err(ApiError::bad_request("the body must be an object")),
    }
}

async fn pause(call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    changed(call.door.engine.pause(&call.caller, id).await)
}

async fn resume(call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    changed(call.door.engine.resume(&call.caller, id).await)
}

async fn rerun(mut call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    let body = call.read_body().await?;
    let key = call.idempotency("rerun", id.as_bytes(), &body)?;
    let from = first_step(read_optional_json(&body)?.as_ref())?;
    let invoked = call.door.engine.rerun(&call.caller, id, from, key).await?;
    let text = job_json::of_view(&invoked.view)?;
    let mut response = response::json(StatusCode::CREATED, text);
    response::set(&mut response, header::LOCATION, location(invoked.view.job.id()));
    mark_replay(&mut response, invoked.is_replay);
    Ok(response)
}

/// The step to begin with.
fn first_step(body: Option<&Value>) -> ApiResult<Option<u32>> {
    let bad = || ApiError::bad_request("`from` must be the index of a step");
    match body {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Map(members)) => match members.field("from") {
            None | Some(Value::Nil) => Ok(None),
            Some(from) => {
                from.as_i64().and_then(|from| u32::try_from(from).ok()).map(Some).ok_or_else(bad)
            }
        },
        Some(_) => Err(ApiError::bad_request("the body must be an object")),
    }
}

fn changed(changed: Result<JobView, ControlError>) -> ApiResult<Response> {
    let view = changed?;
    let mut response = response::json(StatusCode::OK, job_json::of_view(&view)?);
    response::set(&mut response, header::ETAG, view.etag());
    Ok(response)
}

async fn delete(call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    call.door.engine.delete(&call.caller, id).await?;
    Ok(response::json(StatusCode::OK, format!("{{\"id\":\"{id}\",\"deleted\":true}}")))
}

async fn history(call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    let from = call.number("from")?.unwrap_or(0);
    let limit = call.limit()?.min(PAGE_MAX);
    let page = call.door.engine.history(&call.caller, id, from, limit).await?;
    Ok(response::json(StatusCode::OK, history_json(&page, from)?))
}

/// A page of records, cut where it becomes too long; `next` is then where it was cut.
fn history_json(page: &HistoryPage, from: u64) -> ApiResult<String> {
    let mut text = String::with_capacity(64 + page.records.len() * 256);
    text.push_str("{\"records\":[");
    let mut shown = 0;
    for record in &page.records {
        if shown > 0 {
            if text.len() > HISTORY_PAGE_BYTES_MAX {
                break;
            }
            text.push(',');
        }
        job_json::write_record(record, &page.cells, &mut text)?;
        shown += 1;
    }
    let _ = write!(text, "],\"total\":{}", page.total);
    let next = from.saturating_add(shown);
    if next < page.total {
        let _ = write!(text, ",\"next\":{next}");
    }
    text.push('}');
    Ok(text)
}

async fn follow(call: Call) -> ApiResult<Response> {
    let id = call.job_id()?;
    sse::check_accept(&call.head.headers)?;
    let progress = if call.flag("progress")? { Progress::Shown } else { Progress::Left };
    let after = after(&call)?;
    let reader = if call.is_bearer { Reader::Bearer } else { Reader::Caller(&call.caller) };
    let follow = call.door.engine.follow(reader, id, after).await?;
    Ok(sse::response(follow, progress, call.door.metrics.streaming()))
}

/// The last record that the client has seen.
fn after(call: &Call) -> ApiResult<Option<u64>> {
    match call.head.headers.get(LAST_EVENT_ID).map(HeaderValue::to_str) {
        None => call.number("after"),
        Some(Ok("")) => Ok(None),
        Some(text) => {
            text.ok().and_then(whole_number).map(Some).ok_or_else(|| {
                ApiError::bad_request("`Last-Event-ID` must be the index of a record")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_job::JobId;

    fn read_back(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_list_shows_bare_hex_and_records_show_0x() {
        let job = ListedJob {
            id: JobId::from_bytes([7; 16]),
            order: 1,
            status: Status::Started,
            op: "test:\"echo\"".to_owned(),
            created: 5,
            updated: 6,
        };
        let page = JobList { jobs: vec![job.clone(), job], total: 12 };
        let query = ListJobs::all(ListOrder::Oldest, 10, 2);
        let hex = "07".repeat(16);
        let plain = format!(r#"{{"items":["{hex}","{hex}"],"total":12,"offset":10,"limit":2}}"#);
        assert_eq!(page_json(&page, &query, false).unwrap(), plain);
        let expanded = read_back(&page_json(&page, &query, true).unwrap());
        let items = expanded.as_map().unwrap().field("items").unwrap().clone();
        let line = items.as_vector().unwrap().get(0, &NoCells).unwrap().unwrap();
        assert_eq!(line.as_map().unwrap().field("id"), Some(&format!("0x{hex}").into()));
        assert_eq!(line.as_map().unwrap().field("op"), Some(&"test:\"echo\"".into()));
    }

    #[test]
    fn a_message_is_acknowledged_as_cog_9_says() {
        let sent = Sent {
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
        let again = sent_value(&Sent { is_duplicate: true, ..sent });
        assert_eq!(again.as_map().unwrap().field("duplicate"), Some(&true.into()));
    }

    #[test]
    fn a_reason_is_a_string_if_it_is_there() {
        let of = |text: &str| reason(Some(&read_back(text)));
        assert_eq!(reason(None).unwrap(), None);
        assert_eq!(of(r#"{"reason":"late"}"#).unwrap().as_deref(), Some("late"));
        assert_eq!(of(r#"{"reason":null}"#).unwrap(), None);
        assert_eq!(of("null").unwrap(), None);
        assert!(of(r#"{"reason":5}"#).is_err());
        assert!(of(r#""late""#).is_err());
    }

    #[test]
    fn words_that_are_none_of_ours_are_refused() {
        assert_eq!(status("COMPLETE").unwrap(), Status::Complete);
        assert!(status("complete").is_err());
        assert_eq!(order(None).unwrap(), ListOrder::Oldest);
        assert!(order(Some("up")).is_err());
    }
}

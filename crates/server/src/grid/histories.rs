//! Histories of jobs that callers have imported: copies of chains, to be read and verified; and records by
//! their IDs.

use std::fmt::Write as _;

use axum::http::{HeaderName, Method, StatusCode, header};
use axum::response::Response;
use catena_engine::RootId;
use catena_engine::error::ImportError;
use catena_engine::limits::PAGE_MAX;
use catena_engine::requests::ImportedHistory;
use catena_engine::views::RecordSearch;
use catena_job::{JobId, Record, RecordId};
use catena_value::{CellSource, Map, Value};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::{self, write_value};
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{
    IF_NONE_MATCH, JSON, LIMIT, OFFSET, ROUTE, RequestBody, Route, empty_reply, query, reply,
};
use crate::limits::{HISTORY_BATCH_MAX, HISTORY_PAGE_BYTES_MAX};
use crate::values::{list, object};

/// Names the job of a record.
const JOB_HEADER: HeaderName = HeaderName::from_static("catena-job");

const VENUE: &str = "The DID of the job's venue.";
const JOB: &str = "The job's ID.";

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/api/v1/histories",
        tag: "Histories",
        summary: "Import a history",
        about: "Stores a copy of a job's history, for example one of another venue, after verifying it. It can \
                be read and is never run. Of a history that is known already, the records that are missing \
                are added; one that contradicts the known records is refused with `history_fork`. A job of \
                this venue is only compared. A document that begins with a later record names its `venue` \
                and `job`. Histories under `children` are imported as well.",
        body: Some(RequestBody {
            about: "The history, as `GET /api/v1/jobs/{id}/history` returns it.",
            media: JSON,
            schema: r##"{"allOf":[{"$ref":"#/components/schemas/History"}],"properties":{
                "venue":{"type":"string"},"job":{"type":"string"},"children":{"type":"object"}}}"##,
            is_required: true,
        }),
        replies: &[reply(
            200,
            "What is known of each history now. `added` is the number of new records.",
            r#"{"type":"object","required":["imported"],"properties":{"imported":{"type":"array","items":{
                "type":"object","required":["venue","job","records","added","head","status"],"properties":{
                "venue":{"type":"string"},"job":{"type":"string"},"records":{"type":"integer"},
                "added":{"type":"integer"},"head":{"type":"string"},"status":{"type":"string"},
                "path":{"type":"string"},"local":{"type":"boolean"}}}}}}"#,
        )],
        errors: &[
            Code::BadRequest,
            Code::InvalidJson,
            Code::HistoryInvalid,
            Code::HistoryFork,
            Code::QuotaFull,
            Code::BodyTooLarge,
            Code::Forbidden,
        ],
        handler: |request| Box::pin(import(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/histories",
        tag: "Histories",
        summary: "List imported histories",
        about: "Ordered by the hashes of venue and job.",
        parameters: &[OFFSET, LIMIT],
        replies: &[reply(
            200,
            "A page of histories.",
            r#"{"type":"object","required":["items","total","offset","limit"],"properties":{
                "items":{"type":"array","items":{"type":"object"}},"total":{"type":"integer"},
                "bytes":{"type":"integer"},"offset":{"type":"integer"},"limit":{"type":"integer"}}}"#,
        )],
        errors: &[Code::BadRequest],
        handler: |request| Box::pin(list_imported(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/histories/{venue}/{job}",
        path_parameter: VENUE,
        second_parameter: JOB,
        tag: "Histories",
        summary: "Read an imported history",
        about: "In the form of a job's own history.",
        parameters: &[
            query("from", r#"{"type":"integer","minimum":0}"#, "The index of the first record."),
            LIMIT,
        ],
        replies: &[reply(
            200,
            "A page of records.",
            r##"{"$ref":"#/components/schemas/History"}"##,
        )],
        errors: &[Code::BadRequest, Code::InvalidJobId, Code::HistoryNotFound],
        handler: |request| Box::pin(read(request)),
        ..ROUTE
    },
    Route {
        method: Method::DELETE,
        path: "/api/v1/histories/{venue}/{job}",
        path_parameter: VENUE,
        second_parameter: JOB,
        tag: "Histories",
        summary: "Remove an imported history",
        replies: &[reply(200, "It is removed.", r#"{"type":"object"}"#)],
        errors: &[Code::InvalidJobId, Code::HistoryNotFound],
        handler: |request| Box::pin(remove(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/records/{record}",
        path_parameter: "The Value ID of a record.",
        tag: "Jobs",
        summary: "Find a record by its ID",
        about: "Searches the records of the caller's jobs, newest first, of their sub-jobs, and of \
                imported histories. Returns exactly \
                the JSON whose Value ID is in the path, which is also the entity tag; `Catena-Job` names the \
                job. If not all records could be read, the error has `next`, the value of `after` with which \
                the search continues. Whoever knows the job finds the record faster with \
                `/api/v1/jobs/{id}/records/{record}`.",
        parameters: &[
            query("after", r#"{"type":"integer","minimum":0}"#, "Where to continue a search."),
            IF_NONE_MATCH,
        ],
        replies: &[
            reply(200, "The record.", r#"{"type":"object"}"#),
            empty_reply(304, "The record still matches `If-None-Match`."),
        ],
        errors: &[Code::BadRequest, Code::RecordNotFound],
        handler: |request| Box::pin(find_record(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/jobs/{id}/records/{record}",
        path_parameter: "The job's ID: 32 hex digits, with or without `0x`, or a UUID.",
        second_parameter: "The Value ID of a record.",
        tag: "Jobs",
        summary: "Read a record by its ID",
        about: "Returns exactly the JSON whose Value ID is in the path, which is also the entity tag. A record \
                never changes.",
        parameters: &[IF_NONE_MATCH],
        replies: &[
            reply(200, "The record.", r#"{"type":"object"}"#),
            empty_reply(304, "The record still matches `If-None-Match`."),
        ],
        errors: &[Code::InvalidJobId, Code::JobNotFound, Code::JobDeleted, Code::RecordNotFound],
        handler: |request| Box::pin(record(request)),
        ..ROUTE
    },
];

impl From<ImportError> for ApiError {
    fn from(error: ImportError) -> Self {
        let text = error.to_string();
        match error {
            ImportError::Forbidden(_) => ApiError::new(Code::Forbidden, text),
            ImportError::Invalid(fault) => {
                ApiError::new(Code::HistoryInvalid, text).member("fault", fault.to_value())
            }
            ImportError::Fork { venue, job, record, known, found } => {
                ApiError::new(Code::HistoryFork, text)
                    .member("venue", venue)
                    .member("job", job.to_string())
                    .member("record", crate::values::count(record))
                    .member("known", known)
                    .member("found", found)
            }
            ImportError::Full(_) => ApiError::new(Code::QuotaFull, text),
            ImportError::Store(error) => error.into(),
        }
    }
}

async fn import(mut request: ApiRequest) -> ApiResult<Response> {
    let document = json::parse(&request.read_body().await?)?;
    let imported = request.state.engine.import_history(&request.caller, document).await?;
    let imported = imported.iter().map(imported_to_value);
    Ok(response::value(StatusCode::OK, &object([("imported", list(imported))])))
}

fn imported_to_value(history: &ImportedHistory) -> Value {
    let ImportedHistory { venue, job, records, added, head, status, is_local } = history;
    let path = if *is_local { format!("h/{job}") } else { format!("h/{venue}/{job}") };
    object([
        ("venue", venue.as_str().into()),
        ("job", (*job).into()),
        ("records", crate::values::count(*records)),
        ("added", crate::values::count(*added)),
        ("head", head.as_str().into()),
        ("status", (*status).into()),
        ("path", path.into()),
        ("local", (*is_local).into()),
    ])
}

async fn list_imported(request: ApiRequest) -> ApiResult<Response> {
    let offset = request.number("offset")?.unwrap_or(0);
    let limit = request.limit()?.min(PAGE_MAX);
    let roots = request.state.engine.roots(&request.caller, vec![RootId::histories()]).await?;
    let index = roots.get(&RootId::histories()).map_err(|failure| damaged(&failure.error))?;
    let index = index.and_then(Value::as_map).cloned().unwrap_or_default();
    let number = |name: &str| index.field(name).cloned().unwrap_or_else(|| 0.into());
    let venues = index.get(&"venues".into(), roots.cells()).map_err(|error| damaged(&error))?;
    let venues = venues.as_ref().and_then(Value::as_map).cloned().unwrap_or_default();
    let mut items = Vec::new();
    let mut skip = offset;
    for venue in venues.iter(roots.cells()) {
        let (venue, jobs) = venue.map_err(|error| damaged(&error))?;
        let Value::Map(jobs) = jobs else { continue };
        if skip >= jobs.len() {
            skip -= jobs.len();
            continue;
        }
        for job in jobs.iter_from(skip, roots.cells()).take(limit - items.len()) {
            let (job, summary) = job.map_err(|error| damaged(&error))?;
            let summary = summary.fully_loaded(roots.cells()).map_err(|error| damaged(&error))?;
            let mut members: Map = summary.as_map().cloned().unwrap_or_default();
            for (name, value) in [("venue", venue.clone()), ("job", job)] {
                members = crate::values::with_member(&members, name, value);
            }
            items.push(Value::from(members));
        }
        skip = 0;
        if items.len() == limit {
            break;
        }
    }
    let page = object([
        ("items", list(items)),
        ("total", number("count")),
        ("bytes", number("bytes")),
        ("offset", crate::values::count(offset)),
        ("limit", crate::values::count(limit as u64)),
    ]);
    Ok(response::value(StatusCode::OK, &page))
}

fn damaged(reason: &dyn std::fmt::Display) -> ApiError {
    tracing::error!(%reason, "an imported history cannot be read");
    ApiError::new(Code::StoreDamaged, "stored data is damaged")
}

/// The venue and the job in a path.
fn key(request: &ApiRequest) -> ApiResult<(String, JobId)> {
    let venue = request.path_argument()?.into_owned();
    let job = request.second_path_argument()?;
    let invalid = |_| ApiError::new(Code::InvalidJobId, format!("`{job}` is not a job ID"));
    Ok((venue, job.parse().map_err(invalid)?))
}

fn not_found() -> ApiError {
    ApiError::new(Code::HistoryNotFound, "there is no such imported history")
}

async fn read(request: ApiRequest) -> ApiResult<Response> {
    let (venue, job) = key(&request)?;
    let from = request.number("from")?.unwrap_or(0);
    let limit = request.limit()?.min(PAGE_MAX);
    // The semaphore is never closed.
    let _turn = request.state.long_reads.acquire().await.ok();
    let root = RootId::history(&venue, job);
    let roots = request.state.engine.roots(&request.caller, vec![root.clone()]).await?;
    let stored = roots.get(&root).map_err(|failure| damaged(&failure.error))?;
    let stored = stored.and_then(Value::as_map).ok_or_else(not_found)?;
    let records = stored.get(&"records".into(), roots.cells()).map_err(|error| damaged(&error))?;
    let records = records.as_ref().and_then(Value::as_vector);
    let records = records.ok_or_else(|| damaged(&"it has no records"))?;
    let mut text = String::from("{\"records\":[");
    let mut written = 0u64;
    for entry in records.iter_from(from, roots.cells()).take(limit) {
        if written > 0 {
            if text.len() > HISTORY_PAGE_BYTES_MAX {
                break;
            }
            text.push(',');
        }
        let entry = entry.map_err(|error| damaged(&error))?;
        write_value(&entry, roots.cells(), &mut text)?;
        written += 1;
    }
    let _ = write!(text, "],\"total\":{}", records.len());
    let next = from.saturating_add(written);
    if next < records.len() {
        let _ = write!(text, ",\"next\":{next}");
    }
    text.push('}');
    Ok(response::json(StatusCode::OK, text))
}

async fn remove(request: ApiRequest) -> ApiResult<Response> {
    let (venue, job) = key(&request)?;
    if !request.state.engine.remove_history(&request.caller, &venue, job).await? {
        return Err(not_found());
    }
    let removed =
        object([("venue", Value::from(venue)), ("job", job.into()), ("removed", true.into())]);
    Ok(response::value(StatusCode::OK, &removed))
}

/// A record of any job of the caller.
async fn find_record(request: ApiRequest) -> ApiResult<Response> {
    let text = request.path_argument()?.into_owned();
    let text = text.trim_start_matches("0x").to_ascii_lowercase();
    let invalid = |_| ApiError::bad_request(format!("`{text}` is not a Value ID"));
    let wanted: RecordId = format!("0x{text}").parse().map_err(invalid)?;
    let after = request.number("after")?;
    // The semaphore is never closed.
    let _turn = request.state.long_reads.acquire().await.ok();
    match request.state.engine.find_record(&request.caller, wanted, after).await? {
        RecordSearch::Found { job, record, cells } => {
            record_response(&request, job, &record.to_value(), &cells, wanted)
        }
        RecordSearch::Missing { next: Some(next) } => {
            let text = format!("record {wanted} is not among those that were read");
            let error = ApiError::new(Code::RecordNotFound, text);
            Err(error.member("next", crate::values::count(next)))
        }
        RecordSearch::Missing { next: None } => find_imported(&request, wanted).await,
    }
}

/// A record of an imported history.
async fn find_imported(request: &ApiRequest, wanted: RecordId) -> ApiResult<Response> {
    let text = wanted.to_string();
    for (venue, job) in imported_jobs(request).await? {
        let root = RootId::history(&venue, job);
        let roots = request.state.engine.roots(&request.caller, vec![root.clone()]).await?;
        let stored = roots.get(&root).map_err(|failure| damaged(&failure.error))?;
        let Some(stored) = stored.and_then(Value::as_map) else { continue };
        let records = stored.get(&"records".into(), roots.cells());
        let records = records.map_err(|error| damaged(&error))?;
        let Some(records) = records.as_ref().and_then(Value::as_vector) else { continue };
        for entry in records.iter(roots.cells()) {
            let entry = entry.and_then(|entry| entry.loaded(roots.cells()));
            let entry = entry.map_err(|error| damaged(&error))?;
            let field = |name: &str| entry.as_map().and_then(|entry| entry.field(name));
            if field("id").and_then(Value::as_str) == Some(&text) {
                let record = field("record").cloned().unwrap_or_default();
                return record_response(request, job, &record, roots.cells(), wanted);
            }
        }
        tokio::task::yield_now().await;
    }
    Err(ApiError::new(Code::RecordNotFound, format!("the caller has no record {wanted}")))
}

/// The venues and jobs of the histories that the caller has imported.
async fn imported_jobs(request: &ApiRequest) -> ApiResult<Vec<(String, JobId)>> {
    let roots = request.state.engine.roots(&request.caller, vec![RootId::histories()]).await?;
    let index = roots.get(&RootId::histories()).map_err(|failure| damaged(&failure.error))?;
    let index = index.and_then(Value::as_map).cloned().unwrap_or_default();
    let venues = index.get(&"venues".into(), roots.cells()).map_err(|error| damaged(&error))?;
    let venues = venues.as_ref().and_then(Value::as_map).cloned().unwrap_or_default();
    let mut found = Vec::new();
    for venue in venues.iter(roots.cells()) {
        let (venue, jobs) = venue.map_err(|error| damaged(&error))?;
        let Value::Map(jobs) = jobs else { continue };
        for job in jobs.keys_from(0, roots.cells()) {
            let job = job.map_err(|error| damaged(&error))?;
            let job = job.as_str().and_then(|job| job.parse().ok());
            found.extend(venue.as_str().map(str::to_owned).zip(job));
        }
    }
    Ok(found)
}

fn record_response(
    request: &ApiRequest,
    job: JobId,
    record: &Value,
    cells: &dyn CellSource,
    id: RecordId,
) -> ApiResult<Response> {
    let etag = format!("\"{id}\"");
    let mut response = if request.matches_etag(&etag) {
        response::empty(StatusCode::NOT_MODIFIED)
    } else {
        let mut text = String::new();
        write_value(record, cells, &mut text)?;
        response::json(StatusCode::OK, text)
    };
    response::set_header(&mut response, header::ETAG, etag);
    response::set_header(&mut response, JOB_HEADER, job.to_string());
    Ok(response)
}

/// A record of a job. It is searched from the first record on, in batches.
async fn record(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let wanted = request.second_path_argument()?.trim_start_matches("0x").to_ascii_lowercase();
    let ApiRequest { state, caller, .. } = &request;
    let mut from = 0;
    loop {
        // The semaphore is never closed.
        let turn = state.long_reads.acquire().await.ok();
        let page = state.engine.history(caller, id, from, HISTORY_BATCH_MAX).await?;
        let is_wanted =
            |record: &&Record| record.id().to_string().trim_start_matches("0x") == wanted;
        if let Some(found) = page.records.iter().find(is_wanted) {
            let record = found.to_value();
            return record_response(&request, id, &record, &page.cells, found.id());
        }
        from += page.records.len() as u64;
        if page.records.is_empty() || from >= page.total {
            let text = format!("job {id} has no record 0x{wanted}");
            return Err(ApiError::new(Code::RecordNotFound, text));
        }
        drop(turn);
        tokio::task::yield_now().await;
    }
}

//! The records of a job.

use std::fmt::Write as _;

use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::limits::PAGE_MAX;
use catena_engine::requests::HistoryPage;

use crate::grid::job_json::{self, VALUES, Values};
use crate::grid::jobs::{ID, READ_ERRORS};
use crate::http::error::ApiResult;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{LIMIT, ROUTE, Route, query, reply};
use crate::limits::{HISTORY_BATCH_MAX, HISTORY_PAGE_BYTES_MAX};

pub(crate) const ROUTES: &[Route] = &[Route {
    path: "/api/v1/jobs/{id}/history",
    path_parameter: ID,
    tag: "Jobs",
    summary: "Read a job's records",
    about: "Oldest first. `record` is exactly the JSON whose Value ID is `id`, except if \
            `omittedMembers` is next to it. If there are more records, `next` is the value of `from` for the next page.",
    parameters: &[
        query("from", r#"{"type":"integer","minimum":0}"#, "The index of the first record."),
        LIMIT,
        VALUES,
    ],
    replies: &[reply(200, "A page of records.", r##"{"$ref":"#/components/schemas/History"}"##)],
    errors: READ_ERRORS,
    handler: |request| Box::pin(history(request)),
    ..ROUTE
}];

/// A page of records, cut off where it becomes too long. `next` is then the first record left out.
///
/// It is read and written in batches, and only a few requests do that at a time: many long pages would
/// otherwise occupy every thread, and small requests would wait for all of them.
async fn history(request: ApiRequest) -> ApiResult<Response> {
    let id = request.job_id()?;
    let from = request.number("from")?.unwrap_or(0);
    let limit = request.limit()?.min(PAGE_MAX);
    let ApiRequest { state, caller, .. } = &request;
    let values = Values::from_request(&request)?;
    let mut text = String::from("{\"records\":[");
    let mut written = 0;
    let total = loop {
        let batch = (limit - written).min(HISTORY_BATCH_MAX);
        // The semaphore is never closed.
        let turn = state.long_reads.acquire().await.ok();
        let first = from.saturating_add(written as u64);
        let page = state.engine.history(caller, id, first, batch).await?;
        let added = write_records(&page, values, first, &mut text)?;
        drop(turn);
        written += added;
        if added == 0 || added < batch || written == limit || text.len() > HISTORY_PAGE_BYTES_MAX {
            break page.total;
        }
        tokio::task::yield_now().await;
    };
    let _ = write!(text, "],\"total\":{total}");
    let next = from.saturating_add(written as u64);
    if next < total {
        let _ = write!(text, ",\"next\":{next}");
    }
    text.push('}');
    Ok(response::json(StatusCode::OK, text))
}

/// Appends records, the first of which has the index `first`, to a page until it is too long. Returns
/// how many.
fn write_records(
    page: &HistoryPage,
    values: Values,
    first: u64,
    text: &mut String,
) -> ApiResult<usize> {
    let mut written = 0;
    for record in &page.records {
        let is_first = text.ends_with('[');
        if !is_first && text.len() > HISTORY_PAGE_BYTES_MAX {
            break;
        }
        if !is_first {
            text.push(',');
        }
        let is_last = first.saturating_add(written as u64) + 1 == page.total;
        let signature = page.signature.as_ref().filter(|_| is_last);
        job_json::write_record(record, values, signature, &page.cells, text)?;
        written += 1;
    }
    Ok(written)
}

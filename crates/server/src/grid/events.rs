//! Events of all jobs that match a filter, as one stream.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::views::{EventCounts, Events, ListEvent, ListEventKind};
use catena_value::{Map, NoCells, Value};

use crate::grid::jobs::{FILTER, job_filter, last_event_id, listed_value};
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::write_value;
use crate::http::request::ApiRequest;
use crate::http::route::{ANY, ROUTE, Reply, Route, in_header, query};
use crate::http::sse;
use crate::limits::HEARTBEAT;
use crate::metrics::StreamGuard;
use crate::values::{count, object};

/// How long clients wait before they reconnect, in milliseconds.
const RETRY_MS: u32 = 1_000;

pub(crate) const ROUTES: &[Route] = &[Route {
    path: "/api/v1/events",
    tag: "Jobs",
    summary: "Follow all jobs",
    about: "Streams the changes of all jobs that match the filter, which is that of the list. `id` is \
            the position of a change in the order of commits. With `Last-Event-ID`, the stream first \
            sends what has changed since then, or `reset` if that is too long ago. `ready` says that \
            the client has everything; then changes are sent as they happen: `job` with the entry of \
            the list, `deleted` with the ID or, if many jobs change, `counts` by status. A stream \
            sends at most 20 frames a second.",
    parameters: &[
        in_header(
            "Last-Event-ID",
            r#"{"type":"string"}"#,
            "The position of the last event that the client has received.",
        ),
        query(
            "after",
            r#"{"type":"integer","minimum":0}"#,
            "The same, for clients that cannot set headers.",
        ),
        FILTER[0],
        FILTER[1],
        FILTER[2],
        FILTER[3],
        FILTER[4],
        FILTER[5],
        FILTER[6],
        FILTER[7],
    ],
    replies: &[Reply {
        status: 200,
        about: "The event stream.",
        body: Some(("text/event-stream", ANY)),
    }],
    errors: &[Code::BadRequest, Code::Forbidden, Code::NotAcceptable],
    handler: |request| Box::pin(follow_jobs(request)),
    ..ROUTE
}];

async fn follow_jobs(request: ApiRequest) -> ApiResult<Response> {
    sse::check_accept(&request.head.headers)?;
    let filter = job_filter(&request)?;
    let after = last_event_id(&request)?;
    let events = request.state.engine.events(&request.caller, &filter, after).await?;
    let events = events.ok_or_else(|| {
        ApiError::new(Code::Forbidden, "only admins can follow the jobs of others")
    })?;
    let guard = request.state.metrics.count_stream();
    Ok(sse::event_stream(StatusCode::OK, stream(events, guard)))
}

/// A body that is written as the client reads it: a slow client delays only itself.
fn stream(events: Events, guard: StreamGuard) -> Body {
    let state = (events, guard, Some(RETRY_MS));
    Body::from_stream(futures_util::stream::unfold(
        state,
        |(mut events, guard, retry)| async move {
            let text = match tokio::time::timeout(HEARTBEAT, events.next()).await {
                Err(_) => {
                    let comment = Bytes::from_static(sse::HEARTBEAT_COMMENT);
                    return Some((Ok::<_, Infallible>(comment), (events, guard, retry)));
                }
                Ok(Ok(Some(event))) => frame(&event, retry),
                Ok(Ok(None)) => return None,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "an event stream ended early");
                    return None;
                }
            };
            let text =
                text.inspect_err(|error| tracing::warn!(?error, "an event cannot be written"));
            Some((Ok(Bytes::from(text.ok()?)), (events, guard, None)))
        },
    ))
}

fn frame(event: &ListEvent, retry: Option<u32>) -> ApiResult<String> {
    let (name, data) = match &event.kind {
        ListEventKind::Ready => ("ready", Map::default().into()),
        ListEventKind::Changed(job) => ("job", listed_value(job, true)),
        ListEventKind::Deleted(id) => ("deleted", object([("id", Value::from(*id))])),
        ListEventKind::Counts(counts) => ("counts", counts_value(counts)),
        ListEventKind::Reset => ("reset", Map::default().into()),
    };
    let mut text = String::new();
    write_value(&data, &NoCells, &mut text)?;
    Ok(sse::frame(name, Some(event.position), &text, retry))
}

fn counts_value(counts: &EventCounts) -> Value {
    let by_status = counts.by_status.iter();
    let by_status: Map = by_status.map(|(status, n)| (status.as_str(), count(*n))).collect();
    let mut members = vec![("counts", Value::from(by_status)), ("deleted", count(counts.deleted))];
    if counts.is_at_least {
        members.push(("atLeast", true.into()));
    }
    object(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_job::Status;

    #[test]
    fn counts_name_the_statuses() {
        let counts = EventCounts {
            by_status: [(Status::Complete, 3)].into(),
            deleted: 1,
            is_at_least: true,
        };
        let event = ListEvent { position: 7, kind: ListEventKind::Counts(counts) };
        assert_eq!(
            frame(&event, None).unwrap(),
            "event: counts\nid: 7\ndata: {\"deleted\":1,\"counts\":{\"COMPLETE\":3},\"atLeast\":true}\n\n"
        );
    }
}

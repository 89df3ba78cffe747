//! Reading the caller's agents, without creating a job.

use axum::http::StatusCode;
use axum::response::Response;
use catena_engine::error::RunError;
use catena_engine::requests::Invoke;
use catena_value::{CellSource, Map, NoCells, Value, Vector};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::write_value;
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{ROUTE, Route, query, reply};

pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/agents",
        tag: "Agents",
        summary: "List agents",
        about: "The caller's agents, ordered by ID.",
        parameters: &[
            query("includeTerminated", r#"{"type":"boolean"}"#, "Also agents that have ended."),
            query("status", r#"{"type":"boolean"}"#, "If false, only the IDs are listed."),
        ],
        replies: &[reply(
            200,
            "The agents.",
            r#"{"type":"object","properties":{"agents":{"type":"array"}}}"#,
        )],
        errors: &[Code::BadRequest],
        handler: |request| Box::pin(list(request)),
        ..ROUTE
    },
    Route {
        path: "/api/v1/agents/{id}",
        path_parameter: "The ID of an agent.",
        tag: "Agents",
        summary: "Describe an agent",
        about: "Its record can be read with `/api/v1/values/read?path=g/<id>/…`.",
        replies: &[reply(
            200,
            "Status, configuration and figures of the agent.",
            r#"{"type":"object"}"#,
        )],
        errors: &[Code::AgentNotFound, Code::BadRequest],
        handler: |request| Box::pin(read(request)),
        ..ROUTE
    },
];

async fn list(request: ApiRequest) -> ApiResult<Response> {
    let all = request.flag("includeTerminated")?;
    let input: Map = [("includeTerminated", Value::from(all))].into_iter().collect();
    let is_short = request.parameter("status")?.is_some() && !request.flag("status")?;
    let (output, text) = run(&request, "agent:list", input.into()).await?;
    if !is_short {
        return Ok(response::json(StatusCode::OK, text));
    }
    let agents = output.as_map().and_then(|map| map.field("agents")).and_then(Value::as_vector);
    let mut ids = Vec::new();
    for agent in agents.into_iter().flat_map(|agents| agents.iter(&NoCells)) {
        let agent = agent.map_err(|error| ApiError::new(Code::StoreDamaged, error.to_string()))?;
        ids.extend(agent.as_map().and_then(|map| map.field("agentId")).cloned());
    }
    let ids: Map = [("agents", Value::from(Vector::from_items(ids)))].into_iter().collect();
    Ok(response::value(StatusCode::OK, &ids.into()))
}

async fn read(request: ApiRequest) -> ApiResult<Response> {
    let id = request.path_argument()?.into_owned();
    let input: Map = [("agentId", Value::from(id))].into_iter().collect();
    let (_, text) = run(&request, "agent:info", input.into()).await?;
    Ok(response::json(StatusCode::OK, text))
}

/// Runs a read-only operation. Returns its output, also as JSON.
async fn run(request: &ApiRequest, operation: &str, input: Value) -> ApiResult<(Value, String)> {
    let invoke = Invoke::new(request.caller.clone(), operation, input);
    let ran = request.state.engine.run(invoke).await.map_err(refused)?;
    let cells = ran.cells.as_ref().map_or(&NoCells as &dyn CellSource, |cells| cells);
    let mut text = String::new();
    write_value(&ran.output, cells, &mut text)?;
    Ok((ran.output, text))
}

/// A read that failed because of the request is the client's error, not that of a job.
fn refused(error: RunError) -> ApiError {
    match error {
        RunError::Ended(ended) if ended.code.as_deref() == Some("agent_not_found") => {
            ApiError::new(Code::AgentNotFound, ended.error)
        }
        RunError::Ended(ended)
            if ended.status == catena_job::Status::Rejected
                || ended.code.as_deref() == Some("invalid_input") =>
        {
            ApiError::bad_request(ended.error)
        }
        error => error.into(),
    }
}

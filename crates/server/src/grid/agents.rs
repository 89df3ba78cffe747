//! The caller's agents and their requests to people. Reading them creates no job.

use axum::http::{Method, StatusCode};
use axum::response::Response;
use catena_engine::error::RunError;
use catena_engine::requests::Invoke;
use catena_value::{CellSource, Map, NoCells, Value, Vector};

use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::json::{self, write_value};
use crate::http::request::ApiRequest;
use crate::http::response;
use crate::http::route::{JSON, ROUTE, RequestBody, Route, query, reply};

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
    Route {
        path: "/api/v1/requests",
        tag: "Agents",
        summary: "List requests to people",
        about: "The questions of the caller's agents and jobs that wait for an answer, oldest first.",
        parameters: &[
            query("agent", r#"{"type":"string"}"#, "Those of one agent."),
            query("all", r#"{"type":"boolean"}"#, "Also those that were answered or closed."),
        ],
        replies: &[reply(
            200,
            "The requests.",
            r#"{"type":"object","required":["requests"],"properties":{"requests":{"type":"array"}}}"#,
        )],
        errors: &[Code::BadRequest],
        handler: |request| Box::pin(requests(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/api/v1/requests/{id}",
        path_parameter: "The ID of a request.",
        tag: "Agents",
        summary: "Answer a request",
        about: "A request is answered once. The agent or the job that asked gets the answer as a message. The \
                change is a job of `agent:answer`.",
        body: Some(RequestBody {
            about: "The answer: any value, one of the options of the request, or what fits its schema.",
            media: JSON,
            schema: r#"{"type":"object","required":["answer"],"properties":{"answer":{}}}"#,
            is_required: true,
        }),
        replies: &[reply(
            200,
            "It is answered.",
            r#"{"type":"object","required":["requestId","status"],"properties":{
                "requestId":{"type":"string"},"status":{"type":"string"}}}"#,
        )],
        errors: &[
            Code::BadRequest,
            Code::InvalidJson,
            Code::BodyTooLarge,
            Code::Forbidden,
            Code::RequestNotFound,
            Code::RequestAnswered,
        ],
        handler: |request| Box::pin(answer(request)),
        ..ROUTE
    },
];

async fn requests(request: ApiRequest) -> ApiResult<Response> {
    let mut input = vec![("all", Value::from(request.flag("all")?))];
    input.extend(request.parameter("agent")?.map(|agent| ("agentId", agent.as_ref().into())));
    let input: Map = input.into_iter().collect();
    let (_, text) = run(&request, "agent:requests", input.into()).await?;
    Ok(response::json(StatusCode::OK, text))
}

async fn answer(mut request: ApiRequest) -> ApiResult<Response> {
    let body = json::parse(&request.read_body().await?)?;
    let id = request.path_argument()?.into_owned();
    let answer = body.as_map().and_then(|body| body.field("answer"));
    let answer = answer.ok_or_else(|| ApiError::bad_request("`answer` is missing"))?.clone();
    let input: Map = [("requestId", Value::from(id)), ("answer", answer)].into_iter().collect();
    let (_, text) = run(&request, "agent:answer", input.into()).await?;
    Ok(response::json(StatusCode::OK, text))
}

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

/// Runs an operation. Returns its output, also as JSON.
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
        RunError::Ended(ended) if ended.code.as_deref() == Some("request_not_found") => {
            ApiError::new(Code::RequestNotFound, ended.error)
        }
        RunError::Ended(ended) if ended.code.as_deref() == Some("request_answered") => {
            ApiError::new(Code::RequestAnswered, ended.error)
        }
        RunError::Ended(ended) if ended.code.as_deref() == Some("forbidden") => {
            ApiError::new(Code::Forbidden, ended.error)
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

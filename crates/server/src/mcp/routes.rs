//! The routes of the MCP endpoint.

use axum::http::Method;

use crate::http::error::Code;
use crate::http::route::{
    ANY, Access, IDEMPOTENCY_KEY, JSON, ROUTE, Reply, RequestBody, Route, empty_reply, in_header,
    reply,
};
use crate::mcp::{dispatch, server_info};

const MESSAGE: &str = r##"{"$ref":"#/components/schemas/RpcMessage"}"##;
const ERROR: &str = r##"{"anyOf":[{"$ref":"#/components/schemas/RpcError"},{"$ref":"#/components/schemas/Error"}]}"##;

const DISCOVERY: Route = Route {
    tag: "MCP",
    summary: "Find the MCP endpoint",
    access: Access::Public,
    replies: &[reply(
        200,
        "The URL of the endpoint and the revisions that it supports.",
        r#"{"type":"object","required":["mcp_version","server_url","endpoint"]}"#,
    )],
    handler: |request| Box::pin(server_info::well_known(request)),
    ..ROUTE
};

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/mcp",
        tag: "MCP",
        access: Access::Delegated,
        summary: "Send an MCP message",
        about: "Operations are tools and jobs are tasks. Every published revision is supported, \
                without sessions. A tool call creates a job; if it takes long, the response is an \
                event stream.",
        parameters: &[
            in_header(
                "MCP-Protocol-Version",
                r#"{"type":"string"}"#,
                "The revision. Defaults to 2025-03-26.",
            ),
            in_header("Mcp-Method", r#"{"type":"string"}"#, "From 2026-07-28 on: the method."),
            in_header(
                "Mcp-Name",
                r#"{"type":"string"}"#,
                "From 2026-07-28 on: the name of the tool or the ID of the task.",
            ),
            IDEMPOTENCY_KEY,
        ],
        body: Some(RequestBody {
            about: "A JSON-RPC message. Revisions before 2025-06-18 also allow an array of messages.",
            media: JSON,
            schema: MESSAGE,
            is_required: true,
        }),
        replies: &[
            reply(200, "The response, as JSON or as the last event of a stream.", ANY),
            Reply {
                status: 200,
                about: "",
                body: Some(("text/event-stream", r#"{"type":"string"}"#)),
            },
            empty_reply(202, "A notification was accepted."),
            reply(400, "The message is invalid, or contradicts its headers.", ERROR),
            reply(404, "From 2026-07-28 on: there is no such method.", ERROR),
            reply(409, "From 2026-07-28 on: see the error code in `data`.", ERROR),
            reply(422, "From 2026-07-28 on: see the error code in `data`.", ERROR),
            reply(429, "From 2026-07-28 on: a limit was reached and nothing was changed.", ERROR),
        ],
        errors: &[Code::BodyTooLarge],
        handler: |request| Box::pin(dispatch::post(request)),
        ..ROUTE
    },
    Route { path: "/.well-known/mcp", ..DISCOVERY },
    Route { path: "/.well-known/mcp.json", ..DISCOVERY },
];

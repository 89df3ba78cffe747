//! The MCP door: one endpoint, and the documents that lead to it.

use axum::http::Method;

use crate::http::error::Code;
use crate::mcp;
use crate::routes::{
    ANY, Access, IDEMPOTENCY, JSON, ROUTE, Reply, Route, Taken, bare, in_header, reply,
};

const MESSAGE: &str = r##"{"$ref":"#/components/schemas/RpcMessage"}"##;
const REFUSED: &str = r##"{"anyOf":[{"$ref":"#/components/schemas/RpcError"},{"$ref":"#/components/schemas/Error"}]}"##;

const DISCOVERY: Route = Route {
    tag: "MCP",
    summary: "Find the MCP endpoint",
    access: Access::Public,
    replies: &[reply(
        200,
        "Where it is and what it speaks.",
        r#"{"type":"object","required":["mcp_version","server_url","endpoint"]}"#,
    )],
    handler: |call| Box::pin(mcp::well_known(call)),
    ..ROUTE
};

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/mcp",
        tag: "MCP",
        summary: "Speak MCP",
        about: "Operations as tools, jobs as tasks, in every published revision, without sessions. \
                A call makes a job; one that takes long is answered as an event stream.",
        parameters: &[
            in_header(
                "MCP-Protocol-Version",
                r#"{"type":"string"}"#,
                "The revision; 2025-03-26 when left out.",
            ),
            in_header("Mcp-Method", r#"{"type":"string"}"#, "From 2026-07-28 on: the method."),
            in_header("Mcp-Name", r#"{"type":"string"}"#, "From 2026-07-28 on: the tool or task."),
            IDEMPOTENCY,
        ],
        body: Some(Taken {
            about: "A JSON-RPC message; in revisions before 2025-06-18 also several.",
            media: JSON,
            schema: MESSAGE,
            is_required: true,
        }),
        replies: &[
            reply(200, "The answer, as JSON or as the last event of a stream.", ANY),
            Reply {
                status: 200,
                about: "",
                body: Some(("text/event-stream", r#"{"type":"string"}"#)),
            },
            bare(202, "A notification was taken."),
            reply(400, "The message is wrong, or says something else than its headers.", REFUSED),
            reply(404, "From 2026-07-28 on: there is no such method.", REFUSED),
            reply(409, "From 2026-07-28 on: as the code in `data` says.", REFUSED),
            reply(422, "From 2026-07-28 on: as the code in `data` says.", REFUSED),
            reply(429, "From 2026-07-28 on: too much; nothing happened.", REFUSED),
        ],
        errors: &[Code::BodyTooLarge],
        handler: |call| Box::pin(mcp::post(call)),
        ..ROUTE
    },
    Route { path: "/.well-known/mcp", ..DISCOVERY },
    Route { path: "/.well-known/mcp.json", ..DISCOVERY },
];

//! The MCP endpoint: tools, calls, questions, tasks, in every published revision.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "mcp/calls.rs"]
mod calls;
#[path = "mcp/prompts.rs"]
mod prompts;
#[path = "mcp/protocol.rs"]
mod protocol;
#[path = "mcp/tasks.rs"]
mod tasks;
#[path = "mcp/tools.rs"]
mod tools;

//! The MCP endpoint: operations as tools, jobs as tasks.
//!
//! Every request is self-contained. What a client can do is read from the request itself
//! (2026-07-28) or from the revision and the session ID that it names (the older revisions, whose handshake
//! changes nothing here), so nothing is kept for a session, and any replica can respond. A call is a job like
//! any other: durable, owned by the caller, listed, and not ended when its client stops waiting.
//!
//! Files, in reading order: `routes`, `dispatch` (a POST becomes method calls), `json_rpc`
//! (messages and errors), `revision`, `client` (what a client speaks and supports), `params`,
//! `context` (a request with its caller and client), `server_info`, `list_tools`, `call_tool`,
//! `wait` (for a job to settle), `snapshot` (a job at one record), `call_result` (a job as the
//! result of a call), `media` (images, audio and documents in it), `resources`, `prompts`, `elicitation` (a job that needs input),
//! `questions` (the same within the response of a call), `tasks` (jobs as tasks),
//! `subscriptions` (task notifications), `rpc_result`, `notifications`, `stream` (a response that
//! takes a while).

mod call_result;
mod call_tool;
mod client;
mod context;
mod dispatch;
mod elicitation;
mod json_rpc;
mod list_tools;
mod media;
mod notifications;
mod params;
mod prompts;
mod questions;
mod resources;
mod revision;
pub(crate) mod routes;
mod rpc_result;
mod server_info;
mod snapshot;
mod stream;
mod subscriptions;
mod tasks;
mod wait;

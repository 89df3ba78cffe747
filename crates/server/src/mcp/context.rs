//! The context of a request: who makes it, with which client, and how to notify that client.

use std::sync::Arc;

use catena_engine::Caller;
use catena_engine::requests::IdempotencyKey;

use crate::http::state::ServerState;
use crate::identity::authenticate::Admission;
use crate::mcp::client::Client;
use crate::mcp::notifications::Notifications;

/// The context of one JSON-RPC request.
pub(super) struct RequestContext {
    pub(super) state: Arc<ServerState>,
    pub(super) caller: Caller,
    /// Whether the caller may use the venue without delegations.
    pub(super) admission: Admission,
    pub(super) client: Client,
    /// The URL under which the client reaches the venue.
    pub(super) base_url: String,
    /// Makes a repeated call safe.
    pub(super) key: Option<IdempotencyKey>,
    pub(super) notifications: Notifications,
}

//! An MCP client for every revision, which exposes raw messages.

use std::ops::Deref;

use serde_json::{Value as Json, json};

use crate::TIMEOUT;
use crate::events::Events;
use crate::http::{Connection, Reply, Request};
use crate::site::Client;

/// The revision without a handshake.
pub const STATELESS: &str = "2026-07-28";

/// The revisions with a handshake, oldest first.
pub const WITH_HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The `Accept` header of MCP clients.
const ACCEPT: &str = "application/json, text/event-stream";

/// An MCP client of one revision.
#[derive(Debug, Clone)]
pub struct McpClient {
    client: Client,
    revision: &'static str,
    capabilities: Json,
    session: Option<String>,
}

impl Deref for McpClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl McpClient {
    /// A client of this revision without optional capabilities.
    pub fn new(client: &Client, revision: &'static str) -> McpClient {
        McpClient { client: client.clone(), revision, capabilities: json!({}), session: None }
    }

    /// A client of a revision with a handshake, after a handshake with these capabilities.
    pub async fn connected(
        client: &Client,
        revision: &'static str,
        capabilities: Json,
    ) -> McpClient {
        let mut connected = McpClient::new(client, revision);
        let information = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": information});
        let reply = connected.reply("initialize", params).await.expect(200);
        connected.session = reply.header("mcp-session-id").map(str::to_owned);
        connected
    }

    /// The ID of its session.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Sends the response to a request of the server.
    pub async fn respond(&self, id: &Json, result: Json) -> Reply {
        let message = json!({"jsonrpc": "2.0", "id": id, "result": result});
        let request = self.client.request("POST", "/mcp").header("accept", ACCEPT);
        let request = request.header("mcp-protocol-version", self.revision);
        self.client.ask(request.json(&message)).await
    }

    /// A client of the stateless revision with these capabilities.
    pub fn with_capabilities(client: &Client, capabilities: Json) -> McpClient {
        McpClient { client: client.clone(), revision: STATELESS, capabilities, session: None }
    }

    /// A request for a method, with the headers and members that the revision requires.
    pub fn message(&self, method: &str, params: Json) -> Request {
        let mut params = params;
        let mut request = self.client.request("POST", "/mcp").header("accept", ACCEPT);
        if method != "initialize" {
            request = request.header("mcp-protocol-version", self.revision);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        if self.revision == STATELESS {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(self.revision);
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            request = request.header("mcp-method", method);
            let name =
                params["name"].as_str().or(params["taskId"].as_str()).or(params["uri"].as_str());
            if let Some(name) = name {
                request = request.header("mcp-name", name);
            }
        }
        request.json(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    }

    /// Sends a request and returns the complete response.
    pub async fn reply(&self, method: &str, params: Json) -> Reply {
        self.client.ask(self.message(method, params)).await
    }

    /// Sends a request and returns its result. Panics if there is none. A stream is read to its end.
    pub async fn result(&self, method: &str, params: Json) -> Json {
        let message = last_message(self.reply(method, params).await.expect(200));
        assert_eq!((&message["jsonrpc"], &message["id"]), (&json!("2.0"), &json!(1)), "{message}");
        assert!(message["error"].is_null(), "{message}");
        message["result"].clone()
    }

    /// Sends a request that must be refused. Returns the HTTP status, the error code and the error.
    pub async fn refusal(&self, method: &str, params: Json) -> (u16, i64, Json) {
        let reply = self.reply(method, params).await;
        let status = reply.status();
        let message = last_message(reply);
        let error = message["error"].clone();
        assert!(error["message"].is_string(), "{message}");
        (status, error["code"].as_i64().unwrap(), error)
    }

    /// Calls a tool and returns the result.
    pub async fn call(&self, name: &str, arguments: Json) -> Json {
        self.result("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    /// Calls a tool and returns the event stream of the response.
    pub async fn stream(&self, params: Json) -> Events {
        Events::open(self.client.address, &self.message("tools/call", params)).await
    }

    /// Calls a tool without waiting for the response.
    pub async fn begin(&self, name: &str, arguments: Json) -> Connection {
        let message = self.message("tools/call", json!({"name": name, "arguments": arguments}));
        let mut connection = Connection::open(self.client.address).await.unwrap();
        connection.send(&message).await.unwrap();
        connection
    }

    /// Waits for the only job of an operation and returns its ID.
    pub async fn job_of(&self, operation: &str) -> String {
        let looking = async {
            loop {
                let path = format!("/api/v1/jobs?op={operation}");
                let jobs = self.client.get(&path).await.expect(200).json();
                if let Some(id) = jobs["items"][0].as_str() {
                    return format!("0x{id}");
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, looking).await.unwrap()
    }
}

/// The message of a response: its body, or the last event of a stream.
pub fn last_message(reply: Reply) -> Json {
    if reply.header("content-type") != Some("text/event-stream") {
        return reply.json();
    }
    let mut data = reply.text().lines().filter_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(data.next_back().unwrap()).unwrap()
}

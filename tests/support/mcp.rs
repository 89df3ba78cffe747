//! Somebody who speaks MCP, in any revision, and hides nothing.

use std::ops::Deref;

use serde_json::{Value as Json, json};

use crate::PATIENCE;
use crate::events::Events;
use crate::http::{Connection, Reply, Request};
use crate::site::Client;

/// The revision without a handshake.
pub const STATELESS: &str = "2026-07-28";

/// The revisions with one, oldest first.
pub const WITH_HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What clients say they take.
const ACCEPT: &str = "application/json, text/event-stream";

/// A client of one revision.
#[derive(Debug, Clone)]
pub struct Speaker {
    client: Client,
    revision: &'static str,
    capabilities: Json,
}

impl Deref for Speaker {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Speaker {
    /// Somebody who speaks this revision and can do nothing special.
    pub fn new(client: &Client, revision: &'static str) -> Speaker {
        Speaker { client: client.clone(), revision, capabilities: json!({}) }
    }

    /// Somebody who speaks the stateless revision and can do this.
    pub fn able(client: &Client, capabilities: Json) -> Speaker {
        Speaker { client: client.clone(), revision: STATELESS, capabilities }
    }

    /// A request for a method, with all that its revision wants.
    pub fn message(&self, method: &str, params: Json) -> Request {
        let mut params = params;
        let mut request = self.client.request("POST", "/mcp").header("accept", ACCEPT);
        if method != "initialize" {
            request = request.header("mcp-protocol-version", self.revision);
        }
        if self.revision == STATELESS {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(self.revision);
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            request = request.header("mcp-method", method);
            let name = params["name"].as_str().or(params["taskId"].as_str());
            if let Some(name) = name {
                request = request.header("mcp-name", name);
            }
        }
        request.json(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    }

    /// Asks, and gives the whole answer.
    pub async fn reply(&self, method: &str, params: Json) -> Reply {
        self.client.ask(self.message(method, params)).await
    }

    /// Asks, and gives the result, which must be there. A stream is read to its end.
    pub async fn result(&self, method: &str, params: Json) -> Json {
        let message = last_message(self.reply(method, params).await.expect(200));
        assert_eq!((&message["jsonrpc"], &message["id"]), (&json!("2.0"), &json!(1)), "{message}");
        assert!(message["error"].is_null(), "{message}");
        message["result"].clone()
    }

    /// Asks, and gives the number of the error, which must be there.
    pub async fn refusal(&self, method: &str, params: Json) -> (u16, i64, Json) {
        let reply = self.reply(method, params).await;
        let status = reply.status();
        let message = last_message(reply);
        let error = message["error"].clone();
        assert!(error["message"].is_string(), "{message}");
        (status, error["code"].as_i64().unwrap(), error)
    }

    /// Calls a tool.
    pub async fn call(&self, name: &str, arguments: Json) -> Json {
        self.result("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    /// Calls a tool, and reads the stream of its answer.
    pub async fn stream(&self, params: Json) -> Events {
        Events::open(self.client.address, &self.message("tools/call", params)).await
    }

    /// Calls a tool, and waits for nothing.
    pub async fn begin(&self, name: &str, arguments: Json) -> Connection {
        let message = self.message("tools/call", json!({"name": name, "arguments": arguments}));
        let mut connection = Connection::open(self.client.address).await.unwrap();
        connection.send(&message).await.unwrap();
        connection
    }

    /// Waits for the only job of an operation, and gives its ID.
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
        tokio::time::timeout(PATIENCE, looking).await.unwrap()
    }
}

/// The message of an answer: its body, or the last event of a stream.
pub fn last_message(reply: Reply) -> Json {
    if reply.header("content-type") != Some("text/event-stream") {
        return reply.json();
    }
    let mut data = reply.text().lines().filter_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(data.next_back().unwrap()).unwrap()
}

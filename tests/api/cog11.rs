//! COG-11 Agent Lifecycle, sentence by sentence: what it asks of a venue, over HTTP.
//!
//! Each test quotes what it checks.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

#[path = "cog11/access.rs"]
mod access;
#[path = "cog11/attach.rs"]
mod attach;
#[path = "cog11/jobs.rs"]
mod jobs;
#[path = "cog11/mcp.rs"]
mod mcp;
#[path = "cog11/model.rs"]
mod model;
#[path = "cog11/model_agent.rs"]
mod model_agent;
#[path = "cog11/people.rs"]
mod people;
#[path = "cog11/record.rs"]
mod record;
#[path = "cog11/run.rs"]
mod run;
#[path = "cog11/sdk.rs"]
mod sdk;
#[path = "cog11/sentences.rs"]
mod sentences;
#[path = "cog11/wake.rs"]
mod wake;

use catena_tests::site::Client;
use serde_json::{Value as Json, json};

/// The names of the fields of an agent record.
const FIELDS: [&str; 8] = ["caps", "config", "error", "inbox", "state", "status", "timeline", "ts"];

/// Runs an operation that must complete, and returns its output.
async fn ran(site: &Client, operation: &str, input: Json) -> Json {
    let body = json!({"operation": operation, "input": input});
    site.post("/api/v1/run", &body).await.expect(200).json()
}

/// Runs an operation as a job and returns the job once it has ended.
async fn ended(site: &Client, operation: &str, input: Json) -> Json {
    let job = site.invoke(operation, input).await;
    site.ended(job["id"].as_str().unwrap()).await
}

/// Creates an agent whose transition is a tally.
async fn tally(site: &Client, id: &str) {
    let config = json!({"operation": "test:tally"});
    let created = ran(site, "agent:create", json!({"agentId": id, "config": config})).await;
    assert_eq!(created["created"], true, "{created}");
}

/// Creates an agent that runs as long as its messages say.
async fn slow(site: &Client, id: &str) {
    let config = json!({"operation": "test:slowtally"});
    ran(site, "agent:create", json!({"agentId": id, "config": config})).await;
}

/// Delivers a message.
async fn deliver(site: &Client, id: &str, message: Json) -> Json {
    ran(site, "agent:message", json!({"agentId": id, "message": message})).await
}

/// The record of an agent.
async fn record(site: &Client, id: &str) -> Json {
    let reply = site.get(&format!("/api/v1/values/read?path=g/{id}")).await.expect(200).json();
    assert_eq!(reply["exists"], true, "{reply}");
    reply["value"].clone()
}

/// The status of an agent.
async fn status(site: &Client, id: &str) -> Json {
    site.get(&format!("/api/v1/agents/{id}")).await.expect(200).json()["status"].clone()
}

/// Starts a run of a slow agent that does not end by itself, and returns its job once the agent runs.
async fn endless_run(site: &Client, id: &str) -> String {
    deliver(site, id, json!({"delay": 3_600_000})).await;
    let job = site.invoke("agent:run", json!({"agentId": id})).await;
    let job = job["id"].as_str().unwrap().to_owned();
    site.until(&job, "STARTED").await;
    assert_eq!(status(site, id).await, "RUNNING");
    job
}

/// Returns the files below a folder that contain a text.
fn files_with(folder: &std::path::Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if let Ok(bytes) = std::fs::read(&path) {
            let is_there = bytes.windows(text.len()).any(|window| window == text.as_bytes());
            found.extend(is_there.then(|| path.display().to_string()));
        }
    }
    found
}

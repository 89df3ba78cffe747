//! The venue is killed while an agent waits for its model or for a tool: nothing is paid for or done twice.

use catena_tests::TIMEOUT;
use catena_tests::model::{Model, calls, says};
use catena_tests::process::Process;
use catena_tests::site::Client;
use catena_tests::target::Target;
use serde_json::{Value as Json, json};

use crate::binary;

async fn create(client: &Client, url: &str, tools: Json) {
    let config = json!({"operation": "llm:agent", "url": url, "model": "m", "tools": tools});
    client.invoked("agent:create", json!({"agentId": "a", "config": config}), "COMPLETE").await;
    client.invoked("agent:message", json!({"agentId": "a", "message": "go"}), "COMPLETE").await;
}

async fn record(client: &Client) -> Json {
    client.get("/api/v1/values/read?path=g/a").await.expect(200).json()["value"].clone()
}

/// A model call that was interrupted is not repeated: the turn fails, and nothing is lost.
#[tokio::test]
async fn a_kill_during_a_model_call_pays_for_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let target = Target::start().await;
    let flags = ["--allow-host".to_owned(), target.address.to_string()];
    let venue = Process::start(&binary(), &data, &flags).await;
    let client = Client::anonymous(venue.address);
    create(&client, &target.url("/hold/v1"), json!([])).await;
    let run = client.invoke("agent:run", json!({"agentId": "a"})).await;
    let run = run["id"].as_str().unwrap().to_owned();
    target.arrived("/hold/v1/chat/completions").await;
    venue.kill().await;
    target.open();
    let venue = Process::start(&binary(), &data, &flags).await;
    let client = Client::anonymous(venue.address);
    let ended = client.ended(&run).await;
    assert_eq!(ended["status"], "FAILED", "{ended}");
    let record = record(&client).await;
    assert_eq!(record["status"], "SUSPENDED");
    assert_eq!(record["inbox"].as_array().unwrap().len(), 1);
    assert_eq!(record["timeline"], json!([]));
    assert_eq!(target.count("/hold/v1/chat/completions"), 1);
    client.history(&run).await.verify();
    venue.kill().await;
}

/// A tool call that was interrupted is not repeated: the model learns of it, and its earlier answer is
/// not asked for again.
#[tokio::test]
async fn a_kill_during_a_tool_call_repeats_neither_the_tool_nor_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let target = Target::start().await;
    let arguments = json!({"url": target.url("/hold/tool"), "body": "x"}).to_string();
    let model = Model::start(move |body, _| {
        let messages = body["messages"].as_array().unwrap();
        match messages.iter().find(|message| message["role"] == "tool") {
            None => calls(&[("http_post", &arguments)]),
            Some(result) => says(&format!("it said {}", result["content"])),
        }
    });
    let model = model.await;
    let mut flags = Vec::new();
    for host in [target.address.to_string(), model.host()] {
        flags.extend(["--allow-host".to_owned(), host]);
    }
    let venue = Process::start(&binary(), &data, &flags).await;
    let client = Client::anonymous(venue.address);
    create(&client, &model.url(), json!(["http:post"])).await;
    let run = client.invoke("agent:run", json!({"agentId": "a"})).await;
    let run = run["id"].as_str().unwrap().to_owned();
    target.arrived("/hold/tool").await;
    venue.kill().await;
    target.open();
    let venue = Process::start(&binary(), &data, &flags).await;
    let client = Client::anonymous(venue.address);
    let ended = tokio::time::timeout(TIMEOUT, client.ended(&run)).await.unwrap();
    assert_eq!(ended["status"], "COMPLETE", "{ended}");
    let record = record(&client).await;
    assert_eq!((&record["status"], &record["inbox"]), (&json!("SLEEPING"), &json!([])));
    let response = record["timeline"][0]["result"]["response"].as_str().unwrap().to_owned();
    assert!(response.starts_with("it said") && response.contains("error"), "{response}");
    assert_eq!((target.count("/hold/tool"), model.received().len()), (1, 2));
    client.history(&run).await.verify();
    venue.kill().await;
}

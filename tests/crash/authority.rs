//! What a job may do survives a kill of its venue: the delegations that came with its request.

use std::path::Path;

use catena_auth::KeyPair;
use catena_tests::process::Process;
use catena_tests::site::{delegation, id_of};
use serde_json::{Value as Json, json};

use super::{binary, caller};

async fn start(folder: &Path) -> Process {
    Process::start(&binary(), &folder.join("data"), &[]).await
}

/// An orchestration that waits first and reads data of another user then.
fn definition(path: &str) -> Json {
    json!({"name": "Read later", "operation": {"adapter": "orchestrator", "steps": [
        {"op": "test:chat", "input": ["const", {}], "name": "wait"},
        {"op": "covia:read", "input": {"path": ["const", path], "x-after": [0]}}],
        "result": {"out": [1, "value"]}}})
}

#[tokio::test]
async fn the_delegations_of_a_job_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let venue = start(folder.path()).await;
    let (alice, bob) = (caller(&venue, 1).await, caller(&venue, 2).await);
    alice.invoked("covia:write", json!({"path": "w/a", "value": 7}), "COMPLETE").await;
    let owner = KeyPair::from_seed(&[1; 32]);
    let path = format!("{}/w/a", owner.did());
    let att = json!([{"with": path, "can": "crud/read"}]).to_string();
    let att = catena_value::json::read(att.as_bytes()).unwrap();
    let reader = KeyPair::from_seed(&[2; 32]).did();
    let grant = delegation(&owner, &reader, &[("att", att)]);
    let asset = bob.post("/api/v1/assets", &definition(&path)).await.expect(201).json();
    let mut jobs = Vec::new();
    for ucans in [json!([grant]), json!([])] {
        let body = json!({"operation": asset, "input": {}, "ucans": ucans});
        let id = id_of(&bob.post("/api/v1/invoke", &body).await.expect(201).json());
        let waits = |job: &Json| job["steps"][0]["status"] == "INPUT_REQUIRED";
        let job = bob.until_that(&id, waits).await;
        jobs.push((id, job["steps"][0]["id"].as_str().unwrap().to_owned()));
    }
    venue.kill().await;
    let venue = start(folder.path()).await;
    let bob = caller(&venue, 2).await;
    for (_, step) in &jobs {
        bob.send(step, &json!({"content": "done"})).await.expect(202);
    }
    let with = bob.ended(&jobs[0].0).await;
    assert_eq!((&with["status"], &with["output"]), (&json!("COMPLETE"), &json!({"out": 7})));
    let without = bob.ended(&jobs[1].0).await;
    assert_eq!(without["status"], "FAILED", "{without}");
    assert!(without["error"].as_str().unwrap().contains("Capability denied"), "{without}");
    venue.kill().await;
}

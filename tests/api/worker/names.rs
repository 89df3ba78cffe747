//! Names of operations: definitions in a workspace, and what a parent pins.

use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

/// Makes a definition the newest version of a name. Returns its asset ID.
async fn name(client: &Client, name: &str, definition: Json) -> Json {
    let request = client.request("PUT", &format!("/api/v1/operations/{name}")).json(&definition);
    client.ask(request).await.expect(200).json()["id"].clone()
}

fn echo(description: &str) -> Json {
    json!({"name": "Echo", "description": description, "operation": {"adapter": "test:echo"}})
}

#[tokio::test]
async fn a_parent_pins_the_version_that_its_step_ran() {
    let site = Site::start().await;
    let first = name(&site, "part", echo("first")).await;
    let step = json!({"op": "o/part", "input": ["const", 1]});
    let whole = json!({"adapter": "orchestrator", "steps": [step], "result": [0]});
    name(&site, "whole", json!({"name": "Whole", "operation": whole})).await;
    let step_of = async |parent: &str| {
        let listed = site.get(&format!("/api/v1/jobs?parent={parent}")).await.expect(200).json();
        site.job(listed["items"][0].as_str().unwrap()).await
    };
    let old = site.invoked("o/whole", json!(null), "COMPLETE").await;
    let second = name(&site, "part", echo("second")).await;
    assert_ne!(first, second);
    let new = site.invoked("o/whole", json!(null), "COMPLETE").await;
    for (parent, version) in [(&old, &first), (&new, &second)] {
        let step = step_of(parent).await;
        assert_eq!((&step["op"], &step["operation"]), (&json!("o/part"), version));
        site.history(parent).await.verify();
    }
    // Jobs are listed by the name that they were invoked with.
    let listed = site.get("/api/v1/jobs?op=o/whole").await.expect(200).json();
    assert_eq!(listed["total"], 2, "{listed}");
}

#[tokio::test]
async fn a_definition_in_a_workspace_is_invoked_by_its_path() {
    let site = Site::start().await;
    let (ann, bob) = (site.caller(1).await, site.caller(2).await);
    let input = json!({"path": "w/tools/echo", "value": echo("of ann")});
    ann.invoked("covia:write", input, "COMPLETE").await;
    let id = ann.invoked("w/tools/echo", json!(5), "COMPLETE").await;
    assert_eq!(ann.job(&id).await["output"], 5);
    let body = json!({"operation": "w/tools/echo", "input": 5});
    bob.post("/api/v1/invoke", &body).await.expect(400);
    // A worker of the same user runs what it defines there.
    let operation = json!({"adapter": "worker", "queue": "mail"});
    let definition = json!({"name": "Mail", "operation": operation});
    let input = json!({"path": "w/tools/mail", "value": definition});
    ann.invoked("covia:write", input, "COMPLETE").await;
    let id = id_of(&ann.invoke("w/tools/mail", json!("hello")).await);
    let job = super::claim_one(&ann, "w1").await;
    assert_eq!((&job["id"], &job["input"]), (&json!(id), &json!("hello")));
}

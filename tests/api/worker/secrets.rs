//! Secrets of callers that workers get, and where their values never appear.

use std::path::Path;

use catena_auth::KeyPair;
use catena_auth::base::to_base64url;
use catena_tests::service::{Service, json_response};
use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

use super::{claim, claim_one, define, path};

/// The value that must appear nowhere but with the worker.
const PLANTED: &str = "pl4nted/W0rker+secret";

async fn set(client: &Client, name: &str, input: Json) {
    let request = client.request("PUT", &format!("/api/v1/secrets/{name}")).json(&input);
    client.ask(request).await.expect(200);
}

/// Returns true if a file below a folder contains a text.
fn is_in_files(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return is_in_files(&path, text);
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

/// Everything that the API shows of a job that has ended.
async fn everything(client: &Client, id: &str) -> String {
    let mut seen = String::new();
    for part in ["", "/history", "/log", "/steps"] {
        seen += client.get(&format!("/api/v1/jobs/{id}{part}")).await.text();
    }
    seen + &format!("{:?}", client.follow(id).await.rest().await)
}

#[tokio::test]
async fn a_worker_gets_declared_secrets_and_nothing_that_it_reports_shows_them() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    set(&alice, "API_KEY", json!({"value": PLANTED})).await;
    let operation = define(&alice, json!({"secrets": ["API_KEY"]})).await;
    let id = id_of(&alice.invoke(&operation, json!({"to": "ann"})).await);
    assert_eq!(alice.job(&id).await["secrets"], json!(["API_KEY"]), "the record has the name");
    let job = claim_one(&alice, "w1").await;
    assert_eq!(job["secrets"], json!({"API_KEY": PLANTED}));
    assert_eq!(job["input"], json!({"to": "ann"}));
    let fence = job["fence"].clone();
    let encoded = to_base64url(format!("user:{PLANTED}").as_bytes());
    let percent: String = PLANTED.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let progress = json!({"processedItems": 1, "note": PLANTED});
    let log = format!("calling with {PLANTED}\n");
    let report = json!({"id": id, "fence": fence, "progress": progress, "log": log});
    let beat = json!({"worker": "w1", "jobs": [report]});
    alice.post("/worker/v1/beat", &beat).await.expect(200);
    let live = alice.get(&format!("/api/v1/jobs/{id}/log")).await.expect(200);
    assert!(live.text().contains("calling with [redacted]"), "{}", live.text());
    assert!(!alice.get(&format!("/api/v1/jobs/{id}")).await.text().contains(PLANTED));
    let step = json!({"fence": fence, "key": "send", "output": {"header": PLANTED}});
    let reply = alice.post(&path(&job, "step"), &step).await.expect(200).json();
    assert_eq!(reply["output"], json!({"header": "[redacted]"}));
    // A call is recorded: the secret cannot be a part of it.
    let call = json!({"fence": fence, "key": "echo", "operation": "test:echo",
        "input": {"key": PLANTED}});
    let refused = alice.post(&path(&job, "call"), &call).await.expect(422).json();
    assert_eq!(refused["failure"], "secret_refused", "{refused}");
    let output = json!({"plain": PLANTED, "base64": encoded, "percent": percent, "ok": true});
    let end = json!({"fence": fence, "output": output});
    alice.post(&path(&job, "end"), &end).await.expect(200);
    let ended = alice.job(&id).await;
    assert_eq!((&ended["status"], &ended["output"]["ok"]), (&json!("COMPLETE"), &json!(true)));
    assert_eq!(ended["output"]["plain"], "[redacted]");
    alice.history(&id).await.verify();
    let seen = everything(&alice, &id).await;
    for text in [PLANTED, &encoded[8..24], "%70%6C%34%6E"] {
        assert!(!seen.contains(text), "{text} is in {seen}");
        assert!(!is_in_files(site.data(), text), "{text}");
    }
}

#[tokio::test]
async fn a_secret_is_removed_from_errors_and_questions_also_after_a_restart() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    set(&alice, "K", json!({"value": PLANTED})).await;
    let operation = define(&alice, json!({"secrets": ["K"]})).await;
    let asked = id_of(&alice.invoke(&operation, json!(1)).await);
    let failed = id_of(&alice.invoke(&operation, json!(2)).await);
    let jobs = claim(&alice, "w1", json!({})).await["jobs"].clone();
    // The value is changed meanwhile: what the worker was given counts.
    set(&alice, "K", json!({"value": "an0ther-value"})).await;
    let site = site.restarted().await;
    let alice = site.caller(1).await;
    let held =
        |id: &str| jobs.as_array().unwrap().iter().find(|job| job["id"] == id).unwrap().clone();
    let (ask, fail) = (held(&asked), held(&failed));
    let message = format!("Is {PLANTED} right?");
    let end = json!({"fence": ask["fence"], "ask": {"message": message}});
    alice.post(&path(&ask, "end"), &end).await.expect(200);
    let report = json!({"id": failed, "fence": fail["fence"], "log": PLANTED});
    alice.post("/worker/v1/beat", &json!({"worker": "w1", "jobs": [report]})).await.expect(200);
    let error = format!("401 for Bearer {PLANTED}");
    let end = json!({"fence": fail["fence"], "error": error});
    alice.post(&path(&fail, "end"), &end).await.expect(200);
    let waiting = alice.until(&asked, "INPUT_REQUIRED").await;
    assert_eq!(waiting["message"], "Is [redacted] right?");
    let ended = alice.until(&failed, "FAILED").await;
    assert_eq!(ended["error"], "401 for Bearer [redacted]");
    // The next turn gets the value of now.
    alice.send(&asked, &json!({"content": "yes"})).await.expect(202);
    let next = claim_one(&alice, "w1").await;
    assert_eq!(next["secrets"], json!({"K": "an0ther-value"}));
    let end = json!({"fence": next["fence"], "output": "an0ther-value"});
    alice.post(&path(&next, "end"), &end).await.expect(200);
    let seen = everything(&alice, &asked).await + &everything(&alice, &failed).await;
    for text in [PLANTED, "an0ther-value"] {
        assert!(!seen.contains(text), "{text} is in {seen}");
        assert!(!is_in_files(site.data(), text), "{text}");
    }
}

#[tokio::test]
async fn a_missing_secret_fails_the_job_unless_a_secret_field_of_the_input_has_it() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let schema = json!({"properties": {"K": {"type": "string", "writeOnly": true}}});
    let operation = define(&alice, json!({"secrets": ["K"], "input": schema})).await;
    let id = id_of(&alice.invoke(&operation, json!({})).await);
    let claimed = claim(&alice, "w1", json!({"waitMs": 0})).await;
    assert_eq!(claimed["jobs"], json!([]));
    let ended = alice.until(&id, "FAILED").await;
    assert_eq!(ended["errorCode"], "secret_not_found", "{ended}");
    let id = id_of(&alice.invoke(&operation, json!({"K": PLANTED})).await);
    let job = claim_one(&alice, "w1").await;
    assert_eq!(job["secrets"], json!({"K": PLANTED}));
    let end = json!({"fence": job["fence"], "output": [PLANTED]});
    alice.post(&path(&job, "end"), &end).await.expect(200);
    assert_eq!(alice.job(&id).await["output"], json!(["[redacted]"]));
    // The caller's store comes first.
    set(&alice, "K", json!({"value": "of the store"})).await;
    alice.invoke(&operation, json!({"K": PLANTED})).await;
    assert_eq!(claim_one(&alice, "w1").await["secrets"], json!({"K": "of the store"}));
    for wrong in [json!("K"), json!([1]), json!(["a b"]), json!(vec!["K"; 17])] {
        let operation = json!({"adapter": "worker", "queue": "mail", "secrets": wrong});
        let definition = json!({"name": "Wrong", "operation": operation});
        let id = alice.post("/api/v1/assets", &definition).await.expect(201).json();
        let body = json!({"operation": id, "input": {}});
        alice.post("/api/v1/invoke", &body).await.expect_error(400, "operation_unusable");
    }
}

/// The worker of somebody else's operation is somebody else.
#[tokio::test]
async fn workers_of_another_user_get_no_secrets_without_a_grant() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    set(&alice, "K", json!({"value": PLANTED})).await;
    define(&bob, json!({"secrets": ["K"]})).await;
    bob.put("/api/v1/operations/mail?share=everyone").await.expect(200);
    let theirs = format!("{}/o/mail", KeyPair::from_seed(&[2; 32]).did());
    let refused = async |id: String| {
        assert_eq!(claim(&bob, "w1", json!({"waitMs": 0})).await["jobs"], json!([]));
        let ended = alice.until(&id, "FAILED").await;
        assert_eq!(ended["errorCode"], "secret_refused", "{ended}");
        ended["operation"].as_str().unwrap().to_owned()
    };
    let definition = refused(id_of(&alice.invoke(&theirs, json!({})).await)).await;
    // An equal definition of her own does not make his workers hers.
    define(&alice, json!({"secrets": ["K"]})).await;
    refused(id_of(&alice.invoke(&theirs, json!({})).await)).await;
    let grant = json!({"name": "K", "operation": definition, "can": "secret/use"});
    alice.invoked("secret:grant", grant, "COMPLETE").await;
    alice.invoke(&theirs, json!({})).await;
    assert_eq!(claim_one(&bob, "w1").await["secrets"], json!({"K": PLANTED}));
    // A secret that is bound to hosts is given to no worker, who could send it to any.
    set(&alice, "K", json!({"value": PLANTED, "hosts": ["api.example"]})).await;
    let id = id_of(&alice.invoke("o/mail", json!({})).await);
    assert_eq!(claim(&alice, "w1", json!({"waitMs": 0})).await["jobs"], json!([]));
    assert_eq!(alice.until(&id, "FAILED").await["errorCode"], "secret_refused");
}

#[tokio::test]
async fn a_job_that_is_sent_to_a_url_carries_its_secrets_to_that_host_only() {
    let service = Service::start(|request| {
        let document: Json = serde_json::from_str(&request.body).unwrap();
        json_response(200, &json!({"echo": document["secrets"]["K"]}).to_string())
    })
    .await;
    let host = service.host();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let alice = site.caller(1).await;
    set(&alice, "K", json!({"value": PLANTED, "hosts": [service.host()]})).await;
    let operation = json!({"adapter": "worker", "url": service.url("/jobs"), "secrets": ["K"]});
    let definition = json!({"name": "Pushed", "operation": operation});
    let id = alice.post("/api/v1/assets", &definition).await.expect(201).json();
    let job = alice.invoked(id.as_str().unwrap(), json!({}), "COMPLETE").await;
    let sent: Json = serde_json::from_str(&service.received("/jobs")[0].body).unwrap();
    assert_eq!(sent["secrets"], json!({"K": PLANTED}));
    assert_eq!(alice.job(&job).await["output"], json!({"echo": "[redacted]"}));
    set(&alice, "K", json!({"value": PLANTED, "hosts": ["api.example"]})).await;
    let refused = alice.invoked(id.as_str().unwrap(), json!({}), "FAILED").await;
    assert_eq!(alice.job(&refused).await["errorCode"], "secret_refused");
    assert_eq!(service.received("/jobs").len(), 1);
}

//! Secrets: who sees and receives them, and where their values never appear.

use std::path::Path;

use catena_auth::KeyPair;
use catena_auth::base::to_base64url;
use catena_engine::Caller;
use catena_engine::requests::Invoke;
use catena_tests::service::{Service, response};
use catena_tests::site::{Client, Site, delegation};
use serde_json::{Value as Json, json};

/// The value that must appear nowhere.
const PLANTED: &str = "pl4nted-s3cret/Value+1";

async fn set(client: &Client, name: &str, input: Json) -> Json {
    let path = format!("/api/v1/secrets/{name}");
    let request = client.request("PUT", &path).json(&input);
    client.ask(request).await.expect(200).json()
}

async fn names(client: &Client) -> Json {
    client.get("/api/v1/secrets").await.expect(200).json()["items"].clone()
}

#[tokio::test]
async fn secrets_are_stored_listed_and_deleted_by_their_owner_only() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    assert_eq!(names(&alice).await, json!([]));
    let stored = set(&alice, "API_KEY", json!({"value": PLANTED})).await;
    assert_eq!((&stored["name"], &stored["stored"]), (&json!("API_KEY"), &json!(true)));
    set(&bob, "API_KEY", json!({"value": "of bob"})).await;
    set(&alice, "A", json!({"value": "x"})).await;
    assert_eq!(names(&alice).await, json!(["A", "API_KEY"]));
    assert_eq!(names(&bob).await, json!(["API_KEY"]));
    // The workspace shows names, never values.
    let shown = alice.get("/api/v1/values/read?path=s").await.expect(200).json();
    assert_eq!(shown["value"], json!({"A": {"redacted": true}, "API_KEY": {"redacted": true}}));
    let kept = json!({"value": "y", "overwrite": false});
    assert_eq!(set(&alice, "A", kept).await["stored"], false);
    let gone = alice.ask(alice.request("DELETE", "/api/v1/secrets/A")).await.expect(200);
    assert_eq!(gone.json()["deleted"], true);
    let again = alice.ask(alice.request("DELETE", "/api/v1/secrets/A")).await;
    again.expect_error(404, "secret_not_found");
    let wrong = alice.request("PUT", "/api/v1/secrets/a%20b").json(&json!({"value": "x"}));
    alice.ask(wrong).await.expect_error(400, "bad_request");
    assert_eq!(names(&bob).await, json!(["API_KEY"]));
}

#[tokio::test]
async fn a_secret_is_shown_only_with_an_express_delegation_and_never_recorded() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let key = KeyPair::from_seed(&[1; 32]);
    set(&alice, "K", json!({"value": PLANTED})).await;
    let mut body = json!({"operation": "secret:extract", "input": {"name": "K"}});
    let denied = alice.post("/api/v1/run", &body).await.expect_error(403, "forbidden");
    assert!(
        denied["error"].as_str().unwrap().starts_with("Capability denied: secret:extract needs")
    );
    assert!(denied["error"].as_str().unwrap().contains("secret/extract or secret/decrypt on"));
    let did = key.did();
    for ability in ["secret/use", "crud", "secret/extract", "secret/decrypt"] {
        let att = format!(r#"[{{"with":"{did}/s","can":"{ability}"}}]"#);
        let att = catena_value::json::read(att.as_bytes()).unwrap();
        body["ucans"] = json!([delegation(&key, &did, &[("att", att)])]);
        let reply = alice.post("/api/v1/run", &body).await;
        if matches!(ability, "secret/use" | "crud") {
            reply.expect_error(403, "forbidden");
        } else {
            assert_eq!(reply.expect(200).json(), json!({"name": "K", "value": PLANTED}));
        }
    }
    let recorded = alice.post("/api/v1/invoke", &body).await.expect(201).json();
    let id = recorded["id"].as_str().unwrap();
    let ended = alice.ended(id).await;
    assert_eq!(
        (&ended["status"], &ended["errorCode"]),
        (&json!("FAILED"), &json!("secret_refused"))
    );
}

/// Returns the files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
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

/// A service that echoes the authorization that it receives, in several encodings.
async fn echo() -> Service {
    Service::start(|request| {
        let secret = request.headers.get("authorization").cloned().unwrap_or_default();
        let encoded = to_base64url(format!("x:{secret}").as_bytes());
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let body = json!({"plain": secret, "base64": encoded, "percent": percent});
        let headers = format!("content-type: application/json\r\nx-echo: {secret}\r\n");
        response(200, &headers, &body.to_string())
    })
    .await
}

/// The secret reaches the service that needs it and nothing else.
#[tokio::test]
async fn a_planted_secret_is_found_nowhere() {
    let (service, other) = (echo().await, echo().await);
    let allowed = format!("{},{}", service.host(), other.host());
    let site = Site::with(|flags| flags.allow_hosts = Some(allowed)).await;
    let alice = site.caller(1).await;
    set(&alice, "K", json!({"value": PLANTED})).await;
    let input = json!({"url": service.url("/echo"), "bearerSecret": "K", "body": {"a": 1}});
    let id = alice.invoked("http:post", input.clone(), "COMPLETE").await;
    let received = service.received("/echo");
    assert_eq!(received[0].headers["authorization"], format!("Bearer {PLANTED}"));
    let job = alice.job(&id).await;
    assert_eq!(job["output"]["json"]["plain"], "Bearer [redacted]", "{job}");
    assert_eq!(job["output"]["headers"]["x-echo"], "Bearer [redacted]", "{job}");
    // In an orchestration, too.
    let definition = json!({"name": "Flow", "operation": {"adapter": "orchestrator",
        "steps": [{"op": "http:post", "input": ["const", input]}],
        "result": {"out": [0]}}});
    let flow = alice.post("/api/v1/assets", &definition).await.expect(201).json();
    let flow = alice.invoked(flow.as_str().unwrap(), json!({}), "COMPLETE").await;
    // Not to other hosts, once it is bound to one.
    set(&alice, "K", json!({"value": PLANTED, "hosts": [service.host()]})).await;
    let to_other = json!({"url": other.url("/echo"), "bearerSecret": "K"});
    let refused = alice.invoked("http:get", to_other, "FAILED").await;
    assert_eq!(alice.job(&refused).await["errorCode"], "secret_refused");
    alice.invoked("http:post", input, "COMPLETE").await;
    assert!(other.received("/echo").is_empty());
    let mut seen = String::new();
    for id in [&id, &flow, &refused] {
        seen += alice.get(&format!("/api/v1/jobs/{id}")).await.text();
        seen += alice.get(&format!("/api/v1/jobs/{id}/history")).await.text();
        seen += &format!("{:?}", alice.follow(id).await.rest().await);
    }
    let encoded = to_base64url(PLANTED.as_bytes());
    for text in [PLANTED, &encoded[..20], "%70%6c%34%6e"] {
        assert!(!seen.contains(text), "{text} is in {seen}");
        assert_eq!(files_with(site.data(), text), Vec::<String>::new());
    }
    let site = site.restarted().await;
    assert_eq!(files_with(site.data(), PLANTED), Vec::<String>::new());
    let alice = site.caller(1).await;
    let input = json!({"url": service.url("/later"), "bearerSecret": "K"});
    alice.invoked("http:get", input, "COMPLETE").await;
    assert_eq!(service.received("/later")[0].headers["authorization"], format!("Bearer {PLANTED}"));
}

/// Somebody else's definition could send a secret anywhere, also through the operations that it runs.
#[tokio::test]
async fn a_definition_of_another_user_receives_no_secrets_without_a_grant() {
    let service = echo().await;
    let allowed = service.host();
    let site = Site::with(|flags| flags.allow_hosts = Some(allowed)).await;
    let (alice, mallory) = (site.caller(1).await, site.caller(2).await);
    set(&alice, "K", json!({"value": PLANTED})).await;
    let input = json!({"url": service.url("/echo"), "bearerSecret": "K"});
    let steal = json!({"name": "Steal", "operation": {"adapter": "orchestrator",
        "steps": [{"op": "http:post", "input": ["const", input]}],
        "result": {"out": [0]}}});
    let direct = json!({"name": "Direct", "operation": {"adapter": "http:get"}});
    let mut ids = Vec::new();
    for definition in [&steal, &direct] {
        let id = mallory.post("/api/v1/assets", definition).await.expect(201).json();
        let id = id.as_str().unwrap().to_owned();
        let job = alice.invoked(&id, input.clone(), "FAILED").await;
        let error = alice.job(&job).await["error"].as_str().unwrap().to_owned();
        assert!(error.contains("somebody else"), "{error}");
        ids.push(id);
    }
    assert!(service.received("/echo").is_empty());
    let grant = json!({"name": "K", "operation": ids[1], "can": "secret/use"});
    alice.invoked("secret:grant", grant, "COMPLETE").await;
    alice.invoked(&ids[1], input.clone(), "COMPLETE").await;
    let revoke = json!({"name": "K", "operation": ids[1], "revoke": true});
    alice.invoked("secret:grant", revoke, "COMPLETE").await;
    alice.invoked(&ids[1], input.clone(), "FAILED").await;
    // Whoever registers the same definition has decided for it.
    alice.post("/api/v1/assets", &direct).await.expect(201);
    alice.invoked(&ids[1], input, "COMPLETE").await;
}

/// A model cannot send a secret to a URL that it chose.
#[tokio::test]
async fn a_call_that_a_model_chose_sends_secrets_to_bound_hosts_only() {
    let service = echo().await;
    let allowed = service.host();
    let site = Site::with(|flags| flags.allow_hosts = Some(allowed)).await;
    let alice = site.caller(1).await;
    let model = Caller::known(&KeyPair::from_seed(&[1; 32]).did()).for_model();
    let input = json!({"url": service.url("/echo"), "bearerSecret": "K"}).to_string();
    let call = async || {
        let input = catena_value::json::read(input.as_bytes()).unwrap();
        let mut request = Invoke::new(model.clone(), "http:get", input);
        request.wait = Some(catena_tests::TIMEOUT);
        site.engine().invoke(request).await.unwrap().view.status().to_string()
    };
    set(&alice, "K", json!({"value": PLANTED})).await;
    assert_eq!(call().await, "FAILED");
    assert!(service.received("/echo").is_empty());
    set(&alice, "K", json!({"value": PLANTED, "hosts": [service.host()]})).await;
    assert_eq!(call().await, "COMPLETE");
}

/// A rotation that was interrupted after the new key was written is finished by the next start.
#[tokio::test]
async fn an_interrupted_rotation_of_the_key_is_finished_at_the_next_start() {
    let service = echo().await;
    let allowed = service.host();
    let site = Site::with(|flags| flags.allow_hosts = Some(allowed)).await;
    let alice = site.caller(1).await;
    set(&alice, "K", json!({"value": PLANTED})).await;
    // A live job with a secret in its input.
    let definition = json!({"name": "Wait", "operation": {"adapter": "test:pause",
        "input": {"type": "object", "properties": {"token": {"type": "string", "writeOnly": true}}}}});
    let waiting = alice.post("/api/v1/assets", &definition).await.expect(201).json();
    let input = json!({"token": "s3aled"});
    let waiting = alice.invoked(waiting.as_str().unwrap(), input, "PAUSED").await;
    let file = catena_server::key::secrets_file(site.data(), None);
    let before = std::fs::read(&file).unwrap();
    let next = catena_server::key::begin_rotation(&file).unwrap().current;
    let site = site.restarted().await;
    assert_eq!(std::fs::read(&file).unwrap(), next, "the new key is the key");
    assert!(files_with(site.data(), std::str::from_utf8(&before).unwrap_or("\0none")).is_empty());
    assert!(!site.data().join("secrets.next").exists());
    let site = site.restarted().await;
    let alice = site.caller(1).await;
    let input = json!({"url": service.url("/echo"), "bearerSecret": "K"});
    alice.invoked("http:get", input, "COMPLETE").await;
    alice.control(&waiting, "resume").await.expect(200);
    alice.until(&waiting, "COMPLETE").await;
}

//! Capabilities: what delegations permit with the data of others.

use catena_auth::KeyPair;
use catena_engine::Caller;
use catena_engine::capability::Capability;
use catena_engine::error::InvokeError;
use catena_engine::requests::{Invoke, JobView};
use catena_tests::site::{Client, Site, delegation};
use serde_json::{Value as Json, json};

fn did(seed: u8) -> String {
    KeyPair::from_seed(&[seed; 32]).did()
}

/// A delegation of some abilities to an audience.
fn grant(from: u8, to: &str, att: &[(&str, &str)], proofs: &[&str]) -> String {
    let att: Vec<Json> = att.iter().map(|(with, can)| json!({"with": with, "can": can})).collect();
    let read = |json: Json| catena_value::json::read(json.to_string().as_bytes()).unwrap();
    let key = KeyPair::from_seed(&[from; 32]);
    delegation(&key, to, &[("att", read(json!(att))), ("prf", read(json!(proofs)))])
}

async fn run(client: &Client, operation: &str, input: Json, ucans: &[&str]) -> (u16, Json) {
    let body = json!({"operation": operation, "input": input, "ucans": ucans});
    let reply = client.post("/api/v1/run", &body).await;
    (reply.status(), reply.json())
}

#[tokio::test]
async fn a_delegation_opens_exactly_what_it_names() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    for (path, value) in [("w/notes/a", "one"), ("w/notes2", "two"), ("w/private", "three")] {
        alice.invoked("covia:write", json!({"path": path, "value": value}), "COMPLETE").await;
    }
    bob.invoked("covia:write", json!({"path": "w/notes/a", "value": "of bob"}), "COMPLETE").await;
    let (owner, reader) = (did(1), did(2));
    let path = |path: &str| json!({"path": format!("{owner}/{path}")});
    let notes = format!("{owner}/w/notes");
    let token = grant(1, &reader, &[(&notes, "crud/read")], &[]);
    let before = bob.job_count().await;
    let (status, refused) = run(&bob, "covia:read", path("w/notes/a"), &[]).await;
    assert_eq!(status, 403, "{refused}");
    let text = refused["error"].as_str().unwrap();
    assert!(text.starts_with("Capability denied: covia:read needs crud/read on "), "{text}");
    assert!(text.ends_with("a retry will not help"), "{text}");
    assert_eq!(bob.job_count().await, before, "a denial creates no job");
    let (status, read) = run(&bob, "covia:read", path("w/notes/a"), &[&token]).await;
    assert_eq!((status, &read["value"]), (200, &json!("one")), "{read}");
    for (operation, input) in [
        ("covia:read", path("w/notes2")),
        ("covia:read", path("w/private")),
        ("covia:read", path("w")),
        ("covia:delete", path("w/notes/a")),
        ("covia:read", json!({"path": format!("{}/w/notes/a", did(3))})),
    ] {
        let (status, refused) = run(&bob, operation, input.clone(), &[&token]).await;
        assert_eq!(status, 403, "{operation} {input}: {refused}");
    }
    // At every API: a request that is denied creates no job, also if it is for later.
    let later = json!({"operation": "covia:read", "input": path("w/private"), "after": 60_000});
    let (status, refused) = run(&bob, "scheduler:schedule", later, &[&token]).await;
    assert_eq!(status, 403, "{refused}");
    let text = refused["error"].as_str().unwrap();
    assert!(text.starts_with("Capability denied: covia:read needs crud/read on "), "{text}");
    let body = json!({"operation": "covia:read", "input": path("w/private")});
    bob.post("/api/v1/invoke", &body).await.expect_error(403, "forbidden");
    let body = json!({"type": "covia:read", "data": path("w/private")});
    bob.post("/canvas/v1/jobs", &body).await.expect(403);
    bob.get(&format!("/api/v1/values/read?path={owner}/w/private")).await.expect(403);
    assert_eq!(bob.job_count().await, before);
}

#[tokio::test]
async fn a_delegated_write_changes_the_data_of_the_owner() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let shared = format!("{}/w/shared", did(1));
    let token = grant(1, &did(2), &[(&shared, "crud")], &[]);
    let input = json!({"path": format!("{shared}/x"), "value": 5});
    let (status, written) = run(&bob, "covia:write", input, &[&token]).await;
    assert_eq!(status, 200, "{written}");
    let read = alice.get("/api/v1/values/read?path=w/shared/x").await.expect(200).json();
    assert_eq!(read["value"], 5);
    let own = bob.get("/api/v1/values/read?path=w/shared/x").await.expect(200).json();
    assert_eq!(own["exists"], false);
    // A copy changes the data of one user, and reads that of the other under the same delegation.
    let copy = json!({"from": format!("{shared}/x"), "to": "w/mine"});
    let (status, copied) = run(&bob, "covia:copy", copy, &[&token]).await;
    assert_eq!((status, &copied["existed"]), (200, &json!(false)), "{copied}");
}

#[tokio::test]
async fn chains_narrow_and_can_be_revoked() {
    let site = Site::start().await;
    let (alice, bob, carol) = (site.caller(1).await, site.caller(2).await, site.caller(3).await);
    alice.invoked("covia:write", json!({"path": "w/a/b", "value": 1}), "COMPLETE").await;
    let (whole, part) = (format!("{}/w/a", did(1)), format!("{}/w/a/b", did(1)));
    let root = grant(1, &did(2), &[(&whole, "crud")], &[]);
    let narrow = grant(2, &did(3), &[(&part, "crud/read")], &[&root]);
    let wide = grant(2, &did(3), &[(&part, "crud/read"), (&part, "*")], &[&root]);
    let input = json!({"path": part});
    assert_eq!(run(&carol, "covia:read", input.clone(), &[&narrow]).await.0, 200);
    assert_eq!(run(&carol, "covia:read", input.clone(), &[&wide]).await.0, 403);
    assert_eq!(run(&carol, "covia:delete", input.clone(), &[&narrow]).await.0, 403);
    let checked = json!({"token": narrow, "with": part, "can": "crud/read", "aud": did(3)});
    let (_, verified) = run(&carol, "ucan:verify", checked.clone(), &[]).await;
    assert_eq!(verified["valid"], true, "{verified}");
    assert_eq!((&verified["chainDepth"], &verified["rootIssuer"]), (&json!(2), &json!(did(1))));
    assert_eq!(verified["authorises"], true);
    let (_, invalid) = run(&carol, "ucan:verify", json!({"token": wide}), &[]).await;
    assert_eq!(invalid["valid"], false, "{invalid}");
    // Only who issued one of them can revoke it; the others are based on it.
    let (status, _) = run(&carol, "ucan:revoke", json!({"token": root}), &[]).await;
    assert_eq!(status, 422);
    let (status, revoked) = run(&alice, "ucan:revoke", json!({"token": root}), &[]).await;
    assert_eq!((status, &revoked["revoked"]), (200, &json!(true)), "{revoked}");
    assert_eq!(run(&carol, "covia:read", input.clone(), &[&narrow]).await.0, 403);
    assert_eq!(run(&bob, "covia:read", input, &[&root]).await.0, 403);
    let (_, verified) = run(&carol, "ucan:verify", checked, &[]).await;
    assert_eq!((&verified["valid"], &verified["authorises"]), (&json!(false), &json!(false)));
}

#[tokio::test]
async fn the_venue_issues_delegations_for_its_users() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    alice.invoked("covia:write", json!({"path": "w/a", "value": 1}), "COMPLETE").await;
    let own = format!("{}/w/a", did(1));
    let input = json!({"aud": did(2), "att": [{"with": own, "can": "crud/read"}], "exp": null});
    let (status, issued) = run(&alice, "ucan:issue", input, &[]).await;
    assert_eq!(status, 200, "{issued}");
    let token = issued["token"].as_str().unwrap();
    let (status, read) = run(&bob, "covia:read", json!({"path": own}), &[token]).await;
    assert_eq!((status, &read["value"]), (200, &json!(1)), "{read}");
    let other = json!({"aud": did(1), "att": [{"with": own, "can": "crud"}], "exp": null});
    assert_eq!(run(&bob, "ucan:issue", other, &[]).await.0, 422, "it is not Bob's to give");
    let (status, _) = run(&alice, "ucan:revoke", json!({"token": token}), &[]).await;
    assert_eq!(status, 200);
    assert_eq!(run(&bob, "covia:read", json!({"path": own}), &[token]).await.0, 403);
}

/// A delegation that comes with an orchestration reaches its steps, also after a restart.
#[tokio::test]
async fn delegations_reach_the_steps_of_a_job() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    alice.invoked("covia:write", json!({"path": "w/a", "value": 1}), "COMPLETE").await;
    let own = format!("{}/w/a", did(1));
    let definition = json!({"name": "Read", "operation": {"adapter": "orchestrator",
        "steps": [{"op": "covia:read", "input": {"path": ["const", own]}}],
        "result": {"out": [0, "value"]}}});
    let id = bob.post("/api/v1/assets", &definition).await.expect(201).json();
    let token = grant(1, &did(2), &[(&own, "crud/read")], &[]);
    let (status, read) = run(&bob, id.as_str().unwrap(), json!({}), &[&token]).await;
    assert_eq!((status, &read["out"]), (200, &json!(1)), "{read}");
    let (status, refused) = run(&bob, id.as_str().unwrap(), json!({}), &[]).await;
    assert_eq!(status, 422);
    assert!(refused["error"].as_str().unwrap().contains("Capability denied"), "{refused}");
}

fn caps(list: &[(&str, &str)]) -> Vec<Capability> {
    let capability = |(with, can): &(&str, &str)| Capability {
        with: (*with).to_owned(),
        can: (*can).to_owned(),
    };
    list.iter().map(capability).collect()
}

/// Invokes an operation as a restricted caller and waits for its end.
async fn invoke_as(
    site: &Site,
    caller: &Caller,
    operation: &str,
    input: Json,
) -> Result<JobView, String> {
    let input = catena_value::json::read(input.to_string().as_bytes()).unwrap();
    let mut request = Invoke::new(caller.clone(), operation, input);
    request.wait = Some(catena_tests::TIMEOUT);
    match site.engine().invoke(request).await {
        Ok(invoked) => Ok(invoked.view),
        Err(InvokeError::Forbidden(denial)) => Err(denial),
        Err(error) => panic!("{operation}: {error}"),
    }
}

fn field(view: &JobView, name: &str) -> String {
    let value = view.job.field(name).cloned().unwrap_or_default();
    catena_value::json::to_string(&value).unwrap()
}

#[tokio::test]
async fn caps_narrow_what_a_caller_may_do() {
    let site = Site::start().await;
    let user = Caller::known(&did(1));
    let notes = user.narrowed(caps(&[("w/notes", "crud"), ("v/test/ops", "invoke")]));
    let write = |path: &str| json!({"path": path, "value": 1});
    let written = invoke_as(&site, &notes, "covia:write", write("w/notes/a")).await.unwrap();
    assert_eq!(written.status().to_string(), "COMPLETE");
    let recorded =
        r#"{"caps":[[{"can":"crud","with":"w/notes"},{"can":"invoke","with":"v/test/ops"}]]}"#;
    let recorded: Json = serde_json::from_str(recorded).unwrap();
    let found: Json = serde_json::from_str(&field(&written, "authority")).unwrap();
    assert_eq!(found, recorded, "a job keeps the restriction of its caller");
    invoke_as(&site, &notes, "test:echo", json!({})).await.unwrap();
    for (operation, input) in [
        ("covia:write", write("w/other")),
        ("covia:read", json!({"path": "w"})),
        ("http:get", json!({"url": "http://x/"})),
        ("secret:list", json!({})),
        ("secret:set", json!({"name": "K", "value": "v"})),
        ("ucan:issue", json!({"aud": did(2), "att": [{"with": "w", "can": "*"}]})),
        ("scheduler:list", json!({})),
    ] {
        let denial = invoke_as(&site, &notes, operation, input).await.unwrap_err();
        assert!(denial.starts_with(&format!("Capability denied: {operation} needs ")), "{denial}");
        assert!(denial.contains("has crud on w/notes, invoke on v/test/ops;"), "{denial}");
    }
    // A child never has more than its parent, and an empty list is nothing.
    let child = notes.narrowed(caps(&[("*", "*")]));
    invoke_as(&site, &child, "covia:write", write("w/other")).await.unwrap_err();
    let nothing = user.narrowed(Vec::new());
    let denial = invoke_as(&site, &nothing, "test:echo", json!({})).await.unwrap_err();
    assert!(denial.contains("has no capabilities"), "{denial}");
    invoke_as(&site, &user, "test:echo", json!({})).await.unwrap();
}

#[tokio::test]
async fn caps_apply_to_what_an_operation_runs() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let user = Caller::known(&did(1));
    for step in [
        json!({"op": "test:echo", "input": ["const", 1]}),
        json!({"op": "covia:write", "input": ["const", {"path": "w/a", "value": 1}]}),
        json!({"op": "grid:run", "input": ["const", {"operation": "test:echo", "input": 1}]}),
    ] {
        let definition = json!({"name": "Flow", "operation": {"adapter": "orchestrator",
            "steps": [step], "result": {"out": [0]}}});
        let id = alice.post("/api/v1/assets", &definition).await.expect(201).json();
        let id = id.as_str().unwrap();
        let narrow = user.narrowed(caps(&[("a", "invoke"), ("v/ops/grid", "invoke")]));
        let view = invoke_as(&site, &narrow, id, json!({})).await.unwrap();
        assert_eq!(view.status().to_string(), "FAILED", "{step}");
        assert!(field(&view, "error").contains("Capability denied"), "{}", field(&view, "error"));
        let view = invoke_as(&site, &user, id, json!({})).await.unwrap();
        assert_eq!(view.status().to_string(), "COMPLETE", "{step}");
    }
}
